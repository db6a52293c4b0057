//! One optimizer step as a sweep over the store.
//!
//! [`prepare`] decides everything beforehand, without side effects: page and chunk sizes, what is kept for the
//! backward, what stays in RAM, how much memory that takes. [`Trainer`] then executes the plan, step after step.
//!
//! With the fused-forward update, a step leaves its gradients in the store and its update *pending*: it runs in the
//! forward of the next step, or in [`Trainer::flush`]. The arithmetic is the same wherever it runs.

mod beside;
mod embedding;
mod executor;
#[cfg(test)]
mod gpu_tests;
mod head;
mod inspect;
mod labels;
mod laps;
mod layers;
mod leases;
mod levels;
mod model;
mod on_gpu;
mod phase;
mod phase_gpu;
mod prepare;
mod prepared;
mod refused;
mod state;
#[cfg(test)]
mod tests;
mod trainer;
mod updates;
mod watch;

pub use crate::memory::{gpu_micro_batch_auto, micro_batch_auto};
pub use laps::GpuTimes;
pub(crate) use model::Model;
pub use phase::{Binding, PhaseTime};
pub use prepare::prepare;
pub(crate) use prepare::{STATE_BYTES, prepare_or_refuse};
pub use prepared::{Prepared, Residence};
pub use trainer::Trainer;
pub use watch::StepTimes;

use crate::profile::Rates;
use crate::settings::Recompute;
use crate::target::Target;
use mt_kernels::Cpu;
use mt_kernels::cuda::Gpu;

/// What computes.
pub struct Processors {
    /// Threads.
    pub cpu: Cpu,
    /// The GPU of the steps' target, if that is one.
    pub gpu: Option<Gpu>,
}

impl From<Cpu> for Processors {
    fn from(cpu: Cpu) -> Processors {
        Processors { cpu, gpu: None }
    }
}

/// Shapes of a step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shapes {
    /// Rows of a micro-batch; the last of a step may have fewer.
    pub rows_per_micro: usize,
    /// Rows of each micro-batch of a step.
    pub micro_rows: Vec<usize>,
    /// Tokens of a row.
    pub seq: usize,
}

/// What a step may use and how it is laid out. None of it but the target changes a result.
#[derive(Clone, PartialEq, Debug)]
pub struct Options {
    /// What computes.
    pub target: Target,
    /// What a layer keeps for its backward.
    pub recompute: Recompute,
    /// Update in the backward, without clipping, instead of in the next forward.
    pub fused_backward: bool,
    /// State survives a crash.
    pub durable: bool,
    /// There is a disk tier.
    pub has_disk: bool,
    /// Elements of a page; None: chosen by the model.
    pub page_elements: Option<usize>,
    /// Steps between commits; 0 for never.
    pub sweeps_per_commit: u32,
    /// CPU threads.
    pub threads: usize,
    /// Measured or assumed rates.
    pub rates: Rates,
    /// Largest number of runs fetched ahead; None: as far as RAM allows.
    pub prefetch_intervals_max: Option<u32>,
    /// Arena and workspace together; None: unlimited.
    pub budget_bytes: Option<u64>,
    /// VRAM for pages and workspace; without a GPU of no meaning.
    pub vram_bytes: u64,
    /// Bytes on all volumes.
    pub disk_bytes: u64,
    /// Fewer ways of using a GPU are weighed: for what is asked beside the plan itself.
    pub is_rough: bool,
    /// In an estimate: RAM leaves room to the window, as it does in the plan that is compared with.
    pub is_roomy: bool,
}

/// Constants of the optimizer.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Hyper {
    /// Decays of the moments.
    pub betas: (f64, f64),
    /// Added to the root of the second moment.
    pub eps: f64,
    /// Decoupled weight decay, on tensors of two or more dimensions.
    pub weight_decay: f64,
    /// Gradients are scaled so that their global norm is at most this; None: they are not.
    pub max_grad_norm: Option<f64>,
}

/// What a step found.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Outcome {
    /// Mean over all targets of the step.
    pub loss: f64,
    /// Global norm of the gradients before clipping.
    pub grad_norm: Option<f64>,
    /// Number of targets.
    pub targets: u64,
    /// Number of tokens.
    pub tokens: u64,
    /// Where its time went.
    pub times: StepTimes,
    /// Where it went on a GPU, if one computes.
    pub gpu_times: Option<GpuTimes>,
}
