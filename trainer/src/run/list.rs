//! The runs in a folder, and removing one.

use super::files;
use super::folder::{self, PROCESSES, REPORT, RunFolder};
use super::inspect::{Inspection, look};
use super::store;
use crate::checkpoint::names_of_files;
use crate::error::{Error, Result};
use crate::input;
use mt_engine::Error as EngineError;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The runs directly in a folder, by name, numbers in it by their size. A run that does not read comes with the reason;
/// what is no run is left out.
///
/// # Errors
/// The folder cannot be read.
pub fn list(dir: &Path) -> Result<Vec<(PathBuf, Result<Inspection>)>> {
    let entries = input::entries(dir, "a folder with runs")?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| folder::require(path).is_ok());
    paths.sort_by_cached_key(|path| by_number(&path.display().to_string()));
    Ok(paths.into_iter().map(|path| (path.clone(), look(&path))).collect())
}

/// A key by which run-2 comes before run-10.
fn by_number(name: &str) -> Vec<(u64, String)> {
    let parts = name.as_bytes().chunk_by(|a, b| a.is_ascii_digit() == b.is_ascii_digit());
    let part = |part: &[u8]| {
        let text = String::from_utf8_lossy(part).into_owned();
        (text.parse().unwrap_or(0), text)
    };
    parts.map(part).collect()
}

/// What a removal did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Removed {
    /// Bytes freed on the volumes.
    pub bytes: u64,
    /// Files and folders in the run's folders that are not the run's: they stay.
    pub kept: Vec<PathBuf>,
}

/// A run that is going to be removed: locked, and nothing refuses it.
#[derive(Debug)]
pub struct Removal {
    folder: RunFolder,
    stores: Vec<PathBuf>,
    /// The store is another run's, of which this is a copy.
    stays: bool,
}

/// Makes ready to remove a run.
///
/// # Errors
/// The path is no run; a process works on it; its store is another run's; I/O.
pub fn removal(run: &Path) -> Result<Removal> {
    folder::require(run)?;
    let folder = RunFolder::open(run)?;
    let stores = folder.stores(&folder.settings()?);
    let stays = !is_own_store(&folder, &stores)?;
    Ok(Removal { folder, stores, stays })
}

/// Removes a run's own files, its store, and the folders if nothing else is in them.
///
/// # Errors
/// I/O.
pub fn remove(Removal { folder, stores, stays }: Removal) -> Result<Removed> {
    let mut bytes = if stays { 0 } else { mt_engine::remove(&stores)? };
    let model = folder.model();
    let of_model = names_of_files().chain(["config.json"]).map(|name| model.join(name));
    let of_run = ["run.json", "source.json", "tokens.bin", "metrics.jsonl", PROCESSES, REPORT];
    let of_run = of_run.map(|name| folder.path().join(name));
    // The settings last: until then the folder is a run, and this can be done again.
    let settings = folder.path().join("settings.toml");
    for path in of_model.chain(of_run).chain([settings]) {
        bytes += remove_file(&path)?;
        bytes += remove_file(&files::with_suffix(&path, ".new"))?;
    }
    let path = folder.path().to_owned();
    drop(folder);
    remove_file(&path.join("lock"))?;
    let mut kept = Vec::new();
    for dir in [&model, &path].into_iter().chain(stores.iter().filter(|_| !stays)) {
        // Fails where something else is in it, and then that is what is named.
        if fs::remove_dir(dir).is_err() {
            kept.extend(fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()));
        }
    }
    kept.retain(|kept| *kept != model && !stores.contains(kept));
    if stays {
        kept.extend(stores);
    }
    let _ = fs::remove_dir(&path);
    Ok(Removed { bytes, kept })
}

/// Whether what lies where the run's store would be is the run's, or the beginning of a store that is nobody's yet.
fn is_own_store(folder: &RunFolder, stores: &[PathBuf]) -> Result<bool> {
    let record = folder.record()?;
    match mt_engine::describe(stores) {
        Ok(description) => {
            store::check_identity(&description, folder.path(), stores, record.as_ref())?;
            let note = store::note_of(&description, stores)?;
            Ok(store::owner_elsewhere(folder.path(), stores, &note).is_none())
        }
        Err(EngineError::NoStore { .. } | EngineError::NoCommit { .. }) => Ok(true),
        Err(error @ (EngineError::Locked { .. } | EngineError::Format { .. })) => Err(error.into()),
        // It does not say whose it is. A run that has made a store finds it damaged; one that has not made any has met
        // somebody else's file.
        Err(_) => Ok(record.is_some()),
    }
}

/// Removes a file that may not be there; returns the bytes that it took.
fn remove_file(path: &Path) -> Result<u64> {
    let bytes = files::bytes_below(path);
    match fs::remove_file(path) {
        Err(source) if source.kind() != ErrorKind::NotFound => Err(Error::io(path, "removing", source)),
        _ => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_names_are_sorted_by_their_size() {
        let mut names = ["r-10", "r-2", "a", "r-2b", "r", "r-1"];
        names.sort_by_key(|name| by_number(name));
        assert_eq!(names, ["a", "r", "r-1", "r-2", "r-2b", "r-10"]);
    }

    #[test]
    fn files_that_are_not_the_runs_stay_and_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path().join("run");
        for name in ["model", "store", "mine"] {
            fs::create_dir_all(run.join(name)).unwrap();
        }
        let settings = toml::to_string(&crate::run::tests::settings()).unwrap();
        for (name, text) in [("settings.toml", settings.as_str()), ("metrics.jsonl", ""), ("model/config.json", "{}")] {
            fs::write(run.join(name), text).unwrap();
        }
        let foreign = [run.join("mine/a"), run.join("store/b"), run.join("model/c"), run.join("d")];
        for path in &foreign {
            fs::write(path, "x").unwrap();
        }
        let removed = remove(removal(&run).unwrap()).unwrap();
        assert!(foreign.iter().all(|path| path.exists()));
        assert!(!run.join("settings.toml").exists() && !run.join("model/config.json").exists());
        let mut kept = removed.kept;
        kept.sort();
        assert_eq!(kept, [run.join("d"), run.join("mine"), run.join("model/c"), run.join("store/b")]);
    }
}
