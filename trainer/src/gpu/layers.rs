//! Operations of the layers.

use super::Computation;
use super::accesses::Accesses;
use super::block::{Block, Gradients, Kept, Tokens};
use super::carve::Carve;
use super::real::Number;
use super::saved::{AttentionPart, MlpPart};
use super::scratch::{Rows, Scratch};
use crate::block::Level;
use mt_kernels::cuda::{Error, View, ViewMut, rope};

/// A layer's turn with one micro-batch: who computes, on what, and memory for it.
struct Turn<'a, R> {
    block: Block<'a, R>,
    tokens: Tokens<'a>,
    gradients: ViewMut<'a, f32>,
    /// Room for what the forward saves and the level does not keep.
    saved: ViewMut<'a, u8>,
    scratch: Scratch<'a>,
}

impl Computation {
    /// See [`crate::schedule::Operation::LayerForward`].
    pub(super) fn layer_forward<R: Number>(
        &mut self,
        layer: usize,
        micro: usize,
        level: Level,
        mut accesses: Accesses<'_, '_>,
    ) -> Result<(), Error> {
        let (dims, tokens) = (self.model.dims, self.rows(micro).tokens());
        let elements = tokens * dims.hidden;
        let (x, y, kept) = (accesses.read::<R>(elements), accesses.write::<R>(elements), accesses.write_rest());
        let mut turn = self.turn(layer, micro);
        let (mut kept, mut rest) = (Carve::new(kept.unwrap_or_else(ViewMut::empty)), Carve::new(turn.saved));
        let attention = if level >= Level::Attention { &mut kept } else { &mut rest };
        let mut attention = AttentionPart::cut(&dims, tokens, attention);
        let mlp = if level == Level::All { &mut kept } else { &mut rest };
        let mut mlp = MlpPart::cut(&dims, tokens, mlp);
        turn.block.forward(&turn.tokens, x, &mut attention, &mut mlp, &mut turn.scratch, y)
    }

    /// See [`crate::schedule::Operation::LayerBackward`].
    pub(super) fn layer_backward<R: Number>(
        &mut self,
        layer: usize,
        micro: usize,
        level: Level,
        mut accesses: Accesses<'_, '_>,
    ) -> Result<(), Error> {
        let elements = self.rows(micro).tokens() * self.model.dims.hidden;
        let (x, dx, kept) = (accesses.read::<R>(elements), accesses.write::<R>(elements), accesses.read_rest());
        let kept = Kept { level, memory: kept.unwrap_or_else(View::empty) };
        let mut turn = self.turn(layer, micro);
        let mut gradients = Gradients { elements: turn.gradients, add: micro > 0 };
        turn.block.backward(&turn.tokens, x, kept, turn.saved, &mut turn.scratch, &mut gradients, dx)
    }

    fn turn<R: Number>(&mut self, layer: usize, micro: usize) -> Turn<'_, R> {
        let (dims, rows, precision) = (self.model.dims, self.rows(micro), self.products());
        let (lasting, buffers) = self.workspace.layer::<R>(micro);
        let input = lasting.input.into_view();
        let block = Block {
            work: &self.work,
            precision,
            dims,
            tensors: &self.tensors,
            weights: buffers.weights.into_view(),
            rope: rope::Table { cos: lasting.cos.into_view(), sin: lasting.sin.into_view(), half: dims.head_dim / 2 },
        };
        let tokens = Tokens {
            rows,
            positions: self.input.positions(input, micro),
            first: self.input.first(input, micro, layer),
        };
        let scratch = Scratch { memory: buffers.scratch, rows };
        Turn { block, tokens, gradients: buffers.gradients, saved: buffers.saved, scratch }
    }

    fn rows(&self, micro: usize) -> Rows {
        Rows { rows: self.micro_rows[micro], seq: self.seq }
    }
}
