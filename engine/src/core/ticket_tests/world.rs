//! A life of the core: how it is opened, stepped, and told and asked by everybody in random order, and what is left of
//! it after a crash.

use super::pages::Pages;
use super::sweeper::Sweeper;
use super::{DURABLE, Draw, PAGE_BYTES, PAGES, STEPS_MAX, Seen, Shop, Stopped, World, make_plan, regions, schedule};
use crate::arena::Arena;
use crate::core::testing::image::{self, Image};
use crate::core::testing::stamps;
use crate::core::{Command, Core, Event, Parts, meta_bytes};
use crate::error::Error;
use crate::format::{Layout, Stripes};
use crate::io::memory::{MemoryIo, Settings};
use crate::plan::Plan;
use crate::schedule::Schedule;
use std::collections::BTreeMap;
use std::sync::Arc;

impl World {
    pub(super) fn new(shop: Shop, seed: u64) -> World {
        World::with(shop, schedule(), Settings { queue_depth: 4, ..Settings::new(seed) })
    }

    pub(super) fn with(shop: Shop, schedule: Schedule, settings: Settings) -> World {
        let plan = make_plan(schedule, shop.planned_pages * u64::from(PAGE_BYTES), !shop.places);
        World::open(shop, plan, settings, image::fresh(&regions()))
    }

    fn open(shop: Shop, plan: Arc<Plan>, settings: Settings, image: Vec<u8>) -> World {
        let (regions, image) = (regions(), Image(image));
        let layout = Layout::new(&regions, &Stripes::single());
        let (superblock, table, _) = image.opened(&regions);
        let unplanned_bytes = shop.unplanned_pages * u64::from(PAGE_BYTES);
        let arena_bytes = shop.planned_pages * u64::from(PAGE_BYTES) + unplanned_bytes + meta_bytes(&layout);
        let arena = Arc::new(Arena::new(arena_bytes).expect("arena"));
        let parts = Parts {
            io: MemoryIo::from_image(arena.clone(), vec![image.0], settings),
            arena: arena.clone(),
            layout,
            regions,
            volumes: vec!["image".into()],
            transfer_bytes: 8192,
            unplanned_bytes,
            devices: Vec::new(),
            table,
            superblock,
        };
        let mut core = Core::new(parts);
        core.command(Command::Place { residency: plan.exit.clone() });
        assert!(matches!(core.next_event(), Some(Event::Placed(Ok(())))));
        World {
            shop,
            core,
            arena,
            plan,
            draw: Draw(settings.seed),
            pages: Pages::default(),
            ready: BTreeMap::new(),
            tickets: BTreeMap::new(),
            recalls: Vec::new(),
            users: vec![Vec::new(); shop.users],
            next_ticket: 0,
            sweeper: Sweeper::default(),
            commits: vec![vec![0; DURABLE.len() * PAGES as usize]],
            acknowledged: 0,
            begun: 0,
            seen: Seen::default(),
            steps: 0,
        }
    }

    pub(super) fn step(&mut self) -> Result<(), Stopped> {
        self.steps += 1;
        assert!(self.steps < STEPS_MAX, "no end within {STEPS_MAX} steps: somebody waits for ever; {:?}", self.users);
        self.core.step();
        self.listen()
    }

    pub(super) fn listen(&mut self) -> Result<(), Stopped> {
        while let Some(event) = self.core.next_event() {
            match event {
                Event::Ready { seq, offset, .. } => assert!(self.ready.insert(seq, Some(offset)).is_none()),
                Event::Failed { seq, error } => {
                    assert!(matches!(error, Error::Misuse { .. }), "{error}");
                    self.ready.insert(seq, None);
                }
                Event::Recall { seq } => self.recalls.push(seq),
                Event::TicketReady { ticket, offset, .. } => {
                    self.tickets.insert(ticket, Ok(offset));
                }
                Event::TicketFailed { ticket, error } => {
                    self.seen.refused += u64::from(error.to_string().contains("placed in RAM"));
                    self.tickets.insert(ticket, Err(error));
                }
                Event::Begun(base) => self.sweeper.base = Some(base.expect("a sweep begins")),
                Event::Committed { note, .. } => {
                    self.acknowledged = usize::from(note[0]);
                    assert_eq!(self.acknowledged, self.begun);
                }
                Event::CommitRefused(_) => {
                    self.commits.pop();
                    self.begun -= 1;
                    self.seen.commits_refused += 1;
                }
                Event::Poisoned { .. } => return Err(Stopped),
                Event::Placed(_) => unreachable!("nothing is placed now"),
            }
        }
        Ok(())
    }

    /// The reactor's answer to a recall, late.
    pub(super) fn answer_recall(&mut self) {
        if self.recalls.is_empty() {
            return;
        }
        let seq = self.recalls.remove(0);
        let taken = self.ready.remove(&seq).is_none();
        *(if taken { &mut self.seen.taken_first } else { &mut self.seen.taken_back }) += 1;
        self.core.command(Command::Recalled { seq, taken });
    }

    /// `acts` acts of everybody in random order; then nobody asks for more, and all that was asked for must be had.
    pub(super) fn live(&mut self, shop: Shop, acts: u64) -> Result<(), Stopped> {
        for _ in 0..acts {
            match self.draw.below(12) {
                0..=3 => self.step()?,
                4..=5 => self.act_sweep(false),
                6 => self.answer_recall(),
                7 if self.draw.below(20) == 0 => self.commit(),
                _ => {
                    let user = self.draw.below(shop.users as u64) as usize;
                    self.act(user, shop.leases, false);
                }
            }
        }
        for _ in 0..50_000 {
            self.answer_recall();
            self.step()?;
            let user = self.draw.below(shop.users as u64) as usize;
            self.act(user, shop.leases, true);
            self.act_sweep(true);
            let idle = self.users.iter().all(Vec::is_empty) && !self.sweeper.begin_sent;
            if idle && self.acknowledged == self.begun {
                return Ok(());
            }
        }
        panic!("no end: a deadlock; users wait for {:?}", self.users);
    }

    /// The store at its last commit, in a new engine.
    pub(super) fn reopened(&self) -> World {
        let settings = Settings { queue_depth: 4, ..Settings::new(self.draw.0) };
        let image = self.core.io().volume(0).to_vec();
        let mut again = World::open(self.shop, self.plan.clone(), settings, image);
        assert_eq!(self.acknowledged, self.begun, "no commit is being made");
        (again.acknowledged, again.begun, again.commits) = (self.acknowledged, self.begun, self.commits.clone());
        let pages = DURABLE.iter().flat_map(|region| (0..PAGES).map(|page| (*region, page)));
        again.pages.stamps = pages.zip(again.commits[again.begun].iter().copied()).collect();
        again.pages.written = self.pages.written;
        again
    }

    /// Every image of a power loss now, or of the death of the process.
    pub(super) fn images(&self, seed: u64) -> Vec<Vec<u8>> {
        image::after_crashes(self.core.io(), seed, [2, 0])
    }

    /// The image must hold the last acknowledged commit or the one being made.
    pub(super) fn check_image(&self, image: Vec<u8>) {
        let image = Image(image);
        let Some((_, recovered)) = image.committed() else {
            assert_eq!(self.acknowledged, 0, "a commit was acknowledged and is gone");
            return;
        };
        let commit = usize::from(recovered.note[0]);
        assert!([self.acknowledged, self.begun].contains(&commit), "commit {commit} came back");
        let pages = DURABLE.iter().flat_map(|region| (0..PAGES).map(|page| (*region, page)));
        for ((region, page), expected) in pages.zip(&self.commits[commit]) {
            image.check_page(&recovered, region, page, *expected == 0, |bytes| {
                stamps::check(bytes, *expected, format_args!("page {page} of commit {commit}"));
            });
        }
    }
}
