//! Backward of one layer: MLP half, then attention half.

use super::saved::{AttentionPart, MlpPart};
use super::scratch::{Attention, Mlp};
use super::{Block, Level, Scratch, Tokens};
use crate::carve::Carve;
use mt_kernels::{attention, pointwise, rmsnorm, rope};
use std::time::{Duration, Instant};

/// Gradients of a layer's weights.
pub struct Gradients<'a> {
    /// As the unit's elements lie.
    pub elements: &'a mut [f32],
    /// Whether the products add to what is there (every micro-batch but the first) or overwrite it.
    pub add: bool,
}

/// What a layer's forward kept.
#[derive(Clone, Copy, Debug)]
pub struct Kept<'a> {
    /// How much it is.
    pub level: Level,
    /// The parts, as [`Saved::split_mut`](super::Saved::split_mut) cut them.
    pub elements: &'a [f32],
}

impl Block<'_> {
    /// Backward with what the forward kept; computes the rest again in `memory`, which has room for it. `dx` \[T,H]
    /// holds dy on entry, dx on return. Gives the time of that first part.
    #[allow(clippy::too_many_arguments)]
    pub fn backward(
        &self,
        tokens: &Tokens<'_>,
        x: &[f32],
        kept: Kept<'_>,
        memory: &mut [f32],
        scratch: &mut Scratch<'_>,
        gradients: &mut Gradients<'_>,
        dx: &mut [f32],
    ) -> Duration {
        let begin = Instant::now();
        let (dims, count) = (&self.dims, tokens.count());
        let (mut left, mut memory) = (kept.elements, Carve::new(memory));
        let attention = match kept.level {
            Level::Input => {
                let mut part = AttentionPart::cut(dims, count, &mut memory);
                self.attention_forward(tokens, x, &mut part, scratch);
                part.shared()
            }
            Level::Attention | Level::All => AttentionPart::read(dims, count, &mut left),
        };
        let mlp = match kept.level {
            Level::Input | Level::Attention => {
                let mut part = MlpPart::cut(dims, count, &mut memory);
                self.mlp_forward(tokens, x, attention.attended, &mut part, scratch);
                part.shared()
            }
            Level::All => {
                let part = MlpPart::read(dims, count, &mut left);
                self.mlp_scratch(tokens, &part, scratch);
                part
            }
        };
        let again = begin.elapsed();
        if !gradients.add {
            self.clear_norms(gradients.elements);
        }
        self.mlp_half(tokens, &mlp, scratch, gradients, dx);
        self.attention_half(tokens, x, &attention, scratch, gradients, dx);
        again
    }

    /// What the MLP half's forward leaves in `scratch`, from what it saved.
    fn mlp_scratch(&self, tokens: &Tokens<'_>, saved: &MlpPart<&[f32]>, scratch: &mut Scratch<'_>) {
        let Block { cpu, dims, tensors, weights, .. } = *self;
        let norm = &weights[tensors.post_norm.clone()];
        rmsnorm::forward(cpu, saved.middle, norm, dims.eps, scratch.normed, scratch.rstd);
        let product = Mlp::new(&dims, tokens.count(), scratch.shared).product;
        pointwise::swiglu_forward(cpu, saved.gate, saved.up, product);
    }

    /// The norms' kernel always adds.
    fn clear_norms(&self, elements: &mut [f32]) {
        let tensors = self.tensors;
        elements[tensors.input_norm.clone()].fill(0.0);
        elements[tensors.post_norm.clone()].fill(0.0);
        if let Some((q_norm, k_norm)) = &tensors.head_norms {
            elements[q_norm.clone()].fill(0.0);
            elements[k_norm.clone()].fill(0.0);
        }
    }

    /// Expects the normed input and the product of the SwiGLU in `scratch`.
    fn mlp_half(
        &self,
        tokens: &Tokens<'_>,
        saved: &MlpPart<&[f32]>,
        scratch: &mut Scratch<'_>,
        gradients: &mut Gradients<'_>,
        dx: &mut [f32],
    ) {
        let Block { cpu, dims, tensors, weights, .. } = *self;
        let Gradients { elements: grads, add } = gradients;
        let Mlp { product, dproduct, dup } = Mlp::new(&dims, tokens.count(), scratch.shared);
        tensors.down.backward_parameters(cpu, grads, dx, product, *add);
        tensors.down.backward_input(cpu, weights, dx, dproduct, false);
        let dgate = product;
        pointwise::swiglu_backward(cpu, dproduct, saved.gate, saved.up, dgate, dup);
        tensors.gate.backward_parameters(cpu, grads, dgate, scratch.normed, *add);
        tensors.up.backward_parameters(cpu, grads, dup, scratch.normed, *add);
        tensors.gate.backward_input(cpu, weights, dgate, scratch.dnormed, false);
        tensors.up.backward_input(cpu, weights, dup, scratch.dnormed, true);
        let (norm, dnorm) = (&weights[tensors.post_norm.clone()], &mut grads[tensors.post_norm.clone()]);
        rmsnorm::backward(cpu, scratch.dnormed, saved.middle, norm, saved.middle_rstd, dx, true, dnorm);
    }

    fn attention_half(
        &self,
        tokens: &Tokens<'_>,
        x: &[f32],
        saved: &AttentionPart<&[f32]>,
        scratch: &mut Scratch<'_>,
        gradients: &mut Gradients<'_>,
        dx: &mut [f32],
    ) {
        let Block { cpu, dims, tensors, weights, rope } = *self;
        let Gradients { elements: grads, add } = gradients;
        let add = *add;
        let Attention { dattended, dq, dk, dv, dk_raw } = Attention::new(&dims, tokens.count(), scratch.shared);
        tensors.o.backward_parameters(cpu, grads, dx, saved.attended, add);
        tensors.o.backward_input(cpu, weights, dx, dattended, false);
        let shape = dims.attention(tokens.rows, tokens.seq);
        attention::backward(
            cpu,
            shape,
            dims.scale(),
            saved.q,
            saved.k,
            saved.v,
            tokens.first,
            saved.attended,
            saved.lse,
            dattended,
            dq,
            dk,
            dv,
        );
        rope::backward(cpu, rope, tokens.positions, dq, dims.heads);
        rope::backward(cpu, rope, tokens.positions, dk, dims.kv_heads);
        let (dq, dk) = match &tensors.head_norms {
            None => (dq, dk),
            Some((q_norm, k_norm)) => {
                let (dq_raw, w) = (dattended, &weights[q_norm.clone()]);
                rmsnorm::backward(cpu, dq, saved.q_raw, w, saved.q_rstd, dq_raw, false, &mut grads[q_norm.clone()]);
                let w = &weights[k_norm.clone()];
                rmsnorm::backward(cpu, dk, saved.k_raw, w, saved.k_rstd, dk_raw, false, &mut grads[k_norm.clone()]);
                (dq_raw, dk_raw)
            }
        };
        let norm = &weights[tensors.input_norm.clone()];
        rmsnorm::forward(cpu, x, norm, dims.eps, scratch.normed, scratch.rstd);
        for (linear, dy, add_input) in [(&tensors.q, &*dq, false), (&tensors.k, &*dk, true), (&tensors.v, &*dv, true)] {
            linear.backward_parameters(cpu, grads, dy, scratch.normed, add);
            linear.backward_input(cpu, weights, dy, scratch.dnormed, add_input);
        }
        let dnorm = &mut grads[tensors.input_norm.clone()];
        rmsnorm::backward(cpu, scratch.dnormed, x, norm, saved.input_rstd, dx, true, dnorm);
    }
}
