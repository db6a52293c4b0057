//! Files and folders that a user names: opening data, a model folder and its files, profiles, settings; and the refusal
//! of places where nothing can be made.
//!
//! What it is not: it knows no format, and a run's own files are `run::files`'s.
//!
//! A file that is not there, that this user may not read, or that is no regular file is input that cannot be used,
//! whatever it was to hold. Nothing else is opened: a named pipe without a writer would block for ever, and some
//! devices act when they are opened. Once a file is open, a read that fails is an I/O error.

use crate::error::{Error, Result};
use std::fs::{File, FileType, ReadDir};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// What is refused, in messages.
const FILE: &str = "file";

/// Opens a file for reading; `expected` says what it should be, as in "a text file".
///
/// # Errors
/// `Input`.
pub fn open(path: &Path, expected: &str) -> Result<File> {
    let unusable = |error| unusable(path, FILE, expected, &error);
    let kind = std::fs::metadata(path).map_err(unusable)?.file_type();
    if !kind.is_file() {
        let hint = (!kind.is_dir()).then_some("write what it gives to a file and name that");
        return Err(refusal(path, FILE, expected, name(kind), hint));
    }
    File::open(path).map_err(unusable)
}

/// As [`open`]; None if there is no such file.
///
/// # Errors
/// `Input`.
pub fn open_if_present(path: &Path, expected: &str) -> Result<Option<File>> {
    match std::fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        _ => open(path, expected).map(Some),
    }
}

/// The text of a file.
///
/// # Errors
/// As [`open`]; `Input` if it is not UTF-8; `Io` if reading fails.
pub fn text(path: &Path, expected: &str) -> Result<String> {
    String::from_utf8(bytes(path, open(path, expected)?)?).map_err(|error| {
        let found = format!("no UTF-8 at byte {}", error.utf8_error().valid_up_to());
        refusal(path, FILE, expected, &found, None)
    })
}

/// What a folder holds.
///
/// # Errors
/// `Input`.
pub fn entries(path: &Path, expected: &str) -> Result<ReadDir> {
    std::fs::read_dir(path).map_err(|error| unusable(path, "folder", expected, &error))
}

/// All bytes of an open file; `path` is named in errors.
///
/// # Errors
/// `Io`.
pub fn bytes(path: &Path, mut file: File) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(|source| Error::io(path, "reading", source))?;
    Ok(bytes)
}

/// Refuses a path for a folder, which may have to be made, where something else is or is in the way. `field` is the
/// flag.
///
/// # Errors
/// `Input`.
pub fn folder_place(path: &Path, field: &str, expected: &str) -> Result<()> {
    for at in path.ancestors().filter(|at| !at.as_os_str().is_empty()) {
        let found = match std::fs::metadata(at) {
            Ok(data) if data.is_dir() => return Ok(()),
            Ok(data) => name(data.file_type()),
            Err(_) if at.is_symlink() => "a link that leads nowhere",
            // What is above it says whether it can be made.
            Err(_) => continue,
        };
        let found = if at == path { found.to_owned() } else { format!("{found} at {}", at.display()) };
        return Err(refusal(path, field, expected, &found, None));
    }
    Ok(())
}

/// Refuses a path for a file, to be made or replaced, where something is that is no regular file. `field` is the flag.
///
/// # Errors
/// `Input`.
pub fn file_place(path: &Path, field: &str, expected: &str) -> Result<()> {
    match std::fs::metadata(path) {
        Ok(data) if !data.is_file() => Err(refusal(path, field, expected, name(data.file_type()), None)),
        _ => Ok(()),
    }
}

/// The error of making a file or folder where a user said: the place is at fault where its folder is not there or may
/// not be written to. `field` is the flag.
pub fn unmade(path: &Path, field: &str, expected: &str, doing: &'static str, source: std::io::Error) -> Error {
    let found = match source.kind() {
        ErrorKind::NotFound => "no such folder above it",
        ErrorKind::NotADirectory => "a file where its folder should be",
        ErrorKind::PermissionDenied => "a folder that this user may not write to",
        _ => return Error::io(path, doing, source),
    };
    refusal(path, field, expected, found, None)
}

/// The refusal of what cannot be opened.
fn unusable(path: &Path, field: &str, expected: &str, error: &std::io::Error) -> Error {
    let missing = format!("no such {field}");
    let other = error.to_string();
    let (found, hint) = match error.kind() {
        ErrorKind::NotFound => (missing.as_str(), None),
        ErrorKind::PermissionDenied => ("a path that this user may not read", Some("its owner can allow it: chmod +r")),
        _ => (other.as_str(), None),
    };
    refusal(path, field, expected, found, hint)
}

fn refusal(path: &Path, field: &str, expected: &str, found: &str, hint: Option<&str>) -> Error {
    Error::Input {
        place: path.display().to_string(),
        field: field.to_owned(),
        expected: expected.to_owned(),
        found: found.to_owned(),
        hint: hint.map(str::to_owned),
    }
}

/// What there is, in messages.
pub fn name(kind: FileType) -> &'static str {
    match kind {
        kind if kind.is_file() => "a file",
        kind if kind.is_dir() => "a folder",
        kind if kind.is_fifo() => "a pipe",
        kind if kind.is_socket() => "a socket",
        _ => "a device",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn what_is_no_regular_file_is_refused_by_its_kind() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let _socket = UnixListener::bind(path("socket")).unwrap();
        std::fs::write(path("bytes"), b"ab\xff").unwrap();
        let device = Path::new("/dev/null").to_path_buf();
        for (path, found) in [
            (path("none"), "no such file"),
            (path("bytes/below"), "Not a directory"),
            (folder.path().to_path_buf(), "a folder"),
            (path("socket"), "a socket"),
            (device, "a device"),
            (path("bytes"), "no UTF-8 at byte 2"),
        ] {
            let error = text(&path, "a text file").unwrap_err();
            assert_eq!(error.exit_code(), 2, "{error}");
            let said = error.to_string();
            assert!(said.contains(found) && said.contains(&path.display().to_string()), "{said}");
        }
        let error = entries(&path("none"), "a folder with runs").unwrap_err();
        assert!(error.exit_code() == 2 && error.to_string().ends_with("found no such folder"), "{error}");
        assert!(open_if_present(&path("none"), "a text file").unwrap().is_none());
        assert!(open_if_present(&path("socket"), "a text file").is_err());
    }

    #[test]
    fn places_where_nothing_can_be_made_are_refused_by_what_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("file"), "x").unwrap();
        std::os::unix::fs::symlink("nowhere", path("link")).unwrap();
        let file = path("file").display().to_string();
        for (place, found) in [
            (path("file"), "found a file".to_owned()),
            (path("file/a/b"), format!("found a file at {file}")),
            (path("link"), "found a link that leads nowhere".to_owned()),
        ] {
            let error = folder_place(&place, "--store", "a folder").unwrap_err();
            let said = error.to_string();
            assert_eq!(said, format!("{}: --store: expected a folder, {found}", place.display()));
            assert_eq!(error.exit_code(), 2, "{said}");
        }
        for good in ["", "new", "new/below"] {
            folder_place(&path(good), "--store", "a folder").unwrap();
        }
        folder_place(Path::new("relative"), "--store", "a folder").unwrap();
        assert!(file_place(folder.path(), "--trace", "a file").unwrap_err().to_string().ends_with("found a folder"));
        file_place(&path("file"), "--trace", "a file").unwrap();
        file_place(&path("new"), "--trace", "a file").unwrap();
        for (kind, code) in [
            (ErrorKind::NotFound, 2),
            (ErrorKind::NotADirectory, 2),
            (ErrorKind::PermissionDenied, 2),
            (ErrorKind::ReadOnlyFilesystem, 4),
            (ErrorKind::StorageFull, 4),
        ] {
            let error = unmade(&path("new"), "--trace", "a file", "making the file", kind.into());
            assert_eq!(error.exit_code(), code, "{error}");
        }
    }
}
