//! Learning rate of a step.
use crate::settings::{LrSchedule, Warmup};
/// Peak rate, shape, warm-up, floor, length of the run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LearningRate { pub peak: f64, pub schedule: LrSchedule, pub warmup_steps: u64, pub min_ratio: f64, pub total_steps: u64 }
impl LearningRate {
    pub fn new(peak: f64, schedule: LrSchedule, warmup: Warmup, min_ratio: f64, total_steps: u64) -> LearningRate { let _ = (peak, schedule, warmup, min_ratio, total_steps); todo!() }
    /// Rate used in optimizer step `step`, counted from 1.
    pub fn at(&self, step: u64) -> f64 { let _ = step; todo!() }
}
