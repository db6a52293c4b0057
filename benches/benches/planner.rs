//! Time of `plan()` on the schedules of large steps: 98,304 accesses in RAM, with arenas from too small to large enough
//! for everything, and 90,112 on both sides of a GPU's link. The planner is meant to take well under a second for all
//! of them.

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use mt_engine::plan::{Budget, Residency, Shape, plan};
use mt_engine::{DeviceId, Kind, LinkRates, Mode, Profile, RegionId, RegionSpec, Resource, Run, Schedule, Tier};
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

const UNITS: u32 = 128;
const CHUNKS: u32 = 64;
const MICRO_BATCHES: u32 = 64;
const PAGES_PER_CHUNK: u32 = 4;

/// Two weight planes, two moments, gradients, activations and their gradients.
fn regions() -> Vec<RegionSpec> {
    let pages = UNITS * CHUNKS * PAGES_PER_CHUNK;
    let region = |name: &str, page_bytes, pages, kind| RegionSpec { name: name.into(), page_bytes, pages, kind };
    vec![
        region("hi", 1 << 17, pages, Kind::Checkpointed),
        region("lo", 1 << 17, pages, Kind::Checkpointed),
        region("m", 1 << 18, pages, Kind::Checkpointed),
        region("v", 1 << 18, pages, Kind::Checkpointed),
        region("grad", 1 << 18, pages, Kind::Scratch),
        region("act", 1 << 20, (UNITS + 1) * MICRO_BATCHES, Kind::Scratch),
        region("dact", 1 << 20, MICRO_BATCHES, Kind::Scratch),
    ]
}

fn run(region: u32, first: u32, count: u32) -> Run {
    Run { region: RegionId(region), first, count }
}

fn chunk(region: u32, unit: u32, chunk: u32) -> Run {
    run(region, (unit * CHUNKS + chunk) * PAGES_PER_CHUNK, PAGES_PER_CHUNK)
}

/// Forward with updates, the commit mark, backward with gradients.
fn step() -> Schedule {
    let mut step = Schedule { cyclic: true, ..Schedule::default() };
    for unit in 0..UNITS {
        for c in 0..CHUNKS {
            let mut used = vec![step.access(chunk(4, unit, c), Mode::Read, 0)];
            used.extend((0..4).map(|plane| step.access(chunk(plane, unit, c), Mode::Update, 0)));
            step.work(Resource::HostCompute, 1_000_000, used, 0);
        }
        for batch in 0..MICRO_BATCHES {
            let input = step.access(run(5, unit * MICRO_BATCHES + batch, 1), Mode::Read, 0);
            let output = step.access(run(5, (unit + 1) * MICRO_BATCHES + batch, 1), Mode::Write, 0);
            step.work(Resource::HostCompute, 2_000_000, vec![input, output], 0);
        }
    }
    step.commit(Vec::new());
    for unit in (0..UNITS).rev() {
        for c in 0..CHUNKS {
            let used = (0..2).map(|plane| step.access(chunk(plane, unit, c), Mode::Read, 0)).collect();
            step.work(Resource::HostCompute, 1_000_000, used, 0);
        }
        for batch in 0..MICRO_BATCHES {
            let input = step.access(run(5, unit * MICRO_BATCHES + batch, 1), Mode::Read, 0);
            let gradient = step.access(run(6, batch, 1), Mode::Update, 0);
            step.work(Resource::HostCompute, 4_000_000, vec![input, gradient], 0);
        }
        for c in 0..CHUNKS {
            let gradient = step.access(chunk(4, unit, c), Mode::Write, 0);
            step.work(Resource::HostCompute, 1_000_000, vec![gradient], 0);
        }
    }
    step
}

/// The same with a GPU: the host updates, the GPU computes with the first plane, relayed from the host in forward, and
/// with activations, and writes gradients.
fn device_step() -> Schedule {
    let mut step = Schedule { cyclic: true, ..Schedule::default() };
    let (gpu, compute) = (Tier::Device(DeviceId(0)), Resource::Compute(DeviceId(0)));
    for unit in 0..UNITS {
        let mut weights = Vec::new();
        for c in 0..CHUNKS {
            let mut used = vec![step.access(chunk(4, unit, c), Mode::Read, 0)];
            used.extend((0..4).map(|plane| step.access(chunk(plane, unit, c), Mode::Update, 0)));
            let changed = used[1];
            let update = step.work(Resource::HostCompute, 1_000_000, used, 0);
            weights.push(step.access_on(gpu, chunk(0, unit, c), Mode::Read, vec![changed, update], 0));
        }
        for batch in 0..MICRO_BATCHES {
            let input = step.access_on(gpu, run(5, unit * MICRO_BATCHES + batch, 1), Mode::Read, Vec::new(), 0);
            let output = step.access_on(gpu, run(5, (unit + 1) * MICRO_BATCHES + batch, 1), Mode::Write, Vec::new(), 0);
            let used = if batch + 1 == MICRO_BATCHES { std::mem::take(&mut weights) } else { Vec::new() };
            step.work(compute, 2_000_000, [used, vec![input, output]].concat(), 0);
        }
    }
    step.commit(Vec::new());
    for unit in (0..UNITS).rev() {
        let read = |c| step.access_on(gpu, chunk(0, unit, c), Mode::Read, Vec::new(), 0);
        let mut used: Vec<u32> = (0..CHUNKS).map(read).collect();
        used.extend((0..CHUNKS).map(|c| step.access_on(gpu, chunk(4, unit, c), Mode::Write, Vec::new(), 0)));
        for batch in 0..MICRO_BATCHES {
            let input = step.access_on(gpu, run(5, unit * MICRO_BATCHES + batch, 1), Mode::Read, Vec::new(), 0);
            let last = if batch + 1 == MICRO_BATCHES { std::mem::take(&mut used) } else { Vec::new() };
            step.work(compute, 4_000_000, [last, vec![input]].concat(), 0);
        }
    }
    step
}

fn planner(criterion: &mut Criterion) {
    let (regions, schedule) = (regions(), Arc::new(step()));
    let total: u64 = regions.iter().map(RegionSpec::bytes).sum();
    let shape = Shape { regions: &regions, sweeps_per_commit: 1, prefetch_intervals_max: None, has_disk: true };
    let mut group = criterion.benchmark_group("plan 98,304 accesses");
    group.sample_size(20).measurement_time(Duration::from_secs(5));
    for percent in [0, 5, 30, 50, 90, 100] {
        let budget = Budget { host_bytes: total * percent / 100, device_bytes: Vec::new(), disk_bytes: u64::MAX };
        group.bench_function(BenchmarkId::new("arena percent of state", percent), |bencher| {
            bencher.iter(|| plan(black_box(&schedule), &shape, &budget, &Profile::default(), &Residency::default()));
        });
    }
    group.finish();

    let schedule = Arc::new(device_step());
    let accesses = schedule.nodes.iter().filter(|node| matches!(node, mt_engine::Node::Access(_))).count();
    let device = DeviceId(0);
    let profile = Profile { links: vec![LinkRates::assumed(device)], ..Profile::default() };
    let mut group = criterion.benchmark_group(format!("plan {accesses} accesses with a GPU"));
    group.sample_size(20).measurement_time(Duration::from_secs(5));
    for (ram, vram) in [(0, 0), (5, 2), (30, 2), (30, 12), (100, 30)] {
        let device_bytes = vec![(device, total * vram / 100)];
        let budget = Budget { host_bytes: total * ram / 100, device_bytes, disk_bytes: u64::MAX };
        let name = format!("RAM {ram}, VRAM {vram} percent of state");
        group.bench_function(name, |bencher| {
            bencher.iter(|| plan(black_box(&schedule), &shape, &budget, &profile, &Residency::default()));
        });
    }
    group.finish();
}

criterion_group!(benches, planner);
criterion_main!(benches);
