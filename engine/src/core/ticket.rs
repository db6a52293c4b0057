//! The life of a ticket: one unplanned use of one run, from the moment it is asked for to the moment its pages are
//! free.
//!
//! ```text
//! Waiting <-> Recalling -> Fetching -> Ready -> Writing -> Free
//!    |            |            |         |         ^
//!    +------------+------------+---------+        Held (a commit is being made; the write-back waits)
//!    |                                   |
//!    +-> (from any of them) Free         +------> Free (unchanged, or the bytes stay in the home of a placed run)
//! ```
//!
//! A ticket is *active*, and keeps others off its pages, in every state but `Waiting` and `Free`. `Recalling` takes no
//! user to end: what it waits for are reads in flight, and intervals that no user has taken.
//!
//! Legal transitions are in one table; any other is a bug of the core and panics.

use super::frames::FrameId;
use crate::config::Kind;
use crate::core::runs::RunId;
use crate::error::Error;
use crate::id::{Mode, Run};

/// Where a ticket stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// Others use its pages, or there is no room; nobody waits for it.
    Waiting,
    /// Nobody who holds a lease stands in its way: intervals that were fetched ahead are being taken back.
    Recalling,
    /// Pages are being read and checked.
    Fetching,
    /// The user may take, or has, the lease.
    Ready,
    /// Given back with changed bytes, waiting for a commit to end.
    Held,
    /// Changed bytes are being written.
    Writing,
    /// Done.
    Free,
}

impl State {
    fn may_become(self, next: State) -> bool {
        use State::*;
        matches!(
            (self, next),
            (Waiting, Recalling | Fetching | Ready | Free)
                | (Recalling, Waiting | Fetching | Ready | Free)
                | (Fetching, Ready | Free)
                | (Ready, Held | Writing | Free)
                | (Held, Writing | Free)
                | (Writing, Free)
        )
    }
}

/// Where a ticket's bytes are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Spot {
    /// In the home of the placed run that its pages belong to.
    Home(RunId),
    /// In a copy.
    Frame(FrameId),
}

/// One ticket that is not free.
#[derive(Debug)]
pub(crate) struct Ticket {
    /// The user's number for it; none for a prefetch, which nobody holds.
    pub(crate) number: Option<u64>,
    pub(crate) run: Run,
    pub(crate) mode: Mode,
    pub(crate) kind: Kind,
    state: State,
    /// From `Fetching` on.
    pub(crate) spot: Option<Spot>,
    /// Operations in flight for it.
    pub(crate) outstanding: u32,
    /// The user gave it back.
    pub(crate) released: bool,
    /// What one of its operations met.
    pub(crate) error: Option<Error>,
}

impl Ticket {
    /// A ticket that waits.
    pub(crate) fn new(number: Option<u64>, run: Run, mode: Mode, kind: Kind) -> Ticket {
        Ticket {
            number,
            run,
            mode,
            kind,
            state: State::Waiting,
            spot: None,
            outstanding: 0,
            released: false,
            error: None,
        }
    }

    pub(crate) fn state(&self) -> State {
        self.state
    }

    /// Moves on; panics on an illegal transition.
    pub(crate) fn become_state(&mut self, next: State) {
        let run = self.run;
        assert!(self.state.may_become(next), "ticket for {run}: illegal transition {:?} -> {next:?}", self.state);
        assert!(next != State::Free || self.outstanding == 0, "ticket for {run} freed with operations in flight");
        self.state = next;
    }

    /// Whether it keeps such a use of these pages from starting: readers share, writers exclude.
    pub(crate) fn excludes(&self, run: Run, writes: bool) -> bool {
        self.state != State::Waiting && (writes || self.mode.writes()) && self.run.overlaps(&run)
    }
}
