//! The ground: nameless files with reserved space, which go with the process.

use crate::config::DirectIo;
use crate::error::Error;
use crate::io::file::VolumeFile;
use crate::io::{Completion, Op};
use std::path::PathBuf;
use std::sync::Arc;

/// Nameless files with reserved space.
pub struct Ground {
    pub(super) files: Vec<VolumeFile>,
    pub(super) bytes: u64,
}

impl Ground {
    /// Reserves `bytes` in each directory. What is reserved was never written: see [`Ground::renew`].
    ///
    /// # Errors
    /// `Io`, `NoSpace`; `DirectIo` where an alignment is beyond what the engine has.
    pub fn reserve(dirs: &[PathBuf], bytes: u64) -> Result<Ground, Error> {
        let mut files = Vec::with_capacity(dirs.len());
        for dir in dirs {
            let file = VolumeFile::nameless(dir, DirectIo::Preferred)?;
            file.reserve(0, bytes)?;
            files.push(file);
        }
        Ok(Ground { files, bytes })
    }

    /// Gives the space back and reserves it anew, so that the next writes are again the first ones.
    ///
    /// # Errors
    /// `Io`, `NoSpace`.
    pub fn renew(&self) -> Result<(), Error> {
        self.files.iter().try_for_each(|file| {
            file.punch(0, self.bytes)?;
            file.reserve(0, self.bytes)
        })
    }

    /// Bytes in each directory.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What each file is, in the order of the directories.
    pub fn facts(&self) -> Vec<Facts> {
        let facts = |file: &VolumeFile| Facts {
            is_direct: file.is_direct(),
            alignment: file.alignment(),
            notice: file.notice.clone(),
        };
        self.files.iter().map(facts).collect()
    }

    /// Another handle of a directory's file, for programs and libraries that are compared with the engine: it is opened
    /// as the engine has it, past the page cache where that is possible.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn handle(&self, index: usize) -> std::io::Result<std::fs::File> {
        self.files[index].handle()
    }

    pub(super) fn failed(&self, doing: &'static str, source: std::io::Error) -> Error {
        let path = self.files.first().map_or_else(PathBuf::new, |file| file.dir().to_path_buf());
        Error::Io { doing, path, offset: 0, bytes: self.bytes, source: Arc::new(source) }
    }

    /// Refuses a completion that failed or moved less than it was asked for.
    pub(super) fn check(&self, completion: &Completion, bytes: u32) -> Result<(), Error> {
        let (volume, doing, offset) = match completion.op {
            Op::Read { volume, offset, .. } => (volume, "reading", offset),
            Op::Write { volume, offset, .. } => (volume, "writing", offset),
            Op::Sync { volume } => (volume, "syncing", 0),
            Op::Hash { .. } => return Ok(()),
        };
        let source = match &completion.result {
            Ok(moved) if *moved == bytes || matches!(completion.op, Op::Sync { .. }) => return Ok(()),
            Ok(moved) => std::io::Error::other(format!("{moved} bytes moved of {bytes}")),
            Err(e) => e.raw_os_error().map_or_else(|| std::io::Error::other(e.to_string()), from_code),
        };
        let path = self.files[usize::from(volume)].dir().to_path_buf();
        Err(Error::Io { doing, path, offset, bytes: bytes.into(), source: Arc::new(source) })
    }
}

/// What a file of the ground is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Facts {
    /// Transfers go past the page cache.
    pub is_direct: bool,
    /// Bytes that memory, offsets and lengths are aligned to.
    pub alignment: u32,
    /// What the user should know of it.
    pub notice: Option<String>,
}

fn from_code(code: i32) -> std::io::Error {
    std::io::Error::from_raw_os_error(code)
}
