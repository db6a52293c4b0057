//! Relays: an interval on a device that takes its bytes from the one in RAM before it.
//!
//! The bytes are final once that one was given back, or, where its lease lasts beyond the access on the device, once
//! the user has come to that access: he writes nothing until he has it. The source keeps its span until the bytes are
//! in VRAM, also beside its own write-back; placed ones need not, since their bytes stay where they are.
//!
//! Invariant: a source that is streamed is not freed before its relay has the bytes, is freed, or will never be.

use super::Core;
use crate::core::interval::{Interval, State};
use crate::error::Error;
use crate::io::Io;

/// How it stands with the bytes of a relay.
pub(crate) enum Source {
    /// They may be taken.
    Ready,
    /// They are not there, or not final.
    Waits,
    /// They never will be.
    Failed(Error),
    /// There is no source any more, or never was: the bytes are where any access finds them.
    Gone,
}

impl<I: Io> Core<I> {
    /// How it stands with an interval's source.
    pub(crate) fn source(&self, seq: u64) -> Source {
        let Some(relay) = self.interval(seq).relay else { return Source::Gone };
        let Some(source) = self.find(relay.source) else { return Source::Gone };
        if let Some(error) = &source.error {
            return Source::Failed(error.clone());
        }
        match source.state() {
            State::Free => Source::Gone,
            State::Ready if relay.is_beside && self.sweeps.cursor() > seq => Source::Ready,
            State::Held | State::Writing | State::Kept => Source::Ready,
            _ => Source::Waits,
        }
    }

    /// Where in the arena a relay's source has the bytes; None if it has no source, or no more.
    pub(crate) fn relayed_from(&self, seq: u64) -> Option<u64> {
        let relay = self.interval(seq).relay?;
        self.find(relay.source).filter(|source| source.state() != State::Free).map(|source| source.offset)
    }

    /// Nobody needs a source's bytes for a relay any more.
    pub(crate) fn let_go(&mut self, source: u64) {
        if self.find(source).is_none() {
            return;
        }
        let interval = self.interval_mut(source);
        interval.kept_for = None;
        let was_passed_over = interval.released && interval.state() == State::Reserved;
        if was_passed_over || interval.state() == State::Kept {
            self.free(source);
        }
    }

    /// Lets go of the sources whose relays come at or behind `seq`, and never will.
    pub(crate) fn let_go_behind(&mut self, seq: u64) {
        let is_left = |interval: &Interval| interval.kept_for.is_some_and(|other| other >= seq);
        let left: Vec<u64> = self.live.iter().filter(|interval| is_left(interval)).map(|i| i.seq).collect();
        left.into_iter().for_each(|source| self.let_go(source));
    }
}
