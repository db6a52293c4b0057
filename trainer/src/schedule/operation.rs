//! The operations of a program.

use crate::block::Level;

/// Where joined weights go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sink {
    /// Nowhere: the update is all that is wanted.
    Nowhere,
    /// The buffer of a layer's unit.
    Layer,
    /// The buffer of one chunk.
    Chunk,
    /// Of the head's unit: the final norm's part to its own buffer, the rest behind what the tile buffer holds.
    Head,
    /// Behind what the tile buffer holds.
    Tile,
}

/// Where a chunk's gradients are when they are complete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gradients {
    /// In the buffer of a layer's unit.
    Layer,
    /// In the buffer of one chunk.
    Chunk,
    /// At the front of the gradients of the head's tiles.
    Tile,
    /// In the buffer of the chunks that hold the final norm.
    Norm,
}

/// What an instruction computes. Accesses stand behind each, in order. `chunk` counts within the unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Applies the update whose gradients were kept, in the step before or (fused-backward beside a GPU) in this one,
    /// and joins the weights: grad R; hi, lo, m, v U.
    Update {
        /// Unit.
        unit: usize,
        /// Chunk.
        chunk: usize,
        /// Where the new weights go.
        into: Sink,
    },
    /// Joins the weights: hi, lo R.
    Join {
        /// Unit.
        unit: usize,
        /// Chunk.
        chunk: usize,
        /// Where the weights go.
        into: Sink,
    },
    /// Copies what the chunk buffer holds of each token's embedding: input of layer 0, W for the first chunk, then U.
    Gather {
        /// Chunk in the buffer.
        chunk: usize,
        /// Micro-batch.
        micro: usize,
    },
    /// Forward: input of the layer R, its output W; if the level keeps intermediates, they W.
    LayerForward {
        /// Layer.
        layer: usize,
        /// Micro-batch.
        micro: usize,
        /// What is kept.
        level: Level,
    },
    /// The final norm: output of the last layer R, its norm W.
    FinalNorm {
        /// Micro-batch.
        micro: usize,
    },
    /// Logits of the tile at the front of the tile buffer: final norm's output R; if logits are kept, they W.
    TileForward {
        /// Vocabulary tile.
        tile: usize,
        /// Micro-batch.
        micro: usize,
    },
    /// Drops the tile at the front of the tile buffer.
    DropTile {
        /// Vocabulary tile.
        tile: usize,
    },
    /// Turns the running log-sum-exp of every token into the loss.
    Loss,
    /// Everything written up to here is one state.
    Commit,
    /// Gradients of a tile's logits: final norm's output R; its gradient, W for the first tile, then U; if logits are
    /// kept, they U.
    TileBackward {
        /// Vocabulary tile.
        tile: usize,
        /// Micro-batch.
        micro: usize,
    },
    /// Takes in the finished gradient of the tile at the front of the tile buffer, and drops the tile.
    TileGradient {
        /// Vocabulary tile.
        tile: usize,
    },
    /// Gradient of the final norm: output of the last layer R; gradient of the norm's output U, becomes that of its
    /// input.
    FinalNormBackward {
        /// Micro-batch.
        micro: usize,
    },
    /// The final norm's gradient is complete: its share of the global norm.
    NormGradient,
    /// Backward: input of the layer R; gradient of its output U, becomes that of its input; if the level keeps
    /// intermediates, they R.
    LayerBackward {
        /// Layer.
        layer: usize,
        /// Micro-batch.
        micro: usize,
        /// What is kept.
        level: Level,
    },
    /// The layer's gradients are complete: their share of the global norm.
    LayerGradient {
        /// Unit.
        unit: usize,
    },
    /// Begins the gradient of a chunk of the embedding, with what the head left in it if they share weights: grad R
    /// then.
    ChunkBegin {
        /// Chunk.
        chunk: usize,
    },
    /// Adds the gradients of tokens whose embedding is in the chunk: gradient of layer 0's input R.
    Scatter {
        /// Chunk in the buffer.
        chunk: usize,
        /// Micro-batch.
        micro: usize,
    },
    /// Keeps gradients for their update: grad W.
    Keep {
        /// Unit.
        unit: usize,
        /// Chunk.
        chunk: usize,
        /// Where they are.
        from: Gradients,
        /// More will be added to them in this sweep.
        partial: bool,
    },
    /// Updates the weights with complete gradients: hi, lo, m, v U.
    Apply {
        /// Unit.
        unit: usize,
        /// Chunk.
        chunk: usize,
        /// Where the gradients are.
        from: Gradients,
    },
}
