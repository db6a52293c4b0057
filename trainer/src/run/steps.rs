//! The steps of one process on a run: from an open store to the last commit, or to a stop.
//!
//! Invariants: a state is committed only when it is complete; metrics of committed steps are durable before the commit;
//! what a commit holds does not depend on when the run was stopped.

use super::folder::RunFolder;
use super::inputs::Inputs;
use super::memory;
use super::metrics::{Metrics, StepRecord};
use super::note::NoteBase;
use super::observer::{Ending, Event, Observer};
use crate::error::{Error, Result};
use crate::step::{Outcome, Trainer};
use mt_engine::Stats;
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
    /// Start of the process.
    pub started: Instant,
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
        let mut committed = first;
        for step in first + 1..=self.inputs.total_steps {
            if observer.should_stop() || self.stop_at.is_some_and(|stop| step > stop) {
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
            steps.tokens += record.tokens;
            steps.last_loss = Some(record.loss);
            observer.event(&Event::Step(&record));
        }
        if steps.done > 0 {
            self.finish_state(&mut metrics, observer)?;
        }
        steps.seconds = begin.elapsed().as_secs_f64();
        steps.after = self.trainer.engine().stats();
        Ok(steps)
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
    fn finish_state(&mut self, metrics: &mut Metrics, observer: &mut dyn Observer) -> Result<()> {
        metrics.sync()?;
        let step = self.trainer.completed_steps();
        let note = self.checkpoint_every.map(|_| self.notes.at(step).encode());
        self.trainer.flush(note.as_deref())?;
        if note.is_some() {
            observer.event(&Event::Committed(step));
        }
        Ok(())
    }

    /// A step's gradient was not finite. The state of the step before is complete and not touched yet, unless its
    /// update is what failed: then the last commit stands. The error says which.
    fn stop_at_numeric(&mut self, error: Error, metrics: &mut Metrics) -> Error {
        let Error::Numeric { step, what } = error else { return error };
        if self.checkpoint_every.is_none() {
            return Error::Numeric { step, what: format!("{what}; nothing is kept (--durability none)") };
        }
        let complete = self.trainer.completed_steps();
        let note = self.notes.at(complete).encode();
        match metrics.sync().and_then(|()| self.trainer.flush(Some(&note))) {
            Ok(()) => Error::Numeric { step, what: format!("{what}; the state of step {complete} is committed") },
            Err(_) => Error::Numeric { step, what },
        }
    }
}
