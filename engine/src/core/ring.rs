//! A ring of spans that know whether they are still in use: the window of the arena, that of a device, and staging.
//!
//! Spans are taken in an order, and free in any; the room of one comes back when all before it are free.
//!
//! Invariant: the spans that are listed make up what the window underneath has given away.

use super::window::{Span, Window};
use std::collections::VecDeque;

/// The ring.
#[derive(Debug)]
pub(crate) struct Ring {
    window: Window,
    /// In the order in which they were taken, and whether each is free again.
    spans: VecDeque<(Span, bool)>,
}

impl Ring {
    /// A ring over `capacity` bytes from `start` on.
    pub(crate) fn new(start: u64, capacity: u64) -> Ring {
        Ring { window: Window::new(start, capacity), spans: VecDeque::new() }
    }

    pub(crate) fn capacity(&self) -> u64 {
        self.window.capacity()
    }

    /// Largest number of bytes in use so far.
    pub(crate) fn used_max(&self) -> u64 {
        self.window.used_max()
    }

    /// Whether nothing is in use.
    pub(crate) fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Takes a span, or nothing if it does not fit now.
    pub(crate) fn take(&mut self, bytes: u64) -> Option<Span> {
        let span = self.window.take(bytes)?;
        self.spans.push_back((span, false));
        Some(span)
    }

    /// A span is free.
    pub(crate) fn free(&mut self, span: Span) {
        let found = self.spans.iter_mut().find(|(other, is_free)| *other == span && !is_free);
        found.expect("a span is given back once").1 = true;
        while let Some((front, true)) = self.spans.front() {
            self.window.give_back(*front);
            self.spans.pop_front();
        }
    }

    /// Panics unless these are the spans in use, in any order.
    pub(crate) fn audit(&self, mut owned: Vec<Span>, what: &str) {
        let mut used: Vec<Span> = self.spans.iter().filter(|(_, is_free)| !is_free).map(|(span, _)| *span).collect();
        owned.sort_unstable_by_key(|span| span.offset);
        used.sort_unstable_by_key(|span| span.offset);
        assert_eq!(owned, used, "{what}: spans that are owned, and in use");
        let taken: u64 = self.spans.iter().map(|(span, _)| span.taken).sum();
        assert_eq!(taken, self.window.used(), "{what}: bytes taken by spans, and counted");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_comes_back_in_order() {
        let mut ring = Ring::new(100, 10);
        let [a, b, c] = [4, 3, 3].map(|bytes| ring.take(bytes).expect("it fits"));
        assert!(ring.take(1).is_none());
        ring.free(b);
        assert!(ring.take(1).is_none(), "the oldest is in use");
        ring.free(a);
        let d = ring.take(7).expect("both are free");
        assert_eq!(d.offset, 100);
        ring.audit(vec![c, d], "the ring");
        ring.free(c);
        ring.free(d);
        assert!(ring.is_empty());
    }

    #[test]
    #[should_panic(expected = "given back once")]
    fn freeing_twice_is_a_bug() {
        let mut ring = Ring::new(0, 10);
        let [a, b] = [4, 4].map(|bytes| ring.take(bytes).expect("it fits"));
        ring.free(b);
        ring.free(b);
        ring.free(a);
    }
}
