//! Starting a run's process: plan, store, import, steps, export. `train` and `resume` differ in what they find; what
//! they do from there on is here.

use super::budget::{Asked, Disk, Fit, Fitted, Ram, Vram};
use super::command_line::CommandLine;
use super::drift::Drift;
use super::folder::{RunFolder, RunRecord};
use super::gpu::OpenGpu;
use super::inputs::{self, Inputs, first_weights, source_record};
use super::note::NoteBase;
use super::observer::{Ending, Event, Observer, Planned, RamParts, Summary, VramUse};
use super::processes::{Predicted, ProcessStart};
use super::sample;
use super::steps::{Steps, StepsDone};
use super::trace::{Trace, Traced};
use super::writes::{Writes, Written};
use super::{files, metrics, size};
use crate::checkpoint::{self, Dtype, ExportDtype, ExportRequest, OutFolder, State};
use crate::error::{Error, Result};
use crate::input;
use crate::layout::Layout;
use crate::model::Manifest;
use crate::profile::{MachineProfile, Origin, Rates};
use crate::ram;
use crate::settings::{Durability, Settings, Warmup};
use crate::step::{Hyper, Processors, Trainer};
use mt_engine::plan::Residency;
use mt_engine::{Backend, Config, DirectIo, Engine, Error as EngineError};
use mt_kernels::Cpu;
use std::cell::OnceCell;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// What a caller asks of this process, beside the settings.
#[derive(Clone, Debug)]
pub struct Process {
    /// Step after which to stop.
    pub stop_at: Option<u64>,
    /// Folder for the trained model.
    pub export: Option<PathBuf>,
    /// Start of the process.
    pub started: Instant,
    /// The command as it was given.
    pub command: CommandLine,
    /// What the machine can do.
    pub profile: MachineProfile,
    /// Steps to trace.
    pub trace: Option<Traced>,
    /// Folder that keeps what is compiled for a GPU.
    pub gpu_cache: Option<PathBuf>,
}

/// A run that is ready to have its store made or opened.
pub(super) struct Start<'a> {
    pub folder: &'a RunFolder,
    pub settings: &'a Settings,
    pub inputs: &'a Inputs,
    pub process: &'a Process,
    /// Steps in the store's last commit; None: there is none, and the weights are imported.
    pub committed: Option<u64>,
    /// What a resume keeps in `run.json` once nothing can refuse it any more; None where a store is going to be made.
    pub record: Option<RunRecord>,
    /// The GPU of the settings, once it is open.
    pub gpu: OnceCell<OpenGpu>,
}

/// Where the pages of a planned run are.
struct Placement {
    layout: Layout,
    residency: Residency,
    arena: u64,
    has_disk: bool,
}

impl Placement {
    fn of(fitted: &Fitted) -> Placement {
        // Import and export run outside of the cycle of steps: nothing is on its way for them.
        let residency = fitted.prepared.residency().settled();
        let layout = fitted.prepared.layout.clone();
        Placement { layout, residency, arena: fitted.prepared.arena_bytes, has_disk: fitted.has_disk }
    }

    fn state<'a>(&'a self, engine: &'a Engine, manifest: &'a Manifest) -> State<'a> {
        let Placement { layout, residency, arena, has_disk } = self;
        State { engine, manifest, layout, residency, host_bytes: *arena, has_disk: *has_disk }
    }
}

impl Start<'_> {
    /// Goes on to the end of the run or to a stop. `made` gets the store's folders, and those above them that were
    /// missing, as soon as this process has made them.
    pub fn run(&self, made: &mut Vec<PathBuf>, observer: &mut dyn Observer) -> Result<Summary> {
        // A folder that cannot be written is refused before the steps, not after them.
        let out = self.process.export.as_deref().map(OutFolder::create).transpose()?;
        // Its libraries take RAM that counts, and where one is missing nothing else is begun.
        if let Some(gpu) = self.settings.target().gpu() {
            let open = OpenGpu::open(gpu.device, self.process.gpu_cache.clone(), observer)?;
            // Opened once: here alone.
            self.gpu.get_or_init(|| open);
        }
        // Its memory counts: it is taken before the RAM is divided.
        let trace = self.process.trace.as_ref().map(Trace::begin).transpose()?;
        let ram = Ram::measure(self.settings);
        self.notices(&ram).iter().for_each(|notice| observer.event(&Event::Notice(notice)));
        if let Some(auto) = &ram.auto {
            let bound = if auto.by_group { "control group" } else { "machine" };
            let (bytes, margin) = (size::human(auto.bytes), size::human(auto.margin));
            let line = format!("RAM: {bytes} (auto: what the {bound} has free, less {margin})");
            observer.event(&Event::Notice(&line));
        }
        let fitted = self.fit(ram)?;
        self.max_writes(&fitted)?;
        let parts = RamParts::of(&ram, &fitted.prepared);
        let planned = self.planned(&fitted, parts)?;
        observer.event(&Event::Planned(&planned));
        let stores = if fitted.has_disk { self.folder.stores(self.settings) } else { Vec::new() };
        let cpu = inputs::cpu(self.settings)?;
        let engine = self.open_engine(&fitted, stores, ram, trace.as_ref(), made)?;
        for notice in engine.notices() {
            observer.event(&Event::Notice(&notice));
        }
        let placement = Placement::of(&fitted);
        let manifest = &self.inputs.model.manifest;
        let mut steps =
            self.steps(engine, fitted, &planned, trace, self.processors(&cpu)).map_err(|error| match error {
                Error::Engine(error @ EngineError::NoSpace { .. }) => self.no_store(error, ram),
                other => other,
            })?;
        if let Some(VramUse { used, budget }) = self.vram()?.filter(|vram| vram.used > vram.budget) {
            let (used, budget) = (size::human(used), size::human(budget));
            observer.event(&Event::Notice(&format!("VRAM: {used} are in use, more than the budget of {budget}")));
        }
        if let Some(out) = &out {
            out.require_free(4 * manifest.elements())?;
        }
        self.keep_changes()?;
        if self.committed.is_none() {
            let state = placement.state(steps.trainer.engine(), manifest);
            self.import(&state, &cpu, &steps.notes, observer)?;
        }
        let done = steps.run(observer)?;
        let vram = self.vram()?;
        let sample = self.sample(&mut steps, &done)?;
        let engine = steps.trainer.into_engine();
        if let Some(out) = out {
            self.export(out, &placement.state(&engine, manifest), &cpu, &done, observer)?;
        }
        engine.close()?;
        let summary = Summary { vram, sample, ..self.summary(&done, parts) };
        observer.event(&Event::Ended(&summary));
        Ok(summary)
    }

    /// Makes what a resume changes last: only now, since a refusal must leave the run as it was.
    pub fn keep_changes(&self) -> Result<()> {
        if let Some(record) = &self.record {
            self.folder.write_record(record)?;
        }
        self.folder.write_settings(self.settings)
    }

    /// What the settings say that can hardly be meant.
    fn notices(&self, ram: &Ram) -> Vec<String> {
        let (settings, total) = (self.settings, self.inputs.total_steps);
        let mut notices = Vec::new();
        if let Warmup::Steps(steps) = settings.warmup
            && steps > total
            && settings.model.is_some()
        {
            notices.push(format!("the warm-up of {steps} steps does not end within the run of {total}"));
        }
        if let Some(stop) = self.process.stop_at.filter(|stop| *stop > total) {
            notices.push(format!("--stop-at {stop} is behind the end of the run, step {total}"));
        }
        let machine = ram::machine_bytes();
        if machine > 0 && ram.budget > machine {
            let (budget, machine) = (size::human(ram.budget), size::human(machine));
            notices.push(format!("--ram {budget} is more than the machine has, {machine}"));
        }
        notices
    }

    fn fit(&self, ram: Ram) -> Result<Fitted> {
        let stores = self.folder.stores(self.settings);
        let held = if self.committed.is_some() { super::store::bytes(&stores) } else { 0 };
        let disk = Disk::measure(self.settings.disk, &stores, held)?;
        self.fit_into(ram, disk, &stores, &self.rates(&stores)).or_refuse(self.asked())
    }

    fn fit_into<'a>(&'a self, ram: Ram, disk: Disk, stores: &'a [PathBuf], rates: &'a Rates) -> Fit<'a> {
        let Inputs { model, shapes, micro_batch, .. } = self.inputs;
        let vram = Vram::new(self.settings, rates, self.gpu.get().map(|open| open.context_bytes));
        Fit {
            model,
            shapes,
            micro_batch: *micro_batch,
            settings: self.settings,
            rates,
            ram,
            vram,
            disk,
            stores,
            is_rough: false,
            is_roomy: false,
        }
    }

    fn rates(&self, stores: &[PathBuf]) -> Rates {
        let device = self.settings.target().gpu().map(|gpu| gpu.device);
        let mut rates = self.process.profile.rates(stores, self.settings.threads as u32, device);
        if let Some(open) = self.gpu.get() {
            rates.gpu.vram_bytes = open.vram_bytes;
        }
        rates
    }

    fn processors(&self, cpu: &Cpu) -> Processors {
        Processors { cpu: cpu.clone(), gpu: self.gpu.get().map(|open| open.gpu.clone()) }
    }

    fn asked(&self) -> Asked<'_> {
        let Process { command, export, .. } = self.process;
        Asked { command, is_new: self.committed.is_none(), has_export: export.is_some() }
    }

    fn vram(&self) -> Result<Option<VramUse>> {
        self.gpu.get().map(|open| open.in_use(self.settings)).transpose()
    }

    fn open_engine(
        &self,
        fitted: &Fitted,
        stores: Vec<PathBuf>,
        ram: Ram,
        trace: Option<&Trace>,
        made: &mut Vec<PathBuf>,
    ) -> Result<Engine> {
        let Settings { direct_io, io, .. } = *self.settings;
        let recorder = trace.map(|trace| trace.recorder.clone());
        let (devices, arena_bytes) = (fitted.prepared.devices(), fitted.prepared.arena_bytes);
        let config = Config { direct_io, backend: io, recorder, devices, ..Config::new(stores.clone(), arena_bytes) };
        if self.committed.is_some() {
            return Engine::open(config).map_err(|error| self.refusal(error));
        }
        let missing: Vec<PathBuf> = stores.iter().flat_map(|store| files::missing(store)).collect();
        let engine = Engine::create(config, &fitted.prepared.regions).map_err(|error| self.no_store(error, ram))?;
        made.extend(stores.into_iter().chain(missing));
        let uuid = engine.identity().uuid.to_string();
        let version = env!("CARGO_PKG_VERSION").to_owned();
        self.folder.write_record(&RunRecord { uuid, version, accepted_steps: None })?;
        Ok(engine)
    }

    /// An engine's error; where the settings ask for what this machine does not have, with the command that works.
    fn refusal(&self, error: EngineError) -> Error {
        let settings = self.settings;
        let (setting, wanted, other) = match error {
            EngineError::DirectIo { .. } if settings.direct_io == DirectIo::Required => {
                ("direct-io", settings.direct_io.to_string(), DirectIo::Preferred.to_string())
            }
            EngineError::DirectIo { .. } => return error.into(),
            _ if error.is_refused_io() => ("io", settings.io.to_string(), Backend::Auto.to_string()),
            _ => return error.into(),
        };
        Error::Input {
            place: self.folder.path().display().to_string(),
            field: setting.to_owned(),
            expected: format!("a machine for {wanted}"),
            found: error.to_string(),
            hint: Some(format!("or run: {}", self.process.command.with(setting, &other))),
        }
    }

    /// The refusal of a new store.
    fn no_store(&self, error: EngineError, ram: Ram) -> Error {
        match error {
            EngineError::NoSpace { path, need, free } => self.too_small(&path, need, free, ram),
            EngineError::Io { doing, path, source, .. } if source.kind() == ErrorKind::PermissionDenied => {
                input::unmade(&path, inputs::STORE, inputs::STORE_EXPECTED, doing, source.kind().into())
            }
            other => self.refusal(other),
        }
    }

    /// The refusal of a volume that is too small for its part of a new store.
    fn too_small(&self, path: &Path, need: u64, free: u64, ram: Ram) -> Error {
        let stores = self.folder.stores(self.settings);
        let disk = Disk { budget: free, is_given: false };
        self.fit_into(ram, disk, &stores, &self.rates(&stores)).too_small(path, need, self.asked())
    }

    /// What this run writes to its store, and the bound on it.
    ///
    /// # Errors
    /// A new run's import and first step exceed the bound.
    fn max_writes(&self, fitted: &Fitted) -> Result<Option<(u64, Written)>> {
        let Some(max) = self.settings.max_writes.filter(|_| fitted.has_disk) else { return Ok(None) };
        let update = fitted.prepared.update_prediction();
        let written = Written::of(fitted, update.as_ref(), self.inputs.model.manifest.elements());
        if self.committed.is_none() {
            written.require(max, &self.process.command)?;
        }
        Ok(Some((max, written)))
    }

    fn steps(
        &self,
        engine: Engine,
        fitted: Fitted,
        planned: &Planned,
        trace: Option<Trace>,
        processors: Processors,
    ) -> Result<Steps<'_>> {
        let settings = self.settings;
        let predicted = Predicted::of(&fitted.prepared, &planned.ram);
        let MachineProfile { origin, .. } = self.process.profile;
        let rates = self.rates(&self.folder.stores(settings)).engine;
        let drift = Drift::new(predicted.clone(), rates, origin == Origin::Assumed);
        let start = ProcessStart::new(planned, predicted, self.process.profile.describe(), settings);
        let ledger: u64 = engine.identity().ledger.iter().map(|volume| volume.write_bytes).sum();
        let writes = self.max_writes(&fitted)?.map(|(max, written)| Writes::new(max, ledger, &written));
        let notes = NoteBase {
            run: engine.identity().uuid.to_string(),
            total_steps: self.inputs.total_steps,
            tokens_digest: self.inputs.tokens_digest.clone(),
            folder: self.folder.path().display().to_string(),
            settings: settings.clone(),
        };
        let hyper = Hyper {
            betas: settings.betas,
            eps: settings.eps,
            weight_decay: settings.weight_decay,
            max_grad_norm: settings.max_grad_norm,
        };
        let trainer = Trainer::new(
            engine,
            &self.inputs.model.config,
            &self.inputs.model.manifest,
            fitted.prepared,
            &self.inputs.shapes,
            processors,
            hyper,
            self.committed.unwrap_or(0),
        )?;
        Ok(Steps {
            folder: self.folder,
            inputs: self.inputs,
            trainer,
            notes,
            checkpoint_every: fitted.checkpoint_every,
            stop_at: self.process.stop_at,
            writes,
            started: self.process.started,
            start,
            drift,
            trace,
        })
    }

    /// Writes the first weights and, with commits, makes them commit 0.
    fn import(&self, state: &State<'_>, cpu: &Cpu, notes: &NoteBase, observer: &mut dyn Observer) -> Result<()> {
        let source = first_weights(self.settings, &self.inputs.model)?;
        let report = checkpoint::import(state, &source, cpu, &mut |done, all| {
            observer.event(&Event::Importing(done, all));
            inputs::stop_if_asked(observer)
        })?;
        for notice in &report.notices {
            observer.event(&Event::Notice(notice));
        }
        if self.settings.durability == Durability::Full {
            state.engine.commit(&notes.at(0).encode())?;
            observer.event(&Event::Committed(0));
        }
        Ok(())
    }

    /// The model is written at the end, or at a stop where nothing else would be left of it.
    fn export(
        &self,
        folder: OutFolder,
        state: &State<'_>,
        cpu: &Cpu,
        steps: &StepsDone,
        observer: &mut dyn Observer,
    ) -> Result<()> {
        let Some(out) = &self.process.export else { return Ok(()) };
        if steps.ending == Ending::Stopped && self.settings.durability == Durability::Full {
            return Ok(());
        }
        let request = ExportRequest {
            dtype: ExportDtype::One(Dtype::F32),
            max_shard_bytes: Some(super::export::MAX_SHARD_BYTES),
            carry_from: self.folder.model(),
        };
        let record = source_record(self.folder.path())?;
        let progress = &mut |_, _| {};
        let report = checkpoint::export(folder, state, &self.inputs.model.config, &record, &request, cpu, progress)?;
        for notice in &report.notices {
            observer.event(&Event::Notice(notice));
        }
        observer.event(&Event::Exported(out));
        Ok(())
    }

    /// Text of the built-in model, whose ids are bytes.
    fn sample(&self, steps: &mut Steps<'_>, done: &StepsDone) -> Result<Option<(String, String)>> {
        let is_built_in = self.settings.model.is_none() && self.settings.shape.is_none();
        if !is_built_in || done.ending != Ending::Done || done.done == 0 {
            return Ok(None);
        }
        sample::write(&mut steps.trainer, self.inputs, self.settings.seed).map(Some)
    }

    fn planned(&self, fitted: &Fitted, ram: RamParts) -> Result<Planned> {
        let (settings, inputs) = (self.settings, self.inputs);
        let tensors = || inputs.model.manifest.units.iter().flat_map(|unit| &unit.tensors);
        let parameters = inputs.model.manifest.elements();
        let data = inputs.data.report();
        Ok(Planned {
            run: self.folder.shown().to_owned(),
            stores: if fitted.has_disk { self.folder.shown_stores(settings) } else { Vec::new() },
            model: inputs.model.name.clone(),
            random_seed: source_record(self.folder.path())?.seed,
            parameters,
            decayed: tensors().filter(|tensor| tensor.decay).map(|tensor| tensor.len as u64).sum(),
            state_bytes: 12 * parameters,
            gradient_bytes: 4 * parameters,
            data_tokens: data.ids,
            is_bytes: data.is_bytes,
            rows: data.rows,
            dropped_tokens: data.dropped_ids,
            batch: settings.batch,
            micro_batch: inputs.micro_batch,
            seq_len: settings.seq_len,
            first_step: self.committed.unwrap_or(0),
            total_steps: inputs.total_steps,
            checkpoint_every: fitted.checkpoint_every,
            recompute: fitted.prepared.kept().recomputes(),
            target: settings.target(),
            threads: settings.threads,
            ram,
            vram_placed: fitted.prepared.device().map_or(0, |share| share.placed_bytes),
            prediction: fitted.prepared.prediction.clone(),
        })
    }

    fn summary(&self, steps: &StepsDone, ram: RamParts) -> Summary {
        let lines = metrics::read(&self.folder.metrics());
        let losses = lines.first().zip(lines.last()).map(|(first, last)| (first.loss, last.loss));
        Summary {
            ending: steps.ending,
            is_durable: self.settings.durability == Durability::Full,
            run: self.folder.shown().to_owned(),
            step: self.committed.unwrap_or(0) + steps.done,
            total_steps: self.inputs.total_steps,
            losses,
            steps_here: steps.done,
            seconds: steps.seconds,
            tokens: steps.tokens,
            ram,
            peak_ram_bytes: ram::peak_bytes(),
            disk_read_bytes: steps.after.disk_read_bytes - steps.before.disk_read_bytes,
            disk_write_bytes: steps.after.disk_write_bytes - steps.before.disk_write_bytes,
            commit_bytes: steps.after.commit_bytes - steps.before.commit_bytes,
            wait_seconds: (steps.after.wait_ns - steps.before.wait_ns) as f64 * 1e-9,
            drift: steps.drift.clone(),
            measured: steps.measured,
            gpu: steps.gpu,
            vram: None,
            sample: None,
        }
    }
}
