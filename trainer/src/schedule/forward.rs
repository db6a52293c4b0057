//! The forward: embedding, layers, head, all micro-batches through each before the next.

use super::{Operation, Sink, Writer};
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
                let seconds = self.cost.rows(self.tokens(micro), self.share(chunk));
                self.push(Operation::Gather { chunk, micro }, vec![(x, mode)], seconds);
            }
        }
    }

    fn layer_forward(&mut self, layer: usize, micro: usize) {
        let activations = self.it.activations;
        let mut accesses = vec![
            (activations.boundary(layer, micro), Mode::Read),
            (activations.boundary(layer + 1, micro), Mode::Write),
        ];
        let level = self.it.kept.layers[layer];
        accesses.extend(activations.saved(layer, micro, level).map(|run| (run, Mode::Write)));
        let seconds = self.cost.of(micro).layer_forward(self.it.micro_rows[micro], self.it.config.windows[layer]);
        self.push(Operation::LayerForward { layer, micro, level }, accesses, seconds);
    }

    /// The share of the embedding that a chunk holds.
    pub(super) fn share(&self, chunk: usize) -> f64 {
        self.chunks[0][chunk].len as f64 / self.it.manifest.units[0].elements as f64
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
                    let seconds = self.cost.final_norm(self.tokens(micro));
                    let (x, y) =
                        (self.it.activations.boundary(self.it.config.layers, micro), self.it.activations.normed(micro));
                    self.push(Operation::FinalNorm { micro }, vec![(x, Mode::Read), (y, Mode::Write)], seconds);
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
            if self.it.kept.logits {
                accesses.push((self.it.activations.logits(tile, micro), Mode::Write));
            }
            let rows = self.it.tiles.range(tile).len();
            let seconds = self.cost.of(micro).tile_forward(self.tokens(micro), rows);
            self.push(Operation::TileForward { tile, micro }, accesses, seconds);
        }
        self.push(Operation::DropTile { tile }, Vec::new(), self.left_over());
    }

    /// Moving to the front what the tile buffer holds behind a tile: half a chunk on average.
    pub(super) fn left_over(&self) -> f64 {
        self.cost.copy(self.it.layout.chunk_pages as usize * self.it.layout.page_elements / 2)
    }
}
