//! Estimated times of operations: multiplications at one rate, bytes at another. Only the planner uses them.

use crate::model::ModelConfig;

/// Rates that times are estimated with.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Cost {
    /// Multiplications and additions a second.
    pub(super) operations_per_s: f64,
    /// Bytes read and written a second.
    pub(super) bytes_per_s: f64,
}

impl Cost {
    pub(super) fn operations(&self, count: f64) -> u64 {
        (count / self.operations_per_s * 1e9) as u64
    }

    pub(super) fn bytes(&self, count: usize) -> u64 {
        (count as f64 / self.bytes_per_s * 1e9) as u64
    }
}

/// Operations of one layer's forward for one micro-batch.
pub(super) fn layer(config: &ModelConfig, elements: usize, rows: usize, seq: usize) -> f64 {
    let products = 2.0 * elements as f64;
    let attention = 2.0 * (seq * config.heads * config.head_dim) as f64;
    (rows * seq) as f64 * (products + attention)
}
