//! Placement: which runs stay in RAM for good.
//!
//! A run is worth the bytes over the disk link that placing it saves, per byte held (`Usage::gain`). Runs are taken in
//! that order while they fit, and what remains of the arena is the window. How large the window must be depends on what
//! still streams, so several *bases* are tried: the first k runs of an order are placed, the window they leave needed
//! is set aside, and the rest of the arena is filled by gain. The base with the most bytes saved wins.
//!
//! Two properties hold by construction, and tests rely on them. The bases do not depend on the budget, and for one base
//! the saving never falls when the budget grows (filling by gain with skipping is monotone: at the first run where two
//! budgets differ, the larger one takes a run that outweighs all that the smaller one can put in its place); so more
//! RAM never means more traffic. And a refusal names the smallest arena that some base accepts, so that budget is
//! accepted.
//!
//! A window of exactly the needed size leaves nothing to fetch ahead with. While something streams, the window gets at
//! least twice its need or 64 MiB, but no more than a quarter of the arena for that comfort.

use super::types::{Budget, Placed, Residency, Shape};
use super::validate::Draft;
use super::{ALIGN, limits, window};
use crate::error::PlanError;
use crate::id::Run;

/// What a placement decides.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Placement {
    /// For each run of the draft whether it is placed.
    pub is_placed: Vec<bool>,
    /// Arena offset of each placed run of the draft; 0 for the others.
    pub offset: Vec<u64>,
    /// All placed runs, by offset.
    pub placed: Vec<Placed>,
    /// Arena bytes that they span.
    pub placed_bytes: u64,
    /// Arena bytes of the window.
    pub window_bytes: u64,
}

/// Bytes of window that are enough to fetch ahead whatever the runs' sizes are.
const COMFORT_BYTES: u64 = 64 << 20;

/// How often the needed window is computed for one order of runs: bounds the time spent on large schedules.
const BASES_MAX: usize = 40;

/// A beginning: the first `count` runs of an order are placed.
struct Base<'a> {
    order: &'a [u32],
    count: usize,
    /// Bytes of those runs.
    bytes: u64,
    /// Window that the others need.
    need: u64,
}

impl Base<'_> {
    /// Window set aside for comfort in an arena of `host` bytes.
    fn comfort(&self, host: u64) -> u64 {
        let quarter = host / 4 / ALIGN * ALIGN;
        self.need.max((2 * self.need).max(COMFORT_BYTES).min(quarter))
    }

    /// The smallest arena in which this base fits with its comfort.
    fn comfortable_from(&self) -> u64 {
        let with_comfort = self.bytes + (2 * self.need).max(COMFORT_BYTES);
        // Smallest whole number of units h with h - floor(h / 4) >= bytes.
        let units = self.bytes / ALIGN;
        let with_quarter = if units == 0 { 0 } else { (4 * (units - 1) / 3 + 1) * ALIGN };
        (self.bytes + self.need).max(with_comfort.min(with_quarter))
    }
}

/// Chooses what to place.
pub(super) fn choose(draft: &Draft, shape: &Shape<'_>, budget: &Budget) -> Result<Placement, PlanError> {
    let host = budget.host_bytes / ALIGN * ALIGN;
    let total: u64 = draft.runs.iter().map(|usage| usage.bytes).sum();
    if total <= host {
        return Ok(lay_out(draft, vec![true; draft.runs.len()], host));
    }
    if !shape.has_disk {
        return Err(limits::no_disk(budget, total - host, total));
    }
    let by_gain = order_by(draft, |index| (u64::MAX - draft.runs[index].gain, index));
    let by_size = order_by(draft, |index| (u64::MAX - draft.runs[index].bytes, index));
    let mut bases = bases(draft, &by_gain);
    bases.extend(self::bases(draft, &by_size));

    let mut best: Option<(u128, Vec<bool>)> = None;
    let mut consider = |found: Option<(u128, Vec<bool>)>| {
        if found.as_ref().map(|f| f.0) > best.as_ref().map(|b| b.0) {
            best = found;
        }
    };
    for base in &bases {
        consider(fill(draft, base, host, base.comfort(host), &by_gain));
    }
    // Below the smallest comfortable arena the bare need has to do. The arena used for this is capped, so that comfort
    // is not given up where it can be had; capped and not dropped, so that a larger arena never saves less.
    let comfortable_from = bases.iter().map(Base::comfortable_from).min().unwrap_or(0);
    for base in &bases {
        consider(fill(draft, base, host.min(comfortable_from), base.need, &by_gain));
    }
    match best {
        Some((_, is_placed)) => Ok(lay_out(draft, is_placed, host)),
        None => {
            let need = bases.iter().map(|base| base.bytes + base.need).min().unwrap_or(0);
            Err(limits::no_room(budget, need.min(total)))
        }
    }
}

/// Keeps the placement of an earlier plan.
pub(super) fn keep(
    draft: &Draft,
    shape: &Shape<'_>,
    budget: &Budget,
    entry: &Residency,
) -> Result<Placement, PlanError> {
    let mut known: Vec<Placed> = entry.placed.clone();
    known.sort_unstable_by_key(|placed| placed.run);
    let mut is_placed = vec![false; draft.runs.len()];
    let mut offset = vec![0; draft.runs.len()];
    for (index, usage) in draft.runs.iter().enumerate() {
        let after = known.partition_point(|placed| placed.run <= usage.run);
        match after.checked_sub(1).map(|at| known[at]) {
            Some(placed) if placed.run == usage.run => {
                (is_placed[index], offset[index]) = (true, placed.offset);
                continue;
            }
            Some(placed) if placed.run.overlaps(&usage.run) => {
                return Err(PlanError::Overlap { first: placed.run, second: usage.run });
            }
            _ => {}
        }
        if let Some(placed) = known.get(after).filter(|placed| placed.run.overlaps(&usage.run)) {
            return Err(PlanError::Overlap { first: placed.run, second: usage.run });
        }
    }
    let streamed: u64 =
        draft.runs.iter().zip(&is_placed).filter(|&(_, &placed)| !placed).map(|(usage, _)| usage.bytes).sum();
    if !shape.has_disk && streamed > 0 {
        return Err(limits::no_disk(budget, streamed, entry.placed_bytes + streamed));
    }
    let need = window::need(draft, &is_placed);
    let host = budget.host_bytes / ALIGN * ALIGN;
    if entry.placed_bytes + need > host {
        return Err(limits::no_room(budget, entry.placed_bytes + need));
    }
    let window_bytes = window::useful(draft, &is_placed).min(host - entry.placed_bytes);
    let placed = entry.placed.clone();
    Ok(Placement { is_placed, offset, placed, placed_bytes: entry.placed_bytes, window_bytes })
}

/// Indices of all runs by a key.
fn order_by(draft: &Draft, key: impl Fn(usize) -> (u64, usize)) -> Vec<u32> {
    let mut order: Vec<u32> = (0..draft.runs.len() as u32).collect();
    order.sort_unstable_by_key(|&index| key(index as usize));
    order
}

/// Beginnings of an order where the needed window changes, found by halving: both ends first, then the middle of every
/// stretch over which the need falls, widest level first.
fn bases<'a>(draft: &Draft, order: &'a [u32]) -> Vec<Base<'a>> {
    let mut bytes_before = vec![0u64];
    for &index in order {
        bytes_before.push(bytes_before[bytes_before.len() - 1] + draft.runs[index as usize].bytes);
    }
    let measure = |count: usize| {
        let mut is_placed = vec![false; order.len()];
        order[..count].iter().for_each(|&index| is_placed[index as usize] = true);
        Base { order, count, bytes: bytes_before[count], need: window::need(draft, &is_placed) }
    };
    let mut found = vec![measure(0), measure(order.len())];
    let mut stretches = std::collections::VecDeque::from([(0, 1)]);
    while let Some((low, high)) = stretches.pop_front() {
        let (from, to) = (found[low].count, found[high].count);
        if to - from < 2 || found[low].need == found[high].need || found.len() >= BASES_MAX {
            continue;
        }
        found.push(measure(from + (to - from) / 2));
        let middle = found.len() - 1;
        stretches.extend([(low, middle), (middle, high)]);
    }
    found
}

/// Fills an arena of `host` bytes: the base, a window of `window_bytes` where that much is left (the needed window at
/// least), then runs by gain. Returns bytes saved (in parts) and what is placed; None if the base does not fit.
fn fill(draft: &Draft, base: &Base<'_>, host: u64, window_bytes: u64, by_gain: &[u32]) -> Option<(u128, Vec<bool>)> {
    let mut room = host.checked_sub(base.bytes + window_bytes)?;
    let mut is_placed = vec![false; draft.runs.len()];
    base.order[..base.count].iter().for_each(|&index| is_placed[index as usize] = true);
    let saved = |index: u32| {
        let usage = &draft.runs[index as usize];
        u128::from(usage.bytes) * u128::from(usage.gain)
    };
    let mut sum: u128 = base.order[..base.count].iter().map(|&index| saved(index)).sum();
    for &index in by_gain {
        let usage = &draft.runs[index as usize];
        if usage.gain == 0 {
            break;
        }
        if !is_placed[index as usize] && usage.bytes <= room {
            is_placed[index as usize] = true;
            room -= usage.bytes;
            sum += saved(index);
        }
    }
    Some((sum, is_placed))
}

/// Gives placed runs their spans, in the order of regions and pages so that neighbours on disk are neighbours in RAM,
/// and the rest of the arena, as far as it is of use, to the window.
fn lay_out(draft: &Draft, is_placed: Vec<bool>, host: u64) -> Placement {
    let mut order: Vec<u32> = (0..draft.runs.len() as u32).filter(|&index| is_placed[index as usize]).collect();
    order.sort_unstable_by_key(|&index| run_of(draft, index));
    let mut offset = vec![0; draft.runs.len()];
    let mut placed = Vec::with_capacity(order.len());
    let mut placed_bytes = 0;
    for &index in &order {
        let usage = draft.runs[index as usize];
        offset[index as usize] = placed_bytes;
        placed.push(Placed { run: usage.run, offset: placed_bytes, bytes: usage.bytes });
        placed_bytes += usage.bytes;
    }
    let window_bytes = window::useful(draft, &is_placed).min(host - placed_bytes);
    assert!(window_bytes >= window::need(draft, &is_placed), "placement leaves less than the window needs");
    Placement { is_placed, offset, placed, placed_bytes, window_bytes }
}

fn run_of(draft: &Draft, index: u32) -> Run {
    draft.runs[index as usize].run
}
