//! Who stands in whose way: tickets beside the intervals of sweeps and beside each other, page by page.
//!
//! Readers share pages, writers have them alone. An interval or a ticket that was only asked for stands in nobody's
//! way. An interval that was fetched ahead, and that its user has neither taken nor asked for, would be in the way
//! until the sweep comes to it, which may be never while the same user waits for the ticket: so it is *recalled*. Once
//! it is published the reactor is asked to take it back, which fails if the user was faster; one that is still being
//! read is recalled in the same step in which it is published, before any user sees it. A recalled interval is reserved
//! again, keeps its place, and starts anew after the ticket; one on a device reads the disk through the staging ring
//! then.
//!
//! What cannot be recalled is an interval that a user's relay still needs: a ticket that writes such pages waits for
//! the relay, so who walks a sweep must not wait for one between the two accesses.
//!
//! Invariant: intervals are recalled only for a ticket that nothing else keeps waiting, and that ticket keeps others
//! off its pages until it starts or a recall fails. So each recall makes progress, and none is repeated for nothing.

use super::tickets::TicketId;
use super::{Core, Event};
use crate::canary::{Canary, planted};
use crate::core::interval::{Interval, Recall, State};
use crate::core::runs::RunId;
use crate::core::ticket::{State as TicketState, Ticket};
use crate::id::Run;
use crate::io::Io;

/// What keeps a ticket from starting, from the least to the most.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Obstacle {
    /// Nothing.
    Nothing,
    /// Intervals that no user has taken.
    Untaken,
    /// Somebody who cannot be asked to go.
    Firm,
}

impl<I: Io> Core<I> {
    /// What keeps a ticket from starting. `home`: the placed run that its pages belong to.
    pub(crate) fn obstacle(&self, id: TicketId, home: Option<RunId>) -> Obstacle {
        let ticket = self.tickets.get(id);
        let (run, mode) = (ticket.run, ticket.mode);
        let home = home.map(|id| self.runs.get(id)).and_then(|state| Some((state.run, state.home?)));
        // Who loads a home reads all of it, also what a copy from before it was placed is about to change.
        let loads = home.filter(|(_, home)| !home.loaded).map(|(placed, _)| placed);
        let keeps_off = |other: &Ticket| {
            other.excludes(run, mode.writes()) || loads.is_some_and(|placed| other.excludes(placed, false))
        };
        if self.tickets.iter().any(|(other, ticket)| other != id && keeps_off(ticket)) {
            return Obstacle::Firm;
        }
        let frames = &self.tickets.frames;
        let has_place = match (home, frames.find(run)) {
            (Some((_, home)), _) => !home.loading && (home.flushing == 0 || !mode.writes()),
            // Who loads the copy reads, as this one does, and leaves it loaded.
            (None, Some(frame)) => frames.get(frame).loaded,
            (None, None) => frames.has_room(self.layout.run_bytes(run)),
        };
        if !has_place {
            return Obstacle::Firm;
        }
        let in_the_way = self.live.iter().filter(|i| self.excludes(i, run, mode.writes()));
        in_the_way
            .map(|i| if self.is_untaken(i) { Obstacle::Untaken } else { Obstacle::Firm })
            .max()
            .unwrap_or(Obstacle::Nothing)
    }

    /// Whether an interval keeps such a use of these pages from starting.
    fn excludes(&self, interval: &Interval, run: Run, writes: bool) -> bool {
        // One that is kept for another is only read any more.
        let changes = interval.mode.writes() && interval.state() != State::Kept;
        interval.state().is_active() && (writes || changes) && self.runs.get(interval.run).run.overlaps(&run)
    }

    /// Whether no user has the interval's lease, waits for it, or is done with it, as far as is known here.
    fn is_untaken(&self, interval: &Interval) -> bool {
        let ahead = interval.seq >= self.sweeps.cursor() && !interval.released;
        ahead && interval.recall != Recall::Taken && interval.state().is_started()
    }

    /// Takes back what is in the way of a ticket. What is still being read follows when it is there.
    pub(crate) fn recall(&mut self, id: TicketId) {
        let ticket = self.tickets.get_mut(id);
        if ticket.state() == TicketState::Waiting {
            ticket.become_state(TicketState::Recalling);
        }
        let (run, writes) = (ticket.run, ticket.mode.writes());
        for index in 0..self.live.len() {
            let interval = &self.live[index];
            if interval.state() == State::Landed && self.excludes(interval, run, writes) {
                // Its span in VRAM may be long in coming. No user can have seen it.
                let seq = interval.seq;
                self.live[index].become_state(State::Reserved);
                if self.live[index].has_room() {
                    self.sweeps.wait_again(seq);
                }
                continue;
            }
            let asks = interval.state() == State::Ready && interval.recall == Recall::No;
            if asks && self.excludes(interval, run, writes) {
                self.live[index].recall = Recall::Asked;
                self.events.push_back(Event::Recall { seq: self.live[index].seq });
            }
        }
    }

    /// The answer to a recall. The interval may have been released, or given up, since it was asked for.
    pub(crate) fn recalled(&mut self, seq: u64, taken: bool) {
        let front = self.live.front().map_or(0, |i| i.seq);
        let index = seq.checked_sub(front).and_then(|index| usize::try_from(index).ok());
        let Some(interval) = index.and_then(|index| self.live.get_mut(index)) else {
            return;
        };
        if interval.state() != State::Ready {
            return;
        }
        assert_eq!(interval.recall, Recall::Asked, "interval {seq} was not recalled");
        if taken && !planted(Canary::RecallTaken) {
            interval.recall = Recall::Taken;
            return;
        }
        interval.recall = Recall::No;
        interval.become_state(State::Reserved);
        self.sweeps.wait_again(seq);
    }
}
