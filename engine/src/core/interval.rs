//! The life of an interval: one access of one run, from its place in the schedule to the moment its bytes are free.
//!
//! ```text
//! in RAM:      Reserved -> Fetching -> Ready -> Writing -> Free
//!                  |          |          |        ^
//!                  |          |          |       Held (a commit is being made; the write-back waits)
//!                  +----------+-> Failed +------> Free (unchanged)
//!
//! on a device: Reserved -> Fetching -> Landed -> Uploading -> Ready -> Passing -> Draining -> Writing -> Free
//!                  |          ^                      ^                   |  Held -^         ^
//!                  +-> Queued +                      |                   +------------------+
//!                  +---------------------------------+
//! ```
//!
//! On a device bytes come through RAM: from disk, in a span of the arena's window (*transit*) or of the staging ring,
//! or from where they are in RAM already. Who uses them may have the lease, and give it back, while they are
//! `Uploading`. Given back, they are `Passing` until the user's stream has passed its fence; changed ones then go down
//! to their home in RAM (`Writing`), or through staging (`Draining`) to disk.
//!
//! An interval in RAM that another one on a device is relayed from stays as `Kept` until that one has the bytes. If its
//! user passes over it, it is fetched all the same.
//!
//! An interval that no user has taken goes back from `Ready` to `Reserved` when it is recalled for a ticket.
//!
//! Legal transitions are in one table; any other is a bug of the core and panics with the interval's number.

use crate::config::Kind;
use crate::core::runs::RunId;
use crate::core::window::Span;
use crate::error::Error;
use crate::id::Mode;
use crate::plan::{self, Home, Place};

/// Where an interval stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// It is known; nothing was started, and it may lack spans.
    Reserved,
    /// It waits for room in the staging ring, through which it is loaded.
    Queued,
    /// Pages are being read and checked, or copied down from their home in VRAM.
    Fetching,
    /// The bytes are in RAM and wait for their span in VRAM.
    Landed,
    /// They are being copied to VRAM; the user may have the lease once the device has taken the copy.
    Uploading,
    /// The user may take, or has, the lease.
    Ready,
    /// Reading failed; the error waits for the user.
    Failed,
    /// Given back; the user's stream has not passed the fence.
    Passing,
    /// Released with changed bytes, waiting for a commit to end.
    Held,
    /// Changed bytes wait for room in the staging ring, or are being copied there.
    Draining,
    /// Changed bytes are being written, or copied to their home.
    Writing,
    /// Done but for an interval on a device that takes its bytes from here.
    Kept,
    /// Done.
    Free,
}

impl State {
    fn may_become(self, next: State) -> bool {
        use State::*;
        matches!(
            (self, next),
            (Reserved, Queued | Fetching | Uploading | Ready | Failed | Free)
                | (Queued, Fetching | Free)
                | (Fetching, Landed | Uploading | Ready | Failed | Kept | Free)
                | (Landed, Reserved | Uploading | Free)
                | (Uploading, Ready | Passing | Free)
                | (Ready, Passing | Held | Draining | Writing | Kept | Free | Reserved)
                | (Failed, Kept | Free)
                | (Passing, Held | Draining | Writing | Free)
                | (Held, Draining | Writing | Free)
                | (Draining, Writing | Free)
                | (Writing, Kept | Free)
                | (Kept, Free)
        )
    }

    /// Whether it keeps others off its pages.
    pub(crate) fn is_active(self) -> bool {
        !matches!(self, State::Reserved | State::Failed | State::Free)
    }

    /// Whether it was started for a user who does not have it yet, or may not have it.
    pub(crate) fn is_started(self) -> bool {
        matches!(self, State::Queued | State::Fetching | State::Landed | State::Uploading | State::Ready)
    }

    /// Whether changed bytes are on their way to where a commit finds them.
    pub(crate) fn is_leaving(self) -> bool {
        matches!(self, State::Passing | State::Draining | State::Writing)
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

/// What an interval on a device is relayed from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Relay {
    /// The interval in RAM, by its number.
    pub(crate) source: u64,
    /// The schedule has the lease of that one end behind this access.
    pub(crate) is_beside: bool,
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
    /// The device that the access is on, by its place among the core's; None: in RAM.
    pub(crate) device: Option<usize>,
    pub(crate) home: Home,
    pub(crate) place: Place,
    /// Byte offset in the arena, or in the device's allocation; of no meaning for a streamed one without its span.
    pub(crate) offset: u64,
    /// Its span of the arena's window.
    pub(crate) span: Option<Span>,
    /// Its span of the device's window.
    pub(crate) vram: Option<Span>,
    /// Its span of the staging ring.
    pub(crate) stage: Option<Span>,
    /// What it needed of the arena's window is given back.
    pub(crate) is_past_transit: bool,
    pub(crate) relay: Option<Relay>,
    /// The interval on a device that takes its bytes from this one, and has not yet.
    pub(crate) kept_for: Option<u64>,
    state: State,
    pub(crate) recall: Recall,
    /// Operations in flight for it.
    pub(crate) outstanding: u32,
    /// The user is done with it (released, passed over, or the sweep was given up).
    pub(crate) released: bool,
    /// Its bytes came back changed.
    pub(crate) changed: bool,
    /// It was given back before the commit being made began, and belongs to it.
    pub(crate) is_covered: bool,
    pub(crate) error: Option<Error>,
}

impl Interval {
    /// A reserved interval; `base`: number of the sweep's first.
    pub(crate) fn new(
        seq: u64,
        base: u64,
        run: RunId,
        kind: Kind,
        device: Option<usize>,
        planned: &plan::Interval,
        plan: &plan::Plan,
    ) -> Interval {
        let plan::Interval { mode, bytes, home, place, node, .. } = *planned;
        let relay = planned.relay.map(|source| Relay {
            source: base + u64::from(source),
            is_beside: plan.intervals[source as usize].release > node,
        });
        Interval {
            seq,
            run,
            tag: 0,
            mode,
            kind,
            bytes,
            device,
            home,
            place,
            offset: if let Place::Placed { offset } = place { offset } else { 0 },
            span: None,
            vram: None,
            stage: None,
            is_past_transit: false,
            relay,
            kept_for: planned.kept_for.map(|other| base + u64::from(other)),
            state: State::Reserved,
            recall: Recall::No,
            outstanding: 0,
            released: false,
            changed: false,
            is_covered: false,
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

    /// Whether its bytes are in the run's home itself.
    pub(crate) fn is_placed(&self) -> bool {
        self.place != Place::Window
    }

    /// Whether its bytes come from disk through the arena's window on their way to VRAM.
    pub(crate) fn is_in_transit(&self) -> bool {
        self.device.is_some() && self.home == Home::Disk && self.mode.reads() && self.relay.is_none()
    }

    /// Whether it has the spans that it needs to start.
    pub(crate) fn has_room(&self) -> bool {
        match self.device {
            _ if self.is_placed() => true,
            None => self.span.is_some(),
            Some(_) if self.is_in_transit() && !self.is_past_transit => self.span.is_some(),
            Some(_) => self.vram.is_some(),
        }
    }

    /// Whether another may still take its bytes from its span.
    pub(crate) fn is_kept(&self) -> bool {
        self.kept_for.is_some() && !self.is_placed()
    }

    /// Whether the old bytes must come: they are asked for, or for another alone if its user has passed over it.
    pub(crate) fn reads(&self) -> bool {
        self.mode.reads() || self.released
    }
}
