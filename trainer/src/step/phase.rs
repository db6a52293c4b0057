//! A predicted step's time by phase, and what binds each.

use crate::schedule::{Phase, Program};
use mt_engine::plan::{Station, Timeline};
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
    /// Waiting for a commit: to change what it still writes, or for room that what it keeps back takes.
    Commits,
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
            Binding::Commits => "commits",
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
    /// Its computation with all cores, or with a GPU the GPU's, for itself.
    pub compute_seconds: f64,
    /// The processor's computation for itself: beside a GPU its updates, which take of the step's time only what the
    /// GPU waits for them; without one all of `compute_seconds`.
    pub processor_seconds: f64,
    /// Waiting for pages.
    pub wait_seconds: f64,
    /// Of it: for a commit.
    pub commit_wait_seconds: f64,
    /// Bytes that its accesses read.
    pub disk_read_bytes: u64,
    /// Bytes that its accesses write back.
    pub disk_write_bytes: u64,
    /// Bytes that commits write meanwhile from RAM and VRAM: their share of a step.
    pub commit_bytes: u64,
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
            processor_seconds: 0.0,
            wait_seconds: 0.0,
            commit_wait_seconds: 0.0,
            disk_read_bytes: 0,
            disk_write_bytes: 0,
            commit_bytes: 0,
            upload_bytes: 0,
            download_bytes: 0,
            binding: Binding::Processor,
        }
    }
}

/// A step's part of several sweeps: each with how many are like it from one commit to the next.
pub(super) fn mean(sweeps: &[(u32, Vec<PhaseTime>)]) -> Vec<PhaseTime> {
    let all = f64::from(sweeps.iter().map(|(times, _)| times).sum::<u32>());
    let bytes = |count: u64, share: f64| (count as f64 * share).round() as u64;
    let mut mean: Vec<PhaseTime> = Phase::ALL.into_iter().map(PhaseTime::none).collect();
    let mut longest = [0.0; Phase::ALL.len()];
    for (times, phases) in sweeps {
        let share = f64::from(*times) / all;
        for ((sum, of_sweep), longest) in mean.iter_mut().zip(phases).zip(&mut longest) {
            sum.seconds += share * of_sweep.seconds;
            sum.compute_seconds += share * of_sweep.compute_seconds;
            sum.processor_seconds += share * of_sweep.processor_seconds;
            sum.wait_seconds += share * of_sweep.wait_seconds;
            sum.commit_wait_seconds += share * of_sweep.commit_wait_seconds;
            sum.disk_read_bytes += bytes(of_sweep.disk_read_bytes, share);
            sum.disk_write_bytes += bytes(of_sweep.disk_write_bytes, share);
            sum.commit_bytes += bytes(of_sweep.commit_bytes, share);
            sum.upload_bytes += bytes(of_sweep.upload_bytes, share);
            sum.download_bytes += bytes(of_sweep.download_bytes, share);
            // Of the kinds of sweeps that which takes most of the phase's time says what binds it.
            if share * of_sweep.seconds > *longest {
                (*longest, sum.binding) = (share * of_sweep.seconds, of_sweep.binding);
            }
        }
    }
    mean
}

/// Adds what commits write to the phase in whose nodes they write it. `ends`: when the nodes end, by time, with phases.
pub(super) fn add_commits(times: &mut [PhaseTime], timeline: &Timeline, ends: &[(u64, Phase)]) {
    let writes = timeline.transfers.iter().filter(|it| it.interval.is_none() && it.station == Station::DiskWrite);
    for write in writes {
        let at = ends.partition_point(|(end, _)| *end < write.end_ns);
        if let Some((_, phase)) = ends.get(at).or(ends.last()) {
            times[*phase as usize].commit_bytes += write.bytes;
        }
    }
}

/// Makes the phases of a program's sweeps take the predicted time together: a few simulated sweeps may borrow from
/// their neighbours, over many they cannot.
pub(super) fn scale(times: &mut [PhaseTime], prediction: &Prediction) {
    let simulated: f64 = times.iter().map(|time| time.seconds).sum();
    let factor = if simulated > 0.0 { prediction.seconds / simulated } else { 1.0 };
    times.iter_mut().for_each(|time| time.seconds *= factor);
}

/// Adds up the spans of a program's sweep.
pub(super) fn times(program: &Program, plan: &Plan, timeline: &Timeline, profile: &Profile) -> Vec<PhaseTime> {
    let phases = program.phases();
    let mut times: Vec<PhaseTime> = Phase::ALL.into_iter().map(PhaseTime::none).collect();
    let mut ends = Vec::with_capacity(timeline.nodes.len());
    let mut intervals = plan.intervals.iter();
    for (node, span) in plan.schedule.nodes.iter().zip(&timeline.nodes) {
        let seconds = |ns: u64| ns as f64 * 1e-9;
        let (tag, computed) = match node {
            Node::Access(access) => (access.tag, None),
            Node::Work { tag, ns, .. } => (*tag, Some(seconds(*ns))),
            Node::Commit => continue,
        };
        let phase = phases[tag as usize];
        ends.push((span.end_ns, phase));
        let time = &mut times[phase as usize];
        time.seconds += seconds(span.end_ns - span.begin_ns);
        time.commit_wait_seconds += seconds(span.commit_ns);
        if let Some(computed) = computed {
            time.compute_seconds += computed;
            time.processor_seconds += computed;
            time.wait_seconds += seconds(span.commit_ns);
            continue;
        }
        time.wait_seconds += seconds(span.end_ns - span.begin_ns);
        let interval = intervals.next().expect("one interval per access");
        time.disk_read_bytes += if interval.reads_disk() { interval.bytes } else { 0 };
        time.disk_write_bytes += if interval.writes_disk() { interval.bytes } else { 0 };
    }
    add_commits(&mut times, timeline, &ends);
    for time in &mut times {
        let reading = time.disk_read_bytes as f64 / profile.disk_read_bytes_per_s;
        let writing = time.disk_write_bytes as f64 / profile.disk_write_bytes_per_s;
        time.binding = match time.compute_seconds >= time.seconds / 2.0 {
            true => Binding::Processor,
            false if 2.0 * time.commit_wait_seconds >= time.wait_seconds => Binding::Commits,
            false if reading >= writing => Binding::DiskReads,
            false => Binding::DiskWrites,
        };
    }
    times
}
