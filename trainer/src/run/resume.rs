//! A run that goes on: at its last commit, or from the beginning if it has none yet.

use super::command_line::quoted;
use super::export::{self, Export};
use super::folder::{RunFolder, RunRecord};
use super::inputs::{self, Inputs};
use super::note::{Note, NoteBase};
use super::observer::{Event, Observer, Summary};
use super::start::{Process, Start};
use super::store;
use crate::checkpoint::{Dtype, ExportDtype};
use crate::error::{Error, Result};
use crate::settings::{Auto, Durability, Settings};
use mt_engine::{Backend, DirectIo};
use std::cell::OnceCell;
use std::path::{Path, PathBuf};

/// What may differ from the settings that the run was started with.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Changes {
    /// Steps of the whole run.
    pub steps: Option<u64>,
    /// Accept a total that changes the learning rates.
    pub allow_steps: bool,
    /// What to do where a store's file system refuses direct I/O.
    pub direct_io: Option<DirectIo>,
    /// How pages are moved.
    pub io: Option<Backend>,
    /// RAM of the process.
    pub ram: Option<Auto<u64>>,
    /// CPU threads.
    pub threads: Option<u64>,
    /// Steps between commits.
    pub checkpoint_every: Option<Auto<u64>>,
    /// Space for the store.
    pub disk: Option<Auto<u64>>,
    /// Bytes that the store may write over its life.
    pub max_writes: Option<u64>,
    /// Directories of the store that moved: from, to.
    pub stores: Vec<(PathBuf, PathBuf)>,
}

/// How a resume ended.
#[derive(Debug)]
pub enum Resumed {
    /// It went on.
    Went(Box<Summary>),
    /// All steps had been done before: the number of them.
    Finished(u64),
}

/// Goes on with a run. The numbers are those of a run that was never stopped.
///
/// # Errors
/// Settings, data or totals that differ from the commit's; those of `train`.
pub fn resume(run: &Path, changes: &Changes, process: &Process, observer: &mut dyn Observer) -> Result<Resumed> {
    let folder = RunFolder::open(run)?;
    let mut settings = folder.settings()?;
    require_durable(&folder, &settings)?;
    apply(&folder, &mut settings, changes)?;
    let record = folder.record()?;
    let stores = folder.stores(&settings);
    let note = store::last_note(folder.path(), &stores, record.as_ref());
    let Some(note) = note.map_err(|error| moved_hint(&folder, changes, &stores, error))? else {
        return restart(&folder, &settings, process, observer);
    };
    refuse_copy(&folder, &stores, &note)?;
    let model = store::require_model(folder.path(), &settings)?;
    let inputs = inputs::gather_kept(&folder, &settings, model, observer)?;
    check(&folder, record.as_ref(), &settings, &inputs, &note, changes, process)?;
    let record = record.map(|record| accepted(record, &settings, &inputs, &note));
    let committed = Some(note.step);
    let gpu = OnceCell::new();
    let start = Start { folder: &folder, settings: &settings, inputs: &inputs, process, committed, record, gpu };
    if note.step >= inputs.total_steps {
        start.keep_changes()?;
        export_finished(&folder, &settings, process, observer)?;
        return Ok(Resumed::Finished(note.step));
    }
    start.run(&mut Vec::new(), observer).map(|summary| Resumed::Went(Box::new(summary)))
}

/// Imports again: the process before ended before the first commit.
fn restart(folder: &RunFolder, settings: &Settings, process: &Process, observer: &mut dyn Observer) -> Result<Resumed> {
    observer.event(&Event::Notice("no commit yet, importing again"));
    folder.remove_record()?;
    let model = inputs::read_model(settings, None)?;
    let source = inputs::first_weights(settings, &model)?;
    inputs::keep_model(folder, settings, &model, &source)?;
    drop(source);
    let inputs = inputs::gather_new(folder, settings, model, observer)?;
    let start =
        Start { folder, settings, inputs: &inputs, process, committed: None, record: None, gpu: OnceCell::new() };
    start.run(&mut Vec::new(), observer).map(|summary| Resumed::Went(Box::new(summary))).map_err(|error| match error {
        Error::Stopped { .. } => Error::Stopped { hint: Some(format!("resume: {}", folder.resume_command())) },
        other => other,
    })
}

/// The export that was asked for, of a run whose steps are done: the process before may have ended within it.
fn export_finished(
    folder: &RunFolder,
    settings: &Settings,
    process: &Process,
    observer: &mut dyn Observer,
) -> Result<()> {
    let Some(out) = process.export.clone() else { return Ok(()) };
    let max_shard_bytes = export::MAX_SHARD_BYTES;
    let export = Export { out, dtype: ExportDtype::One(Dtype::F32), max_shard_bytes };
    let (_, report) = export::export_of(folder, settings, &export, &mut |_, _| {})?;
    report.notices.iter().for_each(|notice| observer.event(&Event::Notice(notice)));
    observer.event(&Event::Exported(&export.out));
    Ok(())
}

/// A store that is missing where `--store OLD=NEW` says that it is: OLD is still what the run knows.
fn moved_hint(folder: &RunFolder, changes: &Changes, stores: &[PathBuf], error: Error) -> Error {
    let Error::Input { place, field, expected, found, hint: Some(_) } = error else { return error };
    let wrong = stores.iter().find_map(|store| changes.stores.iter().find(|(_, to)| to == store));
    let known = wrong.map(|(from, _)| from).or(stores.first());
    let old = known.map_or(String::new(), |path| quoted(&path.display().to_string()));
    let hint = Some(format!("if it moved, run: {} --store {old}=NEW", folder.resume_command()));
    Error::Input { place, field, expected, found, hint }
}

/// Refuses to go on with a copy of a run's folder: two runs would write to one store.
fn refuse_copy(folder: &RunFolder, stores: &[PathBuf], note: &Note) -> Result<()> {
    let Some(owner) = store::owner_elsewhere(folder.path(), stores, note) else { return Ok(()) };
    Err(Error::Input {
        place: folder.shown().display().to_string(),
        field: "run".to_owned(),
        expected: "the folder that the store belongs to".to_owned(),
        found: format!("a copy of {}", owner.display()),
        hint: Some(format!("run: mt resume {}", quoted(&owner.display().to_string()))),
    })
}

fn require_durable(folder: &RunFolder, settings: &Settings) -> Result<()> {
    if settings.durability == Durability::Full {
        return Ok(());
    }
    let place = folder.shown().display().to_string();
    Err(Error::Input {
        field: "durability".to_owned(),
        expected: "full: a run with commits".to_owned(),
        found: "none: nothing to resume".to_owned(),
        hint: Some(format!("start again: mt train {} --run NEW", quoted(&format!("{place}/settings.toml")))),
        place,
    })
}

/// Brings the changes into the settings.
fn apply(folder: &RunFolder, settings: &mut Settings, changes: &Changes) -> Result<()> {
    if let Some(steps) = changes.steps {
        settings.steps = Some(steps);
    }
    if let Some(direct_io) = changes.direct_io {
        settings.direct_io = direct_io;
    }
    if let Some(io) = changes.io {
        settings.io = io;
    }
    if let Some(ram) = changes.ram {
        settings.ram = ram;
    }
    if let Some(threads) = changes.threads {
        settings.threads = threads;
    }
    if let Some(every) = changes.checkpoint_every {
        settings.checkpoint_every = every;
    }
    if let Some(disk) = changes.disk {
        settings.disk = disk;
    }
    settings.max_writes = changes.max_writes.or(settings.max_writes);
    for (from, to) in &changes.stores {
        let mut stores = folder.stores(settings);
        let Some(place) = stores.iter_mut().find(|store| *store == from) else {
            let known: Vec<String> = stores.iter().map(|store| store.display().to_string()).collect();
            let found = from.display().to_string();
            return Err(Error::input("command line", "--store OLD=NEW", format!("OLD of {}", known.join(", ")), found));
        };
        place.clone_from(to);
        settings.store = stores;
    }
    Ok(())
}

/// Whether the total differs from the commit's so that the learning rates do.
fn changes_rates(settings: &Settings, inputs: &Inputs, note: &Note) -> bool {
    !inputs::learning_rate(settings, note.total_steps).same_rates(&inputs.lr)
}

/// The record that another total was accepted, until a commit holds it: the process may end before its first one.
fn accepted(record: RunRecord, settings: &Settings, inputs: &Inputs, note: &Note) -> RunRecord {
    let accepted_steps = changes_rates(settings, inputs, note).then_some(inputs.total_steps);
    RunRecord { accepted_steps, ..record }
}

/// Compares the commit with the run as it is now.
fn check(
    folder: &RunFolder,
    record: Option<&RunRecord>,
    settings: &Settings,
    inputs: &Inputs,
    note: &Note,
    changes: &Changes,
    process: &Process,
) -> Result<()> {
    let base = NoteBase {
        run: record.map_or(&note.run, |record| &record.uuid).clone(),
        total_steps: inputs.total_steps,
        tokens_digest: inputs.tokens_digest.clone(),
        folder: folder.path().display().to_string(),
        settings: settings.clone(),
    };
    base.check(note, folder.path())?;
    let refuse = |expected: String, hint: Option<String>| {
        let found = inputs.total_steps.to_string();
        Error::Input { place: "command line".to_owned(), field: "--steps".to_owned(), expected, found, hint }
    };
    if inputs.total_steps < note.step {
        return Err(refuse(format!("at least {}, the steps already done", note.step), None));
    }
    let is_accepted =
        changes.allow_steps || record.is_some_and(|record| record.accepted_steps == Some(inputs.total_steps));
    if !is_accepted && changes_rates(settings, inputs, note) {
        let expected = format!("{}, since another total changes the learning rates", note.total_steps);
        let hint = format!("to accept that, run: {}", process.command.with("allow-change", "steps"));
        return Err(refuse(expected, Some(hint)));
    }
    Ok(())
}
