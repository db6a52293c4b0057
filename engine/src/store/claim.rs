//! What opening or creating a store has taken of the file system so far: locks, and for a creation the files and
//! directories that it made. Dropped before it is kept, a claim takes all of it back, so that a refusal at any point
//! leaves nothing behind.
//!
//! Invariant: files go while the locks are held, directories after them (a lock is a file in its directory).

use super::io_error;
use crate::error::Error;
use crate::lock::Lock;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// Everything taken so far.
#[derive(Default)]
pub(crate) struct Claim {
    locks: Vec<Lock>,
    files: Vec<PathBuf>,
    /// Directories that were missing, each before its parent.
    made: Vec<PathBuf>,
}

impl Claim {
    /// Locks a directory.
    pub(crate) fn lock(&mut self, dir: &Path) -> Result<(), Error> {
        self.locks.push(Lock::take(dir)?);
        Ok(())
    }

    /// Locks a directory for reading, where a lock can be had at all.
    pub(crate) fn lock_to_read(&mut self, dir: &Path) -> Result<(), Error> {
        self.locks.extend(Lock::take_to_read(dir)?);
        Ok(())
    }

    /// Makes a directory with all its parents, as far as they are missing, and makes their names durable.
    pub(crate) fn make(&mut self, dir: &Path) -> Result<(), Error> {
        let is_missing = |path: &&Path| !path.as_os_str().is_empty() && !path.exists();
        let missing: Vec<PathBuf> = dir.ancestors().take_while(is_missing).map(Path::to_path_buf).collect();
        // Volumes that share a parent: the deeper ones go first.
        self.made.splice(0..0, missing.iter().cloned());
        fs::create_dir_all(dir).map_err(|e| io_error("creating the directory", dir, e))?;
        for made in missing.iter().rev() {
            let parent = made.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
            File::open(parent).and_then(|p| p.sync_all()).map_err(|e| io_error("syncing", parent, e))?;
        }
        Ok(())
    }

    /// Says that a file is about to be made.
    pub(crate) fn file(&mut self, path: PathBuf) {
        self.files.push(path);
    }

    /// Keeps files and directories; the locks go to the caller.
    pub(crate) fn keep(mut self) -> Vec<Lock> {
        self.files.clear();
        self.made.clear();
        std::mem::take(&mut self.locks)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // The reason for the drop is being reported; a failure to clean up would hide it.
        for file in self.files.drain(..) {
            let _ = fs::remove_file(file);
        }
        self.locks.clear();
        for dir in self.made.drain(..) {
            let _ = fs::remove_dir(dir);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_kept_goes_and_nothing_else() {
        let dir = tempfile::tempdir().expect("temp dir");
        let (old, one, two) = (dir.path().join("old"), dir.path().join("a/b/one"), dir.path().join("a/b/two"));
        fs::create_dir(&old).expect("create");
        let claimed = || {
            let mut claim = Claim::default();
            for dir in [&old, &one, &two] {
                claim.make(dir).expect("make");
                claim.lock(dir).expect("lock");
                claim.file(dir.join("volume"));
                fs::write(dir.join("volume"), "x").expect("write");
            }
            claim
        };
        drop(claimed());
        assert!(old.exists() && fs::read_dir(&old).expect("list").next().is_none());
        assert!(!dir.path().join("a").exists());

        let claim = claimed();
        fs::write(one.join("mine"), "x").expect("write");
        drop(claim);
        assert!(one.join("mine").exists() && !one.join("volume").exists() && !two.exists());

        drop(claimed().keep());
        assert!(two.join("volume").exists() && !two.join("lock").exists());
    }
}
