//! Plans as text. `UPDATE=1 cargo test -p mt-engine golden` writes the files anew.

use super::samples::{Numbers, Training, random, three_regions, training, training_regions};
use super::{budget, pages_needed, planned, shape, tiers};
use crate::plan::{Residency, Shape, explain, plan, timeline};
use crate::profile::Profile;
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

fn check(name: &str, pages: u64, prefetch_intervals_max: Option<u32>, sweeps_per_commit: u32) {
    let size = Training { units: 6, chunks: 3, micro_batches: 4, pages_per_chunk: 2 };
    let (schedule, regions) = (training(size), training_regions(size));
    let shape = Shape { prefetch_intervals_max, sweeps_per_commit, ..shape(&regions) };
    let (plan, prediction) = planned(&schedule, &shape, &budget(pages)).unwrap();
    compare(name, &explain(&plan, &prediction, &shape));
}

fn check_device(name: &str, ram: u64, vram: u64, updates_on_gpu: bool, prefetch_intervals_max: Option<u32>) {
    let size = tiers::Step { units: 6, chunks: 3, pages_per_chunk: 2, updates_on_gpu };
    let (schedule, regions) = (Arc::new(tiers::step(size)), tiers::step_regions(size));
    let shape = Shape { prefetch_intervals_max, ..shape(&regions) };
    let (budget, profile) = (tiers::budget(ram, vram), tiers::profile());
    let (plan, prediction) = plan(&schedule, &shape, &budget, &profile, &Residency::default()).unwrap();
    compare(name, &explain(&plan, &prediction, &shape));
}

fn compare(name: &str, found: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/plan/golden").join(format!("{name}.txt"));
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, found).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap();
    assert_eq!(found, expected, "{} differs; UPDATE=1 rewrites it", path.display());
}

#[test]
fn golden_everything_fits() {
    check("everything_fits", 1_000, None, 1);
}

#[test]
fn golden_half_fits() {
    check("half_fits", 200, None, 1);
}

#[test]
fn golden_half_fits_and_never_commits() {
    check("half_fits_and_never_commits", 200, None, 0);
}

#[test]
fn golden_tight() {
    check("tight", 40, None, 1);
}

#[test]
fn golden_without_prefetching() {
    check("without_prefetching", 200, Some(0), 1);
}

#[test]
fn golden_device_with_updates_on_the_host() {
    check_device("device_host_updates", 200, 90, false, None);
}

#[test]
fn golden_device_with_updates_on_it() {
    check_device("device_own_updates", 100, 150, true, None);
}

#[test]
fn golden_device_without_prefetching() {
    check_device("device_without_prefetching", 100, 150, true, Some(0));
}

#[test]
fn golden_device_holds_everything() {
    check_device("device_holds_everything", 8, 400, true, None);
}

/// The executor runs what the planner plans, so plans of schedules without devices only change where that is meant. If
/// it is, the number is what the failure prints.
#[test]
fn golden_digest_of_plans_without_devices() {
    let regions = three_regions();
    let mut numbers = Numbers(40);
    let mut digest = String::new();
    let mut sum = 0u64;
    for round in 0..1_500 {
        let schedule = random(&mut numbers, 12, 4);
        let shape = Shape {
            sweeps_per_commit: numbers.below(3) as u32,
            prefetch_intervals_max: [None, None, Some(0), Some(2)][numbers.below(4) as usize],
            ..shape(&regions)
        };
        let profile = Profile { disk_latency_s: round as f64 * 1e-7, ..Profile::default() };
        let budget = budget(4 + numbers.below(40));
        digest.clear();
        match plan(&Arc::new(schedule), &shape, &budget, &profile, &Residency::default()) {
            Ok((plan, prediction)) => {
                for i in &plan.intervals {
                    let part = (i.node, i.release, i.run, i.mode, i.bytes, i.place, i.fetch_at);
                    write!(digest, "{part:?}").unwrap();
                }
                let (exit, spilled) = (&plan.exit, &plan.spilled);
                let sizes = (plan.placed_bytes, plan.window_bytes, exit.placed_bytes, exit.fixed);
                write!(digest, "{sizes:?}{spilled:?}{:?}{:?}", exit.placed, exit.prefetched).unwrap();
                let times = (prediction.seconds.to_bits(), prediction.lower_bound_seconds.to_bits());
                write!(digest, "{times:?}{:?}{}", prediction.disk, prediction.peak_host_bytes).unwrap();
                write!(digest, "{:?}", timeline(&plan, &shape, &profile).nodes).unwrap();
            }
            Err(error) => write!(digest, "{}", pages_needed(&error)).unwrap(),
        }
        for byte in digest.bytes() {
            sum = (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3).rotate_left(7);
        }
    }
    assert_eq!(sum, 8_022_189_945_886_826_885);
}
