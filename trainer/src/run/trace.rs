//! `--trace FILE`: some steps of a process as a timeline in the trace event format, which ui.perfetto.dev and
//! chrome://tracing show. What was measured and what the plan expected stand below each other, step by step.
//!
//! See `tracks` for what there is. On every track slices follow each other. All tracks are of one process, since a
//! viewer sorts processes by their numbers of slices.
//!
//! Memory is bounded: room for [`ROOM`] events, 72 bytes each, is taken before the run's RAM is divided, so that it
//! counts; what comes after is left out and counted. A step makes about two events an access of its plan, three with a
//! GPU, some ten thousand at most. The file is written once the steps are over, whatever ended them.

use super::files;
use super::tracks::{Side, Track, rows};
use crate::digits::digits;
use crate::error::{Error, Result};
use crate::input;
use crate::step::Trainer;
use mt_engine::Resource;
use mt_engine::events::{Doing, Event, Recorder};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Events that a trace has room for.
pub const ROOM: usize = 1 << 16;

/// The one process of the format. Tracks are its threads, numbered from the next on: a viewer takes a thread with its
/// process's number for the main one.
const PROCESS: u32 = 1;

/// The flag, and what it takes.
const FLAG: &str = "--trace";
const EXPECTED: &str = "a new file or an earlier trace";

/// How each trace begins.
const BEGINNING: &[u8] = b"{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";

/// Whether there is a file that has content and is no trace.
fn is_another(path: &Path) -> bool {
    let mut start = Vec::new();
    let read = File::open(path).and_then(|file| file.take(BEGINNING.len() as u64).read_to_end(&mut start));
    read.is_ok() && !start.is_empty() && start != BEGINNING
}

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
    /// `Io`; `Input` where there is a file that is no trace, which would be lost, or where none can be made.
    pub fn begin(traced: &Traced) -> Result<Trace> {
        // No pipe is opened, which would wait for a writer.
        input::file_place(&traced.file, FLAG, EXPECTED)?;
        if is_another(&traced.file) {
            return Err(Error::input(traced.file.display().to_string(), FLAG, EXPECTED, "another file"));
        }
        let beside = files::with_suffix(&traced.file, ".new");
        let file = File::create(&beside)
            .map_err(|source| input::unmade(&traced.file, FLAG, EXPECTED, "making the file", source))?;
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
        let mut out = Out { file: BufWriter::new(file), is_first: true, track: PROCESS };
        let about = json!({"run": run, "events_left_out": recording.left_out});
        out.begin().and_then(|()| self.events(&mut out, trainer, run, recording.events)).map_err(fail)?;
        out.end(&about).map_err(fail)?;
        // What has its name by now stays; the trace is complete under the other.
        std::fs::rename(&self.beside, &self.path).map_err(|source| Error::io(&self.beside, "renaming", source))?;
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

    fn events(&self, out: &mut Out, trainer: &Trainer, run: &Path, mut measured: Vec<Event>) -> std::io::Result<()> {
        let base = self.marks.first().map_or(0, |mark| mark.begin_ns);
        let at = |it: &Event, begin: u64| Event { begin_ns: begin + it.begin_ns, end_ns: begin + it.end_ns, ..*it };
        let since = |ns: u64| ns.saturating_sub(base);
        let mut steps: [Vec<Slice>; 2] = Default::default();
        steps[0].extend(self.marks.iter().map(|mark| mark.slice((since(mark.begin_ns), since(mark.end_ns)))));
        for it in &mut measured {
            (it.begin_ns, it.end_ns) = (since(it.begin_ns), since(it.end_ns));
        }
        let (expected, mut predicted) = (trainer.expected(), Vec::new());
        // A predicted step begins with its measured one, or after the predicted one before it, which may be longer.
        let mut free = 0;
        for mark in self.marks.iter().filter(|mark| mark.step.is_some()) {
            let Some(end) = expected.iter().map(|it| it.end_ns).max() else { continue };
            let begin = since(mark.begin_ns).max(free);
            free = begin + end;
            steps[1].push(mark.slice((begin, free)));
            predicted.extend(expected.iter().map(|it| at(it, begin)));
        }

        let mut tracks: BTreeMap<(Track, Side), Vec<Event>> = BTreeMap::new();
        for (side, events) in [(Side::Measured, measured), (Side::Planned, predicted)] {
            for event in events {
                let (phase, on) = event
                    .tag
                    .and_then(|tag| trainer.instruction(tag))
                    .map_or((None, Resource::HostCompute), |(_, phase, on)| (Some(phase), on));
                tracks.entry((Track::of(&event, phase, on), side)).or_default().push(event);
            }
        }
        out.process(&format!("mt {}", run.display()))?;
        for (side, slices) in [Side::Measured, Side::Planned].into_iter().zip(&steps) {
            out.track(side.named("steps"))?;
            slices.iter().try_for_each(|slice| out.slice(slice))?;
        }
        for ((track, side), events) in tracks {
            for (row, events) in rows(events).iter().enumerate() {
                let number = if row > 0 { format!(" ({})", row + 1) } else { String::new() };
                out.track(side.named(&format!("{}{number}", track.name())))?;
                for event in events {
                    let (name, about) = (named(trainer, event), about(trainer, event));
                    out.slice(&Slice { name, span: (event.begin_ns, event.end_ns), about })?;
                }
            }
        }
        Ok(())
    }
}

impl Mark {
    fn name(&self) -> String {
        self.step.map_or("last update and commit".to_owned(), |step| format!("step {step}"))
    }

    fn slice(&self, span: (u64, u64)) -> Slice {
        Slice { name: self.name(), span, about: Map::new() }
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

/// Name of a slice.
fn named(trainer: &Trainer, event: &Event) -> String {
    match (event.doing, event.run) {
        (Doing::Waiting, Some(run)) => format!("wait for {}", trainer.content(run)),
        (Doing::Syncing, _) => "sync".to_owned(),
        (Doing::Recording, _) => "table, note, superblock".to_owned(),
        (_, Some(run)) => trainer.content(run),
        (Doing::Uploading(_) | Doing::Downloading(_) | Doing::Reading | Doing::Writing, None) => {
            "several at once".to_owned()
        }
        (Doing::Waiting | Doing::Working | Doing::Computing(_), None) => {
            let instruction = event.tag.and_then(|tag| trainer.instruction(tag));
            instruction.map_or("another sweep".to_owned(), |(name, ..)| name)
        }
    }
}

/// What a slice says of itself.
fn about(trainer: &Trainer, event: &Event) -> Map<String, Value> {
    let mut about = Map::new();
    if let Some(run) = event.run {
        about.insert("pages".to_owned(), format!("{} to {}", run.first, run.end() - 1).into());
        let used_by = event.tag.and_then(|tag| trainer.instruction(tag));
        about.extend(used_by.map(|(name, ..)| ("for".to_owned(), name.into())));
    }
    if event.bytes > 0 {
        about.insert("bytes".to_owned(), event.bytes.into());
        let ns = event.end_ns.saturating_sub(event.begin_ns).max(1);
        about.insert("rate".to_owned(), format!("{} GB/s", digits(event.bytes as f64 / ns as f64)).into());
    }
    if event.operations > 0 {
        about.insert("operations".to_owned(), event.operations.into());
    }
    about
}

/// Something on a track.
struct Slice {
    name: String,
    /// Begin and end, in nanoseconds.
    span: (u64, u64),
    about: Map<String, Value>,
}

/// The file: one object with a list of events, one a line.
struct Out {
    file: BufWriter<File>,
    is_first: bool,
    /// The last track.
    track: u32,
}

impl Out {
    fn begin(&mut self) -> std::io::Result<()> {
        self.file.write_all(BEGINNING)
    }

    fn end(mut self, about: &Value) -> std::io::Result<()> {
        writeln!(self.file, "\n],\"otherData\":{about}}}")?;
        self.file.flush()
    }

    fn object(&mut self, value: &Value) -> std::io::Result<()> {
        self.file.write_all(if std::mem::take(&mut self.is_first) { b"\n" } else { b",\n" })?;
        serde_json::to_writer(&mut self.file, value).map_err(Into::into)
    }

    fn process(&mut self, name: &str) -> std::io::Result<()> {
        self.object(&json!({"ph": "M", "pid": PROCESS, "name": "process_name", "args": {"name": name}}))
    }

    /// Begins another track, to which the slices that follow belong.
    fn track(&mut self, name: String) -> std::io::Result<()> {
        self.track += 1;
        let track = self.track;
        let meta = |what: &str, args| json!({"ph": "M", "pid": PROCESS, "tid": track, "name": what, "args": args});
        self.object(&meta("thread_name", json!({"name": name})))?;
        self.object(&meta("thread_sort_index", json!({"sort_index": track})))
    }

    /// Times are nanoseconds here and microseconds in the file.
    fn slice(&mut self, slice: &Slice) -> std::io::Result<()> {
        let (begin, end) = slice.span;
        let (ts, dur) = (begin as f64 / 1e3, end.saturating_sub(begin) as f64 / 1e3);
        let mut value = json!({"ph": "X", "pid": PROCESS, "tid": self.track, "name": slice.name, "ts": ts, "dur": dur});
        if !slice.about.is_empty() {
            value["args"] = slice.about.clone().into();
        }
        self.object(&value)
    }
}
