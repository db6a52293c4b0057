//! The backward: head, layers from the last to the first, embedding.
//!
//! Gradients of a chunk leave the workspace once, when they are complete: into the region `grad` for the pending
//! update, or (fused-backward) through their own update. Two exceptions: where head and embedding share weights, the
//! head's part of the gradient waits in `grad` for the embedding's; and where the processor updates beside a GPU, its
//! own update takes the gradient from `grad`, while the GPU computes the next unit.

use super::writer::state;
use super::{Gradients, Operation, Sink, Writer};
use crate::head::norm_chunks;
use crate::layout::GRAD;
use mt_engine::Mode;

impl Writer<'_> {
    pub(super) fn backward(&mut self) {
        self.head_backward();
        for layer in (0..self.it.config.layers).rev() {
            self.layer_backward(layer);
        }
        self.embedding_backward();
    }

    fn head_backward(&mut self) {
        let (matrix, before) = self.matrix();
        let head = self.head();
        let hidden = self.it.config.hidden;
        // Chunks that hold elements of the final norm wait for its gradient, which is complete last.
        let with_norm = norm_chunks(&self.chunks[head], hidden);
        let mut tiles = self.it.tiles.stream(before);
        let mut next = if matrix == head { with_norm } else { 0 };
        let into = if matrix == head { Sink::Head } else { Sink::Tile };
        for chunk in 0..self.chunks[matrix].len() {
            let end = self.chunks[matrix][chunk].start + self.chunks[matrix][chunk].len;
            if end <= before {
                continue;
            }
            self.weights(matrix, chunk, into, false);
            for tile in tiles.complete(end) {
                self.tile_backward(tile);
                let ready = before + self.it.tiles.elements_to(tile);
                while self.chunks[matrix].get(next).is_some_and(|at| at.start + at.len <= ready) {
                    self.gradients_out(matrix, next, Gradients::Tile, matrix != head);
                    next += 1;
                }
            }
        }
        for micro in self.micros() {
            let (x, dx) =
                (self.it.activations.boundary(self.it.config.layers, micro), self.it.activations.gradient(micro));
            let seconds = self.cost.final_norm_backward(self.tokens(micro));
            self.push(Operation::FinalNormBackward { micro }, vec![(x, Mode::Read), (dx, Mode::Update)], seconds);
        }
        self.push(Operation::NormGradient, Vec::new(), self.cost.sum_squares(hidden));
        for chunk in 0..with_norm {
            self.gradients_out(head, chunk, Gradients::Norm, false);
        }
    }

    fn tile_backward(&mut self, tile: usize) {
        for micro in self.micros() {
            let mode = if tile == 0 { Mode::Write } else { Mode::Update };
            let activations = self.it.activations;
            let mut accesses = vec![(activations.normed(micro), Mode::Read), (activations.gradient(micro), mode)];
            if self.it.kept.logits {
                accesses.push((activations.logits(tile, micro), Mode::Update));
            }
            let rows = self.it.tiles.range(tile).len();
            let seconds = self.cost.of(micro).tile_backward(self.tokens(micro), rows, self.it.kept.logits);
            self.push(Operation::TileBackward { tile, micro }, accesses, seconds);
        }
        self.push(Operation::TileGradient { tile }, Vec::new(), self.left_over());
    }

    fn layer_backward(&mut self, layer: usize) {
        let unit = layer + 1;
        for chunk in 0..self.chunks[unit].len() {
            self.weights(unit, chunk, Sink::Layer, false);
        }
        for micro in self.micros() {
            let activations = self.it.activations;
            let mut accesses =
                vec![(activations.boundary(layer, micro), Mode::Read), (activations.gradient(micro), Mode::Update)];
            let level = self.it.kept.layers[layer];
            accesses.extend(activations.saved(layer, micro, level).map(|run| (run, Mode::Read)));
            let (rows, window) = (self.it.micro_rows[micro], self.it.config.windows[layer]);
            let seconds = self.cost.of(micro).layer_backward(rows, window, level);
            self.push(Operation::LayerBackward { layer, micro, level }, accesses, seconds);
        }
        let seconds = self.cost.sum_squares(self.it.manifest.units[unit].elements);
        self.push(Operation::LayerGradient { unit }, Vec::new(), seconds);
        for chunk in 0..self.chunks[unit].len() {
            self.gradients_out(unit, chunk, Gradients::Layer, false);
        }
        while let Some((before, chunk)) = self.behind.next_before(unit) {
            self.update_on_host(before, chunk);
        }
    }

    fn embedding_backward(&mut self) {
        for chunk in 0..self.chunks[0].len() {
            let at = self.chunks[0][chunk];
            let left = if self.it.config.tied { vec![(at.run(GRAD), Mode::Read)] } else { Vec::new() };
            self.push(Operation::ChunkBegin { chunk }, left, self.cost.copy(at.len));
            for micro in self.micros() {
                let dx = self.it.activations.gradient(micro);
                let seconds = self.cost.rows(self.tokens(micro), self.share(chunk));
                self.push(Operation::Scatter { chunk, micro }, vec![(dx, Mode::Read)], seconds);
            }
            self.gradients_out(0, chunk, Gradients::Chunk, false);
        }
        while let Some((unit, chunk)) = self.behind.next() {
            self.update_on_host(unit, chunk);
        }
    }

    fn gradients_out(&mut self, unit: usize, chunk: usize, from: Gradients, partial: bool) {
        let at = self.chunks[unit][chunk];
        let is_summed = matches!(from, Gradients::Chunk | Gradients::Tile) && !partial;
        let sum = if is_summed { self.cost.sum_squares(at.len) } else { 0.0 };
        // What the queue of the tiles' gradients holds behind the chunk moves to its front: up to a tile.
        let moved = if from == Gradients::Tile { self.cost.copy(self.it.tiles.elements_max() / 2) } else { 0.0 };
        let is_updated = self.it.fused_backward && !partial;
        if is_updated && !self.it.updates_on_host(unit) {
            // A GPU's gradients do not lie as the planes do.
            let placed = if self.it.gpu.is_some() { self.cost.copy(at.len) } else { 0.0 };
            let seconds = sum + moved + placed + self.cost.update(at.len);
            return self.push(Operation::Apply { unit, chunk, from }, state(at).collect(), seconds);
        }
        let (grad, seconds) = (self.it.gradients(unit, at), sum + moved + self.cost.copy(at.len));
        self.push(Operation::Keep { unit, chunk, from, partial }, vec![(grad, Mode::Write)], seconds);
        if is_updated {
            self.behind.push(unit, chunk);
        }
    }
}
