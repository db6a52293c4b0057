//! What is kept between forward and backward, by dynamic programming over time and space.
//!
//! An *item* is a layer, or the head with its logits; its *choices* are its levels, each with the bytes that it keeps
//! and the time that the backward takes to compute the rest again. The [`Front`] has, for every number of bytes, the
//! least time in which some assignment of levels gets along: item by item, all sums of what the items before cost and
//! what a choice costs, less those that another sum beats in both. It is exact, and one front answers for every budget.
//! With n layers of equal size its length is at most about n^2, the number of different sums of bytes.
//!
//! A [`Room`] says what a point of the front means for a step: kept bytes go into the VRAM and RAM that nothing else
//! takes, what does not fit there is written in the forward and read in the backward, over the link of the GPU and over
//! the disk's, and each of the two takes as long as the longest of computation and links. More memory never makes a
//! point slower, so it never makes the best one slower.
//!
//! What it is not: a prediction. It leaves out the window, commits, cores that transfers take; its solutions are
//! candidates that the engine's planner judges.

use super::Description;
use super::cost::Cost;
use crate::block::{Dims, Level};
use mt_engine::{LinkRates, Profile};

/// What is kept between forward and backward.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Kept {
    /// Of each layer.
    pub layers: Vec<Level>,
    /// The head's logits.
    pub logits: bool,
}

impl Kept {
    /// The same level for all layers.
    pub fn uniform(layers: usize, level: Level, logits: bool) -> Kept {
        Kept { layers: vec![level; layers], logits }
    }

    /// Layers of a level.
    pub fn count(&self, level: Level) -> usize {
        self.layers.iter().filter(|&&l| l == level).count()
    }

    /// Whether some layer is computed again.
    pub fn recomputes(&self) -> bool {
        self.layers.iter().any(|&level| level != Level::All)
    }

    /// As the items' choices.
    fn of(mut choices: Vec<usize>) -> Kept {
        let logits = choices.pop().expect("the head is an item") > 0;
        Kept { layers: choices.into_iter().map(|choice| Level::EACH[choice]).collect(), logits }
    }
}

/// Bytes kept, and time to compute again what is not.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Choice {
    /// Bytes of all micro-batches.
    pub bytes: u64,
    /// Nanoseconds of all micro-batches.
    pub ns: u64,
}

/// A point of the front, and how it came about.
#[derive(Clone, Copy, Debug)]
struct Point {
    sum: Choice,
    /// Index of the point that it continues, one item before.
    before: u32,
    choice: u8,
}

/// The sums of some choices, none of which another beats in both, by ascending bytes.
#[derive(Clone, Debug)]
pub struct Front {
    /// After each item.
    items: Vec<Vec<Point>>,
}

impl Front {
    /// The front of all assignments: one choice of each item.
    pub fn new(items: &[Vec<Choice>]) -> Front {
        let start = vec![Point { sum: Choice::default(), before: 0, choice: 0 }];
        let mut front = Front { items: Vec::with_capacity(items.len()) };
        for choices in items {
            let next = extend(front.items.last().unwrap_or(&start), choices);
            front.items.push(next);
        }
        front
    }

    fn points(&self) -> &[Point] {
        self.items.last().map_or(&[], Vec::as_slice)
    }

    /// The assignment with the least `seconds`, and of those the one with the fewest bytes; None for points that are
    /// not possible.
    pub fn best(&self, seconds: impl Fn(Choice) -> Option<f64>) -> Option<Vec<usize>> {
        let mut best: Option<(f64, usize)> = None;
        for (index, point) in self.points().iter().enumerate() {
            match seconds(point.sum) {
                Some(found) if best.is_none_or(|(least, _)| found < least) => best = Some((found, index)),
                _ => {}
            }
        }
        best.map(|(_, index)| self.choices(index))
    }

    /// Follows a point back to the first item.
    fn choices(&self, mut index: usize) -> Vec<usize> {
        let mut choices = vec![0; self.items.len()];
        for (choice, points) in choices.iter_mut().zip(&self.items).rev() {
            let point = points[index];
            (*choice, index) = (usize::from(point.choice), point.before as usize);
        }
        choices
    }
}

/// All sums of a point and a choice, less those that are beaten. The points are sorted, and so are the sums with one
/// choice: merging them takes one look at each.
fn extend(points: &[Point], choices: &[Choice]) -> Vec<Point> {
    let mut next = vec![0; choices.len()];
    let mut front: Vec<Point> = Vec::new();
    let sum = |choice: usize, next: &[usize]| {
        let (a, b) = (points.get(next[choice])?.sum, choices[choice]);
        Some(Choice { bytes: a.bytes + b.bytes, ns: a.ns + b.ns })
    };
    loop {
        let sums = (0..choices.len()).filter_map(|choice| sum(choice, &next).map(|sum| (sum.bytes, sum.ns, choice)));
        let Some((bytes, ns, choice)) = sums.min() else { return front };
        if front.last().is_none_or(|last| ns < last.sum.ns) {
            front.push(Point { sum: Choice { bytes, ns }, before: next[choice] as u32, choice: choice as u8 });
        }
        next[choice] += 1;
    }
}

/// One direction of a step without anything kept.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Side {
    /// Seconds of computation.
    pub compute_s: f64,
    /// Seconds of what the processor does beside a GPU.
    pub beside_s: f64,
    /// Bytes read from disk.
    pub read_bytes: u64,
    /// Bytes written to disk.
    pub write_bytes: u64,
    /// Bytes from RAM to VRAM.
    pub up_bytes: u64,
    /// Bytes from VRAM to RAM.
    pub down_bytes: u64,
}

impl Side {
    fn and(self, other: Side) -> Side {
        Side {
            compute_s: self.compute_s + other.compute_s,
            beside_s: self.beside_s + other.beside_s,
            read_bytes: self.read_bytes + other.read_bytes,
            write_bytes: self.write_bytes + other.write_bytes,
            up_bytes: self.up_bytes + other.up_bytes,
            down_bytes: self.down_bytes + other.down_bytes,
        }
    }
}

/// What a step has room for.
#[derive(Clone, PartialEq, Debug)]
pub struct Room {
    /// Bytes of VRAM that nothing else takes; 0 without a GPU.
    pub vram_bytes: u64,
    /// Bytes of RAM that nothing else takes.
    pub ram_bytes: u64,
    /// Forward.
    pub forward: Side,
    /// Backward, without what it computes again.
    pub backward: Side,
    /// Rates of the disk's link; None: there is no disk.
    pub link: Option<Profile>,
    /// Rates of the GPU's link.
    pub device: Option<LinkRates>,
}

impl Room {
    /// Seconds of a step that keeps and recomputes this much; None: it does not fit. Either side waits for its own
    /// transfers.
    pub fn seconds(&self, sum: Choice) -> Option<f64> {
        let (forward, backward) = self.sides(sum)?;
        Some(self.side_s(forward) + self.side_s(backward))
    }

    /// The same where transfers of one side may run during the other.
    pub fn seconds_together(&self, sum: Choice) -> Option<f64> {
        let (forward, backward) = self.sides(sum)?;
        Some(self.side_s(forward.and(backward)))
    }

    fn sides(&self, sum: Choice) -> Option<(Side, Side)> {
        let (mut forward, mut backward) = (self.forward, self.backward);
        let leaves = sum.bytes.saturating_sub(self.vram_bytes);
        let streamed = leaves.saturating_sub(self.ram_bytes);
        if streamed > 0 && self.link.is_none() {
            return None;
        }
        forward.write_bytes += streamed;
        backward.read_bytes += streamed;
        if self.device.is_some() {
            forward.down_bytes += leaves;
            backward.up_bytes += leaves;
        }
        backward.compute_s += sum.ns as f64 * 1e-9;
        Some((forward, backward))
    }

    fn side_s(&self, side: Side) -> f64 {
        let device_s = self.device.map_or(0.0, |link| {
            let up = side.up_bytes as f64 / link.upload_both_bytes_per_s;
            up.max(side.down_bytes as f64 / link.download_both_bytes_per_s)
        });
        let busy_s = side.compute_s.max(side.beside_s).max(device_s);
        let Some(link) = &self.link else { return busy_s };
        let (read, write) = (side.read_bytes as f64, side.write_bytes as f64);
        let apart = read / link.disk_read_bytes_per_s + write / link.disk_write_bytes_per_s;
        busy_s.max(apart.min((read + write) / link.disk_mixed_bytes_per_s))
    }
}

/// What is worth a plan, the likeliest first: the best where either side waits for its own transfers, the best where
/// they may run at any time, and the best of what RAM, and of what VRAM holds. `room` is that of a plan that keeps
/// nothing.
pub fn candidates(it: &Description<'_>, room: &Room) -> Vec<Kept> {
    let items = items(it);
    let again: u64 = items.iter().map(|choices| choices[0].ns).sum();
    let mut room = room.clone();
    room.backward.compute_s -= again as f64 * 1e-9;
    let in_ram = Room { link: None, ..room.clone() };
    let in_vram = room.device.is_some().then(|| Room { link: None, ram_bytes: 0, ..room.clone() });
    let front = Front::new(&items);
    let best = [
        front.best(|sum| room.seconds(sum)),
        front.best(|sum| room.seconds_together(sum)),
        front.best(|sum| in_ram.seconds(sum)),
        in_vram.and_then(|room| front.best(|sum| room.seconds(sum))),
    ];
    let mut found: Vec<Kept> = Vec::new();
    for kept in best.into_iter().flatten().map(Kept::of) {
        if !found.contains(&kept) {
            found.push(kept);
        }
    }
    found
}

/// The choices of each layer, then of the head.
fn items(it: &Description<'_>) -> Vec<Vec<Choice>> {
    let cost = Cost::new(it.rates, it.target(), Dims::new(it.config), it.seq);
    let micros = || it.micro_rows.iter().copied().enumerate();
    let layer = |layer: usize| {
        let again = |(micro, rows): (usize, usize), level| {
            Cost::ns(cost.of(micro).again(rows, it.config.windows[layer], level))
        };
        let choice = |level: Level| Choice {
            bytes: micros()
                .filter_map(|(micro, _)| it.activations.saved(layer, micro, level))
                .map(|run| it.activations.bytes(run))
                .sum(),
            // Some of it is computed again in any case.
            ns: micros().map(|micro| again(micro, level) - again(micro, Level::All)).sum(),
        };
        Level::EACH.map(choice).to_vec()
    };
    let tiles = || 0..it.tiles.count;
    let again = |(micro, rows): (usize, usize), tile: usize| {
        Cost::ns(cost.of(micro).logits(rows * it.seq, it.tiles.range(tile).len()))
    };
    let head = vec![
        Choice { bytes: 0, ns: micros().flat_map(|micro| tiles().map(move |tile| again(micro, tile))).sum() },
        Choice {
            bytes: micros()
                .flat_map(|(micro, _)| {
                    tiles().map(move |tile| it.activations.bytes(it.activations.logits(tile, micro)))
                })
                .sum(),
            ns: 0,
        },
    ];
    (0..it.config.layers).map(layer).chain([head]).collect()
}

#[cfg(test)]
mod tests;
