//! One decoder layer on a GPU: forward and manual backward, as [`crate::block`] but for what one product computes
//! together: q, k and v; gate and up. The residual is added by the product that makes what is added to it.
//!
//! Terms as there. `R` is the type of weights and activations.

use super::carve::{Carve, Read};
use super::saved::{AttentionPart, MlpPart};
use super::scratch::{Rows, Scratch, attention_shape};
use super::tensors::{Linear, Tensors};
use crate::block::{Dims, Level};
use mt_kernels::cuda::pointwise::GateUp;
use mt_kernels::cuda::rmsnorm::Heads;
use mt_kernels::cuda::{Error, Queue, Real, View, ViewMut, attention, linear, pointwise, rmsnorm, rope};
use std::ops::Range;

/// The tokens of a micro-batch as a layer sees them.
#[derive(Clone, Copy)]
pub(super) struct Tokens<'a> {
    pub(super) rows: Rows,
    /// Position of each token within its document \[T].
    pub(super) positions: View<'a, u32>,
    /// Index within its row of the first token that each token sees \[T].
    pub(super) first: View<'a, u32>,
}

/// One layer with its weights.
#[derive(Clone, Copy)]
pub(super) struct Block<'a, R> {
    pub(super) work: &'a Queue,
    /// How f32 operands are multiplied.
    pub(super) precision: linear::Precision,
    pub(super) dims: Dims,
    pub(super) tensors: &'a Tensors,
    /// As the tensors are placed.
    pub(super) weights: View<'a, R>,
    pub(super) rope: rope::Table<'a>,
}

/// Gradients of a layer's weights.
pub(super) struct Gradients<'a> {
    /// As the tensors are placed.
    pub(super) elements: ViewMut<'a, f32>,
    /// Whether the products add to what is there (every micro-batch but the first) or overwrite it.
    pub(super) add: bool,
}

impl Gradients<'_> {
    fn of(&mut self, range: &Range<usize>) -> ViewMut<'_, f32> {
        self.elements.reborrow().slice(range.clone())
    }
}

/// What a layer's forward kept, as a lease has it.
#[derive(Clone, Copy)]
pub(super) struct Kept<'a> {
    pub(super) level: Level,
    pub(super) memory: View<'a, u8>,
}

impl<R: Real> Block<'_, R> {
    /// y \[T,H] = layer(x \[T,H]); fills both parts.
    pub(super) fn forward(
        &self,
        tokens: &Tokens<'_>,
        x: View<'_, R>,
        attention: &mut AttentionPart<Carve<'_>, R>,
        mlp: &mut MlpPart<Carve<'_>, R>,
        scratch: &mut Scratch<'_>,
        y: ViewMut<'_, R>,
    ) -> Result<(), Error> {
        self.attention_forward(tokens, x, attention, scratch)?;
        self.mlp_forward(tokens, x, attention.attended.view(), mlp, scratch)?;
        let (_, half) = scratch.mlp::<R>(&self.dims);
        let product = half.both.view().slice(0..half.dproduct.len());
        self.onto(&self.tensors.down, product, mlp.middle.view(), y)
    }

    /// The attention half without its output projection: all that the backward needs of it.
    fn attention_forward(
        &self,
        tokens: &Tokens<'_>,
        x: View<'_, R>,
        saved: &mut AttentionPart<Carve<'_>, R>,
        scratch: &mut Scratch<'_>,
    ) -> Result<(), Error> {
        let Block { work, dims, tensors, .. } = *self;
        let (mut common, _) = scratch.attention::<R>(&dims);
        let norm = self.of(&tensors.input_norm);
        rmsnorm::forward(work, x, norm, dims.eps, common.normed.reborrow(), saved.input_rstd.reborrow())?;
        match &tensors.head_norms {
            None => self.linear(&tensors.qkv, common.normed.view(), saved.qkv.reborrow())?,
            Some(norms) => {
                self.linear(&tensors.qkv, common.normed.view(), saved.raw.reborrow())?;
                self.head_norms(tokens, norms, saved)?;
            }
        }
        let (heads, stride) = (dims.heads + dims.kv_heads, dims.query() + 2 * dims.key());
        rope::forward(work, self.rope, tokens.positions, saved.qkv.reborrow(), heads, stride)?;
        let shape = attention_shape(&dims, tokens.rows);
        let (out, lse) = (saved.attended.reborrow(), saved.lse.reborrow());
        attention::forward(work, &shape, saved.qkv.view(), tokens.first, out, lse)
    }

    /// q and k of the raw ones; v is copied.
    fn head_norms(
        &self,
        tokens: &Tokens<'_>,
        (q_norm, k_norm): &(Range<usize>, Range<usize>),
        saved: &mut AttentionPart<Carve<'_>, R>,
    ) -> Result<(), Error> {
        let Block { work, dims, .. } = *self;
        let (q, k) = self.heads(tokens);
        let (raw, begin) = (saved.raw.view(), dims.query());
        let (w, rstd) = (self.of(q_norm), saved.q_rstd.reborrow());
        rmsnorm::forward_heads(work, q, raw, w, dims.eps, saved.qkv.reborrow(), rstd)?;
        let (w, rstd) = (self.of(k_norm), saved.k_rstd.reborrow());
        let part = begin..raw.len();
        let to = saved.qkv.reborrow().slice(part.clone());
        rmsnorm::forward_heads(work, k, raw.slice(part), w, dims.eps, to, rstd)?;
        let part = begin + dims.key()..raw.len();
        let to = saved.qkv.reborrow().slice(part.clone());
        pointwise::copy_rows(work, tokens.rows.tokens(), dims.key(), q.stride, raw.slice(part), to)
    }

    /// The heads of q and those of k in a token's row.
    fn heads(&self, tokens: &Tokens<'_>) -> (Heads, Heads) {
        let Dims { heads, kv_heads, head_dim: dim, .. } = self.dims;
        let stride = self.dims.query() + 2 * self.dims.key();
        let of = |heads| Heads { tokens: tokens.rows.tokens(), heads, dim, stride };
        (of(heads), of(kv_heads))
    }

    /// From the attention's output to the product of the SwiGLU: all that the backward needs of the MLP half. Leaves
    /// the half's normed input and the product in `scratch`.
    fn mlp_forward(
        &self,
        tokens: &Tokens<'_>,
        x: View<'_, R>,
        attended: View<'_, R>,
        saved: &mut MlpPart<Carve<'_>, R>,
        scratch: &mut Scratch<'_>,
    ) -> Result<(), Error> {
        let Block { work, dims, tensors, .. } = *self;
        self.onto(&tensors.o, attended, x, saved.middle.reborrow())?;
        let (mut common, mut half) = scratch.mlp::<R>(&dims);
        let (norm, rstd) = (self.of(&tensors.post_norm), saved.middle_rstd.reborrow());
        rmsnorm::forward(work, saved.middle.view(), norm, dims.eps, common.normed.reborrow(), rstd)?;
        self.linear(&tensors.gate_up, common.normed.view(), saved.gate_up.reborrow())?;
        let product = half.both.reborrow().slice(0..half.dproduct.len());
        pointwise::swiglu_forward(work, self.gate_up(tokens), saved.gate_up.view(), product)
    }

    /// Backward with what the forward kept; computes the rest again in `memory`, which has room for it. `dx` \[T,H]
    /// holds dy on entry, dx on return.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn backward(
        &self,
        tokens: &Tokens<'_>,
        x: View<'_, R>,
        kept: Kept<'_>,
        memory: ViewMut<'_, u8>,
        scratch: &mut Scratch<'_>,
        gradients: &mut Gradients<'_>,
        mut dx: ViewMut<'_, R>,
    ) -> Result<(), Error> {
        let (dims, count) = (&self.dims, tokens.rows.tokens());
        let (mut left, mut memory) = (Read::new(kept.memory), Carve::new(memory));
        let attention = match kept.level {
            Level::Input => {
                let mut part = AttentionPart::cut(dims, count, &mut memory);
                self.attention_forward(tokens, x, &mut part, scratch)?;
                part.shared()
            }
            Level::Attention | Level::All => AttentionPart::cut(dims, count, &mut left),
        };
        let mlp = match kept.level {
            Level::Input | Level::Attention => {
                let mut part = MlpPart::cut(dims, count, &mut memory);
                self.mlp_forward(tokens, x, attention.attended, &mut part, scratch)?;
                part.shared()
            }
            Level::All => {
                let part = MlpPart::cut(dims, count, &mut left);
                self.mlp_scratch(tokens, &part, scratch)?;
                part
            }
        };
        if !gradients.add {
            self.clear_norms(gradients)?;
        }
        self.mlp_half(tokens, &mlp, scratch, gradients, dx.reborrow())?;
        self.attention_half(tokens, x, &attention, scratch, gradients, dx)
    }

    /// What the MLP half's forward leaves in `scratch`, from what it saved.
    fn mlp_scratch(
        &self,
        tokens: &Tokens<'_>,
        saved: &MlpPart<Read<'_>, R>,
        scratch: &mut Scratch<'_>,
    ) -> Result<(), Error> {
        let Block { work, dims, tensors, .. } = *self;
        let (common, half) = scratch.mlp::<R>(&dims);
        let norm = self.of(&tensors.post_norm);
        rmsnorm::forward(work, saved.middle, norm, dims.eps, common.normed, common.rstd)?;
        let product = half.both.slice(0..half.dproduct.len());
        pointwise::swiglu_forward(work, self.gate_up(tokens), saved.gate_up, product)
    }

    /// The norms' kernel always adds.
    fn clear_norms(&self, gradients: &mut Gradients<'_>) -> Result<(), Error> {
        let Block { work, tensors, .. } = *self;
        let heads = tensors.head_norms.iter().flat_map(|(q, k)| [q, k]);
        for norm in [&tensors.input_norm, &tensors.post_norm].into_iter().chain(heads) {
            gradients.of(norm).fill(work, 0)?;
        }
        Ok(())
    }

    /// Expects the normed input and the product of the SwiGLU in `scratch`.
    fn mlp_half(
        &self,
        tokens: &Tokens<'_>,
        saved: &MlpPart<Read<'_>, R>,
        scratch: &mut Scratch<'_>,
        gradients: &mut Gradients<'_>,
        dx: ViewMut<'_, R>,
    ) -> Result<(), Error> {
        let Block { work, dims, tensors, .. } = *self;
        let (mut common, mut half) = scratch.mlp::<R>(&dims);
        let product = half.both.view().slice(0..half.dproduct.len());
        self.parameters(&tensors.down, dx.view(), product, gradients, common.partial.reborrow())?;
        self.input(&tensors.down, dx.view(), half.dproduct.reborrow())?;
        // The product is not needed any more: its gradient's parts take its place.
        let layout = self.gate_up(tokens);
        pointwise::swiglu_backward(work, layout, half.dproduct.view(), saved.gate_up, half.both.reborrow())?;
        let (both, normed) = (half.both.view(), common.normed.view());
        self.parameters(&tensors.gate_up, both, normed, gradients, common.partial.reborrow())?;
        self.input(&tensors.gate_up, both, common.dnormed.reborrow())?;
        let (norm, dnorm) = (self.of(&tensors.post_norm), gradients.of(&tensors.post_norm));
        let (dy, rstd, partial) = (common.dnormed.view(), saved.middle_rstd, common.partial);
        rmsnorm::backward(work, dy, saved.middle, norm, rstd, dx, true, dnorm, partial)
    }

    fn attention_half(
        &self,
        tokens: &Tokens<'_>,
        x: View<'_, R>,
        saved: &AttentionPart<Read<'_>, R>,
        scratch: &mut Scratch<'_>,
        gradients: &mut Gradients<'_>,
        dx: ViewMut<'_, R>,
    ) -> Result<(), Error> {
        let Block { work, dims, tensors, .. } = *self;
        let (mut common, mut half) = scratch.attention::<R>(&dims);
        self.parameters(&tensors.o, dx.view(), saved.attended, gradients, common.partial.reborrow())?;
        self.input(&tensors.o, dx.view(), half.dattended.reborrow())?;
        let shape = attention_shape(&dims, tokens.rows);
        attention::backward(
            work,
            &shape,
            saved.qkv,
            tokens.first,
            saved.attended,
            saved.lse,
            half.dattended.view(),
            half.dqkv.reborrow(),
            half.delta,
        )?;
        let (heads, stride) = (dims.heads + dims.kv_heads, dims.query() + 2 * dims.key());
        rope::backward(work, self.rope, tokens.positions, half.dqkv.reborrow(), heads, stride)?;
        if let Some((q_norm, k_norm)) = &tensors.head_norms {
            let (q, k) = self.heads(tokens);
            let (w, dw, partial) = (self.of(q_norm), gradients.of(q_norm), common.partial.reborrow());
            rmsnorm::backward_heads(work, q, half.dqkv.reborrow(), saved.raw, w, saved.q_rstd, dw, partial)?;
            let (w, dw, partial) = (self.of(k_norm), gradients.of(k_norm), common.partial.reborrow());
            let part = dims.query()..half.dqkv.len();
            let (d, raw) = (half.dqkv.reborrow().slice(part.clone()), saved.raw.slice(part));
            rmsnorm::backward_heads(work, k, d, raw, w, saved.k_rstd, dw, partial)?;
        }
        let norm = self.of(&tensors.input_norm);
        rmsnorm::forward(work, x, norm, dims.eps, common.normed.reborrow(), common.rstd.reborrow())?;
        let (dqkv, normed) = (half.dqkv.view(), common.normed.view());
        self.parameters(&tensors.qkv, dqkv, normed, gradients, common.partial.reborrow())?;
        self.input(&tensors.qkv, dqkv, common.dnormed.reborrow())?;
        let (dy, dnorm, partial) = (common.dnormed.view(), gradients.of(&tensors.input_norm), common.partial);
        rmsnorm::backward(work, dy, x, norm, saved.input_rstd, dx, true, dnorm, partial)
    }

    fn of(&self, range: &Range<usize>) -> View<'_, R> {
        self.weights.slice(range.clone())
    }

    fn gate_up(&self, tokens: &Tokens<'_>) -> GateUp {
        GateUp::beside(tokens.rows.tokens(), self.dims.mlp)
    }

    /// y \[T, outputs] is overwritten.
    fn linear(&self, it: &Linear, x: View<'_, R>, y: ViewMut<'_, R>) -> Result<(), Error> {
        let (w, bias, size) = (self.of(&it.weight), it.bias.as_ref().map(|bias| self.of(bias)), it.size(x.len()));
        linear::forward(self.work, self.precision, x, w, bias, y, size)
    }

    /// As [`Block::linear`], added to `onto`.
    fn onto(&self, it: &Linear, x: View<'_, R>, onto: View<'_, R>, y: ViewMut<'_, R>) -> Result<(), Error> {
        let (w, bias, size) = (self.of(&it.weight), it.bias.as_ref().map(|bias| self.of(bias)), it.size(x.len()));
        linear::forward_onto(self.work, self.precision, x, w, bias, onto, y, size)
    }

    /// dx \[T, inputs] is overwritten.
    fn input(&self, it: &Linear, dy: View<'_, R>, dx: ViewMut<'_, R>) -> Result<(), Error> {
        let size = it.size(dx.len());
        linear::backward_input(self.work, self.precision, dy, self.of(&it.weight), dx, false, size)
    }

    /// Gradients of weight and bias are overwritten, or added to.
    fn parameters(
        &self,
        it: &Linear,
        dy: View<'_, R>,
        x: View<'_, R>,
        gradients: &mut Gradients<'_>,
        partial: ViewMut<'_, f32>,
    ) -> Result<(), Error> {
        let (add, size) = (gradients.add, it.size(x.len()));
        linear::backward_weight(self.work, self.precision, dy, x, gradients.of(&it.weight), add, size)?;
        match &it.bias {
            None => Ok(()),
            Some(bias) => linear::backward_bias(self.work, dy, gradients.of(bias), add, partial),
        }
    }
}

impl Linear {
    /// For an input \[T, inputs] of so many elements.
    fn size(&self, x: usize) -> linear::Size {
        linear::Size { tokens: x / self.inputs, inputs: self.inputs, outputs: self.outputs }
    }
}
