//! Budgets: what a memory leaves to runs and windows, what must be on disk, and the refusals.

use super::ALIGN;
use super::types::{Budget, Shape};
use crate::config::Kind;
use crate::error::PlanError;
use crate::id::{Run, Tier};

/// The memory of one tier, Host or a Device.
pub(super) struct Room<'a> {
    pub budget: &'a Budget,
    tier: Tier,
    given: u64,
    /// Bytes that are neither for runs nor for a window.
    pub reserved: u64,
}

impl<'a> Room<'a> {
    /// What a budget gives to a tier.
    pub(super) fn new(budget: &'a Budget, tier: Tier, reserved: u64) -> Room<'a> {
        let given = match tier {
            Tier::Host => budget.host_bytes,
            Tier::Device(device) => budget.device(device),
            Tier::Disk => budget.disk_bytes,
        };
        Room { budget, tier, given, reserved }
    }

    /// Bytes for runs and a window.
    pub(super) fn bytes(&self) -> u64 {
        self.given.saturating_sub(self.reserved) / ALIGN * ALIGN
    }

    /// The same, if at least `need` of them are there.
    pub(super) fn at_least(&self, need: u64) -> Result<u64, PlanError> {
        if self.given < self.reserved.saturating_add(need) { Err(self.refusal(need)) } else { Ok(self.bytes()) }
    }

    /// The refusal where runs and window need so many bytes.
    pub(super) fn refusal(&self, need: u64) -> PlanError {
        let need = self.reserved.saturating_add(need);
        let nearest = match self.tier {
            Tier::Host => Budget { host_bytes: need, ..self.budget.clone() },
            Tier::Device(device) => self.budget.clone().with_device(device, need),
            Tier::Disk => Budget { disk_bytes: need, ..self.budget.clone() },
        };
        PlanError::DoesNotFit { tier: self.tier, need, have: self.given, nearest }
    }
}

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
    Room::new(budget, Tier::Disk, 0).at_least(disk_bytes(shape, spilled)).map(|_| ())
}

/// The refusal where `missing` bytes would have to stream without a disk; `total` host bytes would hold everything.
pub(super) fn no_disk(budget: &Budget, missing: u64, total: u64) -> PlanError {
    let nearest = Budget { host_bytes: total, ..budget.clone() };
    PlanError::DoesNotFit { tier: Tier::Disk, need: missing, have: 0, nearest }
}
