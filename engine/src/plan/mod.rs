//! Planning: schedule, budget, profile and entry residency in; plan, exit residency and prediction out. Pure: no I/O,
//! no clock, no randomness, no models. The same inputs give the same plan on every machine.
//!
//! Terms. A run is *placed* in RAM (it stays there, in its own span of the arena) or *streamed*: each of its accesses
//! is one *interval*, a stay in the window. The *window* is the part of the arena behind the placed spans; streamed
//! intervals take spans of it in schedule order, as a ring, and give them back when they are released and written back.
//! Placement is static and by bytes saved per byte held; never LRU, since a cyclic scan gives LRU nothing.

use crate::config::RegionSpec;
use crate::error::PlanError;
use crate::id::{DeviceId, Mode, Run};
use crate::profile::Profile;
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
    /// Largest number of intervals fetched ahead of their access; None: as far as the window allows. 0 disables prefetching.
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

/// Makes a plan.
///
/// # Errors
/// `DoesNotFit` with the nearest budget that fits; `Unordered`, `Overlap`, `NoSuchRun` for a schedule that breaks the
/// rules.
pub fn plan(
    schedule: &Arc<Schedule>,
    shape: &Shape<'_>,
    budget: &Budget,
    profile: &Profile,
    entry: &Residency,
) -> Result<(Plan, Prediction), PlanError> {
    let _ = (schedule, shape, budget, profile, entry);
    Err(PlanError::Unordered { node: 0 })
}
