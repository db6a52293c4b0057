//! What all programs are written from, and the small ones.

use super::cost::Cost;
use super::{Activations, Instruction, Kept, Operation, Program, Sink};
use crate::block::Dims;
use crate::head::Tiles;
use crate::layout::{Chunk, GRAD, HI, LO, Layout, M, V};
use crate::model::{Manifest, ModelConfig};
use crate::profile::Rates;
use mt_engine::{Mode, Run};

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
    /// What times are estimated with.
    pub rates: &'a Rates,
}

/// Writes one program.
pub struct Writer<'a> {
    pub(super) it: Description<'a>,
    pub(super) chunks: Vec<Vec<Chunk>>,
    pub(super) cost: Cost<'a>,
    program: Program,
}

impl<'a> Writer<'a> {
    fn new(it: Description<'a>) -> Writer<'a> {
        let units = 0..it.manifest.units.len();
        let chunks = units.map(|unit| it.layout.chunks(it.manifest, unit)).collect();
        let cost = Cost::new(it.rates, Dims::new(it.config), it.seq);
        Writer { it, chunks, cost, program: Program::default() }
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
                writer.weights(unit, chunk, Sink::Nowhere, true);
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

    /// Appends an operation that is estimated to take `seconds` of computation.
    pub(super) fn push(&mut self, operation: Operation, accesses: Vec<(Run, Mode)>, seconds: f64) {
        self.program.instructions.push(Instruction { operation, accesses, ns: Cost::ns(seconds) });
    }

    /// Joins the weights of a chunk, after the pending update if there is one in this program.
    pub(super) fn weights(&mut self, unit: usize, chunk: usize, into: Sink, update: bool) {
        let at = self.chunks[unit][chunk];
        let (operation, accesses, seconds) = if update {
            let accesses = std::iter::once((at.run(GRAD), Mode::Read)).chain(state(at)).collect();
            (Operation::Update { unit, chunk, into }, accesses, self.cost.update(at.len))
        } else {
            let accesses = [HI, LO].map(|plane| (at.run(plane), Mode::Read)).to_vec();
            (Operation::Join { unit, chunk, into }, accesses, self.cost.join(at.len))
        };
        self.push(operation, accesses, seconds);
    }
}

/// All four planes of a chunk, to be updated.
pub(super) fn state(chunk: Chunk) -> impl Iterator<Item = (Run, Mode)> {
    [HI, LO, M, V].into_iter().map(move |plane| (chunk.run(plane), Mode::Update))
}
