//! A predicted step's time by phase, and what binds each.

use crate::schedule::{Phase, Program};
use mt_engine::plan::{Place, Span};
use mt_engine::{Node, Plan, Prediction, Profile};
use serde::Serialize;

/// What a phase's time goes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Binding {
    /// Computation, or with a GPU updates.
    Processor,
    /// Computation of a GPU.
    Gpu,
    /// Waiting for the disk, most of it for reads.
    DiskReads,
    /// Waiting for the disk, most of it for write-backs that must make room.
    DiskWrites,
    /// Waiting for bytes from RAM to VRAM.
    Upload,
    /// Waiting for bytes from VRAM to RAM.
    Download,
}

impl Binding {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Binding::Processor => "processor",
            Binding::Gpu => "GPU",
            Binding::DiskReads => "disk reads",
            Binding::DiskWrites => "disk writes",
            Binding::Upload => "the link up",
            Binding::Download => "the link down",
        }
    }
}

/// A phase of a step.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct PhaseTime {
    /// Which.
    pub phase: Phase,
    /// All of its time; with a GPU, of the GPU's.
    pub seconds: f64,
    /// Its computation with all cores, or the GPU, for itself.
    pub compute_seconds: f64,
    /// Waiting for pages.
    pub wait_seconds: f64,
    /// Bytes that its accesses read.
    pub disk_read_bytes: u64,
    /// Bytes that its accesses write back.
    pub disk_write_bytes: u64,
    /// Bytes that its accesses take up a GPU's link.
    pub upload_bytes: u64,
    /// Bytes that its accesses take down a GPU's link.
    pub download_bytes: u64,
    /// What binds it.
    pub binding: Binding,
}

impl PhaseTime {
    /// Nothing of a phase.
    pub(super) fn none(phase: Phase) -> PhaseTime {
        PhaseTime {
            phase,
            seconds: 0.0,
            compute_seconds: 0.0,
            wait_seconds: 0.0,
            disk_read_bytes: 0,
            disk_write_bytes: 0,
            upload_bytes: 0,
            download_bytes: 0,
            binding: Binding::Processor,
        }
    }
}

/// Adds up the spans of a program's sweep. Together they take the predicted time of a step.
pub(super) fn times(
    program: &Program,
    plan: &Plan,
    spans: &[Span],
    prediction: &Prediction,
    profile: &Profile,
) -> Vec<PhaseTime> {
    let phases = program.phases();
    let mut times: Vec<PhaseTime> = Phase::ALL.into_iter().map(PhaseTime::none).collect();
    let mut intervals = plan.intervals.iter();
    for (node, span) in plan.schedule.nodes.iter().zip(spans) {
        let seconds = (span.end_ns - span.begin_ns) as f64 * 1e-9;
        let (tag, computed) = match node {
            Node::Access(access) => (access.tag, None),
            Node::Work { tag, ns, .. } => (*tag, Some(*ns as f64 * 1e-9)),
            Node::Commit => continue,
        };
        let time = &mut times[phases[tag as usize] as usize];
        time.seconds += seconds;
        if let Some(computed) = computed {
            time.compute_seconds += computed;
            continue;
        }
        time.wait_seconds += seconds;
        let interval = intervals.next().expect("one interval per access");
        if interval.place == Place::Window {
            time.disk_read_bytes += if interval.mode.reads() { interval.bytes } else { 0 };
            time.disk_write_bytes += if interval.mode.writes() { interval.bytes } else { 0 };
        }
    }
    // A single simulated sweep may borrow from its neighbours; over many it cannot.
    let simulated: f64 = times.iter().map(|time| time.seconds).sum();
    let factor = if simulated > 0.0 { prediction.seconds / simulated } else { 1.0 };
    for time in &mut times {
        time.seconds *= factor;
        let reading = time.disk_read_bytes as f64 / profile.disk_read_bytes_per_s;
        let writing = time.disk_write_bytes as f64 / profile.disk_write_bytes_per_s;
        time.binding = match time.compute_seconds >= time.seconds / 2.0 {
            true => Binding::Processor,
            false if reading >= writing => Binding::DiskReads,
            false => Binding::DiskWrites,
        };
    }
    times
}
