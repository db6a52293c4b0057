//! SwiGLU, additions and casts, elementwise.

use super::device::{Arg, blocks};
use super::sources::{Kernel, Source, source};
use super::{Error, Queue, Real, View, ViewMut};

pub(super) static SOURCE: Source = source!("pointwise.cu", None);

pub(super) static KERNELS: [Kernel; 10] = [
    Kernel::new(&SOURCE, "pointwise_add_f32", THREADS),
    Kernel::new(&SOURCE, "pointwise_add_bf16", THREADS),
    Kernel::new(&SOURCE, "pointwise_swiglu_f32", THREADS),
    Kernel::new(&SOURCE, "pointwise_swiglu_bf16", THREADS),
    Kernel::new(&SOURCE, "pointwise_swiglu_backward_f32", THREADS),
    Kernel::new(&SOURCE, "pointwise_swiglu_backward_bf16", THREADS),
    Kernel::new(&SOURCE, "pointwise_narrow", THREADS),
    Kernel::new(&SOURCE, "pointwise_widen", THREADS),
    Kernel::new(&SOURCE, "pointwise_copy_rows_f32", THREADS),
    Kernel::new(&SOURCE, "pointwise_copy_rows_bf16", THREADS),
];
const ADD: usize = 0;
const SWIGLU: usize = 2;
const SWIGLU_BACKWARD: usize = 4;
const NARROW: usize = 6;
const WIDEN: usize = 7;
const COPY_ROWS: usize = 8;

const THREADS: u32 = 256;

/// Elements of a block whose threads take 16 bytes each.
fn block<T>() -> usize {
    THREADS as usize * (16 / size_of::<T>())
}

/// y += x, rounded once.
///
/// # Errors
/// A call fails; so do all functions of this module.
///
/// # Panics
/// If the views differ in length; so do all functions of this module.
pub fn add<T: Real>(queue: &Queue, y: ViewMut<'_, T>, x: View<'_, T>) -> Result<(), Error> {
    assert_eq!(x.len(), y.len(), "views of one length");
    let grid = (blocks(y.len(), block::<T>()), 1, 1);
    queue.launch(&KERNELS[ADD + T::INDEX], grid, 0, &[&y.address(), &x.address(), &(x.len() as u64)])
}

/// To bf16, to nearest, ties to even.
///
/// # Errors
/// See [`add`].
pub fn narrow(queue: &Queue, from: View<'_, f32>, to: ViewMut<'_, u16>) -> Result<(), Error> {
    assert_eq!(from.len(), to.len(), "views of one length");
    let grid = (blocks(to.len(), block::<f32>()), 1, 1);
    queue.launch(&KERNELS[NARROW], grid, 0, &[&to.address(), &from.address(), &(from.len() as u64)])
}

/// From bf16.
///
/// # Errors
/// See [`add`].
pub fn widen(queue: &Queue, from: View<'_, u16>, to: ViewMut<'_, f32>) -> Result<(), Error> {
    assert_eq!(from.len(), to.len(), "views of one length");
    let grid = (blocks(to.len(), block::<f32>()), 1, 1);
    queue.launch(&KERNELS[WIDEN], grid, 0, &[&to.address(), &from.address(), &(from.len() as u64)])
}

/// Copies the first `columns` elements of every `stride` elements.
///
/// # Errors
/// See [`add`].
pub fn copy_rows<T: Real>(
    queue: &Queue,
    rows: usize,
    columns: usize,
    stride: usize,
    from: View<'_, T>,
    to: ViewMut<'_, T>,
) -> Result<(), Error> {
    let len = rows.saturating_sub(1) * stride + columns;
    assert!(columns <= stride && (rows == 0 || from.len().min(to.len()) >= len), "rows {stride} elements apart");
    let grid = (blocks(rows * columns.div_ceil(block::<T>()), 1), 1, 1);
    let args: [&dyn Arg; 4] = [&to.address(), &from.address(), &(columns as u32), &(stride as u32)];
    queue.launch(&KERNELS[COPY_ROWS + T::INDEX], grid, 0, &args)
}

/// Where gate and up [R,F] lie in one view, and their gradients in another: in rows `stride` elements apart. Side by
/// side in rows of 2 F, or one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GateUp {
    /// R
    pub rows: usize,
    /// F
    pub columns: usize,
    /// Elements from a row to the next.
    pub stride: usize,
    /// Elements from gate, which begins the view, to up.
    pub up: usize,
}

impl GateUp {
    /// Rows of gate and up, as a matrix product gives them with both weights in one.
    pub fn beside(rows: usize, columns: usize) -> GateUp {
        GateUp { rows, columns, stride: 2 * columns, up: columns }
    }

    /// All of gate, then all of up.
    pub fn apart(rows: usize, columns: usize) -> GateUp {
        GateUp { rows, columns, stride: columns, up: rows * columns }
    }

    fn check(&self, lens: &[usize]) {
        let GateUp { rows, columns, stride, up } = *self;
        let beside = up >= columns && stride >= up + columns;
        let apart = stride >= columns && up >= rows.saturating_sub(1) * stride + columns;
        assert!(columns > 0 && (beside || apart), "{self:?} overlaps");
        let len = rows.saturating_sub(1) * stride + up + columns;
        assert!(rows == 0 || lens.iter().all(|l| *l >= len), "views of {lens:?} elements for {self:?}");
    }

    fn grid<T>(&self) -> (u32, u32, u32) {
        (blocks(self.rows * self.columns.div_ceil(block::<T>()), 1), 1, 1)
    }

    /// Addresses of gate and up in a view that begins at `address`.
    fn parts<T>(&self, address: u64) -> (u64, u64) {
        (address, address + (self.up * size_of::<T>()) as u64)
    }
}

/// out [R,F] = silu(gate) * up
///
/// # Errors
/// See [`add`].
pub fn swiglu_forward<T: Real>(
    queue: &Queue,
    layout: GateUp,
    both: View<'_, T>,
    out: ViewMut<'_, T>,
) -> Result<(), Error> {
    layout.check(&[both.len()]);
    assert_eq!(out.len(), layout.rows * layout.columns, "out [R,F]");
    let (gate, up) = layout.parts::<T>(both.address());
    let args: [&dyn Arg; 5] = [&gate, &up, &out.address(), &(layout.columns as u32), &(layout.stride as u32)];
    queue.launch(&KERNELS[SWIGLU + T::INDEX], layout.grid::<T>(), 0, &args)
}

/// dgate and dup are overwritten: dup = dout * silu(gate), dgate = dout * up * s * (1 + gate * (1 - s)).
///
/// # Errors
/// See [`add`].
pub fn swiglu_backward<T: Real>(
    queue: &Queue,
    layout: GateUp,
    dout: View<'_, T>,
    both: View<'_, T>,
    dboth: ViewMut<'_, T>,
) -> Result<(), Error> {
    layout.check(&[both.len(), dboth.len()]);
    assert_eq!(dout.len(), layout.rows * layout.columns, "dout [R,F]");
    let (gate, up) = layout.parts::<T>(both.address());
    let (dgate, dup) = layout.parts::<T>(dboth.address());
    let (columns, stride) = (layout.columns as u32, layout.stride as u32);
    let args: [&dyn Arg; 7] = [&dout.address(), &gate, &up, &dgate, &dup, &columns, &stride];
    queue.launch(&KERNELS[SWIGLU_BACKWARD + T::INDEX], layout.grid::<T>(), 0, &args)
}
