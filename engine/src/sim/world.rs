//! A run: one store, and the processes that use it one after the other, each of which ends in order, is killed, loses
//! power or is stopped by a fault. What is left is inspected, and the next process opens it.

use super::inspect::{Held, LEAD, check_fit, inspect};
use super::life::{Life, Stop};
use super::oracle::{Oracle, Saved};
use super::plain::Plain;
use super::report::{Broken, Check, Mark, Report};
use super::swarm::Swarm;
use super::trace::Trace;
use super::work::{Store, Work};
use crate::error::Error;
use crate::format::superblock::SUPERBLOCK_AREA_BYTES;
use crate::format::{BLOCK, Entry, Layout, Superblock};
use crate::io::memory::disk::{Crash, Disk, Remains};
use crate::io::memory::fault::Faults;
use crate::io::memory::rng::SplitMix64;
use crate::io::memory::{MemoryIo, Settings};
use crate::store::renew::renew;
use crate::store::{blank, mark_unfinished, write_first_records};

/// Most processes of a run before the last, in which nothing fails any more.
const PROCESSES_MAX: u64 = 5;

/// Most images inspected at one power loss.
const IMAGES_MAX: u64 = 4;

/// Most events of a process that builds upon a commit that was never acknowledged, and then loses power.
const FRAGILE_EVENTS_MAX: u64 = 128;

/// Bytes that extents and page tables hold before they are written.
const OLD_BYTE: u8 = 0xee;

/// The choices of a run, by what they decide: drawing more of one kind shifts no other.
#[derive(Clone)]
pub(super) struct Streams {
    /// What users do.
    pub(super) work: SplitMix64,
    /// Who takes the next turn.
    pub(super) order: SplitMix64,
    /// What goes wrong on the disk.
    pub(super) fault: SplitMix64,
    /// When processes die, and what that leaves.
    pub(super) crash: SplitMix64,
    /// Which volume is replaced by an older one.
    pub(super) backup: SplitMix64,
    /// What users of tickets do.
    pub(super) users: SplitMix64,
}

/// Copies of all volumes at a commit.
#[derive(Clone)]
struct Backup {
    saved: Saved,
    volumes: Vec<Vec<u8>>,
}

/// A run.
#[derive(Clone)]
pub(super) struct World {
    pub(super) store: Store,
    pub(super) swarm: Swarm,
    pub(super) streams: Streams,
    pub(super) oracle: Oracle,
    pub(super) trace: Trace,
    pub(super) report: Report,
    backup: Option<Backup>,
}

/// How opening ended.
enum Opening {
    Open { superblock: Box<Superblock>, table: Vec<Entry>, disk: Disk },
    Crashed(Disk),
    Damaged,
}

/// When a process ends.
#[derive(Clone, Copy)]
pub(super) enum End {
    /// When its work is done.
    InOrder,
    /// After so many events of the disk.
    AfterEvents(u64),
    /// When a sync is submitted, after so many others.
    AtSync(u64),
}

/// What a process leaves.
pub(super) enum Left {
    /// It did not open the store, whose damage was told.
    Nothing,
    /// It died while it opened the store.
    Early(Disk),
    /// It ended in order, or was stopped.
    Ran { io: Box<MemoryIo>, is_closed: bool },
}

impl World {
    pub(super) fn new(seed: u64, rows_max: usize) -> World {
        let stream = |name| SplitMix64::named(seed, name);
        let store = Store::draw(&mut stream("store"), &mut stream("stripes"));
        World {
            oracle: Oracle::new(&store.regions),
            swarm: Swarm::draw(&mut stream("swarm"), store.layout.volumes()),
            store,
            streams: Streams {
                work: stream("work"),
                order: stream("order"),
                fault: stream("fault"),
                crash: stream("crash"),
                backup: stream("backup"),
                users: stream("users"),
            },
            trace: Trace::new(rows_max),
            report: Report::default(),
            backup: None,
        }
    }

    /// Runs all processes.
    pub(super) fn run(&mut self) -> Result<(), Broken> {
        let mut disk = self.new_disk();
        for _ in 0..1 + self.streams.crash.below(PROCESSES_MAX) {
            match self.process(disk)? {
                Some(left) => disk = left,
                None => return Ok(()),
            }
            self.rot(&mut disk);
        }
        match self.last_process(disk)? {
            Some(disk) => self.older_volume(disk),
            None => Ok(()),
        }
    }

    /// The volumes of a store that is about to be made. What fails twice, or has no copy, is spared; see `inspect`.
    pub(super) fn new_disk(&self) -> Disk {
        let layout = &self.store.layout;
        let volume = |volume: u16| {
            let records = if volume == LEAD { layout.table_offset(0) } else { SUPERBLOCK_AREA_BYTES };
            let mut bytes = vec![0; layout.total_bytes(volume) as usize];
            bytes[records as usize..].fill(OLD_BYTE);
            bytes
        };
        let mut disk = Disk::new((0..layout.volumes()).map(volume).collect());
        for volume in 0..layout.volumes() {
            for slot in 0..2 {
                disk.spare(volume, Layout::superblock_offset(slot, 1), BLOCK as usize);
            }
        }
        disk.spare(LEAD, layout.catalogue_offset + layout.catalogue_room, layout.catalogue_room as usize);
        disk
    }

    /// One process from open to end; what it leaves. `None`: the store is damaged beyond opening, and that was told.
    fn process(&mut self, disk: Disk) -> Result<Option<Disk>, Broken> {
        let early = self.streams.crash.thousandths(self.swarm.crash_early).then(|| {
            let reach = 1 << (1 + self.streams.crash.below(5));
            1 + self.streams.crash.below(reach)
        });
        // What is built upon a commit that was never acknowledged stands on what may not be durable.
        let is_fragile = self.oracle.begun.is_some() && self.streams.crash.below(2) == 0;
        let end = match is_fragile {
            true => End::AfterEvents(1 + self.streams.crash.below(FRAGILE_EVENTS_MAX)),
            false => self.draw_end(),
        };
        let (io, is_closed) = match self.start(disk, early.unwrap_or(u64::MAX), end)? {
            Left::Nothing => return Ok(None),
            Left::Early(disk) => return self.after_early_crash(disk).map(Some),
            Left::Ran { io, is_closed } => (io, is_closed),
        };
        if is_fragile || self.streams.crash.thousandths(self.swarm.power_loss) {
            return self.power_loss(&io).map(Some);
        }
        self.report.mark(if is_closed { Mark::Close } else { Mark::Kill });
        let disk = io.killed(self.streams.crash.draw());
        self.inspect(disk.remains())?;
        Ok(Some(disk))
    }

    fn draw_end(&mut self) -> End {
        let rng = &mut self.streams.crash;
        if !rng.thousandths(self.swarm.crash) {
            return End::InOrder;
        }
        // Around the syncs is where most is at stake.
        if rng.below(3) == 0 {
            let reach = 1 << rng.below(5);
            return End::AtSync(rng.below(reach));
        }
        let reach = 1 << (3 + rng.below(8));
        End::AfterEvents(1 + rng.below(reach))
    }

    /// One process, which dies after `early` writes and syncs while it opens the store, or later as `end` says.
    pub(super) fn start(&mut self, disk: Disk, early: u64, end: End) -> Result<Left, Broken> {
        let (superblock, table, disk) = match self.open(disk, early)? {
            Opening::Open { superblock, table, disk } => (*superblock, table, disk),
            Opening::Crashed(disk) => return Ok(Left::Early(disk)),
            Opening::Damaged => return Ok(Left::Nothing),
        };
        let work = Work::draw(&mut self.streams.work, &self.store, self.oracle.is_sealed());
        let settings = Settings {
            seed: self.streams.order.draw(),
            fault_seed: self.streams.fault.draw(),
            queue_depth: self.swarm.queue_depth,
            alignment: self.swarm.alignment,
            faults: self.swarm.faults,
            faulty: self.swarm.faulty,
        };
        let mut life = Life::new(self, work, disk, settings, superblock, table);
        match end {
            End::InOrder => {}
            End::AfterEvents(events) => life.core.io_mut().stop_after(events),
            End::AtSync(before) => life.core.io_mut().stop_at_sync(before),
        }
        let ending = life.live();
        if let Err(Stop::Poisoned) = ending {
            life.check_poison()?;
        }
        let io = Box::new(life.into_io());
        self.count(&io);
        match ending {
            Ok(()) => Ok(Left::Ran { io, is_closed: true }),
            Err(Stop::Crash | Stop::Poisoned) => Ok(Left::Ran { io, is_closed: false }),
            Err(Stop::Broken(broken)) => Err(broken),
        }
    }

    /// Faults are over: everything that is asked for succeeds, except where damage is. Gives what is left, if the store
    /// opens.
    fn last_process(&mut self, mut disk: Disk) -> Result<Option<Disk>, Broken> {
        disk.heal_bad();
        let (superblock, table, disk) = match self.open(disk, u64::MAX)? {
            Opening::Open { superblock, table, disk } => (*superblock, table, disk),
            Opening::Crashed(_) => unreachable!("nothing stops the last process"),
            Opening::Damaged => return Ok(None),
        };
        let mut work = Work::draw(&mut self.streams.work, &self.store, self.oracle.is_sealed());
        let reading = work.reading_all(&self.store);
        work.plans.push(reading);
        let settings = Settings { faults: Faults::default(), ..Settings::new(self.streams.order.draw()) };
        let mut life = Life::new(self, work, disk, settings, superblock, table);
        match life.read_all() {
            Ok(()) => {}
            Err(Stop::Broken(broken)) => return Err(broken),
            Err(Stop::Crash | Stop::Poisoned) => {
                return Err(Broken::new(Check::Errors, "a process without faults was stopped"));
            }
        }
        let io = life.into_io();
        self.count(&io);
        self.power_loss(&io).map(Some)
    }

    /// One of several volumes comes back from a backup. The store may open, at the lead's commit; its pages are those
    /// of that commit, or told to be damaged.
    fn older_volume(&mut self, disk: Disk) -> Result<(), Broken> {
        let volumes = disk.volumes();
        let Some(Backup { saved, volumes: old }) = self.backup.take().filter(|_| volumes > 1) else {
            return Ok(());
        };
        let volume = self.streams.backup.below(u64::from(volumes)) as u16;
        let mut world = World { report: Report::default(), trace: Trace::new(0), ..self.clone() };
        let doubtful = if volume == LEAD { 0..volumes } else { volume..volume + 1 };
        if volume == LEAD {
            world.oracle.acknowledged = Some(saved);
        }
        let ended = world.last_process(disk.restored(volume, &old[usize::from(volume)], doubtful));
        self.trace.row("older volume", None, [i64::from(volume), world.trace.hash() as i64, 0, 0]);
        self.report.add(&world.report);
        self.report.mark(Mark::OlderVolume);
        ended.map(drop)
    }

    fn count(&mut self, io: &MemoryIo) {
        self.report.events += io.events();
        self.report.faults.add(&io.counts());
    }

    /// Opens the store, or makes it, as the engine does. The process dies after `stop_after` writes and syncs.
    fn open(&mut self, disk: Disk, stop_after: u64) -> Result<Opening, Broken> {
        let held = inspect(&self.store, &self.oracle, disk.remains())?;
        let seed = self.streams.crash.draw();
        let (superblock, table, plain, early) = match held {
            Held::Damaged => {
                self.trace.row("damaged", None, [0; 4]);
                self.report.mark(Mark::DamagedTold);
                return Ok(Opening::Damaged);
            }
            Held::NoCommit => {
                let superblock = blank(&self.store.layout, &self.store.regions, [9; 16]);
                let plain = Plain::new(self.new_disk(), seed, stop_after);
                let written = self.create(&plain, &superblock);
                self.check_opened(&plain, written.map_err(|e| e.to_string()))?;
                (Box::new(superblock), Vec::new(), plain, Mark::CrashInCreation)
            }
            Held::At(superblock, table) => {
                check_fit(&self.store, disk.remains())?;
                let plain = Plain::new(disk, seed, stop_after);
                let renewed = renew(&plain.volume(LEAD), &superblock);
                self.check_opened(&plain, renewed.map_err(|e| e.to_string()))?;
                (superblock, table, plain, Mark::CrashInRecovery)
            }
        };
        self.report.events += plain.events();
        if plain.stopped() {
            self.report.mark(early);
            self.trace.row("crash at open", None, [plain.events() as i64, 0, 0, 0]);
            return Ok(Opening::Crashed(plain.into_disk()));
        }
        let commit = (!table.is_empty()).then_some(superblock.commit);
        let shown = commit.map_or(-1, |commit| commit as i64);
        self.trace.row("open", None, [shown, plain.events() as i64, 0, 0]);
        if let Some(begun) = &self.oracle.begun {
            let is_found = commit == Some(begun.commit);
            self.report.mark(if is_found { Mark::UnacknowledgedFound } else { Mark::UnacknowledgedLost });
        }
        self.oracle.opened(commit);
        let disk = plain.into_disk();
        if disk.volumes() > 1 {
            self.report.mark(Mark::SeveralVolumes);
            self.back_up(&disk);
        }
        Ok(Opening::Open { superblock, table, disk })
    }

    /// Makes the files of a store, as `Store::create` does.
    fn create(&self, plain: &Plain, lead: &Superblock) -> Result<(), Error> {
        let layout = &self.store.layout;
        for volume in 0..layout.volumes() {
            mark_unfinished(&plain.volume(volume))?;
        }
        for volume in 0..layout.volumes() {
            let superblock = Superblock { volume, ..lead.clone() };
            write_first_records(&plain.volume(volume), layout, &self.store.regions, &superblock)?;
        }
        Ok(())
    }

    /// Now and then somebody copies the volumes.
    fn back_up(&mut self, disk: &Disk) {
        if let Some(saved) = &self.oracle.acknowledged
            && (self.backup.is_none() || self.streams.backup.below(2) == 0)
        {
            let volumes = (0..disk.volumes()).map(|volume| disk.live(volume).to_vec()).collect();
            self.backup = Some(Backup { saved: saved.clone(), volumes });
        }
    }

    fn check_opened(&self, plain: &Plain, result: Result<(), String>) -> Result<(), Broken> {
        match result {
            Err(what) if !plain.stopped() => Err(Broken::new(Check::Errors, format!("opening failed: {what}"))),
            _ => Ok(()),
        }
    }

    fn after_early_crash(&mut self, disk: Disk) -> Result<Disk, Broken> {
        if !self.streams.crash.thousandths(self.swarm.power_loss) {
            return Ok(disk);
        }
        let crashes = self.draw_crashes(|volume| disk.unflushed_on(volume));
        let mut image = Vec::new();
        disk.crash_apart_into(std::iter::empty(), &crashes, &mut self.streams.crash, &mut image);
        self.inspect(disk.remains_of(&image))?;
        Ok(disk.restarted(image))
    }

    /// Inspects some of the images that a power loss now may leave; the last is what it leaves.
    fn power_loss(&mut self, io: &MemoryIo) -> Result<Disk, Broken> {
        self.report.mark(Mark::PowerLoss);
        self.trace.row("power loss", None, [io.unflushed() as i64, 0, 0, 0]);
        let mut image = Vec::new();
        for _ in 0..1 + self.streams.crash.below(IMAGES_MAX) {
            let crashes = self.draw_crashes(|volume| io.unflushed_on(volume));
            io.crash_apart_into(self.streams.crash.draw(), &crashes, &mut image);
            self.inspect(io.disk().remains_of(&image))?;
        }
        Ok(io.disk().restarted(image))
    }

    /// A crash of each volume, half of the time of the same kind.
    fn draw_crashes(&mut self, unflushed: impl Fn(u16) -> usize) -> Vec<Crash> {
        let volumes = self.store.layout.volumes();
        let rng = &mut self.streams.crash;
        let one = draw_crash(rng, unflushed(LEAD));
        let is_alike = volumes == 1 || rng.below(2) == 0;
        let others = (1..volumes).map(|volume| match draw_crash(rng, unflushed(volume)) {
            _ if is_alike && matches!(one, Crash::NoneSurvive | Crash::AllSurvive | Crash::Torn) => one,
            own => own,
        });
        [one].into_iter().chain(others).collect()
    }

    /// Inspects what a crash left.
    pub(super) fn inspect(&mut self, disk: Remains<'_>) -> Result<Held, Broken> {
        self.report.images += 1;
        inspect(&self.store, &self.oracle, disk)
    }

    /// Between two processes a bit may rot, or a sector cease to read.
    fn rot(&mut self, disk: &mut Disk) {
        let rng = &mut self.streams.fault;
        if !rng.thousandths(self.swarm.rot) {
            return;
        }
        let layout = &self.store.layout;
        let faulty: Vec<u16> = (0..layout.volumes()).filter(|volume| self.swarm.faulty >> volume & 1 == 1).collect();
        let volume = rng.pick(&faulty);
        let records = if volume == LEAD { layout.table_offset(2) } else { SUPERBLOCK_AREA_BYTES };
        // Half of the time among the records.
        let end = layout.total_bytes(volume);
        let (from, to) = if rng.below(2) == 0 || records == end { (0, records) } else { (records, end) };
        let at = from + rng.below(to - from);
        if disk.is_spared(volume, at, 1) {
            return;
        }
        self.trace.row("rot", None, [i64::from(volume), at as i64, 0, 0]);
        if rng.below(4) == 0 {
            disk.spoil(volume, at);
        } else {
            disk.rot(volume, at, rng.below(8) as u32);
        }
    }
}

/// A crash of one volume with so many writes that are not flushed.
pub(super) fn draw_crash(rng: &mut SplitMix64, unflushed: usize) -> Crash {
    let which = rng.below(unflushed.max(1) as u64) as usize;
    match rng.below(8) {
        0 => Crash::NoneSurvive,
        1 => Crash::AllSurvive,
        2 => Crash::OnlySurvivor(which),
        3 => Crash::OnlyLoss(which),
        4 => Crash::Prefix(which),
        _ => Crash::Torn,
    }
}
