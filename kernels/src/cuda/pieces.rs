//! Chunks of elements that lie in pieces in a buffer: weights are joined of their planes into it, and gradients are
//! taken out of it with the sums of squares of their leaves, which have the bits of [`crate::norm2`].

use super::device::{Arg, args, blocks};
use super::sources::{Kernel, Source, source};
use super::{Error, Queue, View, ViewMut};
use crate::norm2::LEAF;

pub(super) static SOURCE: Source = source!("pieces.cu", None);

pub(super) static KERNELS: [Kernel; 3] = [
    Kernel::new(&SOURCE, "pieces_join_bf16", 256),
    Kernel::new(&SOURCE, "pieces_join_f32", 256),
    Kernel::new(&SOURCE, "pieces_keep", 256),
];
const JOIN_BF16: usize = 0;
const JOIN_F32: usize = 1;
const KEEP: usize = 2;

/// Elements of a block: of bf16 weights, of f32 weights, of gradients.
const BLOCKS: [usize; 3] = [8 * 256, 4 * 256, 16 * LEAF];

/// Most pieces of a chunk.
pub const MOST: usize = 24;

/// A part of a chunk that lies in one piece in the buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// First element, counted from the chunk's start.
    pub from: usize,
    /// First element in the buffer.
    pub to: usize,
    /// Number of elements.
    pub len: usize,
}

/// The kernels' Pieces.
#[repr(C)]
#[derive(Clone, Copy)]
struct Pieces {
    count: u64,
    first: [u64; MOST],
    place: [u64; MOST],
}

args!(Pieces);

impl Pieces {
    /// Of a chunk and a buffer of so many elements.
    fn new(pieces: impl IntoIterator<Item = Piece>, chunk: usize, buffer: usize) -> Pieces {
        let mut all = Pieces { count: 0, first: [0; MOST], place: [0; MOST] };
        let mut end = 0;
        for piece in pieces {
            let count = all.count as usize;
            assert!(count < MOST, "a chunk has at most {MOST} pieces");
            assert!(piece.from == end && piece.to + piece.len <= buffer, "{piece:?} of {chunk} in {buffer}");
            (all.first[count], all.place[count]) = (piece.from as u64, piece.to as u64);
            all.count += 1;
            end += piece.len;
        }
        assert_eq!(end, chunk, "pieces cover the chunk");
        all
    }
}

/// Weights of their high planes, as bf16.
///
/// # Errors
/// A call fails; so do the other functions.
///
/// # Panics
/// If the pieces do not cover the chunk one after the other, or leave the buffer; so do the other functions.
pub fn join_high(
    queue: &Queue,
    hi: View<'_, u16>,
    pieces: impl IntoIterator<Item = Piece>,
    to: ViewMut<'_, u16>,
) -> Result<(), Error> {
    let pieces = Pieces::new(pieces, hi.len(), to.len());
    let grid = (blocks(hi.len(), BLOCKS[JOIN_BF16]), 1, 1);
    queue.launch(&KERNELS[JOIN_BF16], grid, 0, &[&hi.address(), &(hi.len() as u64), &pieces, &to.address()])
}

/// Weights of both planes.
///
/// # Errors
/// See [`join_high`].
pub fn join(
    queue: &Queue,
    hi: View<'_, u16>,
    lo: View<'_, i16>,
    pieces: impl IntoIterator<Item = Piece>,
    to: ViewMut<'_, f32>,
) -> Result<(), Error> {
    assert_eq!(hi.len(), lo.len(), "planes of one length");
    let pieces = Pieces::new(pieces, hi.len(), to.len());
    let grid = (blocks(hi.len(), BLOCKS[JOIN_F32]), 1, 1);
    let args: [&dyn Arg; 5] = [&hi.address(), &lo.address(), &(hi.len() as u64), &pieces, &to.address()];
    queue.launch(&KERNELS[JOIN_F32], grid, 0, &args)
}

/// The first `n` elements of `to` are those of the buffer, the others zeros; `leaves` has the sum of squares of each
/// leaf of them, unless there are more to be added.
///
/// # Errors
/// See [`join_high`].
pub fn keep(
    queue: &Queue,
    from: View<'_, f32>,
    pieces: impl IntoIterator<Item = Piece>,
    to: ViewMut<'_, f32>,
    n: usize,
    leaves: Option<ViewMut<'_, f64>>,
) -> Result<(), Error> {
    assert!(n <= to.len(), "{n} of {}", to.len());
    assert!(leaves.as_ref().is_none_or(|leaves| leaves.len() == n.div_ceil(LEAF)), "a sum for each leaf");
    let (pieces, total) = (Pieces::new(pieces, n, from.len()), to.len());
    let leaves = leaves.map_or(0, |leaves| leaves.address());
    let args: [&dyn Arg; 6] = [&from.address(), &(n as u64), &pieces, &to.address(), &(total as u64), &leaves];
    queue.launch(&KERNELS[KEEP], (blocks(total, BLOCKS[KEEP]), 1, 1), 0, &args)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: [Piece; 2] = [Piece { from: 0, to: 7, len: 3 }, Piece { from: 3, to: 0, len: 2 }];

    #[test]
    fn pieces_are_passed_in_the_order_of_the_chunk() {
        let pieces = Pieces::new(TWO, 5, 10);
        assert_eq!((pieces.count, &pieces.first[..2], &pieces.place[..2]), (2, &[0, 3][..], &[7, 0][..]));
    }

    #[test]
    #[should_panic(expected = "pieces cover the chunk")]
    fn a_chunk_that_is_not_covered_is_refused() {
        Pieces::new(TWO, 6, 10);
    }

    #[test]
    #[should_panic(expected = "in 9")]
    fn a_piece_beyond_the_buffer_is_refused() {
        Pieces::new(TWO, 5, 9);
    }

    #[test]
    #[should_panic(expected = "from: 4")]
    fn a_gap_is_refused() {
        Pieces::new([TWO[0], Piece { from: 4, ..TWO[1] }], 5, 10);
    }
}
