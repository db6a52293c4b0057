//! Learning rate of a step: a warm-up, then constant, linear or cosine down to a floor.
//!
//! Steps are optimizer steps, counted from 1; how many micro-batches a step has plays no part. With peak p, warm-up w,
//! floor ratio m, total n and x = (t - w) / (n - w), held at 1 from step n on:
//!
//! | step t | rate |
//! | --- | --- |
//! | t <= w | p * t / w (never zero: step 1 has p / w) |
//! | t > w, constant | p |
//! | t > w, linear | p * (m + (1 - m) * (1 - x)) |
//! | t > w, cosine | p * (m + (1 - m) * (1 + cos(pi * x)) / 2) |
//! | t >= n, linear and cosine | p * m, for as long as the run goes on |
//!
//! Without a warm-up (w = 0) step 1 is the first of the decay. A warm-up of n steps or more is cut to n: the rate rises
//! during the whole run and has its peak at the last step. A warm-up in percent is of n and is rounded up.
//!
//! Example: peak 1, warm-up 4, total 20, cosine to 0.1:
//!
//! | t | 1 | 2 | 3 | 4 | 5 | 8 | 12 | 16 | 19 | 20 | 21, ... |
//! | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
//! | rate | 0.25 | 0.5 | 0.75 | 1 | 0.9914 | 0.8682 | 0.55 | 0.2318 | 0.1086 | 0.1 | 0.1 |
//!
//! A rate depends on the step alone, so a resumed run goes on as if it had never stopped. Another total is another
//! schedule, unless the rates do not depend on it: [`LearningRate::same_rates`] says which.

use crate::settings::{LrSchedule, Warmup};
use std::f64::consts::PI;

/// Peak rate, shape, warm-up, floor, length of the run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LearningRate {
    /// The highest rate.
    pub peak: f64,
    /// Shape after the warm-up.
    pub schedule: LrSchedule,
    /// Steps of the warm-up, at most `total_steps`.
    pub warmup_steps: u64,
    /// The floor as a share of the peak, from 0 to 1.
    pub min_ratio: f64,
    /// Steps of the run.
    pub total_steps: u64,
}

impl LearningRate {
    /// Resolves a warm-up given in percent, and cuts it to the run's length.
    pub fn new(peak: f64, schedule: LrSchedule, warmup: Warmup, min_ratio: f64, total_steps: u64) -> LearningRate {
        let steps = match warmup {
            Warmup::Steps(steps) => steps,
            // The product of a decimal share may land a rounding error above a whole number; that is not one step more.
            Warmup::Percent(percent) => (percent * total_steps as f64 / 100.0 - 1e-9).ceil() as u64,
        };
        LearningRate { peak, schedule, warmup_steps: steps.min(total_steps), min_ratio, total_steps }
    }

    /// Rate used in optimizer step `step`, counted from 1.
    pub fn at(&self, step: u64) -> f64 {
        assert!(step > 0, "steps count from 1");
        let (w, n) = (self.warmup_steps, self.total_steps);
        if step <= w {
            return self.peak * step as f64 / w as f64;
        }
        let x = if step >= n { 1.0 } else { (step - w) as f64 / (n - w) as f64 };
        let share = match self.schedule {
            LrSchedule::Constant => return self.peak,
            LrSchedule::Linear => 1.0 - x,
            LrSchedule::Cosine => (1.0 + (PI * x).cos()) / 2.0,
        };
        self.peak * (self.min_ratio + (1.0 - self.min_ratio) * share)
    }

    /// Whether both give the same rate in every step, as they do with other totals if the shape is constant and the
    /// warm-up equal.
    pub fn same_rates(&self, other: &LearningRate) -> bool {
        let flat = |l: &LearningRate| l.schedule == LrSchedule::Constant || l.min_ratio == 1.0;
        let rising = self.peak == other.peak && self.warmup_steps == other.warmup_steps;
        rising && (self == other || flat(self) && flat(other))
    }
}

#[cfg(test)]
mod tests;
