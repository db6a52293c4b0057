//! Predictions against numbers worked out by hand.

use super::samples::{Training, region, run, training, training_regions};
use super::{PAGE, budget, planned, shape};
use crate::config::Kind;
use crate::id::Mode;
use crate::plan::{DiskTraffic, Prediction, Residency, Shape, plan, timeline};
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
