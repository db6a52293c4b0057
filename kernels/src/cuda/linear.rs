//! Matrix products of a linear map, as [`crate::linear`], in a chosen precision.
//!
//! The library is column-major: a row-major matrix [R,C] is its [C,R], so each product is computed transposed, with the
//! operands exchanged.

use super::blaslt::{Arithmetic, Operands, Shape};
use super::device::blocks;
use super::sources::{Kernel, Source, source};
use super::{Error, Queue, Real, View, ViewMut};

pub(super) static SOURCE: Source = source!("linear.cu", None);

pub(super) static KERNELS: [Kernel; 3] = [
    Kernel::new(&SOURCE, "linear_bias_partial_f32", 256),
    Kernel::new(&SOURCE, "linear_bias_partial_bf16", 256),
    Kernel::new(&SOURCE, "linear_bias_finish", 256),
];

/// Rows of a partial sum of [`backward_bias`].
const BIAS_ROWS: usize = 256;
/// Columns of a block: of the partial sums, and of their sum.
const BIAS_COLUMNS: usize = 64;
const FINISH_COLUMNS: usize = 32;

/// How f32 operands are multiplied; products of bf16 operands are exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// As f32.
    Fp32,
    /// Rounded to 10 bits of mantissa: tensor cores.
    Tf32,
}

/// T tokens, I inputs, O outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// T
    pub tokens: usize,
    /// I
    pub inputs: usize,
    /// O
    pub outputs: usize,
}

fn arithmetic<X: Real>(precision: Precision) -> Arithmetic {
    match (X::INDEX, precision) {
        (0, Precision::Fp32) => Arithmetic::Fp32,
        (0, Precision::Tf32) => Arithmetic::Tf32,
        _ => Arithmetic::Bf16,
    }
}

/// y [T,O] = x [T,I] * w [O,I]^T (+ bias [O]). `precision` is for f32 operands.
///
/// # Errors
/// The library has no algorithm for the shape; a call fails. So do all functions of this module.
///
/// # Panics
/// If a view does not have the length of its shape; so do all functions of this module.
pub fn forward<X: Real, Y: Real>(
    queue: &Queue,
    precision: Precision,
    x: View<'_, X>,
    w: View<'_, X>,
    bias: Option<View<'_, Y>>,
    y: ViewMut<'_, Y>,
    size: Size,
) -> Result<(), Error> {
    let c = y.address();
    product(queue, precision, x, w, bias, (false, c), y, size)
}

/// y [T,O] = onto [T,O] + x [T,I] * w [O,I]^T (+ bias [O]), rounded once; with a bias the library may round before it
/// adds that, too.
///
/// # Errors
/// See [`forward`].
#[allow(clippy::too_many_arguments)]
pub fn forward_onto<X: Real, Y: Real>(
    queue: &Queue,
    precision: Precision,
    x: View<'_, X>,
    w: View<'_, X>,
    bias: Option<View<'_, Y>>,
    onto: View<'_, Y>,
    y: ViewMut<'_, Y>,
    size: Size,
) -> Result<(), Error> {
    assert_eq!(onto.len(), y.len(), "onto, y [T,O]");
    product(queue, precision, x, w, bias, (true, onto.address()), y, size)
}

/// The forward product; the pair says whether a matrix is added to it, and where that lies.
#[allow(clippy::too_many_arguments)]
fn product<X: Real, Y: Real>(
    queue: &Queue,
    precision: Precision,
    x: View<'_, X>,
    w: View<'_, X>,
    bias: Option<View<'_, Y>>,
    (add, c): (bool, u64),
    y: ViewMut<'_, Y>,
    size: Size,
) -> Result<(), Error> {
    let Size { tokens, inputs, outputs } = size;
    assert_eq!((x.len(), w.len(), y.len()), (tokens * inputs, outputs * inputs, tokens * outputs), "x, w, y");
    assert!(bias.is_none_or(|bias| bias.len() == outputs), "bias [O]");
    let shape = Shape {
        arithmetic: arithmetic::<X>(precision),
        narrow: Y::INDEX == 1,
        m: outputs,
        n: tokens,
        k: inputs,
        transposed: (true, false),
        add,
        bias: bias.is_some(),
    };
    let bias = bias.map_or(0, |bias| bias.address());
    queue.gpu().blaslt().run(queue, shape, Operands { a: w.address(), b: x.address(), c, d: y.address(), bias })
}

/// dx [T,I] = (add ? dx : 0) + dy [T,O] * w [O,I]
///
/// # Errors
/// See [`forward`].
pub fn backward_input<X: Real, Y: Real>(
    queue: &Queue,
    precision: Precision,
    dy: View<'_, X>,
    w: View<'_, X>,
    dx: ViewMut<'_, Y>,
    add: bool,
    size: Size,
) -> Result<(), Error> {
    let Size { tokens, inputs, outputs } = size;
    assert_eq!((dy.len(), w.len(), dx.len()), (tokens * outputs, outputs * inputs, tokens * inputs), "dy, w, dx");
    let shape = Shape {
        arithmetic: arithmetic::<X>(precision),
        narrow: Y::INDEX == 1,
        m: inputs,
        n: tokens,
        k: outputs,
        transposed: (false, false),
        add,
        bias: false,
    };
    let d = dx.address();
    queue.gpu().blaslt().run(queue, shape, Operands { a: w.address(), b: dy.address(), c: d, d, bias: 0 })
}

/// dw [O,I] = (add ? dw : 0) + dy [T,O]^T * x [T,I]
///
/// # Errors
/// See [`forward`].
pub fn backward_weight<X: Real>(
    queue: &Queue,
    precision: Precision,
    dy: View<'_, X>,
    x: View<'_, X>,
    dw: ViewMut<'_, f32>,
    add: bool,
    size: Size,
) -> Result<(), Error> {
    let Size { tokens, inputs, outputs } = size;
    assert_eq!((dy.len(), x.len(), dw.len()), (tokens * outputs, tokens * inputs, outputs * inputs), "dy, x, dw");
    let shape = Shape {
        arithmetic: arithmetic::<X>(precision),
        narrow: false,
        m: inputs,
        n: outputs,
        k: tokens,
        transposed: (false, true),
        add,
        bias: false,
    };
    let d = dw.address();
    queue.gpu().blaslt().run(queue, shape, Operands { a: x.address(), b: dy.address(), c: d, d, bias: 0 })
}

/// Elements of the scratch of [`backward_bias`].
pub fn bias_scratch_len(tokens: usize, outputs: usize) -> usize {
    tokens.div_ceil(BIAS_ROWS) * outputs
}

/// db [O] = (add ? db : 0) + sum over tokens of dy: 256 rows at a time in f32, these in f64.
///
/// # Errors
/// See [`forward`].
pub fn backward_bias<X: Real>(
    queue: &Queue,
    dy: View<'_, X>,
    db: ViewMut<'_, f32>,
    add: bool,
    scratch: ViewMut<'_, f32>,
) -> Result<(), Error> {
    let outputs = db.len();
    assert!(outputs > 0 && dy.len().is_multiple_of(outputs), "dy [T,O], db [O]");
    let tokens = dy.len() / outputs;
    assert!(scratch.len() >= bias_scratch_len(tokens, outputs), "scratch of {} floats", scratch.len());
    let (rows, columns) = (tokens as u32, outputs as u32);
    let parts = blocks(tokens, BIAS_ROWS);
    let partial = scratch.address();
    let grid = (blocks(outputs, BIAS_COLUMNS), parts, 1);
    queue.launch(&KERNELS[X::INDEX], grid, 0, &[&dy.address(), &rows, &columns, &partial])?;
    let grid = (blocks(outputs, FINISH_COLUMNS), 1, 1);
    queue.launch(&KERNELS[2], grid, 0, &[&partial, &parts, &columns, &db.address(), &i32::from(add)])
}
