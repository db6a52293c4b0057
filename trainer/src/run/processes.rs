//! `processes.jsonl`: what each process on a run was going to do, and how it ended. A line of JSON when its steps
//! begin, one when they are over; a process that was killed has only the first.
//!
//! Beside `metrics.jsonl`, which has the steps: what the steps' lines leave out, the last update and commit, stands in
//! the second line, so that both files together hold every byte that the run's steps moved. Nothing depends on this
//! file; lines that do not read are passed over.

use super::observer::{Planned, RamParts};
use crate::error::{Error, Result};
use crate::settings::Settings;
use crate::step::{PhaseTime, Prepared};
use serde::{Deserialize, Serialize};
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// A line.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum ProcessLine {
    /// The steps begin.
    Start(Box<ProcessStart>),
    /// They are over.
    End(ProcessEnd),
}

/// What a process was going to do.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ProcessStart {
    /// Seconds since 1970.
    pub unix_seconds: u64,
    /// Version of the program.
    pub version: String,
    /// Steps already in the state.
    pub first_step: u64,
    /// Steps of the whole run.
    pub total_steps: u64,
    /// Name of the model.
    pub model: String,
    /// Its elements.
    pub parameters: u64,
    /// Rows of a micro-batch.
    pub micro_batch: u64,
    /// Steps between commits; none: no commits.
    pub checkpoint_every: Option<u64>,
    /// RAM of the process, in bytes.
    pub ram_bytes: u64,
    /// Folders of the store, the lead first; none: all in RAM.
    pub stores: Vec<PathBuf>,
    /// Where the rates come from.
    pub profile: String,
    /// What a step was expected to cost.
    pub predicted: Predicted,
    /// The settings in force.
    pub settings: Settings,
}

/// What a step was expected to cost. Bytes and seconds.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Predicted {
    /// Its time.
    pub seconds: f64,
    /// No plan with its traffic can be faster.
    pub lower_bound_seconds: f64,
    /// Read.
    pub disk_read_bytes: u64,
    /// Written, commits apart.
    pub disk_write_bytes: u64,
    /// Written by a commit for pages that stay in RAM.
    pub commit_bytes: u64,
    /// Largest resident set of the process.
    pub peak_ram_bytes: u64,
    /// Its time by phase.
    pub phases: Vec<PredictedPhase>,
}

/// A phase's share of a predicted step.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PredictedPhase {
    /// Name of the phase.
    pub phase: String,
    /// Computing.
    pub compute_seconds: f64,
    /// Waiting for pages.
    pub wait_seconds: f64,
}

impl Predicted {
    pub(super) fn of(prepared: &Prepared, ram: &RamParts) -> Predicted {
        let prediction = &prepared.prediction;
        let pages = prepared.steady.placed_bytes + prepared.steady.window_bytes;
        // The waits of a phase are told as they were simulated, its whole time over many steps.
        let phase = |time: PhaseTime| PredictedPhase {
            phase: time.phase.name().to_owned(),
            compute_seconds: (time.seconds - time.wait_seconds).max(0.0),
            wait_seconds: time.wait_seconds,
        };
        Predicted {
            seconds: prediction.seconds,
            lower_bound_seconds: prediction.lower_bound_seconds,
            disk_read_bytes: prediction.disk.read_bytes,
            disk_write_bytes: prediction.disk.write_bytes,
            commit_bytes: prediction.disk.commit_bytes,
            peak_ram_bytes: ram.base + ram.workspace + (ram.arena - pages) + prediction.peak_host_bytes,
            phases: prepared.phases().into_iter().map(phase).collect(),
        }
    }

    /// Seconds of computation, of updates, and of waiting.
    pub(super) fn parts(&self) -> (f64, f64, f64) {
        let update =
            self.phases.iter().filter(|phase| phase.phase == "update").map(|phase| phase.compute_seconds).sum();
        let all: f64 = self.phases.iter().map(|phase| phase.compute_seconds).sum();
        (all - update, update, self.phases.iter().map(|phase| phase.wait_seconds).sum())
    }
}

impl ProcessStart {
    pub(super) fn new(planned: &Planned, predicted: Predicted, profile: String, settings: &Settings) -> ProcessStart {
        ProcessStart {
            unix_seconds: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            first_step: planned.first_step,
            total_steps: planned.total_steps,
            model: planned.model.clone(),
            parameters: planned.parameters,
            micro_batch: planned.micro_batch,
            checkpoint_every: planned.checkpoint_every,
            ram_bytes: planned.ram.budget,
            stores: planned.stores.clone(),
            profile,
            predicted,
            settings: settings.clone(),
        }
    }
}

/// How a process ended.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ProcessEnd {
    /// Steps done, as far as the process came.
    pub step: u64,
    /// Why: done, stopped, or the error.
    pub ending: String,
    /// Wall time of the steps, the last update and commit included.
    pub seconds: f64,
    /// What came after the last step's line.
    pub last: Last,
    /// Why the steps took longer or less long than was planned, if they did.
    pub drift: Option<String>,
}

/// The last update and commit of a process. Bytes and seconds.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Last {
    /// Their time.
    pub seconds: f64,
    /// Read.
    pub disk_read_bytes: u64,
    /// Written, the commit included.
    pub disk_write_bytes: u64,
    /// Of it: by the commit.
    pub commit_bytes: u64,
}

/// Appends a line.
///
/// # Errors
/// `Io`.
pub(super) fn append(path: &Path, line: &ProcessLine) -> Result<()> {
    let write = || -> std::io::Result<()> {
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
        let mut last = [b'\n'];
        if let Some(end) = file.metadata()?.len().checked_sub(1) {
            file.read_exact_at(&mut last, end)?;
        }
        // A line that a crash tore ends here.
        let mut text = if last == [b'\n'] { Vec::new() } else { vec![b'\n'] };
        serde_json::to_writer(&mut text, line)?;
        text.push(b'\n');
        file.write_all(&text)
    };
    write().map_err(|source| Error::io(path, "writing", source))
}

/// The lines that read, in order.
pub(super) fn read(path: &Path) -> Vec<ProcessLine> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_line_costs_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("processes.jsonl");
        let line = |step| {
            let (ending, last) = ("done".to_owned(), Last::default());
            ProcessLine::End(ProcessEnd { step, ending, seconds: 0.5, last, drift: None })
        };
        append(&path, &line(1)).unwrap();
        let mut text = std::fs::read(&path).unwrap();
        text.extend_from_slice(b"{\"event\":\"sta");
        std::fs::write(&path, text).unwrap();
        append(&path, &line(2)).unwrap();
        assert_eq!(read(&path), [line(1), line(2)]);
        assert!(read(&dir.path().join("none")).is_empty());
    }
}
