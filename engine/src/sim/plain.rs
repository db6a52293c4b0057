//! The simulated disk as opening and creating a store see it: plain reads, writes and syncs, one after the other. Each
//! write and sync is an event after which the process may die or the power go.

use super::inspect::{View, path};
use crate::error::Error;
use crate::io::memory::disk::Disk;
use crate::io::memory::rng::SplitMix64;
use crate::store::recover::{Source, Target};
use std::cell::RefCell;
use std::io::{Error as IoError, ErrorKind};
use std::path::Path;
use std::sync::Arc;

/// A disk under plain calls.
pub(super) struct Plain {
    inner: RefCell<Inner>,
}

struct Inner {
    disk: Disk,
    rng: SplitMix64,
    events: u64,
    stop_after: u64,
}

/// One of its volumes.
pub(super) struct PlainVolume<'a> {
    plain: &'a Plain,
    volume: u16,
}

impl Plain {
    /// Everything fails once `stop_after` writes and syncs were done. `seed` decides what is left of the last.
    pub(super) fn new(disk: Disk, seed: u64, stop_after: u64) -> Plain {
        Plain { inner: RefCell::new(Inner { disk, rng: SplitMix64::new(seed), events: 0, stop_after }) }
    }

    /// A volume.
    pub(super) fn volume(&self, volume: u16) -> PlainVolume<'_> {
        PlainVolume { plain: self, volume }
    }

    /// Writes and syncs done.
    pub(super) fn events(&self) -> u64 {
        self.inner.borrow().events
    }

    /// Whether the process died here.
    pub(super) fn stopped(&self) -> bool {
        let inner = self.inner.borrow();
        inner.events >= inner.stop_after
    }

    /// The disk as it is now.
    pub(super) fn into_disk(self) -> Disk {
        self.inner.into_inner().disk
    }
}

impl PlainVolume<'_> {
    fn error(&self, doing: &'static str, offset: u64, bytes: usize, kind: ErrorKind) -> Error {
        let source = Arc::new(IoError::new(kind, "simulated"));
        Error::Io { doing, path: self.path().into(), offset, bytes: bytes as u64, source }
    }
}

impl Source for PlainVolume<'_> {
    fn path(&self) -> &Path {
        path(self.volume)
    }

    fn len(&self) -> Result<u64, Error> {
        View::new(self.plain.inner.borrow().disk.remains(), self.volume).len()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        View::new(self.plain.inner.borrow().disk.remains(), self.volume).read_at(offset, into)
    }
}

impl Target for PlainVolume<'_> {
    fn write_at(&self, offset: u64, from: &[u8]) -> Result<(), Error> {
        let mut inner = self.plain.inner.borrow_mut();
        let Inner { disk, rng, events, stop_after } = &mut *inner;
        if *events >= *stop_after {
            return Err(self.error("writing", offset, from.len(), ErrorKind::Other));
        }
        *events += 1;
        if *events == *stop_after {
            disk.tear(self.volume, offset, from, rng);
            return Err(self.error("writing", offset, from.len(), ErrorKind::Other));
        }
        disk.write(self.volume, offset, from);
        Ok(())
    }

    fn sync(&self) -> Result<(), Error> {
        let mut inner = self.plain.inner.borrow_mut();
        let Inner { disk, events, stop_after, .. } = &mut *inner;
        if *events >= *stop_after {
            return Err(self.error("syncing", 0, 0, ErrorKind::Other));
        }
        *events += 1;
        let covers = disk.writes_completed();
        disk.sync(self.volume, covers);
        Ok(())
    }
}
