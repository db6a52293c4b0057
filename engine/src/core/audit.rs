//! A full check of the core's books against each other, for the simulation: spans and window, intervals and
//! operations, runs and intervals, flushes, tickets and copies. It changes nothing and panics where two books differ.

use super::Core;
use crate::core::interval::{Interval, State};
use crate::core::ticket::{Spot, State as TicketState, Ticket};
use crate::core::transfer::{Owner, Purpose, Transfer};
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
        let mut taken = 0;
        let mut spans: Vec<(u64, u64)> = Vec::new();
        for (n, interval) in self.live.iter().enumerate() {
            let seq = interval.seq;
            assert_eq!(seq, self.live[0].seq + n as u64, "intervals are numbered without gaps");
            let outstanding = self.transfers_of(Owner::Interval(seq));
            assert_eq!(interval.outstanding, outstanding, "interval {seq}: operations counted and in flight");
            let moves = matches!(interval.state(), State::Fetching | State::Writing);
            assert_eq!(moves, outstanding > 0, "interval {seq} is {:?}", interval.state());
            if let Some(span) = interval.span {
                taken += span.taken;
                spans.push((span.offset, span.offset + interval.bytes));
            }
        }
        assert_eq!(taken, self.window.used(), "bytes of the window taken by intervals and counted");
        spans.sort_unstable();
        assert!(spans.windows(2).all(|pair| pair[0].1 <= pair[1].0), "two spans of the window overlap");
        assert!(
            spans.last().is_none_or(|last| last.1 <= self.commit.arena_offset()),
            "a span reaches into the records"
        );
    }

    fn audit_runs(&self) {
        for id in self.runs.ids() {
            let state = self.runs.get(id);
            let live: Vec<u64> = state.live.iter().map(|(seq, _)| *seq).collect();
            let expected = self.live.iter().filter(|i| i.run == id && i.state() != State::Free).map(|i| i.seq);
            assert_eq!(live, expected.collect::<Vec<_>>(), "{}: live intervals", state.run);
            let busy = |i: &&Interval| i.run == id && matches!(i.state(), State::Fetching | State::Ready);
            let writers = self.live.iter().filter(busy).filter(|i| i.mode.writes()).count();
            let all = self.live.iter().filter(busy).count();
            assert!(writers == 0 || all == 1, "{}: a writer beside {} others", state.run, all - 1);
            let Some(home) = state.home else { continue };
            let flushes = self.transfers_that(|t| match t.purpose {
                Purpose::Digest { owner } | Purpose::Store { owner } => owner == Owner::Flush(id),
                _ => false,
            });
            let expected = if self.commit.is_to_flush(id) { 1 } else { flushes };
            assert_eq!(home.flushing, expected, "{}: flushes counted and in flight", state.run);
            assert!(home.flushing == 0 || writers == 0, "{}: a writer while the run is flushed", state.run);
            assert!(home.loaded || !home.dirty, "{}: changed without being loaded", state.run);
        }
    }

    fn audit_tickets(&self) {
        let has_pages = |t: &Ticket| !matches!(t.state(), TicketState::Waiting | TicketState::Recalling);
        let is_active =
            |i: &&Interval| matches!(i.state(), State::Fetching | State::Ready | State::Held | State::Writing);
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
                let clash = self.runs.get(interval.run).run.overlaps(&run) && (writes || interval.mode.writes());
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
