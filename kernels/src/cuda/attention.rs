//! Causal grouped-query attention in tiles, as [`crate::attention`], with an optional soft-cap and operands that may
//! lie side by side in a token's row. bf16 goes to tensor cores (`mma`), f32 does not (`plain`).
//!
//! Within a sequence `first` never falls: documents and sliding windows have it so. Where it does, results are wrong
//! (never out of bounds).

pub(super) mod mma;
pub(super) mod plain;

use super::device::args;
use super::{Error, Queue, Real, View, ViewMut};

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
        let tokens = u32::try_from(self.tokens());
        assert!(
            self.rows <= 65_535 && self.heads <= 65_535 && self.seq <= 1 << 20 && tokens.is_ok(),
            "{self:?} is too large for one launch"
        );
        assert!(self.scale > 0.0, "a factor of scores is positive");
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
}

/// Addresses of what the kernels read and write.
struct Operands {
    q: u64,
    k: u64,
    v: u64,
    first: u64,
    out: u64,
    lse: u64,
}

/// Of the backward pass beside.
struct Gradients {
    dout: u64,
    dq: u64,
    dk: u64,
    dv: u64,
    /// Scratch [T,N]: the sum of dout * out over a head.
    delta: u64,
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
    let [q, k, v] = shape.parts::<T>(qkv.address());
    let operands = Operands { q, k, v, first: first.address(), out: out.address(), lse: lse.address() };
    if T::INDEX == 0 { plain::forward(queue, shape, &operands) } else { mma::forward(queue, shape, &operands) }
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
    let [q, k, v] = shape.parts::<T>(qkv.address());
    let [dq, dk, dv] = shape.parts::<T>(dqkv.address());
    let operands = Operands { q, k, v, first: first.address(), out: out.address(), lse: lse.address() };
    let gradients = Gradients { dout: dout.address(), dq, dk, dv, delta: scratch.address() };
    if T::INDEX == 0 {
        plain::backward(queue, shape, &operands, &gradients)
    } else {
        mma::backward(queue, shape, &operands, &gradients)
    }
}
