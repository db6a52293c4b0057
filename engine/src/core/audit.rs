//! A full check of the core's books against each other, for the simulation: spans and window, intervals and
//! operations, runs and intervals, flushes, tickets and copies. It changes nothing and panics where two books differ.

use super::Core;
use crate::core::copies::Job;
use crate::core::interval::{Interval, State};
use crate::core::ticket::{Spot, State as TicketState, Ticket};
use crate::core::transfer::{Owner, Purpose, Transfer};
use crate::core::window::Span;
use crate::id::Mode;
use crate::io::Io;

impl<I: Io> Core<I> {
    /// Panics where the books do not agree. After a failed write or sync nothing is kept up any more, so nothing is
    /// checked.
    pub(crate) fn audit(&self) {
        if self.poison.is_some() {
            return;
        }
        self.audit_intervals();
        self.audit_runs();
        self.audit_tickets();
        self.audit_commit();
    }

    fn transfers_that(&self, mut what: impl FnMut(&Transfer) -> bool) -> u32 {
        self.transfers.all().filter(|t| what(t)).count() as u32
    }

    fn transfers_of(&self, whose: Owner) -> u32 {
        self.transfers_that(|t| match t.purpose {
            Purpose::Fetch { owner }
            | Purpose::Verify { owner }
            | Purpose::Digest { owner }
            | Purpose::Store { owner } => owner == whose,
            Purpose::Table | Purpose::Super | Purpose::Sync => false,
        })
    }

    fn audit_intervals(&self) {
        for (n, interval) in self.live.iter().enumerate() {
            let seq = interval.seq;
            assert_eq!(seq, self.live[0].seq + n as u64, "intervals are numbered without gaps");
            let late = u32::from(interval.device.is_some_and(|device| self.devices[device].is_late(seq)));
            let outstanding = self.transfers_of(Owner::Interval(seq)) + self.copies_of(seq) + late;
            assert_eq!(interval.outstanding, outstanding, "interval {seq}: operations counted and in flight");
            let moves =
                matches!(interval.state(), State::Fetching | State::Uploading | State::Passing | State::Writing);
            // What drains waits for room first.
            let may_move = moves || interval.state() == State::Draining;
            assert!(may_move || outstanding == 0, "interval {seq} is {:?}", interval.state());
            assert!(!moves || outstanding > 0, "interval {seq} is {:?}", interval.state());
            assert!(interval.state() != State::Free || interval.kept_for.is_none_or(|_| interval.is_placed()));
        }
        self.audit_spans();
    }

    fn copies_of(&self, seq: u64) -> u32 {
        let is_its = |job: &Job| match *job {
            Job::Upload(of) | Job::Fetch(of) | Job::Pass(of) | Job::Return(of) | Job::Drain(of) => of == seq,
            Job::Flush(_) => false,
        };
        self.copies.jobs().filter(is_its).count() as u32
    }

    /// Spans in use are those of intervals and flushes, and the parts of the arena lie one behind the other.
    fn audit_spans(&self) {
        let of_all = |span: fn(&Interval) -> Option<Span>| self.live.iter().filter_map(span).collect::<Vec<Span>>();
        self.window.audit(of_all(|i| i.span), "the arena's window");
        let stages = of_all(|i| i.stage).into_iter().chain(self.staging.flush_spans());
        self.staging.ring.audit(stages.collect(), "staging");
        for (n, vram) in self.devices.iter().enumerate() {
            let spans = self.live.iter().filter(|i| i.device == Some(n)).filter_map(|i| i.vram);
            vram.ring.audit(spans.collect(), "a device's window");
        }
        let parts = self.placed_bytes + self.window.capacity() + self.staging.ring.capacity();
        assert_eq!(parts, self.tickets.frames.start(), "the arena's parts");
        assert!(parts <= self.commit.arena_offset(), "they reach into the records");
    }

    fn audit_runs(&self) {
        for id in self.runs.ids() {
            let state = self.runs.get(id);
            let live: Vec<u64> = state.live.iter().map(|(seq, _)| *seq).collect();
            let expected = self.live.iter().filter(|i| i.run == id && i.state() != State::Free).map(|i| i.seq);
            assert_eq!(live, expected.collect::<Vec<_>>(), "{}: live intervals", state.run);
            let busy = |i: &&Interval| i.run == id && i.state().is_started();
            let writers = self.live.iter().filter(busy).filter(|i| i.mode.writes()).count();
            // A relay may be beside the lease that it takes its bytes from.
            let is_reader_in_vram = |i: &&Interval| i.device.is_some() && i.mode == Mode::Read;
            let others = self.live.iter().filter(busy).filter(|i| !is_reader_in_vram(i)).count();
            assert!(writers == 0 || others <= 1, "{}: a writer beside {} others", state.run, others - 1);
            let Some(home) = state.home else { continue };
            let flushes = self.transfers_that(|t| match t.purpose {
                Purpose::Digest { owner } | Purpose::Store { owner } => owner == Owner::Flush(id),
                _ => false,
            });
            let copies = self.copies.jobs().filter(|job| *job == Job::Flush(id)).count() as u32;
            let expected = if self.commit.is_to_flush(id) { 1 } else { flushes + copies };
            assert_eq!(home.flushing, expected, "{}: flushes counted and in flight", state.run);
            let in_place = self.live.iter().filter(busy).filter(|i| i.mode.writes() && i.is_placed()).count();
            assert!(home.flushing == 0 || in_place == 0, "{}: a writer while the run is flushed", state.run);
            assert!(home.loaded || !home.dirty, "{}: changed without being loaded", state.run);
        }
    }

    fn audit_tickets(&self) {
        let has_pages = |t: &Ticket| !matches!(t.state(), TicketState::Waiting | TicketState::Recalling);
        let is_active = |i: &&Interval| i.state().is_active();
        for (id, ticket) in self.tickets.iter() {
            let (run, writes) = (ticket.run, ticket.mode.writes());
            assert_eq!(ticket.outstanding, self.transfers_of(Owner::Ticket(id)), "{ticket:?}: operations");
            let moves = matches!(ticket.state(), TicketState::Fetching | TicketState::Writing);
            assert_eq!(moves, ticket.outstanding > 0, "{ticket:?}");
            if !has_pages(ticket) {
                continue;
            }
            for (_, other) in self.tickets.iter().filter(|(other, ticket)| *other != id && has_pages(ticket)) {
                let clash = other.run.overlaps(&run) && (writes || other.mode.writes());
                assert!(!clash, "{ticket:?} beside {other:?}");
            }
            for interval in self.live.iter().filter(is_active) {
                let changes = interval.mode.writes() && interval.state() != State::Kept;
                let clash = self.runs.get(interval.run).run.overlaps(&run) && (writes || changes);
                assert!(!clash, "{ticket:?} beside interval {} in {:?}", interval.seq, interval.state());
            }
        }
        let holders = |frame| self.tickets.iter().filter(|(_, t)| t.spot == Some(Spot::Frame(frame))).count() as u32;
        self.tickets.frames.audit(holders);
    }

    fn audit_commit(&self) {
        let records = self.transfers_that(|t| matches!(t.purpose, Purpose::Table | Purpose::Super | Purpose::Sync));
        assert_eq!(self.commit.outstanding(), records, "records of the commit counted and in flight");
        let held = self.live.iter().filter(|i| i.state() == State::Held).count();
        assert!(held == 0 || self.commit.is_running(), "{held} write-backs are held and no commit is being made");
    }
}
