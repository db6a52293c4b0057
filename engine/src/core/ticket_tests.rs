//! Tickets over the simulated disk: a sweep, several users with tickets, and commits, interleaved at random, against
//! stamps of what each page must hold. Every interleaving is stopped at some of its events too, and every image that a
//! power loss could have left must hold a committed state.
//!
//! Here is what lives are made of. `world` steps the core, `users` and `sweeper` are who uses it, `pages` knows what
//! they must find; `lives` and `cases` are the tests.

use super::Core;
use crate::arena::Arena;
use crate::config::{Kind, RegionSpec};
use crate::error::Error;
use crate::id::{Mode, RegionId, Run};
use crate::io::memory::MemoryIo;
use crate::plan::{Budget, Plan, Residency, Shape, plan};
use crate::profile::Profile;
use crate::schedule::{Resource, Schedule};
use pages::Pages;
use std::collections::BTreeMap;
use std::sync::Arc;
use sweeper::Sweeper;
use users::Use;

mod cases;
mod lives;
mod pages;
mod sweeper;
mod users;
mod world;

const PAGES: u32 = 12;
const PAGE_BYTES: u32 = 4096;
const STATE: RegionId = RegionId(0);
const SCRATCH: RegionId = RegionId(1);
const FROZEN: RegionId = RegionId(2);
/// Regions that a commit covers.
const DURABLE: [RegionId; 2] = [STATE, FROZEN];
/// Pages of a sweep's runs.
const COUNT: u32 = 2;
/// Pages of a user's longest run.
const LONGEST: u32 = 4;
/// Steps of the core that no life takes: more than ten times what the longest one here does.
const STEPS_MAX: u64 = 100_000;

fn regions() -> Vec<RegionSpec> {
    let region = |name: &str, kind| RegionSpec { name: name.into(), page_bytes: PAGE_BYTES, pages: PAGES, kind };
    vec![region("state", Kind::Checkpointed), region("scratch", Kind::Scratch), region("frozen", Kind::Frozen)]
}

fn run(region: RegionId, first: u32, count: u32) -> Run {
    Run { region, first, count }
}

/// Updates the state and writes scratch beside it, marks a commit, reads both.
fn schedule() -> Schedule {
    let mut schedule = Schedule { cyclic: true, ..Schedule::default() };
    for (state, scratch) in [(Mode::Update, Mode::Write), (Mode::Read, Mode::Read)] {
        for first in (0..PAGES).step_by(COUNT as usize) {
            let state = schedule.access(run(STATE, first, COUNT), state, 0);
            let scratch = schedule.access(run(SCRATCH, first, COUNT), scratch, 0);
            schedule.work(Resource::HostCompute, 10, vec![state, scratch], 0);
        }
        if state == Mode::Update {
            schedule.commit(vec![]);
        }
    }
    schedule
}

/// `fixed`: nothing is placed.
fn make_plan(schedule: Schedule, planned_bytes: u64, fixed: bool) -> Arc<Plan> {
    let regions = regions();
    let shape = Shape { regions: &regions, sweeps_per_commit: 1, prefetch_intervals_max: None, has_disk: true };
    let budget = Budget { host_bytes: planned_bytes, device_bytes: vec![], disk_bytes: u64::MAX };
    let entry = Residency { fixed, ..Residency::default() };
    Arc::new(plan(&Arc::new(schedule), &shape, &budget, &Profile::default(), &entry).expect("fits").0)
}

/// A seeded stream of numbers, apart from the disk's.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 32) * bound) >> 32
    }
}

/// What a run has room for, and who is in it.
#[derive(Clone, Copy)]
struct Shop {
    /// Arena bytes for the plan and for tickets, in pages.
    planned_pages: u64,
    /// Whether the plan may place runs.
    places: bool,
    unplanned_pages: u64,
    users: usize,
    /// Leases that a user may hold at once.
    leases: usize,
}

const SHOPS: [Shop; 4] = [
    // All streamed, and so little room that tickets wait for it.
    Shop { planned_pages: 9, places: false, unplanned_pages: 6, users: 3, leases: 1 },
    // Room for all that users may hold, gaps included, so that waiting for it cannot deadlock them.
    Shop { planned_pages: 13, places: false, unplanned_pages: 40, users: 3, leases: 2 },
    // A part placed.
    Shop { planned_pages: 17, places: true, unplanned_pages: 28, users: 2, leases: 2 },
    // All placed: copies only of frozen pages.
    Shop { planned_pages: 24, places: true, unplanned_pages: 16, users: 4, leases: 1 },
];

/// The disk stopped.
struct Stopped;

struct World {
    shop: Shop,
    core: Core<MemoryIo>,
    arena: Arc<Arena>,
    plan: Arc<Plan>,
    draw: Draw,
    pages: Pages,
    /// What was published and not taken.
    ready: BTreeMap<u64, Option<u64>>,
    tickets: BTreeMap<u64, Result<u64, Error>>,
    recalls: Vec<u64>,
    users: Vec<Vec<Use>>,
    next_ticket: u64,
    sweeper: Sweeper,
    /// The state of each commit, and how many were acknowledged and begun.
    commits: Vec<Vec<u64>>,
    acknowledged: usize,
    begun: usize,
    seen: Seen,
    steps: u64,
}

/// What happened in a run.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
struct Seen {
    fetches: u64,
    uses: u64,
    dropped: u64,
    discarded: u64,
    refused: u64,
    undefined: u64,
    taken_back: u64,
    taken_first: u64,
    commits_refused: u64,
}

impl Seen {
    fn add(&mut self, other: &Seen) {
        self.fetches += other.fetches;
        self.uses += other.uses;
        self.dropped += other.dropped;
        self.discarded += other.discarded;
        self.refused += other.refused;
        self.undefined += other.undefined;
        self.taken_back += other.taken_back;
        self.taken_first += other.taken_first;
        self.commits_refused += other.commits_refused;
    }
}
