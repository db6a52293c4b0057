//! Placement: where each run lives for good.
//!
//! A run is worth the bytes over the links that placing it saves, per byte held (`Usage::gain`). Memory is filled in
//! that order, VRAM first (`device`) with runs that their device alone uses, then RAM (`host`) with what is left. So
//! the disk moves as few bytes as both together allow, and the links to the devices as few as VRAM allows: for the runs
//! that VRAM may hold both links save the same. A run that both sides use has its home in RAM or on disk: in VRAM the
//! host's update would cross the link both ways, which is what two reads from RAM cost.
//!
//! Three properties hold by construction, and tests rely on them. More RAM never means more traffic (see `host`). More
//! VRAM never does: what VRAM holds only grows with it, and a run that moves there leaves to the others what it took of
//! RAM. (Traffic is compared by the disk, and where that is the same by the links.) And a refusal names a budget that
//! is accepted.

mod base;
mod device;
mod host;
mod keep;

pub(super) use keep::keep;

use super::draft::Draft;
use super::limits::Room;
use super::queue::Queue;
use super::types::{Budget, Placed, Shape};
use super::window;
use crate::error::PlanError;
use crate::id::{DeviceId, Tier};

/// What a placement decides.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Placement {
    /// The home of each run of the draft.
    pub homes: Vec<Tier>,
    /// Offset of each placed run of the draft in the memory of its home; 0 for the others.
    pub offset: Vec<u64>,
    pub host: Share,
    pub devices: Vec<(DeviceId, Share)>,
    /// Arena bytes of the staging ring.
    pub staging_bytes: u64,
}

/// What one memory holds.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Share {
    /// All placed runs, by offset.
    pub placed: Vec<Placed>,
    /// Bytes that they span.
    pub placed_bytes: u64,
    /// Bytes of the window behind them.
    pub window_bytes: u64,
}

/// What every choice of a placement for a draft begins with, whatever the budgets are: measuring the bases takes longer
/// than all the rest, and a draft is placed in several budgets.
pub(super) struct Ground {
    by_gain: Vec<u32>,
    by_size: Vec<u32>,
    host: host::Ground,
    devices: Vec<device::Ground>,
}

impl Ground {
    pub(super) fn new(draft: &Draft) -> Ground {
        let by_gain = order_by(draft, |index| (u64::MAX - draft.runs[index].gain, index));
        let by_size = order_by(draft, |index| (u64::MAX - draft.runs[index].bytes, index));
        let devices = draft.work.devices.iter();
        let devices = devices.map(|&(id, work_bytes)| device::Ground::new(draft, id, work_bytes, [&by_gain, &by_size]));
        Ground { devices: devices.collect(), host: host::Ground::new(draft), by_gain, by_size }
    }
}

/// Chooses what to place. VRAM is filled in two orders, and the better outcome is taken: the largest runs first may
/// leave the windows so much smaller that more is saved.
pub(super) fn choose(
    draft: &Draft,
    ground: &Ground,
    shape: &Shape<'_>,
    budget: &Budget,
) -> Result<Placement, PlanError> {
    let in_vram = |order| in_vram(draft, ground, budget, order);
    let around = |in_vram: InVram| around(draft, ground, shape, budget, in_vram);
    if draft.work.devices.is_empty() {
        return around(in_vram(0)?);
    }
    match (in_vram(0), in_vram(1)) {
        (Ok(first), Ok(second)) if first == second => around(first),
        (first, second) => match (first.and_then(around), second.and_then(around)) {
            (Ok(first), Ok(second)) => Ok(if second.saved(draft) > first.saved(draft) { second } else { first }),
            (Ok(found), Err(_)) | (Err(_), Ok(found)) => Ok(found),
            (Err(first), Err(second)) => Err(nearer(budget, first, second)),
        },
    }
}

/// The refusal that asks for less beyond a budget.
fn nearer(budget: &Budget, first: PlanError, second: PlanError) -> PlanError {
    let missing = |error: &PlanError| match error {
        PlanError::DoesNotFit { nearest, .. } => budget.missing(nearest),
        _ => 0,
    };
    if missing(&second) < missing(&first) { second } else { first }
}

/// What lives in VRAM, while nothing has a home in RAM yet.
#[derive(PartialEq, Eq)]
struct InVram {
    homes: Vec<Tier>,
    offset: Vec<u64>,
    devices: Vec<(DeviceId, Share)>,
}

/// Fills the VRAM of all devices, in the order by gain (0) or by size (1).
fn in_vram(draft: &Draft, ground: &Ground, budget: &Budget, order: usize) -> Result<InVram, PlanError> {
    let mut homes = vec![Tier::Disk; draft.runs.len()];
    let mut offset = vec![0; draft.runs.len()];
    let mut devices = Vec::with_capacity(ground.devices.len());
    for of_device in &ground.devices {
        let room = Room::new(budget, of_device.queue.tier, of_device.work_bytes);
        device::choose(draft, of_device, &room, order, &mut homes)?;
        let share = lay_out(draft, &of_device.queue, &homes, &mut offset, room.bytes());
        devices.push((of_device.device, share));
    }
    Ok(InVram { homes, offset, devices })
}

/// Fills RAM with what is left.
fn around(
    draft: &Draft,
    ground: &Ground,
    shape: &Shape<'_>,
    budget: &Budget,
    in_vram: InVram,
) -> Result<Placement, PlanError> {
    let InVram { mut homes, mut offset, devices } = in_vram;
    let staging_bytes = staging_bytes(draft, shape, 0);
    let room = Room::new(budget, Tier::Host, draft.work.host_bytes.saturating_add(staging_bytes));
    host::choose(draft, &ground.host, [&ground.by_gain, &ground.by_size], shape, &room, &mut homes)?;
    let host = lay_out(draft, &ground.host.queue, &homes, &mut offset, room.bytes());
    Ok(Placement { homes, offset, host, devices, staging_bytes })
}

impl Placement {
    /// What it saves over the disk, and over the links to devices.
    fn saved(&self, draft: &Draft) -> (u128, u128) {
        let mut saved = (0, 0);
        for (usage, home) in draft.runs.iter().zip(&self.homes) {
            let bytes = u128::from(usage.bytes) * u128::from(usage.gain);
            saved.0 += if *home == Tier::Disk { 0 } else { bytes };
            saved.1 += if matches!(home, Tier::Device(_)) { bytes } else { 0 };
        }
        saved
    }
}

/// Arena bytes of the staging ring: two spans for the largest run that a device uses, or that lives there already. It
/// does not depend on what is chosen, so that more VRAM never takes RAM away.
fn staging_bytes(draft: &Draft, shape: &Shape<'_>, held_max: u64) -> u64 {
    let on_device = draft.uses.iter().filter(|use_| matches!(use_.tier, Tier::Device(_)));
    let largest = on_device.map(|use_| use_.bytes).fold(held_max, u64::max);
    if shape.has_disk { 2 * largest } else { 0 }
}

/// Indices of all runs by a key.
fn order_by(draft: &Draft, key: impl Fn(usize) -> (u64, usize)) -> Vec<u32> {
    let mut order: Vec<u32> = (0..draft.runs.len() as u32).collect();
    order.sort_unstable_by_key(|&index| key(index as usize));
    order
}

/// Gives the runs placed on the queue's tier their spans, in the order of regions and pages so that neighbours on disk
/// are neighbours in memory, and the rest, as far as it is of use, to the window.
fn lay_out(draft: &Draft, queue: &Queue, homes: &[Tier], offset: &mut [u64], room: u64) -> Share {
    let mut order: Vec<u32> =
        (0..draft.runs.len() as u32).filter(|&index| homes[index as usize] == queue.tier).collect();
    order.sort_unstable_by_key(|&index| draft.runs[index as usize].run);
    let mut share = Share { placed: Vec::with_capacity(order.len()), ..Share::default() };
    for &index in &order {
        let usage = draft.runs[index as usize];
        offset[index as usize] = share.placed_bytes;
        share.placed.push(Placed { run: usage.run, offset: share.placed_bytes, bytes: usage.bytes });
        share.placed_bytes += usage.bytes;
    }
    share.window_bytes = window::useful(queue, homes).min(room - share.placed_bytes);
    assert!(share.window_bytes >= window::need(queue, homes), "placement leaves less than the window needs");
    share
}
