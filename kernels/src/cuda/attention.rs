//! Causal grouped-query attention in tiles, as [`crate::attention`], with an optional soft-cap and operands that may
//! lie side by side in a token's row.
//!
//! Within a sequence `first` never falls: documents and sliding windows have it so. Where it does, results are wrong
//! (never out of bounds).

use super::device::{Arg, args, blocks};
use super::sources::{Kernel, Source, source};
use super::{Error, Queue, Real, View, ViewMut};

/// Head dimensions that the sources are compiled for; others use the next greater.
const HEADS: [usize; 3] = [64, 128, 256];

pub(super) static SOURCES: [Source; 3] =
    [source!("attention.cu", Some(64)), source!("attention.cu", Some(128)), source!("attention.cu", Some(256))];

pub(super) static KERNELS: [Kernel; 24] = {
    const fn of(head: usize) -> [Kernel; 8] {
        let source = &SOURCES[head];
        // Tiles of the kernels: their operands and scores.
        let (dim, tile) = (HEADS[head], if HEADS[head] > 128 { 16 } else { 32 });
        let (operand, scores) = (tile * (dim + 1) * 4, tile * (tile + 1) * 4);
        let forward = (3 * operand + scores) as u32;
        let backward = (4 * operand + 2 * scores) as u32;
        [
            Kernel::new(source, "attention_forward_f32", THREADS).with_shared(forward),
            Kernel::new(source, "attention_forward_bf16", THREADS).with_shared(forward),
            Kernel::new(source, "attention_delta_f32", THREADS),
            Kernel::new(source, "attention_delta_bf16", THREADS),
            Kernel::new(source, "attention_backward_q_f32", THREADS).with_shared(backward),
            Kernel::new(source, "attention_backward_q_bf16", THREADS).with_shared(backward),
            Kernel::new(source, "attention_backward_kv_f32", THREADS).with_shared(backward),
            Kernel::new(source, "attention_backward_kv_bf16", THREADS).with_shared(backward),
        ]
    }
    let [a, b, c, d, e, f, g, h] = of(0);
    let [i, j, k, l, m, n, o, p] = of(1);
    let [q, r, s, t, u, v, w, x] = of(2);
    [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x]
};
const FORWARD: usize = 0;
const DELTA: usize = 2;
const BACKWARD_Q: usize = 4;
const BACKWARD_KV: usize = 6;

const THREADS: u32 = 256;

/// Sizes. `rows` sequences of `seq` tokens, T = rows * seq; N query heads, G key/value heads (G divides N), D head
/// dimension.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Sequences.
    pub rows: usize,
    /// Tokens of a sequence.
    pub seq: usize,
    /// Query heads.
    pub heads: usize,
    /// Key/value heads.
    pub kv_heads: usize,
    /// Elements of a head: a multiple of 4 up to 256.
    pub head_dim: usize,
    /// Where q, k and v lie in their view.
    pub layout: Layout,
    /// Factor of the products of queries and keys.
    pub scale: f32,
    /// Scores become cap * tanh(score / cap).
    pub cap: Option<f32>,
}

/// How q [T,N,D], k and v [T,G,D] lie in one view, and their gradients in another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// A token's q, k and v side by side, as a matrix product gives them with the three weights in one.
    Beside,
    /// All of q, then all of k, then all of v.
    Apart,
}

/// The kernels' Shape.
#[repr(C)]
#[derive(Clone, Copy)]
struct Sizes {
    seq: u32,
    heads: u32,
    group: u32,
    dim: u32,
    q_stride: u32,
    kv_stride: u32,
    out_stride: u32,
    scale: f32,
    cap: f32,
}

args!(Sizes);

impl Shape {
    /// T
    pub fn tokens(&self) -> usize {
        self.rows * self.seq
    }

    /// Elements of q, k and v together.
    pub fn qkv_len(&self) -> usize {
        self.tokens() * (self.heads + 2 * self.kv_heads) * self.head_dim
    }

    fn check(&self, qkv: &[usize], out: &[usize], first: usize, lse: usize) {
        let dim = self.head_dim;
        assert!(dim > 0 && dim <= 256 && dim.is_multiple_of(4), "head dimension {dim}");
        assert!(self.kv_heads > 0 && self.heads.is_multiple_of(self.kv_heads), "key/value heads divide the heads");
        assert!(self.rows <= 65_535 && self.heads <= 65_535, "{self:?} is too large for one launch");
        assert!(qkv.iter().all(|len| *len == self.qkv_len()), "q, k, v [T, N + 2 G, D]");
        assert!(out.iter().all(|len| *len == self.tokens() * self.heads * dim), "out, dout [T,N,D]");
        assert!(first == self.tokens() && lse == self.tokens() * self.heads, "first [T], lse [T,N]");
        assert!(self.cap.is_none_or(|cap| cap > 0.0), "a soft-cap is positive");
    }

    /// Elements before q, k and v in their view.
    fn begins(&self) -> [usize; 3] {
        let tokens = if self.layout == Layout::Beside { 1 } else { self.tokens() };
        let (q, kv) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        [0, tokens * q, tokens * (q + kv)]
    }

    /// Addresses of q, k and v in a view that begins at `address`.
    fn parts<T>(&self, address: u64) -> [u64; 3] {
        self.begins().map(|begin| address + (begin * size_of::<T>()) as u64)
    }

    fn sizes(&self) -> Sizes {
        let (q, kv) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        let (q_stride, kv_stride) = if self.layout == Layout::Beside { (q + 2 * kv, q + 2 * kv) } else { (q, kv) };
        Sizes {
            seq: self.seq as u32,
            heads: self.heads as u32,
            group: (self.heads / self.kv_heads) as u32,
            dim: self.head_dim as u32,
            q_stride: q_stride as u32,
            kv_stride: kv_stride as u32,
            out_stride: q as u32,
            scale: self.scale,
            cap: self.cap.unwrap_or(0.0),
        }
    }

    /// Index of the source, and queries or keys of a tile.
    fn source(&self) -> (usize, usize) {
        let index = HEADS.iter().position(|head| *head >= self.head_dim).expect("checked: up to 256");
        (index, if HEADS[index] > 128 { 16 } else { 32 })
    }
}

fn kernel<T: Real>(source: usize, name: usize) -> &'static Kernel {
    &KERNELS[source * 8 + name + T::INDEX]
}

/// out [T,N,D] and lse [T,N] (log-sum-exp of the scores). `first[t]` is the first token of its sequence that token t
/// sees, at most its own index there.
///
/// # Errors
/// A call fails; so does [`backward`].
///
/// # Panics
/// If a view does not have the length of its shape; so does [`backward`].
pub fn forward<T: Real>(
    queue: &Queue,
    shape: &Shape,
    qkv: View<'_, T>,
    first: View<'_, u32>,
    out: ViewMut<'_, T>,
    lse: ViewMut<'_, f32>,
) -> Result<(), Error> {
    shape.check(&[qkv.len()], &[out.len()], first.len(), lse.len());
    let (source, tile) = shape.source();
    let kernel = kernel::<T>(source, FORWARD);
    let grid = (blocks(shape.seq, tile), shape.heads as u32, shape.rows as u32);
    let [q, k, v] = shape.parts::<T>(qkv.address());
    let args: [&dyn Arg; 7] = [&shape.sizes(), &q, &k, &v, &first.address(), &out.address(), &lse.address()];
    queue.launch(kernel, grid, kernel.shared_bytes, &args)
}

/// Elements of the scratch of [`backward`].
pub fn scratch_len(shape: &Shape) -> usize {
    shape.tokens() * shape.heads
}

/// The gradients of q, k, v are overwritten, in the places of q, k, v.
///
/// # Errors
/// See [`forward`].
#[allow(clippy::too_many_arguments)]
pub fn backward<T: Real>(
    queue: &Queue,
    shape: &Shape,
    qkv: View<'_, T>,
    first: View<'_, u32>,
    out: View<'_, T>,
    lse: View<'_, f32>,
    dout: View<'_, T>,
    dqkv: ViewMut<'_, T>,
    scratch: ViewMut<'_, f32>,
) -> Result<(), Error> {
    shape.check(&[qkv.len(), dqkv.len()], &[out.len(), dout.len()], first.len(), lse.len());
    assert!(scratch.len() >= scratch_len(shape), "scratch of {} floats", scratch.len());
    let (source, tile) = shape.source();
    let (sizes, tiles, rows) = (shape.sizes(), blocks(shape.seq, tile), shape.rows as u32);
    let [q, k, v] = shape.parts::<T>(qkv.address());
    let [dq, dk, dv] = shape.parts::<T>(dqkv.address());
    let (first, dout, lse, delta) = (first.address(), dout.address(), lse.address(), scratch.address());
    let tokens = shape.tokens() as u64;
    let grid = (blocks(shape.tokens() * shape.heads, THREADS as usize / 32), 1, 1);
    let args: [&dyn Arg; 5] = [&sizes, &tokens, &out.address(), &dout, &delta];
    queue.launch(kernel::<T>(source, DELTA), grid, 0, &args)?;
    let to_kv = kernel::<T>(source, BACKWARD_KV);
    let args: [&dyn Arg; 10] = [&sizes, &q, &k, &v, &first, &dout, &lse, &delta, &dk, &dv];
    queue.launch(to_kv, (tiles, shape.kv_heads as u32, rows), to_kv.shared_bytes, &args)?;
    let to_q = kernel::<T>(source, BACKWARD_Q);
    let args: [&dyn Arg; 9] = [&sizes, &q, &k, &v, &first, &dout, &lse, &delta, &dq];
    queue.launch(to_q, (tiles, shape.heads as u32, rows), to_q.shared_bytes, &args)
}
