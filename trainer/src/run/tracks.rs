//! The tracks of a trace.
//!
//! What a GPU computes, an instruction each, by its own clock; the processor's computation and updates, an instruction
//! each, its waits included where they were measured; waits; what was put on a GPU's queue; both ways of a GPU's link;
//! and for each disk what it reads, writes and commits; the plan knows all volumes as one. Below each track is what the
//! plan expected of it.

use crate::schedule::Phase;
use mt_engine::events::{Doing, Event};
use mt_engine::{DeviceId, Resource};

/// Rows of a track, at most.
const ROWS_MAX: usize = 4;

/// A track, in the order in which they stand.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Track {
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

/// Where a track's slices come from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Side {
    Measured,
    Planned,
}

impl Track {
    /// Where an event belongs whose instruction is of this phase, and computed by `on`.
    pub(super) fn of(event: &Event, phase: Option<Phase>, on: Resource) -> Track {
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

    pub(super) fn name(self) -> String {
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

impl Side {
    /// The name of a track on this side.
    pub(super) fn named(self, track: &str) -> String {
        match self {
            Side::Measured => track.to_owned(),
            Side::Planned => format!("plan: {track}"),
        }
    }
}

/// Deals events to as few rows as let those of each row follow each other, but not to more than [`ROWS_MAX`]: what
/// finds no row free becomes one with the event that ends next, and they have no run any more.
pub(super) fn rows(mut events: Vec<Event>) -> Vec<Vec<Event>> {
    events.sort_by_key(|event| (event.begin_ns, event.end_ns));
    let mut rows: Vec<Vec<Event>> = Vec::new();
    for event in events {
        let is_free = |row: &Vec<Event>| row.last().is_none_or(|last| last.end_ns <= event.begin_ns);
        match rows.iter().position(is_free) {
            Some(row) => rows[row].push(event),
            None if rows.len() < ROWS_MAX => rows.push(vec![event]),
            None => {
                let last = rows.iter_mut().filter_map(|row| row.last_mut()).min_by_key(|last| last.end_ns);
                let last = last.expect("no row is without events");
                last.end_ns = last.end_ns.max(event.end_ns);
                (last.bytes, last.operations) = (last.bytes + event.bytes, last.operations + event.operations);
                (last.run, last.tag) = (None, None);
            }
        }
    }
    rows
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
        let names: Vec<String> = tracks.iter().map(|track| Side::Planned.named(&track.name())).collect();
        let wanted = [
            "plan: GPU 2 computes",
            "plan: computation",
            "plan: updates",
            "plan: waits",
            "plan: waits for pages in GPU 2",
            "plan: put on GPU 2's queue",
            "plan: up to GPU 2",
            "plan: down from GPU 2",
            "plan: disk 1 reads",
        ];
        assert_eq!(names, wanted);
        assert!(tracks.is_sorted());
    }

    fn spans(events: Vec<Event>) -> Vec<Vec<(u64, u64)>> {
        let span = |event: &Event| (event.begin_ns, event.end_ns);
        rows(events).iter().map(|row| row.iter().map(span).collect()).collect()
    }

    #[test]
    fn events_of_a_row_follow_each_other() {
        let found = spans(vec![event(5, 9), event(0, 5), event(3, 6), event(6, 7), event(6, 8)]);
        assert_eq!(found, [vec![(0, 5), (5, 9)], vec![(3, 6), (6, 7)], vec![(6, 8)]]);
    }

    #[test]
    fn what_finds_no_row_free_joins_another() {
        let mut events: Vec<Event> = (0..4).map(|n| event(n, 10 + n)).collect();
        events.extend([event(5, 30), event(6, 8)]);
        assert_eq!(spans(events.clone()), [[(0, 30)], [(1, 11)], [(2, 12)], [(3, 13)]]);
        let operations = rows(events).iter().flatten().map(|event| event.operations).sum::<u32>();
        assert_eq!(operations, 6);
    }
}
