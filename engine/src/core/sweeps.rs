//! Sweeps: which accesses exist, how far the user came, which intervals are known and have their spans.
//!
//! Accesses are numbered through all sweeps (*sequence numbers*). At most two sweeps are known: the current one and the
//! one that was announced to follow, whose first intervals may be reserved early.

use super::{AHEAD_MAX, Core, Event};
use crate::canary::{Canary, planted};
use crate::config::Kind;
use crate::core::interval::{Interval, State};
use crate::core::relay::Source;
use crate::core::ring::Ring;
use crate::core::runs::{Conflict, RunId};
use crate::core::staging::Staging;
use crate::error::Error;
use crate::id::{DeviceId, Run, Tier};
use crate::io::Io;
use crate::plan::{Home, Place, Plan, Residency};
use crate::schedule::Node;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A plan with what the core derives from it once.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    plan: Arc<Plan>,
    /// The run of each interval.
    ids: Arc<Vec<RunId>>,
    /// For each commit mark the number of accesses before it.
    marks: Arc<Vec<u64>>,
    /// Intervals before each interval that take a span of the arena's window.
    streamed_before: Arc<Vec<u32>>,
    /// For each of our devices the intervals that take a span of its window.
    stays: Arc<Vec<Vec<u32>>>,
    /// For each interval whether its run's interval before ends so late that it cannot be fetched ahead.
    follows: Arc<Vec<bool>>,
    /// The first run of a frozen region that it writes to.
    freezes: Option<Run>,
}

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

const KNOWN_MAX: usize = 4;

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

    fn prepare(&mut self, plan: &Arc<Plan>) -> Result<Prepared, Conflict> {
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
        let stays_on = |vram: &super::Vram| {
            let is_stay = |i: &crate::plan::Interval| i.tier == Tier::Device(vram.id) && i.place == Place::Window;
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

    /// Gives intervals their spans, in each ring in schedule order, as far as plan and room allow.
    pub(crate) fn reserve(&mut self) {
        self.reserve_window();
        for device in 0..self.devices.len() {
            self.reserve_vram(device);
        }
    }

    /// Spans of the arena's window. What needs none becomes known on the way.
    fn reserve_window(&mut self) {
        while self.poison.is_none() {
            let seq = self.sweeps.window_next;
            if seq >= self.sweeps.cursor + AHEAD_MAX {
                return;
            }
            let Some((active, index, is_next)) = self.sweeps.locate(seq) else {
                if seq < self.sweeps.reserved {
                    // Left by a sweep that is over: it needs nothing any more.
                    self.sweeps.window_next += 1;
                    continue;
                }
                return;
            };
            let planned = &active.prepared.plan.intervals[index];
            let span = if planned.takes_host_window() && self.wants_room(seq) {
                if !self.sweeps.may_fetch(active, index, is_next) {
                    return;
                }
                let Some(span) = self.window.take(planned.bytes) else {
                    self.held_up(seq);
                    return;
                };
                Some(span)
            } else {
                None
            };
            self.know_until(seq);
            if let Some(span) = span {
                let interval = self.interval_mut(seq);
                interval.span = Some(span);
                interval.offset = if interval.device.is_none() { span.offset } else { interval.offset };
                self.sweeps.wait_again(seq);
            }
            self.sweeps.window_next += 1;
        }
    }

    /// Spans of a device's window.
    fn reserve_vram(&mut self, device: usize) {
        while self.poison.is_none() {
            let Some((active, index, nth, is_next)) = self.sweeps.next_stay(device, self.devices[device].next) else {
                return;
            };
            let seq = active.base + index as u64;
            if seq >= self.sweeps.cursor + AHEAD_MAX {
                return;
            }
            if self.wants_room(seq) {
                if !self.sweeps.may_upload(active, index, nth, is_next) {
                    return;
                }
                let bytes = active.prepared.plan.intervals[index].bytes;
                let Some(span) = self.devices[device].ring.take(bytes) else {
                    self.held_up(seq);
                    return;
                };
                self.know_until(seq);
                let interval = self.interval_mut(seq);
                (interval.vram, interval.offset) = (Some(span), span.offset);
                self.has_vram(seq);
            }
            self.devices[device].next = seq + 1;
        }
    }

    /// Whether an interval still needs its spans: nobody has passed over it, or another needs its bytes.
    fn wants_room(&self, seq: u64) -> bool {
        seq >= self.sweeps.reserved || self.find(seq).is_some_and(|interval| interval.state() != State::Free)
    }

    /// Makes all intervals up to this one known.
    fn know_until(&mut self, seq: u64) {
        while self.sweeps.reserved <= seq {
            let next = self.sweeps.reserved;
            let interval = self.known(next);
            let (id, writes) = (interval.run, interval.mode.writes());
            if interval.has_room() {
                self.sweeps.waiting.push(next);
            }
            self.live.push_back(interval);
            self.runs.get_mut(id).live.push_back((next, writes));
            self.sweeps.reserved += 1;
        }
    }

    /// The interval of an access, as its plan has it.
    fn known(&self, seq: u64) -> Interval {
        let (active, index, _) = self.sweeps.locate(seq).expect("an access of a sweep that is known");
        let prepared = &active.prepared;
        let planned = &prepared.plan.intervals[index];
        let kind = self.layout.kind(planned.run.region);
        let device = match planned.tier {
            Tier::Device(device) => Some(self.device(device).expect("a plan's devices are ours")),
            _ => None,
        };
        let id = prepared.ids[index];
        let mut interval = Interval::new(seq, active.base, id, kind, device, planned, &prepared.plan);
        let Node::Access(access) = prepared.plan.schedule.nodes[planned.node as usize] else {
            unreachable!("an interval's node is an access")
        };
        interval.tag = access.tag;
        interval
    }

    /// An access cannot begin before write-backs end. Counted once, and only if its user waits for it.
    fn held_up(&mut self, seq: u64) {
        if seq < self.sweeps.cursor && self.sweeps.held_up != Some(seq) {
            self.sweeps.held_up = Some(seq);
            self.stats.waits_for_writes += 1;
        }
    }

    /// The user passes over an access before it was known: it takes no place in a window and nothing is fetched, unless
    /// another needs its bytes. All accesses before it were taken or passed over, so it is the next to be known.
    pub(crate) fn skip(&mut self, seq: u64) {
        assert_eq!(seq, self.sweeps.reserved, "accesses are passed over in their order");
        self.know_until(seq);
        let interval = self.interval_mut(seq);
        interval.released = true;
        if !interval.is_kept() {
            self.free(seq);
        }
    }

    /// Starts reserved intervals below this number whose run is free for them.
    pub(crate) fn start_reserved(&mut self, below: u64) {
        if self.poison.is_some() || self.sweeps.waiting.first().is_none_or(|first| *first >= below) {
            return;
        }
        let mut waiting = std::mem::take(&mut self.sweeps.waiting);
        waiting.retain(|&seq| seq >= below || !self.start(seq));
        assert!(self.sweeps.waiting.is_empty(), "starting an interval reserves none");
        self.sweeps.waiting = waiting;
    }

    /// Whether the interval left the state `Reserved`.
    fn start(&mut self, seq: u64) -> bool {
        if self.live.front().is_none_or(|front| seq < front.seq) {
            return true;
        }
        let gate = self.sweeps.gate;
        let interval = self.interval_mut(seq);
        if interval.state() != State::Reserved {
            return true;
        }
        let (id, mode, kind, placed) = (interval.run, interval.mode, interval.kind, interval.is_placed());
        let relay = interval.relay.map(|relay| relay.source);
        let source = match self.source(seq) {
            Source::Ready => relay,
            Source::Gone => None,
            Source::Waits => return false,
            Source::Failed(error) => {
                self.fetch_failed_now(seq, error);
                return true;
            }
        };
        let state = self.runs.get(id);
        let is_ordered = self.is_ordered(seq);
        let is_aside = |other| Some(other) == source || (is_ordered && self.interval(other).state() == State::Passing);
        if !state.may_start(seq, mode.writes(), is_aside) {
            self.held_up(seq);
            return false;
        }
        // Two readers of a placed run that is not loaded would both fetch it, into the same bytes.
        let loading = state.home.is_some_and(|home| home.loading) && !planted(Canary::TwoFetches);
        if loading || self.tickets.exclude(state.run, mode.writes()) {
            return false;
        }
        // Only who changes the bytes in place is in the way of those who read them there.
        let flushing = placed && state.home.is_some_and(|home| home.flushing > 0) && !planted(Canary::FlushUnguarded);
        let shared = kind == Kind::Frozen || (placed && kind == Kind::Checkpointed);
        let gated = shared && seq >= gate && !planted(Canary::NoGate);
        if mode.writes() && (flushing || gated) {
            return false;
        }
        let is_sealed = self.commit.has_commit() || self.commit.is_running();
        if mode.writes() && kind == Kind::Frozen && is_sealed && !planted(Canary::Unsealed) {
            let run = state.run;
            self.fetch_failed_now(seq, sealed(run));
            return true;
        }
        self.fetch(seq);
        true
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
