//! Small random stores and what is done with them: regions of all kinds and several page sizes, and for each process
//! a few plans over them, made by the planner for one placement, some of which cut the pages differently.

use crate::config::{Kind, RegionSpec};
use crate::error::PlanError;
use crate::format::{Layout, Stripes};
use crate::id::{Mode, RegionId, Run};
use crate::io::memory::rng::SplitMix64;
use crate::plan::{Budget, Place, Plan, Residency, Shape, plan};
use crate::profile::Profile;
use crate::schedule::{Resource, Schedule};
use std::sync::Arc;

const BLOCK: u64 = crate::format::BLOCK;

/// A store: what stays the same from process to process.
#[derive(Clone)]
pub(super) struct Store {
    pub(super) regions: Vec<RegionSpec>,
    pub(super) layout: Layout,
    pub(super) transfer_bytes: u32,
}

impl Store {
    /// The stripes have a stream of their own.
    pub(super) fn draw(rng: &mut SplitMix64, stripes: &mut SplitMix64) -> Store {
        let mut kinds = vec![Kind::Checkpointed];
        for (kind, thousandths) in [(Kind::Checkpointed, 400), (Kind::Scratch, 700), (Kind::Frozen, 500)] {
            if rng.thousandths(thousandths) {
                kinds.push(kind);
            }
        }
        let mut regions = Vec::new();
        for (n, kind) in kinds.into_iter().enumerate() {
            let page_bytes = rng.pick(&[4096, 4096, 8192, 16384]);
            let pages = 1 + rng.below(if page_bytes == 4096 { 10 } else { 5 }) as u32;
            regions.push(RegionSpec { name: format!("{n}-{kind:?}"), page_bytes, pages, kind });
        }
        let transfer_bytes = rng.pick(&[4096, 8192, 16384, 1 << 20]);
        Store { layout: Layout::new(&regions, &deal(stripes)), regions, transfer_bytes }
    }
}

/// How pages are dealt to one volume or several.
fn deal(rng: &mut SplitMix64) -> Stripes {
    let volumes = rng.pick(&[1, 1, 2, 3]);
    let shares: Vec<f64> = (0..volumes).map(|_| rng.pick(&[1.0, 1.0, 2.0, 3.0])).collect();
    let bytes = rng.pick(&[4096, 4096, 8192, 16384]);
    if volumes == 1 { Stripes::single() } else { Stripes::with_shares(bytes, &shares) }
}

/// The plans of one process.
pub(super) struct Work {
    /// The first decides the placement.
    pub(super) plans: Vec<Arc<Plan>>,
    /// Arena bytes for pages.
    pub(super) arena_bytes: u64,
}

impl Work {
    /// Plans that may write to frozen regions, or, once they are sealed, now and then try to.
    pub(super) fn draw(rng: &mut SplitMix64, store: &Store, is_sealed: bool) -> Work {
        let cut = cut(rng, store, &[]);
        let thaws = !is_sealed && rng.below(2) == 0;
        let first = schedule(rng, store, &cut, thaws);
        let shape = Shape {
            regions: &store.regions,
            sweeps_per_commit: rng.below(3) as u32,
            prefetch_intervals_max: rng.pick(&[None, None, Some(0), Some(1), Some(3)]),
            has_disk: true,
        };
        let smallest = match made(&first, &shape, 0, &Residency::default()) {
            Err(need) => need,
            Ok(_) => 0,
        };
        let total: u64 = cut.iter().map(|run| store.layout.run_bytes(*run)).sum();
        let host_bytes = match rng.below(4) {
            0 => smallest,
            1 => smallest.max(total),
            _ => smallest + rng.below(total / BLOCK + 1) * BLOCK,
        };
        let first = made(&first, &shape, host_bytes, &Residency::default()).expect("the arena is large enough");
        let mut work = Work { arena_bytes: first.placed_bytes + first.window_bytes, plans: vec![Arc::new(first)] };
        for _ in 0..rng.below(3) {
            work.add(rng, store, &shape, &cut, is_sealed);
        }
        work.arena_bytes += rng.below(4) * BLOCK;
        work
    }

    fn add(&mut self, rng: &mut SplitMix64, store: &Store, shape: &Shape<'_>, cut: &[Run], is_sealed: bool) {
        let entry = self.plans[0].exit.clone();
        let placed: Vec<Run> = entry.placed.iter().map(|placed| placed.run).collect();
        let recut = if rng.below(2) == 0 { cut.to_vec() } else { self::cut(rng, store, &placed) };
        let thaws = if is_sealed { rng.below(12) == 0 } else { rng.below(2) == 0 };
        let schedule = schedule(rng, store, &recut, thaws);
        let plan = match made(&schedule, shape, self.arena_bytes, &entry) {
            Ok(plan) => plan,
            Err(need) => made(&schedule, shape, need, &entry).expect("the nearest budget fits"),
        };
        self.arena_bytes = self.arena_bytes.max(plan.placed_bytes + plan.window_bytes);
        self.plans.push(Arc::new(plan));
    }

    /// A plan that reads every page that is not scratch, for the placement of these.
    pub(super) fn reading_all(&mut self, store: &Store) -> Arc<Plan> {
        let entry = self.plans[0].exit.clone();
        let placed: Vec<Run> = entry.placed.iter().map(|placed| placed.run).collect();
        let mut schedule = Schedule::default();
        for run in cut(&mut SplitMix64::new(0), store, &placed) {
            if store.layout.kind(run.region) != Kind::Scratch {
                let access = schedule.access(run, Mode::Read, 0);
                schedule.work(Resource::HostCompute, 1, vec![access], 0);
            }
        }
        let shape =
            Shape { regions: &store.regions, sweeps_per_commit: 0, prefetch_intervals_max: None, has_disk: true };
        let schedule = Arc::new(schedule);
        let plan = match made(&schedule, &shape, self.arena_bytes, &entry) {
            Ok(plan) => plan,
            Err(need) => made(&schedule, &shape, need, &entry).expect("the nearest budget fits"),
        };
        self.arena_bytes = self.arena_bytes.max(plan.placed_bytes + plan.window_bytes);
        Arc::new(plan)
    }
}

/// Plans for an arena of this size, or says which size fits.
fn made(schedule: &Arc<Schedule>, shape: &Shape<'_>, host_bytes: u64, entry: &Residency) -> Result<Plan, u64> {
    let budget = Budget { host_bytes, device_bytes: Vec::new(), disk_bytes: u64::MAX };
    match plan(schedule, shape, &budget, &Profile::default(), entry) {
        Ok((plan, _)) => Ok(plan),
        Err(PlanError::DoesNotFit { nearest, .. }) => Err(nearest.host_bytes),
        Err(error) => panic!("a schedule of the simulation is refused: {error}"),
    }
}

/// Whether two plans cut the pages that stream differently.
pub(super) fn cuts_differ(a: &Plan, b: &Plan) -> bool {
    let streamed = |plan: &Plan| -> Vec<Run> {
        plan.intervals.iter().filter(|i| i.place == Place::Window).map(|i| i.run).collect()
    };
    let theirs = streamed(b);
    streamed(a).iter().any(|run| theirs.iter().any(|other| run.overlaps(other) && run != other))
}

/// Cuts all regions into runs; `kept` are among them.
fn cut(rng: &mut SplitMix64, store: &Store, kept: &[Run]) -> Vec<Run> {
    let mut runs = Vec::new();
    for (n, spec) in store.regions.iter().enumerate() {
        let region = RegionId(n as u32);
        let mut first = 0;
        while first < spec.pages {
            if let Some(run) = kept.iter().find(|run| run.region == region && run.first == first) {
                runs.push(*run);
                first = run.end();
                continue;
            }
            let next = kept.iter().filter(|run| run.region == region && run.first > first).map(|run| run.first).min();
            let room = next.unwrap_or(spec.pages) - first;
            let count = 1 + rng.below(u64::from(room.min(4))) as u32;
            runs.push(Run { region, first, count });
            first += count;
        }
    }
    runs
}

/// A random schedule over the runs: some leases are held over several works, some accesses have none.
fn schedule(rng: &mut SplitMix64, store: &Store, runs: &[Run], thaws: bool) -> Arc<Schedule> {
    let mut schedule = Schedule { cyclic: rng.below(4) > 0, ..Schedule::default() };
    let mut open: Vec<(u32, Run)> = Vec::new();
    let modes = rng.pick(&[
        [Mode::Read, Mode::Write, Mode::Update],
        [Mode::Update, Mode::Update, Mode::Read],
        [Mode::Write, Mode::Write, Mode::Update],
    ]);
    let accesses_max = if rng.below(8) == 0 { 60 } else { 16 };
    let accesses = 2 + rng.below(accesses_max);
    let few = 1 + rng.below(runs.len() as u64);
    for _ in 0..accesses {
        // Often the same few runs, so that intervals of one run follow each other closely.
        let among = if rng.below(2) == 0 { few } else { runs.len() as u64 };
        let run = runs[rng.below(among) as usize];
        let mode = match store.layout.kind(run.region) {
            Kind::Frozen if !thaws => Mode::Read,
            _ => rng.pick(&modes),
        };
        if !open.iter().any(|(_, other)| *other == run) {
            open.push((schedule.access(run, mode, 0), run));
        }
        match rng.below(8) {
            0..4 => {
                let after = open.iter().map(|(node, _)| *node).collect();
                schedule.work(Resource::HostCompute, 1, after, 0);
                open.retain(|_| rng.below(3) == 0);
            }
            4 => _ = schedule.commit(Vec::new()),
            _ => {}
        }
    }
    Arc::new(schedule)
}
