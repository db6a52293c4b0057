//! Operations of the head: final norm, logits and loss in vocabulary tiles.

use super::executor::Executor;
use super::leases::{Leases, numbers, numbers_mut};
use crate::error::Result;
use crate::workspace::HeadBuffers;
use mt_kernels::norm2::sum_squares;
use mt_kernels::{cross_entropy, linear, rmsnorm};

impl Executor<'_> {
    /// See [`crate::schedule::Operation::FinalNorm`].
    pub(super) fn final_norm(&mut self, micro: usize, mut leases: Leases<'_, '_>) -> Result<()> {
        let (x, mut y) = (leases.read()?, leases.write()?);
        let count = self.task.micro[micro].ids.len();
        let elements = count * self.model.config.hidden;
        let rstd = &mut self.workspace.rstd[micro][..count];
        let (x, y) = (numbers(&x, elements), numbers_mut(&mut y, elements));
        rmsnorm::forward(self.cpu, x, &self.workspace.norm, self.model.dims.eps, y, rstd);
        Ok(())
    }

    /// See [`crate::schedule::Operation::TileForward`].
    pub(super) fn tile_forward(&mut self, tile: usize, micro: usize, mut leases: Leases<'_, '_>) -> Result<()> {
        let (x, mut kept) = (leases.read()?, leases.write_rest()?);
        let it = &self.task.micro[micro];
        let (count, hidden) = (it.ids.len(), self.model.config.hidden);
        let range = self.model.tiles.range(tile);
        let HeadBuffers { tile: weights, logits, .. } = self.workspace.slab.head();
        let logits = match &mut kept {
            Some(lease) => numbers_mut(lease, count * range.len()),
            None => &mut logits[..count * range.len()],
        };
        let x = numbers(&x, count * hidden);
        let weights = &weights[..range.len() * hidden];
        linear::forward(self.cpu, x, weights, None, logits, count, hidden, range.len());
        match &mut self.task.logits {
            Some(out) => {
                for (row, part) in out.chunks_exact_mut(self.model.tiles.vocab).zip(logits.chunks_exact(range.len())) {
                    row[range.clone()].copy_from_slice(part);
                }
            }
            None => {
                let state = &mut self.workspace.states[micro];
                cross_entropy::forward_tile(self.cpu, state, logits, &it.targets, range.start, range.len());
            }
        }
        Ok(())
    }

    /// See [`crate::schedule::Operation::DropTile`].
    pub(super) fn drop_tile(&mut self, tile: usize) {
        let buffer = self.workspace.slab.head().tile;
        self.workspace.tile.drop_front(buffer, self.model.tiles.elements(tile));
    }

    /// See [`crate::schedule::Operation::Loss`].
    pub(super) fn finish_loss(&mut self) {
        let states = self.workspace.states.iter_mut().zip(self.task.micro);
        let sum = states.fold(0.0, |sum, (state, micro)| sum + cross_entropy::finish(state, &micro.targets));
        self.loss = sum / self.task.targets as f64;
    }

    /// See [`crate::schedule::Operation::TileBackward`].
    pub(super) fn tile_backward(&mut self, tile: usize, micro: usize, mut leases: Leases<'_, '_>) -> Result<()> {
        let (x, mut dx, mut kept) = (leases.read()?, leases.write()?, leases.write_rest()?);
        let it = &self.task.micro[micro];
        let (count, hidden) = (it.ids.len(), self.model.config.hidden);
        let range = self.model.tiles.range(tile);
        let (first, rows) = (range.start, range.len());
        let (x, dx) = (numbers(&x, count * hidden), numbers_mut(&mut dx, count * hidden));
        let HeadBuffers { tile: weights, gradients, logits, .. } = self.workspace.slab.head();
        let weights = &weights[..rows * hidden];
        let logits = match &mut kept {
            Some(lease) => numbers_mut(lease, count * rows),
            None => {
                let logits = &mut logits[..count * rows];
                linear::forward(self.cpu, x, weights, None, logits, count, hidden, rows);
                logits
            }
        };
        let scale = (1.0 / self.task.targets as f64) as f32;
        let state = &self.workspace.states[micro];
        cross_entropy::backward_tile(self.cpu, state, logits, &it.targets, first, rows, scale);
        linear::backward_input(self.cpu, logits, weights, dx, tile > 0, count, hidden, rows);
        let dw = self.workspace.gradients.room(gradients, rows * hidden);
        linear::backward_weight(self.cpu, logits, x, dw, micro > 0, count, hidden, rows);
        Ok(())
    }

    /// See [`crate::schedule::Operation::TileGradient`].
    pub(super) fn tile_gradient(&mut self, tile: usize) {
        self.drop_tile(tile);
        let queue = &mut self.workspace.gradients;
        queue.push(self.model.tiles.elements(tile));
        let end = self.model.norm_end();
        if self.model.config.tied || self.front >= end {
            return;
        }
        // What shares a chunk with the final norm waits beside it.
        let HeadBuffers { gradients, norm_chunks, .. } = self.workspace.slab.head();
        let moved = (end - self.front).min(queue.filled());
        norm_chunks[self.front..self.front + moved].copy_from_slice(&gradients[..moved]);
        queue.drop_front(gradients, moved);
        self.front += moved;
        if self.front == end {
            let head = self.model.head();
            self.sums[head] = sum_squares(self.cpu, self.sums[head], &norm_chunks[self.model.norm_leaves()..end]);
        }
    }

    /// See [`crate::schedule::Operation::FinalNormBackward`].
    pub(super) fn final_norm_backward(&mut self, micro: usize, mut leases: Leases<'_, '_>) -> Result<()> {
        let (x, mut dx) = (leases.read()?, leases.write()?);
        let (count, hidden) = (self.task.micro[micro].ids.len(), self.model.config.hidden);
        let (x, dx) = (numbers(&x, count * hidden), numbers_mut(&mut dx, count * hidden));
        let HeadBuffers { norm_chunks, boundary, .. } = self.workspace.slab.head();
        let dnorm = &mut norm_chunks[..hidden];
        if micro == 0 {
            dnorm.fill(0.0);
        }
        let dy = &mut boundary[..count * hidden];
        dy.copy_from_slice(dx);
        let rstd = &self.workspace.rstd[micro][..count];
        rmsnorm::backward(self.cpu, dy, x, &self.workspace.norm, rstd, dx, false, dnorm);
        Ok(())
    }

    /// See [`crate::schedule::Operation::NormGradient`].
    pub(super) fn norm_gradient(&mut self) {
        let head = self.model.head();
        let leaves = &self.workspace.slab.head().norm_chunks[..self.model.norm_leaves()];
        self.sums[head] = sum_squares(self.cpu, self.sums[head], leaves);
    }
}
