//! A run that goes on: at its last commit, or from the beginning if it has none yet.

use super::command_line::quoted;
use super::folder::{RunFolder, RunRecord};
use super::inputs::{self, Inputs};
use super::note::{Note, NoteBase};
use super::observer::{Event, Observer, Summary};
use super::start::{Process, Start};
use super::store;
use crate::error::{Error, Result};
use crate::settings::{Auto, Durability, Settings};
use mt_engine::{Backend, DirectIo};
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
    let note = match store::last_note(folder.path(), &folder.stores(&settings), folder.record()?.as_ref())? {
        Some(note) => note,
        None => return restart(&folder, &settings, process, observer),
    };
    let model = inputs::kept_model(folder.path(), &settings)?
        .ok_or_else(|| Error::input(folder.path().display().to_string(), "model/config.json", "a file", "none"))?;
    let inputs = inputs::gather(&folder, &settings, model)?;
    let record = folder.record()?;
    check(&folder, record.as_ref(), &settings, &inputs, &note, changes, process)?;
    if let Some(record) = record {
        keep_accepted(&folder, record, &settings, &inputs, &note)?;
    }
    folder.write_settings(&settings)?;
    if note.step >= inputs.total_steps {
        return Ok(Resumed::Finished(note.step));
    }
    let start = Start { folder: &folder, settings: &settings, inputs: &inputs, process, committed: Some(note.step) };
    start.run(&mut Vec::new(), observer).map(|summary| Resumed::Went(Box::new(summary)))
}

/// Imports again: the process before ended before the first commit.
fn restart(folder: &RunFolder, settings: &Settings, process: &Process, observer: &mut dyn Observer) -> Result<Resumed> {
    observer.event(&Event::Notice("no commit yet, importing again"));
    folder.remove_record()?;
    folder.write_settings(settings)?;
    let model = inputs::read_model(settings)?;
    let source = inputs::first_weights(settings, &model)?;
    inputs::keep_model(folder, settings, &model, &source)?;
    drop(source);
    let inputs = inputs::gather(folder, settings, model)?;
    let start = Start { folder, settings, inputs: &inputs, process, committed: None };
    start.run(&mut Vec::new(), observer).map(|summary| Resumed::Went(Box::new(summary)))
}

fn require_durable(folder: &RunFolder, settings: &Settings) -> Result<()> {
    if settings.durability == Durability::Full {
        return Ok(());
    }
    let place = folder.path().display().to_string();
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

/// Keeps that another total was accepted until a commit holds it: the process may end before its first one.
fn keep_accepted(
    folder: &RunFolder,
    record: RunRecord,
    settings: &Settings,
    inputs: &Inputs,
    note: &Note,
) -> Result<()> {
    let accepted_steps = changes_rates(settings, inputs, note).then_some(inputs.total_steps);
    if record.accepted_steps == accepted_steps {
        return Ok(());
    }
    folder.write_record(&RunRecord { accepted_steps, ..record })
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
