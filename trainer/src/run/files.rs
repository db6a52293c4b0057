//! Files of a run folder, written so that a crash leaves the old one or the new one.

use crate::error::{Error, Result};
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Replaces a file: written beside it, synced, renamed over it.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let beside = with_suffix(path, ".new");
    let write = || -> std::io::Result<()> {
        let mut file = File::create(&beside)?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    write().map_err(|source| Error::io(&beside, "writing", source))?;
    fs::rename(&beside, path).map_err(|source| Error::io(path, "renaming", source))?;
    sync_folder_of(path)
}

/// Makes a folder with all its parents, as far as they are missing, durably. Gives those that were, each before its
/// parent.
pub fn make_folder(path: &Path) -> Result<Vec<PathBuf>> {
    let missing = missing(path);
    fs::create_dir_all(path).map_err(|source| Error::io(path, "making the folder", source))?;
    missing.iter().rev().try_for_each(|folder| sync_folder_of(folder))?;
    Ok(missing)
}

/// The path and the folders above it, as far as they are missing, each before its parent.
pub fn missing(path: &Path) -> Vec<PathBuf> {
    let is_missing = |folder: &&Path| !folder.as_os_str().is_empty() && !folder.exists();
    path.ancestors().take_while(is_missing).map(Path::to_path_buf).collect()
}

/// Makes the names in a file's folder durable.
pub fn sync_folder_of(path: &Path) -> Result<()> {
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(|source| Error::io(folder, "syncing", source))
}

/// A file's text, or None if there is none.
pub fn read(path: &Path) -> Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io(path, "reading", error)),
    }
}

/// Bytes that the files below a path take on their volumes, links not followed.
pub fn bytes_below(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let Ok(metadata) = fs::symlink_metadata(path) else { return 0 };
    if !metadata.is_dir() {
        return metadata.blocks() * 512;
    }
    let Ok(entries) = fs::read_dir(path) else { return 0 };
    entries.flatten().map(|entry| bytes_below(&entry.path())).sum()
}

/// The path with something added to its name.
pub fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}
