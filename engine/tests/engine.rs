//! The engine through its public API on real files: sweeps over more pages than RAM holds, commits, reopening.

use mt_engine::plan::{Shape, plan};
use mt_engine::*;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

const PAGES: u32 = 64;
const PAGE_BYTES: u32 = 16 << 10;
const STATE: RegionId = RegionId(0);
const NOTES: RegionId = RegionId(1);

fn regions() -> Vec<RegionSpec> {
    vec![
        RegionSpec { name: "state".into(), page_bytes: PAGE_BYTES, pages: PAGES, kind: Kind::Checkpointed },
        RegionSpec { name: "notes".into(), page_bytes: 4096, pages: PAGES, kind: Kind::Scratch },
    ]
}

fn run(region: RegionId, first: u32, count: u32) -> Run {
    Run { region, first, count }
}

/// Updates every page of the state in runs of `count`, writes a scratch run beside each, marks a commit, then reads
/// all.
fn schedule(count: u32) -> Arc<Schedule> {
    let mut schedule = Schedule { cyclic: true, ..Schedule::default() };
    for first in (0..PAGES).step_by(count as usize) {
        let state = schedule.access(run(STATE, first, count), Mode::Update, 0);
        let notes = schedule.access(run(NOTES, first, count), Mode::Write, 0);
        schedule.work(Resource::HostCompute, 1000, vec![state, notes], 0);
    }
    schedule.commit(vec![]);
    for first in (0..PAGES).step_by(count as usize).rev() {
        let state = schedule.access(run(STATE, first, count), Mode::Read, 0);
        let notes = schedule.access(run(NOTES, first, count), Mode::Read, 0);
        schedule.work(Resource::HostCompute, 1000, vec![state, notes], 0);
    }
    Arc::new(schedule)
}

fn make_plan(schedule: &Arc<Schedule>, host_bytes: u64, has_disk: bool, entry: &Residency) -> Arc<Plan> {
    let regions = regions();
    let shape = Shape { regions: &regions, sweeps_per_commit: 1, prefetch_intervals_max: None, has_disk };
    let budget = Budget { host_bytes, device_bytes: vec![], disk_bytes: u64::MAX };
    Arc::new(plan(schedule, &shape, &budget, &Profile::default(), entry).expect("the plan fits").0)
}

/// One sweep: adds `step` to every byte of the state modulo 256.
fn sweep(engine: &Engine, plan: &Arc<Plan>, count: u32, step: u8, note: Option<&[u8]>) {
    let sweep = engine.sweep(plan, Some(plan)).expect("sweep");
    for first in (0..PAGES).step_by(count as usize) {
        let mut state = sweep.host_mut(run(STATE, first, count)).expect("lease");
        let mut notes = sweep.host_mut(run(NOTES, first, count)).expect("lease");
        for (index, byte) in state.iter_mut().enumerate() {
            *byte = byte.wrapping_add(step).wrapping_add((first as usize + index / PAGE_BYTES as usize) as u8 % 3);
        }
        notes.fill(state[7]);
    }
    if let Some(note) = note {
        sweep.commit(note).expect("commit");
    }
    for first in (0..PAGES).step_by(count as usize).rev() {
        let state = sweep.host(run(STATE, first, count)).expect("lease");
        let notes = sweep.host(run(NOTES, first, count)).expect("lease");
        assert!(notes.iter().all(|b| *b == state[7]), "scratch of this sweep");
    }
    sweep.finish().expect("finish");
}

/// All bytes of the state.
fn state(engine: &Engine, entry: &Residency) -> Vec<u8> {
    let mut schedule = Schedule::default();
    for first in (0..PAGES).step_by(4) {
        let access = schedule.access(run(STATE, first, 4), Mode::Read, 0);
        schedule.work(Resource::HostCompute, 0, vec![access], 0);
    }
    let plan = make_plan(&Arc::new(schedule), 2 << 20, true, entry);
    let sweep = engine.sweep(&plan, None).expect("sweep");
    let mut bytes = Vec::new();
    for first in (0..PAGES).step_by(4) {
        bytes.extend_from_slice(&sweep.host(run(STATE, first, 4)).expect("lease"));
    }
    sweep.finish().expect("finish");
    bytes
}

fn expected(sweeps: u32, step: u8) -> Vec<u8> {
    let page = |page: u32| {
        let byte = (0..sweeps).fold(0u8, |b, _| b.wrapping_add(step).wrapping_add(page as u8 % 3));
        std::iter::repeat_n(byte, PAGE_BYTES as usize)
    };
    (0..PAGES).flat_map(page).collect()
}

fn config(dir: &Path, pages_bytes: u64, backend: Backend) -> Config {
    let host_bytes = pages_bytes + record_bytes(&regions());
    Config { backend, ..Config::new(vec![dir.to_path_buf()], host_bytes) }
}

fn sweeps_survive(backend: Backend, host_bytes: u64) {
    let dir = tempfile::tempdir().expect("temp dir");
    let count = 4;
    let plan = make_plan(&schedule(count), host_bytes, true, &Residency::default());
    {
        let engine = Engine::create(config(dir.path(), host_bytes, backend), &regions()).expect("create");
        engine.place(&plan.exit, &plan.spilled).expect("place");
        assert_eq!(engine.committed(), None);
        for step in 1..=3u8 {
            sweep(&engine, &plan, count, 5, Some(&[step]));
        }
        engine.wait_committed().expect("commit");
        assert_eq!(engine.committed().map(|c| (c.0.0, c.1)), Some((2, vec![3])));
        sweep(&engine, &plan, count, 5, None);
        let misses = engine.stats().demand_misses;
        assert!(misses == 0 || plan.window_bytes < 512 << 10, "{misses} misses with a window of {}", plan.window_bytes);
    }
    let engine = Engine::open(config(dir.path(), 2 << 20, backend)).expect("open");
    assert_eq!(engine.committed().map(|c| (c.0.0, c.1)), Some((2, vec![3])));
    let streamed = Residency { fixed: true, ..Residency::default() };
    assert!(state(&engine, &streamed) == expected(3, 5), "exactly the last commit");
}

#[test]
fn sweeps_survive_with_everything_streamed() {
    for backend in [Backend::Auto, Backend::Pool] {
        sweeps_survive(backend, 512 << 10);
    }
}

#[test]
fn sweeps_survive_with_a_part_placed() {
    sweeps_survive(Backend::Auto, 900 << 10);
}

#[test]
fn sweeps_survive_with_everything_placed() {
    sweeps_survive(Backend::Auto, 2 << 20);
}

#[test]
fn an_engine_without_volumes_works_in_ram_and_refuses_commits() {
    let plan = make_plan(&schedule(4), 2 << 20, false, &Residency::default());
    let engine = Engine::create(Config::new(vec![], (2 << 20) + record_bytes(&regions())), &regions()).expect("create");
    engine.place(&plan.exit, &plan.spilled).expect("place");
    sweep(&engine, &plan, 4, 9, None);
    sweep(&engine, &plan, 4, 9, None);
    assert!(state(&engine, &plan.exit) == expected(2, 9));
    assert!(matches!(engine.commit(b"x"), Err(Error::Misuse { .. })));
}

/// An access that failed once kept its place in the window for ever, so that a sweep that went on behind it was stuck.
#[test]
fn a_sweep_goes_on_behind_pages_that_do_not_read() {
    let dir = tempfile::tempdir().expect("temp dir");
    {
        let engine = Engine::create(config(dir.path(), 2 << 20, Backend::Auto), &regions()).expect("create");
        let streamed = Residency { fixed: true, ..Residency::default() };
        let mut schedule = Schedule::default();
        for first in 0..PAGES {
            schedule.access(run(STATE, first, 1), Mode::Write, 0);
        }
        let plan = make_plan(&Arc::new(schedule), 2 << 20, true, &streamed);
        let sweep = engine.sweep(&plan, None).expect("sweep");
        for first in 0..PAGES {
            sweep.host_mut(run(STATE, first, 1)).expect("lease").fill(100 + first as u8);
        }
        sweep.finish().expect("finish");
        engine.commit(b"").expect("commit");
    }
    let path = dir.path().join("volume.mt");
    let mut bytes = std::fs::read(&path).expect("the volume");
    for page in [3, 17, 18, 40u8] {
        let at = bytes.windows(512).position(|w| w.iter().all(|b| *b == 100 + page)).expect("the page is there");
        bytes[at + 99] ^= 1;
    }
    std::fs::write(&path, bytes).expect("the volume");

    let engine = Engine::open(config(dir.path(), 256 << 10, Backend::Auto)).expect("open");
    let mut schedule = Schedule::default();
    for first in (0..PAGES).step_by(2) {
        schedule.access(run(STATE, first, 2), Mode::Read, 0);
    }
    let plan = make_plan(&Arc::new(schedule), 96 << 10, true, &Residency { fixed: true, ..Residency::default() });
    let sweep = engine.sweep(&plan, None).expect("sweep");
    let mut corrupt = Vec::new();
    for first in (0..PAGES).step_by(2) {
        match sweep.host(run(STATE, first, 2)) {
            Ok(lease) => assert!(lease.iter().all(|b| *b == 100 + first as u8 || *b == 101 + first as u8)),
            Err(Error::Corrupt { region, page, commit, .. }) => {
                assert_eq!((region.as_str(), commit), ("state", CommitId(0)));
                corrupt.push(page);
            }
            Err(error) => panic!("{error}"),
        }
    }
    sweep.finish().expect("finish");
    assert_eq!(corrupt, [3, 17, 18, 40]);
}

/// Fills a range of a file with bytes that are no page's.
fn scribble(range: &FileRange) {
    let file = std::fs::OpenOptions::new().write(true).open(&range.path).expect("the volume's file");
    file.write_all_at(&vec![0xa5; range.bytes as usize], range.offset).expect("write");
}

#[test]
fn spare_extents_are_nobodys_and_committed_ones_are_the_commit() {
    let dir = tempfile::tempdir().expect("temp dir");
    let (volumes, host_bytes) = ([dir.path().to_path_buf()], 512 << 10);
    let plan = make_plan(&schedule(4), host_bytes, true, &Residency::default());
    let engine = Engine::create(config(dir.path(), host_bytes, Backend::Auto), &regions()).expect("create");
    engine.place(&plan.exit, &plan.spilled).expect("place");
    for step in 1..=2u8 {
        sweep(&engine, &plan, 4, 5, Some(&[step]));
    }
    engine.close().expect("close");

    let found = extents(&volumes, "state").expect("a checkpointed region");
    let bytes = |ranges: &[FileRange]| ranges.iter().map(|r| r.bytes).sum::<u64>();
    assert_eq!(bytes(&found.committed), u64::from(PAGES * PAGE_BYTES));
    assert_eq!(bytes(&found.spare), u64::from(PAGES * PAGE_BYTES));
    assert!(matches!(extents(&volumes, "notes"), Err(Error::Config { .. })), "scratch has no committed extents");

    found.spare.iter().for_each(scribble);
    let open = || Engine::open(config(dir.path(), 2 << 20, Backend::Auto)).expect("open");
    let streamed = Residency { fixed: true, ..Residency::default() };
    assert!(state(&open(), &streamed) == expected(2, 5), "nothing that is committed was touched");

    scribble(&FileRange { bytes: 4096, ..found.committed[0].clone() });
    let (engine, plan) = (open(), make_plan(&schedule(4), 512 << 10, true, &streamed));
    let sweep = engine.sweep(&plan, None).expect("sweep");
    let first = sweep.host_mut(run(STATE, 0, 4)).map(|_| ());
    assert!(matches!(first, Err(Error::Corrupt { page: 0, .. })), "{first:?}");
}
