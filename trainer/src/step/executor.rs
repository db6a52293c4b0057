//! Walks a program: takes the leases of each instruction, computes, gives them back.

use super::beside::{Beside, Job, Means};
use super::laps::GpuTimes;
use super::leases::Leases;
use super::model::Model;
use super::on_gpu::{OnGpu, Turn};
use super::state::not_representable;
use super::watch::Watch;
use crate::batch::MicroBatch;
use crate::error::{Error, Result};
use crate::gpu::Refused;
use crate::schedule::{Instruction, Operation, Program, Sink};
use crate::workspace::Workspace;
use mt_engine::{Resource, Sweep};
use mt_kernels::{Cpu, adamw};
use std::time::Duration;

/// An optimizer update: the step it belongs to, and its scalars.
#[derive(Clone, Copy, Debug)]
pub(super) struct Update {
    pub(super) step: u64,
    pub(super) scalars: adamw::Step,
}

/// What the program is executed for.
pub(super) struct Task<'t> {
    /// Micro-batches; empty for the update alone.
    pub(super) micro: &'t [MicroBatch],
    /// The update of the step before, which `Update` operations apply; None: they pass over it.
    pub(super) pending: Option<Update>,
    /// The update of the step itself (fused-backward), which `Apply` operations apply, and `Update` operations beside a
    /// GPU.
    pub(super) own: Option<Update>,
    /// Targets of the step.
    pub(super) targets: u64,
    /// Note for the commit mark.
    pub(super) note: Option<&'t [u8]>,
    /// Where the logits of the only micro-batch go; then no loss is computed.
    pub(super) logits: Option<&'t mut [f32]>,
}

impl Task<'_> {
    /// What its program applies: the pending update, or its own.
    pub(super) fn update(&self) -> Option<Update> {
        self.pending.or(self.own)
    }
}

/// The state of one execution.
pub(super) struct Executor<'e> {
    pub(super) model: &'e Model,
    pub(super) cpu: &'e Cpu,
    /// What computes the instructions of a GPU.
    gpu: Option<&'e mut OnGpu>,
    pub(super) workspace: &'e mut Workspace,
    pub(super) task: Task<'e>,
    /// Sum of squares of each unit's gradient.
    pub(super) sums: Vec<f64>,
    /// Sum over the targets, then the mean.
    pub(super) loss: f64,
    /// First element of the matrix' unit whose gradient is in the buffer of the tiles' gradients.
    pub(super) front: usize,
    /// Spent by the instruction at hand on what forward had computed and did not keep.
    pub(super) again: Duration,
    /// Where the time went on a GPU.
    pub(super) gpu_times: Option<GpuTimes>,
}

impl<'e> Executor<'e> {
    pub(super) fn new(
        model: &'e Model,
        cpu: &'e Cpu,
        gpu: Option<&'e mut OnGpu>,
        workspace: &'e mut Workspace,
        task: Task<'e>,
    ) -> Executor<'e> {
        workspace.reset();
        let sums = vec![0.0; model.chunks.len()];
        let front = if model.config.tied { 0 } else { model.config.hidden };
        Executor { model, cpu, gpu, workspace, task, sums, loss: 0.0, front, again: Duration::ZERO, gpu_times: None }
    }

    /// Executes the whole program.
    pub(super) fn run<'s>(&mut self, program: &Program, sweep: &'s Sweep<'s>, watch: &mut Watch<'_>) -> Result<()> {
        let most = program.instructions.iter().filter(|it| is_update_alone(it)).count();
        let Some(update) = self.task.update().filter(|_| self.gpu.is_some() && most > 0) else {
            return self.walk(program, sweep, watch, None);
        };
        let means = Means { model: self.model, cpu: self.cpu, update, recorder: watch.recorder() };
        std::thread::scope(|scope| {
            let mut beside = Beside::start(scope, means, most)?;
            self.walk(program, sweep, watch, Some(&mut beside))
        })
    }

    /// Goes through the instructions. With `beside` the processor's updates are handed over.
    fn walk<'s>(
        &mut self,
        program: &Program,
        sweep: &'s Sweep<'s>,
        watch: &mut Watch<'_>,
        mut beside: Option<&mut Beside<'s>>,
    ) -> Result<()> {
        if let Some(gpu) = &mut self.gpu {
            gpu.begin(&self.task)?;
        }
        for (index, instruction) in program.instructions.iter().enumerate() {
            let begun = watch.begin(sweep);
            match (instruction.operation, instruction.on, &mut beside) {
                (Operation::Commit, ..) => {
                    if let Some(note) = self.task.note {
                        updated(&mut beside, watch)?;
                        self.check_updates()?;
                        sweep.commit(note)?;
                        watch.passed_mark(&begun);
                    }
                    continue;
                }
                (Operation::Update { unit, chunk, .. }, _, Some(beside)) if is_update_alone(instruction) => {
                    beside.hand(Job::take(watch.label(index), (unit, chunk), &instruction.accesses, sweep)?)?;
                    watch.handed_over(&begun, sweep);
                    if let Some(gpu) = &mut self.gpu {
                        gpu.handed_over(begun.waited_ns(sweep));
                    }
                    continue;
                }
                (operation, Resource::HostCompute, _) => {
                    self.execute(operation, Leases::new(sweep, &instruction.accesses))?;
                    if let Some(gpu) = &mut self.gpu {
                        gpu.beside(&begun);
                    }
                }
                (operation, Resource::Compute(_), beside) => {
                    // Weights that an update makes; room that gradients leave with their update.
                    let is_behind = match (operation, beside) {
                        (Operation::Join { .. } | Operation::Keep { .. }, Some(beside)) => {
                            beside.listen()?;
                            beside.uses(instruction.accesses[0].0)
                        }
                        _ => false,
                    };
                    let gpu = self.gpu.as_mut().expect("a program for a GPU is executed with one");
                    gpu.execute(Turn { sweep, watch, begun: &begun, index, is_behind }, instruction)?;
                }
            }
            watch.end(index, &begun, sweep, std::mem::take(&mut self.again));
        }
        let begun = watch.begin(sweep);
        updated(&mut beside, watch)?;
        if let Some(gpu) = &mut self.gpu {
            gpu.beside(&begun);
        }
        self.check_updates()?;
        if let Some(gpu) = &mut self.gpu {
            if let Some(found) = gpu.finish(&mut self.task)? {
                (self.loss, self.sums) = (found.loss, found.squares);
            }
            self.gpu_times = gpu.times(watch)?;
        }
        Ok(())
    }

    /// Refuses what updates on a GPU gave and cannot be represented; the processor's refuse it themselves.
    fn check_updates(&mut self) -> Result<()> {
        let (Some(gpu), Some(update)) = (&mut self.gpu, self.task.update()) else { return Ok(()) };
        match gpu.refused()? {
            None => Ok(()),
            Some(Refused { unit, element }) => {
                let tensors = &self.model.manifest.units[unit].tensors;
                let tensor = tensors.iter().rfind(|tensor| tensor.offset <= element).expect("it is in some tensor");
                Err(not_representable(&update, tensor, element))
            }
        }
    }

    fn execute(&mut self, operation: Operation, leases: Leases<'_, '_>) -> Result<()> {
        match operation {
            Operation::Update { unit, chunk, into } => self.update(unit, chunk, into, leases),
            Operation::Join { unit, chunk, into } => self.join(unit, chunk, into, leases),
            Operation::Gather { chunk, micro } => self.gather(chunk, micro, leases),
            Operation::LayerForward { layer, micro, level } => self.layer_forward(layer, micro, level, leases),
            Operation::FinalNorm { micro } => self.final_norm(micro, leases),
            Operation::TileForward { tile, micro } => self.tile_forward(tile, micro, leases),
            Operation::DropTile { tile } => {
                self.drop_tile(tile);
                Ok(())
            }
            Operation::Loss => {
                self.finish_loss();
                Ok(())
            }
            Operation::Commit => Ok(()),
            Operation::TileBackward { tile, micro } => self.tile_backward(tile, micro, leases),
            Operation::TileGradient { tile } => {
                self.tile_gradient(tile);
                Ok(())
            }
            Operation::FinalNormBackward { micro } => self.final_norm_backward(micro, leases),
            Operation::NormGradient => {
                self.norm_gradient();
                Ok(())
            }
            Operation::LayerBackward { layer, micro, level } => self.layer_backward(layer, micro, level, leases),
            Operation::LayerGradient { unit } => self.layer_gradient(unit),
            Operation::ChunkBegin { chunk } => self.chunk_begin(chunk, leases),
            Operation::Scatter { chunk, micro } => self.scatter(chunk, micro, leases),
            Operation::Keep { unit, chunk, from, partial } => self.keep(unit, chunk, from, partial, leases),
            Operation::Apply { unit, chunk, from } => self.apply(unit, chunk, from, leases),
        }
    }

    /// Refuses to update with a gradient that is not finite, where the update comes before the whole norm is known.
    pub(super) fn check_sum(&self, unit: usize) -> Result<()> {
        match self.task.own {
            Some(own) if !self.sums[unit].is_finite() => {
                Err(Error::Numeric { step: own.step, what: "the gradient is not finite".to_owned() })
            }
            _ => Ok(()),
        }
    }
}

/// Whether the processor updates, and needs nothing of it for what it computes next.
fn is_update_alone(instruction: &Instruction) -> bool {
    let is_alone = matches!(instruction.operation, Operation::Update { into: Sink::Nowhere, .. });
    is_alone && instruction.on == Resource::HostCompute
}

/// Waits for the updates that were handed over.
fn updated(beside: &mut Option<&mut Beside<'_>>, watch: &mut Watch<'_>) -> Result<()> {
    if let Some(beside) = beside {
        beside.drain()?;
        watch.updated(beside.took());
    }
    Ok(())
}
