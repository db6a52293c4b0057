//! Executes the operations of a program on a GPU.
//!
//! A step: [`Computation::begin`] uploads what the micro-batches say; [`Computation::execute`] puts an operation on the
//! queue and returns at once; [`Computation::finish`] waits for all of them and gives loss and sums of squares, which
//! stay on the device until then. Nothing is allocated after the start, and nothing in between waits for the device.
//!
//! What it is not: it takes no leases, and it knows no budget. Commits are the host's, and so are updates that the
//! program gives to it.

use super::accesses::{Accesses, Memory};
use super::input::Input;
use super::queue::Queue as Held;
use super::real::Number;
use super::workspace::{Lasting, Sizes, Workspace};
use super::{Precision, Tensors};
use crate::batch::MicroBatch;
use crate::model::UnitKind;
use crate::schedule::{Description, Operation};
use crate::step::Model;
use mt_kernels::adamw;
use mt_kernels::cuda::{Error, Gpu, Queue, cross_entropy, linear};
use mt_kernels::norm2::{LEAF, add_leaves};
use mt_kernels::rope::Table;

/// What a step found.
#[derive(Clone, PartialEq, Debug)]
pub struct Found {
    /// Mean over all targets.
    pub loss: f64,
    /// Sum of squares of each unit's gradient, added up as on the processor.
    pub squares: Vec<f64>,
}

/// What an update refuses: a number that is not finite or that the planes cannot hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refused {
    /// The unit.
    pub unit: usize,
    /// The first such element, counted from the unit's start.
    pub element: usize,
}

/// A model's computation on a device.
pub struct Computation {
    pub(super) work: Queue,
    pub(super) workspace: Workspace,
    pub(super) model: Model,
    pub(super) tensors: Tensors,
    pub(super) input: Input,
    /// First leaf of each unit's sums of squares.
    pub(super) leaves: Vec<usize>,
    /// Weights of the head's tiles that arrived.
    pub(super) tile: Held,
    /// Gradients of the head's tiles that did not leave.
    pub(super) gradients: Held,
    /// First element of the matrix' unit whose gradient is in the buffer of the tiles' gradients.
    pub(super) front: usize,
    /// Tokens of a row, and of each micro-batch.
    pub(super) seq: usize,
    pub(super) micro_rows: Vec<usize>,
    /// The update that `Update` and `Apply` operations apply.
    pub(super) optimizer: Option<adamw::Step>,
    /// Targets of the step.
    targets: u64,
    /// Where the logits of the only micro-batch go; then no loss is computed.
    pub(super) logits: Option<Vec<f32>>,
    /// Sums of squares, and what updates refused, on the host.
    sums: Vec<f64>,
    refused: Vec<u64>,
}

impl Computation {
    /// Allocates the workspace on a device.
    ///
    /// # Errors
    /// Memory is short; a copy fails.
    pub fn new(gpu: &Gpu, it: &Description<'_>, precision: Precision) -> Result<Computation, Error> {
        let sizes = Sizes::new(it, precision);
        let layer = it.manifest.units.iter().find(|unit| matches!(unit.kind, UnitKind::Layer(_)));
        let tensors = Tensors::new(it.config, layer.expect("a model has a layer"));
        let model = Model::new(it.config.clone(), it.manifest.clone(), it.layout, *it.tiles);
        let mut end = 0;
        let leaves = it.manifest.units.iter().map(|unit| {
            end += unit.elements.div_ceil(LEAF);
            end - unit.elements.div_ceil(LEAF)
        });
        let leaves = leaves.collect();
        let input = Input::new(&it.config.windows, sizes.micro());
        let most = it.micro_rows.iter().max().map_or(0, |rows| rows * it.seq);
        let table = Table::new(it.config.rope_theta, it.config.head_dim, it.config.rope_scaling, most);
        let mut workspace = Workspace::new(gpu, sizes)?;
        let work = Queue::new(gpu)?;
        let Lasting { mut cos, mut sin, .. } = workspace.lasting(0);
        cos.upload(&work, &table.cos)?;
        sin.upload(&work, &table.sin)?;
        Ok(Computation {
            work,
            workspace,
            model,
            tensors,
            input,
            leaves,
            tile: Held::default(),
            gradients: Held::default(),
            front: 0,
            seq: it.seq,
            micro_rows: it.micro_rows.to_vec(),
            optimizer: None,
            targets: 0,
            logits: None,
            sums: vec![0.0; end],
            refused: vec![u64::MAX; it.manifest.units.len()],
        })
    }

    /// The queue that all work is put on: what leases are ordered against.
    pub fn queue(&self) -> &Queue {
        &self.work
    }

    /// How numbers are computed.
    pub fn precision(&self) -> Precision {
        self.workspace.sizes().precision()
    }

    /// Begins a sweep over these micro-batches, which have `targets` targets, with the update that its `Update` and
    /// `Apply` operations apply. The shapes are those that the description had; an inference has the first micro-batch
    /// alone, an update by itself has none.
    ///
    /// # Errors
    /// A copy fails.
    ///
    /// # Panics
    /// If the shapes are others.
    pub fn begin(&mut self, micro: &[MicroBatch], targets: u64, optimizer: Option<adamw::Step>) -> Result<(), Error> {
        (self.tile, self.gradients) = (Held::default(), Held::default());
        self.front = if self.model.config.tied { 0 } else { self.model.config.hidden };
        (self.targets, self.optimizer) = (targets, optimizer);
        self.workspace.lasting(0).refused.fill(&self.work, 0xFF)?;
        self.logits = None;
        let numbers = self.input.fill(micro);
        for index in 0..micro.len() {
            let Lasting { mut input, mut loss, tokens, .. } = self.workspace.lasting(index);
            if index == 0 {
                input.reborrow().slice(0..numbers.len()).upload(&self.work, numbers)?;
                loss.fill(&self.work, 0)?;
            }
            let mut state = cross_entropy::State { max: tokens.max, sum: tokens.sum, target: tokens.target };
            cross_entropy::begin(&self.work, &mut state)?;
        }
        Ok(())
    }

    /// As [`Computation::begin`], for the logits of one micro-batch.
    ///
    /// # Errors
    /// A copy fails.
    pub fn begin_inference(&mut self, micro: &MicroBatch) -> Result<(), Error> {
        self.begin(std::slice::from_ref(micro), 0, None)?;
        self.logits = Some(vec![0.0; micro.ids.len() * self.model.tiles.vocab]);
        Ok(())
    }

    /// Puts one operation on the queue, with the memory of its instruction's accesses in their order.
    ///
    /// # Errors
    /// A call fails; for logits, work before it.
    ///
    /// # Panics
    /// If the operation is the host's, or has other accesses than its instruction lists.
    pub fn execute<'a>(
        &mut self,
        operation: Operation,
        accesses: impl IntoIterator<Item = Memory<'a>>,
    ) -> Result<(), Error> {
        let mut all = accesses.into_iter();
        let accesses = Accesses::new(&mut all);
        match self.precision() {
            Precision::Bf16 => self.dispatch::<u16>(operation, accesses),
            Precision::Tf32 | Precision::Fp32 => self.dispatch::<f32>(operation, accesses),
        }
    }

    fn dispatch<R: Number>(&mut self, operation: Operation, accesses: Accesses<'_, '_>) -> Result<(), Error> {
        match operation {
            Operation::Join { unit, chunk, into } => self.join::<R>(unit, chunk, into, accesses),
            Operation::Gather { chunk, micro } => self.gather::<R>(chunk, micro, accesses),
            Operation::LayerForward { layer, micro, level } => self.layer_forward::<R>(layer, micro, level, accesses),
            Operation::FinalNorm { micro } => self.final_norm::<R>(micro, accesses),
            Operation::TileForward { tile, micro } => self.tile_forward::<R>(tile, micro, accesses),
            Operation::DropTile { tile } => {
                self.drop_tile(tile);
                Ok(())
            }
            Operation::Loss => self.finish_loss(),
            Operation::TileBackward { tile, micro } => self.tile_backward::<R>(tile, micro, accesses),
            Operation::TileGradient { tile } => self.tile_gradient::<R>(tile),
            Operation::FinalNormBackward { micro } => self.final_norm_backward::<R>(micro, accesses),
            Operation::LayerBackward { layer, micro, level } => self.layer_backward::<R>(layer, micro, level, accesses),
            // Squares are summed where gradients leave.
            Operation::NormGradient | Operation::LayerGradient { .. } => Ok(()),
            Operation::ChunkBegin { chunk } => self.chunk_begin(chunk, accesses),
            Operation::Scatter { chunk, micro } => self.scatter::<R>(chunk, micro, accesses),
            Operation::Keep { unit, chunk, from, partial } => self.keep::<R>(unit, chunk, from, partial, accesses),
            Operation::Update { unit, chunk, into } => self.update::<R>(unit, chunk, into, accesses),
            Operation::Apply { unit, chunk, from } => self.apply::<R>(unit, chunk, from, accesses),
            Operation::Commit => panic!("{operation:?} is the host's"),
        }
    }

    /// Waits for the sweep's work.
    ///
    /// # Errors
    /// Some of it failed.
    pub fn finish(&mut self) -> Result<Found, Error> {
        let Lasting { loss, leaves, .. } = self.workspace.lasting(0);
        let mut sum = [0.0];
        loss.view().download(&self.work, &mut sum)?;
        leaves.view().download(&self.work, &mut self.sums)?;
        let head = self.model.head();
        let squares = (0..self.leaves.len()).map(|unit| {
            let end = self.leaves.get(unit + 1).copied().unwrap_or(self.sums.len());
            let leaves = &self.sums[self.leaves[unit]..end];
            // The leaves of the final norm come last: see `Model::norm_leaves`.
            let last = if unit == head { self.model.norm_leaves().div_ceil(LEAF) } else { 0 };
            add_leaves(add_leaves(0.0, &leaves[last..]), &leaves[..last])
        });
        Ok(Found { loss: sum[0] / self.targets as f64, squares: squares.collect() })
    }

    /// Waits for the updates so far; what they refuse first. Nothing that they wrote may be committed then.
    ///
    /// # Errors
    /// Work before it failed.
    pub fn refused(&mut self) -> Result<Option<Refused>, Error> {
        self.workspace.lasting(0).refused.into_view().download(&self.work, &mut self.refused)?;
        let mut found = self.refused.iter().enumerate().filter(|(_, element)| **element != u64::MAX);
        Ok(found.next().map(|(unit, element)| Refused { unit, element: *element as usize }))
    }

    /// Waits for an inference; its logits \[T,V].
    ///
    /// # Errors
    /// Some of its work failed.
    ///
    /// # Panics
    /// If none was begun.
    pub fn finish_inference(&mut self) -> Result<Vec<f32>, Error> {
        self.work.synchronize()?;
        Ok(self.logits.take().expect("an inference was begun"))
    }

    /// T of a micro-batch.
    pub(super) fn tokens(&self, micro: usize) -> usize {
        self.micro_rows[micro] * self.seq
    }

    /// Factor on the gradient of every target.
    pub(super) fn scale(&self) -> f32 {
        (1.0 / self.targets as f64) as f32
    }

    /// How f32 operands are multiplied.
    pub(super) fn products(&self) -> linear::Precision {
        self.precision().products()
    }
}
