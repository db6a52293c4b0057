//! Placement against brute force, and worked examples.

use super::samples::{Numbers, region, run, three_regions};
use super::{PAGE, budget, planned, planned_from, shape};
use crate::config::{Kind, RegionSpec};
use crate::id::{Mode, Run};
use crate::plan::{Place, Plan, Residency, Shape};
use crate::schedule::{Node, Schedule};

/// The runs that a plan streams.
fn streamed(plan: &Plan) -> Vec<Run> {
    let mut runs: Vec<Run> = plan.intervals.iter().filter(|i| i.place == Place::Window).map(|i| i.run).collect();
    runs.sort_unstable();
    runs.dedup();
    runs
}

/// Page transfers per `parts` sweeps that placing the run saves.
fn gain(schedule: &Schedule, regions: &[RegionSpec], run: Run, sweeps_per_commit: u64) -> u64 {
    let (mut transfers, mut written) = (0, false);
    for node in &schedule.nodes {
        if let Node::Access(access) = node
            && access.run == run
        {
            transfers += u64::from(access.mode.reads()) + u64::from(access.mode.writes());
            written |= access.mode.writes();
        }
    }
    let commits = written && sweeps_per_commit > 0 && regions[run.region.0 as usize].kind == Kind::Checkpointed;
    (transfers * sweeps_per_commit.max(1) - u64::from(commits)) * u64::from(run.count)
}

/// The largest saving of any subset of the runs that leaves a large enough window. Leases are given back at once, so
/// the window needs twice the largest streamed run.
fn optimum(gains: &[(Run, u64)], pages: u64) -> Option<u64> {
    let mut best = None;
    for subset in 0u32..1 << gains.len() {
        let is_placed = |index: usize| subset >> index & 1 == 1;
        let (mut held, mut largest, mut saved) = (0, 0, 0);
        for (index, &(run, gain)) in gains.iter().enumerate() {
            if is_placed(index) {
                held += u64::from(run.count);
                saved += gain;
            } else {
                largest = largest.max(u64::from(run.count));
            }
        }
        if held + 2 * largest <= pages {
            best = best.max(Some(saved));
        }
    }
    best
}

/// Up to 6 runs in `three_regions`, accessed at random without work.
fn few_runs(numbers: &mut Numbers, same_size: bool) -> Schedule {
    let size = 1 + numbers.below(3);
    let runs: Vec<Run> = (0..=numbers.below(6) as u32)
        .map(|index| {
            run(numbers.below(3) as u32, index * 4, if same_size { size } else { 1 + numbers.below(4) } as u32)
        })
        .collect();
    let mut schedule = Schedule { cyclic: true, ..Schedule::default() };
    for index in 0..runs.len() as u64 + numbers.below(12) {
        let run = runs[(if index < runs.len() as u64 { index } else { numbers.below(runs.len() as u64) }) as usize];
        schedule.access(run, [Mode::Read, Mode::Write, Mode::Update][numbers.below(3) as usize], 0);
    }
    schedule
}

/// Plans for every arena that matters and compares with the optimum; `slack` says how far from it a plan may be.
fn compare(schedule: &Schedule, shape: &Shape<'_>, slack: impl Fn(&[(Run, u64)]) -> u64) {
    let mut gains: Vec<(Run, u64)> = Vec::new();
    for node in &schedule.nodes {
        let Node::Access(access) = node else { continue };
        if !gains.iter().any(|&(run, _)| run == access.run) {
            gains.push((access.run, gain(schedule, shape.regions, access.run, u64::from(shape.sweeps_per_commit))));
        }
    }
    // In arenas this small a quarter is never more than twice the smallest run, so comfort plays no part.
    let smallest = gains.iter().map(|&(run, _)| u64::from(run.count)).min().expect("a schedule accesses something");
    for pages in 1..=8 * smallest + 3 {
        match (planned(schedule, shape, &budget(pages)), optimum(&gains, pages)) {
            (Ok((plan, _)), Some(best)) => {
                let is_streamed = |run: &Run| streamed(&plan).contains(run);
                let saved: u64 = gains.iter().filter(|(run, _)| !is_streamed(run)).map(|&(_, gain)| gain).sum();
                assert!(saved <= best, "brute force missed a placement");
                assert!(saved + slack(&gains) >= best, "saved {saved} of {best} in {pages} pages: {gains:?}");
            }
            (Err(_), None) => {}
            (found, best) => panic!("{pages} pages: {found:?}, brute force {best:?}"),
        }
    }
}

/// Compares random schedules with the optimum.
fn against_brute_force(seed: u64, same_size: bool, slack: impl Fn(&[(Run, u64)]) -> u64) {
    let mut numbers = Numbers(seed);
    let regions = three_regions();
    for _ in 0..300 {
        let schedule = few_runs(&mut numbers, same_size);
        let sweeps_per_commit = numbers.below(4) as u32;
        compare(&schedule, &Shape { sweeps_per_commit, ..shape(&regions) }, &slack);
    }
}

/// All schedules of 1 to 4 accesses to 3 runs of one page, one of each kind, in all modes: 7,380.
#[test]
fn every_small_schedule_is_placed_optimally() {
    let regions = three_regions();
    for length in 1..=4 {
        for code in 0..9u32.pow(length) {
            let mut schedule = Schedule { cyclic: true, ..Schedule::default() };
            for place in 0..length {
                let digit = code / 9u32.pow(place) % 9;
                schedule.access(run(digit % 3, 0, 1), [Mode::Read, Mode::Write, Mode::Update][digit as usize / 3], 0);
            }
            compare(&schedule, &shape(&regions), |_| 0);
        }
    }
}

#[test]
fn runs_of_one_size_are_placed_optimally() {
    against_brute_force(1, true, |_| 0);
}

#[test]
fn runs_of_any_size_are_placed_within_one_run_of_the_optimum() {
    against_brute_force(2, false, |gains| gains.iter().map(|&(_, gain)| gain).max().unwrap_or(0));
}

/// Per byte and sweep: read thrice 3; updated 2 less the commit 1; scratch written and read 2; written only 1 less 1.
#[test]
fn runs_are_placed_by_bytes_saved() {
    let regions = [region("kept", 40, Kind::Checkpointed), region("scratch", 40, Kind::Scratch)];
    let mut schedule = Schedule { cyclic: true, ..Schedule::default() };
    let [updated, written, thrice, scratch] = [run(0, 0, 4), run(0, 4, 4), run(0, 8, 4), run(1, 0, 4)];
    schedule.access(updated, Mode::Update, 0);
    schedule.access(written, Mode::Write, 0);
    schedule.access(scratch, Mode::Write, 0);
    for _ in 0..3 {
        schedule.access(thrice, Mode::Read, 0);
    }
    schedule.access(scratch, Mode::Read, 0);
    let at = |pages| streamed(&planned(&schedule, &shape(&regions), &budget(pages)).unwrap().0);
    assert_eq!(at(8), [updated, written, thrice, scratch]);
    assert_eq!(at(12), [updated, written, scratch]);
    assert_eq!(at(15), [updated, written, scratch]);
    // All four fit 16 pages: nothing streams, although placing `written` saves nothing.
    assert_eq!(at(16), []);
    let never = Shape { sweeps_per_commit: 0, ..shape(&regions) };
    let (plan, prediction) = planned(&schedule, &never, &budget(16)).unwrap();
    assert_eq!((plan.window_bytes, prediction.disk.commit_bytes), (0, 0));
}

#[test]
fn a_run_that_saves_nothing_is_left_to_the_window() {
    let regions = [region("kept", 40, Kind::Checkpointed)];
    let mut schedule = Schedule { cyclic: true, ..Schedule::default() };
    schedule.access(run(0, 0, 1), Mode::Write, 0);
    schedule.access(run(0, 8, 8), Mode::Write, 0);
    schedule.access(run(0, 16, 8), Mode::Write, 0);
    let (plan, _) = planned(&schedule, &shape(&regions), &budget(16)).unwrap();
    assert_eq!((plan.placed_bytes, plan.window_bytes), (0, 16 * PAGE));
}

#[test]
fn neighbours_in_a_region_are_neighbours_in_the_arena() {
    let regions = three_regions();
    let mut schedule = Schedule::default();
    for (region, first) in [(1, 4), (0, 8), (1, 0), (0, 0), (0, 4)] {
        schedule.access(run(region, first, 4), Mode::Update, 0);
    }
    let (plan, _) = planned(&schedule, &shape(&regions), &budget(20)).unwrap();
    let offsets: Vec<_> =
        plan.exit.placed.iter().map(|placed| (placed.run.region.0, placed.run.first, placed.offset / PAGE)).collect();
    assert_eq!(offsets, [(0, 0, 0), (0, 4, 4), (0, 8, 8), (1, 0, 12), (1, 4, 16)]);
}

/// With room for it the window gets more than it needs, up to a quarter of the arena.
#[test]
fn the_window_leaves_room_to_fetch_ahead() {
    let regions = [region("kept", 400, Kind::Checkpointed)];
    let mut schedule = Schedule { cyclic: true, ..Schedule::default() };
    for index in 0..100 {
        schedule.access(run(0, index * 4, 4), Mode::Read, 0);
    }
    let window = |pages| planned(&schedule, &shape(&regions), &budget(pages)).unwrap().0.window_bytes / PAGE;
    assert_eq!(window(8), 8);
    assert_eq!(window(40), 12);
    assert_eq!(window(200), 52);
    assert_eq!(window(400), 0);
}

#[test]
fn the_entry_placement_is_kept() {
    let regions = three_regions();
    let mut numbers = Numbers(3);
    for _ in 0..100 {
        let first = super::samples::random(&mut numbers, 8, 3);
        let Ok((before, _)) = planned(&first, &shape(&regions), &budget(8 + numbers.below(20))) else { continue };
        // The other plan uses some of the same runs, once each.
        let mut second = Schedule::default();
        for interval in before.intervals.iter().filter(|_| numbers.below(2) == 0) {
            second.access(interval.run, Mode::Read, 0);
        }
        let (after, _) = planned_from(&second, &shape(&regions), &budget(100), &before.exit).unwrap();
        assert_eq!(after.exit.placed, before.exit.placed);
        assert_eq!(after.placed_bytes, before.placed_bytes);
        let again = planned_from(&first, &shape(&regions), &budget(100), &after.exit).unwrap().0;
        assert_eq!(again.exit.placed, before.exit.placed);
    }
    // A fixed placement of nothing is one as well.
    let mut schedule = Schedule::default();
    schedule.access(run(0, 0, 1), Mode::Read, 0);
    let nothing = Residency { fixed: true, ..Residency::default() };
    assert_eq!(planned_from(&schedule, &shape(&regions), &budget(100), &nothing).unwrap().0.placed_bytes, 0);
}
