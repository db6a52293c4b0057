//! A predicted step's time by phase where a GPU computes, and what binds each.
//!
//! Processor, GPU and transfers work beside each other, so the step is told by the GPU's time, which has no gaps: what
//! it computes, what it waits for. Waiting for what the processor is still to update with, and what it still updates
//! when the GPU is through, are the update's; so updates that are hidden behind the computation take no time of the
//! step.

use super::phase::{Binding, PhaseTime, add_commits};
use crate::schedule::{Phase, Program};
use mt_engine::plan::{Station, Timeline};
use mt_engine::{DeviceId, Node, Plan, Prediction, Resource, Run, Tier};
use std::collections::HashMap;

/// Begin and end of a phase on the GPU, in nanoseconds of the sweep.
type Window = (u64, u64);

/// Adds up the GPU's spans of a program's sweep.
pub(super) fn times(
    program: &Program,
    plan: &Plan,
    timeline: &Timeline,
    prediction: &Prediction,
    device: DeviceId,
) -> Vec<PhaseTime> {
    let phases = program.phases();
    let mut times: Vec<PhaseTime> = Phase::ALL.into_iter().map(PhaseTime::none).collect();
    let mut ends = Vec::new();
    let mut windows: [Option<Window>; Phase::ALL.len()] = Default::default();
    let mut intervals = plan.intervals.iter();
    // When the processor is done with the runs that it has used so far.
    let mut on_host: HashMap<Run, u64> = HashMap::new();
    for (node, span) in plan.schedule.nodes.iter().zip(&timeline.nodes) {
        let seconds = |ns: u64| ns as f64 * 1e-9;
        let (tag, on_device) = match node {
            Node::Access(access) => (access.tag, access.tier == Tier::Device(device)),
            Node::Work { tag, resource, .. } => (*tag, *resource == Resource::Compute(device)),
            Node::Commit => continue,
        };
        let phase = phases[tag as usize];
        let time = &mut times[phase as usize];
        if on_device {
            let window = windows[phase as usize].get_or_insert((span.begin_ns, span.end_ns));
            window.1 = span.end_ns;
            ends.push((span.end_ns, phase));
            time.commit_wait_seconds += seconds(span.commit_ns);
        }
        if let Node::Work { ns, .. } = node {
            if on_device {
                time.compute_seconds += seconds(*ns);
                time.seconds += seconds(span.end_ns - span.begin_ns);
            } else {
                time.processor_seconds += seconds(*ns);
            }
            continue;
        }
        let interval = intervals.next().expect("one interval per access");
        time.disk_read_bytes += if interval.reads_disk() { interval.bytes } else { 0 };
        time.disk_write_bytes += if interval.writes_disk() { interval.bytes } else { 0 };
        let (up, down) = interval.link_bytes();
        (time.upload_bytes, time.download_bytes) = (time.upload_bytes + up, time.download_bytes + down);
        if !on_device {
            on_host.insert(interval.run, timeline.nodes[interval.release as usize].end_ns);
            continue;
        }
        let done_ns = on_host.get(&interval.run).copied().unwrap_or(0);
        let updated = done_ns.clamp(span.begin_ns, span.end_ns) - span.begin_ns;
        let waited = seconds(span.end_ns - span.begin_ns - updated);
        add_wait(time, waited);
        add_wait(&mut times[Phase::Update as usize], seconds(updated));
    }
    let all_ns = timeline.nodes.iter().map(|span| span.end_ns).max().unwrap_or(0);
    let rest_ns = all_ns - ends.last().map_or(all_ns, |(end_ns, _)| *end_ns);
    add_wait(&mut times[Phase::Update as usize], rest_ns as f64 * 1e-9);
    add_commits(&mut times, timeline, &ends);
    for (time, window) in times.iter_mut().zip(windows) {
        let of_processor = if time.phase == Phase::Update { of_update(prediction) } else { None };
        time.binding = match of_processor {
            Some(binding) => binding,
            _ if 2.0 * time.wait_seconds <= time.seconds => Binding::Gpu,
            _ if 2.0 * time.commit_wait_seconds >= time.wait_seconds => Binding::Commits,
            _ => of_links(timeline, window.unwrap_or_default()),
        };
    }
    times
}

/// Adds what the GPU waits for.
fn add_wait(time: &mut PhaseTime, seconds: f64) {
    time.seconds += seconds;
    time.wait_seconds += seconds;
}

/// What binds the processor's updates: it, or what it waits for most. None where it updates nothing.
fn of_update(prediction: &Prediction) -> Option<Binding> {
    let busy = prediction.busy.iter().find(|busy| busy.station == Station::HostCompute)?;
    let stalls = prediction.stalls.iter().filter(|stall| {
        stall.user == Station::HostCompute
            && matches!(stall.cause, Station::DiskRead | Station::DiskWrite | Station::Commit)
    });
    let longest = stalls.max_by(|a, b| a.seconds.total_cmp(&b.seconds));
    Some(match longest {
        Some(stall) if stall.seconds > busy.seconds => name(stall.cause),
        _ => Binding::Processor,
    })
}

/// The way of a link that moves for the longest part of a window.
fn of_links(timeline: &Timeline, (begin, end): Window) -> Binding {
    let mut busy: Vec<(Station, i64)> = Vec::new();
    for transfer in &timeline.transfers {
        let overlap = (transfer.end_ns.min(end) as i64) - transfer.begin_ns.max(begin as i64);
        if overlap > 0 {
            match busy.iter_mut().find(|(station, _)| *station == transfer.station) {
                Some(known) => known.1 += overlap,
                None => busy.push((transfer.station, overlap)),
            }
        }
    }
    busy.into_iter().max_by_key(|(_, ns)| *ns).map_or(Binding::Gpu, |(station, _)| name(station))
}

fn name(station: Station) -> Binding {
    match station {
        Station::HostCompute => Binding::Processor,
        Station::Compute(_) => Binding::Gpu,
        Station::DiskRead => Binding::DiskReads,
        Station::DiskWrite => Binding::DiskWrites,
        Station::Upload(_) => Binding::Upload,
        Station::Download(_) => Binding::Download,
        Station::Commit => Binding::Commits,
    }
}
