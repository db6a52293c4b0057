//! A golden model trained for some steps, by its bits: what must not depend on where bytes live.

use crate::case::Case;
use crate::rig::{Job, Rig, Setup};
use crate::tensors::Tensors;
use mt_trainer::error::Result;
use mt_trainer::model::ModelConfig;
use mt_trainer::step::Hyper;
use std::ops::RangeInclusive;

/// Bits of every loss and norm, and the weights at the end.
#[derive(Default)]
pub struct Trace {
    /// Of each step.
    pub losses: Vec<u64>,
    /// Of each step.
    pub norms: Vec<Option<u64>>,
    /// After the last update.
    pub weights: Tensors,
}

impl Trace {
    /// Of so many steps from the case's start.
    ///
    /// # Errors
    /// The trainer's.
    pub fn of(case: &Case, job: &Job, setup: &Setup, steps: u64) -> Result<Trace> {
        let mut rig = job.begin(setup)?;
        let mut trace = Trace::default();
        trace.go_on(&mut rig, case, 1..=steps)?;
        trace.end(&mut rig)?;
        Ok(trace)
    }

    /// Trains these steps.
    ///
    /// # Errors
    /// The trainer's.
    pub fn go_on(&mut self, rig: &mut Rig, case: &Case, steps: RangeInclusive<u64>) -> Result<()> {
        let (rates, batch) = (case.learning_rate(), case.batch());
        for step in steps {
            let outcome = rig.step(&batch, rates.at(step))?;
            self.losses.push(outcome.loss.to_bits());
            self.norms.push(outcome.grad_norm.map(f64::to_bits));
        }
        Ok(())
    }

    /// Applies the last update and reads the weights.
    ///
    /// # Errors
    /// The trainer's.
    pub fn end(&mut self, rig: &mut Rig) -> Result<()> {
        rig.flush(None)?;
        self.weights = rig.weights()?;
        Ok(())
    }

    /// What differs first, if anything does.
    pub fn difference(&self, other: &Trace) -> Option<&'static str> {
        match () {
            () if self.losses != other.losses => Some("losses"),
            () if self.norms != other.norms => Some("norms"),
            () if self.weights.bits() != other.weights.bits() => Some("weights"),
            () => None,
        }
    }
}

/// The case in a folder, as a job with this limit of the gradient's norm.
pub fn job(case: &Case, clip: Option<f64>) -> Job {
    let config = ModelConfig::read(&case.dir.join("config.json")).expect("the case is of a family that is read");
    let hyper = Hyper { betas: (0.9, 0.95), eps: 1e-8, weight_decay: 0.1, max_grad_norm: clip };
    let micro_rows = case.micro.iter().map(|m| m.batch.rows).collect();
    Job { config, dir: case.dir.clone(), micro_rows, seq: case.micro[0].batch.seq, hyper }
}
