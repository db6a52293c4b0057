//! The trainer on a store of its own, set up in many ways: everything in RAM, with the smallest budget that is
//! accepted, with the smallest pages, reopened. Golden cases, placement and numerics run on it.

use crate::tensors::Tensors;
use mt_engine::{Config, Engine, Stats};
use mt_kernels::Cpu;
use mt_kernels::cuda::Gpu;
use mt_trainer::Error;
use mt_trainer::batch::{Batch, MicroBatch};
use mt_trainer::checkpoint::{Source, State, import};
use mt_trainer::error::Result;
use mt_trainer::layout::Chunk;
use mt_trainer::model::{Manifest, ModelConfig};
use mt_trainer::profile::Rates;
use mt_trainer::settings::Recompute;
use mt_trainer::step::{Hyper, Options, Outcome, Prepared, Processors, Shapes, Trainer, prepare};
use mt_trainer::target::Target;
use std::path::PathBuf;

/// How a run is laid out. None of it may change a number.
#[derive(Clone)]
pub struct Setup {
    /// What computes the steps, and with which GPU.
    pub target: Target,
    /// The GPU of the target.
    pub gpu: Option<Gpu>,
    /// VRAM for pages and workspace.
    pub vram: u64,
    /// Elements of a page; None: chosen by the trainer.
    pub page: Option<usize>,
    /// CPU threads.
    pub threads: usize,
    /// What is kept for backward.
    pub recompute: Recompute,
    /// The update that runs in backward; only without clipping.
    pub fused_backward: bool,
    /// State regions that survive a crash (with a store); else scratch.
    pub durable: bool,
    /// Folders of the store, one a volume; none: no disk at all.
    pub stores: Vec<PathBuf>,
    /// Bytes of a stripe over several volumes; None: the engine's default.
    pub stripe_bytes: Option<u32>,
    /// RAM in bytes; None: all that is wanted.
    pub budget: Option<u64>,
    /// Most runs that are fetched ahead; None: as far as RAM allows.
    pub prefetch: Option<u32>,
    /// What times are predicted with.
    pub rates: Rates,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup {
            target: Target::Cpu,
            gpu: None,
            vram: 0,
            page: None,
            threads: 2,
            recompute: Recompute::Auto,
            fused_backward: false,
            durable: true,
            stores: Vec::new(),
            stripe_bytes: Some(4096),
            budget: None,
            prefetch: None,
            rates: Rates::default(),
        }
    }
}

/// What is trained: a model folder and the shape of the batches.
#[derive(Clone, Debug)]
pub struct Job {
    /// Configuration.
    pub config: ModelConfig,
    /// Folder with the weights.
    pub dir: PathBuf,
    /// Rows of each micro-batch.
    pub micro_rows: Vec<usize>,
    /// Tokens of a row.
    pub seq: usize,
    /// AdamW's constants and the clipping limit.
    pub hyper: Hyper,
}

/// A trainer, ready to step.
pub struct Rig {
    trainer: Trainer,
    manifest: Manifest,
}

impl Job {
    fn shapes(&self) -> Shapes {
        let rows = self.micro_rows.iter().copied().max().expect("a micro-batch");
        Shapes { rows_per_micro: rows, micro_rows: self.micro_rows.clone(), seq: self.seq }
    }

    fn options(&self, setup: &Setup) -> Options {
        Options {
            target: setup.target,
            recompute: setup.recompute,
            fused_backward: setup.fused_backward,
            durable: setup.durable,
            has_disk: !setup.stores.is_empty(),
            page_elements: setup.page,
            sweeps_per_commit: u32::from(!setup.stores.is_empty() && setup.durable),
            threads: setup.threads,
            rates: setup.rates.clone(),
            prefetch_intervals_max: setup.prefetch,
            budget_bytes: setup.budget,
            vram_bytes: setup.vram,
            disk_bytes: u64::MAX,
            is_rough: false,
            is_roomy: false,
        }
    }

    /// Layout and plan with this set-up.
    ///
    /// # Errors
    /// The trainer's.
    pub fn prepare(&self, setup: &Setup) -> Result<Prepared> {
        prepare(&self.config, &Manifest::new(&self.config), &self.shapes(), &self.options(setup))
    }

    /// The smallest budget that is accepted with this set-up.
    pub fn smallest_budget(&self, setup: &Setup) -> u64 {
        let mut budget = 1;
        loop {
            let tried = Setup { budget: Some(budget), ..setup.clone() };
            match self.prepare(&tried) {
                Ok(_) => return budget,
                Err(Error::DoesNotFit { need_bytes, .. }) => {
                    assert!(need_bytes > budget, "a refusal asks for more than was given");
                    budget = need_bytes;
                }
                Err(other) => panic!("the job is sound: {other}"),
            }
        }
    }

    /// Creates a store (or an engine without one) and imports the weights.
    ///
    /// # Errors
    /// The trainer's and the engine's.
    pub fn begin(&self, setup: &Setup) -> Result<Rig> {
        let prepared = self.prepare(setup)?;
        let (layout, host_bytes) = (prepared.layout.clone(), prepared.arena_bytes);
        let residency = prepared.residency().settled();
        let rig = self.rig(setup, Engine::create(engine_config(setup, &prepared), &prepared.regions)?, prepared, 0)?;
        let (engine, manifest, has_disk) = (rig.trainer.engine(), &rig.manifest, !setup.stores.is_empty());
        let state = State { engine, manifest, layout: &layout, residency: &residency, host_bytes, has_disk };
        let source = Source::open(&self.dir, &self.config, manifest, 0)?;
        import(&state, &source, &Cpu::new(setup.threads).expect("threads start"), &mut |_, _| Ok(()))?;
        if has_disk && setup.durable {
            engine.commit(b"0")?;
        }
        Ok(rig)
    }

    /// Opens the store of `setup` at its last commit, whose note is the number of completed steps.
    ///
    /// # Errors
    /// The trainer's and the engine's.
    pub fn resume(&self, setup: &Setup) -> Result<Rig> {
        let prepared = self.prepare(setup)?;
        let engine = Engine::open(engine_config(setup, &prepared))?;
        let (_, note) = engine.committed().expect("the store has a commit");
        let steps = std::str::from_utf8(&note).ok().and_then(|n| n.parse().ok()).expect("the note is a number");
        self.rig(setup, engine, prepared, steps)
    }

    fn rig(&self, setup: &Setup, engine: Engine, prepared: Prepared, steps: u64) -> Result<Rig> {
        let manifest = Manifest::new(&self.config);
        let cpu = Cpu::new(setup.threads).expect("threads start");
        let on = Processors { cpu, gpu: setup.gpu.clone() };
        let trainer = Trainer::new(engine, &self.config, &manifest, prepared, &self.shapes(), on, self.hyper, steps)?;
        Ok(Rig { trainer, manifest })
    }
}

impl Rig {
    /// One step.
    ///
    /// # Errors
    /// The trainer's.
    pub fn step(&mut self, batch: &Batch, lr: f64) -> Result<Outcome> {
        self.trainer.step(batch, lr, None)
    }

    /// One step whose commit mark is live: it makes the state after the step before durable, with this note.
    ///
    /// # Errors
    /// The trainer's.
    pub fn step_committing(&mut self, batch: &Batch, lr: f64, note: Option<&[u8]>) -> Result<Outcome> {
        self.trainer.step(batch, lr, note)
    }

    /// Applies the pending update, and commits if there is a note.
    ///
    /// # Errors
    /// The trainer's.
    pub fn flush(&mut self, note: Option<&[u8]>) -> Result<()> {
        self.trainer.flush(note)
    }

    /// Gradients of the last step, accumulated, before clipping.
    ///
    /// # Errors
    /// The trainer's.
    pub fn gradients(&mut self) -> Result<Tensors> {
        let mut units = Units::new(&self.manifest);
        self.trainer.read_gradients(|unit, chunk, values| units.fill(unit, &chunk, values))?;
        Ok(units.tensors(&self.manifest))
    }

    /// Master weights.
    ///
    /// # Errors
    /// The trainer's.
    pub fn weights(&mut self) -> Result<Tensors> {
        let mut units = Units::new(&self.manifest);
        self.trainer.read_weights(|unit, chunk, values| units.fill(unit, &chunk, values))?;
        Ok(units.tensors(&self.manifest))
    }

    /// The engine's counters.
    pub fn stats(&self) -> Stats {
        self.trainer.engine().stats()
    }

    /// Closes the store; what is not committed is gone.
    ///
    /// # Errors
    /// The engine's.
    pub fn close(self) -> Result<()> {
        Ok(self.trainer.into_engine().close()?)
    }

    /// Logits of every token.
    ///
    /// # Errors
    /// The trainer's.
    pub fn logits(&mut self, micro: &MicroBatch) -> Result<Vec<f32>> {
        self.trainer.logits(micro)
    }
}

/// The elements of every unit, put together from chunks.
struct Units(Vec<Vec<f32>>);

impl Units {
    fn new(manifest: &Manifest) -> Units {
        Units(manifest.units.iter().map(|unit| vec![f32::NAN; unit.elements]).collect())
    }

    fn fill(&mut self, unit: usize, chunk: &Chunk, values: &[f32]) {
        self.0[unit][chunk.start..][..chunk.len].copy_from_slice(values);
    }

    fn tensors(&self, manifest: &Manifest) -> Tensors {
        let mut out = Tensors::default();
        for (unit, values) in manifest.units.iter().zip(&self.0) {
            for tensor in &unit.tensors {
                out.insert(&tensor.name, &tensor.shape, values[tensor.offset..][..tensor.len].to_vec());
            }
        }
        out
    }
}

fn engine_config(setup: &Setup, prepared: &Prepared) -> Config {
    // Weights that differ, and by default stripes of a page: small models reach every volume.
    let volume_weights = (1..=setup.stores.len()).map(|n| n as f64).collect();
    let config = Config::new(setup.stores.clone(), prepared.arena_bytes);
    let stripe_bytes = setup.stripe_bytes.unwrap_or(config.stripe_bytes);
    Config { volume_weights, stripe_bytes, devices: prepared.devices(), ..config }
}
