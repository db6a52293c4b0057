//! One process: the core over the simulated disk, stepped one turn at a time, and what its users keep beside it. It
//! does what the reactor and its handle do in production, and checks all that the core says.

use super::inspect::path;
use super::oracle::{compare, fill};
use super::report::{Broken, Check, Mark};
use super::users::Users;
use super::work::Work;
use super::world::World;
use crate::arena::Arena;
use crate::config::Kind;
use crate::core::{Command, Core, Event, Parts, meta_bytes};
use crate::error::Error;
use crate::format::layout::Side;
use crate::format::{BLOCK, Entry, Superblock};
use crate::id::{Mode, RegionId, Run};
use crate::io::memory::disk::Disk;
use crate::io::memory::fault::{Effect, Fault};
use crate::io::memory::{MemoryIo, Settings};
use crate::io::{FrameMut, FrameRef};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Turns without any event after which nothing is expected to happen any more. A straggler sits out 200 polls, and a
/// refusal may repeat.
const PATIENCE: u64 = 5_000;

/// Turns that nothing takes, even while others keep the disk busy.
const ENDURANCE: u64 = 200_000;

/// Turns between two audits of the core's books.
const AUDIT_TURNS: u64 = 16;

/// Why a process does not go on.
pub(super) enum Stop {
    /// It was killed, or the power went.
    Crash,
    /// A write or sync failed.
    Poisoned,
    /// A check failed.
    Broken(Broken),
}

impl From<Broken> for Stop {
    fn from(broken: Broken) -> Stop {
        Stop::Broken(broken)
    }
}

/// A part of a process's work.
pub(super) type Going<T = ()> = Result<T, Stop>;

/// What a lease's holder has done with the bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Use {
    /// Only looks, or will give them back unchanged.
    Looks,
    /// Will fill them before giving them back.
    WillFill,
    /// Has filled them with these versions.
    Filled(Vec<u64>),
    /// Has spoiled them, and will give them back unchanged.
    Spoiled,
}

/// A lease that is held.
#[derive(Clone, Debug)]
pub(super) struct Lease {
    /// Of an access its number, of a ticket the user's.
    pub(super) seq: u64,
    pub(super) run: Run,
    pub(super) mode: Mode,
    /// Where it is given back at the latest.
    pub(super) release: u32,
    pub(super) used: Use,
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

/// An error, judged when it was told: what explains it may be gone later.
#[derive(Debug)]
pub(super) struct Told {
    error: Error,
    /// The last commit then.
    commit: u64,
    /// How much had been written then, for the oracle.
    writes: u64,
    /// Whether the disk explained it, if it is the disk's.
    is_explained: bool,
}

impl Told {
    pub(super) fn error(&self) -> &Error {
        &self.error
    }
}

/// What the core said of an access: offset and bytes, or an error.
type Published = Result<(u64, u64), Told>;

/// A running process.
pub(super) struct Life<'w> {
    pub(super) world: &'w mut World,
    pub(super) work: Work,
    pub(super) core: Core<MemoryIo>,
    pub(super) arena: Arc<Arena>,
    /// Published and not taken.
    pub(super) ready: BTreeMap<u64, Published>,
    pub(super) leases: Vec<Lease>,
    pub(super) users: Users,
    /// A commit is being made; accesses taken since it began.
    committing: Option<u64>,
    placed: Option<Result<(), Error>>,
    begun: Option<Result<u64, Error>>,
    /// A commit was asked for where it may be refused.
    is_stray: bool,
    turns: u64,
    quiet_turns: u64,
}

impl<'w> Life<'w> {
    /// Starts a process on an open store.
    pub(super) fn new(
        world: &'w mut World,
        work: Work,
        disk: Disk,
        settings: Settings,
        superblock: Superblock,
        table: Vec<Entry>,
    ) -> Life<'w> {
        let store = &world.store;
        let unplanned_bytes = if world.swarm.users > 0 { world.swarm.unplanned_blocks * BLOCK } else { 0 };
        let arena_bytes = work.arena_bytes + unplanned_bytes + meta_bytes(&store.layout);
        let arena = Arc::new(Arena::new(arena_bytes).expect("a small arena can be had"));
        let mut io = MemoryIo::on(Arc::clone(&arena), disk, settings);
        io.keep_record();
        let parts = Parts {
            io,
            arena: Arc::clone(&arena),
            layout: store.layout.clone(),
            regions: store.regions.clone(),
            volumes: (0..store.layout.volumes()).map(|volume| path(volume).to_path_buf()).collect(),
            unplanned_bytes,
            transfer_bytes: store.transfer_bytes,
            devices: Vec::new(),
            table,
            superblock,
        };
        Life {
            core: Core::new(parts),
            users: Users::new(world.swarm.users, work.arena_bytes, unplanned_bytes),
            world,
            work,
            arena,
            ready: BTreeMap::new(),
            leases: Vec::new(),
            committing: None,
            placed: None,
            begun: None,
            is_stray: false,
            turns: 0,
            quiet_turns: 0,
        }
    }

    /// Ends the process where it stands.
    pub(super) fn into_io(self) -> MemoryIo {
        self.core.into_io()
    }

    /// One turn of the engine's thread.
    pub(super) fn turn(&mut self) -> Going {
        self.world.trace.next_turn();
        self.turns += 1;
        self.quiet_turns += 1;
        self.core.step();
        for happened in self.core.io_mut().happened() {
            self.quiet_turns = 0;
            self.world.trace.disk(&happened);
        }
        if self.core.io().stopped() {
            return Err(Stop::Crash);
        }
        if self.turns.is_multiple_of(AUDIT_TURNS) {
            self.core.audit();
        }
        self.listen()?;
        if self.quiet_turns > PATIENCE {
            let what = format!("nothing happens any more, in turn {}", self.turns);
            return Err(Broken::new(Check::Liveness, what).into());
        }
        self.act_beside()
    }

    /// Takes in what the core has to say.
    fn listen(&mut self) -> Going {
        let mut poisoned = false;
        while let Some(event) = self.core.next_event() {
            self.quiet_turns = 0;
            if poisoned && is_success(&event) {
                return Err(Broken::new(Check::Poison, format!("after a failed write or sync: {event:?}")).into());
            }
            poisoned |= matches!(event, Event::Poisoned { .. });
            self.take_in(event)?;
        }
        if poisoned { Err(Stop::Poisoned) } else { Ok(()) }
    }

    /// Some turns, as the scheduler likes.
    pub(super) fn turns(&mut self) -> Going {
        for _ in 0..self.world.streams.order.below(self.world.swarm.turns_max + 1) {
            self.turn()?;
        }
        // A user that never waits leaves nothing to patience.
        self.quiet_turns = 0;
        Ok(())
    }

    fn take_in(&mut self, event: Event) -> Going {
        let trace = &mut self.world.trace;
        match event {
            Event::Placed(answer) => self.placed = Some(answer),
            Event::Begun(answer) => self.begun = Some(answer),
            Event::Ready { seq, offset, bytes, .. } => {
                trace.row("ready", None, [seq as i64, offset as i64, bytes as i64, 0]);
                self.ready.insert(seq, Ok((offset, bytes)));
            }
            Event::Failed { seq, error } => {
                trace.row("failed", None, [seq as i64, 0, 0, 0]);
                let told = self.told(error);
                self.ready.insert(seq, Err(told));
            }
            Event::Recall { seq } => self.users.recalled(seq),
            Event::TicketReady { ticket, offset, bytes } => {
                trace.row("ticket ready", None, [ticket as i64, offset as i64, bytes as i64, 0]);
                self.ticket_ready(ticket, offset, bytes)?;
            }
            Event::TicketFailed { ticket, error } => {
                trace.row("ticket failed", None, [ticket as i64, 0, 0, 0]);
                let told = self.told(error);
                self.ticket_failed(ticket, &told)?;
            }
            Event::Committed { commit, note } => {
                trace.row("committed", None, [commit.0 as i64, 0, 0, 0]);
                self.committed(commit.0, &note)?;
            }
            Event::CommitRefused(error) => {
                trace.row("commit refused", None, [0; 4]);
                if !self.is_stray {
                    return Err(Broken::new(Check::Errors, format!("a commit was refused: {error}")).into());
                }
                self.world.report.mark(Mark::CommitRefused);
                self.world.oracle.commit_refused();
                self.committing = None;
            }
            Event::Poisoned { first } => {
                trace.row("poisoned", None, [0; 4]);
                if self.core.io().counts().with(Effect::Told) == 0 {
                    return Err(Broken::new(Check::Errors, format!("poisoned without a reason: {first}")).into());
                }
                self.world.report.mark(Mark::Poisoned);
            }
        }
        Ok(())
    }

    fn committed(&mut self, commit: u64, note: &[u8]) -> Going {
        let expected = self.world.oracle.begun.as_ref();
        if !expected.is_some_and(|saved| saved.commit == commit && saved.note == note) {
            return Err(Broken::new(Check::Recovery, format!("commit {commit} was not begun")).into());
        }
        self.world.oracle.commit_done();
        self.world.report.mark(Mark::Commit);
        if self.committing.take().is_some_and(|taken| taken > 0) {
            self.world.report.mark(Mark::CommitBesideSweep);
        }
        Ok(())
    }

    fn told(&self, error: Error) -> Told {
        let oracle = &self.world.oracle;
        let commit = oracle.acknowledged.as_ref().map_or(0, |saved| saved.commit);
        let is_explained = self.is_explained(&error);
        Told { error, commit, writes: oracle.writes, is_explained }
    }

    /// Whether the disk explains an error that is the disk's.
    fn is_explained(&self, error: &Error) -> bool {
        let disk = self.core.io().disk().remains();
        match error {
            Error::Corrupt { region, page, .. } => {
                let region = self.world.store.regions.iter().position(|spec| spec.name == *region);
                region.is_some_and(|region| {
                    let page = Run { region: RegionId(region as u32), first: *page, count: 1 };
                    self.world.store.layout.contains(page)
                        && self.extents(page).any(|(v, at, n)| disk.is_suspect(v, at, n))
                })
            }
            Error::Io { path: at, offset, bytes, .. } => {
                let volume = (0..self.world.store.layout.volumes()).find(|volume| path(*volume) == at);
                let is_bad = volume.is_some_and(|volume| disk.is_bad(volume, *offset, *bytes as usize));
                is_bad || self.core.io().counts().of(Fault::Eio) > 0
            }
            _ => false,
        }
    }

    /// Turns until `is_done`.
    pub(super) fn until(&mut self, is_done: impl Fn(&Life<'_>) -> bool) -> Going {
        self.quiet_turns = 0;
        for _ in 0..ENDURANCE {
            if is_done(self) {
                return Ok(());
            }
            self.turn()?;
        }
        Err(Broken::new(Check::Liveness, format!("no end within {ENDURANCE} turns, in turn {}", self.turns)).into())
    }

    /// Adopts the placement of the plans.
    pub(super) fn place(&mut self) -> Going {
        let exit = &self.work.plans[0].exit;
        self.core.command(Command::Place { residency: exit.clone() });
        self.until(|life| life.placed.is_some())?;
        match self.placed.take() {
            Some(Ok(())) => Ok(()),
            other => Err(Broken::new(Check::Errors, format!("placement: {other:?}")).into()),
        }
    }

    /// Begins a sweep; the answer.
    pub(super) fn begin(&mut self, plan: usize, next: Option<usize>) -> Going<Result<u64, Error>> {
        let next_row = next.map_or(-1, |next| next as i64);
        self.world.trace.row("begin", None, [plan as i64, next_row, 0, 0]);
        let next = next.map(|next| Arc::clone(&self.work.plans[next]));
        self.core.command(Command::Begin { plan: Arc::clone(&self.work.plans[plan]), next });
        self.until(|life| life.begun.is_some())?;
        Ok(self.begun.take().expect("just seen"))
    }

    /// Asks for an access and takes its lease, or its failure, which gives it back.
    pub(super) fn take(&mut self, seq: u64, run: Run, mode: Mode, release: u32) -> Going<Result<(), Told>> {
        if self.ready.contains_key(&seq) {
            self.world.report.mark(Mark::TakenAtOnce);
        } else {
            self.core.command(Command::Reached { seq });
            self.until(|life| life.ready.contains_key(&seq))?;
        }
        if let Some(taken) = &mut self.committing {
            *taken += 1;
        }
        match self.ready.remove(&seq).expect("just seen") {
            Err(error) => {
                self.core.command(Command::Release { seq, changed: false });
                Ok(Err(error))
            }
            Ok((offset, bytes)) => {
                self.world.trace.row("take", Some(run), [seq as i64, offset as i64, i64::from(mode.writes()), 0]);
                let mut lease = Lease { seq, run, mode, release, used: Use::Looks, offset, bytes };
                self.admit(&lease)?;
                let swarm = &self.world.swarm;
                if mode.writes() && !self.world.streams.work.thousandths(swarm.discard) {
                    lease.used = Use::WillFill;
                    if self.world.streams.work.below(2) == 0 {
                        self.fill(&mut lease);
                    }
                }
                self.leases.push(lease);
                Ok(Ok(()))
            }
        }
    }

    /// Checks a lease that is about to be held, by whomever.
    pub(super) fn admit(&self, lease: &Lease) -> Going {
        if self.world.store.layout.run_bytes(lease.run) != lease.bytes {
            return Err(Broken::new(Check::Memory, format!("{lease:?}: not the bytes of its run")).into());
        }
        let meets = |a: &Lease, b: &Lease| a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
        let shares = |other: &Lease| meets(other, lease) || other.run.overlaps(&lease.run);
        let clash = |other: &&Lease| shares(other) && (other.mode.writes() || lease.mode.writes());
        if let Some(other) = self.leases.iter().chain(self.users.leases()).find(clash) {
            return Err(Broken::new(Check::Memory, format!("{lease:?} overlaps {other:?}")).into());
        }
        if lease.mode.reads() {
            self.check_bytes(lease)?;
        }
        Ok(())
    }

    pub(super) fn fill(&mut self, lease: &mut Lease) {
        let versions = self.world.oracle.new_versions(lease.run);
        let pages = self.world.oracle.pages(lease.run);
        let mut frame = FrameMut::new(lease.offset, lease.bytes as u32);
        let page_bytes = (lease.bytes / u64::from(lease.run.count)) as usize;
        let bytes = self.arena.slice_mut(&mut frame).chunks_exact_mut(page_bytes);
        for ((page, version), bytes) in pages.zip(&versions).zip(bytes) {
            fill(page, *version, bytes);
        }
        lease.used = Use::Filled(versions);
    }

    /// Compares a lease's bytes with what they should be by now.
    fn check_bytes(&self, lease: &Lease) -> Going {
        let frame = FrameRef::new(lease.offset, lease.bytes as u32);
        let page_bytes = (lease.bytes / u64::from(lease.run.count)) as usize;
        let bytes = self.arena.slice(&frame).chunks_exact(page_bytes);
        for (n, (page, bytes)) in self.world.oracle.pages(lease.run).zip(bytes).enumerate() {
            let version = match &lease.used {
                Use::Filled(versions) => Some(versions[n]),
                _ => self.world.oracle.working[page],
            };
            compare(page, version, bytes).map_err(|what| Broken::new(Check::Bytes, format!("{lease:?}: {what}")))?;
        }
        Ok(())
    }

    /// Gives a lease back.
    pub(super) fn give_back(&mut self, index: usize) -> Going {
        let lease = self.leases.swap_remove(index);
        let seq = lease.seq;
        let changed = self.returned(lease)?;
        self.core.command(Command::Release { seq, changed });
        Ok(())
    }

    /// Checks a lease that goes back, and says whether its bytes were changed.
    pub(super) fn returned(&mut self, mut lease: Lease) -> Going<bool> {
        let is_looked_at = lease.mode.reads() && lease.used != Use::Spoiled;
        if is_looked_at || matches!(lease.used, Use::Filled(_)) {
            self.check_bytes(&lease)?;
        }
        if lease.used == Use::WillFill {
            self.fill(&mut lease);
        }
        let versions = match &lease.used {
            Use::Filled(versions) => Some(versions),
            _ => None,
        };
        let changed = versions.is_some();
        self.world.trace.row("give back", Some(lease.run), [lease.seq as i64, i64::from(changed), 0, 0]);
        if let Some(versions) = versions {
            self.world.oracle.wrote(lease.run, versions);
        } else if lease.mode.writes() {
            self.world.report.mark(Mark::Discarded);
        }
        Ok(changed)
    }

    /// Passes over an access.
    pub(super) fn pass(&mut self, seq: u64) {
        self.ready.remove(&seq);
        self.world.report.mark(Mark::PassedOver);
        self.core.command(Command::Release { seq, changed: false });
    }

    /// Waits for the commit being made, if one is.
    pub(super) fn commit_awaited(&mut self) -> Going {
        self.until(|life| life.committing.is_none())
    }

    /// Begins a commit; `is_stray`: it may be refused. While a writing ticket is held it must be.
    pub(super) fn commit(&mut self, is_stray: bool) -> Going {
        self.commit_awaited()?;
        self.listen()?;
        let must_refuse = self.users.is_writing(&self.world.store);
        let is_stray = is_stray || must_refuse;
        let rng = &mut self.world.streams.work;
        let length = if rng.below(8) == 0 { rng.below(9_000) } else { rng.below(40) };
        let note: Vec<u8> = (0..length).map(|_| rng.draw() as u8).collect();
        if self.world.oracle.commit_begun(note.clone()) {
            self.world.report.mark(Mark::PartialCommit);
        }
        self.world.trace.row("commit", None, [length as i64, i64::from(is_stray), 0, 0]);
        self.is_stray = is_stray;
        self.committing = Some(0);
        self.core.command(Command::Commit { note });
        if must_refuse {
            self.listen()?;
            if self.committing.is_some() {
                return Err(Broken::new(Check::Errors, "a commit began while a writing ticket was held").into());
            }
        }
        Ok(())
    }

    /// Whether a lease is held that a commit waits for.
    pub(super) fn holds_writing(&self) -> bool {
        let counts = |lease: &Lease| self.world.store.layout.kind(lease.run.region) != Kind::Scratch;
        self.leases.iter().any(|lease| lease.mode.writes() && counts(lease))
    }

    /// Ends a sweep, or gives it up.
    pub(super) fn end(&mut self, is_whole: bool) {
        self.world.trace.row(if is_whole { "end" } else { "abort" }, None, [0; 4]);
        self.core.command(if is_whole { Command::End } else { Command::Abort });
    }

    /// Whether the error of an access has a reason; the mark of the reason.
    pub(super) fn judge(&self, run: Run, mode: Mode, told: &Told) -> Result<Mark, Broken> {
        let Told { error, commit: last, writes, is_explained } = told;
        let world = &*self.world;
        let is_frozen = world.store.layout.kind(run.region) == Kind::Frozen;
        let mark = match error {
            Error::Misuse { .. } if mode.writes() && is_frozen && self.is_sealing() => Some(Mark::SealedRefused),
            Error::Misuse { .. } => {
                (mode.reads() && world.oracle.was_undefined(run, *writes)).then_some(Mark::UndefinedScratch)
            }
            Error::Corrupt { region, page, commit, .. } => {
                let is_named = *region == world.store.regions[run.region.0 as usize].name
                    && (run.first..run.end()).contains(page)
                    // The damage was found when one piece was read; commits may have ended before the others were.
                    && commit.0 <= *last;
                (is_named && *is_explained).then_some(Mark::CorruptTold)
            }
            Error::Io { .. } => is_explained.then_some(Mark::ReadErrorTold),
            _ => None,
        };
        let check = if matches!(error, Error::Misuse { .. }) { Check::Kinds } else { Check::Errors };
        mark.ok_or_else(|| Broken::new(check, format!("an access to {run}, {mode:?}: {error}")))
    }

    /// Whether the first commit was made or is being made.
    pub(super) fn is_sealing(&self) -> bool {
        self.world.oracle.is_sealed() || self.committing.is_some()
    }

    /// Whether an access that is about to be asked for must fail. A commit that may be refused says nothing yet.
    pub(super) fn is_barred(&self, run: Run, mode: Mode) -> bool {
        let is_frozen = self.world.store.layout.kind(run.region) == Kind::Frozen;
        let is_sealed = self.world.oracle.is_sealed() || (self.committing.is_some() && !self.is_stray);
        mode.writes() && is_frozen && is_sealed
    }

    /// Every place on a volume where the pages of the run may be: volume, offset, bytes.
    fn extents(&self, run: Run) -> impl Iterator<Item = (u16, u64, usize)> + '_ {
        let layout = &self.world.store.layout;
        let bytes = layout.page_bytes(run.region) as usize;
        (run.first..run.end()).flat_map(move |page| {
            [Side::First, Side::Second].into_iter().map(move |side| {
                let extent = layout.extent(run.region, page, side);
                (extent.volume, extent.offset, bytes)
            })
        })
    }

    /// After a failed write or sync: no call succeeds.
    pub(super) fn check_poison(&mut self) -> Result<(), Broken> {
        let plan = Arc::clone(&self.work.plans[0]);
        let exit = plan.exit.clone();
        self.core.command(Command::Place { residency: exit });
        self.core.command(Command::Commit { note: vec![1] });
        self.core.command(Command::Begin { plan, next: None });
        let run = Run { region: RegionId(0), first: 0, count: 1 };
        self.core.command(Command::Fetch { ticket: u64::MAX, run, mode: Mode::Read });
        for _ in 0..50 {
            self.core.step();
            if self.core.io().stopped() {
                return Ok(());
            }
            while let Some(event) = self.core.next_event() {
                if is_success(&event) {
                    return Err(Broken::new(Check::Poison, format!("after a failed write or sync: {event:?}")));
                }
            }
        }
        Ok(())
    }

    /// Turns until nothing is in flight.
    pub(super) fn drained(&mut self) -> Going {
        self.until(|life| life.core.is_idle())?;
        self.core.audit();
        Ok(())
    }
}

/// Whether a user may go on after this.
fn is_success(event: &Event) -> bool {
    let is_answer = matches!(event, Event::Placed(Ok(())) | Event::Begun(Ok(_)) | Event::Committed { .. });
    is_answer || matches!(event, Event::Ready { .. } | Event::TicketReady { .. })
}
