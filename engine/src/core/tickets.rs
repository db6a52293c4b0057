//! Unplanned use: tickets that any thread may ask for at any time, beside sweeps and beside each other.
//!
//! A ticket on pages of a placed run uses the run's home; any other uses a copy in the part of the arena that is kept
//! for them. What may run beside what is decided page by page, in `recall`; copies are kept in `frames`.
//!
//! What it is not: it guesses nothing. A copy is made because somebody asked for it, and stays because there is room.
//!
//! Invariants:
//! - tickets that only wait stand in nobody's way, so that a user who holds one lease and waits for the next is not
//!   waited for by what the next needs;
//! - a copy that is found holds the newest bytes of its pages: whoever writes pages spoils the other copies of them;
//! - a prefetch begins at once or is dropped, and takes nothing back from a sweep.

use super::frames::Frames;
use super::pool::Pool;
use super::recall::Obstacle;
use super::ticket::{Spot, State, Ticket};
use super::{Core, Event};
use crate::canary::{Canary, planted};
use crate::config::Kind;
use crate::core::runs::{Home, RunId, RunState};
use crate::core::transfer::Owner;
use crate::error::Error;
use crate::id::{Mode, Run, Tier};
use crate::io::Io;
use std::collections::BTreeMap;

/// Index of a ticket; reused after the ticket is free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TicketId(u32);

/// All tickets that are not free.
pub(crate) struct Tickets {
    slots: Vec<Option<Ticket>>,
    free: Vec<u32>,
    /// Tickets that their users did not give back, by the users' numbers.
    index: BTreeMap<u64, TicketId>,
    /// Those that were not started, in the order in which they were asked for.
    waiting: Vec<TicketId>,
    pub(crate) frames: Frames,
}

impl Tickets {
    /// No tickets, with this room for copies.
    pub(crate) fn new(pool: Pool) -> Tickets {
        Tickets {
            slots: Vec::new(),
            free: Vec::new(),
            index: BTreeMap::new(),
            waiting: Vec::new(),
            frames: Frames::new(pool),
        }
    }

    pub(crate) fn get(&self, id: TicketId) -> &Ticket {
        self.slots[id.0 as usize].as_ref().expect("a ticket that is free")
    }

    pub(crate) fn get_mut(&mut self, id: TicketId) -> &mut Ticket {
        self.slots[id.0 as usize].as_mut().expect("a ticket that is free")
    }

    /// All tickets, in no order that means anything.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (TicketId, &Ticket)> {
        self.slots.iter().enumerate().filter_map(|(i, slot)| Some((TicketId(i as u32), slot.as_ref()?)))
    }

    /// Whether a ticket keeps an interval from starting such a use of these pages.
    pub(crate) fn exclude(&self, run: Run, writes: bool) -> bool {
        self.iter().any(|(_, ticket)| ticket.excludes(run, writes)) && !planted(Canary::TicketAside)
    }

    /// Whether a user has, or may get at any moment, the right to change pages that a commit would cover.
    pub(crate) fn has_writer(&self) -> bool {
        let writes = |t: &Ticket| t.number.is_some() && !t.released && t.mode.writes() && t.kind != Kind::Scratch;
        self.iter().any(|(_, ticket)| writes(ticket))
    }

    /// Whether pages that a commit covers are being written.
    pub(crate) fn is_writing(&self) -> bool {
        self.iter().any(|(_, ticket)| ticket.state() == State::Writing && ticket.kind != Kind::Scratch)
    }

    fn insert(&mut self, ticket: Ticket) -> TicketId {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() as u32 - 1
        });
        let id = TicketId(slot);
        if let Some(number) = ticket.number {
            assert!(self.index.insert(number, id).is_none(), "two tickets have the number {number}");
        }
        self.slots[slot as usize] = Some(ticket);
        id
    }

    fn remove(&mut self, id: TicketId) -> Ticket {
        self.free.push(id.0);
        self.slots[id.0 as usize].take().expect("a ticket that is free")
    }
}

impl<I: Io> Core<I> {
    /// A user asks for pages.
    pub(crate) fn ticket_fetch(&mut self, number: u64, run: Run, mode: Mode) {
        if self.poison.is_some() {
            return;
        }
        let home = match self.ticket_check(run, mode) {
            Ok(home) => home,
            Err(error) => return self.events.push_back(Event::TicketFailed { ticket: number, error }),
        };
        if !mode.reads() || self.is_at_hand(run, home) {
            self.stats.unplanned_hits += 1;
        } else {
            self.stats.unplanned_misses += 1;
        }
        let id = self.tickets.insert(Ticket::new(Some(number), run, mode, self.layout.kind(run.region)));
        if !self.ticket_start(id) {
            self.tickets.waiting.push(id);
        }
    }

    /// A user will ask for these pages soon. Runs that cannot be fetched at once are passed over.
    pub(crate) fn prefetch(&mut self, runs: &[Run]) {
        for &run in runs {
            if self.poison.is_some() {
                return;
            }
            let Ok(home) = self.ticket_check(run, Mode::Read) else {
                continue;
            };
            if home.is_none()
                && let Some(frame) = self.tickets.frames.find(run)
            {
                // It is the youngest again, and so the last to be evicted.
                self.tickets.frames.hold(frame);
                self.tickets.frames.let_go(frame);
            } else if !self.is_at_hand(run, home) {
                let id = self.tickets.insert(Ticket::new(None, run, Mode::Read, self.layout.kind(run.region)));
                if !self.ticket_start(id) {
                    self.ticket_free(id);
                }
            }
        }
    }

    /// A user gives a ticket, or its lease, back.
    pub(crate) fn ticket_release(&mut self, number: u64, changed: bool) {
        let Some(id) = self.tickets.index.remove(&number) else {
            // It was refused, or failed, or was asked for after the engine was poisoned.
            return;
        };
        let ticket = self.tickets.get_mut(id);
        ticket.released = true;
        assert!(!changed || (ticket.mode.writes() && ticket.state() == State::Ready), "{ticket:?} comes back changed");
        match ticket.state() {
            State::Waiting | State::Recalling => {
                self.tickets.waiting.retain(|other| *other != id);
                self.ticket_free(id);
            }
            State::Ready if changed && self.poison.is_none() => self.ticket_changed(id),
            State::Ready => {
                if let (true, Some(Spot::Frame(frame))) = (ticket.mode.writes(), ticket.spot)
                    && !planted(Canary::UnchangedCopy)
                {
                    // A fresh one was never filled, and nobody can tell what was written to the other.
                    self.tickets.frames.spoil(frame);
                }
                self.ticket_free(id);
            }
            State::Fetching => {}
            State::Held | State::Writing | State::Free => unreachable!("{ticket:?} was given back before"),
        }
    }

    /// Starts tickets that waited, the oldest first, as far as nobody is in their way.
    pub(crate) fn start_tickets(&mut self) {
        if self.poison.is_some() {
            return;
        }
        let mut waiting = std::mem::take(&mut self.tickets.waiting);
        waiting.retain(|&id| !self.ticket_start(id));
        self.tickets.waiting = waiting;
    }

    /// Starts the write-backs that waited for a commit.
    pub(crate) fn ticket_write_held(&mut self) {
        for slot in 0..self.tickets.slots.len() {
            if self.tickets.slots[slot].as_ref().is_some_and(|ticket| ticket.state() == State::Held) {
                self.ticket_write(TicketId(slot as u32));
            }
        }
    }

    /// Refuses what this engine cannot do; the home of the placed run that the pages belong to.
    fn ticket_check(&self, run: Run, mode: Mode) -> Result<Option<RunId>, Error> {
        let misuse = |what: &str| Err(Error::Misuse { what: format!("{run}: {what}") });
        if !self.layout.contains(run) {
            return misuse("the store has no such run");
        }
        let sealed = self.commit.has_commit() || self.commit.is_running();
        if mode.writes() && self.layout.kind(run.region) == Kind::Frozen && sealed {
            return misuse("its region is frozen since the first commit");
        }
        self.ticket_home(run)
    }

    fn ticket_home(&self, run: Run) -> Result<Option<RunId>, Error> {
        if let Some(id) = self.runs.placed_over(run) {
            let RunState { run: placed, home, .. } = self.runs.get(id);
            if home.is_some_and(|home| home.tier != Tier::Host) {
                let what = format!("{run} is placed in VRAM, where only accesses of sweeps reach it");
                return Err(Error::Misuse { what });
            }
            if placed.contains(&run) {
                return Ok(Some(id));
            }
            let what = format!("{run} overlaps {placed}, which is placed in RAM, without lying inside it");
            return Err(Error::Misuse { what });
        }
        let (need, have) = (self.layout.run_bytes(run), self.tickets.frames.bytes());
        if self.volumes.is_empty() {
            return Err(Error::Misuse { what: format!("{run}: it is not placed in RAM, and there is no volume") });
        }
        if need > have {
            let what = format!("unplanned_bytes: a fetch of {run} needs {need}, the engine has {have}");
            return Err(Error::Config { what });
        }
        Ok(None)
    }

    /// Whether the bytes are, or will soon be, where a ticket finds them.
    fn is_at_hand(&self, run: Run, home: Option<RunId>) -> bool {
        match home {
            Some(id) => self.runs.get(id).home.is_some_and(|home| home.loaded || home.loading),
            None => self.tickets.frames.find(run).is_some(),
        }
    }

    /// Whether the ticket waits no longer.
    fn ticket_start(&mut self, id: TicketId) -> bool {
        let ticket = self.tickets.get(id);
        let (run, is_prefetch) = (ticket.run, ticket.number.is_none());
        // Asked again each time: runs may be placed while the ticket waits.
        let home = match self.ticket_home(run) {
            Ok(home) => home,
            Err(error) => {
                self.ticket_failed(id, error);
                return true;
            }
        };
        match self.obstacle(id, home) {
            Obstacle::Nothing => match home {
                Some(home) => self.ticket_at_home(id, home),
                None => self.ticket_in_frame(id),
            },
            Obstacle::Untaken if !is_prefetch => {
                self.recall(id);
                return false;
            }
            Obstacle::Untaken | Obstacle::Firm => {
                let ticket = self.tickets.get_mut(id);
                if ticket.state() == State::Recalling {
                    ticket.become_state(State::Waiting);
                }
                return false;
            }
        }
        true
    }

    fn ticket_at_home(&mut self, id: TicketId, home: RunId) {
        let placed = self.runs.get(home).run;
        let Home { loaded, offset, .. } = *self.home_mut(home);
        let ticket = self.tickets.get_mut(id);
        ticket.spot = Some(Spot::Home(home));
        let replaces_all = !ticket.mode.reads() && ticket.run == placed;
        if loaded || replaces_all {
            return self.ticket_ready(id);
        }
        self.home_mut(home).loading = true;
        self.ticket_load(id, placed, offset);
    }

    fn ticket_in_frame(&mut self, id: TicketId) {
        let ticket = self.tickets.get(id);
        let (run, mode) = (ticket.run, ticket.mode);
        let found = self.tickets.frames.find(run);
        let frame = match found {
            Some(frame) => {
                self.tickets.frames.hold(frame);
                frame
            }
            None => self.tickets.frames.make(run, self.layout.run_bytes(run)),
        };
        self.tickets.get_mut(id).spot = Some(Spot::Frame(frame));
        if found.is_some() || !mode.reads() {
            return self.ticket_ready(id);
        }
        self.ticket_load(id, run, self.tickets.frames.get(frame).offset);
    }

    fn ticket_load(&mut self, id: TicketId, run: Run, offset: u64) {
        self.tickets.get_mut(id).become_state(State::Fetching);
        match self.load(run, offset, Owner::Ticket(id)) {
            Ok(0) => self.ticket_loaded(id),
            Ok(outstanding) => self.tickets.get_mut(id).outstanding = outstanding,
            Err(error) => self.ticket_failed(id, error),
        }
    }

    /// A piece of what a ticket loads is there, or failed; the ticket goes on once all are done.
    pub(crate) fn ticket_piece_done(&mut self, id: TicketId, error: Option<Error>) {
        let ticket = self.tickets.get_mut(id);
        ticket.outstanding -= 1;
        ticket.error = ticket.error.take().or(error);
        if ticket.outstanding == 0 {
            match ticket.error.take() {
                None => self.ticket_loaded(id),
                Some(error) => self.ticket_failed(id, error),
            }
        }
    }

    fn ticket_loaded(&mut self, id: TicketId) {
        match self.tickets.get(id).spot.expect("a ticket has a spot when it loads") {
            Spot::Home(home) => {
                let home = self.home_mut(home);
                (home.loaded, home.loading) = (true, false);
            }
            Spot::Frame(frame) => self.tickets.frames.set_loaded(frame),
        }
        self.ticket_ready(id);
    }

    /// Publishes a ticket, or frees it if nobody waits for it.
    fn ticket_ready(&mut self, id: TicketId) {
        let (offset, bytes) = self.ticket_bytes(id);
        let ticket = self.tickets.get_mut(id);
        match ticket.number {
            Some(number) if !ticket.released => {
                ticket.become_state(State::Ready);
                self.events.push_back(Event::TicketReady { ticket: number, offset, bytes });
            }
            _ => self.ticket_free(id),
        }
    }

    /// Offset in the arena and length of a ticket's bytes.
    fn ticket_bytes(&self, id: TicketId) -> (u64, u64) {
        let ticket = self.tickets.get(id);
        let (whole, offset) = match ticket.spot.expect("a ticket has a spot once it started") {
            Spot::Home(home) => {
                let state = self.runs.get(home);
                (state.run, state.home.expect("placed runs stay placed").offset)
            }
            Spot::Frame(frame) => {
                let frame = self.tickets.frames.get(frame);
                (frame.run, frame.offset)
            }
        };
        let page_bytes = u64::from(self.layout.page_bytes(whole.region));
        (offset + u64::from(ticket.run.first - whole.first) * page_bytes, self.layout.run_bytes(ticket.run))
    }

    /// The bytes cannot be had.
    fn ticket_failed(&mut self, id: TicketId, error: Error) {
        let ticket = self.tickets.get(id);
        let (number, spot) = (ticket.number.filter(|_| !ticket.released), ticket.spot);
        if let Some(Spot::Home(home)) = spot {
            self.home_mut(home).loading = false;
        }
        if let Some(number) = number {
            self.tickets.index.remove(&number);
            self.events.push_back(Event::TicketFailed { ticket: number, error });
        }
        self.ticket_free(id);
    }

    /// The user gave changed bytes back.
    fn ticket_changed(&mut self, id: TicketId) {
        let ticket = self.tickets.get(id);
        let (run, kind) = (ticket.run, ticket.kind);
        match ticket.spot.expect("a ticket has a spot once it started") {
            Spot::Home(home) => {
                let home = self.home_mut(home);
                (home.loaded, home.dirty) = (true, true);
                self.ticket_free(id);
            }
            Spot::Frame(frame) => {
                self.tickets.frames.set_loaded(frame);
                self.tickets.frames.written(run, Some(frame));
                let held = self.commit.is_running() && kind == Kind::Checkpointed;
                if held && !planted(Canary::TicketNoHold) {
                    self.tickets.get_mut(id).become_state(State::Held);
                } else {
                    self.ticket_write(id);
                }
            }
        }
    }

    fn ticket_write(&mut self, id: TicketId) {
        let (offset, _) = self.ticket_bytes(id);
        let ticket = self.tickets.get_mut(id);
        ticket.become_state(State::Writing);
        let run = ticket.run;
        let outstanding = self.store(Owner::Ticket(id), run, offset);
        self.tickets.get_mut(id).outstanding = outstanding;
    }

    /// A piece of what a ticket writes is on disk.
    pub(crate) fn ticket_stored(&mut self, id: TicketId) {
        let ticket = self.tickets.get_mut(id);
        ticket.outstanding -= 1;
        if ticket.outstanding == 0 {
            self.ticket_free(id);
        }
    }

    fn ticket_free(&mut self, id: TicketId) {
        let mut ticket = self.tickets.remove(id);
        ticket.become_state(State::Free);
        if let Some(Spot::Frame(frame)) = ticket.spot {
            self.tickets.frames.let_go(frame);
        }
    }

    fn home_mut(&mut self, id: RunId) -> &mut Home {
        self.runs.get_mut(id).home.as_mut().expect("placed runs stay placed")
    }
}
