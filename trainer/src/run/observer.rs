//! What a run tells its caller while it goes on, and what it asks: nothing else leaves the trainer, so that the caller
//! alone decides what a terminal, a file or another program gets to see.

use super::budget::Ram;
use super::metrics::{GpuRecord, StepRecord};
use crate::profile::Measured;
use crate::step::{GpuTimes, Prepared};
use crate::target::Target;
use mt_engine::plan::Prediction;
use std::path::PathBuf;

/// The caller of a run.
pub trait Observer {
    /// Whether to stop at the next resumable point. Asked between steps and, before the first, now and then.
    fn should_stop(&self) -> bool;
    /// Something happened.
    fn event(&mut self, event: &Event<'_>);
}

/// What happened.
#[derive(Debug)]
pub enum Event<'a> {
    /// A line that the user should know.
    Notice(&'a str),
    /// Everything is decided; nothing has moved yet.
    Planned(&'a Planned),
    /// Text is being turned into ids: bytes done, all bytes.
    Reading(u64, u64),
    /// Weights are being written to the store: bytes done, all bytes.
    Importing(u64, u64),
    /// A step is done.
    Step(&'a StepRecord),
    /// A state is durable, as far as this step.
    Committed(u64),
    /// The trained model was written to this folder.
    Exported(&'a std::path::Path),
    /// The steps are over.
    Ended(&'a Summary),
}

/// What a run is going to do.
#[derive(Clone, Debug)]
pub struct Planned {
    /// Folder of the run.
    pub run: PathBuf,
    /// Folders of the store, the lead first; none: everything is in RAM.
    pub stores: Vec<PathBuf>,
    /// Name of the model.
    pub model: String,
    /// Seed of its random first weights; None: they come from a checkpoint.
    pub random_seed: Option<u64>,
    /// Elements of the model.
    pub parameters: u64,
    /// Of them, those with weight decay.
    pub decayed: u64,
    /// Bytes of weights and moments.
    pub state_bytes: u64,
    /// Bytes of gradients.
    pub gradient_bytes: u64,
    /// Token ids in the data.
    pub data_tokens: u64,
    /// Whether ids are bytes, for want of a tokenizer.
    pub is_bytes: bool,
    /// Rows of the data.
    pub rows: u64,
    /// Ids of the last, incomplete row.
    pub dropped_tokens: u64,
    /// Rows of a step.
    pub batch: u64,
    /// Rows of a micro-batch.
    pub micro_batch: u64,
    /// Tokens of a row.
    pub seq_len: u64,
    /// Steps already in the state.
    pub first_step: u64,
    /// Steps of the whole run.
    pub total_steps: u64,
    /// Steps between commits; None: no commits.
    pub checkpoint_every: Option<u64>,
    /// Whether some layer is computed again in backward.
    pub recompute: bool,
    /// What computes layers and head.
    pub target: Target,
    /// CPU threads.
    pub threads: u64,
    /// RAM budget and its parts.
    pub ram: RamParts,
    /// Bytes of pages that stay in VRAM.
    pub vram_placed: u64,
    /// What a step is expected to cost.
    pub prediction: Prediction,
}

/// How the RAM of the process is divided. All in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RamParts {
    /// The budget.
    pub budget: u64,
    /// In use before the arena is touched, with a reserve for the engine's own tables and threads.
    pub base: u64,
    /// Working memory of the computation.
    pub workspace: u64,
    /// The engine's arena.
    pub arena: u64,
    /// Of the arena: what stays in RAM for good.
    pub placed: u64,
}

impl RamParts {
    pub(super) fn of(ram: &Ram, prepared: &Prepared) -> RamParts {
        RamParts {
            budget: ram.budget,
            base: ram.base,
            workspace: prepared.workspace_bytes,
            arena: prepared.arena_bytes,
            placed: prepared.steady.placed_bytes,
        }
    }
}

/// Why the steps ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// All steps are done.
    Done,
    /// A stop was asked for; a run with commits can be resumed.
    Stopped,
    /// There was nothing to do: all steps had been done before.
    Finished,
}

/// What a GPU did in the steps of a process: in those after the second, if there are any, else in the last. The first
/// has no update, and the second may wait for what it left behind.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct GpuShare {
    /// The steps that it is told of.
    pub steps: u64,
    /// Their wall time.
    pub seconds: f64,
    /// Where it went on the GPU.
    pub times: GpuTimes,
    /// Bytes copied to VRAM.
    pub upload_bytes: u64,
    /// Bytes copied from VRAM.
    pub download_bytes: u64,
}

impl GpuShare {
    /// Takes in the `number`th step of a process.
    pub(super) fn add(&mut self, number: u64, seconds: f64, step: &GpuRecord) {
        if number <= 3 {
            *self = GpuShare::default();
        }
        self.steps += 1;
        self.seconds += seconds;
        self.times.add(&step.times);
        self.upload_bytes += step.upload_bytes;
        self.download_bytes += step.download_bytes;
    }
}

/// VRAM that is in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VramUse {
    /// Bytes that were allowed.
    pub budget: u64,
    /// Bytes that context, libraries, workspace and pages take.
    pub used: u64,
}

/// How a run went.
#[derive(Clone, Debug)]
pub struct Summary {
    /// Why it ended.
    pub ending: Ending,
    /// Whether there are commits, so that it can go on after a stop.
    pub is_durable: bool,
    /// Folder of the run.
    pub run: PathBuf,
    /// Steps in the state now.
    pub step: u64,
    /// Steps of the whole run.
    pub total_steps: u64,
    /// Loss of the run's first step and of the last.
    pub losses: Option<(f64, f64)>,
    /// Steps of this process.
    pub steps_here: u64,
    /// Wall time of these steps.
    pub seconds: f64,
    /// Tokens of these steps.
    pub tokens: u64,
    /// RAM budget and its parts.
    pub ram: RamParts,
    /// Largest resident set of the process.
    pub peak_ram_bytes: u64,
    /// Bytes read from the volumes by these steps.
    pub disk_read_bytes: u64,
    /// Bytes written to the volumes by these steps, commits included.
    pub disk_write_bytes: u64,
    /// Of them, by commits.
    pub commit_bytes: u64,
    /// Seconds that the computation waited for pages.
    pub wait_seconds: f64,
    /// Why the steps took longer or less long than was planned, if they did.
    pub drift: Option<String>,
    /// What they measured of the machine.
    pub measured: Measured,
    /// What a GPU did, if one computes.
    pub gpu: Option<GpuShare>,
    /// VRAM in use after the last step: nothing gives any back before. None without a GPU.
    pub vram: Option<VramUse>,
    /// Text that the trained model writes, and the text it was given first.
    pub sample: Option<(String, String)>,
}
