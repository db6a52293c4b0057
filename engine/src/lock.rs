//! The lock of a volume: `DIR/lock`, held with flock for as long as the store is open, with the owner's process id as
//! text.
//!
//! flock ends with its owner, however that died, so a file that is left over means nothing and is taken over. The
//! file is removed while the lock is still held; whoever opened it before that finds, after getting the lock, that
//! the path no longer leads to the file it locked, and starts again. So two owners can never hold two different
//! files.

use crate::error::Error;
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The right to use the volume in a directory. Given up on drop.
#[derive(Debug)]
pub struct Lock {
    /// Holds the lock: closing it releases.
    _file: File,
    path: PathBuf,
}

impl Lock {
    /// Takes the lock of the volume in `dir`.
    ///
    /// # Errors
    /// `Error::Locked` with the owner's process id when somebody has it, `Error::Io` when the file cannot be made or
    /// locked.
    pub fn take(dir: &Path) -> Result<Lock, Error> {
        let path = dir.join("lock");
        let failed = |doing, source: io::Error| Error::Io {
            doing,
            path: path.clone(),
            offset: 0,
            bytes: 0,
            source: Arc::new(source),
        };
        loop {
            let mut file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(&path)
                .map_err(|e| failed("opening", e))?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    return Err(Error::Locked { path: dir.to_path_buf(), pid: owner(&mut file) });
                }
                Err(rustix::io::Errno::INTR) => continue,
                Err(e) => return Err(failed("locking", e.into())),
            }
            if !leads_to(&path, &file).map_err(|e| failed("checking", e))? {
                continue;
            }
            record_owner(&mut file).map_err(|e| failed("writing", e))?;
            return Ok(Lock { _file: file, path });
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Before the file closes, see the module's header. A file that stays is harmless.
        let _ = fs::remove_file(&self.path);
    }
}

impl Lock {
    /// As [`Lock::take`], for reading alone: None where nothing can be written, so that no lock can be taken.
    ///
    /// # Errors
    /// As [`Lock::take`].
    pub fn take_to_read(dir: &Path) -> Result<Option<Lock>, Error> {
        match Lock::take(dir) {
            Err(Error::Io { source, .. }) if is_denied(&source) => match holder(dir) {
                Some(pid) => Err(Error::Locked { path: dir.to_path_buf(), pid }),
                None => Ok(None),
            },
            other => other.map(Some),
        }
    }
}

fn is_denied(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

/// Times that the system's list of locks is read before a lock counts as not held.
const READS: usize = 3;

/// The process that holds the lock of the volume in `dir`, found without taking it: asking by taking would refuse an
/// owner who comes at that moment. None where the system does not tell.
pub fn holder(dir: &Path) -> Option<u32> {
    let mut file = File::open(dir.join("lock")).ok()?;
    let inode = format!(":{}", file.metadata().ok()?.ino());
    let pid = owner(&mut file);
    // "1: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF"
    let held = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields.get(1) == Some(&"FLOCK")
            && fields.get(4).and_then(|held| held.parse().ok()) == Some(pid)
            && fields.get(5).is_some_and(|place| place.ends_with(&inode))
    };
    // The list is read in pieces; a lock may be missed where others are given back between two of them.
    (0..READS).any(|_| fs::read_to_string("/proc/locks").is_ok_and(|locks| locks.lines().any(held))).then_some(pid)
}

/// The process id in the file, 0 if there is none yet.
fn owner(file: &mut File) -> u32 {
    let mut text = String::new();
    file.take(32).read_to_string(&mut text).ok().and_then(|_| text.trim().parse().ok()).unwrap_or(0)
}

fn record_owner(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(format!("{}\n", std::process::id()).as_bytes())
}

/// Whether `path` still names the file that was opened.
fn leads_to(path: &Path, file: &File) -> io::Result<bool> {
    let opened = file.metadata()?;
    match fs::metadata(path) {
        Ok(named) => Ok((named.dev(), named.ino()) == (opened.dev(), opened.ino())),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::{Lock, holder};
    use crate::error::Error;

    #[test]
    fn a_second_owner_is_refused_and_told_who() {
        let dir = tempfile::tempdir().expect("temp dir");
        let lock = Lock::take(dir.path()).expect("free");
        match Lock::take(dir.path()) {
            Err(Error::Locked { path, pid }) => {
                assert_eq!(path, dir.path());
                assert_eq!(pid, std::process::id());
            }
            other => panic!("expected Locked, got {other:?}"),
        }
        assert_eq!(holder(dir.path()), Some(std::process::id()));
        drop(lock);
        assert!(!dir.path().join("lock").exists());
        std::fs::write(dir.path().join("lock"), format!("{}\n", std::process::id())).expect("write");
        assert_eq!(holder(dir.path()), None, "a file alone is no lock");
        Lock::take(dir.path()).expect("free again");
    }

    #[test]
    fn a_left_over_file_is_taken_over() {
        let dir = tempfile::tempdir().expect("temp dir");
        std::fs::write(dir.path().join("lock"), "999999999\nand a long rest of something else").expect("write");
        let _lock = Lock::take(dir.path()).expect("nobody holds it");
        let text = std::fs::read_to_string(dir.path().join("lock")).expect("read");
        assert_eq!(text, format!("{}\n", std::process::id()));
    }

    #[test]
    fn one_of_many_wins() {
        let dir = tempfile::tempdir().expect("temp dir");
        let holders = std::sync::atomic::AtomicU32::new(0);
        let taken = std::sync::atomic::AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let Ok(lock) = Lock::take(dir.path()) else { continue };
                        assert_eq!(holders.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0, "two owners");
                        holders.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                        drop(lock);
                        taken.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                    }
                });
            }
        });
        assert!(taken.into_inner() > 0);
    }

    #[test]
    fn a_missing_directory_is_an_error() {
        assert!(matches!(Lock::take(std::path::Path::new("/nonexistent/volume")), Err(Error::Io { .. })));
    }
}
