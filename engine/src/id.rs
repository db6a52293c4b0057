//! Names of things: regions, runs, pages, tiers, commits. Small, `Copy`, without behaviour beyond arithmetic.

use std::fmt;

/// A region of a store: a named array of pages of one size and kind. Index into the store's catalogue.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RegionId(pub u32);

/// A GPU. Host and disk need no number: there is one of the first, and volumes stripe the second.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DeviceId(pub u8);

/// An atomically durable state of the store. Commit 0 is the first; numbers only grow.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CommitId(pub u64);

impl fmt::Display for CommitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Consecutive pages of one region: the unit of accesses, leases and placement.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Run {
    /// The region the pages belong to.
    pub region: RegionId,
    /// Index of the first page within the region.
    pub first: u32,
    /// Number of pages, at least 1.
    pub count: u32,
}

impl Run {
    /// Index after the last page.
    pub fn end(&self) -> u32 {
        self.first + self.count
    }

    /// Whether every page of the other run is one of this.
    pub fn contains(&self, other: &Run) -> bool {
        self.region == other.region && self.first <= other.first && other.end() <= self.end()
    }

    /// Whether the two runs share a page.
    pub fn overlaps(&self, other: &Run) -> bool {
        self.region == other.region && self.first < other.end() && other.first < self.end()
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Also of a run that no store has.
        let end = u64::from(self.first) + u64::from(self.count);
        write!(f, "region {} pages {}..{end}", self.region.0, self.first)
    }
}

/// Where bytes can be.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Tier {
    /// VRAM of one GPU.
    Device(DeviceId),
    /// The pinned arena in RAM.
    Host,
    /// The volumes.
    Disk,
}

/// What an access does with the bytes of a run.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mode {
    /// Old bytes are read and not changed.
    Read,
    /// All bytes are replaced: the old ones are not needed, so nothing is fetched.
    Write,
    /// Old bytes are read and changed.
    Update,
}

impl Mode {
    /// Whether the old bytes must be there before the access.
    pub fn reads(self) -> bool {
        self != Mode::Write
    }

    /// Whether the bytes may be changed by the access.
    pub fn writes(self) -> bool {
        self != Mode::Read
    }
}
