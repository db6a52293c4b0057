//! Plans with devices over the simulated disk and devices in RAM: random ones by the real planner, walked in schedule
//! order by one user whose work in VRAM happens when his streams come to it, which may be much later. Whatever is read,
//! in RAM or by work on a stream, is compared with stamps of what each page must hold; what a crash leaves is opened
//! and must hold exactly the last commit or the one being made; and bytes on the links are those of the plan.

use super::{Command, Core, DevicePart, Event, Parts, meta_bytes};
use crate::arena::Arena;
use crate::config::{Kind, RegionSpec};
use crate::device::memory::{self, MemoryDevice, MemoryStreams};
use crate::device::{After, Device, DeviceCompletion, DeviceOp, Stream, Streams};
use crate::error::{Error, PlanError};
use crate::format::layout::{Layout, Side};
use crate::format::table::{SECOND, WRITTEN};
use crate::format::{BLOCK, Stripes};
use crate::id::{DeviceId, Mode, Run, Tier};
use crate::io::memory::disk::Crash;
use crate::io::memory::{MemoryIo, Settings};
use crate::io::{FrameMut, FrameRef, OpId};
use crate::plan::tests::samples::{Numbers, three_regions};
use crate::plan::tests::tiers::{budget, profile, random};
use crate::plan::{Home, Interval, Plan, Residency, Shape, plan};
use crate::schedule::{Node, Schedule};
use crate::store::recover::{Found, Recovered, Source, look, recover};
use crate::store::{blank, first_records};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

mod cases;
mod tickets;

const PAGE: u64 = 4096;
const PAGES: u32 = 64;
/// Steps of the core within which everything that is waited for comes.
const STEPS_MAX: u64 = 20_000;
/// Bytes of the arena for tickets.
const UNPLANNED: u64 = 16 * PAGE;

/// How a run of the test goes.
#[derive(Clone, Copy)]
struct Course {
    /// Of a thousand accesses so many are passed over, and of a thousand writing leases so many come back unchanged.
    passed: u64,
    unchanged: u64,
    /// Of a thousand copies so many fail.
    failed_copy: u32,
    /// The budgets are the smallest with which nothing has a home in memory.
    streams: bool,
    has_disk: bool,
    /// Somebody has tickets beside the sweeps.
    tickets: bool,
    /// Whatever else has happened is told before uploads are.
    uploads_last: bool,
}

const PLAIN: Course = Course {
    passed: 0,
    unchanged: 0,
    failed_copy: 0,
    streams: false,
    has_disk: true,
    tickets: false,
    uploads_last: false,
};

/// A device whose uploads are told late: fences that come behind them on a stream are told first.
struct UploadsLast {
    device: MemoryDevice,
    held: Vec<DeviceCompletion>,
    polls: u64,
}

impl Device for UploadsLast {
    fn submit(&mut self, id: OpId, op: DeviceOp) -> Result<(), DeviceOp> {
        self.device.submit(id, op)
    }

    fn poll(&mut self, out: &mut Vec<DeviceCompletion>) -> Result<(), Error> {
        let mut all = Vec::new();
        self.device.poll(&mut all)?;
        let is_upload = |it: &DeviceCompletion| matches!(it.op, DeviceOp::Upload { .. } | DeviceOp::Clear { .. });
        self.held.extend(all.extract_if(.., |it| is_upload(it)));
        out.append(&mut all);
        self.polls += 1;
        if self.polls.is_multiple_of(60) {
            out.append(&mut self.held);
        }
        Ok(())
    }
}

/// The last stamp of every page, by region and page; None: a scratch page that was never written.
type Stamps = BTreeMap<(u32, u32), Option<u64>>;

/// A lease of the walker.
struct Lease {
    seq: u64,
    index: usize,
    offset: u64,
    stream: Stream,
    changed: bool,
    is_written: bool,
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

/// The disk or the engine stopped.
#[derive(Debug)]
struct Stopped;

/// Bytes that have crossed the links, by the plan.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Links {
    up: u64,
    down: u64,
}

struct World {
    core: Core<MemoryIo>,
    arena: Arc<Arena>,
    streams: Vec<(DeviceId, MemoryStreams)>,
    plan: Arc<Plan>,
    regions: Vec<RegionSpec>,
    course: Course,
    numbers: Numbers,
    ready: BTreeMap<u64, Result<(u64, After), Error>>,
    tickets: BTreeMap<u64, Result<u64, Error>>,
    visitor: tickets::Visitor,
    leases: Vec<Lease>,
    stamps: Stamps,
    next_stamp: u64,
    /// Of each commit, by its note: what it holds.
    commits: Vec<Stamps>,
    acknowledged: usize,
    begun: usize,
    /// Accesses before the last mark.
    mark: Option<usize>,
    /// Runs whose home in VRAM is loaded.
    loaded: BTreeSet<Run>,
    links: Links,
    seen: Seen,
}

/// How often what is looked for happened.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Seen {
    on_device: u64,
    relayed: u64,
    undefined: u64,
    commits: u64,
    in_vram: u64,
    from_vram: u64,
    commit_download_bytes: u64,
    /// Leases whose bytes were still on their way, or used by others.
    early: u64,
    behind: u64,
    /// Steps after which somebody's fence had passed, and an upload before it was not told to be over.
    late: u64,
}

fn stamp_bytes(bytes: &mut [u8], stamp: u64) {
    bytes.chunks_exact_mut(8).for_each(|chunk| chunk.copy_from_slice(&stamp.to_le_bytes()));
}

fn check_bytes(bytes: &[u8], stamp: u64, what: &str) {
    let wrong = bytes.chunks_exact(8).find(|chunk| *chunk != stamp.to_le_bytes());
    assert!(wrong.is_none(), "{what}: found {wrong:02x?} in place of stamp {stamp}");
}

/// A new store's image.
fn fresh(layout: &Layout, regions: &[RegionSpec]) -> Vec<u8> {
    let mut image = vec![0xee; layout.total_bytes(0) as usize];
    for (offset, bytes) in first_records(layout, regions, &blank(layout, regions, [9; 16])) {
        image[offset as usize..][..bytes.len()].copy_from_slice(&bytes);
    }
    image
}

/// A plan of a random schedule that fits some memory.
fn draw_plan(numbers: &mut Numbers, course: Course, regions: &[RegionSpec]) -> (Arc<Plan>, crate::plan::Budget) {
    let schedule = Arc::new(random(numbers, 10, 4));
    let ahead = [None, None, Some(0), Some(2)][numbers.below(4) as usize];
    let shape = Shape { regions, sweeps_per_commit: 1, prefetch_intervals_max: ahead, has_disk: course.has_disk };
    let entry = Residency { fixed: course.streams, ..Residency::default() };
    let given = match course.streams {
        true => budget(0, 0),
        false => budget(8 + numbers.below(40), 4 + numbers.below(30)),
    };
    match plan(&schedule, &shape, &given, &profile(), &entry) {
        Ok((plan, _)) => (Arc::new(plan), given),
        Err(PlanError::DoesNotFit { nearest, .. }) => {
            let (plan, _) = plan(&schedule, &shape, &nearest, &profile(), &entry).expect("it names what fits");
            (Arc::new(plan), nearest)
        }
        Err(other) => panic!("{other}"),
    }
}

impl World {
    fn new(seed: u64, course: Course) -> World {
        let regions = three_regions();
        let image = fresh(&Layout::new(&regions, &Stripes::single()), &regions);
        World::open(seed, course, image)
    }

    /// A process on the store of an image, with a plan of its own.
    fn open(seed: u64, course: Course, image: Vec<u8>) -> World {
        let (regions, mut numbers) = (three_regions(), Numbers(seed));
        let (plan, budget) = draw_plan(&mut numbers, course, &regions);
        let layout = Layout::new(&regions, &Stripes::single());
        let arena_bytes = budget.host_bytes + UNPLANNED + meta_bytes(&layout);
        let arena = Arc::new(Arena::new(arena_bytes).expect("arena"));
        let image = Image(image);
        let (superblock, table) = match look(&image).expect("superblocks") {
            Found::Store(superblock) => {
                let Recovered { table, .. } = recover(&image, &superblock).expect("records");
                (*superblock, table)
            }
            _ => (blank(&layout, &regions, [9; 16]), Vec::new()),
        };
        let images = if course.has_disk { vec![image.0] } else { Vec::new() };
        let io = MemoryIo::from_image(arena.clone(), images, Settings { queue_depth: 6, ..Settings::new(seed) });
        let device = |id: DeviceId| {
            let (failed_copy, idle) = (course.failed_copy, [0, 0, 700, 950][seed as usize / 6 % 4]);
            let settings = memory::Settings { failed_copy, idle, ..memory::Settings::new(seed) };
            let bytes = budget.device(id).max(PAGE);
            let device = MemoryDevice::new(id, bytes, arena.clone(), settings, None).expect("memory");
            let streams = device.streams();
            let device: Box<dyn Device> = match course.uploads_last {
                true => Box::new(UploadsLast { device, held: Vec::new(), polls: 0 }),
                false => Box::new(device),
            };
            (DevicePart { id, bytes, device }, (id, streams))
        };
        let (devices, streams) = [DeviceId(0), DeviceId(1)].map(device).into_iter().unzip();
        let parts = Parts {
            io,
            arena: arena.clone(),
            layout,
            regions: regions.clone(),
            volumes: if course.has_disk { vec!["image".into()] } else { Vec::new() },
            transfer_bytes: 8192,
            unplanned_bytes: UNPLANNED,
            devices,
            table,
            superblock,
        };
        let mut core = Core::new(parts);
        core.command(Command::Place { residency: plan.exit.clone() });
        let answer = core.next_event();
        assert!(matches!(answer, Some(Event::Placed(Ok(())))), "{answer:?}");
        let pages = (0..3).flat_map(|region| (0..PAGES).map(move |page| (region, page)));
        let stamps: Stamps = pages.map(|(r, p)| ((r, p), if r == 1 { None } else { Some(0) })).collect();
        World {
            core,
            arena,
            streams,
            plan,
            regions,
            course,
            numbers,
            ready: BTreeMap::new(),
            tickets: BTreeMap::new(),
            visitor: tickets::Visitor::default(),
            leases: Vec::new(),
            commits: vec![stamps.clone()],
            stamps,
            next_stamp: 1,
            acknowledged: 0,
            begun: 0,
            mark: None,
            loaded: BTreeSet::new(),
            links: Links::default(),
            seen: Seen::default(),
        }
    }

    /// The store at its last commit, in another process with another plan.
    fn reopened(&self, seed: u64) -> World {
        assert_eq!(self.acknowledged, self.begun, "no commit is being made");
        let mut again = World::open(seed, self.course, self.core.io().volume(0).to_vec());
        again.stamps = self.commits[self.begun].clone();
        again.stamps.iter_mut().filter(|((region, _), _)| *region == 1).for_each(|(_, stamp)| *stamp = None);
        again.next_stamp = self.next_stamp;
        again.commits = self.commits.clone();
        (again.acknowledged, again.begun) = (self.acknowledged, self.begun);
        again
    }

    /// Steps once and takes in what happened.
    fn step(&mut self) -> Result<(), Stopped> {
        self.core.step();
        let is_late = |i: &super::Interval| i.device.is_some_and(|device| self.core.devices[device].is_late(i.seq));
        self.seen.late += u64::from(self.core.live.iter().any(is_late));
        if self.numbers.below(8) == 0 {
            self.core.audit();
        }
        self.listen()
    }

    fn listen(&mut self) -> Result<(), Stopped> {
        while let Some(event) = self.core.next_event() {
            match event {
                Event::Ready { seq, offset, after, .. } => {
                    self.ready.insert(seq, Ok((offset, after)));
                }
                Event::Failed { seq, error } => {
                    self.ready.insert(seq, Err(error));
                }
                Event::Recall { seq } => {
                    let taken = self.ready.remove(&seq).is_none();
                    self.core.command(Command::Recalled { seq, taken });
                }
                Event::TicketReady { ticket, offset, .. } => {
                    self.tickets.insert(ticket, Ok(offset));
                }
                Event::TicketFailed { ticket, error } => {
                    self.tickets.insert(ticket, Err(error));
                }
                Event::Committed { note, .. } => {
                    self.acknowledged = u32::from_le_bytes(note.try_into().expect("four bytes")) as usize;
                    self.seen.commits += 1;
                }
                Event::CommitRefused(error) => {
                    self.dump();
                    panic!("a commit was refused: {error}");
                }
                Event::Poisoned { .. } => return Err(Stopped),
                Event::Placed(_) | Event::Begun(_) => unreachable!("nobody asked: {event:?}"),
            }
        }
        Ok(())
    }

    fn until<T>(&mut self, mut found: impl FnMut(&mut World) -> Option<T>) -> Result<T, Stopped> {
        let mut was_at_rest = false;
        for step in 0..STEPS_MAX {
            // A ticket may keep an access waiting until it is given back.
            if step > 200 && step % 10 == 0 && self.visitor_holds() {
                self.visit_by_ticket();
                was_at_rest = false;
            }
            if let Some(found) = found(self) {
                return Ok(found);
            }
            self.step()?;
            // Where nothing is in flight the reactor sleeps until somebody wakes it.
            let is_at_rest = self.core.is_idle();
            assert!(is_at_rest || !was_at_rest, "a step was left over that nothing would have woken");
            was_at_rest = is_at_rest;
        }
        self.dump();
        panic!("nothing of what is waited for within {STEPS_MAX} steps: a deadlock");
    }

    /// What is live, for whoever reads a failure.
    fn dump(&self) {
        for i in &self.core.live {
            let what = (i.mode, i.kind, i.device, i.home, i.state(), i.relay, i.kept_for, i.released);
            eprintln!("{} of {:?}: {what:?}", i.seq, i.run);
        }
    }

    fn stamp(&self, run: Run, page: u32) -> Option<u64> {
        self.stamps[&(run.region.0, page)]
    }

    /// The stamps that a run must hold, from its first page on; None if it cannot be read.
    fn expected(&self, run: Run) -> Option<Vec<u64>> {
        (run.first..run.end()).map(|page| self.stamp(run, page)).collect()
    }

    /// New stamps for a run.
    fn restamp(&mut self, run: Run) -> Vec<u64> {
        let stamps: Vec<u64> = (0..u64::from(run.count)).map(|page| self.next_stamp + page).collect();
        self.next_stamp += stamps.len() as u64;
        for (page, stamp) in (run.first..).zip(&stamps) {
            self.stamps.insert((run.region.0, page), Some(*stamp));
        }
        stamps
    }

    fn begin(&mut self, announce: bool) -> Result<u64, Stopped> {
        self.core.command(Command::Begin { plan: self.plan.clone(), next: announce.then(|| self.plan.clone()) });
        for _ in 0..STEPS_MAX {
            // The answer is among other events.
            let at = self.core.events.iter().position(|event| matches!(event, Event::Begun(_)));
            if let Some(at) = at {
                let Some(Event::Begun(answer)) = self.core.events.remove(at) else { unreachable!("just found") };
                return match answer {
                    Err(Error::Poisoned { .. }) => Err(Stopped),
                    answer => Ok(answer.expect("the plan is executed")),
                };
            }
            self.listen()?;
            self.core.step();
        }
        panic!("the sweep does not begin: a deadlock");
    }

    /// One sweep: all nodes in their order.
    fn sweep(&mut self, announce: bool) -> Result<(), Stopped> {
        let base = self.begin(announce)?;
        let plan = self.plan.clone();
        self.mark = None;
        for (node, what) in plan.schedule.nodes.iter().enumerate() {
            match what {
                Node::Access(_) => {
                    let index = plan.intervals.iter().position(|i| i.node as usize == node).expect("an interval each");
                    self.access(base, index)?;
                }
                Node::Commit => self.commit_at_mark(node)?,
                Node::Work { .. } => {}
            }
            for _ in 0..self.numbers.below(3) {
                self.step()?;
            }
            if self.course.tickets && self.numbers.below(2) == 0 {
                self.visit_by_ticket();
            }
            while let Some(at) = self.leases.iter().position(|l| plan.intervals[l.index].release as usize == node) {
                let lease = self.leases.remove(at);
                self.give_back(lease);
            }
        }
        assert!(self.leases.is_empty(), "every lease has its end in the schedule");
        self.core.command(Command::End);
        Ok(())
    }

    fn access(&mut self, base: u64, index: usize) -> Result<(), Stopped> {
        let (seq, interval) = (base + index as u64, self.plan.intervals[index]);
        if self.numbers.below(1000) < self.course.passed {
            self.core.command(Command::Release { seq, changed: false });
            self.ready.remove(&seq);
            return Ok(());
        }
        if !self.ready.contains_key(&seq) {
            self.core.command(Command::Reached { seq });
        }
        let answer = self.until(|world| world.ready.remove(&seq))?;
        let expected = self.expected(interval.run);
        match answer {
            Ok((offset, after)) => self.use_lease(seq, index, (offset, after), expected),
            Err(error) => {
                let is_undefined = interval.mode.reads() && expected.is_none();
                assert!(is_undefined && matches!(error, Error::Misuse { .. }), "{interval:?}: {error}");
                self.seen.undefined += 1;
                self.core.command(Command::Release { seq, changed: false });
            }
        }
        Ok(())
    }

    /// Checks and, at once or at its end, changes what a lease is for.
    fn use_lease(&mut self, seq: u64, index: usize, (offset, after): (u64, After), expected: Option<Vec<u64>>) {
        let interval = self.plan.intervals[index];
        let stream = Stream(1 + self.numbers.below(2));
        match interval.is_on_device() {
            true => self.streams(interval.tier).wait(stream, after).expect("a device in RAM"),
            false => assert_eq!(after, After::default(), "{interval:?}"),
        }
        self.seen.early += u64::from(after.upload > 0);
        self.seen.behind += u64::from(after.fences);
        let changed = interval.mode.writes() && self.numbers.below(1000) >= self.course.unchanged;
        let mut lease = Lease { seq, index, offset, stream, changed, is_written: false };
        if interval.mode.reads() {
            let expected = expected.unwrap_or_else(|| panic!("{interval:?} gives what was never written"));
            self.count_up(&interval);
            self.check(&lease, expected);
        }
        // Bytes that nobody has read count as read: a relay takes what is there.
        if changed && self.numbers.below(2) == 0 && !self.is_source(&interval) {
            self.write(&mut lease);
        }
        self.seen.on_device += u64::from(interval.is_on_device());
        self.seen.relayed += u64::from(interval.relay.is_some());
        self.seen.in_vram += u64::from(interval.is_on_device() && interval.home.tier() == interval.tier);
        self.seen.from_vram += u64::from(!interval.is_on_device() && matches!(interval.home, Home::Device { .. }));
        self.leases.push(lease);
    }

    /// Whether a relay takes bytes while the lease lasts: then they change after it.
    fn is_source(&self, interval: &Interval) -> bool {
        interval.kept_for.is_some_and(|relay| self.plan.intervals[relay as usize].node < interval.release)
    }

    fn count_up(&mut self, interval: &Interval) {
        let (before, _) = if interval.is_on_device() { interval.link_bytes() } else { (0, 0) };
        self.links.up += before;
        if let Home::Device { .. } = interval.home {
            let is_first = self.loaded.insert(interval.run);
            match interval.is_on_device() {
                // What was never written is made of zeros there.
                true => {
                    let is_there = self.expected(interval.run).is_some_and(|stamps| stamps.iter().any(|s| *s > 0));
                    self.links.up += if is_first && is_there { interval.bytes } else { 0 };
                }
                // What is not loaded comes from disk, and stays unloaded.
                false if is_first => drop(self.loaded.remove(&interval.run)),
                false => self.links.down += interval.bytes,
            }
        }
    }

    fn count_down(&mut self, interval: &Interval) {
        let (up, down) = interval.link_bytes();
        match interval.is_on_device() {
            true => self.links.down += down,
            false => self.links.up += up,
        }
        self.loaded.insert(interval.run);
    }

    fn streams(&self, tier: Tier) -> &MemoryStreams {
        let found = self.streams.iter().find(|(id, _)| Tier::Device(*id) == tier);
        &found.expect("a device of the test").1
    }

    fn check(&self, lease: &Lease, expected: Vec<u64>) {
        let interval = self.plan.intervals[lease.index];
        let what = format!("interval {} {interval:?}", lease.seq);
        let offset = lease.offset;
        let all = move |bytes: &[u8]| {
            for (page, stamp) in bytes.chunks_exact(PAGE as usize).zip(&expected) {
                check_bytes(page, *stamp, &what);
            }
        };
        if interval.is_on_device() {
            let work = move |vram: &mut [u8]| all(&vram[offset as usize..][..interval.bytes as usize]);
            self.streams(interval.tier).enqueue(lease.stream, Box::new(work));
        } else {
            all(self.arena.slice(&FrameRef::new(offset, interval.bytes as u32)));
        }
    }

    fn write(&mut self, lease: &mut Lease) {
        let interval = self.plan.intervals[lease.index];
        let stamps = self.restamp(interval.run);
        lease.is_written = true;
        let offset = lease.offset;
        let all = move |bytes: &mut [u8]| {
            for (page, stamp) in bytes.chunks_exact_mut(PAGE as usize).zip(&stamps) {
                stamp_bytes(page, *stamp);
            }
        };
        if interval.is_on_device() {
            let work = move |vram: &mut [u8]| all(&mut vram[offset as usize..][..interval.bytes as usize]);
            self.streams(interval.tier).enqueue(lease.stream, Box::new(work));
        } else {
            all(self.arena.slice_mut(&mut FrameMut::new(offset, interval.bytes as u32)));
        }
    }

    fn give_back(&mut self, mut lease: Lease) {
        let interval = self.plan.intervals[lease.index];
        if lease.changed && !lease.is_written {
            self.write(&mut lease);
        }
        if lease.changed {
            self.count_down(&interval);
        }
        let Lease { seq, changed, stream, .. } = lease;
        if !interval.is_on_device() {
            return self.core.command(Command::Release { seq, changed });
        }
        let fence = self.streams(interval.tier).record(stream).expect("a device in RAM");
        self.core.command(Command::ReleaseBehind { seq, changed, fence });
    }

    fn commit_at_mark(&mut self, node: usize) -> Result<(), Stopped> {
        // Of marks without an access between them the first alone is one.
        let accesses = self.plan.intervals.iter().filter(|i| (i.node as usize) < node).count();
        if self.mark.replace(accesses) == Some(accesses) {
            return Ok(());
        }
        let writes = |l: &Lease| {
            let interval = self.plan.intervals[l.index];
            interval.mode.writes() && interval.run.region.0 != 1
        };
        let writes = self.leases.iter().any(writes) || self.visitor_writes();
        if !self.course.has_disk || writes || self.numbers.below(4) == 0 {
            return Ok(());
        }
        self.until(|world| (world.acknowledged == world.begun).then_some(()))?;
        self.commit();
        Ok(())
    }

    fn commit(&mut self) {
        self.begun += 1;
        self.commits.push(self.stamps.clone());
        self.core.command(Command::Commit { note: (self.begun as u32).to_le_bytes().to_vec() });
    }

    /// Waits until nothing moves any more and everything is given back.
    fn quiet(&mut self) -> Result<(), Stopped> {
        self.until(|world| (world.core.is_idle() && world.core.live.is_empty()).then_some(()))?;
        self.core.audit();
        Ok(())
    }

    /// Sweeps, a commit, and, with another plan over the same placement, accesses in RAM to everything.
    fn live(&mut self) -> Result<(), Stopped> {
        for sweep in 0..3 {
            self.sweep(sweep < 2 && self.plan.schedule.cyclic)?;
            if self.course.has_disk && self.numbers.below(3) == 0 {
                self.visitor_leaves()?;
                self.until(|world| (world.acknowledged == world.begun).then_some(()))?;
                self.commit();
            }
        }
        self.visitor_leaves()?;
        self.until(|world| (world.acknowledged == world.begun).then_some(()))?;
        if self.numbers.below(2) == 0 {
            self.quiet()?;
        }
        if let Some(plan) = self.visit() {
            self.plan = plan;
            self.sweep(false)?;
            self.visitor_leaves()?;
            self.quiet()?;
        }
        if self.course.has_disk {
            self.commit();
            self.until(|world| (world.acknowledged == world.begun).then_some(()))?;
        }
        self.quiet()
    }

    /// A plan that reads or updates every run of the present one in RAM, with the same placement.
    fn visit(&mut self) -> Option<Arc<Plan>> {
        let mut schedule = Schedule::default();
        let runs: BTreeSet<Run> = self.plan.intervals.iter().map(|interval| interval.run).collect();
        for run in runs {
            let mode = if run.region.0 == 2 || self.numbers.below(2) == 0 { Mode::Read } else { Mode::Update };
            schedule.access(run, mode, 0);
        }
        let entry = Residency { prefetched: Vec::new(), ..self.plan.exit.clone() };
        let devices = entry.devices.into_iter().map(|it| crate::plan::DeviceResidency { prefetched: Vec::new(), ..it });
        let entry = Residency { devices: devices.collect(), ..entry_without_devices(&self.plan.exit) };
        let has_disk = self.course.has_disk;
        let shape = Shape { regions: &self.regions, sweeps_per_commit: 1, prefetch_intervals_max: None, has_disk };
        let host_bytes = self.arena.bytes() - UNPLANNED - meta_bytes(&self.core.layout);
        let given = crate::plan::Budget { host_bytes, ..budget(0, 1 << 10) };
        plan(&Arc::new(schedule), &shape, &given, &profile(), &entry).ok().map(|(plan, _)| Arc::new(plan))
    }

    /// Every image of a power loss now, or of the death of the process.
    fn images(&self, seed: u64) -> Vec<Vec<u8>> {
        let io = self.core.io();
        let mut crashes = vec![Crash::NoneSurvive, Crash::AllSurvive, Crash::Torn];
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
        let commit = u32::from_le_bytes(note[..].try_into().expect("four bytes")) as usize;
        assert!([self.acknowledged, self.begun].contains(&commit), "commit {commit} came back");
        for ((region, page), expected) in &self.commits[commit] {
            let id = crate::id::RegionId(*region);
            if layout.kind(id) == Kind::Scratch {
                continue;
            }
            let entry = table[layout.global_page(id, *page) as usize];
            if entry.flags & WRITTEN == 0 {
                assert_eq!(*expected, Some(0), "page {page} was written and is said not to be");
                continue;
            }
            let side = if entry.flags & SECOND != 0 { Side::Second } else { Side::First };
            let bytes = &image.0[layout.extent(id, *page, side).offset as usize..][..PAGE as usize];
            check_bytes(bytes, expected.expect("not scratch"), &format!("page {page} of commit {commit}"));
            assert_eq!(crate::format::checksum::page_checksum(bytes), entry.checksum);
        }
    }
}

fn entry_without_devices(exit: &Residency) -> Residency {
    Residency { prefetched: Vec::new(), devices: Vec::new(), ..exit.clone() }
}

const _: () = assert!(UNPLANNED.is_multiple_of(BLOCK));
