//! Crash test of the core over the simulated disk: a small workload is stopped after every single event, every image
//! that a power loss could have left is recovered, and must hold exactly the last acknowledged commit or the one being
//! made. From a sample of the images the workload goes on, and is crashed again.

use super::testing::image::{self, Image};
use super::{Command, Core, Event, Parts, meta_bytes};
use crate::arena::Arena;
use crate::config::{Kind, RegionSpec};
use crate::error::Error;
use crate::format::layout::Layout;
use crate::format::superblock::State;
use crate::format::{Stripes, Superblock};
use crate::id::{Mode, RegionId, Run};
use crate::io::memory::{Faults, MemoryIo, Settings};
use crate::io::{FrameMut, FrameRef};
use crate::plan::{Budget, Plan, Residency, Shape, plan};
use crate::profile::Profile;
use crate::schedule::{Resource, Schedule};
use crate::store::recover::{Found, look, recover};
use std::collections::BTreeMap;
use std::sync::Arc;

const PAGES: u32 = 12;
const PAGE_BYTES: u32 = 4096;
const STATE: RegionId = RegionId(0);
const SCRATCH: RegionId = RegionId(1);
/// Pages of a run: a run is a run of neighbours, so that transfers join and tear.
const COUNT: u32 = 2;
/// Steps of the core within which everything that is waited for comes.
const STEPS_MAX: u64 = 100_000;

fn regions() -> Vec<RegionSpec> {
    vec![
        RegionSpec { name: "state".into(), page_bytes: PAGE_BYTES, pages: PAGES, kind: Kind::Checkpointed },
        RegionSpec { name: "scratch".into(), page_bytes: PAGE_BYTES, pages: PAGES, kind: Kind::Scratch },
    ]
}

/// Sweep `sweep` changes a run unless it is skipped; so some pages are not rewritten between two commits.
fn changes(first: u32, sweep: u32) -> bool {
    !(first / COUNT + sweep).is_multiple_of(3)
}

/// The byte that fills a state page after `sweep` sweeps.
fn byte(page: u32, sweep: u32) -> u8 {
    let first = page / COUNT * COUNT;
    let version = (1..=sweep).filter(|s| changes(first, *s)).count() as u32;
    if version == 0 { 0 } else { (page * 31 + version * 7) as u8 | 1 }
}

fn schedule() -> Arc<Schedule> {
    let mut schedule = Schedule { cyclic: true, ..Schedule::default() };
    let run = |region, first| Run { region, first, count: COUNT };
    for first in (0..PAGES).step_by(COUNT as usize) {
        let state = schedule.access(run(STATE, first), Mode::Update, 0);
        let scratch = schedule.access(run(SCRATCH, first), Mode::Write, 0);
        schedule.work(Resource::HostCompute, 10, vec![state, scratch], 0);
    }
    schedule.commit(vec![]);
    for first in (0..PAGES).step_by(COUNT as usize) {
        let state = schedule.access(run(STATE, first), Mode::Read, 0);
        let scratch = schedule.access(run(SCRATCH, first), Mode::Read, 0);
        schedule.work(Resource::HostCompute, 10, vec![state, scratch], 0);
    }
    Arc::new(schedule)
}

fn make_plan(pages_bytes: u64) -> Arc<Plan> {
    let regions = regions();
    let shape = Shape { regions: &regions, sweeps_per_commit: 1, prefetch_intervals_max: None, has_disk: true };
    let budget = Budget { host_bytes: pages_bytes, device_bytes: vec![], disk_bytes: u64::MAX };
    Arc::new(plan(&schedule(), &shape, &budget, &Profile::default(), &Residency::default()).expect("fits").0)
}

/// A new store's image.
fn fresh() -> Vec<u8> {
    image::fresh(&regions())
}

/// The workload's side of a run: what it did and what it was told.
struct World {
    core: Core<MemoryIo>,
    arena: Arc<Arena>,
    plan: Arc<Plan>,
    /// Sweeps whose state was committed and acknowledged; 0 for none.
    acknowledged: u32,
    /// Sweep of the commit begun last.
    begun: u32,
    sweeps_done: u32,
    /// Published accesses that were not taken, with their arena offsets.
    ready: BTreeMap<u64, u64>,
}

/// The workload cannot go on: the disk stopped or the engine is poisoned.
struct Stopped;

impl World {
    /// Opens an image, as the engine would.
    fn open(image: Vec<u8>, pages_bytes: u64, settings: Settings) -> World {
        let image = Image(image);
        let regions = regions();
        let layout = Layout::new(&regions, &Stripes::single());
        let (superblock, table, note) = image.opened(&regions);
        let sweeps = note.first().map_or(0, |sweep| u32::from(*sweep));
        let arena = Arc::new(Arena::new(pages_bytes + meta_bytes(&layout)).expect("arena"));
        let io = MemoryIo::from_image(arena.clone(), vec![image.0], settings);
        let volumes = vec!["image".into()];
        let parts = Parts {
            io,
            arena: arena.clone(),
            layout,
            regions,
            volumes,
            transfer_bytes: 8192,
            unplanned_bytes: 0,
            devices: Vec::new(),
            table,
            superblock,
        };
        let mut core = Core::new(parts);
        let plan = make_plan(pages_bytes);
        core.command(Command::Place { residency: plan.exit.clone() });
        assert!(matches!(core.next_event(), Some(Event::Placed(Ok(())))));
        World { core, arena, plan, acknowledged: sweeps, begun: sweeps, sweeps_done: sweeps, ready: BTreeMap::new() }
    }

    /// Steps until `wanted` accepts an event.
    fn until(&mut self, mut wanted: impl FnMut(&Event) -> bool) -> Result<Event, Stopped> {
        for _ in 0..STEPS_MAX {
            while let Some(event) = self.core.next_event() {
                match &event {
                    Event::Committed { note, .. } => self.acknowledged = u32::from(note[0]),
                    Event::Poisoned { .. } => return Err(Stopped),
                    Event::CommitRefused(error) => panic!("commit refused: {error}"),
                    Event::Ready { seq, offset, .. } => {
                        self.ready.insert(*seq, *offset);
                    }
                    _ => {}
                }
                if wanted(&event) {
                    return Ok(event);
                }
            }
            self.core.step();
        }
        panic!("nothing of what is waited for within {STEPS_MAX} steps: a deadlock");
    }

    fn sweep(&mut self) -> Result<(), Stopped> {
        let sweep = self.sweeps_done + 1;
        self.core.command(Command::Begin { plan: self.plan.clone(), next: Some(self.plan.clone()) });
        let Event::Begun(Ok(base)) = self.until(|e| matches!(e, Event::Begun(_)))? else { panic!("refused") };
        let intervals = self.plan.intervals.clone();
        for (index, interval) in intervals.iter().enumerate() {
            if index == intervals.len() / 2 {
                self.commit(sweep)?;
            }
            let seq = base + index as u64;
            self.core.command(Command::Reached { seq });
            while !self.ready.contains_key(&seq) {
                let event = self.until(|e| matches!(e, Event::Ready { .. } | Event::Failed { .. }))?;
                assert!(matches!(event, Event::Ready { .. }), "{event:?}");
            }
            let offset = self.ready.remove(&seq).expect("just seen");
            let changed = self.touch(interval.run, interval.mode, offset, sweep);
            self.core.command(Command::Release { seq, changed });
        }
        self.core.command(Command::End);
        self.sweeps_done = sweep;
        Ok(())
    }

    /// A sweep in which every access is passed over, most of them before they are reserved; `every`: steps between.
    fn pass_over(&mut self, every: u64) -> Result<(), Stopped> {
        self.core.command(Command::Begin { plan: self.plan.clone(), next: Some(self.plan.clone()) });
        let Event::Begun(Ok(base)) = self.until(|e| matches!(e, Event::Begun(_)))? else { panic!("refused") };
        for seq in base..base + self.plan.intervals.len() as u64 {
            self.core.command(Command::Release { seq, changed: false });
            if seq % every == 0 {
                self.core.step();
            }
        }
        self.core.command(Command::End);
        self.ready.clear();
        Ok(())
    }

    /// Waits for the commit before and starts the next.
    fn commit(&mut self, sweep: u32) -> Result<(), Stopped> {
        while self.acknowledged < self.begun {
            self.until(|e| matches!(e, Event::Committed { .. }))?;
        }
        self.begun = sweep;
        self.core.command(Command::Commit { note: vec![sweep as u8; 5] });
        Ok(())
    }

    /// Checks what the lease holds against the model and changes it as the sweep says.
    fn touch(&mut self, run: Run, mode: Mode, offset: u64, sweep: u32) -> bool {
        let bytes = run.count * PAGE_BYTES;
        let value = |page: u32, sweep| if run.region == STATE { byte(page, sweep) } else { (page + sweep) as u8 };
        if mode.reads() {
            let before = if mode == Mode::Update { sweep - 1 } else { sweep };
            let found = self.arena.slice(&FrameRef::new(offset, bytes)).to_vec();
            for (page, found) in (run.first..).zip(found.chunks(PAGE_BYTES as usize)) {
                let expected = value(page, before);
                assert!(found.iter().all(|b| *b == expected), "page {page} of {run} in sweep {sweep}: wrong bytes");
            }
        }
        let changed = mode == Mode::Write || (mode == Mode::Update && changes(run.first, sweep));
        if changed {
            let mut frame = FrameMut::new(offset, bytes);
            let into = self.arena.slice_mut(&mut frame);
            for (page, into) in (run.first..).zip(into.chunks_mut(PAGE_BYTES as usize)) {
                into.fill(value(page, sweep));
            }
        }
        changed
    }

    /// Runs sweeps until `sweeps` are done, and waits for the last commit.
    fn run(&mut self, sweeps: u32) -> Result<(), Stopped> {
        while self.sweeps_done < sweeps {
            self.sweep()?;
        }
        while self.acknowledged < self.begun {
            self.until(|e| matches!(e, Event::Committed { .. }))?;
        }
        Ok(())
    }

    /// What a recovery may find: the sweep of the last acknowledged commit, or of the one being made.
    fn allowed(&self) -> [u32; 2] {
        [self.acknowledged, self.begun]
    }
}

/// Recovers an image and checks every page; returns the sweep it holds.
fn check_image(image: Vec<u8>, allowed: [u32; 2]) -> u32 {
    let image = Image(image);
    let Some((superblock, recovered)) = image.committed() else {
        assert!(allowed.contains(&0), "a commit was acknowledged and is gone");
        return 0;
    };
    assert!(superblock.state == State::Committed);
    let note = &recovered.note;
    assert!(note.len() == 5 && note.iter().all(|b| *b == note[0]), "a note is torn");
    let sweep = u32::from(note[0]);
    assert!(allowed.contains(&sweep), "recovered the state of sweep {sweep}, allowed {allowed:?}");
    for page in 0..PAGES {
        let expected = byte(page, sweep);
        image.check_page(&recovered, STATE, page, expected == 0, |bytes| {
            assert!(bytes.iter().all(|b| *b == expected), "page {page} holds {} and not {expected}", bytes[0]);
        });
    }
    sweep
}

fn settings(seed: u64) -> Settings {
    Settings { queue_depth: 4, ..Settings::new(seed) }
}

/// Every image of a power loss at this moment.
fn images(world: &World, seed: u64) -> Vec<Vec<u8>> {
    image::after_crashes(world.core.io(), seed, [0, 4])
}

/// Stops the workload after every event and checks every image; `again`: crashes on, from a sample of the images.
fn crash_everywhere(start: &[u8], pages_bytes: u64, sweeps: u32, seed: u64, stride: u64, again: bool) -> usize {
    let mut whole = World::open(start.to_vec(), pages_bytes, settings(seed));
    assert!(whole.run(sweeps).is_ok(), "the workload ends without faults");
    let events = whole.core.io().events();
    let mut checked = 0;
    for stop in (0..=events).step_by(stride as usize) {
        let mut world = World::open(start.to_vec(), pages_bytes, settings(seed));
        world.core.io_mut().stop_after(stop);
        let _ = world.run(sweeps);
        for (index, image) in images(&world, seed ^ stop).into_iter().enumerate() {
            let sweep = check_image(image.clone(), world.allowed());
            checked += 1;
            if again && (stop + index as u64).is_multiple_of(37) {
                checked += crash_everywhere(&image, pages_bytes, sweep + 2, seed + 1, 11, false);
            }
        }
    }
    checked
}

/// Arena bytes for pages: all streamed, a part placed, all placed.
const ARENAS: [u64; 3] = [9 * 4096, 17 * 4096, 24 * 4096];

#[test]
fn a_crash_after_any_event_leaves_the_last_commit_or_the_one_being_made() {
    let mut checked = 0;
    for pages_bytes in ARENAS {
        checked += crash_everywhere(&fresh(), pages_bytes, 4, 1, 1, true);
    }
    assert!(checked > 5_000, "only {checked} images were checked");
}

#[test]
fn faults_that_can_be_survived_are_survived() {
    for seed in 0..60 {
        for pages_bytes in ARENAS {
            let faults =
                Faults { short_read: 150, short_write: 150, eintr: 80, eagain: 80, refusal: 200, ..Faults::default() };
            let mut world = World::open(fresh(), pages_bytes, Settings { faults, ..settings(seed) });
            assert!(world.run(5).is_ok(), "seed {seed}: stopped by a fault that can be survived");
            assert_eq!(check_image(world.core.io().volume(0).to_vec(), [5, 5]), 5);
        }
    }
}

#[test]
fn after_a_failed_write_or_sync_nothing_succeeds_and_the_last_commit_stands() {
    let mut poisoned = 0;
    for seed in 0..120 {
        let pages_bytes = ARENAS[seed as usize % 3];
        let faults = if seed % 2 == 0 {
            Faults { failed_sync: 150, ..Faults::default() }
        } else {
            Faults { enospc: 20, ..Faults::default() }
        };
        let mut world = World::open(fresh(), pages_bytes, Settings { faults, ..settings(seed) });
        if world.run(6).is_ok() {
            continue;
        }
        poisoned += 1;
        let acknowledged = world.acknowledged;
        for _ in 0..50 {
            world.core.step();
            while let Some(event) = world.core.next_event() {
                assert!(!matches!(event, Event::Committed { .. }), "seed {seed}: success after a failed write or sync");
            }
        }
        for image in images(&world, seed) {
            check_image(image, [acknowledged, world.begun]);
        }
    }
    assert!(poisoned > 20, "only {poisoned} runs met a fault");
}

#[test]
fn a_changed_byte_on_disk_is_an_error_and_names_the_page() {
    let mut world = World::open(fresh(), ARENAS[0], settings(3));
    assert!(world.run(2).is_ok());
    let image = Image(world.core.io().volume(0).to_vec());
    let (_, recovered) = image.committed().expect("a commit");
    let mut bytes = image.0;
    bytes[image::offset_of(&recovered, STATE, 1).expect("it was written") + 100] ^= 4;
    let mut world = World::open(bytes, ARENAS[0], settings(3));
    world.core.command(Command::Begin { plan: world.plan.clone(), next: None });
    let failed = world.until(|e| matches!(e, Event::Failed { .. }));
    let Ok(Event::Failed { error: Error::Corrupt { region, page, .. }, .. }) = failed else { panic!("not found") };
    assert_eq!((region.as_str(), page), ("state", 1));
}

#[test]
fn accesses_may_be_passed_over_before_they_are_reserved() {
    for pages_bytes in ARENAS {
        for every in [1, 3, 1000] {
            let mut world = World::open(fresh(), pages_bytes, settings(every));
            assert!(world.pass_over(every).is_ok());
            assert!(world.run(2).is_ok());
            assert!(world.pass_over(every).is_ok());
            assert!(world.run(4).is_ok());
            assert_eq!(check_image(world.core.io().volume(0).to_vec(), [4, 4]), 4);
        }
    }
}

/// A sweep that was given up when nothing of it was left in the window was looked for there all the same.
#[test]
fn a_sweep_may_be_given_up_when_nothing_of_it_is_left() {
    for pages_bytes in ARENAS {
        let mut world = World::open(fresh(), pages_bytes, settings(1));
        world.core.command(Command::Begin { plan: world.plan.clone(), next: None });
        let begun = world.until(|e| matches!(e, Event::Begun(_)));
        let Ok(Event::Begun(Ok(base))) = begun else { panic!("refused") };
        for seq in base..base + world.plan.intervals.len() as u64 {
            world.core.command(Command::Release { seq, changed: false });
        }
        for step in 0.. {
            if world.core.is_idle() {
                break;
            }
            assert!(step < STEPS_MAX, "not idle within {STEPS_MAX} steps");
            world.core.step();
        }
        world.core.command(Command::Abort);
        world.ready.clear();
        assert!(world.run(2).is_ok());
        assert_eq!(check_image(world.core.io().volume(0).to_vec(), [2, 2]), 2);
    }
}

#[test]
fn the_same_seed_gives_the_same_events() {
    let trace = |seed| {
        let mut world = World::open(fresh(), ARENAS[1], settings(seed));
        assert!(world.run(3).is_ok());
        (world.core.io().events(), world.core.io().volume(0).to_vec())
    };
    assert!(trace(7) == trace(7));
}

#[test]
fn damage_to_the_newest_records_is_reported_and_never_an_older_state() {
    let mut world = World::open(fresh(), ARENAS[2], settings(4));
    assert!(world.run(3).is_ok());
    let image = world.core.io().volume(0).to_vec();
    let Ok(Found::Store(superblock)) = look(&Image(image.clone())) else { panic!("a commit") };
    let layout = Layout::new(&regions(), &Stripes::single());
    let mut damaged = image.clone();
    damaged[layout.table_offset(Superblock::slot(superblock.commit)) as usize] ^= 1;
    assert!(matches!(recover(&Image(damaged), &superblock), Err(Error::Damaged { .. })));
    let mut one_copy = image;
    one_copy[Layout::superblock_offset(Superblock::slot(superblock.commit), 0) as usize + 40] ^= 1;
    let Ok(Found::Store(again)) = look(&Image(one_copy)) else { panic!("the copy is there") };
    assert_eq!(again, superblock, "one lost superblock is covered by its copy");
}
