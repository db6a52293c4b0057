//! The forward: embedding, layers, head, all micro-batches through each before the next.

use super::{Operation, Sink, Writer, cost};
use mt_engine::Mode;

impl Writer<'_> {
    /// With `update`, every chunk's pending update runs immediately before the chunk is used.
    pub(super) fn forward(&mut self, update: bool) {
        self.embedding_forward(update);
        for layer in 0..self.it.config.layers {
            for chunk in 0..self.chunks[layer + 1].len() {
                self.weights(layer + 1, chunk, Sink::Layer, update);
            }
            for micro in self.micros() {
                self.layer_forward(layer, micro);
            }
        }
        self.head_forward(update);
    }

    fn embedding_forward(&mut self, update: bool) {
        for chunk in 0..self.chunks[0].len() {
            self.weights(0, chunk, Sink::Chunk, update);
            let mode = if chunk == 0 { Mode::Write } else { Mode::Update };
            for micro in self.micros() {
                let x = self.it.activations.boundary(0, micro);
                self.push(Operation::Gather { chunk, micro }, vec![(x, mode)], 0);
            }
        }
    }

    fn layer_forward(&mut self, layer: usize, micro: usize) {
        let activations = self.it.activations;
        let mut accesses = vec![
            (activations.boundary(layer, micro), Mode::Read),
            (activations.boundary(layer + 1, micro), Mode::Write),
        ];
        if self.it.keep_layers {
            accesses.push((activations.saved(layer, micro), Mode::Write));
        }
        let ns = self.cost.operations(self.layer_operations(layer, micro));
        self.push(Operation::LayerForward { layer, micro }, accesses, ns);
    }

    pub(super) fn layer_operations(&self, layer: usize, micro: usize) -> f64 {
        let elements = self.it.manifest.units[layer + 1].elements;
        cost::layer(self.it.config, elements, self.it.micro_rows[micro], self.it.seq)
    }

    pub(super) fn tile_operations(&self, micro: usize) -> f64 {
        2.0 * (self.tokens(micro) * self.it.tiles.rows * self.it.config.hidden) as f64
    }

    fn head_forward(&mut self, update: bool) {
        let (matrix, before) = self.matrix();
        let head = self.head();
        let hidden = self.it.config.hidden;
        let mut tiles = self.it.tiles.stream(before);
        let mut is_normed = false;
        for chunk in 0..self.chunks[head].len() {
            self.weights(head, chunk, Sink::Head, update);
            let end = self.chunks[head][chunk].start + self.chunks[head][chunk].len;
            if !is_normed && end >= hidden {
                is_normed = true;
                for micro in self.micros() {
                    let (x, y) =
                        (self.it.activations.boundary(self.it.config.layers, micro), self.it.activations.normed(micro));
                    self.push(Operation::FinalNorm { micro }, vec![(x, Mode::Read), (y, Mode::Write)], 0);
                }
            }
            if matrix == head {
                tiles.complete(end).for_each(|tile| self.tile_forward(tile));
            }
        }
        if matrix != head {
            for chunk in 0..self.chunks[matrix].len() {
                self.weights(matrix, chunk, Sink::Tile, false);
                let end = self.chunks[matrix][chunk].start + self.chunks[matrix][chunk].len;
                tiles.complete(end).for_each(|tile| self.tile_forward(tile));
            }
        }
    }

    fn tile_forward(&mut self, tile: usize) {
        for micro in self.micros() {
            let mut accesses = vec![(self.it.activations.normed(micro), Mode::Read)];
            if self.it.keep_logits {
                accesses.push((self.it.activations.logits(tile, micro), Mode::Write));
            }
            let ns = self.cost.operations(self.tile_operations(micro));
            self.push(Operation::TileForward { tile, micro }, accesses, ns);
        }
        self.push(Operation::DropTile { tile }, Vec::new(), 0);
    }
}
