//! Everything that a run's folder tells of its past, for a report. Reads files alone: a run that goes on may be asked.

use super::folder::PROCESSES;
use super::inspect::{self, Inspection};
use super::metrics::{self, StepRecord};
use super::processes::{self, ProcessLine};
use crate::error::Result;
use std::path::Path;

/// A run's past.
#[derive(Clone, Debug)]
pub struct History {
    /// What it is and where it stands.
    pub inspection: Inspection,
    /// Its steps.
    pub steps: Vec<StepRecord>,
    /// Beginnings and ends of its processes; none of those that an older version ran.
    pub processes: Vec<ProcessLine>,
}

/// Reads a run's past.
///
/// # Errors
/// The path is no run, or its settings do not read.
pub fn history(run: &Path) -> Result<History> {
    Ok(History {
        inspection: inspect::look(run)?,
        steps: metrics::read(&run.join("metrics.jsonl")),
        processes: processes::read(&run.join(PROCESSES)),
    })
}
