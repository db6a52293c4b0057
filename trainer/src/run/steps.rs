//! The steps of one process on a run: from an open store to the last commit, or to a stop.
//!
//! Invariants: a state is committed only when it is complete; metrics of committed steps are durable before the commit;
//! what a commit holds does not depend on when the run was stopped.

use super::folder::RunFolder;
use super::inputs::Inputs;
use super::memory;
use super::metrics::{Metrics, StepRecord};
use super::note::{Note, NoteBase};
use super::observer::{Ending, Event, Observer};
use super::size;
use crate::error::{Error, Result};
use crate::step::{Outcome, Trainer};
use mt_engine::{CommitId, Stats};
use std::time::Instant;

/// One process's steps.
pub(super) struct Steps<'a> {
    pub folder: &'a RunFolder,
    pub inputs: &'a Inputs,
    pub trainer: Trainer,
    pub notes: NoteBase,
    /// StepsDone between commits; None: no commits.
    pub checkpoint_every: Option<u64>,
    /// Step after which to stop.
    pub stop_at: Option<u64>,
    /// Bound on what the store may write.
    pub writes: Option<Writes>,
    /// Start of the process.
    pub started: Instant,
}

/// A bound on what a store may write over its life, and what steps write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Writes {
    /// The bound.
    pub max: u64,
    /// Written before this process, by the store's ledger.
    pub before: u64,
    /// Predicted for a step, with a commit.
    pub step: u64,
    /// Predicted for the update and the commit at a stop.
    pub last: u64,
}

impl Writes {
    /// Bytes that the store has written once it stops after another step; `measured` are those of this process and of
    /// its last step.
    fn after_another(&self, measured: (u64, u64)) -> u64 {
        self.before + measured.0 + self.step.max(measured.1) + self.last
    }
}

/// What the steps of this process came to.
#[derive(Clone, Copy, Debug)]
pub(super) struct StepsDone {
    pub ending: Ending,
    pub done: u64,
    pub seconds: f64,
    pub tokens: u64,
    pub before: Stats,
    pub after: Stats,
    pub last_loss: Option<f64>,
}

impl Steps<'_> {
    /// Runs the steps that are left, applies the last update and commits.
    ///
    /// # Errors
    /// `Numeric` after committing the last good state, if it could be; those of the trainer.
    pub fn run(&mut self, observer: &mut dyn Observer) -> Result<StepsDone> {
        let first = self.trainer.completed_steps();
        let mut metrics = Metrics::open(&self.folder.metrics(), first)?;
        let begin = Instant::now();
        let mut steps = StepsDone {
            ending: Ending::Done,
            done: 0,
            seconds: 0.0,
            tokens: 0,
            before: self.trainer.engine().stats(),
            after: Stats::default(),
            last_loss: None,
        };
        let (mut committed, mut last_step) = (first, 0);
        let mut told = self.trainer.engine().committed().map(|(commit, _)| commit);
        for step in first + 1..=self.inputs.total_steps {
            if observer.should_stop() || self.stop_at.is_some_and(|stop| step > stop) {
                steps.ending = Ending::Stopped;
                break;
            }
            if let Some(writes) = self.writes
                && writes.after_another((self.written(), last_step)) > writes.max
            {
                let written = size::human(writes.before + self.written());
                observer.event(&Event::Notice(&format!(
                    "the store has written {written}; with another step it might write more than --max-writes, {}",
                    size::human(writes.max)
                )));
                steps.ending = Ending::Stopped;
                break;
            }
            // The commit of the step before happens within this one, after its update.
            let commit = self.is_due(step - 1) && step - 1 > committed;
            let record = self.step(step, commit, &mut metrics, steps.done == 0)?;
            if commit {
                committed = step - 1;
            }
            steps.done += 1;
            last_step = record.disk_write_bytes;
            steps.tokens += record.tokens;
            steps.last_loss = Some(record.loss);
            observer.event(&Event::Step(&record));
            self.tell_committed(&mut told, observer);
        }
        if steps.done > 0 {
            self.finish_state(&mut metrics)?;
            self.tell_committed(&mut told, observer);
        }
        steps.seconds = begin.elapsed().as_secs_f64();
        steps.after = self.trainer.engine().stats();
        Ok(steps)
    }

    /// Bytes that this process has written to the store.
    fn written(&self) -> u64 {
        self.trainer.engine().stats().disk_write_bytes
    }

    fn is_due(&self, step: u64) -> bool {
        self.checkpoint_every.is_some_and(|every| step.is_multiple_of(every))
    }

    /// One step and its line.
    fn step(&mut self, step: u64, commit: bool, metrics: &mut Metrics, is_first: bool) -> Result<StepRecord> {
        let begin = Instant::now();
        let before = self.trainer.engine().stats();
        let batch = self.inputs.data.batch(step)?;
        let lr = self.inputs.lr.at(step);
        if commit {
            metrics.sync()?;
        }
        let note = commit.then(|| self.notes.at(step - 1).encode());
        let outcome = match self.trainer.step(&batch, lr, note.as_deref()) {
            Ok(outcome) => outcome,
            Err(error @ Error::Numeric { .. }) => return Err(self.stop_at_numeric(error, metrics)),
            Err(error) => return Err(error),
        };
        let record = self.record(step, lr, &outcome, begin, before, is_first);
        metrics.append(&record)?;
        Ok(record)
    }

    fn record(
        &self,
        step: u64,
        lr: f64,
        outcome: &Outcome,
        begin: Instant,
        before: Stats,
        is_first: bool,
    ) -> StepRecord {
        let after = self.trainer.engine().stats();
        StepRecord {
            step,
            loss: outcome.loss,
            grad_norm: outcome.grad_norm,
            lr,
            tokens: outcome.tokens,
            seconds: begin.elapsed().as_secs_f64(),
            disk_read_bytes: after.disk_read_bytes - before.disk_read_bytes,
            disk_write_bytes: after.disk_write_bytes - before.disk_write_bytes,
            peak_ram_bytes: memory::peak_bytes(),
            time_to_first_step: is_first.then(|| self.started.elapsed().as_secs_f64()),
        }
    }

    /// Applies the pending update and, with commits, makes the state durable.
    fn finish_state(&mut self, metrics: &mut Metrics) -> Result<()> {
        metrics.sync()?;
        let step = self.trainer.completed_steps();
        let note = self.checkpoint_every.map(|_| self.notes.at(step).encode());
        self.trainer.flush(note.as_deref()).map_err(|error| self.with_standing(error))
    }

    /// A numeric stop whose state could not be committed, with the commit that stands.
    fn with_standing(&self, error: Error) -> Error {
        let Error::Numeric { step, what } = error else { return error };
        let stands = match self.trainer.engine().committed() {
            Some((_, note)) => format!("the commit of step {} stands", step_of(&note)),
            None => "nothing is kept (--durability none)".to_owned(),
        };
        Error::Numeric { step, what: format!("{what}; {stands}") }
    }

    /// Tells of the newest commit that is durable, once. `told` is the one that was told of last.
    fn tell_committed(&self, told: &mut Option<CommitId>, observer: &mut dyn Observer) {
        let Some((commit, note)) = self.trainer.engine().committed() else { return };
        if told.replace(commit) != Some(commit) {
            observer.event(&Event::Committed(step_of(&note)));
        }
    }

    /// A step's gradient was not finite. The state of the step before is complete and not touched yet, unless its
    /// update is what failed: then the last commit stands. The error says which.
    fn stop_at_numeric(&mut self, error: Error, metrics: &mut Metrics) -> Error {
        let Error::Numeric { step, what } = error else { return error };
        if self.checkpoint_every.is_none() {
            return self.with_standing(Error::Numeric { step, what });
        }
        let complete = self.trainer.completed_steps();
        let note = self.notes.at(complete).encode();
        match metrics.sync().and_then(|()| self.trainer.flush(Some(&note))) {
            Ok(()) => Error::Numeric { step, what: format!("{what}; the state of step {complete} is committed") },
            Err(_) => self.with_standing(Error::Numeric { step, what }),
        }
    }
}

/// Step of a commit that this process made or opened.
fn step_of(note: &[u8]) -> u64 {
    Note::decode(note).expect("notes of a run are read or made by this program").step
}
