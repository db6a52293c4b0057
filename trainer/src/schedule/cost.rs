//! Estimated times of operations on the processor, from the kernels' rates: the same kernels on the same shapes as the
//! executor calls them. Only the planner uses them; no result depends on them.
//!
//! What it leaves out: what waits for a lease, and what transfers take from the cores. The engine's simulation adds
//! both.

use crate::block::{Dims, Level};
use crate::profile::{Product, Rates};
use mt_kernels::norm2::LEAF;

/// Times by operation, in seconds until [`Cost::ns`].
#[derive(Clone, Copy)]
pub(super) struct Cost<'a> {
    rates: &'a Rates,
    dims: Dims,
    seq: usize,
}

impl<'a> Cost<'a> {
    pub(super) fn new(rates: &'a Rates, dims: Dims, seq: usize) -> Cost<'a> {
        Cost { rates, dims, seq }
    }

    pub(super) fn ns(seconds: f64) -> u64 {
        (seconds * 1e9) as u64
    }

    /// A kernel that passes over memory on all threads.
    fn pass(&self, elements: usize, elements_per_s: f64) -> f64 {
        elements as f64 / (elements_per_s * self.rates.speed)
    }

    /// A copy by one thread.
    pub(super) fn copy(&self, elements: usize) -> f64 {
        (elements * size_of::<f32>()) as f64 / self.rates.compute.copy_bytes_per_s
    }

    fn product(&self, product: Product, rows: usize, columns: usize, depth: usize) -> f64 {
        let rate = self.rates.compute.product(product, rows, columns, depth);
        2.0 * (rows as f64 * columns as f64 * depth as f64) / (rate * self.rates.speed)
    }

    fn forward(&self, tokens: usize, inputs: usize, outputs: usize) -> f64 {
        self.product(Product::Forward, tokens, outputs, inputs)
    }

    /// Gradients of a projection's weights and of its input.
    fn backward(&self, tokens: usize, inputs: usize, outputs: usize) -> f64 {
        self.product(Product::BackwardWeight, outputs, inputs, tokens)
            + self.product(Product::BackwardInput, tokens, inputs, outputs)
    }

    fn norm(&self, elements: usize) -> f64 {
        self.pass(elements, self.rates.compute.norm_forward_elements_per_s)
    }

    fn norm_backward(&self, elements: usize) -> f64 {
        self.pass(elements, self.rates.compute.norm_backward_elements_per_s)
    }

    fn rope(&self, tokens: usize) -> f64 {
        self.pass(tokens * (self.dims.query() + self.dims.key()), self.rates.compute.rope_elements_per_s)
    }

    /// Attention's forward and backward over `rows` rows, with keys in a window if there is one.
    fn attention(&self, rows: usize, window: Option<usize>) -> (f64, f64) {
        let Dims { heads, kv_heads, head_dim, .. } = self.dims;
        let seq = self.seq as f64;
        let window = window.map_or(seq, |window| (window as f64).min(seq));
        // Token t sees t + 1 tokens, or the window.
        let seen = window * (window + 1.0) / 2.0 + (seq - window) * window;
        let terms = rows as f64 * heads as f64 * seen * head_dim as f64;
        let (forward, backward) = self.rates.compute.attention(rows, self.seq, heads, kv_heads, head_dim);
        (4.0 * terms / (forward * self.rates.speed), 10.0 * terms / (backward * self.rates.speed))
    }

    /// The pending update with the new weights joined.
    pub(super) fn update(&self, elements: usize) -> f64 {
        self.pass(elements, self.rates.compute.adamw_elements_per_s)
    }

    pub(super) fn join(&self, elements: usize) -> f64 {
        self.pass(elements, self.rates.compute.join_elements_per_s)
    }

    pub(super) fn sum_squares(&self, elements: usize) -> f64 {
        self.pass(elements.max(LEAF), self.rates.compute.sum_squares_elements_per_s)
    }

    /// The share of all tokens' embedding rows that a chunk holds: `share` of them, copied or added.
    pub(super) fn rows(&self, tokens: usize, share: f64) -> f64 {
        share * self.pass(tokens * self.dims.hidden, self.rates.compute.add_elements_per_s)
    }

    /// The attention half without its output projection.
    fn attention_forward(&self, rows: usize, window: Option<usize>) -> f64 {
        let Dims { hidden, qk_norm, .. } = self.dims;
        let (query, key, tokens) = (self.dims.query(), self.dims.key(), rows * self.seq);
        let heads = if qk_norm { self.norm(tokens * (query + key)) } else { 0.0 };
        self.norm(tokens * hidden)
            + heads
            + self.forward(tokens, hidden, query)
            + 2.0 * self.forward(tokens, hidden, key)
            + self.rope(tokens)
            + self.attention(rows, window).0
    }

    /// From the attention's output to the product of the SwiGLU.
    fn mlp_forward(&self, tokens: usize) -> f64 {
        let Dims { hidden, mlp, .. } = self.dims;
        self.forward(tokens, self.dims.query(), hidden)
            + self.pass(tokens * hidden, self.rates.compute.add_elements_per_s)
            + self.norm(tokens * hidden)
            + 2.0 * self.forward(tokens, hidden, mlp)
            + self.swiglu(tokens)
    }

    fn swiglu(&self, tokens: usize) -> f64 {
        self.pass(tokens * self.dims.mlp, self.rates.compute.swiglu_forward_elements_per_s)
    }

    /// What a layer's backward computes again at a level.
    pub(super) fn again(&self, rows: usize, window: Option<usize>, level: Level) -> f64 {
        let tokens = rows * self.seq;
        match level {
            Level::Input => self.attention_forward(rows, window) + self.mlp_forward(tokens),
            Level::Attention => self.mlp_forward(tokens),
            Level::All => self.norm(tokens * self.dims.hidden) + self.swiglu(tokens),
        }
    }

    pub(super) fn layer_forward(&self, rows: usize, window: Option<usize>) -> f64 {
        let tokens = rows * self.seq;
        self.attention_forward(rows, window)
            + self.mlp_forward(tokens)
            + self.forward(tokens, self.dims.mlp, self.dims.hidden)
            + self.pass(tokens * self.dims.hidden, self.rates.compute.add_elements_per_s)
    }

    pub(super) fn layer_backward(&self, rows: usize, window: Option<usize>, level: Level) -> f64 {
        let Dims { hidden, mlp, qk_norm, .. } = self.dims;
        let (query, key, tokens) = (self.dims.query(), self.dims.key(), rows * self.seq);
        let heads = if qk_norm { self.norm_backward(tokens * (query + key)) } else { 0.0 };
        let mlp_half = self.backward(tokens, mlp, hidden)
            + self.pass(tokens * mlp, self.rates.compute.swiglu_backward_elements_per_s)
            + 2.0 * self.backward(tokens, hidden, mlp)
            + self.norm_backward(tokens * hidden);
        let attention_half = self.backward(tokens, query, hidden)
            + self.attention(rows, window).1
            + self.rope(tokens)
            + heads
            + self.norm(tokens * hidden)
            + self.backward(tokens, hidden, query)
            + 2.0 * self.backward(tokens, hidden, key)
            + self.norm_backward(tokens * hidden);
        self.again(rows, window, level) + mlp_half + attention_half
    }

    pub(super) fn final_norm(&self, tokens: usize) -> f64 {
        self.norm(tokens * self.dims.hidden)
    }

    pub(super) fn final_norm_backward(&self, tokens: usize) -> f64 {
        let elements = tokens * self.dims.hidden;
        self.copy(elements) + self.norm_backward(elements)
    }

    /// Logits of a tile of `rows` vocabulary rows.
    pub(super) fn logits(&self, tokens: usize, rows: usize) -> f64 {
        self.forward(tokens, self.dims.hidden, rows)
    }

    /// Logits of a tile, taken into the running log-sum-exp.
    pub(super) fn tile_forward(&self, tokens: usize, rows: usize) -> f64 {
        self.logits(tokens, rows) + self.pass(tokens * rows, self.rates.compute.loss_forward_elements_per_s)
    }

    /// Gradients of a tile, its logits kept or computed again.
    pub(super) fn tile_backward(&self, tokens: usize, rows: usize, kept: bool) -> f64 {
        let again = if kept { 0.0 } else { self.logits(tokens, rows) };
        again
            + self.pass(tokens * rows, self.rates.compute.loss_backward_elements_per_s)
            + self.backward(tokens, self.dims.hidden, rows)
    }
}
