//! Estimated times of operations, from the kernels' rates: the same kernels on the same shapes as the executor calls
//! them, on the processor or on a GPU. Only the planner uses them; no result depends on them.
//!
//! What it leaves out: what waits for a lease, and what transfers take from the cores. The engine's simulation adds
//! both.

use crate::block::{Dims, Level};
use crate::profile::{GpuRates, Kernel, Product, ProductShape, Rates, Reuse};
use crate::target::{Gpu, Precision, Target};
use mt_kernels::norm2::LEAF;

/// Whose kernels.
#[derive(Clone, Copy)]
enum Machine<'a> {
    Cpu(&'a Rates),
    Gpu(&'a GpuRates, Precision),
}

/// Times by operation, in seconds until [`Cost::ns`].
#[derive(Clone, Copy)]
pub(super) struct Cost<'a> {
    machine: Machine<'a>,
    dims: Dims,
    seq: usize,
    /// Another micro-batch used the same weights just before.
    follows: bool,
    /// How far back the weights at hand were used.
    reuse: Reuse,
}

impl<'a> Cost<'a> {
    /// Times on the target.
    pub(super) fn new(rates: &'a Rates, target: Target, dims: Dims, seq: usize) -> Cost<'a> {
        let machine = match target {
            Target::Cpu => Machine::Cpu(rates),
            Target::Gpu(Gpu { precision, .. }) => Machine::Gpu(&rates.gpu, precision),
        };
        Cost { machine, dims, seq, follows: false, reuse: Reuse::NONE }
    }

    /// Times of a micro-batch: the processor's caches may hold weights that the one before it used.
    pub(super) fn of(self, micro: usize) -> Cost<'a> {
        Cost { follows: micro > 0, ..self }
    }

    fn in_layer(self, tokens: usize) -> Cost<'a> {
        let reuse = if self.follows { Reuse::of_layer(&self.dims, tokens) } else { Reuse::NONE };
        Cost { reuse, ..self }
    }

    fn in_tile(self, rows: usize, tokens: usize) -> Cost<'a> {
        let reuse = if self.follows { Reuse::of_tile(self.dims.hidden, rows, tokens) } else { Reuse::NONE };
        Cost { reuse, ..self }
    }

    pub(super) fn ns(seconds: f64) -> u64 {
        (seconds * 1e9) as u64
    }

    /// A kernel that passes over memory, on all threads or the whole GPU.
    fn pass(&self, elements: usize, kernel: Kernel) -> f64 {
        match self.machine {
            Machine::Cpu(rates) => elements as f64 / (rates.compute.rate(kernel) * rates.speed),
            Machine::Gpu(gpu, precision) => gpu.pass_s(elements, kernel, precision),
        }
    }

    /// A copy of f32 elements, on the processor by one thread.
    pub(super) fn copy(&self, elements: usize) -> f64 {
        match self.machine {
            Machine::Cpu(rates) => (elements * size_of::<f32>()) as f64 / rates.compute.copy_bytes_per_s,
            Machine::Gpu(gpu, precision) => gpu.pass_s(elements, Kernel::Copy, precision),
        }
    }

    fn product(&self, product: Product, rows: usize, columns: usize, depth: usize) -> f64 {
        let operations = 2.0 * (rows as f64 * columns as f64 * depth as f64);
        match self.machine {
            Machine::Cpu(rates) => {
                let reuse_bytes = self.reuse.bytes(product);
                let shape = ProductShape { product, rows, columns, depth, reuse_bytes };
                operations / (rates.compute.product(shape) * rates.speed)
            }
            Machine::Gpu(gpu, precision) => {
                gpu.launch_s + operations / gpu.product(precision, product, rows, columns, depth)
            }
        }
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
        self.pass(elements, Kernel::NormForward)
    }

    fn norm_backward(&self, elements: usize) -> f64 {
        self.pass(elements, Kernel::NormBackward)
    }

    fn rope(&self, tokens: usize) -> f64 {
        self.pass(tokens * (self.dims.query() + self.dims.key()), Kernel::Rope)
    }

    /// Attention's forward and backward over `rows` rows, with keys in a window if there is one.
    fn attention(&self, rows: usize, window: Option<usize>) -> (f64, f64) {
        let Dims { heads, kv_heads, head_dim, .. } = self.dims;
        let seq = self.seq as f64;
        let window = window.map_or(seq, |window| (window as f64).min(seq));
        // Token t sees t + 1 tokens, or the window.
        let seen = window * (window + 1.0) / 2.0 + (seq - window) * window;
        let terms = rows as f64 * heads as f64 * seen * head_dim as f64;
        match self.machine {
            Machine::Cpu(rates) => {
                let (forward, backward) = rates.compute.attention(rows, self.seq, heads, kv_heads, head_dim);
                (4.0 * terms / (forward * rates.speed), 10.0 * terms / (backward * rates.speed))
            }
            Machine::Gpu(gpu, precision) => {
                let (forward, backward) = gpu.attention(precision);
                (gpu.launch_s + 4.0 * terms / forward, gpu.launch_s + 10.0 * terms / backward)
            }
        }
    }

    /// The pending update with the new weights joined.
    pub(super) fn update(&self, elements: usize) -> f64 {
        self.pass(elements, Kernel::Adamw)
    }

    pub(super) fn join(&self, elements: usize) -> f64 {
        self.pass(elements, Kernel::Join)
    }

    pub(super) fn sum_squares(&self, elements: usize) -> f64 {
        self.pass(elements.max(LEAF), Kernel::SumSquares)
    }

    /// The share of all tokens' embedding rows that a chunk holds: `share` of them, copied or added.
    pub(super) fn rows(&self, tokens: usize, share: f64) -> f64 {
        share * self.pass(tokens * self.dims.hidden, Kernel::Add)
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
            + self.pass(tokens * hidden, Kernel::Add)
            + self.norm(tokens * hidden)
            + 2.0 * self.forward(tokens, hidden, mlp)
            + self.swiglu(tokens)
    }

    fn swiglu(&self, tokens: usize) -> f64 {
        self.pass(tokens * self.dims.mlp, Kernel::SwigluForward)
    }

    /// What a layer's backward computes again at a level.
    pub(super) fn again(&self, rows: usize, window: Option<usize>, level: Level) -> f64 {
        let tokens = rows * self.seq;
        let it = self.in_layer(tokens);
        match level {
            Level::Input => it.attention_forward(rows, window) + it.mlp_forward(tokens),
            Level::Attention => it.mlp_forward(tokens),
            Level::All => self.norm(tokens * self.dims.hidden) + self.swiglu(tokens),
        }
    }

    pub(super) fn layer_forward(&self, rows: usize, window: Option<usize>) -> f64 {
        let tokens = rows * self.seq;
        let it = self.in_layer(tokens);
        it.attention_forward(rows, window)
            + it.mlp_forward(tokens)
            + it.forward(tokens, self.dims.mlp, self.dims.hidden)
            + self.pass(tokens * self.dims.hidden, Kernel::Add)
    }

    pub(super) fn layer_backward(&self, rows: usize, window: Option<usize>, level: Level) -> f64 {
        let Dims { hidden, mlp, qk_norm, .. } = self.dims;
        let (query, key, tokens) = (self.dims.query(), self.dims.key(), rows * self.seq);
        let heads = if qk_norm { self.norm_backward(tokens * (query + key)) } else { 0.0 };
        let it = self.in_layer(tokens);
        let mlp_half = it.backward(tokens, mlp, hidden)
            + self.pass(tokens * mlp, Kernel::SwigluBackward)
            + 2.0 * it.backward(tokens, hidden, mlp)
            + self.norm_backward(tokens * hidden);
        let attention_half = it.backward(tokens, query, hidden)
            + self.attention(rows, window).1
            + self.rope(tokens)
            + heads
            + self.norm(tokens * hidden)
            + it.backward(tokens, hidden, query)
            + 2.0 * it.backward(tokens, hidden, key)
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
        self.in_tile(rows, tokens).forward(tokens, self.dims.hidden, rows)
    }

    /// Logits of a tile, taken into the running log-sum-exp.
    pub(super) fn tile_forward(&self, tokens: usize, rows: usize) -> f64 {
        self.logits(tokens, rows) + self.pass(tokens * rows, Kernel::LossForward)
    }

    /// Gradients of a tile, its logits kept or computed again.
    pub(super) fn tile_backward(&self, tokens: usize, rows: usize, kept: bool) -> f64 {
        let again = if kept { 0.0 } else { self.logits(tokens, rows) };
        let products = self.in_tile(rows, tokens).backward(tokens, self.dims.hidden, rows);
        again + self.pass(tokens * rows, Kernel::LossBackward) + products
    }
}
