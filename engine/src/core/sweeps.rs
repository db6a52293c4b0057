//! Sweeps: which accesses exist, how far the user came, and what the plan lets be brought by then. `prepared` is a plan
//! as it is executed, `spans` makes intervals known, gives them their spans and starts them.
//!
//! Accesses are numbered through all sweeps (*sequence numbers*). At most two sweeps are known: the current one and the
//! one that was announced to follow, whose first intervals may be reserved early.

use super::{Core, Event};
use crate::core::ring::Ring;
use crate::core::runs::{Conflict, RunId};
use crate::core::staging::Staging;
use crate::error::Error;
use crate::id::{DeviceId, Run, Tier};
use crate::io::Io;
use crate::plan::{Place, Plan, Residency};
use prepared::Prepared;
use std::sync::Arc;

mod prepared;
mod spans;

#[derive(Clone, Debug)]
struct Active {
    prepared: Prepared,
    base: u64,
}

impl Active {
    fn end(&self) -> u64 {
        self.base + self.prepared.plan.intervals.len() as u64
    }
}

/// The sweeps that are known.
#[derive(Default)]
pub(crate) struct Sweeps {
    current: Option<Active>,
    next: Option<Active>,
    /// A sweep that waits until nothing is live, since it cuts runs otherwise.
    deferred: Option<(Arc<Plan>, Option<Arc<Plan>>)>,
    /// Accesses below this number were asked for.
    cursor: u64,
    /// Intervals below this number are known.
    reserved: u64,
    /// Of those below this number, the ones that need a span of the arena's window have it.
    window_next: u64,
    /// Accesses below this number may write to placed checkpointed runs and to frozen regions: the next commit mark
    /// that was not passed, or the end of the sweep. Leases that are ready are taken without asking, so none of these,
    /// whose bytes are the commit's too, may be published across one.
    gate: u64,
    /// Plans prepared lately.
    known: Vec<Prepared>,
    /// Reserved intervals that have the spans they need to start, in order.
    waiting: Vec<u64>,
    /// The last access that was counted as held up by write-backs.
    held_up: Option<u64>,
}

fn no_device(device: DeviceId) -> Error {
    Error::Misuse { what: format!("device {} is none of this engine's", device.0) }
}

fn sealed(run: Run) -> Error {
    Error::Misuse { what: format!("{run}: its region is frozen since the first commit") }
}

impl Sweeps {
    /// The current sweep is over. Until the next begins, nothing may write to placed checkpointed or frozen runs.
    pub(crate) fn end(&mut self) {
        self.current = None;
        self.gate = self.cursor;
    }

    /// Whether the access belongs to the current sweep.
    pub(crate) fn is_current(&self, seq: u64) -> bool {
        self.current.as_ref().is_some_and(|active| (active.base..active.end()).contains(&seq))
    }

    pub(crate) fn cursor(&self) -> u64 {
        self.cursor
    }

    /// Intervals below this number are known.
    pub(crate) fn reserved(&self) -> u64 {
        self.reserved
    }

    /// An interval that is reserved has what it needs to start, or has it again.
    pub(crate) fn wait_again(&mut self, seq: u64) {
        let at = self.waiting.partition_point(|other| *other < seq);
        self.waiting.insert(at, seq);
    }

    /// Passes every commit mark at or before the cursor; `at_mark`: also one exactly there.
    pub(crate) fn pass_marks(&mut self, at_mark: bool) {
        let Some(active) = &self.current else {
            return;
        };
        let passed = |mark: u64| {
            let at = active.base + mark;
            at < self.cursor || (at_mark && at == self.cursor)
        };
        let next = active.prepared.marks.iter().find(|&&mark| !passed(mark));
        self.gate = next.map_or(active.end(), |mark| active.base + mark);
    }

    /// Runs that the known accesses ahead change in place, in their order; one may come several times.
    pub(crate) fn changed_ahead(&self) -> impl Iterator<Item = RunId> {
        self.current.iter().chain(&self.next).flat_map(|active| {
            let Prepared { plan, ids, .. } = &active.prepared;
            let passed = self.cursor.saturating_sub(active.base) as usize;
            let ahead = plan.intervals.iter().zip(ids.iter()).skip(passed);
            ahead.filter(|(it, _)| it.mode.writes() && it.place != Place::Window).map(|(_, &id)| id)
        })
    }

    /// Whether the plan lets an interval be fetched into the arena's window now.
    fn may_fetch(&self, active: &Active, index: usize, is_next: bool) -> bool {
        let prepared = &active.prepared;
        if is_next {
            return (prepared.streamed_before[index] as usize) < prepared.plan.exit.prefetched.len();
        }
        self.is_reached(active, prepared.plan.intervals[index].fetch_at)
    }

    /// Whether the plan lets the `nth` streamed interval of a device have its span there now.
    fn may_upload(&self, active: &Active, index: usize, nth: usize, is_next: bool) -> bool {
        let plan = &active.prepared.plan;
        if is_next {
            let device = plan.exit.devices.iter().find(|it| Tier::Device(it.device) == plan.intervals[index].tier);
            return device.is_some_and(|device| nth < device.prefetched.len());
        }
        self.is_reached(active, plan.intervals[index].upload_at)
    }

    fn is_reached(&self, active: &Active, at: u32) -> bool {
        at == 0 || self.cursor > active.base + u64::from(at)
    }

    /// The first interval from `from` on that takes a span of a device's window: its sweep, its place there and among
    /// such, and whether its sweep is the next.
    fn next_stay(&self, device: usize, from: u64) -> Option<(&Active, usize, usize, bool)> {
        let find = |active: &Active| {
            let stays = &active.prepared.stays[device];
            let nth = stays.partition_point(|index| active.base + u64::from(*index) < from);
            stays.get(nth).map(|index| (*index as usize, nth))
        };
        [(&self.current, false), (&self.next, true)].into_iter().find_map(|(active, is_next)| {
            let active = active.as_ref()?;
            let (index, nth) = find(active)?;
            Some((active, index, nth, is_next))
        })
    }

    fn locate(&self, seq: u64) -> Option<(&Active, usize, bool)> {
        let at = |active: &Active| (active.base..active.end()).contains(&seq).then(|| (seq - active.base) as usize);
        if let Some(active) = &self.current
            && let Some(index) = at(active)
        {
            return Some((active, index, false));
        }
        let active = self.next.as_ref()?;
        at(active).map(|index| (active, index, true))
    }
}

impl<I: Io> Core<I> {
    pub(crate) fn place(&mut self, residency: &Residency) {
        let placed_bytes = residency.placed_bytes;
        let usable = self.tickets.frames.start();
        let answer = if let Err(error) = self.check_alive() {
            Err(error)
        } else if !self.live.is_empty() || self.sweeps.current.is_some() {
            Err(Error::Misuse { what: "runs are placed between sweeps; one is going on".into() })
        } else if placed_bytes > usable {
            Err(Error::Config { what: format!("placed bytes: expected at most {usable}, found {placed_bytes}") })
        } else if let Err(error) = self.check_devices(residency) {
            Err(error)
        } else {
            self.sweeps.known.clear();
            self.sweeps.next = None;
            self.sweeps.waiting.clear();
            self.runs.place(residency)
        };
        if answer.is_ok() {
            self.placed_bytes = placed_bytes;
            self.divide(0);
            for vram in &mut self.devices {
                let placed = residency.devices.iter().find(|it| it.device == vram.id).map_or(0, |it| it.placed_bytes);
                vram.ring = Ring::new(placed, vram.bytes - placed);
            }
            // From now on tickets use the homes of these runs.
            let in_vram = residency.devices.iter().flat_map(|it| &it.placed);
            for run in residency.placed.iter().chain(in_vram) {
                self.tickets.frames.written(run.run, None);
            }
        }
        self.events.push_back(Event::Placed(answer));
    }

    /// Refuses a placement on devices that are not there or too small.
    fn check_devices(&self, residency: &Residency) -> Result<(), Error> {
        for it in residency.devices.iter().filter(|it| !it.placed.is_empty()) {
            let Some(device) = self.device(it.device) else { return Err(no_device(it.device)) };
            let have = self.devices[device].bytes;
            if it.placed_bytes > have {
                let what = format!("placed bytes on device {}: have {have}, found {}", it.device.0, it.placed_bytes);
                return Err(Error::Config { what });
            }
        }
        Ok(())
    }

    /// Divides the arena behind the placed runs between window and staging ring, of which nothing may be in use.
    fn divide(&mut self, staging_bytes: u64) {
        let end = self.tickets.frames.start() - staging_bytes;
        self.stats.window_peak_bytes = self.stats.window_peak_bytes.max(self.window.used_max());
        self.window = Ring::new(self.placed_bytes, end - self.placed_bytes);
        self.staging = Staging::new(end, staging_bytes);
    }

    pub(crate) fn begin(&mut self, plan: Arc<Plan>, next: Option<Arc<Plan>>) {
        if let Err(error) = self.check_alive() {
            return self.events.push_back(Event::Begun(Err(error)));
        }
        if self.sweeps.current.is_some() || self.sweeps.deferred.is_some() {
            let error = Error::Misuse { what: "a sweep is going on; one at a time".into() };
            return self.events.push_back(Event::Begun(Err(error)));
        }
        let announced = self.sweeps.next.take();
        if let Some(active) = announced {
            if Arc::ptr_eq(&active.prepared.plan, &plan) {
                return self.begin_active(active, next);
            }
            self.give_up_from(active.base);
        }
        self.sweeps.deferred = Some((plan, next));
        self.begin_deferred();
    }

    /// Starts a sweep that waited, if it can.
    pub(crate) fn begin_deferred(&mut self) {
        let Some((plan, next)) = self.sweeps.deferred.take() else {
            return;
        };
        if let Err(error) = self.check_alive() {
            return self.events.push_back(Event::Begun(Err(error)));
        }
        match self.prepare(&plan) {
            Ok(prepared) => {
                let base = self.sweeps.reserved;
                self.begin_active(Active { prepared, base }, next);
            }
            Err(Conflict::Placed(error)) => self.events.push_back(Event::Begun(Err(error))),
            Err(Conflict::Streamed) => {
                self.free_front();
                let is_quiet = self.live.is_empty() && self.staging.is_idle();
                if is_quiet {
                    self.runs.forget_streamed();
                    self.sweeps.known.clear();
                    self.divide(plan.staging_bytes);
                }
                self.sweeps.deferred = Some((plan, next));
                if is_quiet {
                    self.begin_deferred();
                }
            }
        }
    }

    fn begin_active(&mut self, active: Active, next: Option<Arc<Plan>>) {
        let base = active.base;
        let end = active.end();
        if let Some(run) = active.prepared.freezes
            && self.commit.has_commit()
        {
            self.give_up_from(base);
            return self.events.push_back(Event::Begun(Err(sealed(run))));
        }
        self.sweeps.cursor = base;
        // What is left of sweeps before needs no spans any more.
        self.sweeps.window_next = self.sweeps.window_next.max(base);
        self.devices.iter_mut().for_each(|vram| vram.next = vram.next.max(base));
        self.sweeps.current = Some(active);
        self.sweeps.pass_marks(false);
        self.sweeps.next =
            next.and_then(|plan| self.prepare(&plan).ok()).map(|prepared| Active { prepared, base: end });
        self.events.push_back(Event::Begun(Ok(base)));
    }

    pub(crate) fn reached(&mut self, seq: u64) {
        if seq < self.sweeps.cursor {
            return;
        }
        // Asked for before the plan let it be fetched: a miss. One that waits for window or disk is only late.
        if let Some((active, index, is_next)) = self.sweeps.locate(seq) {
            let interval = &active.prepared.plan.intervals[index];
            let may = self.sweeps.may_fetch(active, index, is_next) || active.prepared.follows[index];
            if interval.takes_host_window() && interval.mode.reads() && seq >= self.sweeps.window_next && !may {
                self.stats.demand_misses += 1;
            }
        }
        self.sweeps.cursor = seq + 1;
        self.sweeps.pass_marks(false);
    }

    /// Ends a sweep that was not finished, and the one announced after it.
    pub(crate) fn abort(&mut self) {
        let base = self.sweeps.current.take().map(|active| active.base);
        let next = self.sweeps.next.take().map(|active| active.base);
        if let Some(base) = base.or(next) {
            self.give_up_from(base);
        }
    }

    /// Releases, unchanged, every interval from `base` on that the user did not release.
    fn give_up_from(&mut self, base: u64) {
        let oldest = self.live.front().map_or(self.sweeps.reserved, |i| i.seq);
        for seq in base.max(oldest)..self.sweeps.reserved {
            if !self.interval_mut(seq).released {
                self.release(seq, false);
            }
        }
        self.let_go_behind(self.sweeps.reserved);
        self.free_front();
    }
}
