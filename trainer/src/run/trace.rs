//! `--trace FILE`: some steps of a process as a timeline in the trace event format, which ui.perfetto.dev and
//! chrome://tracing show. What was measured and what the plan expected stand below each other, step by step.
//!
//! Tracks: steps; computation and updates, an instruction each, its waits included where they were measured; waits; and
//! for each disk what it reads, writes and commits, as many rows as go on at a time; the plan knows all volumes as one.
//! On every track slices follow each other, so that all of them nest.
//!
//! Memory is bounded: room for [`ROOM`] events, 72 bytes each, is taken before the run's RAM is divided, so that it
//! counts; what comes after is left out and counted. A step makes about two events an access of its plan, some ten
//! thousand at most. The file is written once the steps are over, whatever ended them.

use super::files;
use crate::error::{Error, Result};
use crate::schedule::Phase;
use crate::step::Trainer;
use mt_engine::events::{Doing, Event, Recorder};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Events that a trace has room for.
pub const ROOM: usize = 1 << 16;

/// Processes of the format: groups of tracks.
const MEASURED: u32 = 1;
const PREDICTED: u32 = 2;
/// Threads of the format: tracks.
const STEPS: u32 = 1;
const COMPUTATION: u32 = 2;
const UPDATES: u32 = 3;
const WAITS: u32 = 4;
/// The first of the disks' tracks.
const DISKS: u32 = 10;

/// What is to be traced.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Traced {
    /// The file.
    pub file: PathBuf,
    /// The first and last step, counted from 1 at the process's first.
    pub steps: (u64, u64),
}

/// A trace that is being made.
pub(super) struct Trace {
    path: PathBuf,
    beside: PathBuf,
    /// Written beside the file that it becomes; None once it is done.
    file: Option<File>,
    steps: (u64, u64),
    pub recorder: Arc<Recorder>,
    marks: Vec<Mark>,
}

/// A step, or what follows the last one. `step` is None for that.
struct Mark {
    step: Option<u64>,
    begin_ns: u64,
    end_ns: u64,
}

impl Trace {
    /// Takes the memory and makes the file, so that one that cannot be written is refused before the steps. A process
    /// of fewer steps has its last one traced.
    ///
    /// # Errors
    /// `Io`.
    pub fn begin(traced: &Traced) -> Result<Trace> {
        let beside = files::with_suffix(&traced.file, ".new");
        let file = File::create(&beside).map_err(|source| Error::io(&beside, "making the file", source))?;
        let (path, steps) = (traced.file.clone(), traced.steps);
        Ok(Trace { path, beside, file: Some(file), steps, recorder: Arc::new(Recorder::new(ROOM)), marks: Vec::new() })
    }

    /// A step of this process begins, the `number`th of `planned`.
    pub fn step_begins(&mut self, number: u64, planned: u64, step: u64) {
        let (first, last) = (self.steps.0.min(planned), self.steps.1.min(planned));
        if number > last && self.recorder.is_on() {
            self.recorder.stop();
        }
        if (first..=last).contains(&number) {
            if !self.recorder.is_on() {
                self.recorder.start();
            }
            let now = self.recorder.now_ns();
            self.marks.push(Mark { step: Some(step), begin_ns: now, end_ns: now });
        }
    }

    /// What follows the last step begins.
    pub fn rest_begins(&mut self) {
        if self.recorder.is_on() {
            let now = self.recorder.now_ns();
            self.marks.push(Mark { step: None, begin_ns: now, end_ns: now });
        }
    }

    /// The step, or what follows the last one, is over.
    pub fn ends(&mut self) {
        if self.recorder.is_on()
            && let Some(mark) = self.marks.last_mut()
        {
            mark.end_ns = self.recorder.now_ns();
        }
    }

    /// Writes the file. Gives what to tell of it.
    ///
    /// # Errors
    /// `Io`.
    pub fn write(mut self, trainer: &Trainer, run: &Path) -> Result<String> {
        if self.recorder.is_on() {
            // A step that failed ends here.
            self.ends();
            self.recorder.stop();
        }
        let recording = self.recorder.take();
        let file = self.file.take().expect("a trace is written once");
        let path = self.path.display();
        let fail = |source| Error::io(&self.beside, "writing", source);
        let mut out = Out { file: BufWriter::new(file), is_first: true };
        let about = json!({"run": run, "events_left_out": recording.left_out});
        out.begin().and_then(|()| self.events(&mut out, trainer, recording.events)).map_err(fail)?;
        out.end(&about).map_err(fail)?;
        std::fs::rename(&self.beside, &self.path).map_err(|source| Error::io(&self.path, "renaming", source))?;
        let steps: Vec<String> = self.marks.iter().filter_map(|mark| mark.step).map(|step| step.to_string()).collect();
        let left_out = match recording.left_out {
            0 => String::new(),
            n => format!("; {n} events had no room and are left out"),
        };
        Ok(match steps.as_slice() {
            [] => format!("trace: no step was traced; {path} is empty"),
            [one] => format!("trace of step {one}: {path}; open it in ui.perfetto.dev{left_out}"),
            [first, .., last] => {
                format!("trace of steps {first} to {last}: {path}; open it in ui.perfetto.dev{left_out}")
            }
        })
    }

    fn events(&self, out: &mut Out, trainer: &Trainer, events: Vec<Event>) -> std::io::Result<()> {
        let base = self.marks.first().map_or(0, |mark| mark.begin_ns);
        for (group, name) in [(MEASURED, "measured"), (PREDICTED, "predicted by the plan")] {
            out.group(group, name)?;
            for (track, name) in
                [(STEPS, "steps"), (COMPUTATION, "computation"), (UPDATES, "updates"), (WAITS, "waits")]
            {
                out.track(group, track, name)?;
            }
        }
        for mark in &self.marks {
            out.slice(MEASURED, STEPS, &mark.name(), (mark.begin_ns - base, mark.end_ns - base), Map::new())?;
        }
        let mut predicted = Vec::new();
        let expected = trainer.expected();
        // A predicted step begins with its measured one, or after the predicted one before it, which may be longer.
        let mut free = 0;
        for mark in self.marks.iter().filter(|mark| mark.step.is_some()) {
            let Some(end) = expected.iter().map(|it| it.end_ns).max() else { continue };
            let at = (mark.begin_ns - base).max(free);
            free = at + end;
            out.slice(PREDICTED, STEPS, &mark.name(), (at, free), Map::new())?;
            let moved = |it: &Event| Event { begin_ns: it.begin_ns + at, end_ns: it.end_ns + at, ..*it };
            predicted.extend(expected.iter().map(moved));
        }
        self.group(out, trainer, MEASURED, events, base)?;
        self.group(out, trainer, PREDICTED, predicted, 0)
    }

    /// The events of a group, whose times count from `base`.
    fn group(
        &self,
        out: &mut Out,
        trainer: &Trainer,
        group: u32,
        events: Vec<Event>,
        base: u64,
    ) -> std::io::Result<()> {
        let mut of_disks: BTreeMap<(u16, &str), Vec<Event>> = BTreeMap::new();
        for event in events {
            let key = match event.doing {
                Doing::Reading => "reads",
                Doing::Writing => "writes",
                Doing::Recording | Doing::Syncing => "commits",
                Doing::Waiting | Doing::Working => {
                    let (name, track) = named(trainer, event.tag.unwrap_or(u64::MAX), event.run);
                    out.slice(group, track, &name, since(base, &event), about(trainer, &event))?;
                    continue;
                }
            };
            of_disks.entry((event.volume, key)).or_default().push(event);
        }
        let mut track = DISKS;
        for ((volume, what), events) in of_disks {
            let rows = rows(events);
            for (row, events) in rows.iter().enumerate() {
                let number = if rows.len() > 1 { format!(" {}", row + 1) } else { String::new() };
                out.track(group, track, &format!("disk {volume} {what}{number}"))?;
                for event in events {
                    let name = moved(trainer, event);
                    out.slice(group, track, &name, since(base, event), about(trainer, event))?;
                }
                track += 1;
            }
        }
        Ok(())
    }
}

impl Mark {
    fn name(&self) -> String {
        self.step.map_or("last update and commit".to_owned(), |step| format!("step {step}"))
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        if self.file.is_some() {
            // Nothing was traced: the run was refused.
            let _ = std::fs::remove_file(&self.beside);
        }
    }
}

/// Name and track of an instruction, or of a wait for pages.
fn named(trainer: &Trainer, tag: u64, run: Option<mt_engine::Run>) -> (String, u32) {
    if let Some(run) = run {
        return (format!("wait for {}", trainer.content(run)), WAITS);
    }
    match trainer.instruction(tag) {
        Some((name, Phase::Update)) => (name, UPDATES),
        Some((name, _)) => (name, COMPUTATION),
        None => ("another sweep".to_owned(), COMPUTATION),
    }
}

/// Name of what a disk did.
fn moved(trainer: &Trainer, event: &Event) -> String {
    match (event.doing, event.run) {
        (Doing::Reading | Doing::Writing, Some(run)) => trainer.content(run),
        (Doing::Syncing, _) => "sync".to_owned(),
        _ => "table, note, superblock".to_owned(),
    }
}

/// What a slice says of itself.
fn about(trainer: &Trainer, event: &Event) -> Map<String, Value> {
    let mut about = Map::new();
    if let Some(run) = event.run {
        about.insert("pages".to_owned(), format!("{} to {}", run.first, run.end() - 1).into());
        let used_by = event.tag.and_then(|tag| trainer.instruction(tag));
        about.extend(used_by.map(|(name, _)| ("for".to_owned(), name.into())));
    }
    if event.bytes > 0 {
        about.insert("bytes".to_owned(), event.bytes.into());
    }
    if event.operations > 0 {
        about.insert("operations".to_owned(), event.operations.into());
    }
    about
}

fn since(base: u64, event: &Event) -> (u64, u64) {
    (event.begin_ns.saturating_sub(base), event.end_ns.saturating_sub(base))
}

/// Deals events to as few rows as let those of each row follow each other.
fn rows(mut events: Vec<Event>) -> Vec<Vec<Event>> {
    events.sort_by_key(|event| (event.begin_ns, event.end_ns));
    let mut rows: Vec<Vec<Event>> = Vec::new();
    for event in events {
        let free = |row: &Vec<Event>| row.last().is_none_or(|last| last.end_ns <= event.begin_ns);
        match rows.iter().position(free) {
            Some(row) => rows[row].push(event),
            None => rows.push(vec![event]),
        }
    }
    rows
}

/// The file: one object with a list of events, one a line.
struct Out {
    file: BufWriter<File>,
    is_first: bool,
}

impl Out {
    fn begin(&mut self) -> std::io::Result<()> {
        self.file.write_all(b"{\"displayTimeUnit\":\"ms\",\"traceEvents\":[")
    }

    fn end(mut self, about: &Value) -> std::io::Result<()> {
        writeln!(self.file, "\n],\"otherData\":{about}}}")?;
        self.file.flush()
    }

    fn object(&mut self, value: &Value) -> std::io::Result<()> {
        self.file.write_all(if std::mem::take(&mut self.is_first) { b"\n" } else { b",\n" })?;
        serde_json::to_writer(&mut self.file, value).map_err(Into::into)
    }

    fn group(&mut self, group: u32, name: &str) -> std::io::Result<()> {
        self.object(&json!({"ph": "M", "pid": group, "name": "process_name", "args": {"name": name}}))?;
        self.object(&json!({"ph": "M", "pid": group, "name": "process_sort_index", "args": {"sort_index": group}}))
    }

    fn track(&mut self, group: u32, track: u32, name: &str) -> std::io::Result<()> {
        let meta = |what: &str, args: Value| json!({"ph": "M", "pid": group, "tid": track, "name": what, "args": args});
        self.object(&meta("thread_name", json!({"name": name})))?;
        self.object(&meta("thread_sort_index", json!({"sort_index": track})))
    }

    /// Times are nanoseconds here and microseconds in the file.
    fn slice(
        &mut self,
        group: u32,
        track: u32,
        name: &str,
        (begin, end): (u64, u64),
        about: Map<String, Value>,
    ) -> std::io::Result<()> {
        let (ts, dur) = (begin as f64 / 1e3, end.saturating_sub(begin) as f64 / 1e3);
        let mut value = json!({"ph": "X", "pid": group, "tid": track, "name": name, "ts": ts, "dur": dur});
        if !about.is_empty() {
            value["args"] = about.into();
        }
        self.object(&value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_a_row_follow_each_other() {
        let event = |begin_ns, end_ns| Event {
            doing: Doing::Reading,
            begin_ns,
            end_ns,
            volume: 0,
            run: None,
            bytes: 0,
            operations: 1,
            tag: None,
        };
        let rows = rows(vec![event(5, 9), event(0, 5), event(3, 6), event(6, 7), event(6, 8)]);
        let found: Vec<Vec<(u64, u64)>> =
            rows.iter().map(|row| row.iter().map(|event| (event.begin_ns, event.end_ns)).collect()).collect();
        assert_eq!(found, [vec![(0, 5), (5, 9)], vec![(3, 6), (6, 7)], vec![(6, 8)]]);
    }
}
