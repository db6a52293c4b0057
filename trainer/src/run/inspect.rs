//! Looking at a run without changing anything.

use super::folder::{self, RunRecord};
use super::metrics::{self, StepRecord};
use super::note::Note;
use super::store;
use crate::error::Result;
use crate::settings::{Durability, Settings};
use mt_engine::Description;
use std::path::{Path, PathBuf};

/// Where a run stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Standing {
    /// It has a commit of this step, of so many.
    Committed {
        /// Steps in the commit.
        step: u64,
        /// Steps of the whole run.
        total_steps: u64,
    },
    /// A process works on it.
    InUse(u32),
    /// It has no commit yet; a resume imports again.
    NoCommit,
    /// It was run with `--durability none`: nothing but its metrics is left.
    NotKept,
    /// Its store is missing or does not open.
    Broken(String),
}

/// What is known of a run.
#[derive(Clone, Debug)]
pub struct Inspection {
    /// Its folder.
    pub run: PathBuf,
    /// Its settings.
    pub settings: Settings,
    /// Directories of its store.
    pub stores: Vec<PathBuf>,
    /// Where it stands.
    pub standing: Standing,
    /// What its store says, if it could be read.
    pub description: Option<Description>,
    /// The note of its last commit.
    pub note: Option<Note>,
    /// The folder that its store belongs to, where this one is a copy of it.
    pub owner: Option<PathBuf>,
    /// Its last step line.
    pub last: Option<StepRecord>,
    /// Bytes on disk of the folder, the store in it left out.
    pub folder_bytes: u64,
    /// Bytes on disk of the store.
    pub store_bytes: u64,
}

/// Looks at a run.
///
/// # Errors
/// The path is no run, or its settings do not read; its store is another run's.
pub fn inspect(run: &Path) -> Result<Inspection> {
    let found = look(run)?;
    if let Some(description) = &found.description {
        store::check_identity(description, run, &found.stores, folder::record(run)?.as_ref())?;
    }
    Ok(found)
}

/// As `inspect`, but the store of another run counts as broken.
pub(super) fn look(run: &Path) -> Result<Inspection> {
    folder::require(run)?;
    let settings = folder::settings(run)?;
    let stores = folder::stores(run, &settings);
    let (standing, description, note) = standing(run, &settings, &stores, folder::record(run)?.as_ref());
    let store_bytes = store::bytes(&stores);
    let inside: u64 =
        stores.iter().filter(|store| store.starts_with(run)).map(|store| super::files::bytes_below(store)).sum();
    Ok(Inspection {
        run: run.to_owned(),
        owner: note.as_ref().and_then(|note| store::owner_elsewhere(run, &stores, note)),
        standing: mt_engine::holder(run).map_or(standing, Standing::InUse),
        description,
        note,
        last: metrics::read(&run.join("metrics.jsonl")).pop(),
        folder_bytes: super::files::bytes_below(run) - inside,
        store_bytes,
        settings,
        stores,
    })
}

fn standing(
    run: &Path,
    settings: &Settings,
    stores: &[PathBuf],
    record: Option<&RunRecord>,
) -> (Standing, Option<Description>, Option<Note>) {
    if settings.durability == Durability::None {
        return (Standing::NotKept, None, None);
    }
    let description = match store::describe(run, stores, record) {
        Ok(Some(description)) => description,
        Ok(None) => return (Standing::NoCommit, None, None),
        Err(error) => return (Standing::Broken(error.to_string()), None, None),
    };
    let note =
        store::check_identity(&description, run, stores, record).and_then(|()| store::note_of(&description, stores));
    match note {
        Ok(note) => {
            let standing = Standing::Committed { step: note.step, total_steps: note.total_steps };
            (standing, Some(description), Some(note))
        }
        Err(error) => (Standing::Broken(error.to_string()), Some(description), None),
    }
}
