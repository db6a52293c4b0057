//! Predictions with devices against numbers worked out by hand. Every way of every link moves a page in 1,000 ns.

use super::samples::{region, run, three_regions};
use super::shape;
use super::tiers::{GPU, budget, profile};
use crate::config::{Kind, RegionSpec};
use crate::id::{DeviceId, Mode, Tier};
use crate::plan::{Placed, Plan, Prediction, Residency, Shape, Station, Timeline, plan, timeline};
use crate::profile::{LinkRates, Profile};
use crate::schedule::{Node, Resource, Schedule};
use std::sync::Arc;

const VRAM: Tier = Tier::Device(GPU);
const COMPUTE: Resource = Resource::Compute(GPU);
/// Nothing has a home in memory.
fn streaming() -> Residency {
    Residency { fixed: true, ..Residency::default() }
}

/// The eight runs of a page live in RAM.
fn in_ram() -> Residency {
    let placed = |index: u32| Placed { run: run(0, index, 1), offset: u64::from(index) * 4096, bytes: 4096 };
    let placed = (0..8).map(placed).collect();
    Residency { placed, placed_bytes: 8 * 4096, fixed: true, ..Residency::default() }
}

fn predicted(
    schedule: Schedule,
    shape: &Shape<'_>,
    (ram, vram): (u64, u64),
    profile: &Profile,
    entry: &Residency,
) -> (Plan, Prediction, Timeline) {
    let (plan, prediction) = plan(&Arc::new(schedule), shape, &budget(ram, vram), profile, entry).unwrap();
    let timeline = timeline(&plan, shape, profile);
    (plan, prediction, timeline)
}

fn ns(seconds: f64) -> u64 {
    (seconds * 1e9).round() as u64
}

fn busy(prediction: &Prediction, station: Station) -> u64 {
    prediction.busy.iter().find(|busy| busy.station == station).map_or(0, |busy| ns(busy.seconds))
}

fn stalled(prediction: &Prediction, user: Station, cause: Station) -> u64 {
    let found = prediction.stalls.iter().find(|stall| stall.user == user && stall.cause == cause);
    found.map_or(0, |stall| ns(stall.seconds))
}

/// Eight runs of a page on the GPU, each with work of `ns`.
fn eight(mode: Mode, ns: u64, cyclic: bool) -> Schedule {
    let mut schedule = Schedule { cyclic, ..Schedule::default() };
    for index in 0..8 {
        let access = schedule.access_on(VRAM, run(0, index, 1), mode, Vec::new(), 0);
        schedule.work(COMPUTE, ns, vec![access], 0);
    }
    schedule
}

fn kept() -> [RegionSpec; 1] {
    [region("kept", 8, Kind::Checkpointed)]
}

#[test]
fn one_read_goes_from_disk_over_the_link() {
    let (regions, mut schedule) = (kept(), Schedule::default());
    let access = schedule.access_on(VRAM, run(0, 0, 2), Mode::Read, Vec::new(), 0);
    schedule.work(COMPUTE, 500, vec![access], 0);
    let (_, prediction, timeline) = predicted(schedule, &shape(&regions), (20, 20), &profile(), &streaming());
    assert_eq!(ns(prediction.seconds), 2_000 + 2_000 + 500);
    let moved: Vec<_> = timeline.transfers.iter().map(|t| (t.station, t.begin_ns, t.end_ns)).collect();
    assert_eq!(moved, [(Station::DiskRead, 0, 2_000), (Station::Upload(GPU), 2_000, 4_000)]);
    assert_eq!(timeline.nodes.iter().map(|n| (n.begin_ns, n.end_ns)).collect::<Vec<_>>(), [(0, 4_000), (4_000, 4_500)]);
    assert_eq!(stalled(&prediction, Station::Compute(GPU), Station::DiskRead), 2_000);
    assert_eq!(stalled(&prediction, Station::Compute(GPU), Station::Upload(GPU)), 2_000);
}

#[test]
fn one_write_goes_over_the_link_to_disk() {
    let (regions, mut schedule) = (kept(), Schedule::default());
    let access = schedule.access_on(VRAM, run(0, 0, 2), Mode::Write, Vec::new(), 0);
    schedule.work(COMPUTE, 500, vec![access], 0);
    let (plan, prediction, timeline) = predicted(schedule, &shape(&regions), (20, 20), &profile(), &streaming());
    let moved: Vec<_> = timeline.transfers.iter().map(|t| (t.station, t.begin_ns, t.end_ns)).collect();
    assert_eq!(moved, [(Station::Download(GPU), 500, 2_500), (Station::DiskWrite, 2_500, 4_500)]);
    assert_eq!(ns(prediction.seconds), 4_500);
    assert_eq!((plan.window_bytes, plan.staging_bytes), (0, 4 * 4096));
    // The window in VRAM, one run of 2 pages; nothing else.
    assert_eq!(prediction.devices[0].peak_bytes, 2 * 4096);
    assert_eq!(prediction.peak_host_bytes, 2 * 4096);
}

#[test]
fn uploads_hide_behind_work() {
    let (regions, budget) = (kept(), (30, 4));
    let shape = shape(&regions);
    let in_ram = in_ram();
    let time = |work, shape: &Shape<'_>, cyclic| {
        predicted(eight(Mode::Read, work, cyclic), shape, budget, &profile(), &in_ram).1
    };
    // The link binds: a page every 1,000 ns.
    let prediction = time(500, &shape, true);
    assert_eq!((prediction.devices[0].upload_bytes, ns(prediction.seconds)), (8 * 4096, 8_000));
    assert_eq!(busy(&prediction, Station::Upload(GPU)), 8_000);
    // Work binds: uploads hide behind it. Once: the first has nothing to hide behind.
    assert_eq!(ns(time(3_000, &shape, true).seconds), 24_000);
    assert_eq!(busy(&time(3_000, &shape, true), Station::Compute(GPU)), 24_000);
    assert_eq!(ns(time(3_000, &shape, false).seconds), 25_000);
    // Without prefetching every access waits for its own upload.
    let none = Shape { prefetch_intervals_max: Some(0), ..shape.clone() };
    let prediction = time(3_000, &none, true);
    assert_eq!(ns(prediction.seconds), 32_000);
    assert_eq!(stalled(&prediction, Station::Compute(GPU), Station::Upload(GPU)), 8_000);
}

/// Disk, link and work take 1,000 ns a page each; what streams through both is as fast as one of them, after the first.
#[test]
fn disk_and_link_are_a_pipeline() {
    let regions = kept();
    let once = predicted(eight(Mode::Read, 1_000, false), &shape(&regions), (30, 30), &profile(), &streaming()).1;
    assert_eq!(ns(once.seconds), 8_000 + 2_000);
    let steady = predicted(eight(Mode::Read, 1_000, true), &shape(&regions), (30, 30), &profile(), &streaming()).1;
    assert_eq!(ns(steady.seconds), 8_000);
    assert_eq!(ns(steady.lower_bound_seconds), 8_000);
    let none = Shape { prefetch_intervals_max: Some(0), ..shape(&regions) };
    let none = predicted(eight(Mode::Read, 1_000, true), &none, (30, 30), &profile(), &streaming()).1;
    assert_eq!(ns(none.seconds), 24_000);
    assert_eq!(stalled(&none, Station::Compute(GPU), Station::DiskRead), 8_000);
    assert_eq!(stalled(&none, Station::Compute(GPU), Station::Upload(GPU)), 8_000);
}

#[test]
fn both_ways_of_a_link_are_slower_at_once() {
    let regions = [region("kept", 8, Kind::Scratch)];
    let half = LinkRates { upload_both_bytes_per_s: 2.048e9, download_both_bytes_per_s: 2.048e9, ..profile().links[0] };
    let halved = Profile { links: vec![half], ..profile() };
    // All in RAM, a window of 6 pages: 8 up and 8 down at once, or one after the other at full speed.
    let shape = Shape { has_disk: false, ..shape(&regions) };
    let mut schedule = Schedule { cyclic: true, ..Schedule::default() };
    for index in 0..8 {
        schedule.access_on(VRAM, run(0, index, 1), Mode::Update, Vec::new(), 0);
    }
    let time = |profile: &Profile| predicted(schedule.clone(), &shape, (8, 6), profile, &in_ram()).1;
    let (full, half) = (time(&profile()), time(&halved));
    assert_eq!((ns(full.lower_bound_seconds), ns(half.lower_bound_seconds)), (8_000, 16_000));
    assert!((8_000..9_500).contains(&ns(full.seconds)), "{}", ns(full.seconds));
    assert!((16_000..19_000).contains(&ns(half.seconds)), "{}", ns(half.seconds));
}

#[test]
fn a_link_is_slower_while_the_host_computes() {
    let regions = kept();
    let shared = Profile { links: vec![LinkRates { busy_share: 0.5, ..profile().links[0] }], ..profile() };
    // Four pages move at half speed beside the host's work, four at full speed behind it.
    let mut schedule = eight(Mode::Read, 0, true);
    schedule.work(Resource::HostCompute, 8_000, Vec::new(), 0);
    let time = |profile: &Profile| {
        let (_, prediction, _) = predicted(schedule.clone(), &shape(&regions), (30, 6), profile, &in_ram());
        (ns(prediction.seconds), ns(prediction.lower_bound_seconds))
    };
    assert_eq!((time(&profile()), time(&shared)), ((8_000, 8_000), (12_000, 8_000)));
}

#[test]
fn one_way_of_a_link_is_as_fast_as_it_is_alone() {
    let regions = kept();
    let slow = LinkRates { upload_both_bytes_per_s: 1.0, download_both_bytes_per_s: 1.0, ..profile().links[0] };
    let profile = Profile { links: vec![slow], ..profile() };
    let prediction = predicted(eight(Mode::Read, 0, true), &shape(&regions), (30, 6), &profile, &in_ram()).1;
    assert_eq!(ns(prediction.seconds), 8_000);
}

#[test]
fn a_transfer_keeps_its_link_for_longer_than_its_bytes() {
    let regions = kept();
    let slow = Profile { links: vec![LinkRates { latency_s: 1e-6, ..profile().links[0] }], ..profile() };
    let prediction = predicted(eight(Mode::Read, 0, true), &shape(&regions), (30, 4), &slow, &Residency::default()).1;
    assert_eq!((ns(prediction.seconds), ns(prediction.lower_bound_seconds)), (12_000, 12_000));
}

/// Host and GPU work beside each other, and one behind the other where the schedule says so.
#[test]
fn users_work_beside_each_other() {
    let regions = three_regions();
    let time = |chained: bool| {
        let mut schedule = Schedule { cyclic: true, ..Schedule::default() };
        for _ in 0..4 {
            let host = schedule.work(Resource::HostCompute, 1_000, Vec::new(), 0);
            schedule.work(COMPUTE, 1_500, if chained { vec![host] } else { Vec::new() }, 0);
        }
        predicted(schedule, &shape(&regions), (0, 0), &profile(), &Residency::default()).1
    };
    let free = time(false);
    assert_eq!(ns(free.seconds), 6_000);
    assert_eq!((busy(&free, Station::HostCompute), busy(&free, Station::Compute(GPU))), (4_000, 6_000));
    // At the end the host waits for the GPU: a sweep ends for all.
    assert_eq!(stalled(&free, Station::HostCompute, Station::Compute(GPU)), 2_000);
    let chained = time(true);
    assert_eq!(ns(chained.seconds), 7_000);
    assert_eq!(stalled(&chained, Station::Compute(GPU), Station::HostCompute), 1_000);
}

#[test]
fn a_mark_is_a_cut_for_all_users() {
    let (regions, mut schedule) = (three_regions(), Schedule { cyclic: true, ..Schedule::default() });
    schedule.work(COMPUTE, 5_000, Vec::new(), 0);
    schedule.work(Resource::HostCompute, 1_000, Vec::new(), 0);
    schedule.commit(Vec::new());
    schedule.work(COMPUTE, 1_000, Vec::new(), 0);
    schedule.work(Resource::HostCompute, 4_000, Vec::new(), 0);
    let prediction = predicted(schedule, &shape(&regions), (0, 0), &profile(), &Residency::default()).1;
    assert_eq!((ns(prediction.seconds), ns(prediction.lower_bound_seconds)), (9_000, 9_000));
}

/// The host changes a run that lives on disk, and the GPU reads it: one read from disk, and the span in RAM stays until
/// the upload has ended, also beside the write-back.
#[test]
fn a_relay_takes_the_bytes_from_ram() {
    let (regions, mut schedule) = (kept(), Schedule::default());
    let state = schedule.access(run(0, 0, 2), Mode::Update, 0);
    let update = schedule.work(Resource::HostCompute, 3_000, vec![state], 0);
    let read = schedule.access_on(VRAM, run(0, 0, 2), Mode::Read, vec![state, update], 0);
    schedule.work(COMPUTE, 500, vec![read], 0);
    let (_, prediction, timeline) = predicted(schedule, &shape(&regions), (20, 20), &profile(), &streaming());
    let moved: Vec<_> = timeline.transfers.iter().map(|t| (t.station, t.begin_ns, t.end_ns)).collect();
    let (read, write, up) = (Station::DiskRead, Station::DiskWrite, Station::Upload(GPU));
    assert_eq!(moved, [(read, 0, 2_000), (write, 5_000, 7_000), (up, 5_000, 7_000)]);
    assert_eq!(ns(prediction.seconds), 7_500);
    assert_eq!(prediction.disk.read_bytes, 2 * 4096);
}

/// The access that is relayed comes after the one in RAM, not after the work that changes it: the lease given back in
/// between is waited for all the same.
#[test]
fn a_relay_waits_for_a_lease_that_ends_before_it() {
    let (regions, mut schedule) = (kept(), Schedule::default());
    let state = schedule.access(run(0, 0, 2), Mode::Update, 0);
    schedule.work(Resource::HostCompute, 3_000, vec![state], 0);
    let read = schedule.access_on(VRAM, run(0, 0, 2), Mode::Read, vec![state], 0);
    schedule.work(COMPUTE, 500, vec![read], 0);
    let (_, prediction, timeline) = predicted(schedule, &shape(&regions), (20, 20), &profile(), &streaming());
    let upload = timeline.transfers.iter().find(|transfer| transfer.station == Station::Upload(GPU)).unwrap();
    assert_eq!((upload.begin_ns, ns(prediction.seconds)), (5_000, 7_500));
}

/// While the host's lease goes on, the GPU may read already.
#[test]
fn a_relay_may_come_before_the_lease_ends() {
    let (regions, mut schedule) = (kept(), Schedule::default());
    let state = schedule.access(run(0, 0, 2), Mode::Update, 0);
    let read = schedule.access_on(VRAM, run(0, 0, 2), Mode::Read, vec![state], 0);
    let compute = schedule.work(COMPUTE, 3_000, vec![read], 0);
    schedule.work(Resource::HostCompute, 500, vec![state, compute], 0);
    let (_, prediction, timeline) = predicted(schedule, &shape(&regions), (20, 20), &profile(), &streaming());
    // Read, upload, compute, update, write.
    assert_eq!(ns(prediction.seconds), 2_000 + 2_000 + 3_000 + 500 + 2_000);
    assert_eq!(timeline.transfers.len(), 3);
}

#[test]
fn commits_flush_vram_through_staging() {
    let regions = [region("kept", 8, Kind::Checkpointed), region("scratch", 8, Kind::Scratch)];
    let mut schedule = Schedule { cyclic: true, ..Schedule::default() };
    for index in 0..4 {
        schedule.access_on(VRAM, run(0, 2 * index, 2), Mode::Update, Vec::new(), 0);
    }
    schedule.access_on(VRAM, run(1, 0, 2), Mode::Update, Vec::new(), 0);
    schedule.commit(Vec::new());
    for (sweeps_per_commit, bytes, time) in [(0, 0, 0), (1, 8 * 4096, 8_000), (2, 8 * 4096, 4_000)] {
        let shape = Shape { sweeps_per_commit, ..shape(&regions) };
        let (plan, prediction, _) = predicted(schedule.clone(), &shape, (4, 10), &profile(), &Residency::default());
        assert_eq!((plan.staging_bytes, plan.devices[0].placed_bytes), (4 * 4096, 10 * 4096));
        assert_eq!((prediction.devices[0].commit_bytes, prediction.disk.commit_bytes), (bytes, bytes));
        assert_eq!(ns(prediction.lower_bound_seconds), time);
    }
}

#[test]
fn what_work_takes_is_set_aside() {
    let (regions, mut schedule) = (kept(), Schedule::default());
    let mut work = |resource, host_bytes, device_bytes| {
        schedule.push(Node::Work { resource, ns: 1, host_bytes, device_bytes, tag: 0 }, Vec::new());
    };
    work(Resource::HostCompute, 5_000, 0);
    work(Resource::HostCompute, 7_000, 0);
    work(COMPUTE, 100, 9_000);
    work(COMPUTE, 0, 8_000);
    work(Resource::Compute(DeviceId(1)), 10, 1);
    let (plan, prediction, _) = predicted(schedule, &shape(&regions), (2, 3), &profile(), &Residency::default());
    assert_eq!((plan.host_work_bytes, prediction.peak_host_bytes), (7_110, 7_110));
    assert_eq!(plan.devices.iter().map(|share| share.work_bytes).collect::<Vec<_>>(), [9_000, 1]);
    assert_eq!(prediction.devices.iter().map(|device| device.peak_bytes).collect::<Vec<_>>(), [9_000, 1]);
}

/// Each phase is bound by another station; in all, none has more than half of the time to do.
#[test]
fn the_bound_knows_phases_of_every_station() {
    let (regions, mut schedule) = (three_regions(), Schedule { cyclic: true, ..Schedule::default() });
    schedule.work(COMPUTE, 100_000, Vec::new(), 0);
    schedule.commit(Vec::new());
    schedule.work(Resource::HostCompute, 100_000, Vec::new(), 0);
    schedule.commit(Vec::new());
    for index in 0..50 {
        schedule.access_on(VRAM, run(2, index, 1), Mode::Read, Vec::new(), 0);
    }
    let (_, prediction, _) = predicted(schedule, &shape(&regions), (60, 2), &profile(), &Residency::default());
    // The window of 2 pages may be filled before its phase.
    assert_eq!(ns(prediction.lower_bound_seconds), 200_000 + 50_000 - 2 * (2 * 1_000 + 1));
    assert_eq!(ns(prediction.seconds), 250_000 - 1_000);
}
