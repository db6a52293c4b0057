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

/// What places RAM whatever lives in VRAM.
pub(super) struct Beginnings<'a> {
    draft: &'a Draft,
    pub queue: &'a Queue,
    by_gain: &'a [u32],
    by_size: &'a [u32],
    /// The bases of both orders where nothing lives in VRAM: looked for once, and not where everything fits.
    bases: OnceCell<[Vec<Base<'a>>; 2]>,
}

impl<'a> Beginnings<'a> {
    pub(super) fn new(draft: &'a Draft, queue: &'a Queue, by_gain: &'a [u32], by_size: &'a [u32]) -> Beginnings<'a> {
        Beginnings { draft, queue, by_gain, by_size, bases: OnceCell::new() }
    }

    fn bases(&self) -> &[Vec<Base<'a>>; 2] {
        self.bases.get_or_init(|| {
            let none = vec![Tier::Disk; self.draft.runs.len()];
            [self.by_gain, self.by_size].map(|order| Bases::new(self.draft, self.queue, &none, order).find())
        })
    }
}

/// Gives homes in RAM to runs that have none.
pub(super) fn choose(
    beginnings: &Beginnings<'_>,
    shape: &Shape<'_>,
    room: &Room<'_>,
    homes: &mut Vec<Tier>,
) -> Result<(), PlanError> {
    let Beginnings { draft, queue, by_gain, by_size, .. } = *beginnings;
    let measured = Bases::new(draft, queue, homes, by_gain);
    let all = measured.all();
    let host = room.at_least(0)?;
    if all.least() <= host {
        place(homes, by_gain);
        return Ok(());
    }
    if !shape.has_disk {
        return Err(no_disk(room.budget, all.least() - host, all.least() + room.reserved));
    }
    // Where the bases are, and how much arena is comfortable, is decided as if nothing lived in VRAM.
    let [of_gain, of_size] = beginnings.bases();
    let mut bases = [of_gain.as_slice(), of_size].concat();
    let comfortable_from = bases.iter().map(Base::comfortable_from).min().unwrap_or(0);
    if homes.iter().any(|home| *home != Tier::Disk) {
        let (of_gain, of_size) = bases.split_at_mut(of_gain.len());
        of_gain.iter_mut().for_each(|base| *base = measured.first(base.count));
        let measured = Bases::new(draft, queue, homes, by_size);
        of_size.iter_mut().for_each(|base| *base = measured.first(base.count));
    }

    let mut best: Option<(u128, Vec<Tier>)> = None;
    let mut consider = |found: Option<(u128, Vec<Tier>)>| {
        if found.as_ref().map(|f| f.0) > best.as_ref().map(|b| b.0) {
            best = found;
        }
    };
    for base in &bases {
        consider(fill(draft, base, host, base.comfort(host), by_gain, homes));
    }
    // Below the smallest comfortable arena the bare need has to do. The arena used for this is capped, so that comfort
    // is not given up where it can be had; capped and not dropped, so that a larger arena never saves less.
    for base in &bases {
        consider(fill(draft, base, host.min(comfortable_from), base.need, by_gain, homes));
    }
    match best {
        Some((_, found)) => {
            *homes = found;
            Ok(())
        }
        None => {
            let need = bases.iter().map(Base::least).min().unwrap_or(0).min(all.least());
            Err(room.refusal(need))
        }
    }
}

fn place(homes: &mut [Tier], runs: &[u32]) {
    for &index in runs {
        let home = &mut homes[index as usize];
        *home = if *home == Tier::Disk { Tier::Host } else { *home };
    }
}

/// Fills an arena of `host` bytes: the base, a window of `window_bytes` where that much is left (the needed window at
/// least), then runs by gain. Returns bytes saved (in parts) and the homes; None if the base does not fit.
fn fill(
    draft: &Draft,
    base: &Base<'_>,
    host: u64,
    window_bytes: u64,
    by_gain: &[u32],
    homes: &[Tier],
) -> Option<(u128, Vec<Tier>)> {
    let mut room = host.checked_sub(base.bytes + window_bytes)?;
    let mut homes = homes.to_vec();
    place(&mut homes, &base.order[..base.count]);
    let saved = |index: u32| {
        let usage = &draft.runs[index as usize];
        u128::from(usage.bytes) * u128::from(usage.gain)
    };
    let is_in_base = |&&index: &&u32| homes[index as usize] == Tier::Host;
    let mut sum: u128 = base.order[..base.count].iter().filter(is_in_base).map(|&index| saved(index)).sum();
    for &index in by_gain {
        let usage = &draft.runs[index as usize];
        if usage.gain == 0 {
            break;
        }
        if homes[index as usize] == Tier::Disk && usage.bytes <= room {
            homes[index as usize] = Tier::Host;
            room -= usage.bytes;
            sum += saved(index);
        }
    }
    Some((sum, homes))
}
