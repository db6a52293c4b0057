//! The RAM of the whole process: what is in use already, the workspace of the computation, and the arena, which gets
//! the rest. What does not fit is refused with a command that does.

use super::cadence;
use super::command_line::CommandLine;
use super::inputs::{Inputs, micro_rows};
use super::memory;
use super::size;
use crate::error::{Error, Result};
use crate::settings::{Auto, Durability, Settings};
use crate::step::{Options, Prepared, Shapes, prepare};
use mt_engine::Profile;

/// For the engine's tables, rings and threads, which come after the base is measured.
const RESERVE: u64 = 8 << 20;
/// For the stack and the beginnings of the heap of a compute thread, beside what kernels take: 44 and about 60 KiB.
const THREAD: u64 = 128 << 10;
/// Added to the smallest budget before it is suggested: the base differs a little from start to start.
const SLACK: u64 = 1 << 20;

/// RAM of the process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ram {
    /// The budget.
    pub budget: u64,
    /// In use before the arena is touched, with the reserve.
    pub base: u64,
    /// What `auto` found, if it decided.
    pub auto: Option<memory::Available>,
}

impl Ram {
    /// Measures the base now: data must be read and the tokenizer dropped, the arena not made.
    pub fn measure(settings: &Settings) -> Ram {
        let base = memory::resident_bytes() + RESERVE + settings.threads * THREAD;
        match settings.ram {
            Auto::Value(budget) => Ram { budget, base, auto: None },
            Auto::Auto => {
                let available = memory::available();
                Ram { budget: available.bytes, base, auto: Some(available) }
            }
        }
    }
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

/// Plans the run within the budget.
///
/// # Errors
/// `DoesNotFit` with the bytes that are missing and commands that fit; a smaller micro-batch only if the run has none
/// yet.
pub(super) fn fit(
    inputs: &Inputs,
    settings: &Settings,
    ram: &Ram,
    command: &CommandLine,
    is_new: bool,
) -> Result<Fitted> {
    let fit = Fit { inputs, settings, ram, is_new };
    match fit.within(&inputs.shapes) {
        Err(Error::DoesNotFit { need_bytes, .. }) => Err(fit.refusal(need_bytes, command)),
        other => other,
    }
}

struct Fit<'a> {
    inputs: &'a Inputs,
    settings: &'a Settings,
    ram: &'a Ram,
    is_new: bool,
}

impl Fit<'_> {
    fn within(&self, shapes: &Shapes) -> Result<Fitted> {
        match self.settings.durability {
            Durability::Full => self.durable(shapes),
            Durability::None => {
                let in_ram = self.prepare(shapes, false, 0);
                let (prepared, has_disk) = match in_ram {
                    Err(Error::DoesNotFit { .. }) => (self.prepare(shapes, true, 0)?, true),
                    other => (other?, false),
                };
                Ok(Fitted { prepared, has_disk, checkpoint_every: None })
            }
        }
    }

    /// With commits: how often decides what is placed in RAM, and what is placed decides what a commit costs. Placing
    /// is planned for a commit at every step first, then once more for the interval that this gives.
    fn durable(&self, shapes: &Shapes) -> Result<Fitted> {
        let every = match self.settings.checkpoint_every {
            Auto::Value(every) => every,
            Auto::Auto => {
                let planned = self.prepare(shapes, true, 1)?.prediction;
                let rate = Profile::default().disk_write_bytes_per_s;
                cadence::checkpoint_every(planned.seconds, planned.disk.commit_bytes, rate)
            }
        };
        let prepared = self.prepare(shapes, true, u32::try_from(every).unwrap_or(u32::MAX))?;
        Ok(Fitted { prepared, has_disk: true, checkpoint_every: Some(every) })
    }

    fn prepare(&self, shapes: &Shapes, has_disk: bool, sweeps_per_commit: u32) -> Result<Prepared> {
        let settings = self.settings;
        let options = Options {
            recompute: settings.recompute,
            // An update that comes before the whole gradient is known to be finite needs a commit to go back to.
            fused_backward: settings.max_grad_norm.is_none() && settings.durability == Durability::Full,
            durable: settings.durability == Durability::Full,
            has_disk,
            page_elements: settings.page.value().map(|elements| elements as usize),
            sweeps_per_commit,
            threads: settings.threads as usize,
            profile: Profile::default(),
            prefetch_intervals_max: None,
            budget_bytes: Some(self.ram.budget.saturating_sub(self.ram.base)),
            disk_bytes: u64::MAX,
        };
        prepare(&self.inputs.model.config, &self.inputs.model.manifest, shapes, &options)
    }

    /// The refusal: bytes of the whole process, and the commands that fit.
    fn refusal(&self, need_bytes: u64, command: &CommandLine) -> Error {
        let whole = self.ram.base + need_bytes + SLACK;
        let mut hint = format!("run: {}", command.with("ram", &size::flag(whole)));
        if let Some(rows) = self.smaller_micro_batch() {
            hint.push_str(&format!("\nor:  {}", command.with("micro-batch", &rows.to_string())));
        }
        Error::DoesNotFit {
            what: format!(
                "RAM ({} of {} for the program itself; missing {})",
                size::human(self.ram.base),
                size::human(self.ram.budget),
                size::human(whole.saturating_sub(self.ram.budget))
            ),
            need_bytes: whole,
            have_bytes: self.ram.budget,
            hint: Some(hint),
        }
    }

    /// The largest smaller micro-batch that fits, if one does.
    fn smaller_micro_batch(&self) -> Option<u64> {
        // The micro-batch is part of a run's identity.
        let mut rows = if self.is_new { self.inputs.micro_batch / 2 } else { 0 };
        while rows > 0 {
            let micro_rows = micro_rows(self.settings.batch, rows);
            let shapes = Shapes { rows_per_micro: rows as usize, micro_rows, seq: self.inputs.shapes.seq };
            if self.within(&shapes).is_ok() {
                return Some(rows);
            }
            rows /= 2;
        }
        None
    }
}
