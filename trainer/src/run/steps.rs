//! The steps of one process on a run: from an open store to the last commit, or to a stop.
//!
//! Invariants: a state is committed only when it is complete; metrics of committed steps are durable before the commit;
//! what a commit holds does not depend on when the run was stopped.

use super::drift::Drift;
use super::folder::RunFolder;
use super::inputs::Inputs;
use super::metrics::{GpuRecord, Metrics, StepRecord};
use super::note::{Note, NoteBase};
use super::observer::{Ending, Event, GpuShare, Observer};
use super::processes::{self, Last, ProcessEnd, ProcessLine, ProcessStart};
use super::size;
use super::trace::Trace;
use super::writes::Writes;
use crate::error::{Error, Result};
use crate::profile::Measured;
use crate::ram;
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
    /// What goes into the run's history.
    pub start: ProcessStart,
    /// The steps beside their plan.
    pub drift: Drift,
    /// A timeline, if one is wanted.
    pub trace: Option<Trace>,
}

/// What the steps of this process came to.
#[derive(Clone, Debug)]
pub(super) struct StepsDone {
    pub ending: Ending,
    pub done: u64,
    pub seconds: f64,
    pub tokens: u64,
    pub before: Stats,
    pub after: Stats,
    pub last_loss: Option<f64>,
    pub drift: Option<String>,
    pub measured: Measured,
    pub gpu: Option<GpuShare>,
}

/// Where a process stands when its steps are over, for its line in the history.
#[derive(Clone, Copy, Default)]
struct Stand {
    /// At its last step's line.
    at_line: Stats,
    /// From that line on.
    since_line: Option<Instant>,
}

impl Steps<'_> {
    /// Runs the steps that are left, applies the last update and commits. Then writes down how it went, whatever ended
    /// it.
    ///
    /// # Errors
    /// `Numeric` after committing the last good state, if it could be; those of the trainer.
    pub fn run(&mut self, observer: &mut dyn Observer) -> Result<StepsDone> {
        let begin = Instant::now();
        // The metrics come first: they say that the run has begun.
        let metrics = Metrics::open(&self.folder.metrics(), self.trainer.completed_steps())?;
        processes::append(&self.folder.processes(), &ProcessLine::Start(Box::new(self.start.clone())))?;
        let mut stand = Stand { at_line: self.trainer.engine().stats(), since_line: None };
        let result = self.run_all(metrics, &mut stand, observer);
        let end = ProcessLine::End(self.end(&result, &stand, begin));
        // A run that came to its end is not undone by what is written of it.
        if let Err(error) = processes::append(&self.folder.processes(), &end) {
            observer.event(&Event::Notice(&error.to_string()));
        }
        if let Some(trace) = self.trace.take() {
            let told = trace.write(&self.trainer, self.folder.shown()).unwrap_or_else(|error| error.to_string());
            observer.event(&Event::Notice(&told));
        }
        result
    }

    /// The line of the process's end.
    fn end(&self, result: &Result<StepsDone>, stand: &Stand, begin: Instant) -> ProcessEnd {
        let (now, then) = (self.trainer.engine().stats(), stand.at_line);
        ProcessEnd {
            step: self.trainer.completed_steps(),
            ending: match result {
                Ok(StepsDone { ending: Ending::Stopped, .. }) => "stopped".to_owned(),
                Ok(_) => "done".to_owned(),
                Err(error) => error.to_string(),
            },
            seconds: begin.elapsed().as_secs_f64(),
            last: Last {
                seconds: stand.since_line.map_or(0.0, |since| since.elapsed().as_secs_f64()),
                disk_read_bytes: now.disk_read_bytes - then.disk_read_bytes,
                disk_write_bytes: now.disk_write_bytes - then.disk_write_bytes,
                commit_bytes: now.commit_bytes - then.commit_bytes,
            },
            drift: self.drift.at_end(),
        }
    }

    fn run_all(&mut self, mut metrics: Metrics, stand: &mut Stand, observer: &mut dyn Observer) -> Result<StepsDone> {
        let first = self.trainer.completed_steps();
        let begin = Instant::now();
        let mut steps = StepsDone {
            ending: Ending::Done,
            done: 0,
            seconds: 0.0,
            tokens: 0,
            before: self.trainer.engine().stats(),
            after: Stats::default(),
            last_loss: None,
            drift: None,
            measured: Measured::default(),
            gpu: None,
        };
        let planned = self.stop_at.unwrap_or(u64::MAX).min(self.inputs.total_steps).saturating_sub(first);
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
                    "the store has written {written}; with another step it might write more than --max-writes, {}; \
                     mt resume with a larger --max-writes goes on",
                    size::human(writes.max)
                )));
                steps.ending = Ending::Stopped;
                break;
            }
            // The commit of the step before happens within this one, after its update.
            let commit = self.is_due(step - 1) && step - 1 > committed;
            if let Some(trace) = &mut self.trace {
                trace.step_begins(step - first, planned, step);
            }
            let record = self.step(step, commit, &mut metrics, stand)?;
            if let Some(trace) = &mut self.trace {
                trace.ends();
            }
            if commit {
                committed = step - 1;
            }
            steps.done += 1;
            last_step = record.disk_write_bytes;
            steps.tokens += record.tokens;
            steps.last_loss = Some(record.loss);
            if let Some(gpu) = &record.gpu {
                steps.gpu.get_or_insert_default().add(steps.done, record.seconds, gpu);
            }
            observer.event(&Event::Step(&record));
            self.compare(&record, observer);
            self.tell_committed(&mut told, observer);
        }
        if steps.done > 0 {
            if let Some(trace) = &mut self.trace {
                trace.rest_begins();
            }
            self.finish_state(&mut metrics)?;
            if let Some(trace) = &mut self.trace {
                trace.ends();
            }
            self.tell_committed(&mut told, observer);
        }
        steps.seconds = begin.elapsed().as_secs_f64();
        steps.after = self.trainer.engine().stats();
        (steps.drift, steps.measured) = (self.drift.at_end(), self.drift.measured());
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
    fn step(&mut self, step: u64, commit: bool, metrics: &mut Metrics, stand: &mut Stand) -> Result<StepRecord> {
        let begin = Instant::now();
        // What moved between two steps is the second one's.
        let (before, is_first) = (stand.at_line, stand.since_line.is_none());
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
        let after = self.trainer.engine().stats();
        let record = self.record(step, lr, &outcome, begin, (&before, &after), is_first);
        metrics.append(&record)?;
        *stand = Stand { at_line: after, since_line: Some(Instant::now()) };
        Ok(record)
    }

    fn record(
        &self,
        step: u64,
        lr: f64,
        outcome: &Outcome,
        begin: Instant,
        (before, after): (&Stats, &Stats),
        is_first: bool,
    ) -> StepRecord {
        let seconds_of = |ns: fn(&Stats) -> u64| (ns(after) - ns(before)) as f64 * 1e-9;
        let seconds = begin.elapsed().as_secs_f64();
        StepRecord {
            step,
            loss: outcome.loss,
            grad_norm: outcome.grad_norm,
            lr,
            tokens: outcome.tokens,
            seconds,
            disk_read_bytes: after.disk_read_bytes - before.disk_read_bytes,
            disk_write_bytes: after.disk_write_bytes - before.disk_write_bytes,
            commit_bytes: Some(after.commit_bytes - before.commit_bytes),
            peak_ram_bytes: ram::peak_bytes(),
            time_to_first_step: is_first.then(|| self.started.elapsed().as_secs_f64()),
            disk_read_seconds: Some(seconds_of(|stats| stats.link.read_ns)),
            disk_write_seconds: Some(seconds_of(|stats| stats.link.write_ns)),
            times: Some(outcome.times),
            gpu: outcome.gpu_times.map(|times| GpuRecord {
                upload_bytes: after.upload_bytes - before.upload_bytes,
                download_bytes: after.download_bytes - before.download_bytes,
                upload_seconds: seconds_of(|stats| stats.link.upload_ns),
                download_seconds: seconds_of(|stats| stats.link.download_ns),
                gpu_busy_seconds: times.busy(),
                gpu_busy_share: times.busy() / seconds,
                times,
            }),
        }
    }

    /// Tells, once, when it is clear that steps do not take what was planned.
    fn compare(&mut self, record: &StepRecord, observer: &mut dyn Observer) {
        let link = self.trainer.engine().stats().link;
        let Some(times) = &record.times else { return };
        let gpu = record.gpu.as_ref().map(|gpu| &gpu.times);
        if let Some(line) = self.drift.step(record.seconds, times, gpu, link) {
            observer.event(&Event::Notice(&line));
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
