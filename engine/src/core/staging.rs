//! The staging ring: room in the arena for bytes between VRAM and disk that no access in RAM uses. What is changed in
//! VRAM comes down through it, and what has its home in VRAM is loaded through it.
//!
//! Room is given in the order in which it is asked for. Nobody who has some waits for a user, only for a link and the
//! disk, so room always comes back; and the ring holds two spans of the largest run, so that any fits an empty one.

use super::Core;
use super::ring::Ring;
use super::window::Span;
use crate::core::interval::State;
use crate::core::runs::RunId;
use crate::io::Io;
use std::collections::VecDeque;

/// The ring, and who waits for it.
pub(crate) struct Staging {
    pub(crate) ring: Ring,
    /// Intervals that are `Queued` or `Draining`, in the order in which they came.
    waiting: VecDeque<u64>,
    /// Runs that a commit flushes, with their spans.
    flushes: Vec<(RunId, Span)>,
}

impl Staging {
    /// A ring of this size at this place of the arena.
    pub(crate) fn new(start: u64, bytes: u64) -> Staging {
        Staging { ring: Ring::new(start, bytes), waiting: VecDeque::new(), flushes: Vec::new() }
    }

    /// Whether nobody uses it.
    pub(crate) fn is_idle(&self) -> bool {
        self.ring.is_empty() && self.waiting.is_empty()
    }

    /// An interval waits for room.
    pub(crate) fn wait(&mut self, seq: u64) {
        self.waiting.push_back(seq);
    }

    /// Room for a flush, if there is some and nobody waits for it.
    pub(crate) fn take_for_flush(&mut self, run: RunId, bytes: u64) -> Option<Span> {
        if !self.waiting.is_empty() {
            return None;
        }
        let span = self.ring.take(bytes)?;
        self.flushes.push((run, span));
        Some(span)
    }

    /// The span of a run that is being flushed.
    pub(crate) fn flush_span(&self, run: RunId) -> Option<Span> {
        self.flushes.iter().find(|(other, _)| *other == run).map(|(_, span)| *span)
    }

    /// A run was flushed; it had a span if its home is in VRAM.
    pub(crate) fn flushed(&mut self, run: RunId) {
        if let Some(at) = self.flushes.iter().position(|(other, _)| *other == run) {
            let (_, span) = self.flushes.swap_remove(at);
            self.ring.free(span);
        }
    }

    /// Spans of flushes, for the audit.
    pub(crate) fn flush_spans(&self) -> impl Iterator<Item = Span> {
        self.flushes.iter().map(|(_, span)| *span)
    }
}

impl<I: Io> Core<I> {
    /// Gives room to who waits for it.
    pub(crate) fn advance_staging(&mut self) {
        while self.poison.is_none()
            && let Some(&seq) = self.staging.waiting.front()
        {
            let interval = self.interval(seq);
            let (state, bytes, released) = (interval.state(), interval.bytes, interval.released);
            if state == State::Queued && released {
                // Its user has passed over it meanwhile.
                self.staging.waiting.pop_front();
                self.not_loaded(seq);
                continue;
            }
            let Some(span) = self.staging.ring.take(bytes) else { return };
            self.staging.waiting.pop_front();
            self.interval_mut(seq).stage = Some(span);
            match state {
                State::Queued => self.load_staged(seq),
                State::Draining => self.drain(seq),
                other => unreachable!("interval {seq} waits for staging in {other:?}"),
            }
        }
    }
}
