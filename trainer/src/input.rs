//! Opening files that a user names: data, a model folder's files, profiles, settings.
//!
//! What it is not: it knows no format, and a run's own files are `run::files`'s.
//!
//! A file that is not there, that this user may not read, or that is no regular file is input that cannot be used,
//! whatever it was to hold. Nothing else is opened: a named pipe without a writer would block for ever, and some
//! devices act when they are opened. Once a file is open, a read that fails is an I/O error.

use crate::error::{Error, Result};
use std::fs::{File, FileType};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// Opens a file for reading; `expected` says what it should be, as in "a text file".
///
/// # Errors
/// `Input`.
pub fn open(path: &Path, expected: &str) -> Result<File> {
    let unusable = |error: &std::io::Error| match error.kind() {
        ErrorKind::NotFound => refusal(path, expected, "no such file", None),
        ErrorKind::PermissionDenied => {
            refusal(path, expected, "a path that this user may not read", Some("chmod gives the right to"))
        }
        _ => refusal(path, expected, &error.to_string(), None),
    };
    let kind = std::fs::metadata(path).map_err(|error| unusable(&error))?.file_type();
    if !kind.is_file() {
        let hint = (!kind.is_dir()).then_some("write what it gives to a file and name that");
        return Err(refusal(path, expected, name(kind), hint));
    }
    File::open(path).map_err(|error| unusable(&error))
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
        refusal(path, expected, &found, None)
    })
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

fn refusal(path: &Path, expected: &str, found: &str, hint: Option<&str>) -> Error {
    Error::Input {
        place: path.display().to_string(),
        field: "file".to_owned(),
        expected: expected.to_owned(),
        found: found.to_owned(),
        hint: hint.map(str::to_owned),
    }
}

fn name(kind: FileType) -> &'static str {
    match kind {
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
        assert!(open_if_present(&path("none"), "a text file").unwrap().is_none());
        assert!(open_if_present(&path("socket"), "a text file").is_err());
    }
}
