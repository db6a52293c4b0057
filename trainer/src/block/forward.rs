//! Forward of one layer: attention half, then MLP half.

use super::saved::{AttentionPart, MlpPart};
use super::scratch::Mlp;
use super::{Block, Saved, Scratch, Tokens};
use mt_kernels::{attention, pointwise, rmsnorm, rope};

impl Block<'_> {
    /// y \[T,H] = layer(x \[T,H]); fills `saved`.
    pub fn forward(
        &self,
        tokens: &Tokens<'_>,
        x: &[f32],
        saved: &mut Saved<&mut [f32]>,
        scratch: &mut Scratch<'_>,
        y: &mut [f32],
    ) {
        let Saved { attention, mlp } = saved;
        self.attention_forward(tokens, x, attention, scratch);
        self.mlp_forward(tokens, x, attention.attended, mlp, scratch);
        let product = Mlp::new(&self.dims, tokens.count(), scratch.shared).product;
        self.tensors.down.forward(self.cpu, self.weights, product, y);
        pointwise::add(self.cpu, y, mlp.middle);
    }

    /// The attention half without its output projection: all that the backward needs of it.
    pub(super) fn attention_forward(
        &self,
        tokens: &Tokens<'_>,
        x: &[f32],
        saved: &mut AttentionPart<&mut [f32]>,
        scratch: &mut Scratch<'_>,
    ) {
        let Block { cpu, dims, .. } = *self;
        self.attention_inputs(tokens, x, saved, scratch);
        let shape = dims.attention(tokens.rows, tokens.seq);
        attention::forward(
            cpu,
            shape,
            dims.scale(),
            saved.q,
            saved.k,
            saved.v,
            tokens.first,
            saved.attended,
            saved.lse,
        );
    }

    /// From the attention's output to the product of the SwiGLU: all that the backward needs of the MLP half. Leaves
    /// the half's normed input and the product in `scratch`.
    pub(super) fn mlp_forward(
        &self,
        tokens: &Tokens<'_>,
        x: &[f32],
        attended: &[f32],
        saved: &mut MlpPart<&mut [f32]>,
        scratch: &mut Scratch<'_>,
    ) {
        let Block { cpu, dims, tensors, weights, .. } = *self;
        tensors.o.forward(cpu, weights, attended, saved.middle);
        pointwise::add(cpu, saved.middle, x);
        let norm = &weights[tensors.post_norm.clone()];
        rmsnorm::forward(cpu, saved.middle, norm, dims.eps, scratch.normed, saved.middle_rstd);
        tensors.gate.forward(cpu, weights, scratch.normed, saved.gate);
        tensors.up.forward(cpu, weights, scratch.normed, saved.up);
        let product = Mlp::new(&dims, tokens.count(), scratch.shared).product;
        pointwise::swiglu_forward(cpu, saved.gate, saved.up, product);
    }

    /// Normed and rotated q and k, and v.
    fn attention_inputs(
        &self,
        tokens: &Tokens<'_>,
        x: &[f32],
        saved: &mut AttentionPart<&mut [f32]>,
        scratch: &mut Scratch<'_>,
    ) {
        let Block { cpu, dims, tensors, weights, rope } = *self;
        let norm = &weights[tensors.input_norm.clone()];
        rmsnorm::forward(cpu, x, norm, dims.eps, scratch.normed, saved.input_rstd);
        match &tensors.head_norms {
            None => {
                tensors.q.forward(cpu, weights, scratch.normed, saved.q);
                tensors.k.forward(cpu, weights, scratch.normed, saved.k);
            }
            Some((q_norm, k_norm)) => {
                let (q_norm, k_norm) = (&weights[q_norm.clone()], &weights[k_norm.clone()]);
                tensors.q.forward(cpu, weights, scratch.normed, saved.q_raw);
                tensors.k.forward(cpu, weights, scratch.normed, saved.k_raw);
                rmsnorm::forward(cpu, saved.q_raw, q_norm, dims.eps, saved.q, saved.q_rstd);
                rmsnorm::forward(cpu, saved.k_raw, k_norm, dims.eps, saved.k, saved.k_rstd);
            }
        }
        tensors.v.forward(cpu, weights, scratch.normed, saved.v);
        rope::forward(cpu, rope, tokens.positions, saved.q, dims.heads);
        rope::forward(cpu, rope, tokens.positions, saved.k, dims.kv_heads);
    }
}
