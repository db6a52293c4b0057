//! `--trace FILE`: some steps of a process as a timeline in the trace event format, which ui.perfetto.dev and
//! chrome://tracing show. What was measured and what the plan expected stand below each other, step by step.
//!
//! Tracks: steps; what a GPU computes, an instruction each, by its own clock; the processor's computation and updates, an
//! instruction each, its waits included where they were measured; waits; what was put on a GPU's queue; both ways of a
//! GPU's link; and for each disk what it reads, writes and commits; the plan knows all volumes as one. On every track
//! slices follow each other: what goes on at the same time gets rows of its own.
//!
//! Memory is bounded: room for [`ROOM`] events, 72 bytes each, is taken before the run's RAM is divided, so that it
//! counts; what comes after is left out and counted. A step makes about two events an access of its plan, three with a GPU,
//! some ten thousand at most. The file is written once the steps are over, whatever ended them.

use super::files;
use crate::error::{Error, Result};
use crate::schedule::Phase;
use crate::step::Trainer;
use mt_engine::events::{Doing, Event, Recorder};
use mt_engine::{DeviceId, Resource};
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
/// Threads of the format: tracks. The first; the others are numbered as they come.
const STEPS: u32 = 1;

/// A track, in the order in which they stand.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Track {
    Computed(DeviceId),
    Computation,
    Updates,
    Waits,
    /// Waits for pages in VRAM: of the plan's GPU, or of the thread that gives it work.
    WaitsInVram(DeviceId),
    /// Instructions that are put on a GPU's queue.
    Given(DeviceId),
    Uploads(DeviceId),
    Downloads(DeviceId),
    Disk(u16, &'static str),
}

impl Track {
    /// Where an event belongs that is about an instruction on `on`.
    fn of(event: &Event, phase: Option<Phase>, on: Resource) -> Track {
        match (event.doing, on) {
            (Doing::Reading, _) => Track::Disk(event.volume, "reads"),
            (Doing::Writing, _) => Track::Disk(event.volume, "writes"),
            (Doing::Recording | Doing::Syncing, _) => Track::Disk(event.volume, "commits"),
            (Doing::Uploading(device), _) => Track::Uploads(device),
            (Doing::Downloading(device), _) => Track::Downloads(device),
            (Doing::Computing(device), _) => Track::Computed(device),
            (Doing::Waiting, Resource::HostCompute) => Track::Waits,
            (Doing::Waiting, Resource::Compute(device)) => Track::WaitsInVram(device),
            (Doing::Working, Resource::Compute(device)) => Track::Given(device),
            (Doing::Working, Resource::HostCompute) if phase == Some(Phase::Update) => Track::Updates,
            (Doing::Working, Resource::HostCompute) => Track::Computation,
        }
    }

    fn name(self) -> String {
        match self {
            Track::Computed(device) => format!("GPU {} computes", device.0),
            Track::Computation => "computation".to_owned(),
            Track::Updates => "updates".to_owned(),
            Track::Waits => "waits".to_owned(),
            Track::WaitsInVram(device) => format!("waits for pages in GPU {}", device.0),
            Track::Given(device) => format!("put on GPU {}'s queue", device.0),
            Track::Uploads(device) => format!("up to GPU {}", device.0),
            Track::Downloads(device) => format!("down from GPU {}", device.0),
            Track::Disk(volume, what) => format!("disk {volume} {what}"),
        }
    }
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
            out.track(group, STEPS, "steps")?;
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
        let mut tracks: BTreeMap<Track, Vec<Event>> = BTreeMap::new();
        for event in events {
            let (phase, on) = event
                .tag
                .and_then(|tag| trainer.instruction(tag))
                .map_or((None, Resource::HostCompute), |(_, phase, on)| (Some(phase), on));
            tracks.entry(Track::of(&event, phase, on)).or_default().push(event);
        }
        let mut number = STEPS;
        for (track, events) in tracks {
            let rows = rows(events);
            for (row, events) in rows.iter().enumerate() {
                number += 1;
                let row = if rows.len() > 1 { format!(" {}", row + 1) } else { String::new() };
                out.track(group, number, &format!("{}{row}", track.name()))?;
                for event in events {
                    out.slice(group, number, &named(trainer, event), since(base, event), about(trainer, event))?;
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
        (Doing::Uploading(_) | Doing::Downloading(_) | Doing::Reading | Doing::Writing, None) => "pages".to_owned(),
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
        about.insert("rate".to_owned(), format!("{:.2} GB/s", event.bytes as f64 / ns as f64).into());
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

    fn event(begin_ns: u64, end_ns: u64) -> Event {
        let (doing, volume) = (Doing::Reading, 1);
        Event { doing, begin_ns, end_ns, volume, run: None, bytes: 0, operations: 1, tag: None }
    }

    #[test]
    fn a_gpu_has_tracks_of_its_own_in_this_order() {
        let (gpu, host) = (Resource::Compute(DeviceId(2)), Resource::HostCompute);
        let on = |doing, on, phase| Track::of(&Event { doing, ..event(0, 1) }, Some(phase), on);
        let tracks = [
            on(Doing::Computing(DeviceId(2)), gpu, Phase::Update),
            on(Doing::Working, host, Phase::Forward),
            on(Doing::Working, host, Phase::Update),
            on(Doing::Waiting, host, Phase::Update),
            on(Doing::Waiting, gpu, Phase::Update),
            on(Doing::Working, gpu, Phase::Update),
            on(Doing::Uploading(DeviceId(2)), gpu, Phase::Forward),
            on(Doing::Downloading(DeviceId(2)), host, Phase::Forward),
            on(Doing::Reading, gpu, Phase::Forward),
        ];
        let names: Vec<String> = tracks.iter().map(|track| track.name()).collect();
        let wanted = [
            "GPU 2 computes",
            "computation",
            "updates",
            "waits",
            "waits for pages in GPU 2",
            "put on GPU 2's queue",
            "up to GPU 2",
            "down from GPU 2",
            "disk 1 reads",
        ];
        assert_eq!(names, wanted);
        assert!(tracks.is_sorted());
    }

    #[test]
    fn events_of_a_row_follow_each_other() {
        let rows = rows(vec![event(5, 9), event(0, 5), event(3, 6), event(6, 7), event(6, 8)]);
        let found: Vec<Vec<(u64, u64)>> =
            rows.iter().map(|row| row.iter().map(|event| (event.begin_ns, event.end_ns)).collect()).collect();
        assert_eq!(found, [vec![(0, 5), (5, 9)], vec![(3, 6), (6, 7)], vec![(6, 8)]]);
    }
}
