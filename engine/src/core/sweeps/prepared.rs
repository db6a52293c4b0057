//! A plan as the core executes it: refused where this store, arena or devices cannot, and with what is derived from it
//! once.

use super::no_device;
use crate::config::Kind;
use crate::core::Core;
use crate::core::copies::Vram;
use crate::core::runs::{Conflict, RunId};
use crate::error::Error;
use crate::id::{Run, Tier};
use crate::io::Io;
use crate::plan::{Home, Interval, Place, Plan};
use crate::schedule::Node;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Plans prepared lately that are kept.
const KNOWN_MAX: usize = 4;

/// A plan with what the core derives from it once.
#[derive(Clone, Debug)]
pub(super) struct Prepared {
    pub(super) plan: Arc<Plan>,
    /// The run of each interval.
    pub(super) ids: Arc<Vec<RunId>>,
    /// For each commit mark the number of accesses before it.
    pub(super) marks: Arc<Vec<u64>>,
    /// Intervals before each interval that take a span of the arena's window.
    pub(super) streamed_before: Arc<Vec<u32>>,
    /// For each of our devices the intervals that take a span of its window.
    pub(super) stays: Arc<Vec<Vec<u32>>>,
    /// For each interval whether its run's interval before ends so late that it cannot be fetched ahead.
    pub(super) follows: Arc<Vec<bool>>,
    /// The first run of a frozen region that it writes to.
    pub(super) freezes: Option<Run>,
}

impl<I: Io> Core<I> {
    /// Prepares a plan, or finds what was prepared of it. `Streamed`: it cuts runs, or divides the arena, otherwise
    /// than what is live.
    pub(super) fn prepare(&mut self, plan: &Arc<Plan>) -> Result<Prepared, Conflict> {
        if let Some(known) = self.sweeps.known.iter().find(|known| Arc::ptr_eq(&known.plan, plan)) {
            return Ok(known.clone());
        }
        self.check(plan).map_err(Conflict::Placed)?;
        if plan.window_bytes > self.window.capacity() || plan.staging_bytes > self.staging.ring.capacity() {
            return Err(Conflict::Streamed);
        }
        let mut ids = Vec::with_capacity(plan.intervals.len());
        let mut streamed_before = Vec::with_capacity(plan.intervals.len());
        let mut follows = Vec::with_capacity(plan.intervals.len());
        let mut last_release: BTreeMap<RunId, u32> = BTreeMap::new();
        let mut streamed = 0;
        for (index, interval) in plan.intervals.iter().enumerate() {
            let id = self.runs.know(interval.run)?;
            let (home, expected) = (self.runs.lives(id), interval.home);
            if home != expected {
                let what = format!("{}: the plan has it at {expected:?}, the engine at {home:?}", interval.run);
                return Err(Conflict::Placed(Error::Misuse { what }));
            }
            ids.push(id);
            let before = last_release.insert(id, interval.release);
            follows.push(before.is_some_and(|release| index == 0 || plan.intervals[index - 1].node <= release));
            streamed_before.push(streamed);
            streamed += u32::from(interval.takes_host_window());
        }
        let stays_on = |vram: &Vram| {
            let is_stay = |i: &Interval| i.tier == Tier::Device(vram.id) && i.place == Place::Window;
            (0..).zip(&plan.intervals).filter(|(_, i)| is_stay(i)).map(|(index, _)| index).collect()
        };
        let stays: Vec<Vec<u32>> = self.devices.iter().map(stays_on).collect();
        let mut marks = Vec::new();
        let mut accesses = 0;
        for node in &plan.schedule.nodes {
            match node {
                Node::Access(_) => accesses += 1,
                Node::Commit => marks.push(accesses),
                Node::Work { .. } => {}
            }
        }
        let prepared = Prepared {
            plan: plan.clone(),
            ids: ids.into(),
            marks: marks.into(),
            streamed_before: streamed_before.into(),
            stays: stays.into(),
            follows: follows.into(),
            freezes: plan
                .intervals
                .iter()
                .find(|i| i.mode.writes() && self.layout.kind(i.run.region) == Kind::Frozen)
                .map(|i| i.run),
        };
        if self.sweeps.known.len() == KNOWN_MAX {
            self.sweeps.known.remove(0);
        }
        self.sweeps.known.push(prepared.clone());
        Ok(prepared)
    }

    /// Refuses a plan that this store or arena cannot execute.
    fn check(&self, plan: &Plan) -> Result<(), Error> {
        let (capacity, need) =
            (self.tickets.frames.start() - self.placed_bytes, plan.window_bytes + plan.staging_bytes);
        if need > capacity {
            let what = format!("window bytes: the plan needs {need}, the arena has {capacity}");
            return Err(Error::Config { what });
        }
        for share in &plan.devices {
            let Some(device) = self.device(share.device) else { return Err(no_device(share.device)) };
            let (have, need) = (self.devices[device].ring.capacity(), share.window_bytes);
            if need > have {
                let what = format!("window bytes on device {}: the plan needs {need}, have {have}", share.device.0);
                return Err(Error::Config { what });
            }
        }
        for interval in &plan.intervals {
            let run = interval.run;
            let misuse = |what: &str| Err(Error::Misuse { what: format!("{run}: {what}") });
            if !self.layout.contains(run) || self.layout.run_bytes(run) != interval.bytes {
                return misuse("the store has no such run of these bytes");
            }
            if (interval.is_on_device() || interval.link().is_some()) && u32::try_from(interval.bytes).is_err() {
                return misuse("a copy has at most 4 GiB");
            }
            if interval.home == Home::Disk && self.volumes.is_empty() {
                return misuse("it lives on disk, but there is no volume");
            }
        }
        Ok(())
    }
}
