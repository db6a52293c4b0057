//! What a step is computed on, and in which precision. A seam: programs, sizes and times are written for a target;
//! nothing else asks whether there is a GPU.
//!
//! Masters, moments, gradients and the update are f32 on every target. *Wide* elements are activations and what layers
//! keep of them, 2 bytes in bf16 and 4 otherwise; norms' factors, log-sum-exps and logits are f32 in any precision.

use crate::layout::{HI, LO};
use mt_engine::{DeviceId, RegionId, Resource, Tier};
use serde::{Deserialize, Serialize};

/// What matrix products compute in. Norms, softmax, loss and sums are f32 in each.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// bf16 factors, f32 sums.
    Bf16,
    /// f32 factors rounded to 10 bits of mantissa, f32 sums.
    Tf32,
    /// f32 throughout.
    #[default]
    Fp32,
}

impl Precision {
    /// All of them.
    pub const EACH: [Precision; 3] = [Precision::Bf16, Precision::Tf32, Precision::Fp32];

    /// Bytes of a weight or an activation that computes on a GPU.
    pub fn bytes(self) -> usize {
        match self {
            Precision::Bf16 => 2,
            Precision::Tf32 | Precision::Fp32 => 4,
        }
    }

    /// Its name, as flags have it.
    pub fn name(self) -> &'static str {
        match self {
            Precision::Bf16 => "bf16",
            Precision::Tf32 => "tf32",
            Precision::Fp32 => "fp32",
        }
    }
}

impl std::str::FromStr for Precision {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Precision, &'static str> {
        match text {
            "bf16" => Ok(Precision::Bf16),
            "tf32" => Ok(Precision::Tf32),
            "fp32" => Ok(Precision::Fp32),
            _ => Err("bf16, tf32 or fp32"),
        }
    }
}

/// A GPU and its precision.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gpu {
    /// Which.
    pub device: DeviceId,
    /// What its products compute in.
    pub precision: Precision,
}

/// What computes a step's layers and head.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Target {
    /// The processor, in f32.
    #[default]
    Cpu,
    /// A GPU; the processor updates.
    Gpu(Gpu),
}

impl Target {
    /// The GPU, if there is one.
    pub fn gpu(self) -> Option<Gpu> {
        match self {
            Target::Cpu => None,
            Target::Gpu(gpu) => Some(gpu),
        }
    }

    /// What computes.
    pub fn resource(self) -> Resource {
        self.gpu().map_or(Resource::HostCompute, |gpu| Resource::Compute(gpu.device))
    }

    /// Bytes of a wide element.
    pub fn wide_bytes(self) -> usize {
        match self {
            Target::Cpu => 4,
            Target::Gpu(gpu) => gpu.precision.bytes(),
        }
    }

    /// The planes that products' weights are joined from: bf16 reads `hi` as it is.
    pub fn weight_planes(self) -> &'static [RegionId] {
        match self {
            Target::Gpu(Gpu { precision: Precision::Bf16, .. }) => &[HI],
            _ => &[HI, LO],
        }
    }
}

/// Where accesses of a resource's instructions want their bytes.
pub(crate) fn tier(resource: Resource) -> Tier {
    match resource {
        Resource::HostCompute => Tier::Host,
        Resource::Compute(device) => Tier::Device(device),
    }
}
