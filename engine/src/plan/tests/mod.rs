//! Tests of the planner: `samples` and `tiers` make schedules, without and with devices; `check` judges plans and
//! executes those without on a ring; `executor` executes those with devices; the others ask.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod check;
mod device_check;
mod device_placement;
mod device_properties;
mod device_timeline;
mod errors;
mod executor;
mod golden;
mod placement;
mod prediction;
mod properties;
pub mod samples;
pub mod tiers;

use super::{Budget, Plan, Prediction, Residency, Shape, plan};
use crate::config::RegionSpec;
use crate::error::PlanError;
use crate::profile::Profile;
use crate::schedule::Schedule;
use std::sync::Arc;

/// Bytes of the pages that the samples use.
const PAGE: u64 = 4096;

/// A budget of this many pages of RAM and plenty of disk.
fn budget(pages: u64) -> Budget {
    Budget { host_bytes: pages * PAGE, device_bytes: Vec::new(), disk_bytes: 1 << 40 }
}

/// A store with a disk that commits every sweep and fetches ahead as far as it can.
fn shape(regions: &[RegionSpec]) -> Shape<'_> {
    Shape { regions, sweeps_per_commit: 1, prefetch_intervals_max: None, has_disk: true }
}

/// Plans without an entry residency, and checks what comes out.
fn planned(schedule: &Schedule, shape: &Shape<'_>, budget: &Budget) -> Result<(Plan, Prediction), PlanError> {
    planned_from(schedule, shape, budget, &Residency::default())
}

/// Plans from an entry residency, and checks what comes out.
fn planned_from(
    schedule: &Schedule,
    shape: &Shape<'_>,
    budget: &Budget,
    entry: &Residency,
) -> Result<(Plan, Prediction), PlanError> {
    let schedule = Arc::new(schedule.clone());
    let (plan, prediction) = plan(&schedule, shape, budget, &Profile::default(), entry)?;
    check::check(&plan, shape, budget).expect("an accepted plan passes the checker");
    Ok((plan, prediction))
}

/// The smallest arena that a refusal for want of RAM names, in pages.
fn pages_needed(error: &PlanError) -> u64 {
    match error {
        PlanError::DoesNotFit { tier: crate::id::Tier::Host, need, nearest, .. } => {
            assert_eq!(*need, nearest.host_bytes);
            assert_eq!(need % PAGE, 0);
            need / PAGE
        }
        other => panic!("expected a refusal for want of RAM, found {other:?}"),
    }
}
