//! What lives in the VRAM of a device, of the runs that it alone uses: the first of them in an order, as many as fit
//! beside the window of the others.
//!
//! A prefix and no more, although a run further down may fit where the next one does not: what a smaller VRAM holds a
//! larger one holds too, and RAM is filled from the rest. It costs at most what one run saves. For one base the prefix
//! only grows with the VRAM, so the longest of all bases does as well.

use super::super::draft::Draft;
use super::super::limits::Room;
use super::super::queue::Queue;
use super::base::{Base, Bases};
use crate::error::PlanError;
use crate::id::{DeviceId, Tier};
use std::cell::OnceCell;

/// What placing in the VRAM of a device begins with, whatever the budgets are and whatever lives elsewhere.
pub(super) struct Ground {
    pub device: DeviceId,
    /// What work takes.
    pub work_bytes: u64,
    pub queue: Queue,
    /// The runs that it alone uses, by gain and by size, each with its bases.
    own: [(Vec<u32>, OnceCell<Vec<Base>>); 2],
}

impl Ground {
    pub(super) fn new(draft: &Draft, device: DeviceId, work_bytes: u64, orders: [&[u32]; 2]) -> Ground {
        let is_own = |&&index: &&u32| draft.runs[index as usize].device == Some(device);
        let own = orders.map(|order| (order.iter().filter(is_own).copied().collect(), OnceCell::new()));
        Ground { device, work_bytes, queue: Queue::device(draft, device), own }
    }
}

/// Gives homes in VRAM, in the first order or the second.
pub(super) fn choose(
    draft: &Draft,
    ground: &Ground,
    room: &Room<'_>,
    order: usize,
    homes: &mut [Tier],
) -> Result<(), PlanError> {
    let (own, bases) = &ground.own[order];
    let none = || vec![Tier::Disk; draft.runs.len()];
    let bases = bases.get_or_init(|| Bases::new(draft, &ground.queue, &none(), own).find());
    let vram = room.at_least(bases.iter().map(Base::least).min().unwrap_or(0))?;
    // As in `host`: comfort where it can be had, and a cap where it is given up.
    let bare = vram.min(bases.iter().map(Base::comfortable_from).min().unwrap_or(0));
    let mut bytes_before = vec![0u64];
    for &index in own {
        bytes_before.push(bytes_before[bytes_before.len() - 1] + draft.runs[index as usize].bytes);
    }
    // Up to the last that saves anything.
    let saving = own.iter().rposition(|&index| draft.runs[index as usize].gain > 0).map_or(0, |last| last + 1);
    let prefix = |base: &Base, vram: u64, window_bytes: u64| {
        let room = vram.checked_sub(window_bytes).filter(|&room| base.bytes <= room)?;
        let fits = bytes_before.partition_point(|&bytes| bytes <= room) - 1;
        Some(fits.min(saving).max(base.count))
    };
    let found = bases.iter().flat_map(|base| [prefix(base, vram, base.comfort(vram)), prefix(base, bare, base.need)]);
    let count = found.flatten().max().expect("the smallest base fits");
    for &index in &own[..count] {
        homes[index as usize] = ground.queue.tier;
    }
    Ok(())
}
