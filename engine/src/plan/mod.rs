//! Planning: schedule, budget, profile and entry residency in; plan, exit residency and prediction out. Pure: no I/O,
//! no clock, no randomness, no models. The same inputs give the same plan on every machine.
//!
//! Terms. A run is *placed* in RAM (it stays there, in its own span of the arena) or *streamed*: each of its accesses
//! is one *interval*, a stay in the window. The *window* is the part of the arena behind the placed spans; streamed
//! intervals take spans of it in schedule order, as a ring, and give them back when they are released and written back.
//! Placement is static and by bytes saved per byte held; never LRU, since a cyclic scan gives LRU nothing.
//!
//! Stages, one a file: `validate` checks the schedule and lists its uses; `place` decides what stays in RAM; `window`
//! says how large a ring the rest needs and how early each fetch may start; `rates`, `predict` and `simulate` say what
//! it costs; `explain` prints it. Every stage is linear or n log n in the number of accesses: 100,000 are planned in
//! well under a second.
//!
//! Invariants of every plan that is returned: placed bytes + window bytes <= the budget; a window of that size cannot
//! deadlock (proof in `window`); `fetch_at` never exceeds an interval's own index.

mod explain;
mod limits;
mod place;
mod predict;
mod rates;
mod simulate;
mod types;
mod validate;
mod window;

#[cfg(test)]
mod tests;

pub use explain::explain;
pub use types::{Budget, DiskTraffic, Interval, Place, Placed, Plan, Prediction, Residency, Shape, Span};

use crate::config::Kind;
use crate::error::PlanError;
use crate::id::Run;
use crate::profile::Profile;
use crate::schedule::Schedule;
use place::Placement;
use std::sync::Arc;
use validate::Draft;

/// Direct I/O alignment: every span of the arena begins at a multiple of it.
const ALIGN: u64 = 4096;

/// Makes a plan.
///
/// With a fixed or non-empty `entry` placement exactly that placement is kept, also where another would be better, and
/// runs of it that the schedule never uses stay where they are.
///
/// # Errors
/// `DoesNotFit` with the nearest budget that fits; `Unordered`, `Overlap`, `LiveTwice`, `NoSuchRun` for a schedule that
/// breaks the rules. An access to another tier than Host is `DoesNotFit` for that tier, with the budget as it was
/// given.
pub fn plan(
    schedule: &Arc<Schedule>,
    shape: &Shape<'_>,
    budget: &Budget,
    profile: &Profile,
    entry: &Residency,
) -> Result<(Plan, Prediction), PlanError> {
    let draft = validate::draft(schedule, shape, budget)?;
    let placement = if entry.fixed || !entry.placed.is_empty() {
        place::keep(&draft, shape, budget, entry)?
    } else {
        place::choose(&draft, shape, budget)?
    };
    let spilled = spilled(&draft, shape, &placement);
    limits::check_disk(shape, budget, &spilled)?;

    let intervals = window::intervals(&draft, shape, &placement);
    let prefetched =
        if schedule.cyclic { window::prefetchable(&intervals, shape, placement.window_bytes) } else { Vec::new() };
    let plan = Plan {
        schedule: Arc::clone(schedule),
        intervals,
        placed_bytes: placement.placed_bytes,
        window_bytes: placement.window_bytes,
        spilled,
        exit: Residency { placed: placement.placed, placed_bytes: placement.placed_bytes, fixed: true, prefetched },
    };
    assert!(plan.placed_bytes + plan.window_bytes <= budget.host_bytes, "a plan exceeds its budget");
    let prediction = predict::predict(&plan, shape, profile);
    Ok((plan, prediction))
}

/// When each node of the plan's schedule begins and ends in the simulated sweep that the prediction is read from: the
/// steady one of a cyclic schedule. An access ends when its bytes are there.
pub fn timeline(plan: &Plan, shape: &Shape<'_>, profile: &Profile) -> Vec<Span> {
    predict::timeline(plan, shape, profile)
}

/// Distinct streamed runs of scratch regions, in order of first use.
fn spilled(draft: &Draft, shape: &Shape<'_>, placement: &Placement) -> Vec<Run> {
    let streamed =
        draft.runs.iter().zip(&placement.is_placed).filter(|&(_, &placed)| !placed).map(|(usage, _)| usage.run);
    streamed.filter(|run| shape.regions[run.region.0 as usize].kind == Kind::Scratch).collect()
}
