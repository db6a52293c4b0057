//! The only caller of the `gemm` crate: C = (accumulate ? C : 0) + scale * A * B on strided f32 matrices.
//!
//! [`one`] computes a product on the calling thread (attention's tiles); [`all`] cuts C into tiles and spreads them
//! over the pool. It decides nothing about what is multiplied: see `linear` and `attention`.
//!
//! Invariants: the cut depends on the shape of C alone, never on the number of threads; K is never cut; no tile has a
//! single row or column unless C has. So each element's sequence of operations is a function of the shapes.
#![allow(unsafe_code)]

use crate::Cpu;
use crate::simd::Level;
use rayon::prelude::*;
use std::ops::Range;

/// A matrix read through strides: element (i, j) is `data[i * row + j * col]`.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) data: &'a [f32],
    pub(crate) row: usize,
    pub(crate) col: usize,
}

impl<'a> View<'a> {
    /// Rows one after the other, `stride` apart.
    pub(crate) fn rows(data: &'a [f32], stride: usize) -> View<'a> {
        View { data, row: stride, col: 1 }
    }

    /// The transpose of [`View::rows`].
    pub(crate) fn transposed(data: &'a [f32], stride: usize) -> View<'a> {
        View { data, row: 1, col: stride }
    }

    fn check(&self, rows: usize, cols: usize) {
        assert!(rows > 0 && cols > 0, "a matrix has elements");
        let last = (rows - 1) * self.row + (cols - 1) * self.col;
        assert!(last < self.data.len(), "matrix of {rows} x {cols} reaches beyond its slice");
    }
}

/// C and what becomes of its old content.
pub(crate) struct Target<'a> {
    pub(crate) data: &'a mut [f32],
    /// Distance between rows; elements of a row are neighbours.
    pub(crate) stride: usize,
    pub(crate) accumulate: bool,
}

/// Shape of C, and K.
#[derive(Clone, Copy)]
pub(crate) struct Size {
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) k: usize,
}

/// How a large C is cut: rows and columns of a tile.
#[derive(Clone, Copy)]
pub(crate) struct Cut {
    rows: usize,
    cols: usize,
}

impl Cut {
    /// Where B^T or B lies with K or the columns contiguous: it is packed once for every block of rows, A not at all.
    /// Measured on 1,024 rows: 256 x 512 costs 2% against one block of rows, 384 x 384 5%, 768 x 192 15%.
    pub(crate) const HIGH: Cut = Cut { rows: 512, cols: 256 };
    /// Where A is read across its rows and packed for every block of columns, B at little cost for every block of rows.
    /// Measured: 8% faster than 384 x 384.
    pub(crate) const WIDE: Cut = Cut { rows: 384, cols: 768 };
}

/// Tiles become smaller until there are this many, so that a small C keeps a few threads busy.
const ENOUGH: usize = 4;
/// Rows and columns below which a tile is not halved.
const LEAST: (usize, usize) = (192, 128);
/// Rows and columns of the widest product kernel: tiles end where its steps do.
const KERNEL: (usize, usize) = (6, 64);

/// The product on the calling thread, as one call of the crate.
pub(crate) fn one(c: Target<'_>, a: View<'_>, b: View<'_>, size: Size, scale: f32) {
    let Size { rows, cols, k } = size;
    if rows == 0 || cols == 0 {
        return;
    }
    let last = (rows - 1) * c.stride + cols - 1;
    assert!(last < c.data.len() && (cols <= c.stride || rows == 1), "target of {rows} x {cols} does not fit its slice");
    a.check(rows, k);
    b.check(k, cols);
    // SAFETY: c is exclusively borrowed, a and b are shared borrows, and every index of the three lies inside its slice
    // (checked above).
    unsafe { call(c.data.as_mut_ptr(), c.stride, c.accumulate, a, b, size, scale) }
}

/// The product on all threads, C dense (`stride == cols`).
pub(crate) fn all(cpu: &Cpu, c: &mut [f32], accumulate: bool, a: View<'_>, b: View<'_>, size: Size, cut: Cut) {
    let Size { rows, cols, k } = size;
    if rows == 0 || cols == 0 {
        return;
    }
    assert_eq!(c.len(), rows * cols, "target of {rows} x {cols}");
    a.check(rows, k);
    b.check(k, cols);
    let tiles = tiles(rows, cols, cut);
    let c = Shared(c.as_mut_ptr());
    cpu.install(|| {
        tiles.par_iter().with_max_len(1).for_each(|(i, j)| {
            let part = Size { rows: i.len(), cols: j.len(), k };
            let a = View { data: &a.data[i.start * a.row..], ..a };
            let b = View { data: &b.data[j.start * b.col..], ..b };
            // SAFETY: `tiles` cuts C into disjoint blocks, one a call, and C is exclusively borrowed by this function
            // until all calls ended; the blocks lie inside C and the operands' parts inside their slices (checked
            // above).
            unsafe { call(c.at(i.start * cols + j.start), cols, accumulate, a, b, part, 1.0) }
        });
    });
}

/// The blocks of C, by its shape.
pub(crate) fn tiles(rows: usize, cols: usize, cut: Cut) -> Vec<(Range<usize>, Range<usize>)> {
    let (mut high, mut wide) = (rows.div_ceil(cut.rows), cols.div_ceil(cut.cols));
    while high * wide < ENOUGH {
        if rows.div_ceil(2 * high) >= LEAST.0 {
            high *= 2;
        } else if cols.div_ceil(2 * wide) >= LEAST.1 {
            wide *= 2;
        } else {
            break;
        }
    }
    let high = cuts(rows, rows.div_ceil(high).next_multiple_of(KERNEL.0));
    let wide = cuts(cols, cols.div_ceil(wide).next_multiple_of(KERNEL.1));
    high.iter().flat_map(|i| wide.iter().map(|j| (i.clone(), j.clone()))).collect()
}

/// Cuts 0..len into ranges of `step`; a last range of one joins the one before it.
fn cuts(len: usize, step: usize) -> Vec<Range<usize>> {
    let mut all = Vec::with_capacity(len.div_ceil(step));
    let mut start = 0;
    while start < len {
        let end = if len - start <= step + 1 { len } else { start + step };
        all.push(start..end);
        start = end;
    }
    all
}

/// Rows of a packed panel and the most that K is cut into, by the crate's choice of kernel: K is cut into equal parts
/// of at most 512, or as many as fill the first-level cache (at most 48 KiB) with a panel.
fn panel() -> (usize, usize) {
    match Level::detect() {
        Level::Avx512 => (64, 512),
        Level::Avx2 => (16, 1024),
        Level::Plain => (2, 8192),
    }
}

/// Bytes that one call of the crate packs at most for a block of `rows` x `cols`, and what its thread keeps.
///
/// The crate sees C transposed. It packs the operand along the contiguous side of C in panels, all of the block's at
/// once if it packs ahead, and the other operand in panels of 6. One more buffer stays with each thread, of which it
/// touches at most 8 panels.
fn packed_bytes(rows: usize, cols: usize, k: usize) -> usize {
    let (panel, deepest) = panel();
    let depth = k.div_ceil(k.div_ceil(deepest).max(1));
    let along = cols.next_multiple_of(panel);
    let across = rows.next_multiple_of(6);
    // Alignment of each part to 128 bytes.
    (along + across + 8 * panel) * depth * size_of::<f32>() + 3 * 128
}

/// As [`packed_bytes`], for the largest block of [`all`] on each of `threads` threads.
pub(crate) fn scratch_bytes(threads: usize, size: Size) -> usize {
    let largest = |cut: Cut| {
        // A last block may be longer by one.
        let (rows, cols) = (size.rows.min(cut.rows + KERNEL.0), size.cols.min(cut.cols + KERNEL.1));
        packed_bytes(rows, cols, size.k)
    };
    threads * largest(Cut::HIGH).max(largest(Cut::WIDE))
}

/// As [`packed_bytes`], for one call of [`one`].
pub(crate) fn one_scratch_bytes(size: Size) -> usize {
    packed_bytes(size.rows, size.cols, size.k)
}

/// The start of C, for tiles that write disjoint blocks of it.
#[derive(Clone, Copy)]
struct Shared(*mut f32);

impl Shared {
    fn at(self, offset: usize) -> *mut f32 {
        self.0.wrapping_add(offset)
    }
}

// SAFETY: only `all` makes one; its tasks write disjoint blocks and end before the borrow that the pointer came from.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

/// # Safety
/// `c` points to a block of `size.rows` rows of `size.cols` floats, `stride` apart, that nobody else accesses during
/// the call; `a` and `b` hold rows x k and k x cols elements within their slices.
unsafe fn call(c: *mut f32, stride: usize, accumulate: bool, a: View<'_>, b: View<'_>, size: Size, scale: f32) {
    // SAFETY: the caller's promise is exactly what the crate demands: valid pointers for all indices of the three
    // matrices and no alias of C. Strides of slices fit isize.
    unsafe {
        gemm::gemm(
            size.rows,
            size.cols,
            size.k,
            c,
            1,
            stride as isize,
            accumulate,
            a.data.as_ptr(),
            a.col as isize,
            a.row as isize,
            b.data.as_ptr(),
            b.col as isize,
            b.row as isize,
            1.0,
            scale,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_cover_once_and_are_never_one_wide() {
        for rows in [1, 2, 3, 63, 129, 192, 385, 769, 1024] {
            for cols in [1, 2, 17, 192, 257, 385, 576, 1153, 4096] {
                for cut in [Cut::HIGH, Cut::WIDE] {
                    let mut seen = vec![0u8; rows * cols];
                    for (i, j) in tiles(rows, cols, cut) {
                        assert!((i.len() > 1 || rows == 1) && (j.len() > 1 || cols == 1), "{rows} {cols}");
                        assert!(i.len() <= cut.rows + KERNEL.0 && j.len() <= cut.cols + KERNEL.1, "{rows} {cols}");
                        for i in i {
                            seen[i * cols..][j.clone()].iter_mut().for_each(|s| *s += 1);
                        }
                    }
                    assert!(seen.iter().all(|s| *s == 1), "{rows} {cols}");
                }
            }
        }
    }
}
