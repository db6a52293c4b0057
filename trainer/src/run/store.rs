//! A run's store as seen from outside of training: its last commit, and an engine on it for tools that read.

use super::command_line::quoted;
use super::files;
use super::folder::{self, RunRecord};
use super::inputs::{Model, kept_model};
use super::note::Note;
use crate::error::{Error, Result};
use crate::layout::{HI, Layout};
use crate::model::{Manifest, ModelConfig};
use crate::settings::{Durability, Settings};
use mt_engine::{Backend, Config, Description, Engine, record_bytes};
use std::path::{Path, PathBuf};

/// Arena for tools that read, beside the store's records: enough for long transfers in both directions.
const ARENA: u64 = 48 << 20;
/// Elements that tools read at a time.
const CHUNK_ELEMENTS: usize = 1 << 20;

/// The last commit's note of a run; None if the store has no commit yet.
///
/// # Errors
/// A store or a commit that should be there and is not; the engine's; a note that does not read.
pub(super) fn last_note(run: &Path, stores: &[PathBuf], record: Option<&RunRecord>) -> Result<Option<Note>> {
    let Some(description) = describe(run, stores, record)? else { return Ok(None) };
    check_identity(&description, run, stores, record)?;
    note_of(&description, stores).map(Some)
}

/// What a run's store says of itself, whosever it is; None if it has no commit yet.
///
/// # Errors
/// A store or a commit that should be there and is not; the engine's.
pub(super) fn describe(run: &Path, stores: &[PathBuf], record: Option<&RunRecord>) -> Result<Option<Description>> {
    match mt_engine::describe(stores) {
        Ok(description) => Ok(Some(description)),
        // With steps, a store without a commit is not an import that was cut short.
        Err(mt_engine::Error::NoCommit { path }) if folder::has_begun(run) => {
            let what = "no superblock of a commit is left, though the run had commits".to_owned();
            Err(mt_engine::Error::Damaged { path, what }.into())
        }
        Err(mt_engine::Error::NoCommit { .. }) => Ok(None),
        Err(mt_engine::Error::NoStore { path }) => match record {
            None => Ok(None),
            Some(record) => Err(missing(run, &path, record)),
        },
        Err(error) => Err(error.into()),
    }
}

/// Refuses the store of another run. A folder without a record can only own what lies in it: the record of a store that
/// was made elsewhere is written before its first commit.
pub(super) fn check_identity(
    description: &Description,
    run: &Path,
    stores: &[PathBuf],
    record: Option<&RunRecord>,
) -> Result<()> {
    let found = description.identity.uuid.to_string();
    let expected = match record {
        Some(record) if record.uuid != found => format!("the store of run {}", record.uuid),
        None if !is_inside(run, stores) => "no store yet, since run.json names none".to_owned(),
        _ => return Ok(()),
    };
    let place = stores.first().map_or(String::new(), |store| store.display().to_string());
    Err(Error::input(place, "store", expected, format!("that of run {found}")))
}

/// Whether a store lies in the run's folder, so that it goes where that goes.
fn is_inside(run: &Path, stores: &[PathBuf]) -> bool {
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let run = absolute(run);
    stores.iter().all(|store| absolute(store).starts_with(&run))
}

/// The folder of the run that a store belongs to, if `run` is a copy of it: both folders have the same id, but the
/// store lies in neither, and it is the other one that its last commit names.
pub(super) fn owner_elsewhere(run: &Path, stores: &[PathBuf], note: &Note) -> Option<PathBuf> {
    let owner = Path::new(&note.folder);
    let same = |a: &Path, b: &Path| {
        std::fs::canonicalize(a).ok().zip(std::fs::canonicalize(b).ok()).is_some_and(|(a, b)| a == b)
    };
    // A folder that moved is not there any more, or is something else by now.
    let record = if note.folder.is_empty() { None } else { folder::record(owner).ok().flatten() };
    let is_original = record.is_some_and(|record| record.uuid == note.run) && !same(owner, run);
    (is_original && !is_inside(run, stores)).then(|| owner.to_owned())
}

/// The note of a described store.
pub(super) fn note_of(description: &Description, stores: &[PathBuf]) -> Result<Note> {
    Note::decode(&description.note).map_err(|found| {
        let place = stores.first().map_or(String::new(), |store| store.display().to_string());
        Error::input(place, "note of the last commit", "the note of a run", found)
    })
}

fn missing(run: &Path, store: &Path, record: &RunRecord) -> Error {
    Error::Input {
        place: run.display().to_string(),
        field: "store".to_owned(),
        expected: format!("the store of run {} in {}", record.uuid, store.display()),
        found: "no store".to_owned(),
        hint: Some(format!(
            "if it moved, run: mt resume {} --store {}=NEW",
            quoted(&run.display().to_string()),
            quoted(&store.display().to_string())
        )),
    }
}

/// A run that can be read: everything that is known of it, and an engine at its last commit.
pub(super) struct Reader {
    pub config: ModelConfig,
    pub manifest: Manifest,
    pub layout: Layout,
    pub note: Note,
    pub engine: Engine,
    /// Bytes of the engine's arena.
    pub arena: u64,
    /// What the engine has to say, a line each.
    pub notices: Vec<String>,
}

/// Opens a run's last commit for reading. The caller holds the run's lock.
///
/// # Errors
/// `Input` for a run without commits; the engine's.
pub(super) fn open(run: &Path, settings: &Settings) -> Result<Reader> {
    let stores = folder::stores(run, settings);
    let record = folder::record(run)?;
    let note = match settings.durability {
        Durability::Full => last_note(run, &stores, record.as_ref())?,
        Durability::None => None,
    };
    let note = note.ok_or_else(|| no_commit(run, settings))?;
    let model = require_model(run, settings)?;
    let description = mt_engine::describe(&stores)?;
    let arena = record_bytes(&description.regions) + ARENA;
    let config = Config {
        read_only: true,
        backend: reading(settings.io),
        checksum_threads: checksum_threads(),
        ..Config::new(stores.clone(), arena)
    };
    let engine = Engine::open(config)?;
    let page_elements = description.regions[HI.0 as usize].page_bytes as usize / 2;
    let layout = Layout::new(&model.manifest, Some(page_elements), CHUNK_ELEMENTS);
    let notices = engine.notices();
    Ok(Reader { config: model.config, manifest: model.manifest, layout, note, engine, arena, notices })
}

/// Threads that compare checksums for tools that read, which have nothing else to compute: one core of a Xeon with
/// AVX-512 checks 18 GB/s, so that four are ahead of any set of drives.
fn checksum_threads() -> u32 {
    std::thread::available_parallelism().map_or(1, |threads| threads.get().min(4) as u32)
}

/// The backend for a tool that reads: what a run demands of a machine must not keep its state from being read.
fn reading(io: Backend) -> Backend {
    if io == Backend::Pool { Backend::Pool } else { Backend::Auto }
}

/// The model that a run with a commit keeps.
pub(super) fn require_model(run: &Path, settings: &Settings) -> Result<Model> {
    kept_model(run, settings)?.ok_or_else(|| Error::Input {
        place: run.display().to_string(),
        field: "model/config.json".to_owned(),
        expected: "the configuration that the run was started with".to_owned(),
        found: "no such file".to_owned(),
        hint: settings.model.as_ref().map(|from| format!("put it back, from {}", from.display())),
    })
}

fn no_commit(run: &Path, settings: &Settings) -> Error {
    let (found, hint) = match settings.durability {
        Durability::Full => ("none yet", Some(format!("run: mt resume {}", quoted(&run.display().to_string())))),
        Durability::None => ("a run with --durability none, which keeps nothing", None),
    };
    let (place, found) = (run.display().to_string(), found.to_owned());
    Error::Input { place, field: "commit".to_owned(), expected: "a run with a commit".to_owned(), found, hint }
}

/// Bytes that a store's folders take.
pub(super) fn bytes(stores: &[PathBuf]) -> u64 {
    stores.iter().map(|store| files::bytes_below(store)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn store_without_a_commit_is_an_import_only_before_the_first_step() {
        let dir = tempfile::tempdir().unwrap();
        let stores = [dir.path().join("store")];
        let record = RunRecord { uuid: "a".to_owned(), version: "1".to_owned(), accepted_steps: None };
        assert_eq!(last_note(dir.path(), &stores, None).unwrap(), None);
        assert!(last_note(dir.path(), &stores, Some(&record)).unwrap_err().to_string().contains("--store"));

        std::fs::create_dir(&stores[0]).unwrap();
        std::fs::write(stores[0].join("volume.mt"), "").unwrap();
        assert_eq!(last_note(dir.path(), &stores, Some(&record)).unwrap(), None);
        std::fs::write(dir.path().join("metrics.jsonl"), "").unwrap();
        let error = last_note(dir.path(), &stores, Some(&record)).unwrap_err();
        assert_eq!(error.exit_code(), 4, "{error}");
    }
}
