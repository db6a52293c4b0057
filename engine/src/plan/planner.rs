//! Several plans of one schedule. It is checked and condensed once, and what a plan costs is simulated only where
//! somebody asks: simulating takes longer than all other stages together.

use super::draft::Draft;
use super::outcome::Prediction;
use super::place::{self, Ground, Placement};
use super::types::{Budget, DeviceShare, Plan, Residency, Shape};
use super::{intervals, limits, predict, validate};
use crate::config::Kind;
use crate::error::PlanError;
use crate::id::{DeviceId, Run, Tier};
use crate::profile::Profile;
use crate::schedule::Schedule;
use std::cell::OnceCell;
use std::sync::Arc;

/// A checked schedule, of which plans are made.
pub struct Planner<'a> {
    schedule: &'a Arc<Schedule>,
    shape: &'a Shape<'a>,
    profile: &'a Profile,
    draft: Draft,
    ground: OnceCell<Ground>,
}

impl<'a> Planner<'a> {
    /// Checks a schedule.
    ///
    /// # Errors
    /// `Unordered`, `Overlap`, `LiveTwice`, `NoSuchRun`, `Misplaced` for a schedule that breaks the rules; `NoLink` for
    /// a profile without a device that is used.
    pub fn new(
        schedule: &'a Arc<Schedule>,
        shape: &'a Shape<'a>,
        profile: &'a Profile,
    ) -> Result<Planner<'a>, PlanError> {
        let draft = validate::draft(schedule, shape)?;
        let planner = Planner { schedule, shape, profile, draft, ground: OnceCell::new() };
        planner.check_links(planner.draft.work.devices.iter().map(|&(device, _)| device))?;
        Ok(planner)
    }

    /// Makes a plan: see [`super::plan`].
    ///
    /// # Errors
    /// `DoesNotFit` with the tier and the nearest budget that fits; `Overlap`, `Misplaced` for an entry that
    /// contradicts the schedule; `NoLink` for a profile without a device that holds runs.
    pub fn plan(&self, budget: &Budget, entry: &Residency) -> Result<Plan, PlanError> {
        let Planner { schedule, shape, draft, .. } = self;
        self.check_links(entry.devices.iter().map(|held| held.device))?;
        let (placement, spilled) = self.placement(budget, entry).map_err(|refused| {
            // Another tier may refuse what this one would take: the nearest budget is one that all of them accept.
            let mut refused = refused;
            if let PlanError::DoesNotFit { tier, need, nearest, .. } = &mut refused {
                while let Err(PlanError::DoesNotFit { nearest: next, .. }) = self.placement(nearest, entry) {
                    assert_ne!(*nearest, next, "a refusal names the budget that it refuses");
                    *nearest = next;
                }
                // What is placed in another order for another tier's sake may ask this one for more.
                if let Tier::Device(device) = tier {
                    *need = nearest.device(*device);
                }
            }
            refused
        })?;

        let (intervals, exit) = intervals::intervals(draft, shape, &placement, schedule.cyclic);
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
        Ok(plan)
    }

    /// What a plan costs.
    pub fn predict(&self, plan: &Plan) -> Prediction {
        predict::predict(plan, self.shape, self.profile)
    }

    /// Each of these devices has a link.
    fn check_links(&self, mut devices: impl Iterator<Item = DeviceId>) -> Result<(), PlanError> {
        let has_link = |device: &DeviceId| self.profile.links.iter().any(|link| link.device == *device);
        match devices.find(|device| !has_link(device)) {
            Some(device) => Err(PlanError::NoLink { device }),
            None => Ok(()),
        }
    }

    /// Where everything lives, and which runs that needs space for on disk.
    fn placement(&self, budget: &Budget, entry: &Residency) -> Result<(Placement, Vec<Run>), PlanError> {
        let Planner { shape, draft, .. } = self;
        let is_decided = entry.fixed || !entry.placed.is_empty();
        let placement = if is_decided {
            place::keep(draft, shape, budget, entry)?
        } else {
            place::choose(draft, self.ground.get_or_init(|| Ground::new(draft)), shape, budget)?
        };
        let spilled = spilled(draft, shape, &placement);
        limits::check_disk(shape, budget, &spilled)?;
        Ok((placement, spilled))
    }
}

/// Distinct streamed runs of scratch regions, in order of first use.
fn spilled(draft: &Draft, shape: &Shape<'_>, placement: &Placement) -> Vec<Run> {
    let streamed = draft.runs.iter().zip(&placement.homes).filter(|&(_, &home)| home == Tier::Disk);
    let streamed = streamed.map(|(usage, _)| usage.run);
    streamed.filter(|run| shape.regions[run.region.0 as usize].kind == Kind::Scratch).collect()
}
