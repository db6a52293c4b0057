//! What a step is computed on, and in which precision. A seam: programs, sizes and times are written for a target;
//! nothing else asks whether there is a GPU. Masters, moments, gradients and the update are f32 on every target.

pub use crate::gpu::Precision;

use crate::layout::{HI, LO};
use mt_engine::{DeviceId, RegionId, Resource, Tier};

impl Precision {
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

    /// Bytes of a weight or an activation.
    pub fn element_bytes(self) -> usize {
        self.gpu().map_or(size_of::<f32>(), |gpu| gpu.precision.bytes())
    }

    /// The planes that products' weights are joined from: bf16 reads `hi` as it is.
    pub fn weight_planes(self) -> &'static [RegionId] {
        match self.gpu() {
            Some(gpu) if !gpu.precision.reads_both_planes() => &[HI],
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
