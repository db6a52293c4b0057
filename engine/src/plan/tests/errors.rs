//! Refusals: each rule of a schedule, each budget.

use super::samples::{region, run, three_regions};
use super::{PAGE, budget, pages_needed, planned, planned_from, shape};
use crate::config::Kind;
use crate::error::PlanError;
use crate::id::{DeviceId, Mode, Tier};
use crate::plan::{Placed, Residency, Shape};
use crate::schedule::{Node, Resource, Schedule};

/// One run of region 0 read and given back.
fn simple() -> Schedule {
    let mut schedule = Schedule::default();
    let access = schedule.access(run(0, 0, 4), Mode::Update, 0);
    schedule.work(Resource::HostCompute, 1, vec![access], 0);
    schedule
}

#[test]
fn dependencies_point_backwards() {
    let regions = three_regions();
    for wrong in [1, 2, 7] {
        let mut schedule = simple();
        schedule.after[1] = vec![0, wrong];
        assert_eq!(planned(&schedule, &shape(&regions), &budget(100)).unwrap_err(), PlanError::Unordered { node: 1 });
    }
    let mut schedule = simple();
    schedule.after.pop();
    assert_eq!(planned(&schedule, &shape(&regions), &budget(100)).unwrap_err(), PlanError::Unordered { node: 1 });
}

#[test]
fn runs_exist() {
    let regions = three_regions();
    for missing in [run(3, 0, 1), run(0, 64, 1), run(0, 63, 2), run(0, 0, 0), run(0, u32::MAX, u32::MAX)] {
        let mut schedule = simple();
        schedule.access(missing, Mode::Read, 0);
        assert_eq!(
            planned(&schedule, &shape(&regions), &budget(100)).unwrap_err(),
            PlanError::NoSuchRun { run: missing }
        );
    }
}

#[test]
fn runs_are_equal_or_disjoint() {
    let regions = three_regions();
    for other in [run(0, 3, 1), run(0, 3, 4), run(0, 0, 3), run(0, 0, 5)] {
        let mut schedule = simple();
        schedule.access(run(0, 10, 1), Mode::Read, 0);
        schedule.access(other, Mode::Read, 0);
        let error = planned(&schedule, &shape(&regions), &budget(100)).unwrap_err();
        assert_eq!(error, PlanError::Overlap { first: run(0, 0, 4), second: other });
    }
    let mut schedule = simple();
    schedule.access(run(0, 0, 4), Mode::Read, 0);
    schedule.access(run(0, 4, 1), Mode::Read, 0);
    schedule.access(run(1, 3, 4), Mode::Read, 0);
    planned(&schedule, &shape(&regions), &budget(100)).unwrap();
}

/// The second access could only be served once the first is given back, which the user does later: a deadlock.
#[test]
fn a_run_is_live_once() {
    let regions = three_regions();
    let mut schedule = Schedule::default();
    let first = schedule.access(run(0, 0, 4), Mode::Read, 0);
    let second = schedule.access(run(0, 0, 4), Mode::Read, 0);
    schedule.work(Resource::HostCompute, 1, vec![first, second], 0);
    for pages in [4, 100] {
        let error = planned(&schedule, &shape(&regions), &budget(pages)).unwrap_err();
        assert_eq!(error, PlanError::LiveTwice { run: run(0, 0, 4), node: 1 });
    }
}

#[test]
fn only_the_host_tier_takes_leases() {
    let regions = three_regions();
    for tier in [Tier::Device(DeviceId(0)), Tier::Disk] {
        let mut schedule = simple();
        let Node::Access(access) = &mut schedule.nodes[0] else { panic!("node 0 is an access") };
        access.tier = tier;
        let error = planned(&schedule, &shape(&regions), &budget(100)).unwrap_err();
        assert!(matches!(error, PlanError::DoesNotFit { tier: t, need, have: 0, .. } if t == tier && need == 4 * PAGE));
    }
}

#[test]
fn without_a_disk_everything_is_placed() {
    let regions = three_regions();
    let mut schedule = simple();
    schedule.access(run(1, 0, 3), Mode::Write, 0);
    let shape = Shape { has_disk: false, ..shape(&regions) };
    match planned(&schedule, &shape, &budget(6)).unwrap_err() {
        PlanError::DoesNotFit { tier: Tier::Disk, need, have: 0, nearest } => {
            assert_eq!((need, nearest.host_bytes), (PAGE, 7 * PAGE));
            let (plan, _) = planned(&schedule, &shape, &nearest).unwrap();
            assert_eq!((plan.placed_bytes, plan.window_bytes), (7 * PAGE, 0));
        }
        other => panic!("unexpected {other:?}"),
    }
}

#[test]
fn the_store_fits_the_disk() {
    // 2 x 8 checkpointed pages, 4 frozen, and the scratch run of 2 if it streams.
    let regions =
        [region("kept", 8, Kind::Checkpointed), region("scratch", 9, Kind::Scratch), region("frozen", 4, Kind::Frozen)];
    let mut schedule = Schedule::default();
    schedule.access(run(0, 0, 8), Mode::Update, 0);
    schedule.access(run(1, 0, 2), Mode::Write, 0);
    let streaming = Residency { fixed: true, ..Residency::default() };
    let mut small = budget(40);
    small.disk_bytes = 20 * PAGE;
    planned(&schedule, &shape(&regions), &small).unwrap();
    match planned_from(&schedule, &shape(&regions), &small, &streaming).unwrap_err() {
        PlanError::DoesNotFit { tier: Tier::Disk, need, nearest, .. } => {
            assert_eq!(need, 22 * PAGE);
            let (plan, _) = planned_from(&schedule, &shape(&regions), &nearest, &streaming).unwrap();
            assert_eq!(plan.spilled, [run(1, 0, 2)]);
        }
        other => panic!("unexpected {other:?}"),
    }
}

#[test]
fn the_arena_holds_the_window() {
    let regions = three_regions();
    let mut schedule = simple();
    schedule.access(run(0, 8, 4), Mode::Read, 0);
    // Streaming takes two spans of 4 pages; placing both takes as much.
    let error = planned(&schedule, &shape(&regions), &budget(7)).unwrap_err();
    assert_eq!(pages_needed(&error), 8);
    planned(&schedule, &shape(&regions), &budget(8)).unwrap();
}

#[test]
fn a_kept_placement_may_not_cut_a_run() {
    let regions = three_regions();
    for placed in [run(0, 3, 2), run(0, 0, 3), run(0, 0, 5)] {
        let bytes = u64::from(placed.count) * PAGE;
        let entry = Residency {
            placed: vec![Placed { run: placed, offset: 0, bytes }],
            placed_bytes: bytes,
            fixed: true,
            prefetched: Vec::new(),
        };
        let error = planned_from(&simple(), &shape(&regions), &budget(100), &entry).unwrap_err();
        assert_eq!(error, PlanError::Overlap { first: placed, second: run(0, 0, 4) });
    }
}
