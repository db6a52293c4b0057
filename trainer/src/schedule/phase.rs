//! The phases of a step, by which its time is told.

use super::{Gradients, Operation, Program, Sink};
use serde::Serialize;

/// A part of a step.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Embedding and layers, forward.
    Forward,
    /// The head in both directions, and the loss.
    Loss,
    /// Layers and embedding, backward.
    Backward,
    /// Updates of the state, wherever they run.
    Update,
}

impl Phase {
    /// All of them, in their order.
    pub const ALL: [Phase; 4] = [Phase::Forward, Phase::Loss, Phase::Backward, Phase::Update];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Forward => "forward",
            Phase::Loss => "loss",
            Phase::Backward => "backward",
            Phase::Update => "update",
        }
    }
}

impl Program {
    /// The phase of each instruction.
    pub fn phases(&self) -> Vec<Phase> {
        let mut is_forward = true;
        let phase = |instruction: &super::Instruction| {
            is_forward &= instruction.operation != Operation::Loss;
            match instruction.operation {
                Operation::Update { .. } | Operation::Apply { .. } => Phase::Update,
                Operation::Join { into: Sink::Head | Sink::Tile, .. }
                | Operation::FinalNorm { .. }
                | Operation::TileForward { .. }
                | Operation::DropTile { .. }
                | Operation::Loss
                | Operation::TileBackward { .. }
                | Operation::TileGradient { .. }
                | Operation::FinalNormBackward { .. }
                | Operation::NormGradient
                | Operation::Keep { from: Gradients::Tile | Gradients::Norm, .. } => Phase::Loss,
                _ if is_forward => Phase::Forward,
                _ => Phase::Backward,
            }
        };
        self.instructions.iter().map(phase).collect()
    }
}
