//! What is asked of plans with devices.

use super::links::Links;
use super::{Course, PAGE, PLAIN, Seen, World};
use crate::canary::{DEVICES, Nest};
use crate::core::{Command, Event};
use crate::error::Error;
use crate::id::DeviceId;
use crate::plan::{DeviceResidency, Placed, Residency};
use std::panic::catch_unwind;
use std::sync::Arc;

/// Courses in turn: with homes in memory, streamed, without a disk; all accesses, or some passed over.
fn course(seed: u64) -> Course {
    let (passed, unchanged) = [(0, 0), (60, 60), (0, 0), (60, 300)][seed as usize % 4];
    let plain = Course { passed, unchanged, ..PLAIN };
    match seed % 6 {
        0..=2 => plain,
        3 | 4 => Course { streams: true, ..plain },
        _ => Course { has_disk: false, ..plain },
    }
}

#[test]
fn whatever_is_read_is_what_was_written_last() {
    let mut total = Seen::default();
    for seed in 0..600 {
        let course = course(seed);
        let mut world = World::new(seed, course);
        if course.has_disk && seed.is_multiple_of(2) {
            // On a store that has content.
            assert!(world.live().is_ok(), "nothing stops the disk");
            world = world.reopened(seed + 10_000);
        }
        assert!(world.live().is_ok(), "nothing stops the disk");
        let (stats, seen) = (world.core.stats(), world.seen);
        if course.passed == 0 {
            // What is passed over may have been brought or not.
            let found = Links { up: stats.upload_bytes, down: stats.download_bytes - stats.commit_download_bytes };
            assert_eq!(found, world.links, "seed {seed}: bytes on the links, and by the plan");
        }
        if course.has_disk {
            assert_eq!(world.acknowledged, world.begun);
            world.images(seed).into_iter().for_each(|image| world.check_image(image));
        }
        total.on_device += seen.on_device;
        total.relayed += seen.relayed;
        total.undefined += seen.undefined;
        total.commits += seen.commits;
        total.in_vram += seen.in_vram;
        total.from_vram += seen.from_vram;
        total.commit_download_bytes += stats.commit_download_bytes;
        total.early += seen.early;
        total.behind += seen.behind;
    }
    eprintln!("{total:?}");
    assert!(total.on_device > 10_000 && total.relayed > 1_000 && total.undefined > 500, "{total:?}");
    assert!(total.in_vram > 2_000 && total.from_vram > 50 && total.commits > 1_000, "{total:?}");
    assert!(total.commit_download_bytes > 500 * PAGE, "{total:?}");
    assert!(total.early > 1_000 && total.behind > 200, "{total:?}");
}

#[test]
fn a_crash_leaves_the_last_commit_or_the_one_being_made() {
    let mut checked = 0;
    for seed in (0..60).filter(|seed| course(*seed).has_disk) {
        let mut whole = World::new(seed, course(seed));
        assert!(whole.live().is_ok(), "nothing stops the disk");
        for stop in (seed % 13..=whole.core.io().events()).step_by(13) {
            let mut world = World::new(seed, course(seed));
            world.core.io_mut().stop_after(stop);
            let _ = world.live();
            for image in world.images(seed ^ stop) {
                world.check_image(image);
                checked += 1;
            }
        }
    }
    assert!(checked > 5_000, "only {checked} images were checked");
}

#[test]
fn after_a_failed_copy_nothing_succeeds_and_the_last_commit_stands() {
    let mut poisoned = 0;
    for seed in (0..200).filter(|seed| course(*seed).has_disk) {
        let mut world = World::new(seed, Course { failed_copy: 40, ..course(seed) });
        if world.live().is_ok() {
            continue;
        }
        poisoned += 1;
        for _ in 0..50 {
            world.core.step();
            while let Some(event) = world.core.next_event() {
                let is_success = matches!(event, Event::Ready { .. } | Event::Committed { .. });
                assert!(!is_success, "seed {seed}: success after a failed copy");
            }
        }
        world.images(seed).into_iter().for_each(|image| world.check_image(image));
    }
    assert!(poisoned > 40, "only {poisoned} runs met a fault");
}

#[test]
fn a_fence_may_be_told_before_the_upload_that_its_stream_waited_for() {
    let mut late = 0;
    for seed in 0..120_u64 {
        let failed_copy = if seed.is_multiple_of(3) { 40 } else { 0 };
        let course = Course { uploads_last: true, failed_copy, ..course(seed) };
        let mut world = World::new(seed, course);
        let ended = world.live().is_ok();
        assert!(ended || failed_copy > 0, "nothing stops the disk");
        if course.has_disk {
            world.images(seed).into_iter().for_each(|image| world.check_image(image));
        }
        late += world.seen.late;
    }
    eprintln!("{late} steps with a fence told too early");
    assert!(late > 2_000, "only {late} steps with a fence told too early");
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let trace = |seed| {
        let mut world = World::new(seed, course(seed));
        assert!(world.live().is_ok(), "nothing stops the disk");
        (world.core.io().events(), world.core.io().volume(0).to_vec(), world.seen)
    };
    assert!((0..4).all(|seed| trace(seed) == trace(seed)));
}

/// Whether a seed finds a bug, and what it said.
fn finds(seed: u64) -> Option<String> {
    let life = || {
        let failed_copy = if seed.is_multiple_of(4) { 40 } else { 0 };
        let course = Course { failed_copy, ..course(seed) };
        let mut world = World::new(seed, course);
        let ended = world.live().is_ok();
        assert!(ended || failed_copy > 0, "nothing stops the disk");
        if course.has_disk {
            world.images(seed).into_iter().for_each(|image| world.check_image(image));
        }
    };
    let panic = catch_unwind(life).err()?;
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    Some(text.or_else(|| panic.downcast_ref::<String>().cloned()).expect("a panic with words"))
}

#[test]
fn planted_bugs_of_devices_are_found() {
    let mut missed = Vec::new();
    for bug in DEVICES {
        let _nest = Nest::of(bug);
        let Some((seed, said)) = (0..600).find_map(|seed| Some((seed, finds(seed)?))) else {
            missed.push(bug);
            continue;
        };
        eprintln!("{bug:?}: seed {seed}: {}", said.lines().next().unwrap_or_default());
        assert!(!said.contains("deadlock"), "{bug:?}: only a bound found it: {said}");
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}

#[test]
fn an_engine_refuses_devices_that_it_does_not_have() {
    let mut world = World::new(1, Course { streams: true, ..PLAIN });
    let exit = Residency::default();
    let mut plan = (*world.plan).clone();
    plan.devices.iter_mut().for_each(|share| share.device = DeviceId(7));
    world.core.command(Command::Begin { plan: Arc::new(plan), next: None });
    let answer = world.core.next_event();
    assert!(matches!(answer, Some(Event::Begun(Err(Error::Misuse { .. })))), "{answer:?}");
    let placed = Placed { run: world.plan.intervals[0].run, offset: 0, bytes: PAGE };
    let device =
        DeviceResidency { device: DeviceId(7), placed: vec![placed], placed_bytes: PAGE, prefetched: Vec::new() };
    world.core.command(Command::Place { residency: Residency { devices: vec![device], ..exit } });
    let answer = world.core.next_event();
    assert!(matches!(answer, Some(Event::Placed(Err(Error::Misuse { .. })))), "{answer:?}");
}
