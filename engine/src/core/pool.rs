//! Room for copies that tickets use: first fit over the part of the arena that the plan does not use.
//!
//! It knows holes only; who holds what, and what may be evicted, is known in `frames`.
//!
//! Invariants: holes are sorted, lie inside the pool, and no two of them touch; offsets and lengths are multiples of a
//! block, since transfers need that alignment.

use crate::format::BLOCK;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Hole {
    /// Byte offset in the arena.
    offset: u64,
    bytes: u64,
}

/// The pool.
#[derive(Debug)]
pub(crate) struct Pool {
    start: u64,
    bytes: u64,
    holes: Vec<Hole>,
}

impl Pool {
    /// A pool over `bytes` bytes of the arena from `start` on, all of it free.
    pub(crate) fn new(start: u64, bytes: u64) -> Pool {
        assert!(bytes.is_multiple_of(BLOCK), "a pool of {bytes} bytes is not a whole number of blocks");
        let holes = if bytes > 0 { vec![Hole { offset: start, bytes }] } else { Vec::new() };
        Pool { start, bytes, holes }
    }

    /// First byte in the arena.
    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes that nobody has.
    pub(crate) fn free_bytes(&self) -> u64 {
        self.holes.iter().map(|hole| hole.bytes).sum()
    }

    /// Takes the first room that is large enough, or nothing if none is.
    pub(crate) fn take(&mut self, bytes: u64) -> Option<u64> {
        assert!(bytes > 0 && bytes.is_multiple_of(BLOCK), "{bytes} bytes are not a whole number of blocks");
        let at = self.holes.iter().position(|hole| hole.bytes >= bytes)?;
        let hole = &mut self.holes[at];
        let offset = hole.offset;
        hole.offset += bytes;
        hole.bytes -= bytes;
        if hole.bytes == 0 {
            self.holes.remove(at);
        }
        Some(offset)
    }

    /// Gives back what was taken at `offset`.
    pub(crate) fn give_back(&mut self, offset: u64, bytes: u64) {
        let end = offset + bytes;
        assert!(offset >= self.start && end <= self.start + self.bytes, "bytes {offset}..{end} are not of the pool");
        let at = self.holes.partition_point(|hole| hole.offset < offset);
        let before = at.checked_sub(1).map(|before| self.holes[before]);
        let after = self.holes.get(at).copied();
        assert!(
            before.is_none_or(|hole| hole.offset + hole.bytes <= offset) && after.is_none_or(|hole| end <= hole.offset),
            "bytes {offset}..{end} are free already"
        );
        let joins_before = before.is_some_and(|hole| hole.offset + hole.bytes == offset);
        let joins_after = after.is_some_and(|hole| hole.offset == end);
        match (joins_before, joins_after) {
            (true, true) => {
                let after = self.holes.remove(at);
                self.holes[at - 1].bytes += bytes + after.bytes;
            }
            (true, false) => self.holes[at - 1].bytes += bytes,
            (false, true) => self.holes[at] = Hole { offset, bytes: bytes + self.holes[at].bytes },
            (false, false) => self.holes.insert(at, Hole { offset, bytes }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCKS: usize = 5;
    const START: u64 = 7 * BLOCK;

    /// The same pool as one flag a block.
    #[derive(Clone)]
    struct Flags {
        taken: [bool; BLOCKS],
        /// First block and length of what was taken.
        spans: Vec<(usize, usize)>,
    }

    impl Flags {
        fn take(&mut self, count: usize) -> Option<usize> {
            let at = (0..=BLOCKS - count).find(|at| self.taken[*at..at + count].iter().all(|taken| !taken))?;
            self.taken[at..at + count].fill(true);
            self.spans.push((at, count));
            Some(at)
        }

        fn give_back(&mut self, index: usize) -> (usize, usize) {
            let (at, count) = self.spans.remove(index);
            self.taken[at..at + count].fill(false);
            (at, count)
        }
    }

    /// Replays a history in a new pool and compares every answer.
    fn replay(history: &[Step]) -> (Pool, Flags) {
        let mut pool = Pool::new(START, BLOCKS as u64 * BLOCK);
        let mut flags = Flags { taken: [false; BLOCKS], spans: Vec::new() };
        for step in history {
            match *step {
                Step::Take(count) => {
                    let expected = flags.take(count).map(|at| START + at as u64 * BLOCK);
                    assert_eq!(pool.take(count as u64 * BLOCK), expected, "{history:?}");
                }
                Step::GiveBack(index) => {
                    let (at, count) = flags.give_back(index);
                    pool.give_back(START + at as u64 * BLOCK, count as u64 * BLOCK);
                }
            }
        }
        (pool, flags)
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Take(usize),
        /// Of the spans held, by index.
        GiveBack(usize),
    }

    /// Every history of at most `left` more steps; returns how many there are.
    fn every(history: &mut Vec<Step>, left: usize) -> u64 {
        let (pool, flags) = replay(history);
        let free = flags.taken.iter().filter(|taken| !**taken).count() as u64 * BLOCK;
        assert_eq!(pool.holes.iter().map(|hole| hole.bytes).sum::<u64>(), free, "{history:?}");
        let apart = |pair: &[Hole]| pair[0].offset + pair[0].bytes < pair[1].offset;
        assert!(pool.holes.windows(2).all(apart), "{history:?}: {:?}", pool.holes);
        if left == 0 {
            return 1;
        }
        let steps = (1..=BLOCKS).map(Step::Take).chain((0..flags.spans.len()).map(Step::GiveBack));
        let mut count = 1;
        for step in steps {
            history.push(step);
            count += every(history, left - 1);
            history.pop();
        }
        count
    }

    #[test]
    fn every_short_history_is_first_fit_and_loses_nothing() {
        let count = every(&mut Vec::new(), 6);
        assert!(count > 40_000, "only {count} histories");
    }

    #[test]
    #[should_panic(expected = "free already")]
    fn giving_back_twice_is_a_bug() {
        let mut pool = Pool::new(0, 4 * BLOCK);
        let offset = pool.take(BLOCK).expect("room");
        pool.give_back(offset, BLOCK);
        pool.give_back(offset, BLOCK);
    }
}
