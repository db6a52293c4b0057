//! Folders and small files of /proc and /sys. What cannot be read counts as not there.

use std::fs;
use std::path::{Path, PathBuf};

/// The last part of a path.
pub(super) fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Entries of a folder in order of their names; none if it cannot be read.
pub fn children(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let mut entries: Vec<PathBuf> = entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
    entries.sort();
    entries
}

/// A small file's text without white space around; None if it is empty or cannot be read.
pub fn text_in(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// A small file's number.
pub fn number_in(path: &Path) -> Option<u64> {
    text_in(path)?.parse().ok()
}
