//! Operations of the head: final norm, logits and loss in vocabulary tiles.

use super::Computation;
use super::accesses::Accesses;
use super::real::Number;
use mt_kernels::cuda::rmsnorm::Heads;
use mt_kernels::cuda::{Error, View, ViewMut, cross_entropy, linear, rmsnorm};

impl Computation {
    /// See [`crate::schedule::Operation::FinalNorm`].
    pub(super) fn final_norm<R: Number>(&mut self, micro: usize, mut accesses: Accesses<'_, '_>) -> Result<(), Error> {
        let (elements, eps) = (self.tokens(micro) * self.model.config.hidden, self.model.dims.eps);
        let (x, y) = (accesses.read::<R>(elements), accesses.write::<R>(elements));
        let lasting = self.workspace.lasting(micro);
        rmsnorm::forward(&self.work, x, lasting.norm.into_view().cast(), eps, y, lasting.tokens.rstd)
    }

    /// See [`crate::schedule::Operation::TileForward`].
    pub(super) fn tile_forward<R: Number>(
        &mut self,
        tile: usize,
        micro: usize,
        mut accesses: Accesses<'_, '_>,
    ) -> Result<(), Error> {
        let (tokens, hidden) = (self.tokens(micro), self.model.config.hidden);
        let (range, products) = (self.model.tiles.range(tile), self.products());
        let size = linear::Size { tokens, inputs: hidden, outputs: range.len() };
        let (x, kept) = (accesses.read::<R>(tokens * hidden), accesses.write_rest());
        let (lasting, buffers) = self.workspace.head::<R>(micro);
        let logits = kept.map_or(buffers.logits, ViewMut::cast);
        let mut logits = logits.slice(0..tokens * range.len());
        let begin = self.tile.begin();
        let weights = buffers.tile.view().slice(begin..begin + range.len() * hidden);
        linear::forward(&self.work, products, x, weights, None, logits.reborrow(), size)?;
        if let Some(out) = &mut self.logits {
            let mut found = vec![R::default(); logits.len()];
            logits.view().download(&self.work, &mut found)?;
            for (row, part) in out.chunks_exact_mut(self.model.tiles.vocab).zip(found.chunks_exact(range.len())) {
                row[range.clone()].iter_mut().zip(part).for_each(|(to, from)| *to = from.widen());
            }
            return Ok(());
        }
        let targets = self.input.targets(lasting.input.into_view(), micro);
        let it = lasting.tokens;
        let mut state = cross_entropy::State { max: it.max, sum: it.sum, target: it.target };
        cross_entropy::forward_tile(&self.work, &mut state, logits.view(), targets, range.start, range.len())
    }

    /// See [`crate::schedule::Operation::DropTile`].
    pub(super) fn drop_tile(&mut self, tile: usize) {
        self.tile.drop_front(self.model.tiles.elements(tile));
    }

    /// See [`crate::schedule::Operation::Loss`].
    pub(super) fn finish_loss(&mut self) -> Result<(), Error> {
        for micro in 0..self.micro_rows.len() {
            let lasting = self.workspace.lasting(micro);
            let targets = self.input.targets(lasting.input.into_view(), micro);
            let it = lasting.tokens;
            let mut state = cross_entropy::State { max: it.max, sum: it.sum, target: it.target };
            cross_entropy::finish(&self.work, &mut state, targets, lasting.loss)?;
        }
        Ok(())
    }

    /// See [`crate::schedule::Operation::TileBackward`].
    pub(super) fn tile_backward<R: Number>(
        &mut self,
        tile: usize,
        micro: usize,
        mut accesses: Accesses<'_, '_>,
    ) -> Result<(), Error> {
        let (tokens, hidden, products) = (self.tokens(micro), self.model.config.hidden, self.products());
        let (range, scale) = (self.model.tiles.range(tile), self.scale());
        let (first, rows) = (range.start, range.len());
        let size = linear::Size { tokens, inputs: hidden, outputs: rows };
        let (x, dx) = (accesses.read::<R>(tokens * hidden), accesses.write::<R>(tokens * hidden));
        let kept = accesses.write_rest();
        let (lasting, mut buffers) = self.workspace.head::<R>(micro);
        let begin = self.tile.begin();
        let weights = buffers.tile.view().slice(begin..begin + rows * hidden);
        let mut logits = match kept {
            Some(lease) => lease.cast().slice(0..tokens * rows),
            None => {
                let mut logits = buffers.logits.slice(0..tokens * rows);
                linear::forward(&self.work, products, x, weights, None, logits.reborrow(), size)?;
                logits
            }
        };
        let (lse, targets) = (lasting.tokens.max.into_view(), self.input.targets(lasting.input.into_view(), micro));
        cross_entropy::backward_tile(&self.work, lse, logits.reborrow(), targets, first, rows, scale)?;
        linear::backward_input(&self.work, products, logits.view(), weights, dx, tile > 0, size)?;
        let n = rows * hidden;
        let at = self.gradients.make_room(&self.work, buffers.gradients.reborrow(), n, true)?;
        let dw = buffers.gradients.slice(at..at + n);
        linear::backward_weight(&self.work, products, logits.view(), x, dw, micro > 0, size)
    }

    /// See [`crate::schedule::Operation::TileGradient`].
    pub(super) fn tile_gradient<R: Number>(&mut self, tile: usize) -> Result<(), Error> {
        self.drop_tile(tile);
        self.gradients.push(self.model.tiles.elements(tile));
        let end = self.model.norm_end();
        if self.model.config.tied || self.front >= end {
            return Ok(());
        }
        // What shares a chunk with the final norm waits beside it.
        let moved = (end - self.front).min(self.gradients.filled());
        let (_, buffers) = self.workspace.head::<R>(0);
        let begin = self.gradients.begin();
        let from: View<'_, f32> = buffers.gradients.view().slice(begin..begin + moved);
        buffers.norm_chunks.slice(self.front..self.front + moved).copy_from(&self.work, from)?;
        self.gradients.drop_front(moved);
        self.front += moved;
        Ok(())
    }

    /// See [`crate::schedule::Operation::FinalNormBackward`].
    pub(super) fn final_norm_backward<R: Number>(
        &mut self,
        micro: usize,
        mut accesses: Accesses<'_, '_>,
    ) -> Result<(), Error> {
        let (tokens, hidden) = (self.tokens(micro), self.model.config.hidden);
        let (x, dx) = (accesses.read::<R>(tokens * hidden), accesses.write::<R>(tokens * hidden));
        let (lasting, buffers) = self.workspace.head::<R>(micro);
        let mut dnorm = buffers.norm_chunks.slice(0..hidden);
        if micro == 0 {
            dnorm.fill(&self.work, 0)?;
        }
        // A row is one head: the kernel that works in place.
        let rows = Heads { tokens, heads: 1, dim: hidden, stride: hidden };
        let (norm, rstd) = (lasting.norm.into_view().cast(), lasting.tokens.rstd.into_view());
        rmsnorm::backward_heads(&self.work, rows, dx, x, norm, rstd, dnorm, buffers.partial)
    }
}
