//! The lock of a run folder: one process at a time works on it. The store has a lock of its own; this one also covers
//! runs without a store and the time before there is one.

use crate::error::{Error, Result};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Seek, Write};
use std::path::Path;

/// The held lock. It is released when dropped, and by the kernel when the process ends in any way.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Lock {
    /// As `take`, for reading alone: None where nothing can be written, so that no lock can be taken.
    ///
    /// # Errors
    /// As `take`.
    pub fn take_to_read(folder: &Path) -> Result<Option<Lock>> {
        match Lock::take(folder) {
            Err(Error::Io { source, .. })
                if matches!(source.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem) =>
            {
                Ok(None)
            }
            other => other.map(Some),
        }
    }

    /// Takes the lock in a run folder and writes this process's id into it.
    ///
    /// # Errors
    /// `Input` naming the process that holds it.
    pub fn take(folder: &Path) -> Result<Lock> {
        let path = folder.join("lock");
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(|source| Error::io(&path, "opening", source))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(in_use(folder, &mut file)),
            Err(TryLockError::Error(source)) => return Err(Error::io(&path, "locking", source)),
        }
        let write = |file: &mut File| {
            file.set_len(0)?;
            file.rewind()?;
            writeln!(file, "{}", std::process::id())
        };
        write(&mut file).map_err(|source| Error::io(&path, "writing", source))?;
        Ok(Lock { _file: file })
    }
}

fn in_use(folder: &Path, file: &mut File) -> Error {
    let mut text = String::new();
    let owner = match file.read_to_string(&mut text) {
        Ok(_) if !text.trim().is_empty() => format!("process {}", text.trim()),
        _ => "another process".to_owned(),
    };
    Error::input(folder.display().to_string(), "run", "a run that no process works on", format!("in use by {owner}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_holder_is_refused_and_told_the_owner() {
        let dir = tempfile::tempdir().unwrap();
        let held = Lock::take(dir.path()).unwrap();
        let text = Lock::take(dir.path()).unwrap_err().to_string();
        assert!(text.contains(&format!("in use by process {}", std::process::id())), "{text}");
        drop(held);
        Lock::take(dir.path()).unwrap();
    }
}
