//! The life of an interval: one access of one run, from its place in the schedule to the moment its bytes are free.
//!
//! ```text
//! Reserved -> Fetching -> Ready -> Writing -> Free
//!     |          |          |        ^
//!     |          |          |       Held (a commit is being made; the write-back waits)
//!     +----------+-> Failed +------> Free (unchanged)
//! ```
//!
//! An interval that no user has taken goes back from `Ready` to `Reserved` when it is recalled for a ticket.
//!
//! Legal transitions are in one table; any other is a bug of the core and panics with the interval's number.

use crate::config::Kind;
use crate::core::runs::RunId;
use crate::core::window::Span;
use crate::error::Error;
use crate::id::Mode;

/// Where an interval stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// It has its bytes in the arena; nothing was started.
    Reserved,
    /// Pages are being read and checked.
    Fetching,
    /// The user may take, or has, the lease.
    Ready,
    /// Reading failed; the error waits for the user.
    Failed,
    /// Released with changed bytes, waiting for a commit to end.
    Held,
    /// Changed bytes are being written.
    Writing,
    /// Done; the bytes are given back when all older ones are.
    Free,
}

impl State {
    fn may_become(self, next: State) -> bool {
        use State::*;
        matches!(
            (self, next),
            (Reserved, Fetching | Ready | Failed | Free)
                | (Fetching, Ready | Failed | Free)
                | (Ready, Held | Writing | Free | Reserved)
                | (Failed, Free)
                | (Held, Writing | Free)
                | (Writing, Free)
        )
    }
}

/// What is known of a published interval when a ticket wants its pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Recall {
    /// It was not recalled.
    No,
    /// It was; the answer is on its way.
    Asked,
    /// It was, and the user has the lease.
    Taken,
}

/// One interval that is not yet free, or behind one that is not.
#[derive(Debug)]
pub(crate) struct Interval {
    pub(crate) seq: u64,
    pub(crate) run: RunId,
    /// The schedule's label of the access.
    pub(crate) tag: u64,
    pub(crate) mode: Mode,
    pub(crate) kind: Kind,
    pub(crate) bytes: u64,
    /// Byte offset in the arena.
    pub(crate) offset: u64,
    /// The window's span; `None` for a placed run.
    pub(crate) span: Option<Span>,
    state: State,
    pub(crate) recall: Recall,
    /// Operations in flight for it.
    pub(crate) outstanding: u32,
    /// The user is done with it (released, passed over, or the sweep was given up).
    pub(crate) released: bool,
    pub(crate) error: Option<Error>,
}

impl Interval {
    /// A reserved interval.
    pub(crate) fn new(
        seq: u64,
        run: RunId,
        mode: Mode,
        kind: Kind,
        bytes: u64,
        offset: u64,
        span: Option<Span>,
    ) -> Interval {
        Interval {
            seq,
            run,
            tag: 0,
            mode,
            kind,
            bytes,
            offset,
            span,
            state: State::Reserved,
            recall: Recall::No,
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
        assert!(self.state.may_become(next), "interval {}: illegal transition {:?} -> {next:?}", self.seq, self.state);
        assert!(next != State::Free || self.outstanding == 0, "interval {} freed with operations in flight", self.seq);
        self.state = next;
    }

    pub(crate) fn is_placed(&self) -> bool {
        self.span.is_none()
    }
}
