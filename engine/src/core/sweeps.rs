//! Sweeps: which accesses exist, how far the user came, which intervals are reserved.
//!
//! Accesses are numbered through all sweeps (*sequence numbers*). At most two sweeps are known: the current one and the
//! one that was announced to follow, whose first intervals may be reserved early.

use super::{AHEAD_MAX, Core, Event};
use crate::canary::{Canary, planted};
use crate::config::Kind;
use crate::core::interval::{Interval, State};
use crate::core::runs::{Conflict, RunId};
use crate::core::window::Window;
use crate::error::Error;
use crate::id::{Run, Tier};
use crate::io::Io;
use crate::plan::{Place, Placed, Plan};
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
    /// Streamed intervals before each interval.
    streamed_before: Arc<Vec<u32>>,
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
    /// Intervals below this number are reserved.
    reserved: u64,
    /// Accesses below this number may write to placed checkpointed runs and to frozen regions: the next commit mark
    /// that was not passed, or the end of the sweep. Leases that are ready are taken without asking, so none of these,
    /// whose bytes are the commit's too, may be published across one.
    gate: u64,
    /// Plans prepared lately.
    known: Vec<Prepared>,
    /// Reserved intervals that were not started, in order.
    waiting: Vec<u64>,
    /// The last access that was counted as held up by write-backs.
    held_up: Option<u64>,
}

const KNOWN_MAX: usize = 4;

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

    /// Intervals below this number are reserved.
    pub(crate) fn reserved(&self) -> u64 {
        self.reserved
    }

    /// An interval was taken back and is reserved again.
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

    /// Whether the plan lets a streamed interval be fetched now.
    fn may_fetch(&self, active: &Active, index: usize, is_next: bool) -> bool {
        let prepared = &active.prepared;
        if is_next {
            return (prepared.streamed_before[index] as usize) < prepared.plan.exit.prefetched.len();
        }
        let at = prepared.plan.intervals[index].fetch_at;
        at == 0 || self.cursor > active.base + u64::from(at)
    }

    fn locate(&self, seq: u64) -> Option<(&Active, usize, bool)> {
        let at = |active: &Active| (active.base..active.end()).contains(&seq).then_some((seq - active.base) as usize);
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
    pub(crate) fn place(&mut self, placed: &[Placed], placed_bytes: u64) {
        let usable = self.tickets.frames.start();
        let answer = if let Err(error) = self.check_alive() {
            Err(error)
        } else if !self.live.is_empty() || self.sweeps.current.is_some() {
            Err(Error::Misuse { what: "runs are placed between sweeps; one is going on".into() })
        } else if placed_bytes > usable {
            Err(Error::Config { what: format!("placed bytes: expected at most {usable}, found {placed_bytes}") })
        } else {
            self.sweeps.known.clear();
            self.sweeps.next = None;
            self.sweeps.waiting.clear();
            self.runs.place(placed)
        };
        if answer.is_ok() {
            self.window = Window::new(placed_bytes, usable - placed_bytes);
            // From now on tickets use the homes of these runs.
            for run in placed {
                self.tickets.frames.written(run.run, None);
            }
        }
        self.events.push_back(Event::Placed(answer));
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
                if self.live.is_empty() {
                    self.runs.forget_streamed();
                    self.sweeps.known.clear();
                }
                self.sweeps.deferred = Some((plan, next));
                if self.live.is_empty() {
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
        let mut ids = Vec::with_capacity(plan.intervals.len());
        let mut streamed_before = Vec::with_capacity(plan.intervals.len());
        let mut follows = Vec::with_capacity(plan.intervals.len());
        let mut last_release: BTreeMap<RunId, u32> = BTreeMap::new();
        let mut streamed = 0;
        for (index, interval) in plan.intervals.iter().enumerate() {
            let id = self.runs.know(interval.run)?;
            let home = self.runs.get(id).home.map(|home| home.offset);
            let expected = match interval.place {
                Place::Placed { offset } => Some(offset),
                Place::Window => None,
            };
            if home != expected {
                let what = format!("{}: the plan has it at {expected:?}, the engine at {home:?}", interval.run);
                return Err(Conflict::Placed(Error::Misuse { what }));
            }
            ids.push(id);
            let before = last_release.insert(id, interval.release);
            follows.push(before.is_some_and(|release| index == 0 || plan.intervals[index - 1].node <= release));
            streamed_before.push(streamed);
            streamed += u32::from(interval.place == Place::Window);
        }
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
        let capacity = self.window.capacity();
        if plan.window_bytes > capacity {
            let what = format!("window bytes: the plan needs {}, the arena has {capacity}", plan.window_bytes);
            return Err(Error::Config { what });
        }
        for interval in &plan.intervals {
            let run = interval.run;
            let misuse = |what: &str| Err(Error::Misuse { what: format!("{run}: {what}") });
            if !self.layout.contains(run) || self.layout.run_bytes(run) != interval.bytes {
                return misuse("the store has no such run of these bytes");
            }
            if matches!(&plan.schedule.nodes[interval.node as usize], Node::Access(a) if a.tier != Tier::Host) {
                return misuse("only accesses in RAM can be executed");
            }
            if interval.place == Place::Window && self.volumes.is_empty() {
                return misuse("it streams, but there is no volume");
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
            if interval.place == Place::Window && interval.mode.reads() && seq >= self.sweeps.reserved && !may {
                self.stats.demand_misses += 1;
            }
        }
        self.sweeps.cursor = seq + 1;
        self.sweeps.pass_marks(false);
    }

    /// Reserves intervals in schedule order as far as plan and window allow.
    pub(crate) fn reserve(&mut self) {
        while self.poison.is_none() {
            let seq = self.sweeps.reserved;
            if seq >= self.sweeps.cursor + AHEAD_MAX {
                return;
            }
            let Some((active, index, is_next)) = self.sweeps.locate(seq) else {
                return;
            };
            let prepared = &active.prepared;
            let planned = prepared.plan.intervals[index];
            let id = prepared.ids[index];
            let (offset, span) = match planned.place {
                Place::Placed { offset } => (offset, None),
                Place::Window => {
                    let may = self.sweeps.may_fetch(active, index, is_next);
                    if !may {
                        return;
                    }
                    let Some(span) = self.window.take(planned.bytes) else {
                        self.held_up(seq);
                        return;
                    };
                    (span.offset, Some(span))
                }
            };
            let kind = self.layout.kind(planned.run.region);
            let Node::Access(access) = prepared.plan.schedule.nodes[planned.node as usize] else {
                unreachable!("an interval's node is an access")
            };
            let mut interval = Interval::new(seq, id, planned.mode, kind, planned.bytes, offset, span);
            interval.tag = access.tag;
            self.live.push_back(interval);
            self.runs.get_mut(id).live.push_back((seq, planned.mode.writes()));
            self.sweeps.reserved += 1;
            self.sweeps.waiting.push(seq);
        }
    }

    /// An access cannot begin before write-backs end. Counted once, and only if its user waits for it.
    fn held_up(&mut self, seq: u64) {
        if seq < self.sweeps.cursor && self.sweeps.held_up != Some(seq) {
            self.sweeps.held_up = Some(seq);
            self.stats.waits_for_writes += 1;
        }
    }

    /// The user passes over an access before it was reserved: it takes no place in the window and nothing is fetched.
    /// All accesses before it were taken or passed over, so it is the next to be reserved.
    pub(crate) fn skip(&mut self, seq: u64) {
        assert_eq!(seq, self.sweeps.reserved, "accesses are passed over in their order");
        let (active, index, _) = self.sweeps.locate(seq).expect("an access of the current sweep");
        let planned = active.prepared.plan.intervals[index];
        let id = active.prepared.ids[index];
        let kind = self.layout.kind(planned.run.region);
        let mut interval = Interval::new(seq, id, planned.mode, kind, planned.bytes, 0, None);
        interval.released = true;
        interval.become_state(State::Free);
        self.live.push_back(interval);
        self.sweeps.reserved += 1;
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
        let state = self.runs.get(id);
        if !state.may_start(seq, mode.writes()) {
            self.held_up(seq);
            return false;
        }
        // Two readers of a placed run that is not loaded would both fetch it, into the same bytes.
        let loading = state.home.is_some_and(|home| home.loading) && !planted(Canary::TwoFetches);
        if loading || self.tickets.exclude(state.run, mode.writes()) {
            return false;
        }
        let flushing = state.home.is_some_and(|home| home.flushing > 0) && !planted(Canary::FlushUnguarded);
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
        self.free_front();
    }
}
