//! Tickets over the simulated disk: a sweep, several users with tickets, and commits, interleaved at random, against
//! stamps of what each page must hold. Every interleaving is stopped at some of its events too, and every image that a
//! power loss could have left must hold a committed state.

use super::{Command, Core, Event, Parts, meta_bytes};
use crate::arena::Arena;
use crate::canary::{Canary, Nest};
use crate::config::{Kind, RegionSpec};
use crate::error::Error;
use crate::format::Stripes;
use crate::format::layout::{Layout, Side};
use crate::format::table::{SECOND, WRITTEN};
use crate::id::{Mode, RegionId, Run};
use crate::io::memory::disk::Crash;
use crate::io::memory::{Faults, MemoryIo, Settings};
use crate::io::{FrameMut, FrameRef};
use crate::plan::{Budget, Plan, Residency, Shape, plan};
use crate::profile::Profile;
use crate::schedule::{Resource, Schedule};
use crate::store::recover::{Found, Recovered, Source, look, recover};
use crate::store::{blank, first_records};
use std::collections::BTreeMap;
use std::panic::catch_unwind;
use std::path::Path;
use std::sync::Arc;

mod cases;

const PAGES: u32 = 12;
const PAGE_BYTES: u32 = 4096;
const STATE: RegionId = RegionId(0);
const SCRATCH: RegionId = RegionId(1);
const FROZEN: RegionId = RegionId(2);
/// Regions that a commit covers.
const DURABLE: [RegionId; 2] = [STATE, FROZEN];
/// Pages of a sweep's runs.
const COUNT: u32 = 2;
/// Pages of a user's longest run.
const LONGEST: u32 = 4;
/// Steps of the core that no life takes: more than ten times what the longest one here does.
const STEPS_MAX: u64 = 100_000;

fn regions() -> Vec<RegionSpec> {
    let region = |name: &str, kind| RegionSpec { name: name.into(), page_bytes: PAGE_BYTES, pages: PAGES, kind };
    vec![region("state", Kind::Checkpointed), region("scratch", Kind::Scratch), region("frozen", Kind::Frozen)]
}

fn run(region: RegionId, first: u32, count: u32) -> Run {
    Run { region, first, count }
}

struct Image(Vec<u8>);

impl Source for Image {
    fn path(&self) -> &Path {
        Path::new("image")
    }

    fn len(&self) -> Result<u64, Error> {
        Ok(self.0.len() as u64)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        into.copy_from_slice(&self.0[offset as usize..][..into.len()]);
        Ok(())
    }
}

fn fresh() -> Vec<u8> {
    let regions = regions();
    let layout = Layout::new(&regions, &Stripes::single());
    let mut image = vec![0xee; layout.total_bytes(0) as usize];
    for (offset, bytes) in first_records(&layout, &regions, &blank(&layout, &regions, [7; 16])) {
        image[offset as usize..][..bytes.len()].copy_from_slice(&bytes);
    }
    image
}

/// Updates the state and writes scratch beside it, marks a commit, reads both.
fn schedule() -> Schedule {
    let mut schedule = Schedule { cyclic: true, ..Schedule::default() };
    for (state, scratch) in [(Mode::Update, Mode::Write), (Mode::Read, Mode::Read)] {
        for first in (0..PAGES).step_by(COUNT as usize) {
            let state = schedule.access(run(STATE, first, COUNT), state, 0);
            let scratch = schedule.access(run(SCRATCH, first, COUNT), scratch, 0);
            schedule.work(Resource::HostCompute, 10, vec![state, scratch], 0);
        }
        if state == Mode::Update {
            schedule.commit(vec![]);
        }
    }
    schedule
}

/// `fixed`: nothing is placed.
fn make_plan(schedule: Schedule, planned_bytes: u64, fixed: bool) -> Arc<Plan> {
    let regions = regions();
    let shape = Shape { regions: &regions, sweeps_per_commit: 1, prefetch_intervals_max: None, has_disk: true };
    let budget = Budget { host_bytes: planned_bytes, device_bytes: vec![], disk_bytes: u64::MAX };
    let entry = Residency { fixed, ..Residency::default() };
    Arc::new(plan(&Arc::new(schedule), &shape, &budget, &Profile::default(), &entry).expect("fits").0)
}

/// A seeded stream of numbers, apart from the disk's.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 32) * bound) >> 32
    }
}

/// What the pages must hold. A stamp fills its page; 0: zeros, never written.
#[derive(Default)]
struct Pages {
    stamps: BTreeMap<(RegionId, u32), u64>,
    /// Readers of each page, and its writer as -1.
    holders: BTreeMap<(RegionId, u32), i32>,
    written: u64,
}

impl Pages {
    fn of(run: Run) -> impl Iterator<Item = (RegionId, u32)> {
        (run.first..run.end()).map(move |page| (run.region, page))
    }

    fn stamp(&self, page: (RegionId, u32)) -> u64 {
        self.stamps.get(&page).copied().unwrap_or(0)
    }

    /// Somebody has the pages: checks that he may.
    fn enter(&mut self, run: Run, writes: bool) {
        for page in Pages::of(run) {
            let holders = self.holders.entry(page).or_default();
            assert!(if writes { *holders == 0 } else { *holders >= 0 }, "{page:?} is shared with a writer");
            *holders += if writes { -1 } else { 1 };
        }
    }

    fn leave(&mut self, run: Run, writes: bool) {
        for page in Pages::of(run) {
            *self.holders.entry(page).or_default() -= if writes { -1 } else { 1 };
        }
    }

    fn check(&self, arena: &Arena, run: Run, offset: u64) {
        let frame = FrameRef::new(offset, run.count * PAGE_BYTES);
        for (page, bytes) in Pages::of(run).zip(arena.slice(&frame).chunks(PAGE_BYTES as usize)) {
            let stamp = self.stamp(page).to_le_bytes();
            assert!(bytes.chunks(8).all(|b| b == stamp), "{page:?}: expected {stamp:?}, found {:?}", &bytes[..8]);
        }
    }

    fn write(&mut self, arena: &Arena, run: Run, offset: u64) {
        let mut frame = FrameMut::new(offset, run.count * PAGE_BYTES);
        for (page, bytes) in Pages::of(run).zip(arena.slice_mut(&mut frame).chunks_mut(PAGE_BYTES as usize)) {
            self.written += 1;
            self.stamps.insert(page, self.written);
            bytes.chunks_mut(8).for_each(|b| b.copy_from_slice(&self.written.to_le_bytes()));
        }
    }

    /// What a commit of now holds.
    fn durable(&self) -> Vec<u64> {
        DURABLE.iter().flat_map(|region| (0..PAGES).map(|page| self.stamp((*region, page)))).collect()
    }
}

/// One use of a run by a user.
#[derive(Clone, Copy, Debug)]
struct Use {
    ticket: u64,
    run: Run,
    mode: Mode,
    /// Where the bytes are, once the user took them.
    offset: Option<u64>,
    wrote: bool,
}

/// A lease of the sweep.
struct Lease {
    seq: u64,
    index: usize,
    offset: u64,
}

#[derive(Default)]
struct Sweeper {
    /// Number of the sweep's first access; none between sweeps.
    base: Option<u64>,
    begin_sent: bool,
    /// Index of the next access, and whether it was asked for.
    next: usize,
    reached: bool,
    held: Vec<Lease>,
    sweeps: u32,
}

/// The disk stopped.
struct Stopped;

struct World {
    shop: Shop,
    core: Core<MemoryIo>,
    arena: Arc<Arena>,
    plan: Arc<Plan>,
    draw: Draw,
    pages: Pages,
    /// What was published and not taken.
    ready: BTreeMap<u64, Option<u64>>,
    tickets: BTreeMap<u64, Result<u64, Error>>,
    recalls: Vec<u64>,
    users: Vec<Vec<Use>>,
    next_ticket: u64,
    sweeper: Sweeper,
    /// The state of each commit, and how many were acknowledged and begun.
    commits: Vec<Vec<u64>>,
    acknowledged: usize,
    begun: usize,
    seen: Seen,
    steps: u64,
}

/// What happened in a run.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
struct Seen {
    fetches: u64,
    uses: u64,
    dropped: u64,
    discarded: u64,
    refused: u64,
    undefined: u64,
    taken_back: u64,
    taken_first: u64,
    commits_refused: u64,
}

impl Seen {
    fn add(&mut self, other: &Seen) {
        self.fetches += other.fetches;
        self.uses += other.uses;
        self.dropped += other.dropped;
        self.discarded += other.discarded;
        self.refused += other.refused;
        self.undefined += other.undefined;
        self.taken_back += other.taken_back;
        self.taken_first += other.taken_first;
        self.commits_refused += other.commits_refused;
    }
}

/// What a run has room for, and who is in it.
#[derive(Clone, Copy)]
struct Shop {
    /// Arena bytes for the plan and for tickets, in pages.
    planned_pages: u64,
    /// Whether the plan may place runs.
    places: bool,
    unplanned_pages: u64,
    users: usize,
    /// Leases that a user may hold at once.
    leases: usize,
}

const SHOPS: [Shop; 4] = [
    // All streamed, and so little room that tickets wait for it.
    Shop { planned_pages: 9, places: false, unplanned_pages: 6, users: 3, leases: 1 },
    // Room for all that users may hold, gaps included, so that waiting for it cannot deadlock them.
    Shop { planned_pages: 13, places: false, unplanned_pages: 40, users: 3, leases: 2 },
    // A part placed.
    Shop { planned_pages: 17, places: true, unplanned_pages: 28, users: 2, leases: 2 },
    // All placed: copies only of frozen pages.
    Shop { planned_pages: 24, places: true, unplanned_pages: 16, users: 4, leases: 1 },
];

impl World {
    fn new(shop: Shop, seed: u64) -> World {
        World::with(shop, schedule(), Settings { queue_depth: 4, ..Settings::new(seed) })
    }

    fn with(shop: Shop, schedule: Schedule, settings: Settings) -> World {
        let plan = make_plan(schedule, shop.planned_pages * u64::from(PAGE_BYTES), !shop.places);
        World::open(shop, plan, settings, fresh())
    }

    fn open(shop: Shop, plan: Arc<Plan>, settings: Settings, image: Vec<u8>) -> World {
        let (regions, image) = (regions(), Image(image));
        let layout = Layout::new(&regions, &Stripes::single());
        let (superblock, table) = match look(&image).expect("superblocks") {
            Found::Store(superblock) => {
                let table = recover(&image, &superblock).expect("records").table;
                (*superblock, table)
            }
            _ => (blank(&layout, &regions, [7; 16]), Vec::new()),
        };
        let unplanned_bytes = shop.unplanned_pages * u64::from(PAGE_BYTES);
        let arena_bytes = shop.planned_pages * u64::from(PAGE_BYTES) + unplanned_bytes + meta_bytes(&layout);
        let arena = Arc::new(Arena::new(arena_bytes).expect("arena"));
        let parts = Parts {
            io: MemoryIo::from_image(arena.clone(), vec![image.0], settings),
            arena: arena.clone(),
            layout,
            regions,
            volumes: vec!["image".into()],
            transfer_bytes: 8192,
            unplanned_bytes,
            devices: Vec::new(),
            table,
            superblock,
        };
        let mut core = Core::new(parts);
        core.command(Command::Place { residency: plan.exit.clone() });
        assert!(matches!(core.next_event(), Some(Event::Placed(Ok(())))));
        World {
            shop,
            core,
            arena,
            plan,
            draw: Draw(settings.seed),
            pages: Pages::default(),
            ready: BTreeMap::new(),
            tickets: BTreeMap::new(),
            recalls: Vec::new(),
            users: vec![Vec::new(); shop.users],
            next_ticket: 0,
            sweeper: Sweeper::default(),
            commits: vec![vec![0; DURABLE.len() * PAGES as usize]],
            acknowledged: 0,
            begun: 0,
            seen: Seen::default(),
            steps: 0,
        }
    }

    fn step(&mut self) -> Result<(), Stopped> {
        self.steps += 1;
        assert!(self.steps < STEPS_MAX, "no end within {STEPS_MAX} steps: somebody waits for ever; {:?}", self.users);
        self.core.step();
        self.listen()
    }

    fn listen(&mut self) -> Result<(), Stopped> {
        while let Some(event) = self.core.next_event() {
            match event {
                Event::Ready { seq, offset, .. } => assert!(self.ready.insert(seq, Some(offset)).is_none()),
                Event::Failed { seq, error } => {
                    assert!(matches!(error, Error::Misuse { .. }), "{error}");
                    self.ready.insert(seq, None);
                }
                Event::Recall { seq } => self.recalls.push(seq),
                Event::TicketReady { ticket, offset, .. } => {
                    self.tickets.insert(ticket, Ok(offset));
                }
                Event::TicketFailed { ticket, error } => {
                    self.seen.refused += u64::from(error.to_string().contains("placed in RAM"));
                    self.tickets.insert(ticket, Err(error));
                }
                Event::Begun(base) => self.sweeper.base = Some(base.expect("a sweep begins")),
                Event::Committed { note, .. } => {
                    self.acknowledged = usize::from(note[0]);
                    assert_eq!(self.acknowledged, self.begun);
                }
                Event::CommitRefused(_) => {
                    self.commits.pop();
                    self.begun -= 1;
                    self.seen.commits_refused += 1;
                }
                Event::Poisoned { .. } => return Err(Stopped),
                Event::Placed(_) => unreachable!("nothing is placed now"),
            }
        }
        Ok(())
    }

    /// The reactor's answer to a recall, late.
    fn answer_recall(&mut self) {
        if self.recalls.is_empty() {
            return;
        }
        let seq = self.recalls.remove(0);
        let taken = self.ready.remove(&seq).is_none();
        *(if taken { &mut self.seen.taken_first } else { &mut self.seen.taken_back }) += 1;
        self.core.command(Command::Recalled { seq, taken });
    }

    fn fetch(&mut self, run: Run, mode: Mode) -> Use {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.seen.fetches += 1;
        self.core.command(Command::Fetch { ticket, run, mode });
        Use { ticket, run, mode, offset: None, wrote: false }
    }

    fn draw_run(&mut self, region: RegionId) -> Run {
        let count = 1 + self.draw.below(u64::from(LONGEST)) as u32;
        run(region, self.draw.below(u64::from(PAGES - count + 1)) as u32, count)
    }

    fn draw_fetch(&mut self, region: RegionId) -> Use {
        let run = self.draw_run(region);
        let frozen = region == FROZEN && self.begun > 0;
        let mode = match self.draw.below(if frozen { 2 } else { 4 }) {
            0 | 1 => Mode::Read,
            2 => Mode::Update,
            _ => Mode::Write,
        };
        self.fetch(run, mode)
    }

    /// One act of a user. `quiet`: he asks for nothing new.
    fn act(&mut self, user: usize, leases: usize, quiet: bool) {
        let Some(last) = self.users[user].last().copied() else {
            if !quiet {
                if self.draw.below(4) == 0 {
                    let runs = (0..2).map(|_| self.draw_run(STATE)).collect();
                    self.core.command(Command::Prefetch { runs });
                }
                let region = [STATE, STATE, SCRATCH, FROZEN][self.draw.below(4) as usize];
                let asked = self.draw_fetch(region);
                self.users[user].push(asked);
            }
            return;
        };
        match last.offset {
            None => self.act_asked(user, last),
            Some(offset) => {
                let writes = last.mode.writes();
                if !quiet && last.run.region == STATE && self.users[user].len() < leases && self.draw.below(4) == 0 {
                    // The next in the order that the sweep has too, so that nobody waits in a circle.
                    let asked = self.draw_fetch(SCRATCH);
                    self.users[user].push(asked);
                } else if quiet || self.draw.below(4) == 0 {
                    self.users[user].pop();
                    // While one has pages nobody else changes them.
                    if last.wrote || !writes {
                        self.pages.check(&self.arena, last.run, offset);
                    }
                    self.pages.leave(last.run, writes);
                    self.core.command(Command::GiveBack { ticket: last.ticket, changed: last.wrote });
                    self.seen.uses += 1;
                    self.seen.discarded += u64::from(writes && !last.wrote);
                }
            }
        }
    }

    fn act_asked(&mut self, user: usize, asked: Use) {
        if self.draw.below(30) == 0 {
            self.users[user].pop();
            self.tickets.remove(&asked.ticket);
            self.core.command(Command::GiveBack { ticket: asked.ticket, changed: false });
            self.seen.dropped += 1;
            return;
        }
        match self.tickets.remove(&asked.ticket) {
            None => {}
            Some(Err(error)) => {
                self.users[user].pop();
                self.check_failure(asked, &error);
            }
            Some(Ok(offset)) => {
                self.pages.enter(asked.run, asked.mode.writes());
                if asked.mode.reads() {
                    self.pages.check(&self.arena, asked.run, offset);
                }
                let wrote = asked.mode.writes() && self.draw.below(5) > 0;
                if wrote {
                    self.pages.write(&self.arena, asked.run, offset);
                } else if asked.mode.writes() && offset >= self.plan.placed_bytes {
                    // What is scribbled into a copy and then discarded nobody sees.
                    let mut frame = FrameMut::new(offset, asked.run.count * PAGE_BYTES);
                    self.arena.slice_mut(&mut frame).fill(0xab);
                }
                let used = self.users[user].last_mut().expect("just looked at");
                (used.offset, used.wrote) = (Some(offset), wrote);
            }
        }
    }

    fn check_failure(&mut self, asked: Use, error: &Error) {
        let Error::Misuse { what } = error else { panic!("{asked:?}: {error}") };
        if !what.contains("placed in RAM") {
            assert!(what.contains("was not written") && asked.run.region == SCRATCH, "{asked:?}: {what}");
            self.seen.undefined += 1;
        }
    }

    /// One act of the sweep's user.
    fn act_sweep(&mut self, quiet: bool) {
        let Some(base) = self.sweeper.base else {
            if !self.sweeper.begin_sent && !quiet {
                self.sweeper.begin_sent = true;
                self.core.command(Command::Begin { plan: self.plan.clone(), next: Some(self.plan.clone()) });
            }
            return;
        };
        let plan = self.plan.clone();
        let next = plan.intervals.get(self.sweeper.next);
        let over = |lease: &Lease| next.is_none_or(|next| plan.intervals[lease.index].release < next.node);
        if let Some(at) = self.sweeper.held.iter().position(over) {
            let Lease { seq, index, offset } = self.sweeper.held.remove(at);
            let interval = plan.intervals[index];
            self.pages.check(&self.arena, interval.run, offset);
            self.pages.leave(interval.run, interval.mode.writes());
            self.core.command(Command::Release { seq, changed: interval.mode.writes() });
            return;
        }
        let Some(interval) = next.copied() else {
            self.core.command(Command::End);
            self.sweeper = Sweeper { sweeps: self.sweeper.sweeps + 1, ..Sweeper::default() };
            return;
        };
        if self.sweeper.next == plan.intervals.len() / 2 && !self.sweeper.reached {
            // The commit mark.
            self.commit();
        }
        let seq = base + self.sweeper.next as u64;
        match self.ready.remove(&seq) {
            Some(published) => {
                self.sweeper.next += 1;
                let reached = std::mem::take(&mut self.sweeper.reached);
                if !reached && self.draw.below(20) == 0 {
                    self.core.command(Command::Release { seq, changed: false });
                    return;
                }
                let Some(offset) = published else {
                    self.core.command(Command::Release { seq, changed: false });
                    self.seen.undefined += 1;
                    return;
                };
                self.pages.enter(interval.run, interval.mode.writes());
                if interval.mode.reads() {
                    self.pages.check(&self.arena, interval.run, offset);
                }
                if interval.mode.writes() {
                    self.pages.write(&self.arena, interval.run, offset);
                }
                self.sweeper.held.push(Lease { seq, index: self.sweeper.next - 1, offset });
            }
            None if !self.sweeper.reached && self.draw.below(20) == 0 => {
                self.sweeper.next += 1;
                self.core.command(Command::Release { seq, changed: false });
            }
            None if !self.sweeper.reached => {
                self.sweeper.reached = true;
                self.core.command(Command::Reached { seq });
            }
            None => {}
        }
    }

    /// Whether somebody holds, or may get, the right to change what a commit covers.
    fn somebody_writes(&self) -> bool {
        let covered = |run: Run, mode: Mode| run.region != SCRATCH && mode.writes();
        self.users
            .iter()
            .flatten()
            .any(|u| covered(u.run, u.mode) && !matches!(self.tickets.get(&u.ticket), Some(Err(_))))
    }

    fn commit(&mut self) {
        let holds = |lease: &Lease| self.plan.intervals[lease.index].mode.writes();
        if self.acknowledged < self.begun || self.begun > 250 || self.sweeper.held.iter().any(holds) {
            return;
        }
        assert!(self.listen().is_ok());
        let (must_refuse, before) = (self.somebody_writes(), self.seen.commits_refused);
        self.begun += 1;
        self.commits.push(self.pages.durable());
        self.core.command(Command::Commit { note: vec![self.begun as u8; 5] });
        assert!(self.listen().is_ok());
        let refused = self.seen.commits_refused > before;
        assert!(refused || !must_refuse, "a commit began while a writing ticket was held");
        let is_placed = |offset: &Option<u64>| offset.is_some_and(|offset| offset < self.plan.placed_bytes);
        let by_sweep = self.sweeper.reached || self.ready.values().any(is_placed);
        assert!(!refused || must_refuse || by_sweep, "a commit was refused for no reason");
    }

    /// `acts` acts of everybody in random order; then nobody asks for more, and all that was asked for must be had.
    fn live(&mut self, shop: Shop, acts: u64) -> Result<(), Stopped> {
        for _ in 0..acts {
            match self.draw.below(12) {
                0..=3 => self.step()?,
                4..=5 => self.act_sweep(false),
                6 => self.answer_recall(),
                7 if self.draw.below(20) == 0 => self.commit(),
                _ => {
                    let user = self.draw.below(shop.users as u64) as usize;
                    self.act(user, shop.leases, false);
                }
            }
        }
        for _ in 0..50_000 {
            self.answer_recall();
            self.step()?;
            let user = self.draw.below(shop.users as u64) as usize;
            self.act(user, shop.leases, true);
            self.act_sweep(true);
            let idle = self.users.iter().all(Vec::is_empty) && !self.sweeper.begin_sent;
            if idle && self.acknowledged == self.begun {
                return Ok(());
            }
        }
        panic!("no end: a deadlock; users wait for {:?}", self.users);
    }

    /// The store at its last commit, in a new engine.
    fn reopened(&self) -> World {
        let settings = Settings { queue_depth: 4, ..Settings::new(self.draw.0) };
        let image = self.core.io().volume(0).to_vec();
        let mut again = World::open(self.shop, self.plan.clone(), settings, image);
        assert_eq!(self.acknowledged, self.begun, "no commit is being made");
        (again.acknowledged, again.begun, again.commits) = (self.acknowledged, self.begun, self.commits.clone());
        let pages = DURABLE.iter().flat_map(|region| (0..PAGES).map(|page| (*region, page)));
        again.pages.stamps = pages.zip(again.commits[again.begun].iter().copied()).collect();
        again.pages.written = self.pages.written;
        again
    }

    /// Every image of a power loss now, or of the death of the process.
    fn images(&self, seed: u64) -> Vec<Vec<u8>> {
        let io = self.core.io();
        let mut crashes = vec![Crash::NoneSurvive, Crash::AllSurvive, Crash::Torn, Crash::Torn];
        for number in 0..io.unflushed() {
            crashes.extend([Crash::OnlySurvivor(number), Crash::OnlyLoss(number)]);
        }
        let image = |(index, crash)| io.crash_image(seed + index as u64, crash).remove(0);
        let mut images: Vec<Vec<u8>> = crashes.into_iter().enumerate().map(image).collect();
        images.push(io.process_kill_image(seed).remove(0));
        images
    }

    /// The image must hold the last acknowledged commit or the one being made.
    fn check_image(&self, image: Vec<u8>) {
        let image = Image(image);
        let Found::Store(superblock) = look(&image).expect("a superblock that checks, or none yet") else {
            assert_eq!(self.acknowledged, 0, "a commit was acknowledged and is gone");
            return;
        };
        let Recovered { layout, table, note, .. } = recover(&image, &superblock).expect("records of a commit check");
        let commit = usize::from(note[0]);
        assert!([self.acknowledged, self.begun].contains(&commit), "commit {commit} came back");
        let pages = DURABLE.iter().flat_map(|region| (0..PAGES).map(|page| (*region, page)));
        for ((region, page), expected) in pages.zip(&self.commits[commit]) {
            let entry = table[layout.global_page(region, page) as usize];
            if entry.flags & WRITTEN == 0 {
                assert_eq!(*expected, 0, "page {page} was written and is said not to be");
                continue;
            }
            let side = if entry.flags & SECOND != 0 { Side::Second } else { Side::First };
            let bytes = &image.0[layout.extent(region, page, side).offset as usize..][..PAGE_BYTES as usize];
            let stamp = expected.to_le_bytes();
            assert!(bytes.chunks(8).all(|b| b == stamp), "page {page} of commit {commit}: {:?}", &bytes[..8]);
            assert_eq!(crate::format::checksum::page_checksum(bytes), entry.checksum);
        }
    }
}

#[test]
fn everybody_reads_what_was_written_last_and_everything_asked_for_is_had() {
    for shop in SHOPS {
        let (mut sweeps, mut commits, mut hits, mut misses) = (0, 0, 0, 0);
        let mut seen = Seen::default();
        for seed in 0..120 {
            // Two lives: the second begins with a store that has content.
            let mut world = World::new(shop, seed);
            assert!(world.live(shop, 1000).is_ok(), "the disk does not stop by itself");
            seen.add(&world.seen);
            let mut world = world.reopened();
            assert!(world.live(shop, 1000).is_ok(), "the disk does not stop by itself");
            world.images(seed).into_iter().for_each(|image| world.check_image(image));
            let stats = world.core.stats();
            let counted = stats.unplanned_hits + stats.unplanned_misses;
            assert_eq!(counted, world.seen.fetches - world.seen.refused, "a fetch is a hit or a miss");
            sweeps += world.sweeper.sweeps;
            commits += world.begun;
            hits += stats.unplanned_hits;
            misses += stats.unplanned_misses;
            seen.add(&world.seen);
        }
        assert!(sweeps > 100 && commits > 100 && hits > 1000 && misses > 500 && seen.uses > 2000, "{seen:?}");
        assert!(seen.dropped > 100 && seen.discarded > 100 && seen.commits_refused > 50, "{seen:?}");
        assert!(seen.taken_back > 20 && seen.taken_first > 20 && seen.undefined > 20, "{seen:?}");
        assert_eq!(seen.refused > 100, shop.places, "{seen:?}");
    }
}

#[test]
fn faults_that_can_be_survived_are_survived() {
    for (seed, shop) in (0..100).zip(SHOPS.iter().cycle()) {
        let faults =
            Faults { short_read: 150, short_write: 150, eintr: 80, eagain: 80, refusal: 200, ..Faults::default() };
        let settings = Settings { queue_depth: 4, faults, ..Settings::new(seed) };
        let mut world = World::with(*shop, schedule(), settings);
        assert!(world.live(*shop, 800).is_ok(), "seed {seed}: stopped by a fault that can be survived");
    }
}

#[test]
fn a_crash_beside_tickets_leaves_the_last_commit_or_the_one_being_made() {
    let mut checked = 0;
    for (seed, shop) in (0..28).zip(SHOPS.iter().cycle()) {
        let mut whole = World::new(*shop, seed);
        assert!(whole.live(*shop, 500).is_ok(), "the disk does not stop by itself");
        // Each shop meets each phase of the stride.
        for stop in (seed % 7..=whole.core.io().events()).step_by(7) {
            let mut world = World::new(*shop, seed);
            world.core.io_mut().stop_after(stop);
            let _ = world.live(*shop, 500);
            for image in world.images(seed ^ stop) {
                world.check_image(image);
                checked += 1;
            }
        }
    }
    assert!(checked > 15_000, "only {checked} images were checked");
}

#[test]
fn after_a_failed_write_or_sync_no_ticket_is_ready_and_the_last_commit_stands() {
    let mut poisoned = 0;
    for (seed, shop) in (0..80).zip(SHOPS.iter().cycle()) {
        let faults = Faults { failed_sync: 30, enospc: 5, ..Faults::default() };
        let mut world = World::with(*shop, schedule(), Settings { queue_depth: 4, faults, ..Settings::new(seed) });
        if world.live(*shop, 1500).is_ok() {
            continue;
        }
        poisoned += 1;
        world.fetch(run(STATE, 0, 1), Mode::Read);
        for user in 0..shop.users {
            // What is held can still be given back.
            while let Some(used) = world.users[user].pop() {
                world.core.command(Command::GiveBack { ticket: used.ticket, changed: used.wrote });
            }
        }
        for _ in 0..50 {
            world.core.step();
            while let Some(event) = world.core.next_event() {
                let success = matches!(event, Event::TicketReady { .. } | Event::Committed { .. });
                assert!(!success, "seed {seed}: success after a failed write or sync");
            }
        }
        world.images(seed).into_iter().for_each(|image| world.check_image(image));
    }
    assert!(poisoned > 20, "only {poisoned} runs met a fault");
}

/// Those that users notice: each ends with the words of a check, within a few lives, and never without an end. What
/// only a crash in the middle of a commit shows (`TicketNoHold`), the simulation finds.
#[test]
fn planted_bugs_of_tickets_are_found_here_too() {
    for bug in
        [Canary::StaleCopy, Canary::TicketAside, Canary::CommitBesideTicket, Canary::RecallTaken, Canary::UnchangedCopy]
    {
        let _nest = Nest::of(bug);
        let said = (0..80).zip(SHOPS.iter().cycle()).find_map(|(seed, shop)| {
            let life = || {
                let mut world = World::new(*shop, seed);
                assert!(world.live(*shop, 1000).is_ok(), "the disk does not stop by itself");
                let mut world = world.reopened();
                assert!(world.live(*shop, 1000).is_ok(), "the disk does not stop by itself");
            };
            let panic = catch_unwind(life).err()?;
            let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
            Some(text.or_else(|| panic.downcast_ref::<String>().cloned()).expect("a panic with words"))
        });
        let said = said.unwrap_or_else(|| panic!("{bug:?} was not found"));
        eprintln!("{bug:?}: {said}");
        assert!(!said.contains("for ever") && !said.contains("deadlock"), "{bug:?}: only a bound found it: {said}");
    }
}

#[test]
fn the_same_seed_gives_the_same_events() {
    let trace = |seed| {
        let mut world = World::new(SHOPS[2], seed);
        assert!(world.live(SHOPS[2], 1000).is_ok());
        (world.core.io().events(), world.core.io().volume(0).to_vec(), world.seen)
    };
    assert!(trace(5) == trace(5));
}
