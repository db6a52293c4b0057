//! Refusals: each rule of a schedule, each budget.

use super::samples::{region, run, three_regions};
use super::tiers::{self, GPU};
use super::{PAGE, budget, pages_needed, planned, planned_from, shape};
use crate::config::Kind;
use crate::error::PlanError;
use crate::id::{DeviceId, Mode, Tier};
use crate::plan::{Budget, Placed, Plan, Residency, Shape, plan};
use crate::profile::Profile;
use crate::schedule::{Node, Resource, Schedule};
use std::sync::Arc;

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
fn what_no_budget_gives_is_refused() {
    let regions = three_regions();
    let mut on_disk = simple();
    let Node::Access(access) = &mut on_disk.nodes[0] else { panic!("node 0 is an access") };
    access.tier = Tier::Disk;
    let error = planned(&on_disk, &shape(&regions), &budget(100)).unwrap_err();
    assert_eq!(error, PlanError::Misplaced { node: 0 });
    let mut vram_of_the_host = simple();
    let resource = Resource::HostCompute;
    vram_of_the_host.push(Node::Work { resource, ns: 1, host_bytes: 0, device_bytes: 1, tag: 0 }, Vec::new());
    let error = planned(&vram_of_the_host, &shape(&regions), &budget(100)).unwrap_err();
    assert_eq!(error, PlanError::Misplaced { node: 2 });
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
            ..Residency::default()
        };
        let error = planned_from(&simple(), &shape(&regions), &budget(100), &entry).unwrap_err();
        assert_eq!(error, PlanError::Overlap { first: placed, second: run(0, 0, 4) });
    }
}

/// A page of region 0 used on the GPU.
fn on_gpu(mode: Mode) -> Schedule {
    let mut schedule = Schedule::default();
    let access = schedule.access_on(Tier::Device(GPU), run(0, 0, 4), mode, Vec::new(), 0);
    let (resource, host_bytes, device_bytes) = (Resource::Compute(GPU), 5 * PAGE, 3 * PAGE);
    schedule.push(Node::Work { resource, ns: 1, host_bytes, device_bytes, tag: 0 }, vec![access]);
    schedule
}

fn plan_on_gpu(schedule: &Schedule, shape: &Shape<'_>, budget: &Budget, profile: &Profile) -> Result<Plan, PlanError> {
    plan(&Arc::new(schedule.clone()), shape, budget, profile, &Residency::default()).map(|(plan, _)| plan)
}

#[test]
fn a_device_has_a_link() {
    let regions = three_regions();
    let error = plan_on_gpu(&on_gpu(Mode::Read), &shape(&regions), &tiers::budget(99, 99), &Profile::default());
    assert_eq!(error.unwrap_err(), PlanError::NoLink { device: GPU });
    let mut idle = Schedule::default();
    idle.work(Resource::Compute(GPU), 1, Vec::new(), 0);
    let error = plan_on_gpu(&idle, &shape(&regions), &tiers::budget(99, 99), &Profile::default());
    assert_eq!(error.unwrap_err(), PlanError::NoLink { device: GPU });
}

/// Work takes 5 pages of RAM and 3 of VRAM, staging 8 of RAM, and the run 4 wherever it lives.
#[test]
fn refusals_name_the_tier_and_a_budget_that_all_tiers_accept() {
    let regions = three_regions();
    let (schedule, shape, profile) = (on_gpu(Mode::Read), shape(&regions), tiers::profile());
    let refused = |ram, vram| match plan_on_gpu(&schedule, &shape, &tiers::budget(ram, vram), &profile) {
        Err(PlanError::DoesNotFit { tier, need, have, nearest }) => {
            let at_nearest = plan_on_gpu(&schedule, &shape, &nearest, &profile);
            at_nearest.expect("the nearest budget is accepted");
            (tier, need / PAGE, have / PAGE, nearest.host_bytes / PAGE, nearest.device(GPU) / PAGE)
        }
        other => panic!("{ram} and {vram} pages: {other:?}"),
    };
    assert_eq!(refused(0, 0), (Tier::Device(GPU), 7, 0, 13, 7));
    assert_eq!(refused(99, 6), (Tier::Device(GPU), 7, 6, 99, 7));
    assert_eq!(refused(12, 7), (Tier::Host, 13, 12, 13, 7));
    let unlisted = Budget { device_bytes: Vec::new(), ..tiers::budget(99, 0) };
    let error = plan_on_gpu(&schedule, &shape, &unlisted, &profile).unwrap_err();
    let PlanError::DoesNotFit { tier, nearest, .. } = error else { panic!("{error}") };
    assert_eq!((tier, nearest.device_bytes), (Tier::Device(GPU), vec![(GPU, 7 * PAGE)]));
}

/// Two accesses of one run are live at once only as a relay from RAM to a device.
#[test]
fn a_run_is_live_twice_only_in_a_relay() {
    let regions = three_regions();
    let attempt = |first: Tier, second: Tier, mode, is_after: bool| {
        let mut schedule = Schedule::default();
        let a = schedule.access_on(first, run(0, 0, 4), Mode::Update, Vec::new(), 0);
        let b = schedule.access_on(second, run(0, 0, 4), mode, if is_after { vec![a] } else { Vec::new() }, 0);
        schedule.work(Resource::HostCompute, 1, vec![a, b], 0);
        plan_on_gpu(&schedule, &shape(&regions), &tiers::budget(99, 99), &tiers::profile()).map(|_| ())
    };
    let twice = Err(PlanError::LiveTwice { run: run(0, 0, 4), node: 1 });
    let vram = Tier::Device(GPU);
    assert_eq!(attempt(Tier::Host, vram, Mode::Read, true), Ok(()));
    assert_eq!(attempt(Tier::Host, vram, Mode::Read, false), twice);
    assert_eq!(attempt(Tier::Host, vram, Mode::Update, true), twice);
    assert_eq!(attempt(vram, Tier::Host, Mode::Read, true), twice);
    assert_eq!(attempt(Tier::Host, Tier::Host, Mode::Read, true), twice);
    // Behind the relay the first of the two may still be live.
    let mut schedule = Schedule::default();
    let a = schedule.access(run(0, 0, 4), Mode::Update, 0);
    schedule.access_on(vram, run(0, 0, 4), Mode::Read, vec![a], 0);
    schedule.access(run(0, 0, 4), Mode::Read, 0);
    schedule.work(Resource::HostCompute, 1, vec![a], 0);
    let error = plan_on_gpu(&schedule, &shape(&regions), &tiers::budget(99, 99), &tiers::profile()).unwrap_err();
    assert_eq!(error, PlanError::LiveTwice { run: run(0, 0, 4), node: 2 });
}

/// What lives in the VRAM of one GPU is used there or in RAM.
#[test]
fn a_kept_home_in_vram_serves_its_own_device_and_the_host() {
    let regions = three_regions();
    let (shape, budget, profile) = (shape(&regions), tiers::budget(99, 99), tiers::profile());
    let first = plan_on_gpu(&on_gpu(Mode::Update), &shape, &budget, &profile).unwrap();
    assert_eq!(first.exit.devices[0].placed_bytes, 4 * PAGE);
    let attempt = |tier: Tier, is_relayed: bool| {
        let mut schedule = Schedule::default();
        let after = if is_relayed { vec![schedule.access(run(0, 0, 4), Mode::Read, 0)] } else { Vec::new() };
        schedule.access_on(tier, run(0, 0, 4), Mode::Read, after, 0);
        plan(&Arc::new(schedule), &shape, &budget, &profile, &first.exit).map(|_| ())
    };
    assert_eq!(attempt(Tier::Device(GPU), false), Ok(()));
    assert_eq!(attempt(Tier::Host, false), Ok(()));
    assert_eq!(attempt(Tier::Device(DeviceId(1)), false), Err(PlanError::Misplaced { node: 0 }));
    assert_eq!(attempt(Tier::Device(GPU), true), Err(PlanError::Misplaced { node: 1 }));
}
