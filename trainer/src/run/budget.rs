//! The budgets of the whole process. RAM: what is in use already, the workspace of the computation, and the arena,
//! which gets the rest. VRAM: the context, the workspace, and pages. Disk: what is free on the volumes. What does not
//! fit is refused with a command that does.

use super::cadence;
use super::command_line::CommandLine;
use super::inputs::{Model, shapes};
use super::size;
use crate::error::{Error, Part, Result};
use crate::profile::Rates;
use crate::ram;
use crate::settings::{Auto, Durability, Recompute, Settings};
use crate::step::{Options, Prepared, STATE_BYTES, Shapes, prepare_or_refuse};
use crate::target::Target;
use crate::vram::{CONTEXT_BYTES, CONTEXT_RAM_BYTES, GROWTH_RAM_BYTES, growth_bytes};
use std::path::{Path, PathBuf};

/// For the engine's tables, rings and threads, which come after the base is measured.
const RESERVE: u64 = 8 << 20;
/// For the stack and the beginnings of the heap of a compute thread, beside what kernels take: 44 and about 60 KiB.
const THREAD: u64 = 128 << 10;
/// Added to the smallest budget before it is suggested: the base differs a little from start to start.
const SLACK: u64 = 1 << 20;
/// Left free on the volumes by `--disk auto`: this share of what is free.
const DISK_MARGIN_SHARE: u64 = 100;
/// Tries to find the nearest budget that fits: a refusal may ask for more once it got what it asked for.
const TRIES: usize = 8;
/// VRAM that is suggested is a multiple of this.
const VRAM_STEP: u64 = 1 << 30;

/// RAM of the process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ram {
    /// The budget.
    pub budget: u64,
    /// In use before the arena is touched, with the reserve.
    pub base: u64,
    /// What `auto` found, if it decided.
    pub auto: Option<ram::Available>,
}

impl Ram {
    /// Measures the base now: data must be read and the tokenizer dropped, the arena not made. A GPU of the settings
    /// must be open, so that its libraries count.
    pub fn measure(settings: &Settings) -> Ram {
        let growth = settings.target().gpu().map_or(0, |_| GROWTH_RAM_BYTES);
        Ram::with_libraries(settings, ram::resident_bytes(), growth)
    }

    /// For a process that has these bytes in use before its compute threads start, and before it opens its GPU.
    pub fn with_base(settings: &Settings, resident: u64) -> Ram {
        let context = settings.target().gpu().map_or(0, |_| CONTEXT_RAM_BYTES);
        Ram::with_libraries(settings, resident, context)
    }

    fn with_libraries(settings: &Settings, resident: u64, context: u64) -> Ram {
        let base = resident + RESERVE + context + settings.threads * THREAD;
        match settings.ram {
            Auto::Value(budget) => Ram { budget, base, auto: None },
            Auto::Auto => {
                let available = ram::available();
                Ram { budget: available.bytes, base, auto: Some(available) }
            }
        }
    }
}

/// VRAM of the process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Vram {
    /// The budget; 0 without a GPU.
    pub budget: u64,
    /// Of it what context and libraries have taken at the start.
    pub opened: u64,
}

impl Vram {
    /// What the settings say, else what the profile's GPU has. `opened`: measured, if the GPU is open.
    pub fn new(settings: &Settings, rates: &Rates, opened: Option<u64>) -> Vram {
        let budget = match settings.target() {
            Target::Cpu => 0,
            Target::Gpu(_) => settings.vram.value().unwrap_or(rates.gpu.vram_bytes),
        };
        Vram { budget, opened: opened.unwrap_or(CONTEXT_BYTES) }
    }

    /// Bytes of the budget for context and libraries, with what they come to take in a process of so much RAM.
    pub fn context(self, ram_bytes: u64) -> u64 {
        self.opened + growth_bytes(self.budget, ram_bytes)
    }
}

/// Space on the volumes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Disk {
    /// The budget.
    pub budget: u64,
    /// Whether the user gave it.
    pub is_given: bool,
}

impl Disk {
    /// Asks the file systems, unless the user said it. `held`: bytes that the run's store has already.
    ///
    /// # Errors
    /// A file system does not answer.
    pub fn measure(disk: Auto<u64>, stores: &[PathBuf], held: u64) -> Result<Disk> {
        match disk {
            Auto::Value(budget) => Ok(Disk { budget, is_given: true }),
            Auto::Auto => {
                let free = mt_engine::space::free(stores)?;
                Ok(Disk { budget: free - free / DISK_MARGIN_SHARE + held, is_given: false })
            }
        }
    }
}

/// What is to be fitted, and into what.
#[derive(Clone, Copy)]
pub(super) struct Fit<'a> {
    pub model: &'a Model,
    pub shapes: &'a Shapes,
    pub micro_batch: u64,
    pub settings: &'a Settings,
    pub rates: &'a Rates,
    pub ram: Ram,
    pub vram: Vram,
    pub disk: Disk,
    /// Folders of the store.
    pub stores: &'a [PathBuf],
    /// An estimate will do: no more is tried than what a plan has that is known.
    pub is_rough: bool,
    /// In an estimate: RAM leaves room to the window.
    pub is_roomy: bool,
}

/// What was asked for, so that a refusal can end with a command that works.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    /// The command as it was given.
    pub command: &'a CommandLine,
    /// There is nothing yet that another way of working would contradict.
    pub is_new: bool,
    /// It is settled where the trained model goes.
    pub has_export: bool,
}

/// A plan that fits.
pub(super) struct Fitted {
    /// What the trainer needs.
    pub prepared: Prepared,
    /// Whether there is a store.
    pub has_disk: bool,
    /// Steps between commits; None: no commits.
    pub checkpoint_every: Option<u64>,
}

/// What is missing of each budget, in bytes; None: nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Missing {
    /// RAM of the whole process that would do.
    pub ram: Option<u64>,
    /// VRAM of the whole process that would do.
    pub vram: Option<u64>,
    /// Space on the volumes that would do.
    pub disk: Option<u64>,
}

impl Fit<'_> {
    /// Plans the run within the budgets.
    ///
    /// # Errors
    /// `DoesNotFit` with the bytes that are missing of all budgets and commands that fit; a smaller micro-batch only
    /// if the run has none yet.
    pub fn or_refuse(&self, asked: Asked<'_>) -> Result<Fitted> {
        match self.plan() {
            Err(refused @ Error::DoesNotFit { .. }) => Err(self.refusal(self.missing(refused), asked)),
            other => other,
        }
    }

    /// Plans the run within the budgets.
    ///
    /// # Errors
    /// `DoesNotFit` for the budget that fails first, in bytes of workspace and pages where it is RAM or VRAM.
    pub fn plan(&self) -> Result<Fitted> {
        match self.settings.durability {
            Durability::Full => self.durable(),
            Durability::None => {
                let recompute = self.settings.recompute;
                let in_memory = self.may_fit_memory().then(|| self.prepare(false, 0, recompute));
                let (prepared, has_disk) = match in_memory {
                    None | Some(Err(Error::DoesNotFit { .. })) => (self.prepare(true, 0, recompute)?, true),
                    Some(other) => (other?, false),
                };
                Ok(Fitted { prepared, has_disk, checkpoint_every: None })
            }
        }
    }

    /// Whether RAM and VRAM might hold everything: false where they are smaller than weights, moments and the layers'
    /// inputs, which every way of working keeps. Planning a step of millions of accesses for nothing takes seconds.
    fn may_fit_memory(&self) -> bool {
        let Model { config, manifest, .. } = self.model;
        let tokens = self.shapes.micro_rows.iter().map(|rows| *rows as u128).sum::<u128>() * self.shapes.seq as u128;
        let element_bytes = self.settings.target().element_bytes() as u128;
        let inputs = (config.layers * config.hidden) as u128 * element_bytes * tokens;
        let state = STATE_BYTES as u128 * u128::from(manifest.elements());
        state + inputs <= u128::from(self.ram.budget) + u128::from(self.vram.budget)
    }

    /// With commits: how often decides what is placed in RAM, and what is placed decides what a commit costs. Placing
    /// is planned for a commit at every step first, then once more for the interval that this gives.
    fn durable(&self) -> Result<Fitted> {
        let every = match self.settings.checkpoint_every {
            Auto::Value(every) => every,
            Auto::Auto => {
                // What layers keep changes the interval little, and weighing it takes most of the planning.
                let recompute = match self.settings.recompute {
                    Recompute::Auto => Recompute::All,
                    given => given,
                };
                let planned = Fit { is_rough: true, ..*self }.prepare(true, 1, recompute)?;
                let writing = planned.prediction.disk.commit_bytes as f64 / self.rates.engine.disk_write_bytes_per_s;
                let plain = planned.seconds_with_commits(0);
                cadence::checkpoint_every(plain, planned.commit_seconds(plain), writing)
            }
        };
        let prepared = self.prepare(true, u32::try_from(every).unwrap_or(u32::MAX), self.settings.recompute)?;
        Ok(Fitted { prepared, has_disk: true, checkpoint_every: Some(every) })
    }

    /// The faster of the update schedules that are allowed.
    fn prepare(&self, has_disk: bool, sweeps_per_commit: u32, recompute: Recompute) -> Result<Prepared> {
        let settings = self.settings;
        let mut options = Options {
            target: settings.target(),
            recompute,
            fused_backward: false,
            durable: settings.durability == Durability::Full,
            has_disk,
            page_elements: settings.page.value().map(|elements| elements as usize),
            sweeps_per_commit,
            threads: settings.threads as usize,
            rates: self.rates.clone(),
            prefetch_intervals_max: None,
            budget_bytes: Some(self.ram.budget.saturating_sub(self.ram.base)),
            vram_bytes: self.vram.budget.saturating_sub(self.context()),
            disk_bytes: self.disk.budget,
            is_rough: self.is_rough,
            is_roomy: self.is_roomy,
        };
        let Model { config, manifest, .. } = self.model;
        let in_forward = prepare_or_refuse(config, manifest, self.shapes, &options);
        // An update in backward comes before the global norm is known, and before the whole gradient is known to be
        // finite: it needs a commit to go back to, or leave to go without.
        let can_fail = settings.durability == Durability::Full || settings.no_nan_guard;
        if settings.max_grad_norm.is_some() || !can_fail {
            return Ok(in_forward?);
        }
        options.fused_backward = true;
        match (in_forward, prepare_or_refuse(config, manifest, self.shapes, &options)) {
            (Ok(forward), Ok(backward)) => {
                let is_faster = backward.prediction.seconds < forward.prediction.seconds;
                Ok(if is_faster { backward } else { forward })
            }
            (Ok(fits), Err(_)) | (Err(_), Ok(fits)) => Ok(fits),
            (Err(one), Err(other)) => Err(one.nearer(other).into()),
        }
    }

    /// VRAM for context and libraries.
    pub fn context(&self) -> u64 {
        self.vram.context(self.ram.budget)
    }

    /// Asks whether the budgets hold the run: as [`plan`](Fit::plan), but of what layers might keep no more is weighed
    /// than what is planned first.
    fn roughly(&self) -> Result<Fitted> {
        let recompute = match self.settings.recompute {
            Recompute::Auto => Recompute::All,
            given => given,
        };
        let settings = Settings { recompute, ..self.settings.clone() };
        Fit { settings: &settings, is_rough: true, ..*self }.plan()
    }

    /// The nearest budgets that fit, where these are refused.
    fn missing(&self, refused: Error) -> Missing {
        let mut tried = *self;
        let mut missing = Missing::default();
        let mut refused = Some(refused);
        for _ in 0..TRIES {
            match refused {
                Some(Error::DoesNotFit { part: Part::Ram, need_bytes, .. }) => {
                    tried.ram.budget = (self.ram.base + need_bytes + SLACK).max(tried.ram.budget + SLACK);
                    missing.ram = Some(tried.ram.budget);
                }
                Some(Error::DoesNotFit { part: Part::Vram, need_bytes, .. }) => {
                    tried.vram.budget = (tried.context() + need_bytes + SLACK).max(tried.vram.budget + SLACK);
                    missing.vram = Some(tried.vram.budget);
                }
                Some(Error::DoesNotFit { part: Part::Disk, need_bytes, .. }) => {
                    tried.disk.budget = need_bytes;
                    missing.disk = Some(need_bytes);
                }
                _ => break,
            }
            refused = tried.roughly().err();
        }
        missing
    }

    /// The refusal: bytes of the whole process and of the volumes, and the commands that fit.
    fn refusal(&self, missing: Missing, asked: Asked<'_>) -> Error {
        let ram = missing.ram.map(|ram| {
            let what = format!(
                "RAM ({} of {} for the program itself; missing {})",
                size::human(self.ram.base),
                size::human(self.ram.budget),
                size::human(ram.saturating_sub(self.ram.budget))
            );
            (Part::Ram, what, ram, self.ram.budget)
        });
        let vram = missing.vram.map(|vram| {
            let what = format!(
                "VRAM ({} of {} for context and libraries; missing {})",
                size::human(self.context()),
                size::human(self.vram.budget),
                size::human(vram.saturating_sub(self.vram.budget))
            );
            (Part::Vram, what, vram, self.vram.budget)
        });
        let disk = missing.disk.map(|disk| {
            let lacking = disk.saturating_sub(self.disk.budget);
            let what = match self.disk.is_given {
                true => {
                    let (lacking, budget) = (size::human(lacking), size::human(self.disk.budget));
                    format!("disk ({lacking} more than the {budget} of --disk)")
                }
                false => self.no_room(lacking),
            };
            (Part::Disk, what, disk, self.disk.budget)
        });
        let flag = |name, bytes: Option<u64>| bytes.map(|bytes| (name, size::flag(bytes)));
        let memory: Vec<_> = flag("ram", missing.ram).into_iter().chain(flag("vram", missing.vram)).collect();
        let mut hints = match missing.disk {
            Some(_) if !self.disk.is_given => self.other_room(asked, &memory),
            disk => {
                let flags: Vec<_> = memory.into_iter().chain(flag("disk", disk)).collect();
                vec![format!("run: {}", asked.command.with_all(&flags))]
            }
        };
        if let Some(bytes) = self.more_vram(missing) {
            hints.push(format!("or:  {}", asked.command.with("vram", &size::flag(bytes))));
        }
        if missing.disk.is_none()
            && let Some(rows) = self.smaller_micro_batch(asked.is_new)
        {
            hints.push(format!("or:  {}", asked.command.with("micro-batch", &rows.to_string())));
        }
        let mut lacking = [ram, vram, disk].into_iter().flatten();
        let (part, mut what, need_bytes, have_bytes) = lacking.next().expect("a refusal names what is missing");
        for (_, also, need, have) in lacking {
            what = format!("{also} needs {need} bytes, has {have}; {what}");
        }
        Error::DoesNotFit { part, what, need_bytes, have_bytes, hint: Some(hints.join("\n")) }
    }

    /// VRAM that would hold what RAM alone is missing, or a disk without commits, if some of the GPU's would: what a
    /// GPU alone uses may live in any of them.
    fn more_vram(&self, missing: Missing) -> Option<u64> {
        self.settings.target().gpu()?;
        let lacking = match missing {
            Missing { ram: Some(ram), vram: None, disk: None } => ram.saturating_sub(self.ram.budget),
            Missing { ram: None, vram: None, disk: Some(disk) } => disk.saturating_sub(self.disk.budget),
            _ => return None,
        };
        let more = [1, 2].map(|times| (self.vram.budget + times * lacking).next_multiple_of(VRAM_STEP));
        more.into_iter()
            .filter(|budget| *budget <= self.rates.gpu.vram_bytes)
            .find(|&budget| Fit { vram: Vram { budget, ..self.vram }, ..*self }.roughly().is_ok())
    }

    /// The refusal of one volume that is too small, where all of them together are not.
    pub fn too_small(&self, volume: &Path, need_bytes: u64, asked: Asked<'_>) -> Error {
        let have_bytes = self.disk.budget;
        let stores = [volume.to_path_buf()];
        let what = Fit { stores: &stores, ..*self }.no_room(need_bytes.saturating_sub(have_bytes));
        let hint = Some(self.other_room(asked, &[]).join("\n"));
        Error::DoesNotFit { part: Part::Disk, what, need_bytes, have_bytes, hint }
    }

    fn no_room(&self, lacking: u64) -> String {
        let stores: Vec<String> = self.stores.iter().map(|store| store.display().to_string()).collect();
        let of = if stores.len() == 1 { "the volume" } else { "the volumes" };
        format!("the store (missing {} on {of} of {})", size::human(lacking), stores.join(", "))
    }

    /// What helps where volumes are too small: others, with what else is missing, or no commits, if that fits.
    fn other_room(&self, asked: Asked<'_>, also: &[(&str, String)]) -> Vec<String> {
        if !asked.is_new {
            let then = (!also.is_empty()).then(|| format!("then run: {}", asked.command.with_all(also)));
            return [Some("free that".to_owned()), then].into_iter().flatten().collect();
        }
        // Which volume is the user's to say: no command, lest a made-up path be made.
        let another = "--store /path/on/a/larger/volume";
        let another = match &self.settings.store[..] {
            [] => format!("add {another}"),
            _ => format!("{another} in place of what --store says now"),
        };
        let also: String = also.iter().map(|(flag, value)| format!("; and --{flag} {value}")).collect();
        let mut hints = vec![format!("free that, or use another volume: {another}{also}")];
        let volatile = Settings { durability: Durability::None, ..self.settings.clone() };
        if self.settings.durability == Durability::Full && (Fit { settings: &volatile, ..*self }).roughly().is_ok() {
            let mut flags = vec![("durability", "none".to_owned())];
            flags.extend((!asked.has_export).then(|| ("export", "DIR".to_owned())));
            flags.push(("ram", size::flag(self.ram.budget)));
            let gets = if asked.has_export { "" } else { ", where DIR gets the model" };
            hints.push(format!("or, without commits{gets}: {}", asked.command.with_all(&flags)));
        }
        hints
    }

    /// The largest smaller micro-batch that fits, if one does.
    fn smaller_micro_batch(&self, is_new: bool) -> Option<u64> {
        // The micro-batch is part of a run's identity.
        let mut rows = if is_new { self.micro_batch / 2 } else { 0 };
        while rows > 0 {
            let shapes = shapes(self.settings.batch, rows, self.shapes.seq as u64);
            if (Fit { shapes: &shapes, micro_batch: rows, ..*self }).roughly().is_ok() {
                return Some(rows);
            }
            rows /= 2;
        }
        None
    }
}
