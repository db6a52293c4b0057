//! The window: a ring of arena bytes that streamed intervals take in schedule order and give back in the same order.
//!
//! Invariants: a span never wraps (one that does not fit before the end starts again at the beginning, and the skipped
//! bytes count as taken until it is freed); used <= capacity; spans in use are disjoint.

/// A span in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Span {
    /// Byte offset in the arena.
    pub(crate) offset: u64,
    /// Bytes taken from the ring, skipped ones included.
    pub(crate) taken: u64,
}

/// The ring.
#[derive(Debug)]
pub(crate) struct Window {
    start: u64,
    capacity: u64,
    head: u64,
    tail: u64,
    used: u64,
    used_max: u64,
}

impl Window {
    /// A ring over `capacity` bytes of the arena from `start` on.
    pub(crate) fn new(start: u64, capacity: u64) -> Window {
        Window { start, capacity, head: 0, tail: 0, used: 0, used_max: 0 }
    }

    pub(crate) fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Bytes in use.
    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    /// Largest number of bytes in use so far.
    pub(crate) fn used_max(&self) -> u64 {
        self.used_max
    }

    /// Takes a span, or nothing if it does not fit now.
    pub(crate) fn take(&mut self, bytes: u64) -> Option<Span> {
        if self.used == 0 {
            (self.head, self.tail) = (0, 0);
        }
        let wrapped = self.used > 0 && self.head <= self.tail;
        let to_end = self.capacity - self.head;
        let (at, taken) = match () {
            () if wrapped && bytes <= self.tail - self.head => (self.head, bytes),
            () if !wrapped && bytes <= to_end => (self.head, bytes),
            () if !wrapped && self.used > 0 && bytes <= self.tail => (0, to_end + bytes),
            () => return None,
        };
        self.head = (at + bytes) % self.capacity;
        self.used += taken;
        self.used_max = self.used_max.max(self.used);
        assert!(self.used <= self.capacity, "window over-full: {} of {}", self.used, self.capacity);
        Some(Span { offset: self.start + at, taken })
    }

    /// Gives the oldest span back.
    pub(crate) fn give_back(&mut self, span: Span) {
        assert!(span.taken <= self.used, "more given back than taken");
        self.used -= span.taken;
        self.tail = (self.tail + span.taken) % self.capacity;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    #[test]
    fn spans_in_use_never_overlap_and_everything_comes_back() {
        let mut seed = 1u64;
        let mut random = move |bound: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % bound
        };
        let rounds = if cfg!(miri) { 300 } else { 20_000 };
        for capacity in [1, 2, 3, 7, 16, 61] {
            let mut window = Window::new(1000, capacity);
            let mut live: VecDeque<(Span, u64)> = VecDeque::new();
            for _ in 0..rounds {
                let bytes = 1 + random(capacity);
                if random(2) == 0
                    && let Some(span) = window.take(bytes)
                {
                    assert!(span.offset >= 1000 && span.offset + bytes <= 1000 + capacity);
                    for (other, length) in &live {
                        assert!(span.offset + bytes <= other.offset || other.offset + length <= span.offset);
                    }
                    live.push_back((span, bytes));
                } else if let Some((span, _)) = live.pop_front() {
                    window.give_back(span);
                } else {
                    assert!(
                        window.take(capacity).is_some_and(|s| {
                            window.give_back(s);
                            true
                        }),
                        "an empty ring takes all"
                    );
                }
            }
        }
    }
}
