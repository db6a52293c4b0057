//! Counters of an engine since it was opened.

use crate::core::Purpose;

/// Counters. Bytes are those that the volumes moved.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Stats {
    /// Bytes read from the volumes.
    pub disk_read_bytes: u64,
    /// Bytes written to the volumes, commits included.
    pub disk_write_bytes: u64,
    /// Of the bytes written: placed runs flushed by commits, page tables, notes and superblocks.
    pub commit_bytes: u64,
    /// Streamed accesses that were asked for before anything was started for them.
    pub demand_misses: u64,
    /// Fetches that found their bytes in RAM or on their way there, or that replaced all of them.
    pub unplanned_hits: u64,
    /// Fetches that had to read: their bytes were neither in RAM nor on their way to where tickets find them. What the
    /// window of a sweep holds is the sweep's.
    pub unplanned_misses: u64,
    /// Accesses whose lease was not ready when it was asked for.
    pub waits: u64,
    /// Nanoseconds that users waited for leases.
    pub wait_ns: u64,
    /// Commits that became durable.
    pub commits: u64,
    /// Largest number of window bytes in use.
    pub window_peak_bytes: u64,
}

impl Stats {
    pub(crate) fn count(&mut self, purpose: Purpose, bytes: u32) {
        let bytes = u64::from(bytes);
        match purpose {
            Purpose::Fetch { .. } => self.disk_read_bytes += bytes,
            Purpose::Store { .. } => self.disk_write_bytes += bytes,
            Purpose::Table | Purpose::Super => {
                self.disk_write_bytes += bytes;
                self.commit_bytes += bytes;
            }
            Purpose::Verify { .. } | Purpose::Digest { .. } | Purpose::Sync => {}
        }
    }
}
