//! Single rules of unplanned use, each by a case of its own: who waits for whom, what is taken back, what is kept and
//! what is read again.

use super::users::Use;
use super::{COUNT, FROZEN, PAGE_BYTES, SHOPS, STATE, World, regions, run};
use crate::core::{Command, Event};
use crate::error::Error;
use crate::format::Stripes;
use crate::format::layout::{Layout, Side};
use crate::id::{Mode, Run};
use crate::io::memory::Settings;
use crate::plan::{Placed, Residency};
use crate::schedule::{Resource, Schedule};

impl World {
    /// Steps, and answers recalls, until the ticket is answered.
    fn wait(&mut self, asked: Use) -> Result<u64, Error> {
        for _ in 0..1000 {
            self.answer_recall();
            assert!(self.step().is_ok(), "the disk does not stop");
            if let Some(answer) = self.tickets.remove(&asked.ticket) {
                return answer;
            }
        }
        panic!("{asked:?} waits for ever");
    }

    fn steps(&mut self) {
        for _ in 0..200 {
            self.answer_recall();
            assert!(self.step().is_ok(), "the disk does not stop");
        }
    }

    fn give_back(&mut self, asked: Use, changed: bool) {
        self.core.command(Command::GiveBack { ticket: asked.ticket, changed });
    }

    /// Writes the run through a ticket, beside nobody.
    fn fill(&mut self, run: Run) {
        let asked = self.fetch(run, Mode::Write);
        let offset = self.wait(asked).expect("nobody is there");
        self.pages.write(&self.arena, run, offset);
        self.give_back(asked, true);
        self.steps();
    }

    /// Reads the run through a ticket, beside nobody, and gives it back.
    fn read(&mut self, run: Run) {
        let asked = self.fetch(run, Mode::Read);
        let offset = self.wait(asked).expect("nobody is there");
        self.pages.check(&self.arena, run, offset);
        self.give_back(asked, false);
    }

    fn begin(&mut self) -> u64 {
        self.core.command(Command::Begin { plan: self.plan.clone(), next: None });
        self.steps();
        self.sweeper.base.expect("the sweep began")
    }
}

/// The user of a sweep asks for pages that the sweep has fetched ahead, and takes no other access until he has them.
#[test]
fn what_is_only_fetched_ahead_is_in_nobodys_way() {
    for shop in SHOPS {
        for (mode, place) in [(Mode::Update, 2), (Mode::Read, 2), (Mode::Write, 0), (Mode::Update, 0)] {
            let mut world = World::new(shop, 3);
            let base = world.begin();
            let published = |world: &World, first: u32| world.ready.contains_key(&(base + u64::from(first)));
            // Accesses alternate between state and scratch, so that of state pages 2.. is the third.
            assert!(published(&world, place), "fetched ahead");
            let asked = world.fetch(run(STATE, place, COUNT), mode);
            let offset = world.wait(asked).expect("had without the sweep");
            assert!(!published(&world, place), "taken back");
            if mode.writes() {
                world.pages.write(&world.arena, asked.run, offset);
            }
            world.steps();
            assert!(!published(&world, place), "not beside the ticket");
            world.give_back(asked, mode.writes());
            world.steps();
            let offset = world.ready[&(base + u64::from(place))].expect("published again");
            world.pages.check(&world.arena, asked.run, offset);
        }
    }
}

#[test]
fn what_is_being_fetched_ahead_is_in_nobodys_way() {
    let mut world = World::new(SHOPS[1], 3);
    world.fill(run(STATE, 0, 4));
    world.core.command(Command::Begin { plan: world.plan.clone(), next: None });
    world.core.command(Command::Reached { seq: 1 });
    // The sweep's first two runs of state are being read now.
    world.core.step();
    let asked = world.fetch(run(STATE, 2, 2), Mode::Update);
    let offset = world.wait(asked).expect("had without the sweep");
    world.steps();
    assert!(world.ready.contains_key(&0) && !world.ready.contains_key(&2), "only what is in the way went back");
    world.pages.write(&world.arena, asked.run, offset);
    world.give_back(asked, true);
    world.steps();
    world.pages.check(&world.arena, asked.run, world.ready[&2].expect("published at last"));
}

/// A lease that was taken, without the core's knowledge, is not taken back; what was taken back for the same ticket
/// returns, since the one who has the lease may want it next.
#[test]
fn a_ticket_waits_for_a_lease_that_was_taken() {
    for shop in SHOPS {
        let mut world = World::new(shop, 4);
        let base = world.begin();
        assert!(world.ready.remove(&base).is_some(), "taken");
        // Of state pages 0..2 and 2..4, the sweep's first and third access.
        let asked = world.fetch(run(STATE, 1, 1 + u32::from(!shop.places)), Mode::Read);
        world.steps();
        assert!(world.tickets.is_empty(), "the lease is held");
        assert_eq!((world.seen.taken_first, world.recalls.len()), (1, 0), "asked once");
        assert_eq!(world.seen.taken_back, u64::from(!shop.places), "before it was known that it is of no use");
        assert!(world.ready.contains_key(&(base + 2)), "published again");
        world.core.command(Command::Release { seq: base, changed: false });
        world.wait(asked).expect("free now");
    }
}

/// Two users who each hold a lease and wait for the next are not waited for by what only waits.
#[test]
fn a_waiting_ticket_is_in_nobodys_way() {
    let mut world = World::new(SHOPS[1], 5);
    let held = world.fetch(run(STATE, 0, 1), Mode::Read);
    world.wait(held).expect("nobody is there");
    let waits = world.fetch(run(STATE, 0, 4), Mode::Update);
    world.steps();
    let next = world.fetch(run(STATE, 0, 2), Mode::Read);
    world.wait(next).expect("readers share");
    let base = world.begin();
    assert!(!world.ready.contains_key(&base) && world.ready.contains_key(&(base + 2)), "only held pages are kept");
    world.give_back(held, false);
    world.give_back(next, false);
    world.wait(waits).expect("alone");
}

#[test]
fn readers_share_one_copy_and_the_oldest_unused_is_evicted() {
    // The pool holds six pages.
    let mut world = World::new(SHOPS[0], 6);
    let pages = [0, 2, 4].map(|first| run(STATE, first, 2));
    world.fill(run(STATE, 0, 6));
    pages.iter().for_each(|run| world.read(*run));
    assert_eq!(world.core.stats().disk_read_bytes, 0, "parts of a copy are at hand");
    world.read(run(STATE, 6, 2));
    // The copy of all is gone. Two readers of each part share a new one, and the three fill the pool.
    for run in pages {
        let asked = [world.fetch(run, Mode::Read), world.fetch(run, Mode::Read)];
        let offsets = asked.map(|asked| world.wait(asked).expect("room"));
        assert_eq!(offsets[0], offsets[1], "one copy");
        asked.into_iter().for_each(|asked| world.give_back(asked, false));
    }
    assert_eq!(world.core.stats().disk_read_bytes, 6 * u64::from(PAGE_BYTES), "each was read once");
    // The first is used again, so the second is the oldest and makes room.
    world.core.command(Command::Prefetch { runs: vec![pages[0], run(FROZEN, 0, 1)] });
    world.steps();
    let hits = world.core.stats().unplanned_hits;
    let [first, third, second] = [0, 2, 1].map(|index| world.fetch(pages[index], Mode::Read));
    assert_eq!(world.core.stats().unplanned_hits, hits + 2, "the second was evicted");
    for asked in [first, third, second] {
        let offset = world.wait(asked).expect("room");
        world.pages.check(&world.arena, asked.run, offset);
    }
    let late = world.fetch(run(STATE, 8, 1), Mode::Read);
    world.core.command(Command::Prefetch { runs: vec![run(STATE, 9, 1)] });
    world.steps();
    assert!(world.tickets.is_empty(), "all room is held");
    world.give_back(third, false);
    world.wait(late).expect("room again");
}

/// Two accesses of a sweep, and a ticket, read a placed run that is not in RAM yet: it is read once.
#[test]
fn a_placed_run_is_loaded_once() {
    let mut schedule = Schedule::default();
    for _ in 0..2 {
        let access = schedule.access(run(STATE, 0, COUNT), Mode::Read, 0);
        schedule.work(Resource::HostCompute, 10, vec![access], 0);
    }
    let mut world = World::with(SHOPS[3], schedule, Settings::new(1));
    assert_eq!(world.plan.window_bytes, 0, "all is placed");
    world.fill(run(STATE, 0, COUNT));
    world.commit();
    world.steps();
    let page = run(STATE, 1, 1);
    for (before, beside) in [(false, false), (true, false), (false, true)] {
        let mut again = world.reopened();
        if before {
            again.core.command(Command::Prefetch { runs: vec![page] });
        }
        if beside {
            again.core.command(Command::Begin { plan: again.plan.clone(), next: None });
            again.core.step();
            let asked = again.fetch(page, Mode::Read);
            let offset = again.wait(asked).expect("beside other readers");
            again.pages.check(&again.arena, page, offset);
            assert_eq!(again.core.stats().unplanned_hits, 1, "on its way");
            continue;
        }
        let base = again.begin();
        assert!(again.ready.contains_key(&base) && again.ready.contains_key(&(base + 1)), "readers share");
        again.read(run(STATE, 0, 1));
        let stats = again.core.stats();
        assert_eq!((stats.disk_read_bytes, stats.unplanned_hits), (u64::from(COUNT * PAGE_BYTES), 1));
    }
}

/// What an access that may replace a placed run did not write is not taken for its content.
#[test]
fn a_placed_run_that_was_not_written_after_all_is_read() {
    let mut schedule = Schedule::default();
    for mode in [Mode::Write, Mode::Read] {
        let access = schedule.access(run(STATE, 0, COUNT), mode, 0);
        schedule.work(Resource::HostCompute, 10, vec![access], 0);
    }
    let mut world = World::with(SHOPS[3], schedule, Settings::new(1));
    assert_eq!(world.plan.window_bytes, 0, "all is placed");
    world.fill(run(STATE, 0, COUNT));
    world.commit();
    world.steps();
    for (by_ticket, taken) in [(true, true), (false, true), (false, false)] {
        let mut again = world.reopened();
        if by_ticket {
            let asked = again.fetch(run(STATE, 0, COUNT), Mode::Write);
            again.wait(asked).expect("nobody is there");
            again.give_back(asked, false);
        } else {
            let base = again.begin();
            if taken {
                again.core.command(Command::Release { seq: base, changed: false });
            }
        }
        again.read(run(STATE, 0, COUNT));
    }
}

/// A run is placed while a ticket changes a part of it in a copy: who loads its home waits for that.
#[test]
fn a_run_may_be_placed_while_a_ticket_holds_a_part_of_it() {
    for changed in [false, true] {
        let mut world = World::new(SHOPS[1], 8);
        world.fill(run(STATE, 0, COUNT));
        let held = world.fetch(run(STATE, 0, 1), Mode::Update);
        let offset = world.wait(held).expect("nobody is there");
        let placed = Placed { run: run(STATE, 0, COUNT), offset: 0, bytes: u64::from(COUNT * PAGE_BYTES) };
        let residency = Residency { placed: vec![placed], placed_bytes: placed.bytes, ..Residency::default() };
        world.core.command(Command::Place { residency });
        assert!(matches!(world.core.next_event(), Some(Event::Placed(Ok(())))));
        let other = world.fetch(run(STATE, 1, 1), Mode::Read);
        world.steps();
        assert!(world.tickets.is_empty(), "it would load the home with bytes that are about to change");
        if changed {
            world.pages.write(&world.arena, held.run, offset);
        }
        world.give_back(held, changed);
        let offset = world.wait(other).expect("loads the home");
        world.pages.check(&world.arena, other.run, offset);
        world.read(run(STATE, 0, COUNT));
        assert!(offset < placed.bytes, "in the home");
    }
}

#[test]
fn a_changed_byte_on_disk_fails_the_tickets_that_need_the_page_and_no_other() {
    let mut world = World::new(SHOPS[0], 7);
    world.fill(run(STATE, 0, 4));
    let at = Layout::new(&regions(), &Stripes::single()).extent(STATE, 3, Side::First).offset;
    world.core.io_mut().write_durable(0, at + 8, &[0xff]);
    // The copy is still right; another takes its place.
    world.read(run(STATE, 0, 4));
    world.read(run(STATE, 4, 4));
    world.core.command(Command::Prefetch { runs: vec![run(STATE, 0, 4)] });
    let [whole, part] = [4, 3].map(|count| world.fetch(run(STATE, 0, count), Mode::Read));
    let Err(Error::Corrupt { region, page, .. }) = world.wait(whole) else { panic!("not found") };
    assert_eq!((region.as_str(), page), ("state", 3));
    let offset = world.wait(part).expect("its pages are right");
    world.pages.check(&world.arena, part.run, offset);
}
