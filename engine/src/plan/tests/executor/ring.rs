//! A ring that compares its spans with each other.

use std::collections::VecDeque;

/// A ring with the spans in use: owner, begin, end, whether it is given back.
pub struct Ring {
    pub capacity: u64,
    pub position: u64,
    pub spans: VecDeque<(usize, u64, u64, bool)>,
}

impl Ring {
    /// Takes a span behind the last, or none if another is there.
    pub fn take(&mut self, owner: usize, bytes: u64) -> bool {
        let begin = if self.position + bytes > self.capacity { 0 } else { self.position };
        let (skipped, end) = (if begin == self.position { begin } else { self.position }, begin + bytes);
        if end > self.capacity {
            return false;
        }
        let overlaps = |from: u64, to: u64| self.spans.iter().any(|&(_, b, e, _)| from < e && b < to);
        // What is skipped is taken as well, and the ring never laps itself.
        if overlaps(begin, end) || (begin < self.position && overlaps(skipped, self.capacity)) {
            return false;
        }
        self.position = end;
        self.spans.push_back((owner, begin, end, false));
        true
    }

    /// Gives a span back; it is free when all before it are.
    pub fn give_back(&mut self, owner: usize) {
        let span = self.spans.iter_mut().find(|span| span.0 == owner && !span.3).expect("the owner has a span");
        span.3 = true;
        while self.spans.front().is_some_and(|span| span.3) {
            self.spans.pop_front();
        }
    }
}
