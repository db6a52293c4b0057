//! Beginnings of a placement. How large a window must be depends on what still streams, so several *bases* are tried:
//! the first k runs of an order are placed and the window that they leave needed is set aside; the rest of the memory
//! is then filled.
//!
//! A window of exactly the needed size leaves nothing to fetch ahead with. While something streams, the window gets at
//! least twice its need or 64 MiB, but no more than a quarter of the memory for that comfort.

use super::super::ALIGN;
use super::super::draft::Draft;
use super::super::queue::Queue;
use super::super::window::Needs;
use crate::id::Tier;

/// Bytes of window that are enough to fetch ahead whatever the runs' sizes are.
const COMFORT_BYTES: u64 = 64 << 20;

/// How often the needed window is computed for one order of runs: bounds the time spent on large schedules.
const BASES_MAX: usize = 40;

/// A beginning: of the first `count` runs of an order those that have no home yet are placed.
#[derive(Clone, Copy)]
pub(super) struct Base {
    pub count: usize,
    /// Bytes of those runs.
    pub bytes: u64,
    /// Window that the others need.
    pub need: u64,
}

impl Base {
    /// Window set aside for comfort in a memory of `room` bytes.
    pub(super) fn comfort(&self, room: u64) -> u64 {
        if self.need == 0 {
            return 0;
        }
        let quarter = room / 4 / ALIGN * ALIGN;
        self.need.max((2 * self.need).max(COMFORT_BYTES).min(quarter))
    }

    /// The smallest memory in which this base fits with its comfort.
    pub(super) fn comfortable_from(&self) -> u64 {
        if self.need == 0 {
            return self.bytes;
        }
        let with_comfort = self.bytes + (2 * self.need).max(COMFORT_BYTES);
        // Smallest whole number of units h with h - floor(h / 4) >= bytes.
        let units = self.bytes / ALIGN;
        let with_quarter = if units == 0 { 0 } else { (4 * (units - 1) / 3 + 1) * ALIGN };
        (self.bytes + self.need).max(with_comfort.min(with_quarter))
    }

    /// The smallest memory in which it fits.
    pub(super) fn least(&self) -> u64 {
        self.bytes + self.need
    }
}

/// Measures bases of one order, beside the homes that are given.
pub(super) struct Bases {
    /// Bytes of the first runs that have no home yet, by their number.
    bytes: Vec<u64>,
    needs: Needs,
}

impl Bases {
    pub(super) fn new(draft: &Draft, queue: &Queue, homes: &[Tier], order: &[u32]) -> Bases {
        let mut bytes = Vec::with_capacity(order.len() + 1);
        let mut sum = 0;
        bytes.push(sum);
        bytes.extend(order.iter().map(|&index| {
            sum += if homes[index as usize] == Tier::Disk { draft.runs[index as usize].bytes } else { 0 };
            sum
        }));
        Bases { bytes, needs: Needs::new(queue, homes, order) }
    }

    /// The base of the first `count` runs.
    pub(super) fn first(&self, count: usize) -> Base {
        Base { count, bytes: self.bytes[count], need: self.needs.at(count) }
    }

    /// The base of all runs.
    pub(super) fn all(&self) -> Base {
        self.first(self.bytes.len() - 1)
    }

    /// Beginnings where the needed window changes, found by halving: both ends first, then the middle of every stretch
    /// over which the need falls, widest level first.
    pub(super) fn find(&self) -> Vec<Base> {
        let mut found = vec![self.first(0), self.all()];
        let mut stretches = std::collections::VecDeque::from([(0, 1)]);
        while let Some((low, high)) = stretches.pop_front() {
            let (from, to) = (found[low].count, found[high].count);
            if to - from < 2 || found[low].need == found[high].need || found.len() >= BASES_MAX {
                continue;
            }
            found.push(self.first(from + (to - from) / 2));
            let middle = found.len() - 1;
            stretches.extend([(low, middle), (middle, high)]);
        }
        found
    }
}
