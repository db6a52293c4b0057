//! Schedules to plan: random ones from a seed, and the shape of a real one.

use super::PAGE;
use crate::config::{Kind, RegionSpec};
use crate::id::{Mode, RegionId, Run};
use crate::schedule::{Resource, Schedule};

/// SplitMix64: a seeded generator of numbers.
pub struct Numbers(pub u64);

impl Numbers {
    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// A region of 4 KiB pages.
pub fn region(name: &str, pages: u32, kind: Kind) -> RegionSpec {
    RegionSpec { name: name.into(), page_bytes: PAGE as u32, pages, kind }
}

/// A run.
pub fn run(region: u32, first: u32, count: u32) -> Run {
    Run { region: RegionId(region), first, count }
}

/// Three regions of 64 pages, one of each kind.
pub fn three_regions() -> Vec<RegionSpec> {
    [Kind::Checkpointed, Kind::Scratch, Kind::Frozen].map(|kind| region(&format!("{kind:?}"), 64, kind)).to_vec()
}

/// A random schedule over `three_regions`: up to `runs_max` runs of up to `pages_max` pages, a few dozen accesses, work
/// that uses some of the last accesses, sometimes a commit mark.
pub fn random(numbers: &mut Numbers, runs_max: u64, pages_max: u64) -> Schedule {
    let mut runs = Vec::new();
    let mut begin = [0u32; 3];
    for _ in 0..=numbers.below(runs_max) {
        let (region, count) = (numbers.below(3) as u32, 1 + numbers.below(pages_max) as u32);
        let first = begin[region as usize] + numbers.below(2) as u32;
        if first + count <= 64 {
            runs.push(run(region, first, count));
            begin[region as usize] = first + count;
        }
    }
    let mut schedule = Schedule { cyclic: numbers.below(4) > 0, ..Schedule::default() };
    let mut open: Vec<(u32, Run)> = Vec::new();
    for _ in 0..=numbers.below(40) {
        let run = runs[numbers.below(runs.len() as u64) as usize];
        if !open.iter().any(|&(_, other)| other == run) {
            let mode = if run.region.0 == 2 {
                Mode::Read
            } else {
                [Mode::Read, Mode::Write, Mode::Update][numbers.below(3) as usize]
            };
            open.push((schedule.access(run, mode, 0), run));
        }
        match numbers.below(12) {
            0..4 => {
                // Some leases stay for later work: they overlap and end in another order than they began.
                let after = open.iter().map(|&(node, _)| node).collect();
                schedule.work(Resource::HostCompute, numbers.below(20_000), after, 0);
                open.retain(|_| numbers.below(3) == 0);
            }
            4 => {
                schedule.commit(Vec::new());
            }
            _ => {}
        }
    }
    schedule
}

/// How large a `training` schedule is.
#[derive(Clone, Copy)]
pub struct Training {
    pub units: u32,
    pub chunks: u32,
    pub micro_batches: u32,
    pub pages_per_chunk: u32,
}

/// The regions of a `training` schedule: two planes of 4 KiB pages, two of 8 KiB, gradients, activations.
pub fn training_regions(size: Training) -> Vec<RegionSpec> {
    let pages = size.units * size.chunks * size.pages_per_chunk;
    let plane = |name: &str, page_bytes, kind| RegionSpec { name: name.into(), page_bytes, pages, kind };
    vec![
        plane("hi", 4096, Kind::Checkpointed),
        plane("lo", 4096, Kind::Checkpointed),
        plane("m", 8192, Kind::Checkpointed),
        plane("v", 8192, Kind::Checkpointed),
        plane("grad", 8192, Kind::Scratch),
        region("act", (size.units + 1) * size.micro_batches, Kind::Scratch),
        region("dact", size.micro_batches, Kind::Scratch),
    ]
}

/// A step in two directions: forward each unit's chunks are updated and then used by every micro-batch; the mark;
/// backward each unit's chunks are read again, used by every micro-batch, and their gradients written.
pub fn training(size: Training) -> Schedule {
    let mut schedule = Schedule { cyclic: true, ..Schedule::default() };
    let chunk =
        |region, unit, chunk| run(region, (unit * size.chunks + chunk) * size.pages_per_chunk, size.pages_per_chunk);
    let activation = |unit, batch| run(5, unit * size.micro_batches + batch, 1);
    for unit in 0..size.units {
        for c in 0..size.chunks {
            let grad = schedule.access(chunk(4, unit, c), Mode::Read, 0);
            let mut used: Vec<u32> =
                (0..4).map(|plane| schedule.access(chunk(plane, unit, c), Mode::Update, 0)).collect();
            used.push(grad);
            schedule.work(Resource::HostCompute, 30_000, used, 0);
        }
        for batch in 0..size.micro_batches {
            let mut used = Vec::new();
            if unit > 0 {
                used.push(schedule.access(activation(unit, batch), Mode::Read, 0));
            }
            used.push(schedule.access(activation(unit + 1, batch), Mode::Write, 0));
            schedule.work(Resource::HostCompute, 100_000, used, 0);
        }
    }
    schedule.commit(Vec::new());
    for unit in (0..size.units).rev() {
        for c in 0..size.chunks {
            let used = (0..2).map(|plane| schedule.access(chunk(plane, unit, c), Mode::Read, 0)).collect();
            schedule.work(Resource::HostCompute, 5_000, used, 0);
        }
        for batch in 0..size.micro_batches {
            let mode = if unit + 1 == size.units { Mode::Write } else { Mode::Update };
            let mut used = vec![schedule.access(run(6, batch, 1), mode, 0)];
            if unit > 0 {
                used.push(schedule.access(activation(unit, batch), Mode::Read, 0));
            }
            schedule.work(Resource::HostCompute, 200_000, used, 0);
        }
        for c in 0..size.chunks {
            let grad = schedule.access(chunk(4, unit, c), Mode::Write, 0);
            schedule.work(Resource::HostCompute, 5_000, vec![grad], 0);
        }
    }
    schedule
}
