//! The trainer: an engine, a model and the plans of its sweeps.

use super::executor::{Executor, Task, Update};
use super::model::Model;
use super::on_gpu::OnGpu;
use super::watch::Watch;
use super::{Hyper, Outcome, Prepared, Processors, Shapes};
use crate::batch::{Batch, MicroBatch};
use crate::error::{Error, Result};
use crate::layout::{M, V};
use crate::model::{Manifest, ModelConfig};
use crate::schedule::{LABEL_ONCE, Phase, Program};
use crate::workspace::Workspace;
use mt_engine::{Engine, Mode, Plan, RegionId, Run, Schedule};
use mt_kernels::{Cpu, adamw};
use std::sync::Arc;

/// A gradient that waits in the store for its update.
#[derive(Clone, Copy, Debug)]
struct Pending {
    lr: f64,
    grad_scale: f64,
}

/// Trains a model step after step.
pub struct Trainer {
    pub(super) engine: Engine,
    pub(super) model: Model,
    pub(super) prepared: Prepared,
    pub(super) shapes: Shapes,
    pub(super) cpu: Cpu,
    pub(super) gpu: Option<OnGpu>,
    pub(super) workspace: Workspace,
    /// Phases of the instructions of the steady program and of the update.
    pub(super) steady_phases: Vec<Phase>,
    pub(super) update_phases: Vec<Phase>,
    hyper: Hyper,
    completed: u64,
    pending: Option<Pending>,
    /// Why the state in the store is not that of any step.
    broken: Option<String>,
    /// Program and plan of the last inference.
    pub(super) inference: Option<(Program, Arc<Plan>)>,
}

impl Trainer {
    /// A trainer over a store that holds the state after `completed_steps` steps. Adopts the placement that was
    /// prepared.
    ///
    /// # Errors
    /// `Input` if clipping is asked for with the fused-backward update; the engine's; `Gpu`.
    ///
    /// # Panics
    /// If the steps were prepared for a GPU and none is given.
    #[allow(clippy::too_many_arguments)]
    pub fn new(
        engine: Engine,
        config: &ModelConfig,
        manifest: &Manifest,
        prepared: Prepared,
        shapes: &Shapes,
        processors: impl Into<Processors>,
        hyper: Hyper,
        completed_steps: u64,
    ) -> Result<Trainer> {
        let Processors { cpu, gpu } = processors.into();
        if prepared.scheme.options.fused_backward
            && let Some(limit) = hyper.max_grad_norm
        {
            let expected = "off with the fused-backward update, which comes before the norm is known";
            return Err(Error::input("settings", "max_grad_norm", expected, limit.to_string()));
        }
        engine.place(prepared.residency(), prepared.spilled())?;
        let description = prepared.scheme.describe(config, manifest, shapes, &prepared.layout);
        let workspace = Workspace::new(&description);
        let instructions = prepared.steady_program.on_gpu().max(prepared.update_program.on_gpu());
        let on_gpu = |target| {
            let gpu = gpu.as_ref().expect("a GPU for steps on one");
            OnGpu::new(gpu, &description, target, instructions)
        };
        let gpu = prepared.scheme.options.target.gpu().map(on_gpu).transpose()?;
        let model = Model::new(config.clone(), manifest.clone(), &prepared.layout, prepared.scheme.tiles);
        let (steady_phases, update_phases) = (prepared.steady_program.phases(), prepared.update_program.phases());
        let trainer = Trainer {
            engine,
            model,
            prepared,
            steady_phases,
            update_phases,
            shapes: shapes.clone(),
            cpu,
            gpu,
            workspace,
            hyper,
            completed: completed_steps,
            pending: None,
            broken: None,
            inference: None,
        };
        if !trainer.prepared.scheme.options.durable {
            trainer.write_zeros(&[M, V])?;
        }
        Ok(trainer)
    }

    /// Moments begin as zeros. Regions that commit read as zeros until they are written; scratch regions must be
    /// written before they are read.
    fn write_zeros(&self, regions: &[RegionId]) -> Result<()> {
        let runs: Vec<Run> = self
            .model
            .chunks
            .iter()
            .flatten()
            .flat_map(|chunk| regions.iter().map(|region| chunk.run(*region)))
            .collect();
        let mut schedule = Schedule::default();
        for run in &runs {
            schedule.access(*run, Mode::Write, 0);
        }
        let plan = self.prepared.plan_another(schedule)?;
        let sweep = self.engine.sweep(&plan, None)?;
        for run in runs {
            sweep.host_mut(run)?.fill(0);
        }
        Ok(sweep.finish()?)
    }

    /// Forward and backward of the next step, with the pending update of the step before. With `commit`, the state
    /// after the step before is committed with this note, durable when the step ends or soon after.
    ///
    /// # Errors
    /// `Numeric` for a loss or gradient that is not finite (with fused-forward nothing was updated with it, and
    /// [`flush`](Trainer::flush) can still commit the state of the steps completed) or for an update that cannot be
    /// represented (then only the last commit stands); `Input` for a batch of another shape; the engine's.
    pub fn step(&mut self, batch: &Batch, lr: f64, commit: Option<&[u8]>) -> Result<Outcome> {
        self.check_whole()?;
        check_batch(batch, &self.shapes, self.model.config.vocab)?;
        let targets = batch.target_count();
        let number = self.completed + 1;
        let own = self.prepared.scheme.options.fused_backward.then(|| self.update(number, lr, 1.0));
        let pending = self.pending.take().map(|p| self.update(self.completed, p.lr, p.grad_scale));
        let task = Task { micro: &batch.micro, pending, own, targets, note: commit, logits: None };

        let sweep = self.engine.sweep(&self.prepared.steady, Some(&self.prepared.steady))?;
        let mut executor = Executor::new(&self.model, &self.cpu, self.gpu.as_mut(), &mut self.workspace, task);
        let mut watch = Watch::new(&self.steady_phases, self.engine.recorder(), 0);
        let run = executor.run(&self.prepared.steady_program, &sweep, &mut watch);
        let (times, gpu_times) = (watch.times, executor.gpu_times);
        let (loss, total) = (executor.loss, Model::total(&executor.sums));
        if let Err(error) = run.and_then(|()| Ok(sweep.finish()?)) {
            // The sweep was given up somewhere between its first and its last update.
            self.broken = Some(error.to_string());
            return Err(error);
        }
        let norm = total.sqrt();
        if !loss.is_finite() || !norm.is_finite() {
            return Err(self.not_finite(number, loss, norm));
        }
        if own.is_none() {
            let limit = self.hyper.max_grad_norm;
            let grad_scale = limit.map_or(1.0, |limit| (limit / (norm + 1e-6)).min(1.0));
            self.pending = Some(Pending { lr, grad_scale });
        }
        self.completed = number;
        Ok(Outcome { loss, grad_norm: Some(norm), targets, tokens: batch.token_count(), times, gpu_times })
    }

    fn not_finite(&mut self, step: u64, loss: f64, norm: f64) -> Error {
        let fused_backward = self.prepared.scheme.options.fused_backward;
        let what =
            if loss.is_finite() { format!("the gradient norm is {norm}") } else { format!("the loss is {loss}") };
        let stands = if fused_backward { "some weights were updated with it" } else { "nothing was updated with it" };
        let error = Error::Numeric { step, what: format!("{what}; {stands}") };
        if fused_backward {
            self.broken = Some(error.to_string());
        }
        error
    }

    /// Applies the pending update, if there is one; then, with a note, commits and waits until that is durable.
    ///
    /// # Errors
    /// `Numeric` as in [`step`](Trainer::step); the engine's.
    pub fn flush(&mut self, commit: Option<&[u8]>) -> Result<()> {
        self.check_whole()?;
        if let Some(pending) = self.pending.take() {
            let update = self.update(self.completed, pending.lr, pending.grad_scale);
            let task = Task { micro: &[], pending: Some(update), own: None, targets: 0, note: None, logits: None };
            let plan = self.prepared.update_only.as_ref().expect("pending updates come with their plan");
            let sweep = self.engine.sweep(plan, None)?;
            let mut executor = Executor::new(&self.model, &self.cpu, self.gpu.as_mut(), &mut self.workspace, task);
            let mut watch = Watch::new(&self.update_phases, self.engine.recorder(), LABEL_ONCE);
            let run = executor.run(&self.prepared.update_program, &sweep, &mut watch);
            if let Err(error) = run.and_then(|()| Ok(sweep.finish()?)) {
                self.broken = Some(error.to_string());
                return Err(error);
            }
        }
        if let Some(note) = commit {
            self.engine.commit(note)?;
        }
        Ok(())
    }

    fn update(&self, step: u64, lr: f64, grad_scale: f64) -> Update {
        let Hyper { betas, eps, weight_decay, .. } = self.hyper;
        Update { step, scalars: adamw::Step::new(lr, betas, eps, weight_decay, step, grad_scale) }
    }

    /// Refuses to go on, and to commit, after a sweep that was given up.
    pub(super) fn check_whole(&self) -> Result<()> {
        match &self.broken {
            None => Ok(()),
            Some(why) => Err(Error::Numeric {
                step: self.completed + 1,
                what: format!("the state in the store is that of no step, since an earlier call failed ({why})"),
            }),
        }
    }

    /// Whether an update waits for the next step or a flush.
    pub(super) fn is_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// The engine, for its counters and for sweeps of others between steps.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Gives the engine back. A pending update is lost.
    pub fn into_engine(self) -> Engine {
        self.engine
    }

    /// Steps whose batch was trained on; the update of the last may be pending.
    pub fn completed_steps(&self) -> u64 {
        self.completed
    }
}

fn check_batch(batch: &Batch, shapes: &Shapes, vocab: usize) -> Result<()> {
    let rows: Vec<usize> = batch.micro.iter().map(|micro| micro.rows).collect();
    if rows != shapes.micro_rows {
        return Err(Error::input("batch", "rows", format!("{:?}", shapes.micro_rows), format!("{rows:?}")));
    }
    for micro in &batch.micro {
        check_micro(micro, shapes.seq, vocab)?;
    }
    if batch.target_count() == 0 {
        return Err(Error::input("batch", "targets", "at least one", "none"));
    }
    Ok(())
}

/// What the kernels take for granted.
pub(super) fn check_micro(micro: &MicroBatch, seq: usize, vocab: usize) -> Result<()> {
    let tokens = micro.rows * micro.seq;
    let lengths = [&micro.ids, &micro.targets, &micro.positions, &micro.document].map(|values| values.len());
    if micro.seq != seq || lengths != [tokens; 4] {
        let found = format!("{} with lists of {lengths:?}", micro.seq);
        return Err(Error::input("batch", "tokens of a row", format!("{seq}"), found));
    }
    let targets = micro.targets.iter().filter(|&&t| t != crate::batch::NO_TARGET);
    if let Some(id) = micro.ids.iter().chain(targets).find(|&&id| id as usize >= vocab) {
        return Err(Error::input("batch", "id", format!("less than the vocabulary of {vocab}"), id.to_string()));
    }
    let places = micro.positions.iter().zip(&micro.document).enumerate();
    let is_sound = |(token, (&position, &start)): (usize, (&u32, &u32))| {
        start as usize <= token % seq && (position as usize) < tokens
    };
    if !places.clone().all(is_sound) {
        return Err(Error::input("batch", "positions", "within the row", "others"));
    }
    Ok(())
}
