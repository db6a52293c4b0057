//! Enumerated crash points: a short workload is stopped after each of its events, and every image that a power loss
//! could leave there is inspected. From a sample of the images the store is opened again and that is stopped after each
//! event of the recovery and of the workload that follows.
//!
//! The workloads come from seeds: commits that overlap sweeps, pages that a commit does not touch, frozen regions and
//! scratch. What the seeds give is counted, and demanded.

use super::report::{Mark, Report};
use super::world::{End, Left, World, draw_crash};
use crate::io::memory::MemoryIo;
use crate::io::memory::disk::{Crash, Disk};
use crate::io::memory::fault::Faults;
use crate::io::memory::rng::SplitMix64;

/// Random sector subsets at each point, and of several volumes as many combinations of a crash of each.
const SUBSETS: usize = 16;

/// One in this many images is opened again.
const SAMPLE: u64 = 61;

/// Points between two that are looked at after an opening.
const STRIDE: usize = 17;

/// Every crash that is tried where so many writes are not flushed: nothing kept, all kept, each write alone, all but
/// each, each prefix with its last torn, random sectors.
fn crashes(unflushed: usize) -> Vec<Crash> {
    let each = (0..unflushed).flat_map(|n| [Crash::OnlySurvivor(n), Crash::OnlyLoss(n), Crash::Prefix(n)]);
    let torn = (0..SUBSETS).map(|_| Crash::Torn);
    [Crash::NoneSurvive, Crash::AllSurvive].into_iter().chain(each).chain(torn).collect()
}

/// What a process left when it was stopped.
enum Stopped {
    Early(Disk),
    Later(Box<MemoryIo>),
}

impl Stopped {
    fn disk(&self) -> &Disk {
        match self {
            Stopped::Early(disk) => disk,
            Stopped::Later(io) => io.disk(),
        }
    }

    /// Calls `look` for every image.
    fn images(&self, seed: u64, mut look: impl FnMut(usize, &[Vec<u8>])) {
        let mut rng = SplitMix64::new(seed);
        let mut image = Vec::new();
        let unflushed = match self {
            Stopped::Early(disk) => disk.unflushed(),
            Stopped::Later(io) => io.unflushed(),
        };
        for (n, crash) in crashes(unflushed).into_iter().enumerate() {
            match self {
                Stopped::Early(disk) => disk.crash_into(std::iter::empty(), crash, &mut rng, &mut image),
                Stopped::Later(io) => io.crash_into(rng.draw(), crash, &mut image),
            }
            look(n, &image);
        }
        if let Stopped::Later(io) = self {
            look(usize::MAX, &io.process_kill_image(seed));
        }
        let volumes = self.disk().volumes();
        for n in 0..if volumes > 1 { SUBSETS } else { 0 } {
            let of = |volume| match self {
                Stopped::Early(disk) => disk.unflushed_on(volume),
                Stopped::Later(io) => io.unflushed_on(volume),
            };
            let apart: Vec<Crash> = (0..volumes).map(|volume| draw_crash(&mut rng, of(volume))).collect();
            match self {
                Stopped::Early(disk) => disk.crash_apart_into(std::iter::empty(), &apart, &mut rng, &mut image),
                Stopped::Later(io) => io.crash_apart_into(rng.draw(), &apart, &mut image),
            }
            look(usize::MAX - 1 - n, &image);
        }
    }
}

/// A run without faults, with commits at every mark.
fn world(seed: u64) -> World {
    let mut world = World::new(seed, 0);
    world.swarm.faults = Faults::default();
    world.swarm.commit = 1000;
    world.swarm.announce = 800;
    world
}

/// Runs one process to its end; what it leaves and the events it took: those of opening, those after.
fn whole(world: &mut World, disk: Disk) -> (Box<MemoryIo>, u64, u64) {
    let before = world.report.events;
    match world.start(disk, u64::MAX, End::InOrder).expect("no check fails") {
        Left::Ran { io, is_closed: true } => {
            let later = io.events();
            (io, world.report.events - before - later, later)
        }
        _ => panic!("nothing stops the process"),
    }
}

/// Stops a process after its event number `point`, counted from the first of the opening.
fn stopped(world: &mut World, disk: Disk, early_events: u64, point: u64) -> Stopped {
    let (early, end) = match point.checked_sub(early_events) {
        None | Some(0) => (point, End::InOrder),
        Some(later) => (u64::MAX, End::AfterEvents(later)),
    };
    match world.start(disk, early, end).expect("no check fails") {
        Left::Nothing => panic!("nothing is damaged"),
        Left::Early(disk) => Stopped::Early(disk),
        Left::Ran { io, .. } => Stopped::Later(io),
    }
}

/// Every point of one process, or every `stride`-th after its opening; `again`: on from a sample of the images.
fn every_point(before: &World, disk: &Disk, stride: usize, again: bool) -> Report {
    let mut counting = before.clone();
    counting.report = Report::default();
    let (_, early_events, events) = whole(&mut counting, disk.clone());
    let mut total = counting.report;
    let later = (early_events + 1..=early_events + events).step_by(stride);
    for point in (1..=early_events).chain(later) {
        let mut world = before.clone();
        world.report = Report::default();
        let stopped = stopped(&mut world, disk.clone(), early_events, point);
        stopped.images(point, |n, image| {
            let remains = stopped.disk().remains_of(image);
            world.inspect(remains).unwrap_or_else(|broken| panic!("event {point}, image {n}: {}", broken.what));
            if again && (point * 31).wrapping_add(n as u64).is_multiple_of(SAMPLE) {
                total.add(&every_point(&world, &stopped.disk().restarted(image.to_vec()), STRIDE, false));
            }
        });
        total.add(&world.report);
    }
    total
}

/// As `every_point`, but the first process is killed, so that what it wrote is volatile still when the next one opens
/// the store; then the power goes.
fn every_point_after_a_kill(before: &World, disk: &Disk) -> Report {
    let mut total = Report::default();
    let (_, early_events, events) = whole(&mut before.clone(), disk.clone());
    for point in (early_events + 1..=early_events + events).step_by(STRIDE) {
        let mut world = before.clone();
        world.report = Report::default();
        let Stopped::Later(io) = stopped(&mut world, disk.clone(), early_events, point) else { panic!("it opens") };
        let killed = io.killed(point);
        world.inspect(killed.remains()).unwrap_or_else(|broken| panic!("killed at event {point}: {}", broken.what));
        total.add(&every_point(&world, &killed, STRIDE, false));
    }
    total
}

/// A seed's store: made, used by a process that ends in order, then crashed everywhere in the next.
fn crash_everywhere(seed: u64) -> Report {
    let mut world = world(seed);
    let new = world.new_disk();
    // The store is made, too, by a process that may die.
    let mut total = every_point(&world, &new, STRIDE, false);
    let (io, ..) = whole(&mut world, new);
    let disk = io.disk().clone();
    total.add(&every_point(&world, &disk, 1, true));
    total.add(&every_point_after_a_kill(&world, &disk));
    total
}

#[test]
fn a_crash_after_any_event_leaves_the_last_commit_or_the_one_being_made() {
    let seeds: Vec<u64> = (0..12).collect();
    let total =
        super::tests::over(&seeds, crash_everywhere).into_iter().fold(Report::default(), |mut total, report| {
            total.add(&report);
            total
        });
    eprintln!("{} images inspected", total.images);
    for mark in [
        Mark::CommitBesideSweep,
        Mark::PartialCommit,
        Mark::SealedRefused,
        Mark::UndefinedScratch,
        Mark::OtherCut,
        Mark::CrashInCreation,
        Mark::CrashInRecovery,
        Mark::UnacknowledgedFound,
        Mark::UnacknowledgedLost,
        Mark::SeveralVolumes,
    ] {
        assert!(total.met(mark) > 0, "{mark:?} was not met");
    }
    assert!(total.images > 100_000, "only {} images were inspected", total.images);
}
