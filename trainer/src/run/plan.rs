//! A run on paper: what `train` would do with these settings, what a step costs, what a whole run comes to, what other
//! budgets would change. Needs neither weights nor the machine that it is planned for; moves nothing, makes nothing.
//!
//! What it is not: another way of planning. It asks the same function as a run before its first step, so what it
//! refuses a run refuses. Everything in a report is predicted except sizes.

mod report;

pub use report::{GpuPart, KeptCounts, Limits, More, Place, Report, Step, Totals, WhatIf};

use super::budget::{Asked, Disk, Fit, Fitted, Ram, Vram};
use super::command_line::CommandLine;
use super::inputs::{self, Model, shapes};
use super::observer::RamParts;
use super::writes::Written;
use crate::data::{Data, DataOptions, DataReport};
use crate::error::{Error, Result};
use crate::input;
use crate::model::shapes::NamedShape;
use crate::profile::{MachineProfile, Rates};
use crate::ram;
use crate::schedule::Phase;
use crate::settings::Settings;
use crate::step::Shapes;
use crate::target::Gpu;
use mt_engine::Prediction;
use mt_engine::plan::Station;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of a token where no tokenizer is at hand.
const BYTES_PER_TOKEN: u64 = 4;

/// Times the batch that is planned beside it.
const MORE: [u64; 2] = [2, 4];

/// What is planned.
pub struct Question<'a> {
    /// Settings of the run.
    pub settings: &'a Settings,
    /// What the machine can do.
    pub profile: &'a MachineProfile,
    /// Bytes that the process has in use before its pages; None: as many as this process.
    pub resident_bytes: Option<u64>,
    /// Folders of the store.
    pub stores: Vec<PathBuf>,
    /// Bytes that each drive may write in its life, if that is known.
    pub drive_life_bytes: Option<u64>,
    /// The command as it was given.
    pub command: &'a CommandLine,
}

/// Plans.
///
/// # Errors
/// `DoesNotFit` as a run with these settings; `Input` for a model or data that do not read.
pub fn plan(question: &Question<'_>) -> Result<Report> {
    let model = model(question)?;
    let data = data(question, &model)?;
    inputs::check_stores(&question.stores)?;
    with_fit(question, &model, |fit| {
        // A plan leaves open what becomes of the trained model.
        let fitted = fit.or_refuse(Asked { command: question.command, is_new: true, has_export: true })?;
        let update = fitted.prepared.update_prediction();
        let paper = Paper { question, fit, fitted: &fitted, update: update.as_ref() };
        if let Some(max) = question.settings.max_writes.filter(|_| fitted.has_disk) {
            paper.written().require(max, question.command)?;
        }
        paper.report(data)
    })
}

/// Predicted seconds of a step, as an estimate: for a choice between devices.
///
/// # Errors
/// As [`plan`].
pub fn step_seconds(question: &Question<'_>) -> Result<f64> {
    let model = model(question)?;
    with_fit(question, &model, |fit| Ok(Fit { is_rough: true, ..fit }.plan()?.prepared.prediction.seconds))
}

/// Asks what a question's settings come to in its budgets.
fn with_fit<T>(question: &Question<'_>, model: &Model, ask: impl FnOnce(Fit<'_>) -> Result<T>) -> Result<T> {
    let settings = question.settings;
    let ram = Ram::with_base(settings, question.resident_bytes.unwrap_or_else(ram::resident_bytes));
    let disk = Disk::measure(settings.disk, &question.stores, 0)?;
    let micro_batch = inputs::micro_batch(settings);
    let shapes = shapes(settings.batch, micro_batch, settings.seq_len);
    let device = settings.target().gpu().map(|gpu| gpu.device);
    let rates = question.profile.rates(&question.stores, settings.threads as u32, device);
    let vram = Vram::new(settings, &rates, None);
    let stores = &question.stores;
    ask(Fit {
        model,
        shapes: &shapes,
        micro_batch,
        settings,
        rates: &rates,
        ram,
        vram,
        disk,
        stores,
        is_rough: false,
        is_roomy: false,
    })
}

fn model(question: &Question<'_>) -> Result<Model> {
    let model = inputs::read_model(question.settings, Some(question.command))?;
    Ok(match shape(question.settings) {
        Some(shape) => Model { name: format!("{} ({})", shape.name, shape.of), ..model },
        None => model,
    })
}

fn shape(settings: &Settings) -> Option<&'static NamedShape> {
    settings.shape.as_deref().and_then(crate::model::shapes::find)
}

/// What is known of the data.
#[derive(Clone, Copy)]
struct Rows {
    tokens: u64,
    rows: u64,
    is_estimated: bool,
}

/// Counts the data's tokens: as a run does where the model's folder has all that a run needs, else by the size of the
/// files. None without data.
fn data(question: &Question<'_>, model: &Model) -> Result<Option<Rows>> {
    let settings = question.settings;
    let is_built_in = settings.model.is_none() && settings.shape.is_none();
    // A folder with weights is whole: without a tokenizer its run takes bytes for ids.
    let has_tokenizer = settings.model.as_ref().is_some_and(|folder| {
        ["tokenizer.json", "model.safetensors", "model.safetensors.index.json"]
            .iter()
            .any(|name| folder.join(name).is_file())
    });
    if settings.data.is_empty() && !is_built_in {
        return Ok(None);
    }
    if is_built_in || has_tokenizer {
        let folder = std::env::temp_dir().join(format!("mt-plan-{}", std::process::id()));
        std::fs::create_dir_all(&folder).map_err(|source| Error::io(&folder, "making the folder", source))?;
        let options = DataOptions::new(settings, &model.config, inputs::micro_batch(settings), &folder);
        let data = Data::open(&options, &mut |_, _| Ok(()));
        // What is left in a folder for temporary files is no reason to refuse.
        let _ = std::fs::remove_dir_all(&folder);
        let data = data?;
        let DataReport { ids, rows, .. } = *data.report();
        return Ok(Some(Rows { tokens: ids, rows, is_estimated: false }));
    }
    let mut bytes = 0;
    for path in &settings.data {
        let file = input::open(path, "a text file").map_err(|error| error.named_by("--data"));
        bytes += file?.metadata().map_err(|source| Error::io(path, "reading", source))?.len();
    }
    let tokens = (bytes / BYTES_PER_TOKEN).max(settings.seq_len);
    Ok(Some(Rows { tokens, rows: tokens / settings.seq_len, is_estimated: true }))
}

/// Everything that a report is written from.
struct Paper<'a> {
    question: &'a Question<'a>,
    fit: Fit<'a>,
    fitted: &'a Fitted,
    /// The last update.
    update: Option<&'a Prediction>,
}

impl Paper<'_> {
    fn report(&self, data: Option<Rows>) -> Result<Report> {
        let (settings, prepared) = (self.fit.settings, &self.fitted.prepared);
        let config = &self.fit.model.config;
        let step = self.step();
        let length = self.length(data)?;
        let totals = |steps| self.totals(steps, data, &step);
        let (totals, thousand) = (length.map(totals), length.is_none().then(|| totals(1_000)));
        let (more, what_if) = self.others();
        Ok(Report {
            model: self.fit.model.name.clone(),
            parameters: self.parameters(),
            layers: config.layers,
            hidden: config.hidden,
            vocab: config.vocab,
            note: shape(self.question.settings).map_or("", |shape| shape.note).to_owned(),
            profile: self.question.profile.describe(),
            batch: settings.batch,
            micro_batch: self.fit.micro_batch,
            seq_len: settings.seq_len,
            threads: settings.threads,
            recompute: prepared.kept().recomputes(),
            kept: KeptCounts::of(prepared.kept()),
            update_in_backward: prepared.update_only.is_none(),
            checkpoint_every: self.fitted.checkpoint_every,
            gpu: self.gpu(),
            limits: self.limits(),
            places: self.places(),
            step,
            update_only_seconds: self.update.map(|update| update.seconds),
            totals,
            thousand,
            more,
            what_if,
        })
    }

    fn parameters(&self) -> u64 {
        self.fit.model.manifest.elements()
    }

    fn limits(&self) -> Limits {
        let prepared = &self.fitted.prepared;
        let RamParts { budget, base, workspace, arena, placed } = RamParts::of(&self.fit.ram, prepared);
        Limits {
            ram: budget,
            ram_program: base,
            ram_workspace: workspace,
            ram_pages: arena,
            ram_placed: placed,
            ram_peak: base + workspace + (arena - prepared.steady.arena_bytes()) + prepared.prediction.peak_host_bytes,
            disk: if self.fitted.has_disk { prepared.store_bytes() } else { 0 },
            drives: self.drives(),
        }
    }

    fn gpu(&self) -> Option<GpuPart> {
        let Gpu { device, precision } = self.fit.settings.target().gpu()?;
        let (prepared, rates) = (&self.fitted.prepared, &self.fit.rates.gpu);
        let share = prepared.device()?;
        let moved = prepared.prediction.devices.iter().find(|moved| moved.device == device)?;
        let parameters = self.parameters() as f64;
        let assumed = match rates.assumed.as_slice() {
            [] => String::new(),
            names => format!("; assumed: {}", names.join(", ")),
        };
        let busy = prepared.prediction.busy.iter().find(|busy| busy.station == Station::Compute(device));
        Some(GpuPart {
            device: device.0,
            name: format!("{}{assumed}", rates.name),
            precision: precision.name(),
            vram: self.fit.vram.budget,
            vram_context: self.fit.context(),
            vram_workspace: share.work_bytes,
            vram_placed: share.placed_bytes,
            vram_window: share.window_bytes,
            vram_peak: self.fit.context() + moved.peak_bytes,
            updates: prepared.updated_on_gpu(&self.fit.model.manifest),
            upload_bytes: moved.upload_bytes,
            download_bytes: moved.download_bytes,
            up_per_parameter: moved.upload_bytes as f64 / parameters,
            down_per_parameter: moved.download_bytes as f64 / parameters,
            compute_seconds: busy.map_or(0.0, |busy| busy.seconds),
        })
    }

    fn drives(&self) -> u64 {
        if self.fitted.has_disk { self.question.stores.len().max(1) as u64 } else { 0 }
    }

    fn places(&self) -> Vec<Place> {
        let kinds = [
            ("weights", &["hi", "lo"][..]),
            ("moments", &["m", "v"]),
            ("gradients", &["grad"]),
            ("activations", &["act", "dact"]),
        ];
        let of_regions = |(what, names): (&'static str, &[&str])| {
            let parts = self.fitted.prepared.residence();
            let mut place = Place { what, bytes: 0, in_vram: 0, in_ram: 0, streamed: 0, on_disk: 0 };
            for part in parts.iter().filter(|part| names.contains(&part.region.as_str())) {
                place.bytes += part.vram_bytes + part.placed_bytes + part.streamed_bytes;
                place.in_vram += part.vram_bytes;
                place.in_ram += part.placed_bytes;
                place.streamed += part.streamed_bytes;
                place.on_disk += if self.fitted.has_disk { part.disk_bytes } else { 0 };
            }
            place
        };
        kinds.into_iter().map(of_regions).filter(|place| place.bytes > 0).collect()
    }

    fn tokens(&self) -> u64 {
        self.fit.settings.batch * self.fit.settings.seq_len
    }

    fn step(&self) -> Step {
        let prepared = &self.fitted.prepared;
        let prediction = &prepared.prediction;
        let parameters = self.parameters() as f64;
        Step {
            seconds: prediction.seconds,
            lower_bound_seconds: prediction.lower_bound_seconds,
            tokens_per_s: self.tokens() as f64 / prediction.seconds,
            phases: prepared.phases(),
            disk_read_bytes: prediction.disk.read_bytes,
            disk_write_bytes: prediction.disk.write_bytes,
            commit_bytes: prediction.disk.commit_bytes,
            commit_seconds: self.commit_seconds(),
            read_per_parameter: prediction.disk.read_bytes as f64 / parameters,
            written_per_parameter: prediction.disk.write_bytes as f64 / parameters,
        }
    }

    fn commit_seconds(&self) -> f64 {
        let prepared = &self.fitted.prepared;
        let Some(every) = self.fitted.checkpoint_every else { return 0.0 };
        let more = prepared.prediction.seconds - prepared.seconds_with_commits(0);
        every as f64 * more.max(0.0)
    }

    /// What this run writes to its store.
    fn written(&self) -> Written {
        Written::of(self.fitted, self.update, self.parameters())
    }

    /// Steps of the run, where they are known.
    fn length(&self, data: Option<Rows>) -> Result<Option<u64>> {
        let settings = self.fit.settings;
        match data {
            Some(data) => inputs::total_steps(settings, data.rows).map(Some),
            None => Ok(settings.steps),
        }
    }

    /// A run of so many steps. Its first has no update before it, which comes when the steps are over.
    fn totals(&self, steps: u64, data: Option<Rows>, step: &Step) -> Totals {
        let every = self.fitted.checkpoint_every;
        let commits = every.map_or(0, |every| steps.div_ceil(every));
        let pending = step.phases.iter().find(|phase| phase.phase == Phase::Update && self.update.is_some());
        let (not_in_first, idle) = pending.map_or((0, 0.0), |phase| (phase.disk_write_bytes, phase.seconds));
        let update = self.update.map_or(0.0, |update| update.seconds);
        let seconds = if steps == 0 { 0.0 } else { self.steps_seconds(steps, commits, step) - idle + update };
        let written = self.written();
        let written_bytes = written.in_all(steps, commits, not_in_first);
        let bound = self.fit.settings.max_writes.filter(|_| self.fitted.has_disk);
        let within = bound.map(|max| written.steps_within(max, every, not_in_first));
        let drives = self.drives().max(1) as f64;
        let life = self.question.drive_life_bytes.filter(|_| self.fitted.has_disk);
        Totals {
            data_tokens: data.map(|data| data.tokens),
            is_estimated: data.is_some_and(|data| data.is_estimated),
            steps,
            seconds,
            written_bytes,
            stopped_after: within.filter(|within| *within < steps),
            drive_life_percent: life.map(|life| 100.0 * written_bytes as f64 / drives / life as f64),
        }
    }

    /// Seconds of so many steps. A step's time has its share of a commit; the last one comes with the last update,
    /// where there is one, and takes its time there.
    fn steps_seconds(&self, steps: u64, commits: u64, step: &Step) -> f64 {
        let Some(every) = self.fitted.checkpoint_every else { return steps as f64 * step.seconds };
        let beside_steps = commits.saturating_sub(u64::from(self.update.is_some()));
        steps as f64 * (step.seconds - step.commit_seconds / every as f64) + beside_steps as f64 * step.commit_seconds
    }

    /// The same with more tokens a step, and on other machines. Every line is a question of its own.
    fn others(&self) -> (Vec<More>, Vec<WhatIf>) {
        let now = self.fitted.prepared.prediction.seconds;
        let larger: Vec<Larger> = MORE.iter().map(|times| Larger::new(self.fit.settings, *times)).collect();
        let drives = self.drives();
        let rates =
            (with_drives(self.fit.rates, (drives + 1) as f64 / drives.max(1) as f64), twice_the_cores(self.fit.rates));
        let changes = self.changes(&rates.0, &rates.1);
        let larger_fits = larger.iter().map(|larger| {
            let Larger { settings, shapes, micro_batch, .. } = larger;
            Fit { shapes, micro_batch: *micro_batch, settings, ..self.fit }
        });
        let is_roomy = self.fitted.prepared.is_roomy;
        // What more tokens take is told as their own plan would tell it; what other machines would bring is estimated.
        let estimates = changes.iter().map(|(_, fit)| Fit { is_rough: true, is_roomy, ..*fit });
        let fits = larger_fits.chain(estimates);
        let found =
            at_once(&fits.collect::<Vec<_>>(), |fit| fit.plan().ok().map(|fitted| fitted.prepared.prediction.seconds));
        let (of_larger, of_changes) = found.split_at(larger.len());
        let more = larger.iter().zip(of_larger).map(|(larger, seconds)| {
            let tokens = larger.times * self.tokens();
            let tokens_per_s = seconds.map(|seconds| tokens as f64 / seconds);
            More { times: larger.times, tokens, seconds: *seconds, tokens_per_s }
        });
        let what_if = changes.iter().zip(of_changes).map(|((change, fit), seconds)| {
            // The present plan fits more memory as it is, and an estimate, which tries fewer plans, may miss it.
            let present = self.fitted.prepared.seconds_with_rates(fit.rates);
            let seconds = seconds.map_or(present, |seconds| seconds.min(present));
            WhatIf { change: change.clone(), times_faster: now / seconds }
        });
        (more.collect(), what_if.collect())
    }

    /// What might be different, with the rates of one more drive and of twice the cores.
    fn changes<'b>(&'b self, one_more_drive: &'b Rates, twice_the_cores: &'b Rates) -> Vec<(String, Fit<'b>)> {
        const STEP: u64 = 64 << 30;
        let (ram, vram) = (self.fit.ram, self.fit.vram);
        let with_vram = |budget| Fit { vram: Vram { budget, ..vram }, ..self.fit };
        let with_ram = |budget| Fit { ram: Ram { budget, ..ram }, ..self.fit };
        let mut changes = Vec::new();
        if self.fitted.prepared.device().is_some_and(|share| share.window_bytes > 0) {
            changes.push(("twice the VRAM".to_owned(), with_vram(2 * vram.budget)));
        }
        if self.fitted.prepared.steady.window_bytes > 0 {
            changes.push(("twice the RAM".to_owned(), with_ram(2 * ram.budget)));
            if ram.budget >= STEP / 8 && ram.budget != STEP {
                changes.push(("+64 GiB RAM".to_owned(), with_ram(ram.budget + STEP)));
            }
            let name = match self.drives() {
                1 => "second drive".to_owned(),
                drives => format!("{} drives", drives + 1),
            };
            changes.push((name, Fit { rates: one_more_drive, ..self.fit }));
        }
        changes.push(("twice the cores".to_owned(), Fit { rates: twice_the_cores, ..self.fit }));
        changes
    }
}

/// The settings with a larger batch, and what follows from it.
struct Larger {
    times: u64,
    settings: Settings,
    shapes: Shapes,
    micro_batch: u64,
}

impl Larger {
    fn new(settings: &Settings, times: u64) -> Larger {
        let settings = Settings { batch: times * settings.batch, ..settings.clone() };
        let micro_batch = inputs::micro_batch(&settings);
        let shapes = shapes(settings.batch, micro_batch, settings.seq_len);
        Larger { times, settings, shapes, micro_batch }
    }
}

/// Answers questions on the machine's threads, in their order.
fn at_once<Q: Sync, A: Send>(questions: &[Q], answer: impl Fn(&Q) -> A + Sync) -> Vec<A> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut answers = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(question) = questions.get(at) else { return answers };
            answers.push((at, answer(question)));
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(questions.len());
    let mut answers = std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mut answers = work();
        for other in others {
            answers.extend(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        answers
    });
    answers.sort_unstable_by_key(|(at, _)| *at);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

/// The rates with the drives' bandwidth times `times`.
fn with_drives(rates: &Rates, times: f64) -> Rates {
    let mut rates = rates.clone();
    rates.engine.disk_read_bytes_per_s *= times;
    rates.engine.disk_write_bytes_per_s *= times;
    rates.engine.disk_mixed_bytes_per_s *= times;
    rates
}

fn twice_the_cores(rates: &Rates) -> Rates {
    let mut rates = rates.clone();
    rates.speed *= 2.0;
    rates.engine.cores *= 2;
    rates.engine.compute_threads *= 2;
    rates
}
