//! Predictions against numbers worked out by hand.

use super::samples::{Training, region, run, training, training_regions};
use super::{PAGE, budget, planned, shape};
use crate::config::Kind;
use crate::id::Mode;
use crate::plan::{DiskTraffic, Prediction, Residency, Shape, Timeline, plan, timeline, timelines};
use crate::profile::Profile;
use crate::schedule::{Resource, Schedule};
use std::sync::Arc;

/// One page takes 1,000 ns to read, 2,000 ns to write, and both at once move a page each in 2,000 ns.
fn profile() -> Profile {
    let page_per_us = PAGE as f64 * 1e6;
    Profile {
        disk_read_bytes_per_s: page_per_us,
        disk_write_bytes_per_s: page_per_us / 2.0,
        disk_mixed_bytes_per_s: page_per_us,
        host_copy_bytes_per_s: 1e12,
        disk_latency_s: 0.0,
        disk_sync_s: 0.0,
        transfer_cpu_s_per_byte: 0.0,
        cores: 2,
        compute_threads: 2,
        links: Vec::new(),
    }
}

/// Streams everything: nanoseconds simulated and bound, and the rest.
fn predicted(schedule: Schedule, shape: &Shape<'_>, pages: u64) -> (u64, u64, Prediction) {
    let entry = Residency { fixed: true, ..Residency::default() };
    let (_, prediction) = plan(&Arc::new(schedule), shape, &budget(pages), &profile(), &entry).unwrap();
    let ns = |seconds: f64| (seconds * 1e9).round() as u64;
    (ns(prediction.seconds), ns(prediction.lower_bound_seconds), prediction)
}

/// Eight runs of one page, read, each with work of `ns`.
fn reads(ns: u64, cyclic: bool) -> Schedule {
    let mut schedule = Schedule { cyclic, ..Schedule::default() };
    for index in 0..8 {
        let access = schedule.access(run(0, index, 1), Mode::Read, 0);
        schedule.work(Resource::HostCompute, ns, vec![access], 0);
    }
    schedule
}

#[test]
fn reading_overlaps_with_work() {
    let regions = [region("kept", 8, Kind::Checkpointed)];
    let shape = shape(&regions);
    // The disk binds: a page every 1,000 ns.
    assert_eq!(predicted(reads(600, true), &shape, 4).0, 8_000);
    // Work binds: fetches hide behind it.
    assert_eq!(predicted(reads(3_000, true), &shape, 4).0, 24_000);
    // Once: the first fetch has nothing to hide behind.
    assert_eq!(predicted(reads(3_000, false), &shape, 4).0, 25_000);
    // Without prefetching every access waits for its own fetch.
    let none = Shape { prefetch_intervals_max: Some(0), ..shape };
    assert_eq!(predicted(reads(3_000, true), &none, 4).0, 32_000);
}

/// A page costs a core 1,000 ns, so each of two cores loses half of its time while the link reads.
#[test]
fn transfers_slow_the_work_beside_them() {
    let regions = [region("kept", 8, Kind::Checkpointed)];
    let entry = Residency { fixed: true, ..Residency::default() };
    let costly = Profile { transfer_cpu_s_per_byte: 1e-6 / PAGE as f64, ..profile() };
    let seconds = |threads: u32| {
        let profile = Profile { compute_threads: threads, ..costly.clone() };
        let schedule = Arc::new(reads(3_000, true));
        let (plan, prediction) = plan(&schedule, &shape(&regions), &budget(4), &profile, &entry).unwrap();
        let spans = timeline(&plan, &shape(&regions), &profile).nodes;
        assert_eq!(spans.len(), schedule.nodes.len());
        assert_eq!(spans.last().unwrap().end_ns, (prediction.seconds * 1e9).round() as u64);
        (prediction.seconds * 1e9).round() as u64
    };
    // 24,000 ns of work on both cores and 8,000 of one core's time: 28,000 on two.
    assert!((28_000..28_100).contains(&seconds(2)), "{}", seconds(2));
    // Work on one core leaves the other to the transfers.
    assert_eq!(seconds(1), 24_000);
}

#[test]
fn write_backs_share_the_link() {
    let regions = [region("kept", 8, Kind::Checkpointed)];
    let mut schedule = Schedule { cyclic: true, ..Schedule::default() };
    for index in 0..8 {
        schedule.access(run(0, index, 1), Mode::Update, 0);
    }
    let (ns, bound, prediction) = predicted(schedule, &shape(&regions), 16);
    assert_eq!(prediction.disk, DiskTraffic { read_bytes: 8 * PAGE, write_bytes: 8 * PAGE, commit_bytes: 0 });
    // 16 pages at the mixed rate; alternating would take 8 x 3,000.
    assert_eq!(bound, 16_000);
    assert!((16_000..=18_000).contains(&ns), "{ns}");
}

#[test]
fn commits_write_placed_runs() {
    let regions = [region("kept", 8, Kind::Checkpointed), region("scratch", 8, Kind::Scratch)];
    let mut schedule = Schedule { cyclic: true, ..Schedule::default() };
    schedule.access(run(0, 0, 4), Mode::Update, 0);
    schedule.access(run(0, 0, 4), Mode::Update, 0);
    schedule.access(run(0, 4, 4), Mode::Read, 0);
    schedule.access(run(1, 0, 8), Mode::Write, 0);
    schedule.commit(Vec::new());
    for (sweeps_per_commit, bytes, ns) in [(0, 0, 0), (1, 4 * PAGE, 8_000), (4, 4 * PAGE, 2_000)] {
        let shape = Shape { sweeps_per_commit, ..shape(&regions) };
        let (_, prediction) =
            plan(&Arc::new(schedule.clone()), &shape, &budget(16), &profile(), &Residency::default()).unwrap();
        assert_eq!(prediction.disk, DiskTraffic { read_bytes: 0, write_bytes: 0, commit_bytes: bytes });
        assert_eq!((prediction.lower_bound_seconds * 1e9).round() as u64, ns);
        assert_eq!(prediction.peak_host_bytes, 16 * PAGE);
    }
}

/// Time of a sweep over these pages in RAM, changed in place one after the other with work of `ns` each, then a mark
/// and work of 10,000 ns; a page is flushed in 2,000 ns.
fn changed_in_place(pages: u32, ns: u64, sweeps_per_commit: u32, sync_ns: u64) -> (u64, Vec<(u32, Timeline)>) {
    let regions = [region("kept", 8, Kind::Checkpointed)];
    let mut schedule = Schedule { cyclic: true, ..Schedule::default() };
    for index in 0..pages {
        let access = schedule.access(run(0, index, 1), Mode::Update, 0);
        schedule.work(Resource::HostCompute, ns, vec![access], 0);
    }
    schedule.commit(Vec::new());
    schedule.work(Resource::HostCompute, 10_000, Vec::new(), 0);
    let (shape, profile) =
        (Shape { sweeps_per_commit, ..shape(&regions) }, Profile { disk_sync_s: sync_ns as f64 * 1e-9, ..profile() });
    let (plan, prediction) = plan(&Arc::new(schedule), &shape, &budget(16), &profile, &Residency::default()).unwrap();
    ((prediction.seconds * 1e9).round() as u64, timelines(&plan, &shape, &profile))
}

#[test]
fn who_changes_a_run_in_place_waits_for_its_flush() {
    // Four pages are flushed behind the work.
    assert_eq!(changed_in_place(4, 1_000, 1, 0).0, 14_000);
    // Eight take 16,000 ns. The first are on disk when they are changed again, 10,000 ns later, and the flush of the
    // last ends when 6,000 of 8,000 ns of work on the others have passed.
    assert_eq!(changed_in_place(8, 1_000, 1, 0).0, 18_000);
    // With less work on them, they wait: 16,000 from the mark until the last is flushed, and its own work.
    let (ns, sweeps) = changed_in_place(8, 100, 1, 0);
    assert_eq!(ns, 16_100);
    assert_eq!(sweeps.len(), 1);
    let waited: u64 = sweeps[0].1.nodes.iter().map(|node| node.commit_ns).sum();
    assert_eq!(waited, 16_100 - 10_000 - 8 * 100);
    // The mark waits until the commit before is durable.
    assert_eq!(changed_in_place(8, 100, 1, 5_000).0, 21_000);
}

#[test]
fn a_commit_now_and_then_is_shared_by_the_sweeps_between() {
    let plain = 10_800;
    assert_eq!(changed_in_place(8, 100, 0, 5_000).0, plain);
    // The next sweep waits 5,300 ns for flushes, and for no sync: it makes no commit.
    for every in [2, 10] {
        let (ns, sweeps) = changed_in_place(8, 100, every, 5_000);
        assert_eq!(ns, plain + 5_300 / u64::from(every));
        assert_eq!(sweeps.iter().map(|(times, _)| times).sum::<u32>(), every);
        let last = |timeline: &Timeline| timeline.nodes.last().expect("a node").end_ns;
        assert_eq!(sweeps.iter().map(|(times, it)| u64::from(*times) * last(it)).sum::<u64>() / u64::from(every), ns);
    }
}

#[test]
fn what_is_given_back_during_a_commit_stays_until_it_is_durable() {
    let regions = [region("kept", 8, Kind::Checkpointed)];
    let mut schedule = Schedule { cyclic: true, ..Schedule::default() };
    for index in 0..4 {
        let access = schedule.access(run(0, index, 1), Mode::Write, 0);
        schedule.work(Resource::HostCompute, 100, vec![access], 0);
    }
    schedule.commit(Vec::new());
    let time = |sync_ns: u64, pages: u64| {
        let profile = Profile { disk_sync_s: sync_ns as f64 * 1e-9, ..profile() };
        let entry = Residency { fixed: true, ..Residency::default() };
        let schedule = Arc::new(schedule.clone());
        let (_, prediction) = plan(&schedule, &shape(&regions), &budget(pages), &profile, &entry).unwrap();
        (prediction.seconds * 1e9).round() as u64
    };
    // A page is written in 2,000 ns: writing four and the sync are all there is, but for the sweep's own 400 ns, in
    // which the writes of the first sweep begin early.
    assert!((57_600..=58_000).contains(&time(50_000, 8)), "{}", time(50_000, 8));
    // With room for two, the third waits until the first can leave, which is when the commit is durable.
    assert!(time(50_000, 2) >= 58_000, "{}", time(50_000, 2));
}

/// Per element and sweep, nothing resident: 16 bytes of state and weights read, 12 written; the gradient 4 and 4.
#[test]
fn a_step_moves_the_bytes_that_its_schedule_says() {
    let size = Training { units: 5, chunks: 2, micro_batches: 3, pages_per_chunk: 2 };
    let (schedule, regions) = (training(size), training_regions(size));
    let (_, _, prediction) = predicted(schedule, &shape(&regions), 100);
    // A page of `hi` holds 2,048 elements.
    let elements = u64::from(size.units * size.chunks * size.pages_per_chunk) * 2_048;
    let (units, batches) = (u64::from(size.units), u64::from(size.micro_batches));
    let activations_read = (units - 1) * 2 * batches + (units - 1) * batches;
    let activations_written = units * batches + units * batches;
    assert_eq!(prediction.disk.read_bytes, elements * (16 + 4) + activations_read * PAGE);
    assert_eq!(prediction.disk.write_bytes, elements * (12 + 4) + activations_written * PAGE);
}

#[test]
fn more_ram_is_never_predicted_to_be_much_slower() {
    let size = Training { units: 6, chunks: 3, micro_batches: 4, pages_per_chunk: 2 };
    let (schedule, regions) = (training(size), training_regions(size));
    let mut before = f64::INFINITY;
    for pages in (40..420).step_by(20) {
        let Ok((_, prediction)) = planned(&schedule, &shape(&regions), &budget(pages)) else { continue };
        // A larger ring wraps elsewhere, which moves a few waits.
        assert!(prediction.seconds <= before * 1.05, "{pages} pages: {} s after {before} s", prediction.seconds);
        before = before.min(prediction.seconds);
    }
}

/// A phase that only reads, then one that only computes: they overlap by no more than the window can hold, although a
/// sweep as a whole has as much work as transfers.
#[test]
fn the_bound_knows_phases() {
    let regions = [region("kept", 100, Kind::Checkpointed)];
    let mut schedule = Schedule { cyclic: true, ..Schedule::default() };
    for index in 0..100 {
        schedule.access(run(0, index, 1), Mode::Read, 0);
    }
    schedule.commit(Vec::new());
    schedule.work(Resource::HostCompute, 100_000, Vec::new(), 0);
    let (ns, bound, _) = predicted(schedule, &shape(&regions), 4);
    // 100 pages of 1,000 ns and the work, less 4 pages across each end at the slower direction's 2,000 ns.
    assert_eq!(bound, 200_000 - 2 * 4 * 2_000 - 2);
    // The 3 pages that the window holds beside the wrap are fetched during the work.
    assert_eq!(ns, 197_000);
}
