//! What a plan on paper says: numbers alone, of which text, JSON and pages are made.

use crate::block::Level;
use crate::schedule::Kept;
use crate::step::PhaseTime;
use serde::Serialize;

/// The answer. All of it can be printed as JSON; bytes and seconds unless a name says otherwise.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Name of the model.
    pub model: String,
    /// Elements of the model.
    pub parameters: u64,
    /// Decoder layers.
    pub layers: usize,
    /// Hidden size.
    pub hidden: usize,
    /// Rows of the embedding.
    pub vocab: usize,
    /// Where the planned block differs from the model's own.
    pub note: String,
    /// Where the rates come from.
    pub profile: String,
    /// Sequences of a step.
    pub batch: u64,
    /// Sequences computed together.
    pub micro_batch: u64,
    /// Tokens of a sequence.
    pub seq_len: u64,
    /// CPU threads.
    pub threads: u64,
    /// Some layer is computed again in backward.
    pub recompute: bool,
    /// What is kept for backward.
    pub kept: KeptCounts,
    /// Updates run in backward, else in the next step's forward.
    pub update_in_backward: bool,
    /// Steps between commits; none: no commits.
    pub checkpoint_every: Option<u64>,
    /// The GPU; none: the processor computes.
    pub gpu: Option<GpuPart>,
    /// Budgets and needs.
    pub limits: Limits,
    /// What lives where.
    pub places: Vec<Place>,
    /// A step.
    pub step: Step,
    /// Seconds of the update alone, which comes once, at the end or at a stop; none with updates in backward.
    pub update_only_seconds: Option<f64>,
    /// The whole run; none where its length is not known.
    pub totals: Option<Totals>,
    /// A run of 1,000 steps; none where the length is known.
    pub thousand: Option<Totals>,
    /// The same with more tokens a step.
    pub more: Vec<More>,
    /// The same on another machine.
    pub what_if: Vec<WhatIf>,
}

/// What is kept between forward and backward.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct KeptCounts {
    /// Layers that keep all that the backward needs.
    pub all: usize,
    /// Layers that keep the attention half, and compute the MLP half again.
    pub attention: usize,
    /// Layers that keep their input alone.
    pub input: usize,
    /// The head keeps its logits.
    pub logits: bool,
}

impl KeptCounts {
    pub(super) fn of(kept: &Kept) -> KeptCounts {
        let [input, attention, all] = Level::EACH.map(|level| kept.count(level));
        KeptCounts { all, attention, input, logits: kept.logits }
    }
}

/// A GPU's part of a plan, in bytes.
#[derive(Clone, Debug, Serialize)]
pub struct GpuPart {
    /// Its number.
    pub device: u8,
    /// Its name, and what of its rates nobody measured.
    pub name: String,
    /// What its products compute in.
    pub precision: &'static str,
    /// VRAM of the process.
    pub vram: u64,
    /// Of it: context and libraries; assumed.
    pub vram_context: u64,
    /// Of it: the workspace, which holds a layer.
    pub vram_workspace: u64,
    /// Of it: pages that stay.
    pub vram_placed: u64,
    /// Of it: the window that the others pass through.
    pub vram_window: u64,
    /// The most that is in use at a time.
    pub vram_peak: u64,
    /// Parameters that it updates; the processor updates the others.
    pub updates: u64,
    /// Bytes of a step from RAM to VRAM.
    pub upload_bytes: u64,
    /// Bytes of a step from VRAM to RAM, commits apart.
    pub download_bytes: u64,
    /// Bytes up a parameter.
    pub up_per_parameter: f64,
    /// Bytes down a parameter.
    pub down_per_parameter: f64,
    /// Seconds of a step in which the GPU computes.
    pub compute_seconds: f64,
}

/// Budgets and needs, in bytes.
#[derive(Clone, Debug, Serialize)]
pub struct Limits {
    /// RAM of the process.
    pub ram: u64,
    /// Of it: the program itself, with a reserve.
    pub ram_program: u64,
    /// Of it: working memory of the computation, which holds a whole layer.
    pub ram_workspace: u64,
    /// Of it: pages and the store's records.
    pub ram_pages: u64,
    /// Of them: pages that stay.
    pub ram_placed: u64,
    /// The most that is in use at a time.
    pub ram_peak: u64,
    /// Space that the store takes; 0: no store.
    pub disk: u64,
    /// Drives.
    pub drives: u64,
}

/// Where a kind of state lives, in bytes.
#[derive(Clone, Debug, Serialize)]
pub struct Place {
    /// What it is.
    pub what: &'static str,
    /// All of it.
    pub bytes: u64,
    /// Stays in VRAM.
    pub in_vram: u64,
    /// Stays in RAM.
    pub in_ram: u64,
    /// Passes through RAM from and to the drives.
    pub streamed: u64,
    /// Space on the drives, copies included.
    pub on_disk: u64,
}

/// A predicted step.
#[derive(Clone, Debug, Serialize)]
pub struct Step {
    /// Its time.
    pub seconds: f64,
    /// No plan with this traffic can be faster on this profile.
    pub lower_bound_seconds: f64,
    /// Tokens a second.
    pub tokens_per_s: f64,
    /// Its time by phase.
    pub phases: Vec<PhaseTime>,
    /// Bytes read.
    pub disk_read_bytes: u64,
    /// Bytes written, commits apart.
    pub disk_write_bytes: u64,
    /// Bytes written by a commit for pages that stay in RAM or VRAM.
    pub commit_bytes: u64,
    /// Time that a commit adds to the run; the step's has its share.
    pub commit_seconds: f64,
    /// Bytes read a parameter.
    pub read_per_parameter: f64,
    /// Bytes written a parameter, commits apart.
    pub written_per_parameter: f64,
}

/// A whole run.
#[derive(Clone, Debug, Serialize)]
pub struct Totals {
    /// Token ids of the data; none without data.
    pub data_tokens: Option<u64>,
    /// They are an estimate from the files' size.
    pub is_estimated: bool,
    /// Steps.
    pub steps: u64,
    /// Time, with the last update.
    pub seconds: f64,
    /// Bytes written, import, commits and the last update included.
    pub written_bytes: u64,
    /// Steps after which `--max-writes` stops the run, about; none where it does not.
    pub stopped_after: Option<u64>,
    /// Share of each drive's rated life, in percent; none where the rating is not known.
    pub drive_life_percent: Option<f64>,
}

/// The plan with more tokens a step.
#[derive(Clone, Debug, Serialize)]
pub struct More {
    /// Times the sequences.
    pub times: u64,
    /// Tokens of a step.
    pub tokens: u64,
    /// Time of a step; none: it does not fit.
    pub seconds: Option<f64>,
    /// Tokens a second.
    pub tokens_per_s: Option<f64>,
}

/// The plan on another machine.
#[derive(Clone, Debug, Serialize)]
pub struct WhatIf {
    /// What would be different.
    pub change: String,
    /// Times as fast.
    pub times_faster: f64,
}

impl Report {
    /// Tokens of a step.
    pub fn tokens(&self) -> u64 {
        self.batch * self.seq_len
    }
}
