//! Plans with devices over the simulated disk and devices in RAM: random ones by the real planner, walked in schedule
//! order by one user whose work in VRAM happens when his streams come to it, which may be much later. Whatever is read,
//! in RAM or by work on a stream, is compared with stamps of what each page must hold; what a crash leaves is opened
//! and must hold exactly the last commit or the one being made; and bytes on the links are those of the plan.
//!
//! Here is what lives are made of. `world` steps the core, `walker` is the user, `links` counts what must cross the
//! links for him, `tickets` is somebody beside him; `cases` and `tickets` have the tests.

use super::Core;
use crate::arena::Arena;
use crate::config::RegionSpec;
use crate::device::memory::MemoryStreams;
use crate::device::{After, Stream};
use crate::error::{Error, PlanError};
use crate::format::BLOCK;
use crate::id::{DeviceId, Run};
use crate::io::memory::MemoryIo;
use crate::plan::tests::samples::Numbers;
use crate::plan::tests::tiers::{budget, profile, random};
use crate::plan::{Plan, Residency, Shape, plan};
use links::Links;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

mod cases;
mod links;
mod tickets;
mod uploads_last;
mod walker;
mod world;

const PAGE: u64 = 4096;
const PAGES: u32 = 64;
/// Steps of the core within which everything that is waited for comes.
const STEPS_MAX: u64 = 20_000;
/// Bytes of the arena for tickets.
const UNPLANNED: u64 = 16 * PAGE;

const _: () = assert!(UNPLANNED.is_multiple_of(BLOCK));

/// How a run of the test goes.
#[derive(Clone, Copy)]
struct Course {
    /// Of a thousand accesses so many are passed over, and of a thousand writing leases so many come back unchanged.
    passed: u64,
    unchanged: u64,
    /// Of a thousand copies so many fail.
    failed_copy: u32,
    /// The budgets are the smallest with which nothing has a home in memory.
    streams: bool,
    has_disk: bool,
    /// Somebody has tickets beside the sweeps.
    tickets: bool,
    /// Whatever else has happened is told before uploads are.
    uploads_last: bool,
}

const PLAIN: Course = Course {
    passed: 0,
    unchanged: 0,
    failed_copy: 0,
    streams: false,
    has_disk: true,
    tickets: false,
    uploads_last: false,
};

/// The last stamp of every page, by region and page; None: a scratch page that was never written.
type Stamps = BTreeMap<(u32, u32), Option<u64>>;

/// A lease of the walker.
struct Lease {
    seq: u64,
    index: usize,
    offset: u64,
    stream: Stream,
    changed: bool,
    is_written: bool,
}

/// The disk or the engine stopped.
#[derive(Debug)]
struct Stopped;

struct World {
    core: Core<MemoryIo>,
    arena: Arc<Arena>,
    streams: Vec<(DeviceId, MemoryStreams)>,
    plan: Arc<Plan>,
    regions: Vec<RegionSpec>,
    course: Course,
    numbers: Numbers,
    ready: BTreeMap<u64, Result<(u64, After), Error>>,
    tickets: BTreeMap<u64, Result<u64, Error>>,
    visitor: tickets::Visitor,
    leases: Vec<Lease>,
    stamps: Stamps,
    next_stamp: u64,
    /// Of each commit, by its note: what it holds.
    commits: Vec<Stamps>,
    acknowledged: usize,
    begun: usize,
    /// Accesses before the last mark.
    mark: Option<usize>,
    /// Runs whose home in VRAM is loaded.
    loaded: BTreeSet<Run>,
    links: Links,
    seen: Seen,
}

/// How often what is looked for happened.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Seen {
    on_device: u64,
    relayed: u64,
    undefined: u64,
    commits: u64,
    in_vram: u64,
    from_vram: u64,
    commit_download_bytes: u64,
    /// Leases whose bytes were still on their way, or used by others.
    early: u64,
    behind: u64,
    /// Steps after which somebody's fence had passed, and an upload before it was not told to be over.
    late: u64,
}

/// A plan of a random schedule that fits some memory.
fn draw_plan(numbers: &mut Numbers, course: Course, regions: &[RegionSpec]) -> (Arc<Plan>, crate::plan::Budget) {
    let schedule = Arc::new(random(numbers, 10, 4));
    let ahead = [None, None, Some(0), Some(2)][numbers.below(4) as usize];
    let shape = Shape { regions, sweeps_per_commit: 1, prefetch_intervals_max: ahead, has_disk: course.has_disk };
    let entry = Residency { fixed: course.streams, ..Residency::default() };
    let given = match course.streams {
        true => budget(0, 0),
        false => budget(8 + numbers.below(40), 4 + numbers.below(30)),
    };
    match plan(&schedule, &shape, &given, &profile(), &entry) {
        Ok((plan, _)) => (Arc::new(plan), given),
        Err(PlanError::DoesNotFit { nearest, .. }) => {
            let (plan, _) = plan(&schedule, &shape, &nearest, &profile(), &entry).expect("it names what fits");
            (Arc::new(plan), nearest)
        }
        Err(other) => panic!("{other}"),
    }
}
