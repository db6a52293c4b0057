//! `metrics.jsonl`: a line of JSON for each step. What came later than the first version may be missing in a line. The
//! last update and commit of a process come after its last step: they stand in `processes.jsonl`.
//!
//! Invariant: when a commit of step N is durable, so are the lines up to N. Lines of later steps, and a last line that
//! a crash tore, are cut off when the run resumes.

use crate::error::{Error, Result};
use crate::step::{GpuTimes, StepTimes};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

/// One step.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct StepRecord {
    /// Counted from 1.
    pub step: u64,
    /// Mean over the step's targets, before its update.
    pub loss: f64,
    /// Global norm before clipping; None with clipping off.
    pub grad_norm: Option<f64>,
    /// Learning rate of the step's update.
    pub lr: f64,
    /// Tokens that went through the model.
    pub tokens: u64,
    /// Wall time.
    pub seconds: f64,
    /// Bytes read from the volumes during the step.
    pub disk_read_bytes: u64,
    /// Bytes written to the volumes during the step.
    pub disk_write_bytes: u64,
    /// Of the bytes written: by a commit, for pages that stay in RAM and for the store's records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit_bytes: Option<u64>,
    /// Largest resident set of the process so far.
    pub peak_ram_bytes: u64,
    /// Seconds from the start of the process to the end of its first step; on that step's line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_to_first_step: Option<f64>,
    /// Seconds in which anything was being read from the volumes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_read_seconds: Option<f64>,
    /// Seconds in which anything was being written to the volumes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_write_seconds: Option<f64>,
    /// Where the step's time went: the processor's, with a GPU that of the thread that gives it work.
    #[serde(flatten)]
    pub times: Option<StepTimes>,
    /// What a GPU did, if one computes.
    #[serde(flatten)]
    pub gpu: Option<GpuRecord>,
}

/// A step on a GPU.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct GpuRecord {
    /// Bytes copied to VRAM.
    pub upload_bytes: u64,
    /// Bytes copied from VRAM.
    pub download_bytes: u64,
    /// Seconds in which anything was on its way to VRAM.
    pub upload_seconds: f64,
    /// Seconds in which anything was on its way from VRAM.
    pub download_seconds: f64,
    /// Seconds in which the stream of the computation had work.
    pub gpu_busy_seconds: f64,
    /// Of the step's wall time.
    pub gpu_busy_share: f64,
    /// Where the time went on the GPU.
    #[serde(flatten)]
    pub times: GpuTimes,
}

/// The file, open for appending.
#[derive(Debug)]
pub struct Metrics {
    path: PathBuf,
    file: File,
}

impl Metrics {
    /// Opens the file, creating it if needed, and cuts it back to the lines of steps up to `step`.
    pub fn open(path: &Path, step: u64) -> Result<Metrics> {
        let fail = |source| Error::io(path, "opening", source);
        let file = OpenOptions::new().read(true).append(true).create(true).open(path).map_err(fail)?;
        let kept = kept_bytes(BufReader::new(&file), step).map_err(|source| Error::io(path, "reading", source))?;
        file.set_len(kept).map_err(|source| Error::io(path, "cutting back", source))?;
        Ok(Metrics { path: path.to_owned(), file })
    }

    /// Appends a line.
    pub fn append(&mut self, record: &StepRecord) -> Result<()> {
        let mut line = serde_json::to_vec(record).expect("a record holds only numbers");
        line.push(b'\n');
        self.file.write_all(&line).map_err(|source| Error::io(&self.path, "writing", source))
    }

    /// Makes the lines durable.
    pub fn sync(&self) -> Result<()> {
        self.file.sync_data().map_err(|source| Error::io(&self.path, "syncing", source))
    }
}

/// All whole lines of a file; none if there is no file.
pub fn read(path: &Path) -> Vec<StepRecord> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map_while(|line| serde_json::from_str(line).ok()).collect()
}

/// Length of the leading lines that are whole, readable, and of steps up to `step`.
fn kept_bytes(mut reader: impl BufRead, step: u64) -> std::io::Result<u64> {
    let mut kept = 0;
    let mut line = Vec::new();
    loop {
        line.clear();
        let bytes = reader.read_until(b'\n', &mut line)?;
        let whole = line.ends_with(b"\n");
        match serde_json::from_slice::<StepRecord>(&line) {
            Ok(record) if whole && record.step <= step => kept += bytes as u64,
            _ => return Ok(kept),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(step: u64) -> StepRecord {
        StepRecord {
            step,
            loss: 2.5,
            grad_norm: None,
            lr: 1e-3,
            tokens: 512,
            seconds: 0.5,
            disk_read_bytes: 1,
            disk_write_bytes: 2,
            commit_bytes: Some(1),
            peak_ram_bytes: 3,
            time_to_first_step: (step == 1).then_some(1.5),
            disk_read_seconds: Some(0.25),
            disk_write_seconds: None,
            times: (step != 2).then(|| StepTimes { update_seconds: 0.1, ..StepTimes::default() }),
            gpu: (step == 3).then(|| GpuRecord {
                upload_bytes: 7,
                times: GpuTimes { gpu_loss_seconds: 0.5, ..GpuTimes::default() },
                ..GpuRecord::default()
            }),
        }
    }

    #[test]
    fn lines_after_the_commit_and_torn_ones_are_cut_off() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.jsonl");
        let mut metrics = Metrics::open(&path, 0).unwrap();
        for step in 1..=4 {
            metrics.append(&record(step)).unwrap();
        }
        metrics.file.write_all(b"{\"step\":5,\"lo").unwrap();
        drop(metrics);

        drop(Metrics::open(&path, 9).unwrap());
        assert_eq!(read(&path).len(), 4);
        let mut metrics = Metrics::open(&path, 2).unwrap();
        metrics.append(&record(3)).unwrap();
        assert_eq!(read(&path), [record(1), record(2), record(3)]);
        assert!(std::fs::read_to_string(&path).unwrap().ends_with('\n'));
    }

    #[test]
    fn lines_of_the_first_version_read() {
        let line = "{\"step\":2,\"loss\":5.5,\"grad_norm\":null,\"lr\":0.01,\"tokens\":32,\"seconds\":0.5,\
                    \"disk_read_bytes\":1,\"disk_write_bytes\":2,\"peak_ram_bytes\":3}";
        let read: StepRecord = serde_json::from_str(line).unwrap();
        assert_eq!((read.step, read.commit_bytes, read.disk_read_seconds, read.times), (2, None, None, None));
        assert_eq!(read.gpu, None);
    }

    #[test]
    fn first_step_time_is_on_its_line_alone() {
        let line = |step| serde_json::to_string(&record(step)).unwrap();
        assert!(line(1).contains("time_to_first_step") && !line(2).contains("time_to_first_step"));
        assert!(line(2).contains("\"grad_norm\":null"));
    }
}
