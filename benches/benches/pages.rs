//! The paths that a page takes, one at a time: a lease of a run that is in RAM, reading through pages that stream,
//! a commit of some dirty pages, the checksum of a page.
//!
//! Stores lie in the system's temporary directory; set TMPDIR to measure another drive.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use mt_engine::plan::{Budget, Residency, Shape, plan};
use mt_engine::{
    Config, Engine, Kind, Mode, Plan, Profile, RegionId, RegionSpec, Resource, Run, Schedule, page_checksum,
    record_bytes,
};
use std::hint::black_box;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn region(page_bytes: u32, pages: u32) -> [RegionSpec; 1] {
    [RegionSpec { name: "pages".into(), page_bytes, pages, kind: Kind::Checkpointed }]
}

/// An access of each run of `count` pages in the first `pages`.
fn make_plan(
    regions: &[RegionSpec],
    pages: u32,
    count: u32,
    mode: Mode,
    has_disk: bool,
    host_bytes: u64,
    entry: &Residency,
) -> Arc<Plan> {
    let mut schedule = Schedule { cyclic: true, ..Schedule::default() };
    for first in (0..pages).step_by(count as usize) {
        let access = schedule.access(Run { region: RegionId(0), first, count }, mode, 0);
        schedule.work(Resource::HostCompute, 0, vec![access], 0);
    }
    let shape = Shape { regions, sweeps_per_commit: 1, prefetch_intervals_max: None, has_disk };
    let budget = Budget { host_bytes, device_bytes: Vec::new(), disk_bytes: u64::MAX };
    Arc::new(plan(&Arc::new(schedule), &shape, &budget, &Profile::default(), entry).expect("it fits").0)
}

fn open(volumes: Vec<PathBuf>, regions: &[RegionSpec], plan: &Plan) -> Engine {
    let host_bytes = plan.placed_bytes + plan.window_bytes + record_bytes(regions);
    let engine = Engine::create(Config::new(volumes, host_bytes), regions).expect("create");
    engine.place(&plan.exit, &plan.spilled).expect("place");
    engine
}

fn sweep(engine: &Engine, plan: &Arc<Plan>) {
    let sweep = engine.sweep(plan, Some(plan)).expect("sweep");
    for interval in &plan.intervals {
        if interval.mode.writes() {
            let mut bytes = sweep.host_mut(interval.run).expect("lease");
            bytes[0] = bytes[0].wrapping_add(1);
        } else {
            black_box(sweep.host(interval.run).expect("lease")[0]);
        }
    }
    sweep.finish().expect("finish");
}

/// Time of `iterations` accesses, from whole sweeps of `plan`.
fn time_accesses(engine: &Engine, plan: &Arc<Plan>, iterations: u64) -> Duration {
    let accesses = plan.intervals.len() as u64;
    let sweeps = iterations.div_ceil(accesses);
    let start = Instant::now();
    (0..sweeps).for_each(|_| sweep(engine, plan));
    start.elapsed().mul_f64(iterations as f64 / (sweeps * accesses) as f64)
}

fn resident(criterion: &mut Criterion) {
    let regions = region(4096, 4096);
    let plan = make_plan(&regions, 4096, 4, Mode::Read, false, 16 << 20, &Residency::default());
    let engine = open(Vec::new(), &regions, &plan);
    criterion.bench_function("lease of a run in RAM", |bencher| {
        bencher.iter_custom(|iterations| time_accesses(&engine, &plan, iterations));
    });
}

fn streamed(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("read-through of a page");
    for page_bytes in [4 << 10, 64 << 10, 1 << 20] {
        let pages = (64 << 20) / page_bytes;
        let regions = region(page_bytes, pages);
        let dir = tempfile::tempdir().expect("a temporary folder");
        let entry = Residency { fixed: true, ..Residency::default() };
        let [write, read] = [Mode::Write, Mode::Read].map(|m| make_plan(&regions, pages, 1, m, true, 16 << 20, &entry));
        let engine = open(vec![dir.path().join("store")], &regions, &read);
        let filling = engine.sweep(&write, None).expect("sweep");
        write.intervals.iter().for_each(|i| filling.host_mut(i.run).expect("lease").fill(i.run.first as u8));
        filling.finish().expect("finish");
        engine.commit(b"").expect("commit");
        group.throughput(Throughput::Bytes(u64::from(page_bytes)));
        group.bench_function(BenchmarkId::from_parameter(page_bytes), |bencher| {
            bencher.iter_custom(|iterations| time_accesses(&engine, &read, iterations));
        });
    }
    group.finish();
}

fn commit(criterion: &mut Criterion) {
    const PAGES: u32 = 1024;
    let regions = region(64 << 10, PAGES);
    let all = make_plan(&regions, PAGES, 1, Mode::Update, true, 64 << 20, &Residency::default());
    let dir = tempfile::tempdir().expect("a temporary folder");
    let engine = open(vec![dir.path().join("store")], &regions, &all);
    let mut group = criterion.benchmark_group("commit of dirty pages of 64 KiB");
    group.sample_size(10);
    for dirty in [0, 1, 32, PAGES] {
        let some = make_plan(&regions, dirty.max(1), 1, Mode::Update, true, 64 << 20, &all.exit);
        group.bench_function(BenchmarkId::from_parameter(dirty), |bencher| {
            bencher.iter_custom(|iterations| {
                let mut spent = Duration::ZERO;
                for _ in 0..iterations {
                    if dirty > 0 {
                        sweep(&engine, &some);
                    }
                    let start = Instant::now();
                    engine.commit(b"note").expect("commit");
                    spent += start.elapsed();
                }
                spent
            });
        });
    }
    group.finish();
}

fn checksum(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("checksum of a page");
    for page_bytes in [4 << 10, 64 << 10, 1 << 20, 16 << 20] {
        let page: Vec<u8> = (0..page_bytes).map(|n: u32| (n.wrapping_mul(0x9e37_79b9) >> 24) as u8).collect();
        group.throughput(Throughput::Bytes(u64::from(page_bytes)));
        group.bench_function(BenchmarkId::from_parameter(page_bytes), |bencher| {
            bencher.iter(|| page_checksum(black_box(&page)));
        });
    }
    group.finish();
}

criterion_group!(benches, resident, streamed, commit, checksum);
criterion_main!(benches);
