//! Keeping the placement of an earlier plan.

use super::super::draft::Draft;
use super::super::limits::{Room, no_disk};
use super::super::queue::Queue;
use super::super::types::{Budget, Placed, Residency, Shape};
use super::super::window;
use super::{Placement, Share, staging_bytes};
use crate::error::PlanError;
use crate::id::{DeviceId, Tier};

/// A placement with exactly the entry's homes. Runs that have none stream from disk.
pub(in super::super) fn keep(
    draft: &Draft,
    shape: &Shape<'_>,
    budget: &Budget,
    entry: &Residency,
) -> Result<Placement, PlanError> {
    let mut known: Vec<(Tier, Placed)> = entry.placed.iter().map(|&placed| (Tier::Host, placed)).collect();
    for device in &entry.devices {
        known.extend(device.placed.iter().map(|&placed| (Tier::Device(device.device), placed)));
    }
    let mut homes = vec![Tier::Disk; draft.runs.len()];
    let mut offset = vec![0; draft.runs.len()];
    find_homes(draft, known, &mut homes, &mut offset)?;
    for use_ in &draft.uses {
        match (use_.tier, homes[use_.run as usize]) {
            (Tier::Device(device), Tier::Device(home)) if device != home || use_.relay.is_some() => {
                return Err(PlanError::Misplaced { node: use_.node });
            }
            _ => {}
        }
    }
    let homeless = draft.runs.iter().zip(&homes).filter(|(_, home)| **home == Tier::Disk);
    let streamed: u64 = homeless.map(|(usage, _)| usage.bytes).sum();
    if !shape.has_disk && streamed > 0 {
        return Err(no_disk(budget, streamed, entry.placed_bytes + streamed));
    }

    // Also devices that the schedule does not use keep what they hold.
    let mut ids: Vec<DeviceId> = entry.devices.iter().map(|device| device.device).collect();
    ids.extend(draft.work.devices.iter().map(|&(device, _)| device));
    ids.sort_unstable();
    ids.dedup();
    let mut devices = Vec::with_capacity(ids.len());
    for id in ids {
        let held = entry.devices.iter().find(|device| device.device == id);
        let (placed, placed_bytes) = held.map_or((Vec::new(), 0), |held| (held.placed.clone(), held.placed_bytes));
        let work_bytes = draft.work.device_bytes(id);
        let queue = Queue::device(draft, id);
        let room = Room::new(budget, Tier::Device(id), work_bytes);
        let room = room.at_least(placed_bytes + window::need(&queue, &homes))?;
        let window_bytes = window::useful(&queue, &homes).min(room - placed_bytes);
        devices.push((id, Share { placed, placed_bytes, window_bytes }));
    }

    let held = entry.devices.iter().flat_map(|held| &held.placed).map(|placed| placed.bytes);
    let staging_bytes = staging_bytes(draft, shape, held.max().unwrap_or(0));
    let queue = Queue::host(draft);
    let need = entry.placed_bytes + window::need(&queue, &homes);
    let room = Room::new(budget, Tier::Host, draft.work.host_bytes.saturating_add(staging_bytes)).at_least(need)?;
    let window_bytes = window::useful(&queue, &homes).min(room - entry.placed_bytes);
    let host = Share { placed: entry.placed.clone(), placed_bytes: entry.placed_bytes, window_bytes };
    Ok(Placement { homes, offset, host, devices, staging_bytes })
}

/// Looks up every run among those that are known; refuses runs that cut known ones.
fn find_homes(
    draft: &Draft,
    mut known: Vec<(Tier, Placed)>,
    homes: &mut [Tier],
    offset: &mut [u64],
) -> Result<(), PlanError> {
    known.sort_unstable_by_key(|(_, placed)| placed.run);
    for (index, usage) in draft.runs.iter().enumerate() {
        let after = known.partition_point(|(_, placed)| placed.run <= usage.run);
        match after.checked_sub(1).map(|at| known[at]) {
            Some((tier, placed)) if placed.run == usage.run => {
                (homes[index], offset[index]) = (tier, placed.offset);
                continue;
            }
            Some((_, placed)) if placed.run.overlaps(&usage.run) => {
                return Err(PlanError::Overlap { first: placed.run, second: usage.run });
            }
            _ => {}
        }
        if let Some((_, placed)) = known.get(after).filter(|(_, placed)| placed.run.overlaps(&usage.run)) {
            return Err(PlanError::Overlap { first: placed.run, second: usage.run });
        }
    }
    Ok(())
}
