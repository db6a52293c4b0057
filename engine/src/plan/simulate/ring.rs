//! The ring of a window: spans taken in order and given back in order, without the bytes.

use std::collections::VecDeque;

/// The ring.
pub(super) struct Ring {
    capacity: u64,
    position: u64,
    used: u64,
    peak: u64,
    /// Number of the oldest span.
    first: u32,
    /// Spans taken, oldest first: bytes with what was skipped for it, who has it, whether it is given back.
    spans: VecDeque<(u64, u32, bool)>,
}

impl Ring {
    pub(super) fn new(capacity: u64) -> Ring {
        Ring { capacity, position: 0, used: 0, peak: 0, first: 0, spans: VecDeque::new() }
    }

    /// Takes a span for `owner` and returns its number, or nothing if there is no room.
    pub(super) fn take(&mut self, bytes: u64, owner: u32) -> Option<u32> {
        let left = self.capacity - self.position;
        let skipped = if bytes > left { left } else { 0 };
        if self.used + skipped + bytes > self.capacity {
            return None;
        }
        self.position = if bytes > left { bytes } else { self.position + bytes };
        self.used += skipped + bytes;
        self.peak = self.peak.max(self.used);
        self.spans.push_back((skipped + bytes, owner, false));
        Some(self.first + self.spans.len() as u32 - 1)
    }

    /// Gives a span back; its bytes are free when all before it are given back too.
    pub(super) fn give_back(&mut self, number: u32) {
        self.spans[(number - self.first) as usize].2 = true;
        while let Some(&(bytes, _, true)) = self.spans.front() {
            self.spans.pop_front();
            self.first += 1;
            self.used -= bytes;
        }
    }

    /// Who has the oldest span.
    pub(super) fn oldest(&self) -> Option<u32> {
        self.spans.front().map(|&(_, owner, _)| owner)
    }

    /// Most bytes in use so far.
    pub(super) fn peak(&self) -> u64 {
        self.peak
    }
}
