//! What all programs are written from, and the small ones.

use super::cost::Cost;
use super::{Activations, Instruction, Kept, Operation, Program, Sink, UpdateOn, ahead::Ahead, behind::Behind};
use crate::block::Dims;
use crate::head::Tiles;
use crate::layout::{Chunk, HI, LO, Layout, M, V};
use crate::model::{Manifest, ModelConfig};
use crate::profile::Rates;
use crate::target::{Gpu, Target};
use crate::vram;
use mt_engine::{Mode, Resource, Run};

/// A model, its shapes and its layout.
#[derive(Clone, Copy)]
pub struct Description<'a> {
    /// The model.
    pub config: &'a ModelConfig,
    /// Its tensors.
    pub manifest: &'a Manifest,
    /// Their pages.
    pub layout: &'a Layout,
    /// Runs of activations.
    pub activations: &'a Activations,
    /// Vocabulary tiles of the head.
    pub tiles: &'a Tiles,
    /// Rows of each micro-batch.
    pub micro_rows: &'a [usize],
    /// Tokens of a row.
    pub seq: usize,
    /// What is kept between forward and backward.
    pub kept: &'a Kept,
    /// Updates run in backward.
    pub fused_backward: bool,
    /// The GPU that computes; None: the processor does.
    pub gpu: Option<OnGpu<'a>>,
    /// What times are estimated with.
    pub rates: &'a Rates,
}

/// How a program uses a GPU.
#[derive(Clone, Copy, Debug)]
pub struct OnGpu<'a> {
    /// Which, and its precision.
    pub gpu: Gpu,
    /// Where each unit's update runs.
    pub updates: &'a [UpdateOn],
    /// Elements by which updates on the processor may be ahead of what the GPU takes from them.
    pub ahead: usize,
    /// Layers whose gradients may wait at once for the processor's updates in backward; at least 2.
    pub turns: usize,
}

/// Writes one program.
pub struct Writer<'a> {
    pub(super) it: Description<'a>,
    pub(super) chunks: Vec<Vec<Chunk>>,
    /// Times on the target.
    pub(super) cost: Cost<'a>,
    /// Times on the processor.
    host: Cost<'a>,
    ahead: Ahead,
    pub(super) behind: Behind,
    device_bytes: u64,
    program: Program,
}

impl<'a> Writer<'a> {
    fn new(it: Description<'a>) -> Writer<'a> {
        let units = 0..it.manifest.units.len();
        let chunks: Vec<Vec<Chunk>> = units.map(|unit| it.layout.chunks(it.manifest, unit)).collect();
        let cost = |target| Cost::new(it.rates, target, Dims::new(it.config), it.seq);
        let device_bytes = vram::workspace_bytes(&it);
        let ahead = Ahead::new(&chunks, &it);
        Writer {
            cost: cost(it.target()),
            host: cost(Target::Cpu),
            it,
            chunks,
            ahead,
            behind: Behind::default(),
            device_bytes,
            program: Program::default(),
        }
    }

    /// Forward and backward of a step, with the pending update or its own.
    pub fn steady(it: Description<'a>) -> Program {
        let mut writer = Writer::new(it);
        if it.fused_backward {
            writer.push(Operation::Commit, Vec::new(), 0.0);
        }
        writer.forward(!it.fused_backward);
        writer.push(Operation::Loss, Vec::new(), 0.0);
        if !it.fused_backward {
            writer.push(Operation::Commit, Vec::new(), 0.0);
        }
        writer.backward();
        writer.program
    }

    /// The pending update alone.
    pub fn update_only(it: Description<'a>) -> Program {
        let mut writer = Writer::new(it);
        for unit in 0..writer.chunks.len() {
            for chunk in 0..writer.chunks[unit].len() {
                match writer.it.updates_on_host(unit) {
                    true => writer.update_on_host(unit, chunk),
                    false => writer.update(unit, chunk, Sink::Nowhere),
                }
            }
        }
        writer.program
    }

    /// Forward of one micro-batch, for its logits.
    pub fn inference(it: Description<'a>) -> Program {
        let mut writer = Writer::new(Description { micro_rows: &it.micro_rows[..1], ..it });
        writer.forward(false);
        writer.program
    }

    /// The head's unit.
    pub(super) fn head(&self) -> usize {
        self.chunks.len() - 1
    }

    /// The unit that holds the head's matrix, and the elements before the matrix.
    pub(super) fn matrix(&self) -> (usize, usize) {
        if self.it.config.tied { (0, 0) } else { (self.head(), self.it.config.hidden) }
    }

    pub(super) fn micros(&self) -> std::ops::Range<usize> {
        0..self.it.micro_rows.len()
    }

    pub(super) fn tokens(&self, micro: usize) -> usize {
        self.it.micro_rows[micro] * self.it.seq
    }

    /// Appends an operation of the target that is estimated to take `seconds` of computation.
    pub(super) fn push(&mut self, operation: Operation, accesses: Vec<(Run, Mode)>, seconds: f64) {
        let (on, device_bytes) = (self.it.target().resource(), self.device_bytes);
        self.program.instructions.push(Instruction { operation, accesses, on, ns: Cost::ns(seconds), device_bytes });
    }

    /// Joins the weights of a chunk, after the pending update if there is one in this program.
    pub(super) fn weights(&mut self, unit: usize, chunk: usize, into: Sink, update: bool) {
        if update {
            for (unit, chunk) in self.ahead.before(unit, chunk) {
                self.update_on_host(unit, chunk);
            }
            if !self.it.updates_on_host(unit) {
                return self.update(unit, chunk, into);
            }
        }
        let at = self.chunks[unit][chunk];
        let accesses = self.it.target().weight_planes().iter().map(|plane| (at.run(*plane), Mode::Read)).collect();
        self.push(Operation::Join { unit, chunk, into }, accesses, self.cost.join(at.len));
    }

    /// The pending update of a chunk on the target.
    fn update(&mut self, unit: usize, chunk: usize, into: Sink) {
        let at = self.chunks[unit][chunk];
        self.push(Operation::Update { unit, chunk, into }, self.pending(unit, at), self.cost.update(at.len));
    }

    /// The update of a chunk on the processor, for a GPU, which takes the weights from there.
    pub(super) fn update_on_host(&mut self, unit: usize, chunk: usize) {
        let at = self.chunks[unit][chunk];
        let (on, ns) = (Resource::HostCompute, Cost::ns(self.host.update(at.len)));
        let operation = Operation::Update { unit, chunk, into: Sink::Nowhere };
        let accesses = self.pending(unit, at);
        self.program.instructions.push(Instruction { operation, accesses, on, ns, device_bytes: 0 });
    }

    /// A chunk's gradient, and all four planes.
    fn pending(&self, unit: usize, at: Chunk) -> Vec<(Run, Mode)> {
        std::iter::once((self.it.gradients(unit, at), Mode::Read)).chain(state(at)).collect()
    }
}

impl Description<'_> {
    /// Whether a unit's update runs on the processor while a GPU computes the rest.
    pub(super) fn updates_on_host(&self, unit: usize) -> bool {
        self.gpu.is_some_and(|on| on.updates[unit] == UpdateOn::Cpu)
    }

    /// What computes.
    pub fn target(&self) -> Target {
        self.gpu.map_or(Target::Cpu, |on| Target::Gpu(on.gpu))
    }
}

/// All four planes of a chunk, to be updated.
pub(super) fn state(chunk: Chunk) -> impl Iterator<Item = (Run, Mode)> {
    [HI, LO, M, V].into_iter().map(move |plane| (chunk.run(plane), Mode::Update))
}
