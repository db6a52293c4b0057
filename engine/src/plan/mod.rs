//! Planning: schedule, budget, profile and entry residency in; plan, exit residency and prediction out. Pure: no I/O,
//! no clock, no randomness, no models. The same inputs give the same plan on every machine.
//!
//! Terms. A run's *home* is where it lives for good: VRAM, RAM or disk. It is *placed* in VRAM or RAM if its home is
//! there, in its own span. An access is one *interval*: in its run's span if it is in the tier of the home, else
//! *streamed*, a stay in the window of its tier. The *window* is the part of the arena, or of a GPU's allocation,
//! behind the placed spans; streamed intervals take spans of it in schedule order, as a ring, and give them back when
//! they are released and written back. What an access on a device reads from disk passes through the arena's window on
//! its way (a *transit*), unless it is *relayed* from an access in RAM that has the bytes; what goes from VRAM to disk
//! passes through the *staging* ring. Placement is static and by bytes saved per byte held; never LRU, since a cyclic
//! scan gives LRU nothing.
//!
//! Stages: `validate` and `draft` check the schedule and list its uses; `place` decides what lives where; `queue` and
//! `window` say how large the rings of the rest must be and how early each fetch may start; `intervals` writes it down;
//! `rates`, `bound`, `predict` and `simulate` say what it costs; `explain` prints it. Every stage is linear or n log n
//! in the number of accesses: 100,000 are planned in well under a second.
//!
//! Invariants of every plan that is returned: what it takes of each memory is at most its budget; windows of those
//! sizes cannot deadlock (proof in `window`); `fetch_at` and `upload_at` never exceed an interval's own index.

mod bound;
mod draft;
mod explain;
mod intervals;
mod limits;
mod outcome;
mod place;
mod planner;
mod predict;
mod queue;
mod rates;
mod simulate;
mod types;
mod validate;
mod window;

#[cfg(test)]
pub(crate) mod tests;

pub use explain::explain;
pub use outcome::{Busy, DevicePrediction, DiskTraffic, Prediction, Span, Stall, Station, Timeline, Transfer};
pub use planner::Planner;
pub use types::{Budget, DeviceResidency, DeviceShare, Home, Interval, Place, Placed, Plan, Residency, Shape};

use crate::error::PlanError;
use crate::profile::Profile;
use crate::schedule::Schedule;
use std::sync::Arc;

/// Direct I/O alignment: every span of the arena begins at a multiple of it.
const ALIGN: u64 = 4096;

/// Makes a plan.
///
/// With a fixed or non-empty `entry` placement exactly that placement is kept, also where another would be better, and
/// runs of it that the schedule never uses stay where they are.
///
/// # Errors
/// `DoesNotFit` with the tier and the nearest budget that fits; `Unordered`, `Overlap`, `LiveTwice`, `NoSuchRun`,
/// `Misplaced` for a schedule that breaks the rules; `NoLink` for a profile without a device that is used.
pub fn plan(
    schedule: &Arc<Schedule>,
    shape: &Shape<'_>,
    budget: &Budget,
    profile: &Profile,
    entry: &Residency,
) -> Result<(Plan, Prediction), PlanError> {
    let planner = Planner::new(schedule, shape, profile)?;
    let plan = planner.plan(budget, entry)?;
    let prediction = planner.predict(&plan);
    Ok((plan, prediction))
}

/// A simulated sweep, the steady one of a cyclic schedule, and one that no commit touches where there is such: when
/// each node begins and ends, and each transfer.
pub fn timeline(plan: &Plan, shape: &Shape<'_>, profile: &Profile) -> Timeline {
    predict::timelines(plan, shape, profile).swap_remove(0).1
}

/// The sweeps from one commit to the next, each with how many are like it: first those that no commit touches, if there
/// are any. Together they take the predicted time.
pub fn timelines(plan: &Plan, shape: &Shape<'_>, profile: &Profile) -> Vec<(u32, Timeline)> {
    predict::timelines(plan, shape, profile)
}

/// What a plan costs on another machine, or with other commits, than it was made for. Its placement stays.
pub fn predict(plan: &Plan, shape: &Shape<'_>, profile: &Profile) -> Prediction {
    predict::predict(plan, shape, profile)
}
