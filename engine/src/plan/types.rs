//! What goes into a plan and what comes out of it. Data only.

use crate::config::RegionSpec;
use crate::id::{DeviceId, Mode, Run};
use crate::schedule::Schedule;
use std::sync::Arc;

/// What a plan may use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Budget {
    /// Bytes of the arena.
    pub host_bytes: u64,
    /// Bytes of VRAM per GPU.
    pub device_bytes: Vec<(DeviceId, u64)>,
    /// Bytes on all volumes.
    pub disk_bytes: u64,
}

/// What the planner must know of the store beside the schedule.
#[derive(Clone, PartialEq, Debug)]
pub struct Shape<'a> {
    /// The regions, in the order of their ids.
    pub regions: &'a [RegionSpec],
    /// Sweeps between two commits: 0 for never. Placed pages cost a write at each commit.
    pub sweeps_per_commit: u32,
    /// Largest number of intervals fetched ahead of their access; None: as far as the window allows. 0 disables
    /// prefetching.
    pub prefetch_intervals_max: Option<u32>,
    /// Whether there is a disk tier at all.
    pub has_disk: bool,
}

/// A run that permanently lives in RAM.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placed {
    /// The pages.
    pub run: Run,
    /// Byte offset in the arena, a multiple of 4,096.
    pub offset: u64,
    /// Bytes of the run.
    pub bytes: u64,
}

/// What is resident where when a plan begins or ends.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Residency {
    /// Placed runs, by arena offset. A plan made with a non-empty entry keeps exactly this placement.
    pub placed: Vec<Placed>,
    /// Bytes at the start of the arena that hold placed runs; the window follows.
    pub placed_bytes: u64,
    /// The placement is decided: a plan entered from here keeps it even where nothing is placed. A plan's exit has it
    /// set; the default, before the first plan, has not.
    pub fixed: bool,
    /// Runs already on their way into the window, in order: a prefix of the plan's streamed intervals.
    pub prefetched: Vec<Run>,
}

/// Where an interval's bytes are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// In the run's own span of the arena, from this offset on.
    Placed {
        /// Byte offset in the arena.
        offset: u64,
    },
    /// In the window.
    Window,
}

/// One access as the engine executes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interval {
    /// The access node.
    pub node: u32,
    /// The last node that uses the access; the lease is given back there.
    pub release: u32,
    /// The pages.
    pub run: Run,
    /// What is done with them.
    pub mode: Mode,
    /// Bytes of the run.
    pub bytes: u64,
    /// Where the bytes are while the interval is live.
    pub place: Place,
    /// The interval may be fetched once the access of this interval index has been reached; equal to its own index: no
    /// prefetch. Meaningless for placed runs. Intervals of the sweep before count as reached.
    pub fetch_at: u32,
}

/// What moves before each access.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    /// What was planned.
    pub schedule: Arc<Schedule>,
    /// One per access node, in schedule order.
    pub intervals: Vec<Interval>,
    /// Arena bytes of placed runs.
    pub placed_bytes: u64,
    /// Arena bytes of the window; 0 if nothing streams.
    pub window_bytes: u64,
    /// Runs that need space on disk beyond what their regions always have: scratch runs that stream.
    pub spilled: Vec<Run>,
    /// What is resident when the sweep ends: entry of the next plan.
    pub exit: Residency,
}

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

/// What a plan is expected to cost, per sweep in the steady state.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Prediction {
    /// Seconds of one sweep.
    pub seconds: f64,
    /// No plan can be faster on this profile.
    pub lower_bound_seconds: f64,
    /// Bytes over the disk link.
    pub disk: DiskTraffic,
    /// Largest number of arena bytes in use.
    pub peak_host_bytes: u64,
}

/// A node's part of a simulated sweep, in nanoseconds from the sweep's beginning.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// The user asks for the access, or the work begins.
    pub begin_ns: u64,
    /// The access's bytes are there, or the work is done.
    pub end_ns: u64,
}
