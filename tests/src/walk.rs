//! The sweeps of real training steps, with marks in place of numbers: every page that a step changes gets a mark of its
//! region, index and step, so that whoever opens the store sees from any page which step it is of.
//!
//! It is what the kill tests run: plan, layout and commit mark are those of the trainer; nothing is computed, so that a
//! round takes milliseconds; and the boundaries between units can be seen from outside.

use crate::small::Small;
use mt_engine::plan::{Budget, Residency, Shape, plan};
use mt_engine::schedule::Node;
use mt_engine::{
    Access, Config, Engine, Error, HostLease, HostLeaseMut, Kind, Mode, Profile, Resource, Run, Schedule, record_bytes,
};
use mt_trainer::model::{Manifest, ModelConfig};
use mt_trainer::settings::Recompute;
use mt_trainer::step::{Options, Prepared, Shapes, prepare};
use mt_trainer::target::Target;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// A model's steps, planned.
pub struct Walk {
    prepared: Prepared,
}

/// A lease of either kind, given back when dropped.
enum Lease<'s> {
    Read(HostLease<'s>),
    Write(HostLeaseMut<'s>),
}

impl Walk {
    /// Steps of a model of 2 layers in as little RAM as they take, or in twice that, so that a part stays in RAM.
    pub fn new(is_tight: bool) -> Walk {
        let model = Small::m0(7);
        let config = ModelConfig::parse(&model.config.to_string(), Path::new("config.json")).expect("a sound model");
        let manifest = Manifest::new(&config);
        let shapes = Shapes { rows_per_micro: 1, micro_rows: vec![1, 1], seq: 32 };
        let try_budget = |bytes| {
            let options = Options {
                target: Target::Cpu,
                recompute: Recompute::All,
                fused_backward: false,
                durable: true,
                has_disk: true,
                page_elements: Some(2_048),
                sweeps_per_commit: 1,
                threads: 1,
                rates: mt_trainer::profile::Rates::default(),
                prefetch_intervals_max: None,
                budget_bytes: Some(bytes),
                vram_bytes: 0,
                is_rough: false,
                is_roomy: false,
                disk_bytes: u64::MAX,
            };
            prepare(&config, &manifest, &shapes, &options)
        };
        let mut bytes = 1;
        let prepared = loop {
            match try_budget(bytes) {
                Ok(_) if !is_tight => break try_budget(2 * bytes).expect("more fits, too"),
                Ok(prepared) => break prepared,
                Err(mt_trainer::Error::DoesNotFit { need_bytes, .. }) => bytes = need_bytes,
                Err(other) => panic!("the job is sound: {other}"),
            }
        };
        Walk { prepared }
    }

    /// Whether a part of the state stays in RAM.
    pub fn is_placed(&self) -> bool {
        self.prepared.steady.placed_bytes > 0
    }

    fn config(&self, dir: &Path) -> Config {
        Config::new(vec![dir.to_path_buf()], self.prepared.arena_bytes)
    }

    /// Opens the store in `dir` at its last commit, or makes it with commit 0, whose pages are zeros. Gives the step.
    ///
    /// # Errors
    /// The engine's.
    pub fn open(&self, dir: &Path) -> Result<(Engine, u64), Error> {
        let engine = match Engine::open(self.config(dir)) {
            Err(Error::NoStore { .. } | Error::NoCommit { .. }) => {
                let engine = Engine::create(self.config(dir), &self.prepared.regions)?;
                engine.commit(b"0")?;
                engine
            }
            other => other?,
        };
        engine.place(self.prepared.residency(), self.prepared.spilled())?;
        let step = committed(&engine);
        Ok((engine, step))
    }

    /// The unit that a run of the state belongs to.
    fn unit(&self, run: Run) -> Option<usize> {
        let first = &self.prepared.layout.first_page;
        (run.region.0 < 5).then(|| first.partition_point(|page| *page <= run.first) - 1)
    }

    /// One step: takes the state from `step - 1` to `step` and commits that at the mark. `boundary` is called where one
    /// unit ends and another begins, before and after the mark, and at the end; no lease is held there.
    ///
    /// # Errors
    /// The engine's.
    ///
    /// # Panics
    /// When a page is not what it should be.
    pub fn step(&self, engine: &Engine, step: u64, boundary: &mut dyn FnMut(&str)) -> Result<(), Error> {
        let plan = &self.prepared.steady;
        let sweep = engine.sweep(plan, Some(plan))?;
        let kind = |access: &Access| self.prepared.regions[access.run.region.0 as usize].kind;
        let mut written: BTreeMap<Run, u64> = BTreeMap::new();
        let mut leases = Vec::new();
        let (mut unit, mut half) = (None, "forward");
        for node in &plan.schedule.nodes {
            match node {
                Node::Access(access) => {
                    if let Some(now) = self.unit(access.run)
                        && leases.is_empty()
                        && unit != Some(now)
                    {
                        unit = Some(now);
                        boundary(&format!("{half} of unit {now}"));
                    }
                    let run = access.run;
                    let is_scratch = kind(access) == Kind::Scratch;
                    let held = written.get(&run).copied().or((!is_scratch).then(|| step - 1));
                    if is_scratch && access.mode.reads() && held.is_none() {
                        // Of an earlier step, whose scratch is not looked at.
                        sweep.pass(run)?;
                        continue;
                    }
                    if access.mode.writes() {
                        let mut lease = sweep.host_mut(run)?;
                        if access.mode.reads() {
                            check(&lease, run, held.expect("it is of some step"));
                        }
                        mark(&mut lease, run, step);
                        written.insert(run, step);
                        leases.push(Lease::Write(lease));
                    } else {
                        let lease = sweep.host(run)?;
                        check(&lease, run, held.expect("it is of some step"));
                        leases.push(Lease::Read(lease));
                    }
                }
                Node::Work { .. } => leases.drain(..).for_each(give_back),
                Node::Commit => {
                    boundary("before the commit mark");
                    sweep.commit(step.to_string().as_bytes())?;
                    boundary("after the commit mark");
                    (unit, half) = (None, "backward");
                }
            }
        }
        leases.drain(..).for_each(give_back);
        sweep.finish()?;
        boundary("end");
        Ok(())
    }

    /// Opens the store and compares every page with its last commit, whose step it gives.
    ///
    /// # Errors
    /// The engine's.
    ///
    /// # Panics
    /// When a page is of another step.
    pub fn check(&self, dir: &Path) -> Result<u64, Error> {
        let engine = Engine::open(self.config(dir))?;
        let step = committed(&engine);
        let mut schedule = Schedule::default();
        let mut runs = Vec::new();
        for access in self.prepared.steady.schedule.nodes.iter().filter_map(|node| match node {
            Node::Access(access) => Some(access),
            _ => None,
        }) {
            let kind = self.prepared.regions[access.run.region.0 as usize].kind;
            if kind == Kind::Checkpointed && !runs.contains(&access.run) {
                runs.push(access.run);
                let node = schedule.access(access.run, Mode::Read, 0);
                schedule.work(Resource::HostCompute, 0, vec![node], 0);
            }
        }
        let regions = &self.prepared.regions;
        let shape = Shape { regions, sweeps_per_commit: 0, prefetch_intervals_max: None, has_disk: true };
        let host_bytes = self.prepared.arena_bytes - record_bytes(regions);
        let budget = Budget { host_bytes, device_bytes: Vec::new(), disk_bytes: u64::MAX };
        let entry = Residency { fixed: true, ..Residency::default() };
        let (plan, _) = plan(&Arc::new(schedule), &shape, &budget, &Profile::default(), &entry).expect("it fits");
        let sweep = engine.sweep(&Arc::new(plan), None)?;
        for run in runs {
            check(&sweep.host(run)?, run, step);
        }
        sweep.finish()?;
        engine.close()?;
        Ok(step)
    }
}

fn give_back(lease: Lease<'_>) {
    match lease {
        Lease::Read(lease) => drop(lease),
        Lease::Write(lease) => drop(lease),
    }
}

/// The step of the last durable commit.
pub fn committed(engine: &Engine) -> u64 {
    let (_, note) = engine.committed().expect("a store has a commit");
    std::str::from_utf8(&note).ok().and_then(|note| note.parse().ok()).expect("a note is a step")
}

/// The word at `index` of a page. Step 0 is zeros, as of pages that were never written.
fn word(region: u32, page: u32, step: u64, index: u64) -> u64 {
    if step == 0 {
        return 0;
    }
    let mut x = (u64::from(region) << 56) ^ (u64::from(page) << 32) ^ step;
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (x ^ (x >> 31)).wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

fn mark(bytes: &mut [u8], run: Run, step: u64) {
    let page_bytes = bytes.len() / run.count as usize;
    for (page, bytes) in (run.first..).zip(bytes.chunks_mut(page_bytes)) {
        for (index, chunk) in (0..).zip(bytes.chunks_mut(8)) {
            chunk.copy_from_slice(&word(run.region.0, page, step, index).to_le_bytes());
        }
    }
}

fn check(bytes: &[u8], run: Run, step: u64) {
    let page_bytes = bytes.len() / run.count as usize;
    for (page, bytes) in (run.first..).zip(bytes.chunks(page_bytes)) {
        for (index, chunk) in (0..).zip(bytes.chunks(8)) {
            let is_right = chunk == word(run.region.0, page, step, index).to_le_bytes();
            assert!(is_right, "region {} page {page}: not of step {step}, from word {index} on", run.region.0);
        }
    }
}
