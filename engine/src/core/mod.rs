//! The deterministic heart: a state machine over intervals, pages and one commit.
//!
//! Commands and completions go in, operations and events come out. No thread, clock, system call, randomness or hash
//! map is in here, so the same inputs give the same outputs; the reactor steps it in production, tests step it over a
//! disk in memory.
//!
//! What it is not: it decides nothing about what to keep or when to fetch. The plan did.
//!
//! Invariants beside those of the parts:
//! - intervals become known in schedule order (`live` is contiguous in sequence numbers), and each ring gives its spans
//!   in that order; no ring waits for another;
//! - bytes of the arena, and of a device's allocation, are in at most one writing use: a fetch, a copy, a writing
//!   lease; never beside a reading one;
//! - nothing is written to a checkpointed extent between the start and the end of a commit, except what it commits;
//! - after the first failed write, sync or copy nothing is submitted any more;
//! - in steady state nothing is allocated per page, transfer or access (`engine/tests/allocations.rs` counts).

mod audit;
mod commit;
mod copies;
#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod device_tests;
mod download;
mod fetch;
mod frames;
mod interval;
mod pages;
mod pool;
mod recall;
mod relay;
mod ring;
mod runs;
mod staging;
mod sweeps;
#[cfg(test)]
mod testing;
mod ticket;
#[cfg(test)]
mod ticket_tests;
mod tickets;
mod transfer;
mod upload;
mod window;
mod writeback;

use crate::arena::Arena;
use crate::canary::{Canary, planted};
use crate::config::RegionSpec;
use crate::device::{After, Device, DeviceCompletion, Fence, Opened};
use crate::error::Error;
use crate::format::superblock::Ledger;
use crate::format::{Entry, Layout};
use crate::id::{CommitId, DeviceId, Mode, Run};
use crate::io::{Completion, Io, Op, OpId};
use crate::plan::{Plan, Residency};
use crate::stats::Stats;
use commit::Commit;
use copies::{Copies, Vram};
use interval::{Interval, State};
use pages::Pages;
use pool::Pool;
use ring::Ring;
use runs::Runs;
use rustix::io::Errno;
use staging::Staging;
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use sweeps::Sweeps;
use tickets::Tickets;
use transfer::Transfers;

pub(crate) use commit::meta_bytes;
pub(crate) use transfer::{InFlight, Move, Owner, Purpose};

/// Operations without progress before a transfer counts as failed.
const STALLS_MAX: u32 = 64;

/// Intervals reserved ahead of the newest access; bounds memory, not speed.
pub(crate) const AHEAD_MAX: u64 = 1024;

/// What users ask for.
#[derive(Debug)]
pub(crate) enum Command {
    /// Adopt a placement.
    Place { residency: Residency },
    /// Start a sweep.
    Begin { plan: Arc<Plan>, next: Option<Arc<Plan>> },
    /// The access with this number was asked for.
    Reached { seq: u64 },
    /// The lease of this access was given back, or the access passed over.
    Release { seq: u64, changed: bool },
    /// The lease of this access on a device was given back, as of when the fence has passed.
    ReleaseBehind { seq: u64, changed: bool, fence: Fence },
    /// A call of a device failed.
    Failed { first: String },
    /// Commit what was written so far.
    Commit { note: Vec<u8> },
    /// The sweep is over.
    End,
    /// The sweep is given up.
    Abort,
    /// Pages are asked for beside the plan, under a number of the user's own.
    Fetch { ticket: u64, run: Run, mode: Mode },
    /// Pages will be asked for.
    Prefetch { runs: Vec<Run> },
    /// A ticket or its lease was given back.
    GiveBack { ticket: u64, changed: bool },
    /// Answer to `Recall`: whether a user has the lease.
    Recalled { seq: u64, taken: bool },
}

/// What users are told.
#[derive(Debug)]
pub(crate) enum Event {
    /// Answer to `Place`.
    Placed(Result<(), Error>),
    /// Answer to `Begin`: number of the sweep's first access.
    Begun(Result<u64, Error>),
    /// The access's bytes may be used, on a device by a stream that has waited for what they are `after`.
    Ready { seq: u64, offset: u64, bytes: u64, after: After },
    /// The access's bytes cannot be had.
    Failed { seq: u64, error: Error },
    /// The access is not ready after all, unless a user has taken it.
    Recall { seq: u64 },
    /// The ticket's bytes may be used.
    TicketReady { ticket: u64, offset: u64, bytes: u64 },
    /// The ticket's bytes cannot be had.
    TicketFailed { ticket: u64, error: Error },
    /// A commit is durable.
    Committed { commit: CommitId, note: Vec<u8> },
    /// A commit was not started.
    CommitRefused(Error),
    /// The first failed write, sync or copy.
    Poisoned { first: String },
}

/// What a core is made of.
pub(crate) struct Parts<I> {
    pub(crate) io: I,
    pub(crate) arena: Arc<Arena>,
    pub(crate) layout: Layout,
    pub(crate) regions: Vec<RegionSpec>,
    /// Paths for error messages; their number is the number of volumes.
    pub(crate) volumes: Vec<PathBuf>,
    pub(crate) transfer_bytes: u32,
    /// Bytes of the arena for tickets.
    pub(crate) unplanned_bytes: u64,
    pub(crate) devices: Vec<DevicePart>,
    pub(crate) table: Vec<Entry>,
    /// The store's identity and last commit.
    pub(crate) superblock: crate::format::Superblock,
}

/// A device as a core gets it.
pub(crate) struct DevicePart {
    pub(crate) id: DeviceId,
    /// Bytes of its allocation.
    pub(crate) bytes: u64,
    pub(crate) device: Box<dyn Device>,
}

impl From<Opened> for DevicePart {
    fn from(opened: Opened) -> DevicePart {
        DevicePart { id: opened.id, bytes: opened.bytes, device: opened.device }
    }
}

/// The state machine.
pub(crate) struct Core<I> {
    io: I,
    arena: Arc<Arena>,
    layout: Layout,
    regions: Vec<RegionSpec>,
    volumes: Vec<PathBuf>,
    transfer_bytes: u32,
    pages: Pages,
    runs: Runs,
    /// The arena's window, behind the placed runs.
    window: Ring,
    /// Behind the window.
    staging: Staging,
    /// Bytes at the start of the arena that hold placed runs.
    placed_bytes: u64,
    devices: Vec<Vram>,
    copies: Copies,
    device_completions: Vec<DeviceCompletion>,
    /// Intervals from the oldest that is not free to the newest known.
    live: VecDeque<Interval>,
    sweeps: Sweeps,
    commit: Commit,
    tickets: Tickets,
    transfers: Transfers,
    completions: Vec<Completion>,
    events: VecDeque<Event>,
    stats: Stats,
    in_flight: InFlight,
    /// Operations that began or ended since they were taken; None: nobody wants to know.
    moves: Option<Vec<Move>>,
    /// Since open.
    moved: Ledger,
    poison: Option<String>,
}

impl<I: Io> Core<I> {
    /// A core over an open store. The end of the arena holds the store's own records, and before them is the part for
    /// tickets.
    pub(crate) fn new(parts: Parts<I>) -> Core<I> {
        let meta = meta_bytes(&parts.layout);
        let records = parts.arena.bytes().checked_sub(meta).expect("the arena was sized to hold the records");
        let planned = records.checked_sub(parts.unplanned_bytes).expect("the arena was sized to hold tickets");
        let page_bytes_min = parts.regions.iter().map(|r| r.page_bytes).min().unwrap_or(parts.transfer_bytes);
        let pages_max = (parts.transfer_bytes / page_bytes_min).max(1) as usize;
        Core {
            pages: Pages::new(&parts.layout, &parts.table),
            commit: Commit::new(parts.superblock, records),
            tickets: Tickets::new(Pool::new(planned, parts.unplanned_bytes)),
            window: Ring::new(0, planned),
            staging: Staging::new(planned, 0),
            placed_bytes: 0,
            devices: parts.devices.into_iter().map(Vram::from).collect(),
            copies: Copies::default(),
            device_completions: Vec::new(),
            io: parts.io,
            arena: parts.arena,
            layout: parts.layout,
            regions: parts.regions,
            volumes: parts.volumes,
            transfer_bytes: parts.transfer_bytes,
            runs: Runs::default(),
            live: VecDeque::new(),
            sweeps: Sweeps::default(),
            transfers: Transfers::new(pages_max),
            completions: Vec::new(),
            events: VecDeque::new(),
            stats: Stats::default(),
            in_flight: InFlight::default(),
            moves: None,
            moved: Ledger::default(),
            poison: None,
        }
    }

    /// Takes a command in.
    pub(crate) fn command(&mut self, command: Command) {
        match command {
            Command::Place { residency } => self.place(&residency),
            Command::Begin { plan, next } => self.begin(plan, next),
            Command::Reached { seq } => self.reached(seq),
            Command::Release { seq, changed } => self.release(seq, changed),
            Command::ReleaseBehind { seq, changed, fence } => self.release_behind(seq, changed, fence),
            Command::Failed { first } => self.poisoned(first),
            Command::Commit { note } => self.commit_start(note),
            Command::End => self.sweeps.end(),
            Command::Abort => self.abort(),
            Command::Fetch { ticket, run, mode } => self.ticket_fetch(ticket, run, mode),
            Command::Prefetch { runs } => self.prefetch(&runs),
            Command::GiveBack { ticket, changed } => self.ticket_release(ticket, changed),
            Command::Recalled { seq, taken } => self.recalled(seq, taken),
        }
    }

    /// Takes completions in, moves everything as far as it goes, submits what became possible.
    pub(crate) fn step(&mut self) {
        self.poll(None);
        self.advance();
        self.submit();
    }

    /// Sleeps until something completes, the waker is called or the time is over; `step` handles it.
    pub(crate) fn park(&mut self, wait: Duration) {
        self.poll(Some(wait));
    }

    /// Whether there is something to tell users.
    pub(crate) fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// The next thing to tell users.
    pub(crate) fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Whether nothing is in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.transfers.len() == 0 && self.copies.len() == 0
    }

    /// Counters so far.
    pub(crate) fn stats(&self) -> Stats {
        let window_peak_bytes = self.stats.window_peak_bytes.max(self.window.used_max());
        Stats { window_peak_bytes, ..self.stats }
    }

    /// Bytes that volumes and devices are moving.
    pub(crate) fn in_flight(&self) -> InFlight {
        self.in_flight
    }

    /// Notes what operations do from now on, or no more.
    pub(crate) fn note_moves(&mut self, wanted: bool) {
        if wanted != self.moves.is_some() {
            self.moves = wanted.then(Vec::new);
        }
    }

    /// Takes what operations did; None if there is nothing to tell.
    pub(crate) fn take_moves(&mut self) -> Option<std::vec::Drain<'_, Move>> {
        self.moves.as_mut().filter(|moves| !moves.is_empty()).map(|moves| moves.drain(..))
    }

    /// The backend, for tests and the simulation.
    pub(crate) fn io(&self) -> &I {
        &self.io
    }

    /// The backend, for tests and the simulation.
    pub(crate) fn io_mut(&mut self) -> &mut I {
        &mut self.io
    }

    /// Gives the backend up with everything that is in flight, as the death of the process would.
    pub(crate) fn into_io(self) -> I {
        self.io
    }

    fn poll(&mut self, wait: Option<Duration>) {
        let mut completions = std::mem::take(&mut self.completions);
        if let Err(error) = self.io.poll(&mut completions, wait) {
            self.poisoned(format!("the I/O backend failed: {error}"));
        }
        for completion in completions.drain(..) {
            self.complete(completion);
        }
        self.completions = completions;
        self.poll_devices();
    }

    fn advance(&mut self) {
        self.free_front();
        self.begin_deferred();
        self.reserve();
        // Who waits for an access of a sweep comes first, tickets before what is only fetched ahead.
        self.start_reserved(self.sweeps.cursor());
        self.start_tickets();
        self.start_reserved(u64::MAX);
        self.commit_advance();
        // Last: what was started, or held by the commit, may want room there.
        self.advance_staging();
    }

    fn submit(&mut self) {
        self.submit_copies();
        for queue in 0..2 {
            while let Some(&id) = self.transfers.queues_mut()[queue].front() {
                if self.poison.is_some() {
                    self.transfers.queues_mut()[queue].pop_front();
                    self.dropped(id);
                    continue;
                }
                let op = self.transfers.get_mut(id).op();
                let moving = InFlight::of(&op);
                match self.io.submit(id, op) {
                    Ok(()) => {
                        self.transfers.queues_mut()[queue].pop_front();
                        self.in_flight.add(moving);
                        self.note(id, None);
                    }
                    Err(back) => {
                        if let Op::Hash { digests, .. } = back {
                            self.transfers.get_mut(id).digests = digests;
                        }
                        break;
                    }
                }
            }
        }
    }

    /// Compares what happened with what was asked: short transfers go on, interrupted ones are repeated.
    fn complete(&mut self, completion: Completion) {
        let Completion { id, op, result } = completion;
        self.in_flight.remove(InFlight::of(&op));
        self.note(id, Some(result.as_ref().map_or(0, |moved| *moved)));
        let transfer = self.transfers.get_mut(id);
        if let Op::Hash { digests, .. } = op {
            transfer.digests = digests;
            return self.finished(id);
        }
        let moved = match result {
            Ok(moved) => moved,
            Err(e) if transfer.purpose != Purpose::Sync && is_retryable(&e) => 0,
            Err(_) if planted(Canary::FailedIsDone) => transfer.piece.bytes - transfer.done,
            Err(_) if transfer.purpose == Purpose::Sync && planted(Canary::SyncAgain) => {
                return self.transfers.queue(id);
            }
            Err(e) => return self.failed(id, e),
        };
        if transfer.purpose == Purpose::Sync {
            return self.finished(id);
        }
        let left = transfer.piece.bytes - transfer.done;
        assert!(moved <= left, "the system moved {moved} bytes where {left} were asked for");
        let moved = if moved > 0 && planted(Canary::ShortIsWhole) { left } else { moved };
        self.stats.count(transfer.purpose, moved);
        let volume = &mut self.moved[usize::from(transfer.piece.volume)];
        match op {
            Op::Read { .. } => volume.read_bytes += u64::from(moved),
            _ => volume.write_bytes += u64::from(moved),
        }
        let whole = if moved == left { moved } else { moved - moved % crate::format::BLOCK as u32 };
        transfer.done += whole;
        transfer.stalls = if whole > 0 { 0 } else { transfer.stalls + 1 };
        if transfer.done == transfer.piece.bytes {
            self.finished(id);
        } else if transfer.stalls > STALLS_MAX {
            let kind = if matches!(op, Op::Read { .. }) { ErrorKind::UnexpectedEof } else { ErrorKind::WriteZero };
            self.failed(id, std::io::Error::new(kind, "no progress after repeated tries"));
        } else if self.poison.is_some() {
            self.dropped(id);
        } else {
            self.transfers.queue(id);
        }
    }

    /// Notes an operation's beginning, or its end with the bytes that it moved, where that is wanted.
    fn note(&mut self, id: OpId, moved: Option<u32>) {
        let Some(moves) = &mut self.moves else { return };
        let Some(mut noted) = self.transfers.get_mut(id).noted(moved) else { return };
        if let Some(Owner::Interval(seq)) = noted.owner {
            let front = self.live.front().map_or(0, |interval| interval.seq);
            noted.tag = Some(self.live[(seq - front) as usize].tag);
        }
        moves.push(noted);
    }

    /// An operation did all that was asked.
    fn finished(&mut self, id: OpId) {
        if self.poison.is_some() {
            return self.dropped(id);
        }
        let purpose = self.transfers.get_mut(id).purpose;
        match purpose {
            Purpose::Fetch { owner } => {
                let transfer = self.transfers.get_mut(id);
                transfer.purpose = Purpose::Verify { owner };
                transfer.done = 0;
                self.transfers.queue(id);
            }
            Purpose::Verify { owner } => self.verified(id, owner),
            Purpose::Digest { owner } => {
                let transfer = self.transfers.get_mut(id);
                transfer.purpose = Purpose::Store { owner };
                transfer.done = 0;
                self.transfers.queue(id);
            }
            Purpose::Store { owner } => self.stored(id, owner),
            Purpose::Table | Purpose::Super | Purpose::Sync => {
                self.transfers.remove(id);
                self.commit.finished();
            }
        }
    }

    /// An operation failed for good.
    fn failed(&mut self, id: OpId, error: std::io::Error) {
        let transfer = self.transfers.get_mut(id);
        let error = Error::Io {
            doing: match transfer.purpose {
                Purpose::Fetch { .. } => "reading pages",
                Purpose::Table | Purpose::Super => "writing the commit's records",
                Purpose::Sync => "syncing",
                _ => "writing pages",
            },
            path: self.volumes[transfer.piece.volume as usize].clone(),
            offset: transfer.piece.disk,
            bytes: u64::from(transfer.piece.bytes),
            source: Arc::new(error),
        };
        if let Purpose::Fetch { owner } = transfer.purpose {
            self.transfers.remove(id);
            self.fetch_failed(owner, error);
        } else {
            self.poisoned(error.to_string());
            self.dropped(id);
        }
    }

    /// The answer to every call after the first failed write or sync.
    fn check_alive(&self) -> Result<(), Error> {
        match &self.poison {
            Some(first) => Err(Error::Poisoned { first: first.clone() }),
            None => Ok(()),
        }
    }

    fn poisoned(&mut self, first: String) {
        if self.poison.is_none() {
            self.poison = Some(first.clone());
            self.events.push_back(Event::Poisoned { first });
        }
    }

    /// An operation that will not be (re)submitted because the engine is poisoned.
    fn dropped(&mut self, id: OpId) {
        self.transfers.remove(id);
    }

    fn interval_mut(&mut self, seq: u64) -> &mut Interval {
        let front = self.live.front().map_or(0, |i| i.seq);
        &mut self.live[(seq - front) as usize]
    }

    /// An interval that is not forgotten.
    fn interval(&self, seq: u64) -> &Interval {
        self.find(seq).expect("an interval that is known and not forgotten")
    }

    /// An interval, unless it is forgotten or not known yet.
    fn find(&self, seq: u64) -> Option<&Interval> {
        let front = self.live.front()?.seq;
        self.live.get(usize::try_from(seq.checked_sub(front)?).ok()?)
    }

    /// Forgets the oldest intervals.
    fn free_front(&mut self) {
        while self.live.front().is_some_and(|front| front.state() == State::Free) {
            self.live.pop_front();
        }
    }

    /// Marks an interval free, with its spans: its run is no longer in use by it. One that another is relayed from
    /// stays for that.
    fn free(&mut self, seq: u64) {
        let interval = self.interval_mut(seq);
        if interval.is_kept() && interval.state() != State::Reserved && !planted(Canary::RelayNotKept) {
            return interval.become_state(State::Kept);
        }
        interval.become_state(State::Free);
        let (run, device, relay) = (interval.run, interval.device, interval.relay.take());
        let (span, vram, stage) = (interval.span.take(), interval.vram.take(), interval.stage.take());
        span.into_iter().for_each(|span| self.window.free(span));
        stage.into_iter().for_each(|stage| self.staging.ring.free(stage));
        if let (Some(device), Some(vram)) = (device, vram) {
            self.devices[device].ring.free(vram);
        }
        self.runs.get_mut(run).live.retain(|(other, _)| *other != seq);
        if let Some(relay) = relay {
            self.let_go(relay.source);
        }
    }
}

/// Transfers name their place, so one that was interrupted, refused for now or cancelled can be done again.
fn is_retryable(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock)
        || error.raw_os_error() == Some(Errno::CANCELED.raw_os_error())
}
