//! What holds for every schedule: budgets, order, progress, monotony, determinism.

use super::check::{check, execute};
use super::samples::{Numbers, Training, random, run, three_regions, training, training_regions};
use super::{PAGE, budget, pages_needed, planned, planned_from, shape};
use crate::id::Mode;
use crate::plan::{Place, Placed, Residency, Shape};
use crate::schedule::{Resource, Schedule};

/// The window alone, nothing placed.
fn streaming() -> Residency {
    Residency { fixed: true, ..Residency::default() }
}

/// The smallest window in which the schedule streams; None if it uses nothing.
fn smallest_window(schedule: &Schedule, shape: &Shape<'_>) -> Option<u64> {
    planned_from(schedule, shape, &budget(0), &streaming()).err().map(|error| pages_needed(&error))
}

#[test]
fn the_smallest_window_never_deadlocks() {
    let regions = three_regions();
    let mut numbers = Numbers(10);
    for _ in 0..2_000 {
        let schedule = random(&mut numbers, 10, 5);
        let Some(pages) = smallest_window(&schedule, &shape(&regions)) else { continue };
        let (plan, _) = planned_from(&schedule, &shape(&regions), &budget(pages), &streaming()).unwrap();
        assert_eq!(plan.window_bytes, pages * PAGE);
        for _ in 0..4 {
            assert_eq!(execute(&plan, plan.window_bytes, &mut numbers), Ok(()), "{schedule:?}");
        }
    }
}

/// The window once counted streamed intervals alone, while the executor let them leave behind older placed ones only: a
/// placed run held for long, with streams passing by, was stuck.
#[test]
fn a_placed_run_that_is_held_keeps_what_streams_behind_it() {
    let regions = three_regions();
    let mut schedule = Schedule { cyclic: true, ..Schedule::default() };
    let held = schedule.access(run(0, 0, 1), Mode::Read, 0);
    for index in 1..6 {
        schedule.access(run(0, index * 4, 4), Mode::Read, 0);
    }
    schedule.work(Resource::HostCompute, 1, vec![held], 0);
    let placed = vec![Placed { run: run(0, 0, 1), offset: 0, bytes: PAGE }];
    let entry = Residency { placed, placed_bytes: PAGE, fixed: true, ..Residency::default() };
    let error = planned_from(&schedule, &shape(&regions), &budget(1), &entry).unwrap_err();
    // The held page, five runs of 4 pages and one for the wrap.
    assert_eq!(pages_needed(&error), 1 + 5 * 4 + 4);
    let (plan, _) = planned_from(&schedule, &shape(&regions), &budget(25), &entry).unwrap();
    assert_eq!(execute(&plan, plan.window_bytes, &mut Numbers(18)), Ok(()));
    assert!(execute(&plan, 16 * PAGE, &mut Numbers(18)).is_err());
}

/// `the_smallest_window_never_deadlocks` would see a window that is too small.
#[test]
fn a_window_without_room_for_the_wrap_deadlocks() {
    let regions = three_regions();
    let mut numbers = Numbers(11);
    let mut stuck = 0;
    for _ in 0..200 {
        let schedule = random(&mut numbers, 10, 5);
        let Some(pages) = smallest_window(&schedule, &shape(&regions)) else { continue };
        let (plan, _) = planned_from(&schedule, &shape(&regions), &budget(pages), &streaming()).unwrap();
        let largest = plan.intervals.iter().map(|interval| interval.bytes).max().unwrap();
        stuck += usize::from((0..4).any(|_| execute(&plan, plan.window_bytes - largest, &mut numbers).is_err()));
    }
    assert!(stuck > 20, "only {stuck} of 200 were stuck");
}

#[test]
fn accepted_plans_hold_their_budget_and_never_deadlock() {
    let regions = three_regions();
    let mut numbers = Numbers(12);
    for _ in 0..1_500 {
        let schedule = random(&mut numbers, 12, 4);
        let shape = Shape {
            sweeps_per_commit: numbers.below(3) as u32,
            prefetch_intervals_max: [None, Some(0), Some(1), Some(3)][numbers.below(4) as usize],
            ..shape(&regions)
        };
        let pages = 1 + numbers.below(40);
        match planned(&schedule, &shape, &budget(pages)) {
            Ok((plan, prediction)) => {
                assert_eq!(execute(&plan, plan.window_bytes, &mut numbers), Ok(()));
                assert!(prediction.peak_host_bytes <= pages * PAGE);
                assert!(prediction.seconds >= prediction.lower_bound_seconds);
            }
            Err(error) => {
                let need = pages_needed(&error);
                assert!(need > pages);
                planned(&schedule, &shape, &budget(need)).expect("the nearest budget is accepted");
            }
        }
    }
}

#[test]
fn more_ram_never_means_more_traffic() {
    let regions = three_regions();
    let mut numbers = Numbers(13);
    for _ in 0..250 {
        let schedule = random(&mut numbers, 14, 4);
        let sweeps_per_commit = numbers.below(3) as u32;
        let shape = Shape { sweeps_per_commit, ..shape(&regions) };
        let mut before = None;
        for pages in 0..70 {
            let Ok((_, prediction)) = planned(&schedule, &shape, &budget(pages)) else {
                assert_eq!(before, None, "{pages} pages refused after fewer were accepted");
                continue;
            };
            let parts = u64::from(sweeps_per_commit.max(1));
            let disk = prediction.disk;
            let traffic = (disk.read_bytes + disk.write_bytes) * parts + disk.commit_bytes;
            assert!(before.is_none_or(|before| traffic <= before), "{pages} pages: {traffic} after {before:?}");
            before = Some(traffic);
        }
        let placed = before.expect("70 pages hold every schedule");
        assert!(placed == 0 || sweeps_per_commit > 0);
    }
}

#[test]
fn the_same_inputs_give_the_same_plan() {
    let regions = three_regions();
    let mut numbers = Numbers(14);
    for _ in 0..50 {
        let schedule = random(&mut numbers, 12, 4);
        let pages = budget(8 + numbers.below(20));
        assert_eq!(planned(&schedule, &shape(&regions), &pages), planned(&schedule, &shape(&regions), &pages));
    }
}

/// Every fetch is as early as it can be, so one access earlier breaks a rule: the checker sees each of them.
#[test]
fn a_fetch_before_its_time_is_caught() {
    let regions = three_regions();
    let mut numbers = Numbers(15);
    let mut planted = 0;
    for _ in 0..200 {
        let schedule = random(&mut numbers, 12, 4);
        let Some(smallest) = smallest_window(&schedule, &shape(&regions)) else { continue };
        let pages = budget(smallest + numbers.below(8));
        let (plan, _) = planned_from(&schedule, &shape(&regions), &pages, &streaming()).unwrap();
        for index in 0..plan.intervals.len() {
            let interval = plan.intervals[index];
            if interval.place == Place::Window && interval.fetch_at > 0 {
                let mut wrong = plan.clone();
                wrong.intervals[index].fetch_at -= 1;
                check(&wrong, &shape(&regions), &pages).expect_err("a fetch before its time");
                planted += 1;
            }
        }
    }
    assert!(planted > 1_000, "only {planted} faults planted");
}

#[test]
fn the_prefetch_limit_holds() {
    let regions = three_regions();
    let mut numbers = Numbers(16);
    for _ in 0..200 {
        let schedule = random(&mut numbers, 12, 4);
        let ahead = numbers.below(4) as usize;
        let shape = Shape { prefetch_intervals_max: Some(ahead as u32), ..shape(&regions) };
        let Ok((plan, _)) = planned(&schedule, &shape, &budget(8 + numbers.below(20))) else { continue };
        let streamed: Vec<usize> =
            (0..plan.intervals.len()).filter(|&index| plan.intervals[index].place == Place::Window).collect();
        for (position, &index) in streamed.iter().enumerate() {
            let first = if ahead == 0 { index } else { position.checked_sub(ahead).map_or(0, |first| streamed[first]) };
            assert!(plan.intervals[index].fetch_at as usize >= first);
        }
        assert!(plan.exit.prefetched.len() <= ahead);
    }
}

#[test]
fn a_training_schedule_runs_in_every_arena_that_is_accepted() {
    let size = Training { units: 6, chunks: 3, micro_batches: 4, pages_per_chunk: 2 };
    let (schedule, regions) = (training(size), training_regions(size));
    let mut numbers = Numbers(17);
    let smallest = pages_needed(&planned(&schedule, &shape(&regions), &budget(1)).unwrap_err());
    assert!(planned(&schedule, &shape(&regions), &budget(smallest - 1)).is_err());
    for pages in (smallest..420).step_by(7) {
        let (plan, _) = planned(&schedule, &shape(&regions), &budget(pages)).unwrap();
        assert_eq!(execute(&plan, plan.window_bytes, &mut numbers), Ok(()));
    }
}
