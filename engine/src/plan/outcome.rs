//! What a plan is expected to cost. Data only.

use crate::id::DeviceId;

/// Bytes that one sweep moves over the disk link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DiskTraffic {
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written, commits apart.
    pub write_bytes: u64,
    /// Bytes written for placed pages at a commit.
    pub commit_bytes: u64,
}

/// Bytes that one sweep moves over the link of a GPU, and what is in use there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DevicePrediction {
    /// The GPU.
    pub device: DeviceId,
    /// Bytes from RAM to VRAM.
    pub upload_bytes: u64,
    /// Bytes from VRAM to RAM, commits apart.
    pub download_bytes: u64,
    /// Bytes from VRAM to RAM for placed pages at a commit.
    pub commit_bytes: u64,
    /// Largest number of bytes of VRAM in use, those of work included.
    pub peak_bytes: u64,
}

/// What is busy while a sweep makes progress: who computes, and each way of each link.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Station {
    /// The host's cores.
    HostCompute,
    /// A GPU's compute stream.
    Compute(DeviceId),
    /// From disk to RAM.
    DiskRead,
    /// From RAM to disk.
    DiskWrite,
    /// From RAM to VRAM.
    Upload(DeviceId),
    /// From VRAM to RAM.
    Download(DeviceId),
    /// A commit: its writes of what lives in memory and its syncs. Only ever waited for; its writes are the disk's.
    Commit,
}

/// How long a station works in a sweep.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Busy {
    /// Which.
    pub station: Station,
    /// Seconds.
    pub seconds: f64,
}

/// Time in which a user could not go on. A user's stalls and its busy time together are the time of the sweep.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Stall {
    /// Who waits: `HostCompute` or `Compute`.
    pub user: Station,
    /// What works meanwhile on what it waits for: the transfer of its bytes or of bytes that must make room for them,
    /// or another user.
    pub cause: Station,
    /// Seconds.
    pub seconds: f64,
}

/// What a plan is expected to cost, per sweep in the steady state: the mean of the sweeps from one commit to the next.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Prediction {
    /// Seconds of one sweep.
    pub seconds: f64,
    /// No plan can be faster on this profile.
    pub lower_bound_seconds: f64,
    /// Bytes over the disk link.
    pub disk: DiskTraffic,
    /// Largest number of bytes of RAM in use: arena and work.
    pub peak_host_bytes: u64,
    /// The GPUs that the schedule uses, by number.
    pub devices: Vec<DevicePrediction>,
    /// Time of every station that has something to do, in the order of `Station`.
    pub busy: Vec<Busy>,
    /// What the users wait for, in the order of users and causes.
    pub stalls: Vec<Stall>,
}

/// A node's part of a simulated sweep, in nanoseconds from the sweep's beginning.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// The user asks for the access, or the work begins.
    pub begin_ns: u64,
    /// The access's bytes are there, or the work is done.
    pub end_ns: u64,
    /// Of it: waiting for a commit.
    pub commit_ns: u64,
}

/// A transfer of a simulated sweep, in nanoseconds from the sweep's beginning.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transfer {
    /// The way of the link that it takes.
    pub station: Station,
    /// The interval that it belongs to, of this sweep or of a neighbour; None for a commit.
    pub interval: Option<u32>,
    /// Bytes moved.
    pub bytes: u64,
    /// It begins; before the sweep, and then negative, if it was prefetched or a write-back was left.
    pub begin_ns: i64,
    /// It has ended, in this sweep.
    pub end_ns: u64,
}

/// A simulated sweep in time.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Timeline {
    /// One per node.
    pub nodes: Vec<Span>,
    /// Every transfer that ends in the sweep, by its end.
    pub transfers: Vec<Transfer>,
}
