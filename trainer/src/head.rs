//! The head's matrix in vocabulary tiles.
//!
//! Weights come chunk by chunk in element order, and gradients leave chunk by chunk; tiles and chunks do not line up. A
//! [`Queue`] takes elements in at its end and gives tiles (or chunks) away at its front. The tiles are a function of
//! the model alone: they decide how sums over the vocabulary are cut.

mod queue;
#[cfg(test)]
mod tests;

pub use queue::Queue;

use crate::layout::Chunk;
use std::ops::Range;

/// Rows of a tile at most.
const ROWS_MAX: usize = 4_096;
/// Elements of a tile at most, unless that would be fewer than [`ROWS_MIN`] rows.
const ELEMENTS_MAX: usize = 4 << 20;
const ROWS_MIN: usize = 64;
/// The same on a GPU, where a product wants thousands of rows and a layer takes more memory than a tile does; there a
/// tile has a multiple of [`GPU_ROWS`] rows, so that all tiles and rows of logits begin at whole lines.
const GPU_ELEMENTS_MAX: usize = 64 << 20;
const GPU_ROWS: usize = 128;

/// How the rows of the head's matrix \[V,H] are cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tiles {
    /// Rows of a tile; the last may have fewer, but never one alone.
    pub rows: usize,
    /// Number of tiles.
    pub count: usize,
    /// V.
    pub vocab: usize,
    /// H.
    pub hidden: usize,
}

impl Tiles {
    /// The tiles of a model.
    pub fn new(vocab: usize, hidden: usize) -> Tiles {
        Tiles::with_rows(vocab, hidden, ROWS_MAX.min((ELEMENTS_MAX / hidden).max(ROWS_MIN)))
    }

    /// The tiles of a model whose head is computed on a GPU.
    pub fn on_gpu(vocab: usize, hidden: usize) -> Tiles {
        let most = (GPU_ELEMENTS_MAX / hidden).max(GPU_ROWS);
        let rows = vocab.div_ceil(vocab.div_ceil(most)).next_multiple_of(GPU_ROWS);
        Tiles { rows, count: vocab.div_ceil(rows), vocab, hidden }
    }

    /// Tiles of about equal size with at most about `most` rows.
    fn with_rows(vocab: usize, hidden: usize, most: usize) -> Tiles {
        let mut rows = vocab.div_ceil(vocab.div_ceil(most));
        while vocab % rows == 1 && rows < vocab {
            rows += 1;
        }
        Tiles { rows, count: vocab.div_ceil(rows), vocab, hidden }
    }

    /// Vocabulary ids of a tile.
    pub fn range(&self, tile: usize) -> Range<usize> {
        let first = tile * self.rows;
        first..(first + self.rows).min(self.vocab)
    }

    /// Elements of a tile.
    pub fn elements(&self, tile: usize) -> usize {
        self.range(tile).len() * self.hidden
    }

    /// Elements of all tiles up to and including `tile`.
    pub fn elements_to(&self, tile: usize) -> usize {
        self.range(tile).end * self.hidden
    }

    /// Elements of the largest tile.
    pub fn elements_max(&self) -> usize {
        self.rows.min(self.vocab) * self.hidden
    }

    /// Tells which tiles are complete as elements of the unit arrive; the matrix begins at element `before`.
    pub fn stream(&self, before: usize) -> Stream {
        Stream { tiles: *self, before, next: 0 }
    }
}

/// Tiles that become complete one after the other.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    tiles: Tiles,
    before: usize,
    next: usize,
}

impl Stream {
    /// The tiles that are newly complete when all elements of the unit before `end` have arrived.
    pub fn complete(&mut self, end: usize) -> Range<usize> {
        let first = self.next;
        while self.next < self.tiles.count && self.before + self.tiles.elements_to(self.next) <= end {
            self.next += 1;
        }
        first..self.next
    }
}

/// Number of chunks at the start of the head's unit that hold elements of the final norm.
pub fn norm_chunks(chunks: &[Chunk], hidden: usize) -> usize {
    chunks.iter().take_while(|chunk| chunk.start < hidden).count()
}
