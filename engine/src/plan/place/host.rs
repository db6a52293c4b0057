//! What lives in RAM, of the runs that do not live in VRAM.
//!
//! Of all bases the one wins that saves most when the rest of the arena is filled by gain. The bases do not depend on
//! budgets, nor on what lives in VRAM (those runs are taken out of each), and for one base the saving never falls when
//! the arena grows or a run leaves for VRAM: filling by gain with skipping is monotone, since at the first run where
//! two arenas differ, the larger one takes a run that outweighs all that the smaller one can put in its place. So more
//! memory never means more traffic. A refusal names the smallest arena that some base accepts.

use super::super::draft::Draft;
use super::super::limits::{Room, no_disk};
use super::super::queue::Queue;
use super::super::types::Shape;
use super::base::{Base, Bases};
use crate::error::PlanError;
use crate::id::Tier;
use std::cell::OnceCell;

/// What placing in RAM begins with, whatever the budgets are and whatever lives in VRAM.
pub(super) struct Ground {
    pub queue: Queue,
    /// The bases of the orders by gain and by size where nothing lives in VRAM: looked for once, and not where
    /// everything fits.
    bases: OnceCell<[Vec<Base>; 2]>,
}

impl Ground {
    pub(super) fn new(draft: &Draft) -> Ground {
        Ground { queue: Queue::host(draft), bases: OnceCell::new() }
    }
}

/// Gives homes in RAM to runs that have none. `orders`: all runs by gain, and by size.
pub(super) fn choose(
    draft: &Draft,
    ground: &Ground,
    orders: [&[u32]; 2],
    shape: &Shape<'_>,
    room: &Room<'_>,
    homes: &mut [Tier],
) -> Result<(), PlanError> {
    let [by_gain, by_size] = orders;
    let measured = Bases::new(draft, &ground.queue, homes, by_gain);
    let all = measured.all();
    let host = room.at_least(0)?;
    if all.least() <= host {
        for home in homes.iter_mut().filter(|home| **home == Tier::Disk) {
            *home = Tier::Host;
        }
        return Ok(());
    }
    if !shape.has_disk {
        return Err(no_disk(room.budget, all.least() - host, all.least() + room.reserved));
    }
    // Where the bases are, and how much arena is comfortable, is decided as if nothing lived in VRAM.
    let found = ground.bases.get_or_init(|| {
        let none = vec![Tier::Disk; draft.runs.len()];
        orders.map(|order| Bases::new(draft, &ground.queue, &none, order).find())
    });
    let comfortable_from = found.iter().flatten().map(Base::comfortable_from).min().unwrap_or(0);
    let mut bases = found.clone();
    if homes.iter().any(|home| *home != Tier::Disk) {
        bases[0].iter_mut().for_each(|base| *base = measured.first(base.count));
        let measured = Bases::new(draft, &ground.queue, homes, by_size);
        bases[1].iter_mut().for_each(|base| *base = measured.first(base.count));
    }

    let fillings = orders.map(|order| Filling::new(draft, by_gain, order, homes));
    // What is saved, and by which base in which arena with which window.
    let mut best: Option<(u128, (usize, Base, u64, u64))> = None;
    let mut consider = |order: usize, base: Base, host: u64, window_bytes: u64| {
        let saved = fillings[order].fill(&base, host, window_bytes, |_| {});
        if saved > best.as_ref().map(|best| best.0) {
            best = saved.map(|saved| (saved, (order, base, host, window_bytes)));
        }
    };
    for (order, base) in (0..).zip(&bases).flat_map(|(order, bases)| bases.iter().map(move |base| (order, *base))) {
        consider(order, base, host, base.comfort(host));
    }
    // Below the smallest comfortable arena the bare need has to do. The arena used for this is capped, so that comfort
    // is not given up where it can be had; capped and not dropped, so that a larger arena never saves less.
    for (order, base) in (0..).zip(&bases).flat_map(|(order, bases)| bases.iter().map(move |base| (order, *base))) {
        consider(order, base, host.min(comfortable_from), base.need);
    }
    let Some((_, (order, base, host, window_bytes))) = best else {
        let need = bases.iter().flatten().map(Base::least).min().unwrap_or(0).min(all.least());
        return Err(room.refusal(need));
    };
    let mut placed = Vec::new();
    fillings[order].fill(&base, host, window_bytes, |index| placed.push(index));
    for index in placed {
        homes[index as usize] = Tier::Host;
    }
    Ok(())
}

/// Fills arenas from the bases of one order.
struct Filling<'a> {
    draft: &'a Draft,
    by_gain: &'a [u32],
    order: &'a [u32],
    homes: &'a [Tier],
    /// For each run the number of runs that a base must have to hold it.
    held_from: Vec<u32>,
    /// What the first runs of the order save, by their number.
    saved: Vec<u128>,
    /// Bytes of the smallest run.
    smallest: u64,
}

impl<'a> Filling<'a> {
    fn new(draft: &'a Draft, by_gain: &'a [u32], order: &'a [u32], homes: &'a [Tier]) -> Filling<'a> {
        let mut held_from = vec![0; order.len()];
        let mut saved = Vec::with_capacity(order.len() + 1);
        let mut sum = 0;
        saved.push(sum);
        for (count, &index) in (1..).zip(order) {
            held_from[index as usize] = count;
            sum += if homes[index as usize] == Tier::Disk { saves(draft, index) } else { 0 };
            saved.push(sum);
        }
        let smallest = draft.runs.iter().map(|usage| usage.bytes).min().unwrap_or(0);
        Filling { draft, by_gain, order, homes, held_from, saved, smallest }
    }

    /// Fills an arena of `host` bytes: the base, a window of `window_bytes` where that much is left (the needed window
    /// at least), then runs by gain. Tells each run that it places, and returns the bytes saved (in parts); None if the
    /// base does not fit.
    fn fill(&self, base: &Base, host: u64, window_bytes: u64, mut place: impl FnMut(u32)) -> Option<u128> {
        let mut room = host.checked_sub(base.bytes + window_bytes)?;
        let is_homeless = |&&index: &&u32| self.homes[index as usize] == Tier::Disk;
        self.order[..base.count].iter().filter(is_homeless).for_each(|&index| place(index));
        let mut sum = self.saved[base.count];
        let is_held = |&&index: &&u32| self.held_from[index as usize] as usize <= base.count;
        for &index in self.by_gain.iter().filter(is_homeless).filter(|index| !is_held(index)) {
            let usage = &self.draft.runs[index as usize];
            if usage.gain == 0 || room < self.smallest {
                break;
            }
            if usage.bytes <= room {
                place(index);
                room -= usage.bytes;
                sum += saves(self.draft, index);
            }
        }
        Some(sum)
    }
}

/// What placing a run saves, in parts of bytes.
fn saves(draft: &Draft, index: u32) -> u128 {
    let usage = &draft.runs[index as usize];
    u128::from(usage.bytes) * u128::from(usage.gain)
}
