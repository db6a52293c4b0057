//! In which numbers a GPU computes.

use mt_kernels::cuda::linear;
use serde::{Deserialize, Serialize};

/// Types of weights and activations on a GPU, and how they are multiplied. Sums, norms, softmax, loss, log-sum-exps and
/// gradients of weights are f32 in each.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// Weights and activations are bf16; a weight is the high plane of its master.
    Bf16,
    /// Both are f32, of which products take 10 bits of mantissa.
    Tf32,
    /// Both are f32.
    #[default]
    Fp32,
}

impl Precision {
    /// All of them.
    pub const EACH: [Precision; 3] = [Precision::Bf16, Precision::Tf32, Precision::Fp32];

    /// Bytes of a weight or an activation.
    pub fn bytes(self) -> usize {
        match self {
            Precision::Bf16 => size_of::<u16>(),
            Precision::Tf32 | Precision::Fp32 => size_of::<f32>(),
        }
    }

    /// Whether both planes of the master weights are needed.
    pub fn reads_both_planes(self) -> bool {
        self != Precision::Bf16
    }

    /// How products of f32 operands are computed.
    pub(crate) fn products(self) -> linear::Precision {
        match self {
            Precision::Tf32 => linear::Precision::Tf32,
            // Products of bf16 operands have one way.
            Precision::Bf16 | Precision::Fp32 => linear::Precision::Fp32,
        }
    }
}
