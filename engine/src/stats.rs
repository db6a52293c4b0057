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
    /// Bytes copied to VRAM, of all devices.
    pub upload_bytes: u64,
    /// Bytes copied from VRAM, of all devices.
    pub download_bytes: u64,
    /// Of these: runs that live in VRAM, flushed by commits.
    pub commit_download_bytes: u64,
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
    /// Of these accesses: those that could not even begin before write-backs ended, for want of room or because the
    /// same pages were still being written.
    pub waits_for_writes: u64,
    /// Nanoseconds that users waited for those.
    pub waits_for_writes_ns: u64,
    /// How long volumes and links were busy, and how fast the volumes were.
    pub link: LinkTimes,
    /// Commits that became durable.
    pub commits: u64,
    /// Largest number of bytes of the arena's window in use.
    pub window_peak_bytes: u64,
}

/// The links in time. The disk's is *full* while so many bytes are in flight that more would not make it faster; only
/// then do bytes and nanoseconds tell what the volumes can do.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct LinkTimes {
    /// Nanoseconds in which anything was being read.
    pub read_ns: u64,
    /// Nanoseconds in which anything was being written.
    pub write_ns: u64,
    /// Nanoseconds in which anything was on its way to VRAM, of all devices.
    pub upload_ns: u64,
    /// Nanoseconds in which anything was on its way from VRAM, of all devices.
    pub download_ns: u64,
    /// Full, reading alone.
    pub full_read: Moving,
    /// Full, writing alone.
    pub full_write: Moving,
    /// Full, both at once; bytes of both directions.
    pub full_mixed: Moving,
}

/// Bytes, and the time in which they moved.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Moving {
    /// Bytes.
    pub bytes: u64,
    /// Nanoseconds.
    pub ns: u64,
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
