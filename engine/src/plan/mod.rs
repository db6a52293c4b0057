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
pub use types::{Budget, DeviceResidency, DeviceShare, Home, Interval, Place, Placed, Plan, Residency, Shape};

use crate::config::Kind;
use crate::error::PlanError;
use crate::id::{DeviceId, Run, Tier};
use crate::profile::Profile;
use crate::schedule::Schedule;
use draft::Draft;
use place::Placement;
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
    let draft = validate::draft(schedule, shape)?;
    check_links(&draft, entry, profile)?;
    let (placement, spilled) = placement(&draft, shape, budget, entry).map_err(|refused| {
        // Another tier may refuse what this one would take: the nearest budget is one that all of them accept.
        let mut refused = refused;
        if let PlanError::DoesNotFit { nearest, .. } = &mut refused {
            while let Err(PlanError::DoesNotFit { nearest: next, .. }) = self::placement(&draft, shape, nearest, entry)
            {
                assert_ne!(*nearest, next, "a refusal names the budget that it refuses");
                *nearest = next;
            }
        }
        refused
    })?;

    let (intervals, exit) = intervals::intervals(&draft, shape, &placement, schedule.cyclic);
    let devices = placement.devices.iter().map(|(device, share)| DeviceShare {
        device: *device,
        placed_bytes: share.placed_bytes,
        window_bytes: share.window_bytes,
        work_bytes: draft.work.device_bytes(*device),
    });
    let plan = Plan {
        schedule: Arc::clone(schedule),
        intervals,
        placed_bytes: placement.host.placed_bytes,
        window_bytes: placement.host.window_bytes,
        staging_bytes: placement.staging_bytes,
        host_work_bytes: draft.work.host_bytes,
        devices: devices.collect(),
        spilled,
        exit,
    };
    assert!(plan.arena_bytes() + plan.host_work_bytes <= budget.host_bytes, "a plan exceeds its budget of RAM");
    for share in &plan.devices {
        let bytes = share.placed_bytes + share.window_bytes + share.work_bytes;
        assert!(bytes <= budget.device(share.device), "a plan exceeds its budget of VRAM");
    }
    let prediction = predict::predict(&plan, shape, profile);
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

/// Every device that is used, or that holds runs, has a link.
fn check_links(draft: &Draft, entry: &Residency, profile: &Profile) -> Result<(), PlanError> {
    let used = draft.work.devices.iter().map(|&(device, _)| device);
    let has_link = |device: &DeviceId| profile.links.iter().any(|link| link.device == *device);
    match used.chain(entry.devices.iter().map(|held| held.device)).find(|device| !has_link(device)) {
        Some(device) => Err(PlanError::NoLink { device }),
        None => Ok(()),
    }
}

/// Where everything lives, and which runs that needs space for on disk.
fn placement(
    draft: &Draft,
    shape: &Shape<'_>,
    budget: &Budget,
    entry: &Residency,
) -> Result<(Placement, Vec<Run>), PlanError> {
    let is_decided = entry.fixed || !entry.placed.is_empty();
    let placement =
        if is_decided { place::keep(draft, shape, budget, entry)? } else { place::choose(draft, shape, budget)? };
    let spilled = spilled(draft, shape, &placement);
    limits::check_disk(shape, budget, &spilled)?;
    Ok((placement, spilled))
}

/// Distinct streamed runs of scratch regions, in order of first use.
fn spilled(draft: &Draft, shape: &Shape<'_>, placement: &Placement) -> Vec<Run> {
    let streamed = draft.runs.iter().zip(&placement.homes).filter(|&(_, &home)| home == Tier::Disk);
    let streamed = streamed.map(|(usage, _)| usage.run);
    streamed.filter(|run| shape.regions[run.region.0 as usize].kind == Kind::Scratch).collect()
}
