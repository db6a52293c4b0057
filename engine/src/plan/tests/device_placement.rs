//! Placement over three tiers against brute force, and worked examples.

use super::samples::{Numbers, region, run, three_regions};
use super::tiers::{GPU, Step, budget, profile, step, step_regions};
use super::{PAGE, shape};
use crate::config::Kind;
use crate::id::{DeviceId, Mode, Run, Tier};
use crate::plan::{Plan, Prediction, Residency, Shape, plan};
use crate::schedule::{Node, Schedule};
use std::sync::Arc;

fn planned(schedule: &Schedule, shape: &Shape<'_>, ram: u64, vram: u64) -> Option<(Plan, Prediction)> {
    plan(&Arc::new(schedule.clone()), shape, &budget(ram, vram), &profile(), &Residency::default()).ok()
}

/// What brute force knows of a run: pages, page transfers over the disk and over links per commit that a home in memory
/// saves, the same of a home in VRAM, and whether it may have one.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    run: Run,
    pages: u64,
    on_gpu: bool,
    reads_on_gpu: bool,
    on_host: bool,
    disk: u64,
    link: u64,
    in_vram: bool,
}

fn candidates(schedule: &Schedule, shape: &Shape<'_>) -> Vec<Candidate> {
    let mut found: Vec<Candidate> = Vec::new();
    let parts = u64::from(shape.sweeps_per_commit.max(1));
    let accesses = || schedule.nodes.iter().filter_map(|n| if let Node::Access(a) = n { Some(a) } else { None });
    for access in accesses() {
        if found.iter().any(|known| known.run == access.run) {
            continue;
        }
        let own = || accesses().filter(|other| other.run == access.run);
        let pages = u64::from(access.run.count);
        let moved = |gpu_only: bool| {
            let counted = own().filter(|a| !gpu_only || a.tier != Tier::Host);
            counted.map(|a| (u64::from(a.mode.reads()) + u64::from(a.mode.writes())) * parts).sum::<u64>()
        };
        let kept = shape.regions[access.run.region.0 as usize].kind == Kind::Checkpointed;
        let commit = u64::from(kept && shape.sweeps_per_commit > 0 && own().any(|a| a.mode.writes()));
        found.push(Candidate {
            run: access.run,
            pages,
            on_gpu: own().any(|a| a.tier != Tier::Host),
            reads_on_gpu: own().any(|a| a.tier != Tier::Host && a.mode.reads()),
            on_host: own().any(|a| a.tier == Tier::Host),
            disk: (moved(false) - commit) * pages,
            link: (moved(true) - commit.min(moved(true))) * pages,
            in_vram: own().all(|a| a.tier == Tier::Device(GPU)),
        });
    }
    found
}

/// The best (disk, link) saving of all homes that fit. Leases are given back at once, so each window needs twice the
/// largest run that streams through it.
fn optimum(runs: &[Candidate], ram: u64, vram: u64) -> Option<(u64, u64)> {
    let mut best = None;
    for code in 0..3u32.pow(runs.len() as u32) {
        let home = |index: usize| code / 3u32.pow(index as u32) % 3;
        let (mut held, mut streams, mut saved) = ([0u64; 2], [0u64; 2], (0, 0));
        let mut allowed = true;
        for (index, run) in runs.iter().enumerate() {
            match home(index) {
                0 => {
                    streams[0] = streams[0].max(if run.on_host || run.reads_on_gpu { run.pages } else { 0 });
                }
                1 => {
                    held[0] += run.pages;
                    saved.0 += run.disk;
                }
                _ => {
                    held[1] += run.pages;
                    saved = (saved.0 + run.disk, saved.1 + run.link);
                    allowed &= run.in_vram;
                }
            }
            // Whoever uses it on the GPU goes through the ring there unless it lives there.
            if home(index) != 2 && run.on_gpu {
                streams[1] = streams[1].max(run.pages);
            }
        }
        if allowed && held[0] + 2 * streams[0] <= ram && held[1] + 2 * streams[1] <= vram {
            best = best.max(Some(saved));
        }
    }
    best
}

/// Up to 5 runs, each used by the host, by the GPU or by both, without work.
fn few_runs(numbers: &mut Numbers, same_size: bool) -> Schedule {
    let size = 1 + numbers.below(3);
    let sides: Vec<(Run, u64)> = (0..=numbers.below(5) as u32)
        .map(|index| {
            let pages = if same_size { size } else { 1 + numbers.below(4) } as u32;
            (run(numbers.below(3) as u32, index * 4, pages), numbers.below(4))
        })
        .collect();
    let mut schedule = Schedule { cyclic: true, ..Schedule::default() };
    for index in 0..sides.len() as u64 + numbers.below(10) {
        let chosen = if index < sides.len() as u64 { index } else { numbers.below(sides.len() as u64) };
        let (run, side) = sides[chosen as usize];
        let on_host = side == 0 || side == 1 && numbers.below(2) == 0;
        let tier = if on_host { Tier::Host } else { Tier::Device(GPU) };
        let mode = [Mode::Read, Mode::Write, Mode::Update][numbers.below(3) as usize];
        schedule.access_on(tier, run, mode, Vec::new(), 0);
    }
    schedule
}

/// The saving of a plan's homes.
fn saved(plan: &Plan, runs: &[Candidate]) -> (u64, u64) {
    let mut saved = (0, 0);
    for run in runs {
        let interval = plan.intervals.iter().find(|interval| interval.run == run.run).unwrap();
        match interval.home.tier() {
            Tier::Disk => {}
            Tier::Host => saved.0 += run.disk,
            Tier::Device(_) => saved = (saved.0 + run.disk, saved.1 + run.link),
        }
    }
    saved
}

/// Plans for every pair of budgets that matters and compares with brute force. `slack`: page transfers that a plan may
/// lose in each memory. In RAM that holds no window it may lose more, or be refused: runs that the GPU only writes need
/// none, and brute force finds the homes of the others that leave none needed.
fn compare(schedule: &Schedule, shape: &Shape<'_>, slack: impl Fn(&[Candidate]) -> u64) {
    let runs = candidates(schedule, shape);
    let on_gpu = schedule.nodes.iter().filter_map(|n| if let Node::Access(a) = n { Some(a) } else { None });
    let staging = 2 * on_gpu.filter(|a| a.tier != Tier::Host).map(|a| u64::from(a.run.count)).max().unwrap_or(0);
    // In memories this small a quarter is never more than twice the smallest run, so comfort plays no part.
    let smallest = runs.iter().map(|run| run.pages).min().expect("a schedule accesses something");
    let total: u64 = runs.iter().map(|run| run.pages).sum();
    let most = (8 * smallest + 3).min(2 * total);
    let slack = slack(&runs);
    for (ram, vram) in (0..=most).flat_map(|ram| (0..=most).map(move |vram| (ram, vram))) {
        match (planned(schedule, shape, ram + staging, vram), optimum(&runs, ram, vram)) {
            (Some((plan, _)), Some(best)) => {
                let saved = saved(&plan, &runs);
                assert!(saved.0 <= best.0, "brute force missed a placement: {saved:?} of {best:?}, {runs:?}");
                let lost = best.0 - saved.0;
                let is_tight = ram < 2 * smallest;
                assert!(is_tight || lost <= 2 * slack, "{lost} lost over the disk, {ram} + {vram} pages: {runs:?}");
                assert!(saved.1 + slack >= best.1, "{saved:?} of {best:?} in {ram} + {vram} pages: {runs:?}");
            }
            (None, None) => {}
            // Also a larger run in VRAM may make the windows smaller. The planner fills VRAM by gain or by size.
            (None, Some(_)) if slack > 0 || ram < 2 * smallest => {}
            (found, best) => {
                panic!("{ram} + {vram} pages: {:?}, brute force {best:?}, {runs:?}", found.map(|f| f.0.exit))
            }
        }
    }
}

/// Of runs of one size nothing is lost; with runs among them that need no window in RAM, at most what that window
/// holds.
#[test]
fn runs_of_one_size_are_placed_optimally_over_three_tiers() {
    let (mut numbers, regions) = (Numbers(60), three_regions());
    let mut exact = 0;
    for _ in 0..120 {
        let schedule = few_runs(&mut numbers, true);
        let shape = Shape { sweeps_per_commit: numbers.below(4) as u32, ..shape(&regions) };
        let needs_window = |run: &Candidate| run.on_host || run.reads_on_gpu;
        exact += u32::from(candidates(&schedule, &shape).iter().all(needs_window));
        compare(&schedule, &shape, |runs| match runs.iter().all(needs_window) {
            true => 0,
            false => runs.iter().map(|run| run.disk).max().unwrap_or(0),
        });
    }
    assert!(exact > 60, "only {exact} compared exactly");
}

#[test]
fn runs_of_any_size_are_placed_within_one_run_of_the_optimum_in_each_memory() {
    let (mut numbers, regions) = (Numbers(61), three_regions());
    for _ in 0..120 {
        let schedule = few_runs(&mut numbers, false);
        let shape = Shape { sweeps_per_commit: numbers.below(4) as u32, ..shape(&regions) };
        compare(&schedule, &shape, |runs| runs.iter().map(|run| run.disk.max(run.link)).max().unwrap_or(0));
    }
}

/// What only the GPU uses fills VRAM by its gain; what both use lives in RAM, however much VRAM there is.
#[test]
fn vram_holds_what_its_device_alone_uses() {
    let regions = [region("kept", 40, Kind::Checkpointed), region("scratch", 40, Kind::Scratch)];
    let mut schedule = Schedule { cyclic: true, ..Schedule::default() };
    let [both, twice, thrice, host] = [run(0, 0, 4), run(0, 4, 4), run(1, 0, 4), run(0, 8, 4)];
    let gpu = Tier::Device(GPU);
    schedule.access(both, Mode::Update, 0);
    schedule.access(host, Mode::Read, 0);
    for run in [both, twice, thrice, both, twice, thrice, thrice] {
        schedule.access_on(gpu, run, Mode::Read, Vec::new(), 0);
    }
    let homes = |ram, vram| {
        let (plan, prediction) = planned(&schedule, &shape(&regions), ram, vram).unwrap();
        let home = |run| plan.intervals.iter().find(|interval| interval.run == run).unwrap().home.tier();
        ([both, twice, thrice, host].map(home), prediction.devices[0].upload_bytes / PAGE)
    };
    let (vram, ram, disk) = (gpu, Tier::Host, Tier::Disk);
    // Staging takes 8 pages of RAM.
    assert_eq!(homes(24, 8), ([ram, ram, ram, ram], 28));
    assert_eq!(homes(24, 12), ([ram, ram, vram, ram], 16));
    assert_eq!(homes(24, 16), ([ram, vram, vram, ram], 8));
    assert_eq!(homes(24, 90), ([ram, vram, vram, ram], 8));
    assert_eq!(homes(16, 16), ([ram, vram, vram, ram], 8));
    assert_eq!(homes(16, 8), ([disk, disk, disk, disk], 28));
    // What moves to VRAM leaves its room in RAM to the others.
    assert_eq!(homes(20, 12), ([ram, ram, vram, ram], 16));
    assert_eq!(homes(16, 12), ([disk, disk, vram, disk], 16));
}

#[test]
fn relayed_reads_cost_the_disk_nothing() {
    let size = Step { units: 4, chunks: 2, pages_per_chunk: 2, updates_on_gpu: false };
    let (schedule, regions) = (step(size), step_regions(size));
    let entry = Residency { fixed: true, ..Residency::default() };
    let (plan, prediction) =
        plan(&Arc::new(schedule), &shape(&regions), &budget(200, 200), &profile(), &entry).unwrap();
    // Per element, nothing resident: 12 bytes of state, the gradient and, once more, the 2 of `hi`; and 12 and 4
    // written. `hi` is uploaded twice. Activations: a read each way but the first unit's, a write.
    let elements = 4 * 2 * 2 * 2_048;
    let act = 4 * PAGE;
    assert_eq!(prediction.disk.read_bytes, elements * (12 + 4 + 2) + 2 * 3 * act);
    assert_eq!(prediction.disk.write_bytes, elements * (12 + 4) + 4 * act);
    assert_eq!(prediction.devices[0].upload_bytes, elements * (2 + 2) + 2 * 3 * act);
    assert_eq!(prediction.devices[0].download_bytes, elements * 4 + 4 * act);
    assert_eq!(plan.intervals.iter().filter(|interval| interval.relay.is_some()).count(), 8);
}

/// The host's update moves 2 bytes a byte and what is relayed from it none, so 3 reads of another run outweigh it.
#[test]
fn relayed_reads_save_nothing() {
    let (regions, mut schedule) = (three_regions(), Schedule { cyclic: true, ..Schedule::default() });
    let (relayed, other) = (run(1, 0, 2), run(2, 0, 2));
    let state = schedule.access(relayed, Mode::Update, 0);
    schedule.access_on(Tier::Device(GPU), relayed, Mode::Read, vec![state], 0);
    for _ in 0..3 {
        schedule.access(other, Mode::Read, 0);
    }
    for first in [4, 8, 12] {
        schedule.access(run(2, first, 2), Mode::Read, 0);
    }
    // Staging and window take 4 pages each.
    let (plan, _) = planned(&schedule, &shape(&regions), 4 + 4 + 2, 8).unwrap();
    assert_eq!(plan.exit.placed.iter().map(|placed| placed.run).collect::<Vec<_>>(), [other]);
}

/// With room for everything the plan is plain work in VRAM: nothing crosses any link, a commit apart.
#[test]
fn with_vram_enough_nothing_moves() {
    let size = Step { units: 4, chunks: 2, pages_per_chunk: 2, updates_on_gpu: true };
    let (schedule, regions) = (step(size), step_regions(size));
    let (plan, prediction) = planned(&schedule, &shape(&regions), 8, 400).unwrap();
    assert_eq!((plan.placed_bytes, plan.window_bytes, plan.devices[0].window_bytes), (0, 0, 0));
    let device = prediction.devices[0];
    assert_eq!((device.upload_bytes, device.download_bytes), (0, 0));
    // Two planes of a page and two of twice that for each of 16 pages.
    assert_eq!(device.commit_bytes, 16 * 6 * PAGE);
    assert_eq!(prediction.disk.commit_bytes, device.commit_bytes);
    assert_eq!((prediction.disk.read_bytes, prediction.disk.write_bytes), (0, 0));
}

#[test]
fn each_device_has_its_own_vram() {
    let regions = three_regions();
    let mut schedule = Schedule { cyclic: true, ..Schedule::default() };
    for (first, id) in [(0, 0), (4, 1), (8, 1)] {
        schedule.access_on(Tier::Device(DeviceId(id)), run(1, first, 4), Mode::Update, Vec::new(), 0);
    }
    let (plan, _) = planned(&schedule, &shape(&regions), 20, 8).unwrap();
    assert_eq!(plan.devices.iter().map(|share| share.placed_bytes / PAGE).collect::<Vec<_>>(), [4, 8]);
    assert_eq!(plan.exit.devices[1].placed.iter().map(|placed| placed.offset / PAGE).collect::<Vec<_>>(), [0, 4]);
}

/// Another sweep over the same store: the host uses what lives in VRAM, through the arena's window and the link.
#[test]
fn the_entry_placement_is_kept_in_vram_too() {
    let regions = three_regions();
    let mut first = Schedule { cyclic: true, ..Schedule::default() };
    first.access_on(Tier::Device(GPU), run(0, 0, 4), Mode::Update, Vec::new(), 0);
    let (before, _) = planned(&first, &shape(&regions), 40, 8).unwrap();
    let mut second = Schedule::default();
    second.access(run(0, 0, 4), Mode::Update, 0);
    second.access(run(0, 8, 4), Mode::Read, 0);
    let (after, prediction) =
        plan(&Arc::new(second), &shape(&regions), &budget(40, 8), &profile(), &before.exit).unwrap();
    assert_eq!(after.exit.devices[0].placed, before.exit.devices[0].placed);
    let device = prediction.devices[0];
    assert_eq!((device.upload_bytes, device.download_bytes), (4 * PAGE, 4 * PAGE));
    assert_eq!((prediction.disk.read_bytes, prediction.disk.write_bytes), (4 * PAGE, 0));
    // 4 pages from VRAM and back beside 4 from disk, and 4 to disk by the commit.
    assert_eq!(prediction.seconds, 12e-6);
}
