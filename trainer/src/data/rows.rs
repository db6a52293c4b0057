//! Rows: the ids of all documents laid end to end and cut every `seq_len`; what is left over at the end is dropped.
//!
//! Within a row a position is scored against the id behind it. Nothing crosses the start of a document: positions begin
//! at 0 again, attention does not look before it, and the id before it has no target. A row's first position is 0 even
//! if its document began in an earlier row, and a row's last position has no target; so a row of one document has
//! `seq_len` - 1 targets.

use crate::batch::{MicroBatch, NO_TARGET};

/// Places in the row of ids `first .. first + len` at which documents start, the row's own start left out.
pub fn starts_within(starts: &[u64], first: u64, len: u64) -> Vec<usize> {
    let from = starts.partition_point(|&s| s <= first);
    starts[from..].iter().take_while(|&&s| s < first + len).map(|&s| (s - first) as usize).collect()
}

/// Rows, of the first `rows` rows of `len` ids, in which no id is followed by the next of its document. Rising.
pub fn without_targets(starts: &[u64], rows: u64, len: u64) -> Vec<u64> {
    let row_of = |start: &u64| start / len;
    let of_one_row = starts.chunk_by(|a, b| row_of(a) == row_of(b));
    // Every id but the first begins a document.
    let is_empty = |group: &&[u64]| group.iter().filter(|start| !start.is_multiple_of(len)).count() as u64 == len - 1;
    of_one_row.filter(is_empty).map(|group| row_of(&group[0])).take_while(|row| *row < rows).collect()
}

/// Puts rows together to a micro-batch.
pub struct Builder {
    micro: MicroBatch,
}

impl Builder {
    /// For `rows` rows of `seq` ids.
    pub fn new(seq: usize, rows: usize) -> Builder {
        let room = || Vec::with_capacity(rows * seq);
        let (ids, targets, positions, document) = (room(), room(), room(), room());
        Builder { micro: MicroBatch { rows: 0, seq, ids, targets, positions, document } }
    }

    /// Adds a row; `starts` as from [`starts_within`], rising. The row's own start may be among them.
    pub fn push(&mut self, ids: &[u32], starts: &[usize]) {
        let m = &mut self.micro;
        assert_eq!(ids.len(), m.seq);
        let mut begin = 0;
        for end in starts.iter().copied().filter(|&start| start > 0).chain([m.seq]) {
            m.targets.extend_from_slice(&ids[begin + 1..end]);
            m.targets.push(NO_TARGET);
            m.positions.extend(0..(end - begin) as u32);
            m.document.extend(std::iter::repeat_n(begin as u32, end - begin));
            begin = end;
        }
        m.ids.extend_from_slice(ids);
        m.rows += 1;
    }

    /// The micro-batch.
    pub fn finish(self) -> MicroBatch {
        self.micro
    }
}

#[cfg(test)]
mod tests;
