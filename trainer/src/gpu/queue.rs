//! Elements that arrive in pieces of one size and leave in pieces of another, as [`crate::head::Queue`], in memory that
//! is moved seldom: what is left moves to the front only when the end has no room.

use mt_kernels::cuda::{Element, Error, Queue as Work, ViewMut};

/// Elements at a multiple of which the next place may be asked to begin: 256 bytes of f32.
const ALIGN: usize = 64;
/// Elements of a buffer beside the largest piece that arrives and the largest that leaves.
pub(super) const SLACK: usize = ALIGN;

/// Which elements of a buffer are held. The caller owns the buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Queue {
    begin: usize,
    end: usize,
}

/// Where the elements held move to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Move {
    from: usize,
    to: usize,
    len: usize,
}

impl Queue {
    /// Number of elements held.
    pub(super) fn filled(&self) -> usize {
        self.end - self.begin
    }

    /// First element held.
    pub(super) fn begin(&self) -> usize {
        self.begin
    }

    /// Place of the next `n` elements in a buffer of `capacity`, which do not count as held yet. With `aligned` it
    /// begins at a multiple of [`ALIGN`], if all pieces that are pushed are multiples; else the elements held do.
    fn room(&mut self, capacity: usize, n: usize, aligned: bool) -> (usize, Option<Move>) {
        if self.end + n <= capacity {
            return (self.end, None);
        }
        let held = self.filled();
        let to = if aligned { held.next_multiple_of(ALIGN) - held } else { 0 };
        assert!(to < self.begin && to + held + n <= capacity, "a buffer holds what arrives beside what is left");
        let moved = Move { from: self.begin, to, len: held };
        (self.begin, self.end) = (to, to + held);
        (self.end, (held > 0).then_some(moved))
    }

    /// Counts the next `n` elements as held.
    pub(super) fn push(&mut self, n: usize) {
        self.end += n;
    }

    /// Drops the first `n` elements.
    pub(super) fn drop_front(&mut self, n: usize) {
        self.begin += n;
        assert!(self.begin <= self.end, "only what is held leaves");
        if self.begin == self.end {
            (self.begin, self.end) = (0, 0);
        }
    }

    /// Makes room for `n` elements in the buffer and gives the first one's place: see [`Queue::room`].
    pub(super) fn make_room<T: Element>(
        &mut self,
        work: &Work,
        mut buffer: ViewMut<'_, T>,
        n: usize,
        aligned: bool,
    ) -> Result<usize, Error> {
        let (at, moved) = self.room(buffer.len(), n, aligned);
        if let Some(Move { from, to, len }) = moved {
            // In pieces as long as the way, so that none overlaps its target.
            let step = from - to;
            for piece in (0..len).step_by(step) {
                let n = step.min(len - piece);
                let mut both = buffer.reborrow().slice(to + piece..from + piece + n);
                let mut target = both.take_front(n);
                let source = both.slice(step - n..step);
                target.copy_from(work, source.into_view())?;
            }
        }
        Ok(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pieces of 100 arrive and pieces of 256 leave: what is held stays in order, within a buffer of both.
    #[test]
    fn elements_keep_their_order_and_fit() {
        for aligned in [false, true] {
            let (arriving, leaving) = if aligned { (256, 100) } else { (100, 256) };
            let mut buffer = vec![usize::MAX; 256 + 100 + SLACK];
            let mut queue = Queue::default();
            let (mut next, mut left) = (0, 0);
            for _ in 0..50 {
                let (at, moved) = queue.room(buffer.len(), arriving, aligned);
                if let Some(Move { from, to, len }) = moved {
                    buffer.copy_within(from..from + len, to);
                }
                assert!(!aligned || at % ALIGN == 0, "{at}");
                for element in &mut buffer[at..at + arriving] {
                    *element = next;
                    next += 1;
                }
                queue.push(arriving);
                while queue.filled() >= leaving {
                    for element in &buffer[queue.begin()..queue.begin() + leaving] {
                        assert_eq!(*element, left);
                        left += 1;
                    }
                    queue.drop_front(leaving);
                }
            }
            assert!(left + leaving > next);
        }
    }
}
