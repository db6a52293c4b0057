//! A life of the core: how it is opened, stepped and waited for, its sweeps and commits, and what is left of it after a
//! crash.

use super::links::Links;
use super::uploads_last::UploadsLast;
use super::{Course, PAGE, PAGES, STEPS_MAX, Seen, Stamps, Stopped, UNPLANNED, World, draw_plan, tickets};
use crate::arena::Arena;
use crate::config::Kind;
use crate::core::testing::image::{self, Image};
use crate::core::testing::stamps;
use crate::core::{Command, Core, DevicePart, Event, Parts, meta_bytes};
use crate::device::Device;
use crate::device::memory::{self, MemoryDevice};
use crate::error::Error;
use crate::format::{Layout, Stripes};
use crate::id::{DeviceId, Mode, RegionId, Run};
use crate::io::memory::{MemoryIo, Settings};
use crate::plan::tests::samples::{Numbers, three_regions};
use crate::plan::tests::tiers::{budget, profile};
use crate::plan::{DeviceResidency, Plan, Residency, Shape, plan};
use crate::schedule::Schedule;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

impl World {
    pub(super) fn new(seed: u64, course: Course) -> World {
        let regions = three_regions();
        World::open(seed, course, image::fresh(&regions))
    }

    /// A process on the store of an image, with a plan of its own.
    fn open(seed: u64, course: Course, image: Vec<u8>) -> World {
        let (regions, mut numbers) = (three_regions(), Numbers(seed));
        let (plan, budget) = draw_plan(&mut numbers, course, &regions);
        let layout = Layout::new(&regions, &Stripes::single());
        let arena_bytes = budget.host_bytes + UNPLANNED + meta_bytes(&layout);
        let arena = Arc::new(Arena::new(arena_bytes).expect("arena"));
        let image = Image(image);
        let (superblock, table, _) = image.opened(&regions);
        let images = if course.has_disk { vec![image.0] } else { Vec::new() };
        let io = MemoryIo::from_image(arena.clone(), images, Settings { queue_depth: 6, ..Settings::new(seed) });
        let device = |id: DeviceId| {
            let (failed_copy, idle) = (course.failed_copy, [0, 0, 700, 950][seed as usize / 6 % 4]);
            let settings = memory::Settings { failed_copy, idle, ..memory::Settings::new(seed) };
            let bytes = budget.device(id).max(PAGE);
            let device = MemoryDevice::new(id, bytes, arena.clone(), settings, None).expect("memory");
            let streams = device.streams();
            let device: Box<dyn Device> = match course.uploads_last {
                true => Box::new(UploadsLast::new(device)),
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
    pub(super) fn reopened(&self, seed: u64) -> World {
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
    pub(super) fn step(&mut self) -> Result<(), Stopped> {
        self.core.step();
        let is_late =
            |i: &crate::core::Interval| i.device.is_some_and(|device| self.core.devices[device].is_late(i.seq));
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

    pub(super) fn until<T>(&mut self, mut found: impl FnMut(&mut World) -> Option<T>) -> Result<T, Stopped> {
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
    pub(super) fn expected(&self, run: Run) -> Option<Vec<u64>> {
        (run.first..run.end()).map(|page| self.stamp(run, page)).collect()
    }

    /// New stamps for a run.
    pub(super) fn restamp(&mut self, run: Run) -> Vec<u64> {
        let stamps: Vec<u64> = (0..u64::from(run.count)).map(|page| self.next_stamp + page).collect();
        self.next_stamp += stamps.len() as u64;
        for (page, stamp) in (run.first..).zip(&stamps) {
            self.stamps.insert((run.region.0, page), Some(*stamp));
        }
        stamps
    }

    pub(super) fn begin(&mut self, announce: bool) -> Result<u64, Stopped> {
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

    /// Waits until nothing moves any more and everything is given back.
    pub(super) fn quiet(&mut self) -> Result<(), Stopped> {
        self.until(|world| (world.core.is_idle() && world.core.live.is_empty()).then_some(()))?;
        self.core.audit();
        Ok(())
    }

    /// Sweeps, a commit, and, with another plan over the same placement, accesses in RAM to everything.
    pub(super) fn live(&mut self) -> Result<(), Stopped> {
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
        let devices = entry.devices.into_iter().map(|it| DeviceResidency { prefetched: Vec::new(), ..it });
        let entry = Residency { devices: devices.collect(), ..entry_without_devices(&self.plan.exit) };
        let has_disk = self.course.has_disk;
        let shape = Shape { regions: &self.regions, sweeps_per_commit: 1, prefetch_intervals_max: None, has_disk };
        let host_bytes = self.arena.bytes() - UNPLANNED - meta_bytes(&self.core.layout);
        let given = crate::plan::Budget { host_bytes, ..budget(0, 1 << 10) };
        plan(&Arc::new(schedule), &shape, &given, &profile(), &entry).ok().map(|(plan, _)| Arc::new(plan))
    }

    /// Every image of a power loss now, or of the death of the process.
    pub(super) fn images(&self, seed: u64) -> Vec<Vec<u8>> {
        image::after_crashes(self.core.io(), seed, [1, 0])
    }

    /// The image must hold the last acknowledged commit or the one being made.
    pub(super) fn check_image(&self, image: Vec<u8>) {
        let image = Image(image);
        let Some((_, recovered)) = image.committed() else {
            assert_eq!(self.acknowledged, 0, "a commit was acknowledged and is gone");
            return;
        };
        let commit = u32::from_le_bytes(recovered.note[..].try_into().expect("four bytes")) as usize;
        assert!([self.acknowledged, self.begun].contains(&commit), "commit {commit} came back");
        for ((region, page), expected) in &self.commits[commit] {
            let region = RegionId(*region);
            if recovered.layout.kind(region) == Kind::Scratch {
                continue;
            }
            image.check_page(&recovered, region, *page, *expected == Some(0), |bytes| {
                let what = format_args!("page {page} of commit {commit}");
                stamps::check(bytes, expected.expect("not scratch"), what);
            });
        }
    }
}

fn entry_without_devices(exit: &Residency) -> Residency {
    Residency { prefetched: Vec::new(), devices: Vec::new(), ..exit.clone() }
}
