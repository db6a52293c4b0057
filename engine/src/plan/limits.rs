//! Budgets other than the arena's: what must be on disk, and what happens without one.

use super::types::{Budget, Shape};
use crate::config::Kind;
use crate::error::PlanError;
use crate::id::{Run, Tier};

/// Bytes that the store takes on its volumes: two extents a checkpointed page, one a frozen or spilled one.
pub(super) fn disk_bytes(shape: &Shape<'_>, spilled: &[Run]) -> u64 {
    let copies = |kind| match kind {
        Kind::Checkpointed => 2,
        Kind::Frozen => 1,
        Kind::Scratch => 0,
    };
    let regions: u64 = shape.regions.iter().map(|region| copies(region.kind) * region.bytes()).sum();
    let page_bytes = |run: &Run| u64::from(shape.regions[run.region.0 as usize].page_bytes);
    regions + spilled.iter().map(|run| page_bytes(run) * u64::from(run.count)).sum::<u64>()
}

/// Refuses a plan whose store is larger than the disk budget. Without a disk tier nothing is stored.
pub(super) fn check_disk(shape: &Shape<'_>, budget: &Budget, spilled: &[Run]) -> Result<(), PlanError> {
    if !shape.has_disk {
        assert!(spilled.is_empty(), "a run streams without a disk");
        return Ok(());
    }
    let need = disk_bytes(shape, spilled);
    if need <= budget.disk_bytes {
        return Ok(());
    }
    let nearest = Budget { disk_bytes: need, ..budget.clone() };
    Err(PlanError::DoesNotFit { tier: Tier::Disk, need, have: budget.disk_bytes, nearest })
}

/// The refusal where `missing` bytes would have to stream without a disk; `total` host bytes would hold everything.
pub(super) fn no_disk(budget: &Budget, missing: u64, total: u64) -> PlanError {
    let nearest = Budget { host_bytes: total, ..budget.clone() };
    PlanError::DoesNotFit { tier: Tier::Disk, need: missing, have: 0, nearest }
}

/// The refusal where the arena is too small for any plan.
pub(super) fn no_room(budget: &Budget, need: u64) -> PlanError {
    let nearest = Budget { host_bytes: need, ..budget.clone() };
    PlanError::DoesNotFit { tier: Tier::Host, need, have: budget.host_bytes, nearest }
}
