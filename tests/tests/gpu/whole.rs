//! A model with all runs of its program in device memory: walks the trainer's own program,
//! with updates on either.

use crate::Rig;
use mt_engine::{DeviceId, Mode, RegionId, Resource, Run};
use mt_kernels::cuda::{Buffer, Error};
use mt_kernels::{Cpu, adamw, split};
use mt_tests::tensors::Tensors;
use mt_trainer::batch::{Batch, MicroBatch};
use mt_trainer::block::{Dims, Level};
use mt_trainer::gpu::{Computation, Memory, Refused, boundary_bytes, kept_bytes, logits_bytes};
use mt_trainer::head::Tiles;
use mt_trainer::layout::{Chunk, GRAD, HI, LO, Layout, M, V};
use mt_trainer::model::{Manifest, ModelConfig};
use mt_trainer::profile::Rates;
use mt_trainer::schedule::{Activations, Description, Instruction, Kept, OnGpu, Operation, UpdateOn, Writer};
use mt_trainer::step::Hyper;
use mt_trainer::target::{Gpu, Precision, Target};
use std::collections::HashMap;

/// How a model is laid out and computed.
#[derive(Clone)]
pub struct Setup {
    pub precision: Precision,
    pub level: Level,
    /// Logits are kept.
    pub logits: bool,
    /// Elements of a page and of a chunk.
    pub page: usize,
    pub chunk: usize,
    /// Rows of a vocabulary tile; None: as the trainer chooses.
    pub tile_rows: Option<usize>,
    pub updates: UpdateOn,
    /// In backward, without clipping.
    pub fused_backward: bool,
}

impl Setup {
    pub fn new(precision: Precision) -> Setup {
        Setup {
            precision,
            level: Level::Input,
            logits: false,
            page: 2_048,
            chunk: 2_048,
            tile_rows: None,
            updates: UpdateOn::Cpu,
            fused_backward: false,
        }
    }
}

/// The first GPU.
pub fn device(precision: Precision) -> Gpu {
    Gpu { device: DeviceId(0), precision }
}

/// What a step gives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    pub loss: f64,
    pub norm: f64,
}

/// The planes of a unit, padded to whole pages.
struct Planes {
    hi: Vec<u16>,
    lo: Vec<i16>,
    m: Vec<f32>,
    v: Vec<f32>,
}

/// Learning rate and clipping of an update that the next step begins with.
#[derive(Clone, Copy)]
struct Pending {
    lr: f64,
    scale: f64,
}

/// A model on a device.
pub struct Whole<'r> {
    cpu: &'r Cpu,
    gpu: &'r mt_kernels::cuda::Gpu,
    config: ModelConfig,
    manifest: Manifest,
    chunks: Vec<Vec<Chunk>>,
    tiles: Tiles,
    micro_rows: Vec<usize>,
    seq: usize,
    setup: Setup,
    hyper: Hyper,
    steady: Vec<Instruction>,
    inference: Vec<Instruction>,
    update_only: Vec<Instruction>,
    computation: Computation,
    planes: Vec<Planes>,
    /// Device memory of every run of the program, by region and first page.
    memory: HashMap<(RegionId, u32), Buffer<u8>>,
    completed: u64,
    pending: Option<Pending>,
}

impl<'r> Whole<'r> {
    pub fn new(
        rig: &'r Rig,
        config: &ModelConfig,
        start: &Tensors,
        micro_rows: &[usize],
        seq: usize,
        hyper: Hyper,
        setup: &Setup,
    ) -> Result<Whole<'r>, Error> {
        let manifest = Manifest::new(config);
        let layout = Layout::new(&manifest, Some(setup.page), setup.chunk);
        let tiles = match setup.tile_rows {
            None => Tiles::on_gpu(config.vocab, config.hidden),
            Some(rows) => {
                Tiles { rows, count: config.vocab.div_ceil(rows), vocab: config.vocab, hidden: config.hidden }
            }
        };
        let dims = Dims::new(config);
        let tokens: Vec<usize> = micro_rows.iter().map(|rows| rows * seq).collect();
        let gpu = device(setup.precision);
        let activations = Activations::on(Target::Gpu(gpu), 5, &dims, config.layers, &tiles, &tokens);
        let kept = Kept::uniform(config.layers, setup.level, setup.logits);
        let description = Description {
            config,
            manifest: &manifest,
            layout: &layout,
            activations: &activations,
            tiles: &tiles,
            micro_rows,
            seq,
            kept: &kept,
            fused_backward: setup.fused_backward,
            gpu: Some(OnGpu { gpu, updates: &vec![setup.updates; manifest.units.len()], ahead: 0, turns: 2 }),
            rates: &Rates::default(),
        };
        let computation = Computation::new(&rig.gpu, &description, setup.precision)?;
        let (steady, inference) =
            (Writer::steady(description).instructions, Writer::inference(description).instructions);
        let update_only = Writer::update_only(Description { fused_backward: false, ..description }).instructions;
        let planes = manifest.units.iter().map(|unit| {
            let values: Vec<f32> = unit.tensors.iter().flat_map(|t| start.values(&t.name).iter().copied()).collect();
            let padded = unit.elements.next_multiple_of(setup.page);
            let (mut hi, mut lo) = (vec![0; padded], vec![0; padded]);
            split::split(&rig.cpu, &values, &mut hi[..unit.elements], &mut lo[..unit.elements]).expect("small weights");
            Planes { hi, lo, m: vec![0.0; padded], v: vec![0.0; padded] }
        });
        let planes = planes.collect();
        let chunks = (0..manifest.units.len()).map(|unit| layout.chunks(&manifest, unit)).collect();
        let mut whole = Whole {
            cpu: &rig.cpu,
            gpu: &rig.gpu,
            config: config.clone(),
            manifest,
            chunks,
            tiles,
            micro_rows: micro_rows.to_vec(),
            seq,
            setup: setup.clone(),
            hyper,
            steady,
            inference,
            update_only,
            computation,
            planes,
            memory: HashMap::new(),
            completed: 0,
            pending: None,
        };
        for unit in 0..whole.chunks.len() {
            for chunk in 0..whole.chunks[unit].len() {
                whole.upload(unit, chunk)?;
            }
        }
        Ok(whole)
    }

    /// The planes of one chunk: those that a GPU reads, or all where it updates.
    fn upload(&mut self, unit: usize, chunk: usize) -> Result<(), Error> {
        let at = self.chunks[unit][chunk];
        let (queue, planes) = (self.computation.queue(), &self.planes[unit]);
        let range = at.start..at.start + at.pages as usize * self.setup.page;
        let regions: &[RegionId] = if self.setup.updates == UpdateOn::Gpu { &[HI, LO, M, V] } else { &[HI, LO] };
        for &region in regions {
            let values: Vec<u8> = match region {
                HI => planes.hi[range.clone()].iter().flat_map(|x| x.to_le_bytes()).collect(),
                LO => planes.lo[range.clone()].iter().flat_map(|x| x.to_le_bytes()).collect(),
                M => planes.m[range.clone()].iter().flat_map(|x| x.to_le_bytes()).collect(),
                _ => planes.v[range.clone()].iter().flat_map(|x| x.to_le_bytes()).collect(),
            };
            let key = (region, at.first_page);
            if !self.memory.contains_key(&key) {
                self.memory.insert(key, Buffer::new(self.gpu, values.len())?);
            }
            self.memory.get_mut(&key).expect("just made").upload(queue, &values)?;
        }
        Ok(())
    }

    /// Bytes of the run of an operation's access; runs of the state are those of their chunk.
    fn bytes(&self, operation: Operation, run: Run) -> usize {
        let (dims, precision) = (Dims::new(&self.config), self.setup.precision);
        if run.region == GRAD {
            return run.count as usize * self.setup.page * size_of::<f32>();
        }
        let tokens = |micro: usize| self.micro_rows[micro] * self.seq;
        match operation {
            Operation::Gather { micro, .. }
            | Operation::FinalNorm { micro }
            | Operation::FinalNormBackward { micro }
            | Operation::Scatter { micro, .. } => boundary_bytes(&dims, tokens(micro), precision),
            // The last access is what is kept, where something is; a boundary is less.
            Operation::LayerForward { micro, level, .. } | Operation::LayerBackward { micro, level, .. } => {
                let kept = kept_bytes(&dims, tokens(micro), precision, level);
                kept.max(boundary_bytes(&dims, tokens(micro), precision))
            }
            Operation::TileForward { tile, micro } | Operation::TileBackward { tile, micro } => {
                let logits = logits_bytes(tokens(micro), self.tiles.range(tile).len(), precision);
                logits.max(boundary_bytes(&dims, tokens(micro), precision))
            }
            other => panic!("{other:?} has no run of activations"),
        }
    }

    /// Executes one operation with its runs in device memory, poisoned when they are new.
    fn execute(&mut self, operation: Operation, accesses: &[(Run, Mode)]) -> Result<(), Error> {
        let mut taken = Vec::new();
        for &(run, mode) in accesses {
            let key = (run.region, run.first);
            let buffer = match self.memory.remove(&key) {
                Some(buffer) => buffer,
                None => {
                    let mut buffer = Buffer::new(self.gpu, self.bytes(operation, run))?;
                    buffer.fill(self.computation.queue(), 0xFF)?;
                    buffer
                }
            };
            taken.push((key, mode, buffer));
        }
        let memory = taken.iter_mut().map(|(_, mode, buffer)| match mode {
            Mode::Read => Memory::Read(buffer.view()),
            _ => Memory::Write(buffer.view_mut()),
        });
        let result = self.computation.execute(operation, memory.collect::<Vec<_>>());
        self.memory.extend(taken.into_iter().map(|(key, _, buffer)| (key, buffer)));
        result
    }

    /// The update of a chunk, on the processor.
    fn update(&mut self, unit: usize, chunk: usize, grad: Run, pending: Pending) -> Result<(), Error> {
        let scalars = self.scalars(pending);
        let at = self.chunks[unit][chunk];
        let grad = self.gradient(grad)?;
        let planes = &mut self.planes[unit];
        for tensor in &self.manifest.units[unit].tensors {
            let range = tensor.offset.max(at.start)..(tensor.offset + tensor.len).min(at.start + at.len);
            if range.is_empty() {
                continue;
            }
            let grad = &grad[range.start - at.start..range.end - at.start];
            let (hi, lo) = (&mut planes.hi[range.clone()], &mut planes.lo[range.clone()]);
            let (m, v) = (&mut planes.m[range.clone()], &mut planes.v[range]);
            adamw::update(self.cpu, &scalars, tensor.decay, grad, hi, lo, m, v, None).expect("weights stay small");
        }
        self.upload(unit, chunk)
    }

    /// The gradient in a run.
    fn gradient(&self, run: Run) -> Result<Vec<f32>, Error> {
        let bytes = self.memory[&(GRAD, run.first)].download(self.computation.queue())?;
        Ok(bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect())
    }

    fn walk(&mut self, program: &[Instruction], pending: Option<Pending>) -> Result<(), Error> {
        for Instruction { operation, accesses, on, .. } in program {
            match (*operation, on, pending) {
                (Operation::Commit, ..) => (),
                (Operation::Update { unit, chunk, .. }, Resource::HostCompute, Some(pending)) => {
                    self.update(unit, chunk, accesses[0].0, pending)?;
                }
                (Operation::Update { .. }, Resource::HostCompute, None) => (),
                // Without an update the weights are taken as they are: hi and lo, behind the gradient.
                (Operation::Update { unit, chunk, into }, _, None) => {
                    let planes = [accesses[1], accesses[2]].map(|(run, _)| (run, Mode::Read));
                    self.execute(Operation::Join { unit, chunk, into }, &planes)?;
                }
                (operation, ..) => self.execute(operation, accesses)?,
            }
        }
        Ok(())
    }

    /// The scalars of an update.
    fn scalars(&self, pending: Pending) -> adamw::Step {
        let Hyper { betas, eps, weight_decay, .. } = self.hyper;
        adamw::Step::new(pending.lr, betas, eps, weight_decay, self.completed, pending.scale)
    }

    /// One step, with the pending update of the step before in its forward, or its own in its backward.
    pub fn step(&mut self, batch: &Batch, lr: f64) -> Result<Outcome, Error> {
        let program = std::mem::take(&mut self.steady);
        self.completed += u64::from(self.setup.fused_backward);
        let own = self.setup.fused_backward.then_some(Pending { lr, scale: 1.0 });
        let pending = own.or(self.pending.take());
        let scalars = pending.map(|pending| self.scalars(pending));
        self.computation.begin(&batch.micro, batch.target_count(), scalars)?;
        let walked = self.walk(&program, pending);
        self.steady = program;
        walked?;
        let found = self.computation.finish()?;
        let norm = found.squares.iter().fold(0.0, |sum, squares| sum + squares).sqrt();
        if own.is_none() {
            let scale = self.hyper.max_grad_norm.map_or(1.0, |limit| (limit / (norm + 1e-6)).min(1.0));
            self.completed += 1;
            self.pending = Some(Pending { lr, scale });
        }
        Ok(Outcome { loss: found.loss, norm })
    }

    /// Applies the pending update; what of it a GPU refuses.
    pub fn flush(&mut self) -> Result<Option<Refused>, Error> {
        if let Some(pending) = self.pending.take() {
            self.computation.begin(&[], 0, Some(self.scalars(pending)))?;
            let program = std::mem::take(&mut self.update_only);
            let walked = self.walk(&program, Some(pending));
            self.update_only = program;
            walked?;
        }
        self.computation.refused()
    }

    /// Logits of every token of the first micro-batch.
    pub fn logits(&mut self, micro: &MicroBatch) -> Result<Vec<f32>, Error> {
        self.computation.begin_inference(micro)?;
        let program = std::mem::take(&mut self.inference);
        let walked = self.walk(&program, None);
        self.inference = program;
        walked?;
        self.computation.finish_inference()
    }

    /// Gradients of the last step.
    pub fn gradients(&self) -> Result<Tensors, Error> {
        let unit = |unit: usize| -> Result<Vec<f32>, Error> {
            let mut values = Vec::new();
            for at in &self.chunks[unit] {
                let gradient = self.gradient(at.run(GRAD))?;
                assert!(gradient[at.len..].iter().all(|x| *x == 0.0), "padding is zero");
                values.extend_from_slice(&gradient[..at.len]);
            }
            Ok(values)
        };
        let units = (0..self.chunks.len()).map(unit).collect::<Result<Vec<_>, Error>>()?;
        Ok(self.tensors(&units))
    }

    /// Master weights.
    pub fn weights(&self) -> Result<Tensors, Error> {
        let unit = |unit: usize| -> Result<Vec<f32>, Error> {
            let mut values = Vec::new();
            for at in &self.chunks[unit] {
                let plane = |region| self.memory[&(region, at.first_page)].download(self.computation.queue());
                let pair = |bytes: &[u8]| bytes.as_chunks::<2>().0.to_vec();
                let hi: Vec<u16> = pair(&plane(HI)?).into_iter().map(u16::from_le_bytes).collect();
                let lo: Vec<i16> = pair(&plane(LO)?).into_iter().map(i16::from_le_bytes).collect();
                let mut joined = vec![0.0; hi.len()];
                split::join(self.cpu, &hi, &lo, &mut joined);
                values.extend_from_slice(&joined[..at.len]);
            }
            Ok(values)
        };
        Ok(self.tensors(&(0..self.chunks.len()).map(unit).collect::<Result<Vec<_>, Error>>()?))
    }

    fn tensors(&self, units: &[Vec<f32>]) -> Tensors {
        let mut out = Tensors::default();
        for (unit, values) in self.manifest.units.iter().zip(units) {
            for tensor in &unit.tensors {
                out.insert(&tensor.name, &tensor.shape, values[tensor.offset..][..tensor.len].to_vec());
            }
        }
        out
    }
}
