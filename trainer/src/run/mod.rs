//! A run: a folder, a store and a loop of steps that goes on over any number of processes.
//!
//! What it is not: it computes nothing (`step` does) and prints nothing: an [`Observer`] gets what happens.
//!
//! Invariants: settings are written first, so that a run that was killed at any moment can go on; a commit's note holds
//! all that a resume needs beside the pages; a resumed run gives the numbers of one that was never stopped.

mod budget;
mod cadence;
mod command_line;
mod drift;
mod export;
mod files;
mod folder;
mod gpu;
mod history;
mod inputs;
mod inspect;
mod list;
mod lock;
mod metrics;
mod note;
mod observer;
mod plan;
mod processes;
mod resume;
mod sample;
pub mod size;
mod start;
mod steps;
mod store;
mod trace;
mod tracks;
mod train;
mod verify;
mod wanted;
mod writes;

pub use command_line::{CommandLine, quoted};
pub use export::{Export, MAX_SHARD_BYTES, export};
pub use folder::{REPORT, RunRecord};
pub use history::{History, history};
pub use inspect::{Inspection, Standing, inspect};
pub use list::{Removal, Removed, list, removal, remove};
pub use metrics::{GpuRecord, StepRecord};
pub use note::Note;
pub use observer::{Ending, Event, GpuShare, Observer, Planned, RamParts, Summary, VramUse};
pub use plan::{GpuPart, KeptCounts, Limits, More, Place, Question, Report, Step, Totals, WhatIf, plan, step_seconds};
pub use processes::{Last, Predicted, PredictedPhase, ProcessEnd, ProcessLine, ProcessStart};
pub use resume::{Changes, Resumed, resume};
pub use start::Process;
pub use trace::{ROOM as TRACE_ROOM, Traced};
pub use train::train;
pub use verify::{Verified, verify};
pub use wanted::{WantedByRun, planned_stores, wanted, wanted_by_run};

#[cfg(test)]
mod tests;
