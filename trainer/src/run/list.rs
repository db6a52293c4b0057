//! The runs in a folder, and removing one.

use super::folder::{self, RunFolder};
use super::inspect::{Inspection, inspect};
use crate::error::{Error, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// The runs directly in a folder, by name. A folder that does not read as a run is left out.
///
/// # Errors
/// The folder cannot be read.
pub fn list(dir: &Path) -> Result<Vec<Inspection>> {
    let entries = fs::read_dir(dir).map_err(|source| Error::io(dir, "listing", source))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    Ok(paths.iter().filter(|path| folder::require(path).is_ok()).filter_map(|path| inspect(path).ok()).collect())
}

/// Removes a run's folder and its store. Files in the store's folders that are not the store's stay. Returns the bytes
/// freed.
///
/// # Errors
/// The path is no run; a process works on it; I/O.
pub fn remove(run: &Path) -> Result<u64> {
    folder::require(run)?;
    let folder = RunFolder::open(run)?;
    let stores = folder.stores(&folder.settings()?);
    let mut freed = mt_engine::remove(&stores)?;
    freed += super::files::bytes_below(folder.path());
    // The settings last: until then the folder is a run, and this can be done again.
    let settings = folder.path().join("settings.toml");
    let entries = fs::read_dir(folder.path()).map_err(|source| Error::io(folder.path(), "listing", source))?;
    for path in entries.flatten().map(|entry| entry.path()).filter(|path| *path != settings) {
        let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.map_err(|source| Error::io(&path, "removing", source))?;
    }
    fs::remove_dir_all(folder.path()).map_err(|source| Error::io(folder.path(), "removing", source))?;
    Ok(freed)
}
