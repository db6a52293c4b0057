//! What one step trains on, in the form that the kernels take.

pub use mt_kernels::cross_entropy::NO_TARGET;

/// Rows that pass through a layer together. T = rows * seq tokens, row after row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MicroBatch {
    /// Number of rows.
    pub rows: usize,
    /// Tokens of a row.
    pub seq: usize,
    /// Token ids \[T].
    pub ids: Vec<u32>,
    /// What each position predicts \[T]: already shifted (`targets[t]` is scored against the logits at t), or
    /// `NO_TARGET`.
    pub targets: Vec<u32>,
    /// Position of each token within its document \[T].
    pub positions: Vec<u32>,
    /// Index within the row of the first token of each token's document \[T]; attention does not look before it.
    pub document: Vec<u32>,
}

impl MicroBatch {
    /// Number of targets.
    pub fn target_count(&self) -> u64 {
        self.targets.iter().filter(|&&t| t != NO_TARGET).count() as u64
    }
}

/// The micro-batches of one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// In order; all of the same shape except that the last may have fewer rows.
    pub micro: Vec<MicroBatch>,
}

impl Batch {
    /// Targets of the step: the loss is the sum over all of them divided by this.
    pub fn target_count(&self) -> u64 {
        self.micro.iter().map(MicroBatch::target_count).sum()
    }

    /// Tokens of the step.
    pub fn token_count(&self) -> u64 {
        self.micro.iter().map(|m| m.ids.len() as u64).sum()
    }
}
