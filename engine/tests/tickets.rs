//! Unplanned use through the public API on real files and with real threads: tickets on the same pages beside a sweep,
//! what they count, and what is refused.

use mt_engine::plan::{Shape, plan};
use mt_engine::*;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const PAGES: u32 = 48;
const PAGE_BYTES: u32 = 8 << 10;
/// Pages of a sweep's runs.
const COUNT: u32 = 4;
const STATE: RegionId = RegionId(0);
const NOTES: RegionId = RegionId(1);
const BASE: RegionId = RegionId(2);

fn regions() -> Vec<RegionSpec> {
    let region = |name: &str, kind| RegionSpec { name: name.into(), page_bytes: PAGE_BYTES, pages: PAGES, kind };
    vec![region("state", Kind::Checkpointed), region("notes", Kind::Scratch), region("base", Kind::Frozen)]
}

fn run(region: RegionId, first: u32, count: u32) -> Run {
    Run { region, first, count }
}

/// Updates every page of the state, commits, reads all.
fn make_plan(planned_bytes: u64) -> Arc<Plan> {
    let mut schedule = Schedule { cyclic: true, ..Schedule::default() };
    for mode in [Mode::Update, Mode::Read] {
        for first in (0..PAGES).step_by(COUNT as usize) {
            let access = schedule.access(run(STATE, first, COUNT), mode, 0);
            schedule.work(Resource::HostCompute, 1000, vec![access], 0);
        }
        if mode == Mode::Update {
            schedule.commit(vec![]);
        }
    }
    let regions = regions();
    let shape = Shape { regions: &regions, sweeps_per_commit: 1, prefetch_intervals_max: None, has_disk: true };
    let budget = Budget { host_bytes: planned_bytes, device_bytes: vec![], disk_bytes: u64::MAX };
    let planned = plan(&Arc::new(schedule), &shape, &budget, &Profile::default(), &Residency::default());
    Arc::new(planned.expect("the plan fits").0)
}

fn config(dir: &Path, planned_bytes: u64, unplanned_bytes: u64) -> Config {
    let host_bytes = planned_bytes + unplanned_bytes + record_bytes(&regions());
    Config { unplanned_bytes, ..Config::new(vec![dir.to_path_buf()], host_bytes) }
}

/// Adds one to the counter at the start of each page; the rest of the page repeats it.
fn count_up(bytes: &mut [u8]) {
    for page in bytes.chunks_mut(PAGE_BYTES as usize) {
        let count = counter(page) + 1;
        page.chunks_mut(8).for_each(|b| b.copy_from_slice(&count.to_le_bytes()));
    }
}

/// The counter of a page, all of which must repeat it.
fn counter(page: &[u8]) -> u64 {
    let first = page.first_chunk::<8>().expect("a page holds a counter");
    assert!(page.chunks(8).all(|b| b == first), "a page is torn: {first:?}");
    u64::from_le_bytes(*first)
}

/// Checks that no page of a lease is torn.
fn counters(lease: &[u8]) {
    for page in lease.chunks(PAGE_BYTES as usize) {
        counter(page);
    }
}

struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 32) * bound) >> 32
    }
}

/// What the threads did.
#[derive(Default)]
struct Done {
    fetches: AtomicU64,
    refused: AtomicU64,
    /// How often each page was counted up.
    counted: Vec<AtomicU64>,
}

impl Done {
    fn count(&self, run: Run) {
        for page in run.first..run.end() {
            self.counted[page as usize].fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn use_pages(engine: &Engine, seed: u64, uses: u64, done: &Done) {
    let mut draw = Draw(seed);
    for _ in 0..uses {
        let count = 1 + draw.below(6) as u32;
        let pages = run(STATE, draw.below(u64::from(PAGES - count + 1)) as u32, count);
        let mode = if draw.below(3) == 0 { Mode::Update } else { Mode::Read };
        if draw.below(4) == 0 {
            engine.prefetch(&[pages, run(STATE, 0, 2)]).expect("a hint");
        }
        done.fetches.fetch_add(1, Ordering::Relaxed);
        let ticket = engine.fetch(pages, mode).expect("asked");
        if draw.below(10) == 0 && !ticket.is_ready() {
            // It comes by itself, or the wait below asks for nothing more than it did.
            std::thread::yield_now();
        }
        let refused = match mode {
            Mode::Read => match ticket.wait() {
                Ok(lease) => {
                    counters(&lease);
                    None
                }
                Err(error) => Some(error),
            },
            _ => match ticket.wait_mut() {
                Ok(mut lease) => {
                    count_up(&mut lease);
                    done.count(pages);
                    None
                }
                Err(error) => Some(error),
            },
        };
        if let Some(error) = refused {
            assert!(matches!(&error, Error::Misuse { what } if what.contains("placed in RAM")), "{error}");
            done.refused.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn sweep(engine: &Engine, plan: &Arc<Plan>, done: &Done, commit: bool) {
    let sweep = engine.sweep(plan, Some(plan)).expect("sweep");
    for first in (0..PAGES).step_by(COUNT as usize) {
        let mut state = sweep.host_mut(run(STATE, first, COUNT)).expect("lease");
        count_up(&mut state);
        done.count(run(STATE, first, COUNT));
    }
    if commit && let Err(error) = sweep.commit(b"beside").and_then(|()| engine.wait_committed().map(drop)) {
        assert!(error.to_string().contains("while a writing ticket is held"), "{error}");
    }
    for first in (0..PAGES).step_by(COUNT as usize) {
        let state = sweep.host(run(STATE, first, COUNT)).expect("lease");
        counters(&state);
    }
    sweep.finish().expect("finish");
}

fn check_counters(engine: &Engine, done: &Done) {
    for (page, counted) in (0..).zip(&done.counted) {
        let lease = engine.fetch(run(STATE, page, 1), Mode::Read).and_then(Ticket::wait).expect("lease");
        assert_eq!(counter(&lease), counted.load(Ordering::Relaxed), "page {page}");
    }
}

fn threads_count_beside_a_sweep(backend: Backend, planned_bytes: u64, unplanned_bytes: u64) {
    let dir = tempfile::tempdir().expect("temp dir");
    let plan = make_plan(planned_bytes);
    let config = Config { backend, ..config(dir.path(), planned_bytes, unplanned_bytes) };
    let done = Done { counted: (0..PAGES).map(|_| AtomicU64::new(0)).collect(), ..Done::default() };
    {
        let engine = Engine::create(config.clone(), &regions()).expect("create");
        engine.place(&plan.exit, &plan.spilled).expect("place");
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (engine, done) = (&engine, &done);
                scope.spawn(move || use_pages(engine, 100 + thread, 400, done));
            }
            for number in 0..12 {
                sweep(&engine, &plan, &done, number % 2 == 0);
            }
        });
        let stats = engine.stats();
        let (fetches, refused) = (done.fetches.load(Ordering::Relaxed), done.refused.load(Ordering::Relaxed));
        assert_eq!(stats.unplanned_hits + stats.unplanned_misses, fetches - refused, "a fetch is a hit or a miss");
        assert!(stats.unplanned_misses > 0 && stats.unplanned_hits > 0, "{stats:?}");
        assert_eq!(refused > 0, plan.placed_bytes > 0);
        check_counters(&engine, &done);
        engine.commit(b"all").expect("commit");
    }
    let engine = Engine::open(config).expect("open");
    assert_eq!(engine.committed().map(|c| c.1), Some(b"all".to_vec()));
    check_counters(&engine, &done);
}

#[test]
fn threads_count_beside_a_sweep_with_little_room() {
    threads_count_beside_a_sweep(Backend::Auto, 160 << 10, 80 << 10);
}

#[test]
fn threads_count_beside_a_sweep_with_much_room() {
    threads_count_beside_a_sweep(Backend::Auto, 160 << 10, 400 << 10);
}

#[test]
fn threads_count_beside_a_sweep_that_has_a_part_placed() {
    threads_count_beside_a_sweep(Backend::Pool, 288 << 10, 96 << 10);
}

/// One thread, in the middle of a sweep that has fetched ahead what the thread asks for.
#[test]
fn the_user_of_a_sweep_may_fetch_what_it_has_fetched_ahead() {
    let (engine, _dir) = small(8);
    let plan = make_plan(160 << 10);
    engine.place(&plan.exit, &plan.spilled).expect("place");
    let done = Done { counted: (0..PAGES).map(|_| AtomicU64::new(0)).collect(), ..Done::default() };
    for round in 0..10 {
        let sweep = engine.sweep(&plan, Some(&plan)).expect("sweep");
        for mode in [Mode::Update, Mode::Read] {
            for first in (0..PAGES).step_by(COUNT as usize) {
                let pages = run(STATE, first, COUNT);
                match mode {
                    Mode::Read => counters(&sweep.host(pages).expect("lease")),
                    _ => count_up(&mut sweep.host_mut(pages).expect("lease")),
                }
                if mode == Mode::Update {
                    done.count(pages);
                }
                let ahead = run(STATE, (first + COUNT * (1 + round % 3)) % PAGES, 1 + round % COUNT);
                count_up(&mut engine.fetch(ahead, Mode::Update).and_then(Ticket::wait_mut).expect("lease"));
                done.count(ahead);
            }
        }
        sweep.finish().expect("finish");
    }
    check_counters(&engine, &done);
}

#[test]
fn an_engine_and_its_tickets_may_be_used_from_any_thread() {
    fn shared<T: Sync>() {}
    fn sent<T: Send>() {}
    shared::<Engine>();
    sent::<Ticket<'static>>();
    sent::<HostLease<'static>>();
    sent::<HostLeaseMut<'static>>();
}

/// An engine of some kilobytes, and its directory.
fn small(unplanned_pages: u64) -> (Engine, tempfile::TempDir) {
    let dir = tempfile::tempdir().expect("temp dir");
    let config = config(dir.path(), 256 << 10, unplanned_pages * u64::from(PAGE_BYTES));
    (Engine::create(config, &regions()).expect("create"), dir)
}

fn refusal<T>(answer: Result<T, Error>) -> String {
    match answer {
        Ok(_) => panic!("not refused"),
        Err(error @ (Error::Misuse { .. } | Error::Config { .. })) => error.to_string(),
        Err(error) => panic!("refused as {error:?}"),
    }
}

#[test]
fn runs_that_do_not_exist_are_refused() {
    let (engine, _dir) = small(4);
    for wrong in [run(STATE, PAGES - 1, 2), run(STATE, 0, 0), run(RegionId(9), 0, 1), run(STATE, u32::MAX, 2)] {
        assert!(refusal(engine.fetch(wrong, Mode::Read)).contains("no such run"));
        assert!(refusal(engine.prefetch(&[run(STATE, 0, 1), wrong])).contains("no such run"));
    }
}

#[test]
fn a_run_larger_than_the_room_is_refused_and_both_are_named() {
    let (engine, _dir) = small(4);
    let what = refusal(engine.fetch(run(STATE, 0, 5), Mode::Read).and_then(Ticket::wait));
    assert!(what.contains("40960") && what.contains("32768"), "{what}");
    engine.prefetch(&[run(STATE, 0, 5)]).expect("a hint");
    assert!(engine.fetch(run(STATE, 0, 4), Mode::Read).and_then(Ticket::wait).is_ok());
    let (engine, _dir) = small(0);
    assert!(refusal(engine.fetch(run(STATE, 0, 1), Mode::Read).and_then(Ticket::wait)).contains("has 0"));
}

#[test]
fn a_run_that_is_placed_in_part_is_refused_and_both_are_named() {
    let (engine, _dir) = small(8);
    let plan = make_plan(256 << 10);
    engine.place(&plan.exit, &plan.spilled).expect("place");
    let placed = plan.exit.placed[0].run;
    let over = run(STATE, placed.first + placed.count - 1, 2);
    let what = refusal(engine.fetch(over, Mode::Read).and_then(Ticket::wait));
    assert!(what.contains(&over.to_string()) && what.contains(&placed.to_string()), "{what}");
    engine.prefetch(&[over]).expect("a hint");
    let inside = run(STATE, placed.first + 1, 2);
    let mut lease = engine.fetch(inside, Mode::Update).and_then(Ticket::wait_mut).expect("inside");
    count_up(&mut lease);
}

#[test]
fn frozen_pages_are_written_before_the_first_commit_only() {
    let (engine, _dir) = small(8);
    let mut lease = engine.fetch(run(BASE, 3, 2), Mode::Write).and_then(Ticket::wait_mut).expect("not frozen yet");
    lease.fill(7);
    drop(lease);
    engine.commit(b"sealed").expect("commit");
    for mode in [Mode::Write, Mode::Update] {
        assert!(refusal(engine.fetch(run(BASE, 3, 2), mode).and_then(Ticket::wait_mut)).contains("frozen"));
    }
    let lease = engine.fetch(run(BASE, 3, 3), Mode::Read).and_then(Ticket::wait).expect("read");
    let (written, rest) = lease.split_at(2 * PAGE_BYTES as usize);
    assert!(written.iter().all(|b| *b == 7) && rest.iter().all(|b| *b == 0));
}

#[test]
fn scratch_is_read_only_after_it_was_written() {
    let (engine, _dir) = small(8);
    assert!(refusal(engine.fetch(run(NOTES, 0, 2), Mode::Read).and_then(Ticket::wait)).contains("page 0 of scratch"));
    engine.fetch(run(NOTES, 0, 2), Mode::Write).and_then(Ticket::wait_mut).expect("lease").fill(9);
    assert!(refusal(engine.fetch(run(NOTES, 0, 3), Mode::Read).and_then(Ticket::wait)).contains("page 2 of scratch"));
    let lease = engine.fetch(run(NOTES, 1, 1), Mode::Read).and_then(Ticket::wait).expect("written");
    assert!(lease.iter().all(|b| *b == 9));
}

#[test]
fn a_commit_is_refused_while_a_writing_ticket_is_held() {
    let (engine, _dir) = small(8);
    let ticket = engine.fetch(run(STATE, 0, 2), Mode::Update).expect("asked");
    assert!(refusal(engine.commit(b"no")).contains("writing ticket is held"));
    let mut lease = ticket.wait_mut().expect("lease");
    assert!(refusal(engine.commit(b"no")).contains("writing ticket is held"));
    count_up(&mut lease);
    drop(lease);
    let reader = engine.fetch(run(STATE, 0, 2), Mode::Read).and_then(Ticket::wait).expect("lease");
    let scratch = engine.fetch(run(NOTES, 0, 2), Mode::Write).expect("asked");
    engine.commit(b"yes").expect("nobody writes what it covers");
    assert_eq!(counter(&reader[..PAGE_BYTES as usize]), 1);
    drop(scratch);
    drop(engine.fetch(run(STATE, 0, 2), Mode::Update).expect("asked"));
    engine.commit(b"again").expect("a ticket that was dropped is not held");
}

#[test]
fn a_ticket_is_waited_for_as_what_it_is() {
    let (engine, _dir) = small(8);
    assert!(refusal(engine.fetch(run(STATE, 0, 1), Mode::Read).and_then(Ticket::wait_mut)).contains("mode Read"));
    assert!(refusal(engine.fetch(run(STATE, 0, 1), Mode::Update).and_then(Ticket::wait)).contains("mode Update"));
    engine.fetch(run(STATE, 0, 1), Mode::Update).and_then(Ticket::wait_mut).expect("both were given back").discard();
}

#[test]
fn what_is_dropped_or_discarded_leaves_no_trace() {
    let (engine, _dir) = small(4);
    engine.fetch(run(STATE, 0, 4), Mode::Write).and_then(Ticket::wait_mut).expect("lease").fill(1);
    for _ in 0..20 {
        // Each takes all the room there is.
        drop(engine.fetch(run(STATE, 4, 4), Mode::Update).expect("asked"));
        engine.fetch(run(STATE, 0, 4), Mode::Update).and_then(Ticket::wait_mut).expect("lease").discard();
        let mut lease = engine.fetch(run(STATE, 0, 4), Mode::Write).and_then(Ticket::wait_mut).expect("lease");
        lease.fill(2);
        lease.discard();
        let lease = engine.fetch(run(STATE, 0, 4), Mode::Read).and_then(Ticket::wait).expect("lease");
        assert!(lease.iter().all(|b| *b == 1), "what was discarded is gone");
    }
}

#[test]
fn without_volumes_only_placed_runs_can_be_fetched() {
    let plan = make_plan(PAGES as u64 * u64::from(PAGE_BYTES));
    let host_bytes = (512 << 10) + record_bytes(&regions());
    let config = Config { unplanned_bytes: 64 << 10, ..Config::new(vec![], host_bytes) };
    let engine = Engine::create(config, &regions()).expect("create");
    engine.place(&plan.exit, &plan.spilled).expect("place");
    engine.fetch(run(STATE, 5, 2), Mode::Update).and_then(Ticket::wait_mut).expect("placed").fill(3);
    assert!(engine.fetch(run(STATE, 6, 1), Mode::Read).and_then(Ticket::wait).expect("placed").iter().all(|b| *b == 3));
    assert!(refusal(engine.fetch(run(BASE, 0, 1), Mode::Read).and_then(Ticket::wait)).contains("no volume"));
    assert!(refusal(engine.fetch(run(NOTES, 0, 1), Mode::Write).and_then(Ticket::wait_mut)).contains("no volume"));
}

#[test]
fn the_room_must_be_whole_blocks_and_fit_the_arena() {
    for (unplanned_bytes, what) in
        [(5000, "multiple of 4096"), (1 << 40, "host_bytes"), (u64::MAX - 4095, "host_bytes")]
    {
        let dir = tempfile::tempdir().expect("temp dir");
        let config = Config { unplanned_bytes, ..config(dir.path(), 1 << 20, 0) };
        let found = refusal(Engine::create(config, &regions()));
        assert!(found.contains(what), "{found}");
    }
}

/// The planned part ends where the part for tickets begins.
#[test]
fn a_placement_into_the_room_for_tickets_is_refused() {
    let plan = make_plan(256 << 10);
    let dir = tempfile::tempdir().expect("temp dir");
    let config = Config { unplanned_bytes: 128 << 10, ..config(dir.path(), 256 << 10, 0) };
    let engine = Engine::create(config, &regions()).expect("create");
    assert!(refusal(engine.place(&plan.exit, &plan.spilled)).contains("expected at most 131072"));
}

#[test]
fn several_threads_may_commit_and_begin_sweeps() {
    let (engine, _dir) = small(8);
    let plan = make_plan(160 << 10);
    engine.place(&plan.exit, &plan.spilled).expect("place");
    let (begun, commits) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..4u32 {
            let (engine, plan, begun, commits) = (&engine, &plan, &begun, &commits);
            scope.spawn(move || {
                for _ in 0..20 {
                    let lease = engine.fetch(run(STATE, thread * COUNT, 1), Mode::Read).and_then(Ticket::wait);
                    drop(lease.expect("lease"));
                    match engine.sweep(plan, None) {
                        Ok(sweep) => {
                            begun.fetch_add(1, Ordering::Relaxed);
                            drop(sweep);
                        }
                        Err(error) => assert!(error.to_string().contains("one at a time"), "{error}"),
                    }
                    match engine.commit(&[thread as u8]) {
                        Ok(_) => {
                            commits.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(error) => assert!(error.to_string().contains("away from a mark"), "{error}"),
                    }
                }
            });
        }
    });
    let (begun, commits) = (begun.into_inner(), commits.into_inner());
    assert!(begun > 0 && commits > 0, "{begun} sweeps, {commits} commits");
    assert_eq!(engine.stats().commits, commits);
}
