//! RMSNorm over the last dimension, as [`crate::rmsnorm`]; sums of a row in f32. Rows lie one after the other, or are
//! some of the heads in a token's row.

use super::device::{Arg, blocks};
use super::sources::{Kernel, Source, source};
use super::{Error, Queue, Real, View, ViewMut};

pub(super) static SOURCE: Source = source!("rmsnorm.cu", None);

pub(super) static KERNELS: [Kernel; 9] = [
    Kernel::new(&SOURCE, "rmsnorm_forward_narrow_f32", THREADS),
    Kernel::new(&SOURCE, "rmsnorm_forward_narrow_bf16", THREADS),
    Kernel::new(&SOURCE, "rmsnorm_forward_wide_f32", THREADS),
    Kernel::new(&SOURCE, "rmsnorm_forward_wide_bf16", THREADS),
    Kernel::new(&SOURCE, "rmsnorm_backward_narrow_f32", THREADS).with_shared(NARROW_BYTES),
    Kernel::new(&SOURCE, "rmsnorm_backward_narrow_bf16", THREADS).with_shared(NARROW_BYTES),
    Kernel::new(&SOURCE, "rmsnorm_backward_wide_f32", THREADS).with_shared(WIDE_BYTES),
    Kernel::new(&SOURCE, "rmsnorm_backward_wide_bf16", THREADS).with_shared(WIDE_BYTES),
    Kernel::new(&SOURCE, "rmsnorm_finish", 256),
];
const FORWARD: usize = 0;
const BACKWARD: usize = 4;
const FINISH: usize = 8;

const THREADS: u32 = 256;
/// Rows of up to so many columns take a warp each, others a block.
const NARROW: usize = 512;
/// Groups of threads of a block, by [`wide`].
const GROUPS: [usize; 2] = [8, 1];
/// Rows that a group adds up.
const ROWS: usize = 16;
/// Columns of a block of the sum of partial sums.
const FINISH_COLUMNS: usize = 32;
/// Most columns: the partial sums of [`backward`] lie in shared memory, of which every device has 99 KiB a block.
pub const MAX_COLUMNS: usize = 24 * 1024;
const NARROW_BYTES: u32 = (GROUPS[0] * NARROW * 4) as u32;
const WIDE_BYTES: u32 = (MAX_COLUMNS * 4) as u32;

/// Index of the kind of kernel.
fn wide(columns: usize) -> usize {
    usize::from(columns > NARROW)
}

/// Rows and columns of x.
fn shape(x: usize, columns: usize) -> (usize, usize) {
    assert!(
        columns > 0 && columns <= MAX_COLUMNS && x.is_multiple_of(columns),
        "x [R,C], w [C], C up to {MAX_COLUMNS}"
    );
    let rows = x / columns;
    assert!(rows <= u32::MAX as usize, "{rows} rows");
    (rows, columns)
}

/// y[r,:] = x[r,:] * rstd[r] * w ; rstd[r] = 1/sqrt(mean(x^2)+eps). x,y [R,C], w [C], rstd [R].
///
/// # Errors
/// A call fails; so does [`backward`].
///
/// # Panics
/// If a view does not have the length of its shape; so does [`backward`].
pub fn forward<T: Real>(
    queue: &Queue,
    x: View<'_, T>,
    w: View<'_, T>,
    eps: f32,
    y: ViewMut<'_, T>,
    rstd: ViewMut<'_, f32>,
) -> Result<(), Error> {
    let (rows, columns) = shape(x.len(), w.len());
    assert!(y.len() == x.len() && rstd.len() == rows, "x, y [R,C], rstd [R]");
    let rows = Rows { rows, columns, heads: 1, stride: columns };
    launch_forward::<T>(queue, rows, x.address(), w.address(), eps, y.address(), rstd.address())
}

/// Some of the heads of each token: `heads` neighbours of `dim` elements, from a token's to the next token's `stride`
/// elements. Views begin at the first token's first of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heads {
    /// T
    pub tokens: usize,
    /// Of each token.
    pub heads: usize,
    /// Elements of a head: C.
    pub dim: usize,
    /// Elements from a token's to the next.
    pub stride: usize,
}

impl Heads {
    /// Rows in all, and their shape; `lens` are the views that they lie in.
    fn rows(&self, lens: &[usize]) -> Rows {
        let Heads { tokens, heads, dim, stride } = *self;
        assert!(heads > 0 && heads * dim <= stride, "{self:?}");
        let len = tokens.saturating_sub(1) * stride + heads * dim;
        assert!(tokens == 0 || lens.iter().all(|l| *l >= len), "views of {lens:?} elements for {self:?}");
        let (rows, columns) = shape(tokens * heads * dim, dim);
        Rows { rows, columns, heads, stride }
    }
}

/// [`forward`] of every head; rstd [T, heads].
///
/// # Errors
/// See [`forward`].
///
/// # Panics
/// As [`forward`].
pub fn forward_heads<T: Real>(
    queue: &Queue,
    heads: Heads,
    x: View<'_, T>,
    w: View<'_, T>,
    eps: f32,
    y: ViewMut<'_, T>,
    rstd: ViewMut<'_, f32>,
) -> Result<(), Error> {
    let rows = heads.rows(&[x.len(), y.len()]);
    assert!(w.len() == rows.columns && rstd.len() == rows.rows, "w [C], rstd [T, heads]");
    launch_forward::<T>(queue, rows, x.address(), w.address(), eps, y.address(), rstd.address())
}

/// Rows of the kernels: R of C elements, in groups of `heads` that begin `stride` elements apart.
#[derive(Clone, Copy)]
struct Rows {
    rows: usize,
    columns: usize,
    heads: usize,
    stride: usize,
}

fn launch_forward<T: Real>(
    queue: &Queue,
    rows: Rows,
    x: u64,
    w: u64,
    eps: f32,
    y: u64,
    rstd: u64,
) -> Result<(), Error> {
    let Rows { rows, columns, heads, stride } = rows;
    let kind = wide(columns);
    let grid = (blocks(rows, GROUPS[kind]), 1, 1);
    let (rows, columns, heads, stride) = (rows as u32, columns as u32, heads as u32, stride as u32);
    let args: [&dyn Arg; 9] = [&x, &w, &eps, &y, &rstd, &rows, &columns, &heads, &stride];
    queue.launch(&KERNELS[FORWARD + 2 * kind + T::INDEX], grid, 0, &args)
}

/// Elements of the scratch of [`backward`].
pub fn scratch_len(rows: usize, columns: usize) -> usize {
    rows.div_ceil(GROUPS[wide(columns)] * ROWS) * columns
}

/// Adds to dx if `add` else overwrites; always adds to dw [C]. The sum over rows is taken 16 rows at a time in f32, and
/// of these in f64.
///
/// # Errors
/// See [`forward`].
#[allow(clippy::too_many_arguments)]
pub fn backward<T: Real>(
    queue: &Queue,
    dy: View<'_, T>,
    x: View<'_, T>,
    w: View<'_, T>,
    rstd: View<'_, f32>,
    dx: ViewMut<'_, T>,
    add: bool,
    dw: ViewMut<'_, f32>,
    scratch: ViewMut<'_, f32>,
) -> Result<(), Error> {
    let (rows, columns) = shape(x.len(), w.len());
    assert!(dy.len() == x.len() && dx.len() == x.len(), "dy, x, dx [R,C]");
    assert!(rstd.len() == rows && dw.len() == columns, "rstd [R], dw [C]");
    let rows = Rows { rows, columns, heads: 1, stride: columns };
    let dx = (dx.address(), add);
    launch_backward::<T>(queue, rows, dy.address(), x.address(), w.address(), rstd.address(), dx, dw, scratch)
}

/// [`backward`] of every head, in place: `d` holds the gradient of y, then that of x.
///
/// # Errors
/// See [`forward`].
///
/// # Panics
/// As [`backward`].
#[allow(clippy::too_many_arguments)]
pub fn backward_heads<T: Real>(
    queue: &Queue,
    heads: Heads,
    d: ViewMut<'_, T>,
    x: View<'_, T>,
    w: View<'_, T>,
    rstd: View<'_, f32>,
    dw: ViewMut<'_, f32>,
    scratch: ViewMut<'_, f32>,
) -> Result<(), Error> {
    let rows = heads.rows(&[d.len(), x.len()]);
    assert!(w.len() == rows.columns && dw.len() == rows.columns, "w, dw [C]");
    assert!(rstd.len() == rows.rows, "rstd [T, heads]");
    let d = d.address();
    launch_backward::<T>(queue, rows, d, x.address(), w.address(), rstd.address(), (d, false), dw, scratch)
}

#[allow(clippy::too_many_arguments)]
fn launch_backward<T: Real>(
    queue: &Queue,
    rows: Rows,
    dy: u64,
    x: u64,
    w: u64,
    rstd: u64,
    (dx, add): (u64, bool),
    dw: ViewMut<'_, f32>,
    scratch: ViewMut<'_, f32>,
) -> Result<(), Error> {
    let Rows { rows, columns, heads, stride } = rows;
    assert!(scratch.len() >= scratch_len(rows, columns), "scratch of {} floats", scratch.len());
    let kind = wide(columns);
    let parts = blocks(rows, GROUPS[kind] * ROWS);
    let shared = (GROUPS[kind] * columns * 4) as u32;
    let (partial, add) = (scratch.address(), i32::from(add));
    let (rows, columns, heads, stride) = (rows as u32, columns as u32, heads as u32, stride as u32);
    let args: [&dyn Arg; 11] = [&dy, &x, &w, &rstd, &dx, &add, &partial, &rows, &columns, &heads, &stride];
    queue.launch(&KERNELS[BACKWARD + 2 * kind + T::INDEX], (parts, 1, 1), shared, &args)?;
    let grid = (blocks(dw.len(), FINISH_COLUMNS), 1, 1);
    queue.launch(&KERNELS[FINISH], grid, 0, &[&partial, &parts, &columns, &dw.address()])
}
