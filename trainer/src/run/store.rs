//! A run's store as seen from outside of training: its last commit, and an engine on it for tools that read.

use super::files;
use super::folder::{self, RunRecord};
use super::inputs::kept_model;
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
    // Metrics are begun after commit 0: with them, a store without a commit is not an import that was cut short.
    let had_commit = run.join("metrics.jsonl").exists();
    match mt_engine::describe(stores) {
        Ok(description) => {
            check_identity(&description, stores, record)?;
            note_of(&description, stores).map(Some)
        }
        Err(mt_engine::Error::NoCommit { path }) if had_commit => {
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

/// Refuses the store of another run.
pub(super) fn check_identity(description: &Description, stores: &[PathBuf], record: Option<&RunRecord>) -> Result<()> {
    let found = description.identity.uuid.to_string();
    match record {
        Some(record) if record.uuid != found => {
            let place = stores.first().map_or(String::new(), |store| store.display().to_string());
            Err(Error::input(
                place,
                "store",
                format!("the store of run {}", record.uuid),
                format!("that of run {found}"),
            ))
        }
        _ => Ok(()),
    }
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
        hint: Some(format!("if it moved, resume with --store {}=NEW", store.display())),
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
    let (Some(note), Some(model)) = (note, kept_model(run, settings)?) else { return Err(no_commit(run, settings)) };
    let description = mt_engine::describe(&stores)?;
    let arena = record_bytes(&description.regions) + ARENA;
    let config = Config {
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

fn no_commit(run: &Path, settings: &Settings) -> Error {
    let (found, hint) = match settings.durability {
        Durability::Full => ("none yet", Some(format!("run: mt resume {}", run.display()))),
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
        std::fs::write(stores[0].join("volume.mt"), vec![0; 1 << 16]).unwrap();
        assert_eq!(last_note(dir.path(), &stores, Some(&record)).unwrap(), None);
        std::fs::write(dir.path().join("metrics.jsonl"), "").unwrap();
        let error = last_note(dir.path(), &stores, Some(&record)).unwrap_err();
        assert_eq!(error.exit_code(), 4, "{error}");
    }
}
