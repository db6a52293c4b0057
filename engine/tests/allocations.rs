//! In steady state nothing is allocated per page, per transfer or per lease: over sweeps of a streamed schedule of
//! reads, updates and writes on real files, with a recorder that is off, the whole process allocates no more for a
//! store of many pages than for one of few.
//!
//! What may be allocated: a handful per sweep and commit (the note, the plan's handle), and slots up to the largest
//! number of operations that existed at once, which the window bounds and which warming up does not always reach.
//!
//! One test alone in this file: the counter counts every thread.
#![allow(unsafe_code)]

use mt_engine::plan::{Budget, Plan, Residency, Shape, plan};
use mt_engine::*;
use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const PAGE_BYTES: u32 = 8 << 10;
/// Pages of a run: several transfers, since a transfer holds two.
const COUNT: u32 = 6;
const TRANSFER_BYTES: u32 = 16 << 10;
const WINDOW_BYTES: u64 = 1 << 20;
const STATE: RegionId = RegionId(0);
const NOTES: RegionId = RegionId(1);
const WARM_SWEEPS: usize = 2;
const COUNTED_SWEEPS: usize = 4;

/// Transfers that fit the window, and as many lists of checksums; with what queues and the system's own lists grow by.
const GROWTH_MAX: u64 = 2 * WINDOW_BYTES / PAGE_BYTES as u64 + 64;

/// The system's allocator, counted.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call is passed on to the system's allocator unchanged, whose contract is the trait's.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`, and the block came from the system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `realloc`, and the block came from the system's allocator.
        unsafe { System.realloc(pointer, layout, bytes) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn regions(pages: u32) -> Vec<RegionSpec> {
    let region = |name: &str, kind| RegionSpec { name: name.into(), page_bytes: PAGE_BYTES, pages, kind };
    vec![region("state", Kind::Checkpointed), region("notes", Kind::Scratch)]
}

/// Every run of the state is updated beside a write of a scratch run, a commit is marked, every run of both is read.
fn make_plan(regions: &[RegionSpec]) -> Arc<Plan> {
    let mut schedule = Schedule { cyclic: true, ..Schedule::default() };
    let run = |region, first| Run { region, first, count: COUNT };
    let firsts = || (0..regions[0].pages).step_by(COUNT as usize);
    for first in firsts() {
        let state = schedule.access(run(STATE, first), Mode::Update, 0);
        let notes = schedule.access(run(NOTES, first), Mode::Write, 0);
        schedule.work(Resource::HostCompute, 1000, vec![state, notes], 0);
    }
    schedule.commit(vec![]);
    for first in firsts() {
        let state = schedule.access(run(STATE, first), Mode::Read, 0);
        let notes = schedule.access(run(NOTES, first), Mode::Read, 0);
        schedule.work(Resource::HostCompute, 1000, vec![state, notes], 0);
    }
    let shape = Shape { regions, sweeps_per_commit: 1, prefetch_intervals_max: None, has_disk: true };
    let budget = Budget { host_bytes: WINDOW_BYTES, device_bytes: vec![], disk_bytes: u64::MAX };
    let streamed = Residency { fixed: true, ..Residency::default() };
    let (plan, _) = plan(&Arc::new(schedule), &shape, &budget, &Profile::default(), &streamed).expect("it fits");
    Arc::new(plan)
}

fn sweep(engine: &Engine, plan: &Arc<Plan>) {
    let sweep = engine.sweep(plan, Some(plan)).expect("sweep");
    for (index, interval) in plan.intervals.iter().enumerate() {
        if index == plan.intervals.len() / 2 {
            sweep.commit(b"note").expect("commit");
        }
        if interval.mode.writes() {
            sweep.host_mut(interval.run).expect("lease").fill(index as u8);
        } else {
            drop(sweep.host(interval.run).expect("lease"));
        }
    }
    sweep.finish().expect("finish");
}

/// Allocations of the counted sweeps, and the bytes that they moved.
fn steady_state(dir: &Path, pages: u32, backend: Backend) -> (u64, u64) {
    let regions = regions(pages);
    let plan = make_plan(&regions);
    let config = Config {
        backend,
        transfer_bytes: TRANSFER_BYTES,
        recorder: Some(Arc::new(Recorder::new(1))),
        ..Config::new(vec![dir.join("store")], WINDOW_BYTES + record_bytes(&regions))
    };
    let engine = Engine::create(config, &regions).expect("create");
    engine.place(&plan.exit, &plan.spilled).expect("place");
    (0..WARM_SWEEPS).for_each(|_| sweep(&engine, &plan));
    let (before, moved) = (ALLOCATIONS.load(Ordering::Relaxed), engine.stats().disk_read_bytes);
    (0..COUNTED_SWEEPS).for_each(|_| sweep(&engine, &plan));
    let counted = ALLOCATIONS.load(Ordering::Relaxed) - before;
    (counted, engine.stats().disk_read_bytes - moved)
}

#[test]
fn steady_sweeps_do_not_allocate_per_page_transfer_or_lease() {
    for backend in [Backend::Auto, Backend::Pool] {
        let counts = [60, 3000].map(|pages| {
            let dir = tempfile::tempdir().expect("a temporary folder");
            let (counted, read_bytes) = steady_state(dir.path(), pages, backend);
            let least = u64::from(pages) * u64::from(PAGE_BYTES) * COUNTED_SWEEPS as u64;
            assert!(read_bytes > least, "the sweeps streamed only {read_bytes} bytes");
            counted
        });
        println!("{backend:?}: {} allocations with 60 pages, {} with 3,000", counts[0], counts[1]);
        let leases = 4 * 3000 / u64::from(COUNT) * COUNTED_SWEEPS as u64;
        assert!(counts[1] < counts[0] + GROWTH_MAX, "{counts:?}: more for more pages");
        assert!(counts[1] < leases / 4, "{} allocations for {leases} leases", counts[1]);
    }
}
