//! Lives in which everybody does what he likes: without faults, with faults, with crashes, and with planted bugs.

use super::{SHOPS, STATE, Seen, World, run, schedule};
use crate::canary::{Canary, Nest};
use crate::core::{Command, Event};
use crate::id::Mode;
use crate::io::memory::{Faults, Settings};
use std::panic::catch_unwind;

#[test]
fn everybody_reads_what_was_written_last_and_everything_asked_for_is_had() {
    for shop in SHOPS {
        let (mut sweeps, mut commits, mut hits, mut misses) = (0, 0, 0, 0);
        let mut seen = Seen::default();
        for seed in 0..120 {
            // Two lives: the second begins with a store that has content.
            let mut world = World::new(shop, seed);
            assert!(world.live(shop, 1000).is_ok(), "the disk does not stop by itself");
            seen.add(&world.seen);
            let mut world = world.reopened();
            assert!(world.live(shop, 1000).is_ok(), "the disk does not stop by itself");
            world.images(seed).into_iter().for_each(|image| world.check_image(image));
            let stats = world.core.stats();
            let counted = stats.unplanned_hits + stats.unplanned_misses;
            assert_eq!(counted, world.seen.fetches - world.seen.refused, "a fetch is a hit or a miss");
            sweeps += world.sweeper.sweeps;
            commits += world.begun;
            hits += stats.unplanned_hits;
            misses += stats.unplanned_misses;
            seen.add(&world.seen);
        }
        assert!(sweeps > 100 && commits > 100 && hits > 1000 && misses > 500 && seen.uses > 2000, "{seen:?}");
        assert!(seen.dropped > 100 && seen.discarded > 100 && seen.commits_refused > 50, "{seen:?}");
        assert!(seen.taken_back > 20 && seen.taken_first > 20 && seen.undefined > 20, "{seen:?}");
        assert_eq!(seen.refused > 100, shop.places, "{seen:?}");
    }
}

#[test]
fn faults_that_can_be_survived_are_survived() {
    for (seed, shop) in (0..100).zip(SHOPS.iter().cycle()) {
        let faults =
            Faults { short_read: 150, short_write: 150, eintr: 80, eagain: 80, refusal: 200, ..Faults::default() };
        let settings = Settings { queue_depth: 4, faults, ..Settings::new(seed) };
        let mut world = World::with(*shop, schedule(), settings);
        assert!(world.live(*shop, 800).is_ok(), "seed {seed}: stopped by a fault that can be survived");
    }
}

#[test]
fn a_crash_beside_tickets_leaves_the_last_commit_or_the_one_being_made() {
    let mut checked = 0;
    for (seed, shop) in (0..28).zip(SHOPS.iter().cycle()) {
        let mut whole = World::new(*shop, seed);
        assert!(whole.live(*shop, 500).is_ok(), "the disk does not stop by itself");
        // Each shop meets each phase of the stride.
        for stop in (seed % 7..=whole.core.io().events()).step_by(7) {
            let mut world = World::new(*shop, seed);
            world.core.io_mut().stop_after(stop);
            let _ = world.live(*shop, 500);
            for image in world.images(seed ^ stop) {
                world.check_image(image);
                checked += 1;
            }
        }
    }
    assert!(checked > 15_000, "only {checked} images were checked");
}

#[test]
fn after_a_failed_write_or_sync_no_ticket_is_ready_and_the_last_commit_stands() {
    let mut poisoned = 0;
    for (seed, shop) in (0..80).zip(SHOPS.iter().cycle()) {
        let faults = Faults { failed_sync: 30, enospc: 5, ..Faults::default() };
        let mut world = World::with(*shop, schedule(), Settings { queue_depth: 4, faults, ..Settings::new(seed) });
        if world.live(*shop, 1500).is_ok() {
            continue;
        }
        poisoned += 1;
        world.fetch(run(STATE, 0, 1), Mode::Read);
        for user in 0..shop.users {
            // What is held can still be given back.
            while let Some(used) = world.users[user].pop() {
                world.core.command(Command::GiveBack { ticket: used.ticket, changed: used.wrote });
            }
        }
        for _ in 0..50 {
            world.core.step();
            while let Some(event) = world.core.next_event() {
                let success = matches!(event, Event::TicketReady { .. } | Event::Committed { .. });
                assert!(!success, "seed {seed}: success after a failed write or sync");
            }
        }
        world.images(seed).into_iter().for_each(|image| world.check_image(image));
    }
    assert!(poisoned > 20, "only {poisoned} runs met a fault");
}

/// Those that users notice: each ends with the words of a check, within a few lives, and never without an end. What
/// only a crash in the middle of a commit shows (`TicketNoHold`), the simulation finds.
#[test]
fn planted_bugs_of_tickets_are_found_here_too() {
    for bug in
        [Canary::StaleCopy, Canary::TicketAside, Canary::CommitBesideTicket, Canary::RecallTaken, Canary::UnchangedCopy]
    {
        let _nest = Nest::of(bug);
        let said = (0..80).zip(SHOPS.iter().cycle()).find_map(|(seed, shop)| {
            let life = || {
                let mut world = World::new(*shop, seed);
                assert!(world.live(*shop, 1000).is_ok(), "the disk does not stop by itself");
                let mut world = world.reopened();
                assert!(world.live(*shop, 1000).is_ok(), "the disk does not stop by itself");
            };
            let panic = catch_unwind(life).err()?;
            let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
            Some(text.or_else(|| panic.downcast_ref::<String>().cloned()).expect("a panic with words"))
        });
        let said = said.unwrap_or_else(|| panic!("{bug:?} was not found"));
        eprintln!("{bug:?}: {said}");
        assert!(!said.contains("for ever") && !said.contains("deadlock"), "{bug:?}: only a bound found it: {said}");
    }
}

#[test]
fn the_same_seed_gives_the_same_events() {
    let trace = |seed| {
        let mut world = World::new(SHOPS[2], seed);
        assert!(world.live(SHOPS[2], 1000).is_ok());
        (world.core.io().events(), world.core.io().volume(0).to_vec(), world.seen)
    };
    assert!(trace(5) == trace(5));
}
