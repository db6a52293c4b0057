//! Rotary positions in place, as [`crate::rope`], with the tables computed there.

use super::device::{Arg, blocks};
use super::sources::{Kernel, Source, source};
use super::{Error, Queue, Real, View, ViewMut};

pub(super) static SOURCE: Source = source!("rope.cu", None);

pub(super) static KERNELS: [Kernel; 2] =
    [Kernel::new(&SOURCE, "rope_f32", 256), Kernel::new(&SOURCE, "rope_bf16", 256)];

/// cos and sin [positions, D/2] on the device.
#[derive(Clone, Copy)]
pub struct Table<'a> {
    /// Cosines, a row a position.
    pub cos: View<'a, f32>,
    /// Sines, a row a position.
    pub sin: View<'a, f32>,
    /// D/2, the length of a row.
    pub half: usize,
}

/// Rotates the `heads` heads at the beginning of each token's `stride` elements of x. A token whose position is not in
/// the table stays as it is: check positions where they are made.
///
/// # Errors
/// A call fails; so does [`backward`].
///
/// # Panics
/// If x does not hold the tokens; so does [`backward`].
pub fn forward<T: Real>(
    queue: &Queue,
    table: Table<'_>,
    positions: View<'_, u32>,
    x: ViewMut<'_, T>,
    heads: usize,
    stride: usize,
) -> Result<(), Error> {
    rotate(queue, table, positions, x, heads, stride, 1.0)
}

/// The transposed rotation, for gradients.
///
/// # Errors
/// See [`forward`].
pub fn backward<T: Real>(
    queue: &Queue,
    table: Table<'_>,
    positions: View<'_, u32>,
    x: ViewMut<'_, T>,
    heads: usize,
    stride: usize,
) -> Result<(), Error> {
    rotate(queue, table, positions, x, heads, stride, -1.0)
}

fn rotate<T: Real>(
    queue: &Queue,
    table: Table<'_>,
    positions: View<'_, u32>,
    x: ViewMut<'_, T>,
    heads: usize,
    stride: usize,
    sign: f32,
) -> Result<(), Error> {
    let (tokens, width) = (positions.len(), heads * table.half * 2);
    assert!(table.half > 0 && table.cos.len() == table.sin.len(), "cos, sin [positions, D/2]");
    assert!(stride >= width && (tokens == 0 || x.len() >= (tokens - 1) * stride + width), "x [T, stride]");
    let entries = (table.cos.len() / table.half) as u32;
    let (x, positions) = (x.address(), positions.address());
    let (cos, sin) = (table.cos.address(), table.sin.address());
    let (heads, half, stride) = (heads as u32, table.half as u32, stride as u32);
    let args: [&dyn Arg; 9] = [&x, &positions, &cos, &sin, &heads, &half, &stride, &entries, &sign];
    queue.launch(&KERNELS[T::INDEX], (blocks(tokens, 1), 1, 1), 0, &args)
}
