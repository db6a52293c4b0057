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

impl Computation {
    /// See [`crate::schedule::Operation::LayerForward`].
    pub(super) fn layer_forward<R: Number>(
        &mut self,
        layer: usize,
        micro: usize,
        level: Level,
        mut accesses: Accesses<'_, '_>,
    ) -> Result<(), Error> {
        let (dims, rows, products) = (self.model.dims, self.rows(micro), self.products());
        let (tokens, elements) = (rows.tokens(), rows.tokens() * dims.hidden);
        let (x, y, kept) = (accesses.read::<R>(elements), accesses.write::<R>(elements), accesses.write_rest());
        let (lasting, buffers) = self.workspace.layer::<R>(micro);
        let input = lasting.input.into_view();
        let seen = Tokens {
            rows,
            positions: self.input.positions(input, micro),
            first: self.input.first(input, micro, layer),
        };
        let block = Block {
            work: &self.work,
            precision: products,
            dims,
            tensors: &self.tensors,
            weights: buffers.weights.view(),
            rope: rope::Table { cos: lasting.cos.into_view(), sin: lasting.sin.into_view(), half: dims.head_dim / 2 },
        };
        let (mut kept, mut rest) = (Carve::new(kept.unwrap_or_else(ViewMut::empty)), Carve::new(buffers.saved));
        let attention = if level >= Level::Attention { &mut kept } else { &mut rest };
        let mut attention = AttentionPart::cut(&dims, tokens, attention);
        let mlp = if level == Level::All { &mut kept } else { &mut rest };
        let mut mlp = MlpPart::cut(&dims, tokens, mlp);
        let mut scratch = Scratch { memory: buffers.scratch, rows };
        block.forward(&seen, x, &mut attention, &mut mlp, &mut scratch, y)
    }

    /// See [`crate::schedule::Operation::LayerBackward`].
    pub(super) fn layer_backward<R: Number>(
        &mut self,
        layer: usize,
        micro: usize,
        level: Level,
        mut accesses: Accesses<'_, '_>,
    ) -> Result<(), Error> {
        let (dims, rows, products) = (self.model.dims, self.rows(micro), self.products());
        let elements = rows.tokens() * dims.hidden;
        let (x, dx, kept) = (accesses.read::<R>(elements), accesses.write::<R>(elements), accesses.read_rest());
        let (lasting, buffers) = self.workspace.layer::<R>(micro);
        let input = lasting.input.into_view();
        let seen = Tokens {
            rows,
            positions: self.input.positions(input, micro),
            first: self.input.first(input, micro, layer),
        };
        let block = Block {
            work: &self.work,
            precision: products,
            dims,
            tensors: &self.tensors,
            weights: buffers.weights.view(),
            rope: rope::Table { cos: lasting.cos.into_view(), sin: lasting.sin.into_view(), half: dims.head_dim / 2 },
        };
        let kept = Kept { level, memory: kept.unwrap_or_else(View::empty) };
        let mut scratch = Scratch { memory: buffers.scratch, rows };
        let mut gradients = Gradients { elements: buffers.gradients, add: micro > 0 };
        block.backward(&seen, x, kept, buffers.saved, &mut scratch, &mut gradients, dx)
    }

    fn rows(&self, micro: usize) -> Rows {
        Rows { rows: self.micro_rows[micro], seq: self.seq }
    }
}
