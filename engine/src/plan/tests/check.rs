//! Judges a plan without the planner's own code: `check` its rules one by one, `execute` it on a ring with write-backs
//! as late as they can be.

use super::samples::Numbers;
use crate::id::Run;
use crate::plan::{Budget, Interval, Place, Plan, Shape};
use crate::schedule::Node;
use std::collections::{BTreeMap, VecDeque};

/// Checks every rule that a plan keeps; says which one it breaks.
pub fn check(plan: &Plan, shape: &Shape<'_>, budget: &Budget) -> Result<(), String> {
    let accesses: Vec<u32> = (0..plan.schedule.nodes.len() as u32)
        .filter(|&node| matches!(plan.schedule.nodes[node as usize], Node::Access(_)))
        .collect();
    if accesses != plan.intervals.iter().map(|interval| interval.node).collect::<Vec<_>>() {
        return Err("not one interval per access node".into());
    }
    if plan.placed_bytes + plan.window_bytes > budget.host_bytes {
        return Err("the arena is larger than the budget".into());
    }
    check_placed(plan)?;
    let streams = plan.intervals.iter().any(|interval| interval.place == Place::Window);
    if streams && !shape.has_disk {
        return Err("a run streams without a disk".into());
    }
    for index in 0..plan.intervals.len() {
        check_fetch(plan, index)?;
    }
    check_prefetched(plan)
}

fn check_placed(plan: &Plan) -> Result<(), String> {
    let mut end = 0;
    let mut spans: BTreeMap<Run, u64> = BTreeMap::new();
    for placed in &plan.exit.placed {
        if placed.offset < end || placed.offset % 4096 != 0 {
            return Err(format!("the span of {} overlaps or is not aligned", placed.run));
        }
        end = placed.offset + placed.bytes;
        spans.insert(placed.run, placed.offset);
    }
    if end > plan.placed_bytes || plan.exit.placed_bytes != plan.placed_bytes {
        return Err("placed spans reach into the window".into());
    }
    for interval in &plan.intervals {
        match (interval.place, spans.get(&interval.run)) {
            (Place::Placed { offset }, Some(&span)) if offset == span => {}
            (Place::Window, None) => {}
            _ => return Err(format!("interval of {} is not where its run is", interval.run)),
        }
    }
    Ok(())
}

/// At the access that allows a fetch everything not yet released, the interval and one wrap fit the window, and the
/// run's earlier interval is released.
fn check_fetch(plan: &Plan, index: usize) -> Result<(), String> {
    let interval = &plan.intervals[index];
    if interval.fetch_at as usize > index {
        return Err(format!("interval {index} may be fetched only after its own access"));
    }
    if interval.place != Place::Window {
        return Ok(());
    }
    let begin = plan.intervals[interval.fetch_at as usize].node;
    let is_live = |earlier: &Interval| interval.fetch_at == 0 || earlier.release >= begin;
    let streamed = |interval: &&Interval| interval.place == Place::Window;
    let before = &plan.intervals[..index];
    if before.iter().any(|earlier| earlier.run == interval.run && is_live(earlier)) {
        return Err(format!("interval {index} may be fetched while its run is in use"));
    }
    let largest = plan.intervals.iter().filter(streamed).map(|interval| interval.bytes).max().unwrap_or(0);
    // A held interval keeps everything behind it, also if it is placed itself.
    let held: u64 =
        before.iter().skip_while(|earlier| !is_live(earlier)).filter(streamed).map(|earlier| earlier.bytes).sum();
    if held + interval.bytes + largest > plan.window_bytes {
        return Err(format!("interval {index} may be fetched before the window has room for it"));
    }
    Ok(())
}

fn check_prefetched(plan: &Plan) -> Result<(), String> {
    let mut streamed = plan.intervals.iter().filter(|interval| interval.place == Place::Window);
    let mut sum = 0;
    for run in &plan.exit.prefetched {
        match streamed.next() {
            Some(interval) if interval.run == *run && interval.fetch_at == 0 => sum += interval.bytes,
            _ => return Err("what is prefetched is not a prefix of what streams".into()),
        }
    }
    if sum > plan.window_bytes || (!plan.schedule.cyclic && sum > 0) {
        return Err("too much is prefetched".into());
    }
    Ok(())
}

/// What the executor knows of one interval.
#[derive(Clone, Copy, PartialEq)]
enum Stage {
    Reserved,
    Pending,
    Done,
}

/// An executor reduced to its queue: intervals enter and leave in order, streamed ones take spans of a ring.
struct Queue<'a> {
    plan: &'a Plan,
    window: u64,
    position: u64,
    used: u64,
    /// Interval number (through all sweeps), bytes taken with what was skipped, stage.
    entries: VecDeque<(usize, u64, Stage)>,
    next: usize,
}

impl Queue<'_> {
    fn interval(&self, number: usize) -> &Interval {
        &self.plan.intervals[number % self.plan.intervals.len()]
    }

    /// Lets the next interval enter if there is room for it and its run is not in the queue unfinished.
    fn reserve(&mut self) -> bool {
        let Interval { run, bytes, place, .. } = *self.interval(self.next);
        if self.entries.iter().any(|&(number, _, stage)| stage != Stage::Done && self.interval(number).run == run) {
            return false;
        }
        let mut taken = 0;
        if place == Place::Window {
            let wraps = self.position + bytes > self.window;
            taken = bytes + if wraps { self.window - self.position } else { 0 };
            if self.used + taken > self.window {
                return false;
            }
            self.position = if wraps { bytes } else { self.position + bytes };
        }
        self.used += taken;
        self.entries.push_back((self.next, taken, Stage::Reserved));
        self.next += 1;
        true
    }

    /// Ends one write-back, any; false if none is pending.
    fn write_back(&mut self, numbers: &mut Numbers) -> bool {
        let pending: Vec<usize> = (0..self.entries.len()).filter(|&at| self.entries[at].2 == Stage::Pending).collect();
        if pending.is_empty() {
            return false;
        }
        self.entries[pending[numbers.below(pending.len() as u64) as usize]].2 = Stage::Done;
        while self.entries.front().is_some_and(|entry| entry.2 == Stage::Done) {
            self.used -= self.entries.pop_front().expect("there is a front").1;
        }
        true
    }

    /// Whether the plan lets the next interval enter when `access` of `sweep` has been reached.
    fn is_due(&self, sweep: usize, access: usize) -> bool {
        let (other, index) = (self.next / self.plan.intervals.len(), self.next % self.plan.intervals.len());
        let before = &self.plan.intervals[..index];
        let streamed = self.plan.intervals[index].place == Place::Window;
        let position = before.iter().filter(|interval| interval.place == Place::Window).count();
        other == sweep && (!streamed || self.plan.intervals[index].fetch_at as usize <= access)
            || other == sweep + 1 && (!streamed || position < self.plan.exit.prefetched.len())
    }

    /// The leases whose release node is passed are given back, of intervals before `taken`.
    fn release(&mut self, taken: usize, node: u32) {
        for at in 0..self.entries.len() {
            let (number, _, stage) = self.entries[at];
            if stage == Stage::Reserved && number < taken && self.interval(number).release <= node {
                self.entries[at].2 = Stage::Pending;
            }
        }
    }
}

/// Executes three sweeps. Write-backs end only when the user waits, in any order; fetches run ahead now and then, as
/// far as the plan allows. `window` replaces the plan's own. Says at which interval the executor is stuck.
pub fn execute(plan: &Plan, window: u64, numbers: &mut Numbers) -> Result<(), usize> {
    let position = if window == 0 { 0 } else { numbers.below(window / 4096) * 4096 };
    let mut queue = Queue { plan, window, position, used: 0, entries: VecDeque::new(), next: 0 };
    for sweep in 0..3 {
        let base = sweep * plan.intervals.len();
        let mut access = 0;
        for node in 0..plan.schedule.nodes.len() as u32 {
            if matches!(plan.schedule.nodes[node as usize], Node::Access(_)) {
                while queue.next <= base + access {
                    if !queue.reserve() && !queue.write_back(numbers) {
                        return Err(access);
                    }
                }
                while numbers.below(4) > 0 && queue.is_due(sweep, access) && queue.reserve() {}
                access += 1;
            }
            queue.release(base + access, node);
        }
    }
    Ok(())
}
