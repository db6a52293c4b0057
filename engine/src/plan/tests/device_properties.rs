//! What holds for every schedule with devices: budgets, order, data, progress, monotony, determinism.

use super::device_check::{Window, check, check_timeline, windows};
use super::executor::execute;
use super::samples::{Numbers, three_regions};
use super::shape;
use super::tiers::{Step, budget, profile, random, step, step_regions};
use crate::error::PlanError;
use crate::id::{DeviceId, Tier};
use crate::plan::draft::Usage;
use crate::plan::queue::Queue;
use crate::plan::validate;
use crate::plan::window::{Needs, need};
use crate::plan::{Budget, Plan, Prediction, Residency, Shape, plan, timeline};
use crate::schedule::Schedule;
use std::sync::Arc;

/// Nothing has a home in memory.
fn streaming() -> Residency {
    Residency { fixed: true, ..Residency::default() }
}

/// Plans, and checks what comes out.
fn planned(
    schedule: &Schedule,
    shape: &Shape<'_>,
    budget: &Budget,
    entry: &Residency,
) -> Result<(Plan, Prediction), PlanError> {
    let (plan, prediction) = plan(&Arc::new(schedule.clone()), shape, budget, &profile(), entry)?;
    check(&plan, shape, budget).expect("an accepted plan passes the checker");
    Ok((plan, prediction))
}

/// The smallest budgets in which a schedule streams.
fn smallest(schedule: &Schedule, shape: &Shape<'_>) -> Budget {
    match planned(schedule, shape, &budget(0, 0), &streaming()) {
        Ok(_) => budget(0, 0),
        Err(PlanError::DoesNotFit { nearest, .. }) => nearest,
        Err(other) => panic!("unexpected {other}"),
    }
}

#[test]
fn the_smallest_windows_never_deadlock() {
    let (regions, mut numbers) = (three_regions(), Numbers(70));
    let mut relayed = 0;
    for _ in 0..700 {
        let schedule = random(&mut numbers, 10, 4);
        let smallest = smallest(&schedule, &shape(&regions));
        let (plan, _) = planned(&schedule, &shape(&regions), &smallest, &streaming()).unwrap();
        relayed += plan.intervals.iter().filter(|interval| interval.relay.is_some()).count();
        for _ in 0..3 {
            assert_eq!(execute(&plan, 0, &mut numbers), Ok(()), "{schedule:?}");
        }
    }
    assert!(relayed > 300, "only {relayed} accesses were relayed");
}

/// `the_smallest_windows_never_deadlock` would see windows that are too small.
#[test]
fn windows_without_room_for_the_wrap_deadlock() {
    let (regions, mut numbers) = (three_regions(), Numbers(71));
    let mut stuck = 0;
    for _ in 0..200 {
        let schedule = random(&mut numbers, 10, 4);
        let smallest = smallest(&schedule, &shape(&regions));
        let (plan, _) = planned(&schedule, &shape(&regions), &smallest, &streaming()).unwrap();
        stuck += usize::from((0..3).any(|_| execute(&plan, 4 * 4096, &mut numbers).is_err()));
    }
    assert!(stuck > 50, "only {stuck} of 200 were stuck");
}

#[test]
fn accepted_plans_hold_their_budgets_and_never_deadlock() {
    let (regions, mut numbers) = (three_regions(), Numbers(72));
    let (mut accepted, mut refused) = (0, [0; 3]);
    for _ in 0..900 {
        let schedule = random(&mut numbers, 12, 3);
        let shape = Shape {
            sweeps_per_commit: numbers.below(3) as u32,
            prefetch_intervals_max: [None, Some(0), Some(1), Some(3)][numbers.below(4) as usize],
            has_disk: numbers.below(5) > 0,
            ..shape(&regions)
        };
        let mut given = budget(6 + numbers.below(40), 4 + numbers.below(25));
        if numbers.below(4) == 0 {
            given.disk_bytes = numbers.below(300) * 4096;
        }
        let (plan, prediction) = match planned(&schedule, &shape, &given, &Residency::default()) {
            Ok(found) => found,
            Err(PlanError::DoesNotFit { tier, need, have, nearest }) => {
                let raised = (nearest.host_bytes > given.host_bytes, nearest.disk_bytes > given.disk_bytes);
                match tier {
                    Tier::Device(device) => assert_eq!((have, need), (given.device(device), nearest.device(device))),
                    Tier::Host => assert_eq!((have, need), (given.host_bytes, nearest.host_bytes.min(need))),
                    Tier::Disk => assert!(raised.0 || raised.1),
                }
                assert!(need > have);
                refused[match tier {
                    Tier::Device(_) => 0,
                    Tier::Host => 1,
                    Tier::Disk => 2,
                }] += 1;
                planned(&schedule, &shape, &nearest, &Residency::default()).expect("the nearest budget is accepted")
            }
            Err(other) => panic!("unexpected {other}"),
        };
        accepted += 1;
        assert_eq!(execute(&plan, 0, &mut numbers), Ok(()), "{schedule:?}");
        let limits = (plan.placed_bytes + plan.window_bytes + plan.staging_bytes, plan.host_work_bytes);
        assert!(prediction.peak_host_bytes <= limits.0 + limits.1);
        assert!(prediction.seconds >= prediction.lower_bound_seconds);
    }
    assert!(accepted == 900 && refused.iter().all(|&count| count > 40), "{refused:?}");
}

#[test]
fn more_memory_never_means_more_traffic() {
    let (regions, mut numbers) = (three_regions(), Numbers(73));
    for _ in 0..60 {
        let schedule = random(&mut numbers, 12, 4);
        let sweeps_per_commit = numbers.below(3) as u32;
        let shape = Shape { sweeps_per_commit, ..shape(&regions) };
        let parts = u64::from(sweeps_per_commit.max(1));
        let traffic = |ram, vram| {
            let (_, prediction) = planned(&schedule, &shape, &budget(ram, vram), &Residency::default()).ok()?;
            let disk = prediction.disk;
            let up_and_down = |d: &crate::plan::DevicePrediction| (d.upload_bytes + d.download_bytes) * parts;
            let link: u64 = prediction.devices.iter().map(|d| up_and_down(d) + d.commit_bytes).sum();
            Some(((disk.read_bytes + disk.write_bytes) * parts + disk.commit_bytes, link))
        };
        let (rams, vrams) = ([8, 11, 14, 17, 21, 26, 33, 47, 80], [0, 2, 4, 7, 9, 12, 15, 20, 28, 60]);
        let found = rams.map(|ram| vrams.map(|vram| traffic(ram, vram)));
        for (i, j) in (0..rams.len()).flat_map(|i| (0..vrams.len()).map(move |j| (i, j))) {
            let Some(here) = found[i][j] else { continue };
            let neighbours = [(i + 1, j), (i, j + 1)];
            for (k, l) in neighbours.into_iter().filter(|&(k, l)| k < rams.len() && l < vrams.len()) {
                let more = found[k][l].expect("more memory is refused");
                let at = (rams[i], vrams[j], rams[k], vrams[l]);
                // By the disk first, then by the links.
                assert!(more <= here, "{at:?}: {more:?} after {here:?}");
            }
        }
    }
}

#[test]
fn the_same_inputs_give_the_same_plan_with_devices() {
    let (regions, mut numbers) = (three_regions(), Numbers(74));
    for _ in 0..50 {
        let schedule = random(&mut numbers, 12, 4);
        let given = budget(20 + numbers.below(30), 8 + numbers.below(20));
        let plan = || planned(&schedule, &shape(&regions), &given, &Residency::default());
        assert_eq!(plan(), plan());
    }
}

/// Every fetch and upload is as early as it can be, so one access of its queue earlier breaks a rule, and the checker
/// sees each of them.
#[test]
fn a_transfer_before_its_time_is_caught() {
    let (regions, mut numbers) = (three_regions(), Numbers(75));
    let mut planted = [0; 2];
    for _ in 0..200 {
        let schedule = random(&mut numbers, 12, 4);
        let smallest = smallest(&schedule, &shape(&regions));
        let (plan, _) = planned(&schedule, &shape(&regions), &smallest, &streaming()).unwrap();
        for Window { tier, stays, .. } in windows(&plan) {
            for stay in stays.iter().filter(|stay| stay.streams && stay.at > 0) {
                let before = stays.iter().map(|other| other.interval).filter(|&other| other < stay.at as usize);
                let earlier = before.max().unwrap_or(0) as u32;
                let mut wrong = plan.clone();
                let interval = &mut wrong.intervals[stay.interval];
                *(if tier == Tier::Host { &mut interval.fetch_at } else { &mut interval.upload_at }) = earlier;
                check(&wrong, &shape(&regions), &smallest).expect_err("a transfer before its time");
                planted[usize::from(tier == Tier::Host)] += 1;
            }
        }
    }
    assert!(planted.iter().all(|&count| count > 500), "only {planted:?} faults planted");
}

/// A distance that is too short is no fault of order, but costs time, and the prediction shows it.
#[test]
fn a_bad_prefetch_distance_shows_in_the_prediction() {
    for updates_on_gpu in [false, true] {
        let size = Step { units: 6, chunks: 2, pages_per_chunk: 2, updates_on_gpu };
        let (schedule, regions) = (step(size), step_regions(size));
        let seconds = |prefetch_intervals_max| {
            let shape = Shape { prefetch_intervals_max, ..shape(&regions) };
            let given = budget(90, 60);
            planned(&schedule, &shape, &given, &Residency::default()).unwrap().1
        };
        let (free, one, none) = (seconds(None), seconds(Some(1)), seconds(Some(0)));
        assert!(none.seconds > 1.1 * free.seconds, "{} and {}", none.seconds, free.seconds);
        assert!(one.seconds >= free.seconds && one.seconds <= none.seconds);
        assert_eq!(none.lower_bound_seconds, free.lower_bound_seconds);
        let waits = |prediction: &Prediction| prediction.stalls.iter().map(|stall| stall.seconds).sum::<f64>();
        assert!(waits(&none) > waits(&free));
    }
}

#[test]
fn simulated_sweeps_obey_the_rules_at_every_instant() {
    let (regions, mut numbers) = (three_regions(), Numbers(76));
    for _ in 0..600 {
        let schedule = Schedule { cyclic: false, ..random(&mut numbers, 12, 4) };
        let shape = Shape { sweeps_per_commit: numbers.below(3) as u32, ..shape(&regions) };
        let smallest = smallest(&schedule, &shape);
        let vram = smallest.device(DeviceId(0)).max(smallest.device(DeviceId(1))) / 4096 + numbers.below(12);
        let given = budget(smallest.host_bytes / 4096 + numbers.below(20), vram);
        let entry = if numbers.below(2) == 0 { streaming() } else { Residency::default() };
        let (plan, prediction) = planned(&schedule, &shape, &given, &entry).unwrap();
        let timeline = timeline(&plan, &shape, &profile());
        check_timeline(&plan, &timeline).unwrap_or_else(|error| panic!("{error}: {schedule:?}"));
        let ends = timeline.transfers.iter().map(|t| t.end_ns).chain(timeline.nodes.iter().map(|n| n.end_ns));
        let simulated = ends.max().unwrap_or(0) as f64 * 1e-9;
        assert!((prediction.seconds - simulated.max(prediction.lower_bound_seconds)).abs() < 1e-12);
    }
}

/// Whoever does not work waits for something, and whatever moves is counted.
#[test]
fn busy_and_stalls_add_up() {
    let (regions, mut numbers) = (three_regions(), Numbers(77));
    for _ in 0..400 {
        let schedule = random(&mut numbers, 12, 4);
        let shape = Shape { sweeps_per_commit: 0, ..shape(&regions) };
        let (plan, prediction) =
            planned(&schedule, &shape, &smallest(&schedule, &shape), &Residency::default()).unwrap();
        let timeline = timeline(&plan, &shape, &profile());
        for user in prediction.stalls.iter().map(|stall| stall.user) {
            let busy = prediction.busy.iter().find(|busy| busy.station == user).map_or(0.0, |busy| busy.seconds);
            let stalls = prediction.stalls.iter().filter(|stall| stall.user == user);
            let sum = busy + stalls.map(|stall| stall.seconds).sum::<f64>();
            assert!(sum <= prediction.seconds + 1e-12, "{sum} of {}", prediction.seconds);
            let ends = timeline.nodes.iter().map(|node| node.end_ns).max().unwrap_or(0);
            assert!(sum + 1e-12 >= ends as f64 * 1e-9, "{sum} of {ends} ns");
        }
    }
}

#[test]
fn needs_for_any_number_of_placed_runs_are_those_of_their_homes() {
    let (regions, mut numbers) = (three_regions(), Numbers(79));
    let mut differ = 0;
    for _ in 0..300 {
        let draft = validate::draft(&random(&mut numbers, 10, 4), &shape(&regions)).unwrap();
        let mut queues = vec![Queue::host(&draft)];
        queues.extend(draft.work.devices.iter().map(|&(device, _)| Queue::device(&draft, device)));
        for queue in queues {
            let runs = 0..draft.runs.len() as u32;
            let order: Vec<u32> = runs.rev().filter(|_| numbers.below(4) > 0).collect();
            let in_vram = |usage: &Usage| usage.device.map_or(Tier::Disk, Tier::Device);
            let home = |usage| if numbers.below(4) > 0 { Tier::Disk } else { in_vram(usage) };
            let mut homes: Vec<Tier> = draft.runs.iter().map(home).collect();
            let needs = Needs::new(&queue, &homes, &order);
            let none = needs.at(0);
            for (count, &run) in order.iter().enumerate() {
                assert_eq!(needs.at(count), need(&queue, &homes), "{draft:?}");
                let home = &mut homes[run as usize];
                *home = if *home == Tier::Disk { queue.tier } else { *home };
            }
            assert_eq!(needs.at(order.len()), need(&queue, &homes), "{draft:?}");
            differ += usize::from(needs.at(order.len()) < none);
        }
    }
    assert!(differ > 100, "only {differ} needs changed");
}

#[test]
fn a_step_runs_in_all_memories_that_are_accepted() {
    for updates_on_gpu in [false, true] {
        let size = Step { units: 4, chunks: 2, pages_per_chunk: 2, updates_on_gpu };
        let (schedule, regions) = (step(size), step_regions(size));
        let mut numbers = Numbers(78);
        let PlanError::DoesNotFit { nearest, .. } =
            planned(&schedule, &shape(&regions), &budget(0, 0), &Residency::default()).unwrap_err()
        else {
            panic!("nothing fits nothing");
        };
        let (ram, vram) = (nearest.host_bytes / 4096, nearest.device(DeviceId(0)) / 4096);
        let shape = shape(&regions);
        for (more, more_vram) in [(0, 0), (7, 0), (0, 7), (20, 30), (100, 0), (0, 100), (200, 200)] {
            let given = budget(ram + more, vram + more_vram);
            let (plan, _) = planned(&schedule, &shape, &given, &Residency::default()).unwrap();
            for _ in 0..2 {
                assert_eq!(execute(&plan, 0, &mut numbers), Ok(()), "{more} and {more_vram} pages more");
            }
        }
    }
}
