//! The course of a sweep in time: one disk link with a queue of reads and a queue of writes, one user who takes
//! accesses and computes in schedule order, and the ring of the window. Transfers and computation share the cores (see
//! `rates`). Integer nanoseconds throughout, so that the prediction is the same on every machine.
//!
//! What it leaves out: volumes of different speed, queue depth. Fetches start in schedule order; the latency of the
//! disk delays a completion without occupying the link.

use super::predict::SECOND;
use super::rates::{FULL, Pace, Rates};
use super::types::{Interval, Place, Plan, Span};
use crate::schedule::Node;
use std::collections::VecDeque;

/// What the simulation measured.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Simulated {
    /// One steady sweep, or the only one with its last write-back.
    pub ns: u128,
    /// Most bytes of the window in use.
    pub window_peak_bytes: u64,
    /// Each node's part of that sweep.
    pub spans: Vec<Span>,
}

/// Runs a cyclic plan twice and measures the second sweep; runs another plan once.
pub(super) fn simulate(plan: &Plan, rates: &Rates, commit_bytes: u64) -> Simulated {
    let mut course = Course::new(plan, rates);
    let spans = course.sweep(commit_bytes);
    let first = course.now;
    if plan.schedule.cyclic {
        let spans = course.sweep(commit_bytes);
        return Simulated { ns: course.now - first, window_peak_bytes: course.peak, spans };
    }
    while course.step() {}
    Simulated { ns: course.now, window_peak_bytes: course.peak, spans }
}

/// A transfer on the link: bytes times `SECOND` still to move, and the interval (numbered through all sweeps) if it
/// belongs to one; a commit's writes do not.
struct Transfer {
    left: u128,
    interval: Option<usize>,
}

/// Progress of an interval through the window.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Queued,
    Fetching,
    Ready,
    Done,
}

struct Course<'a> {
    plan: &'a Plan,
    rates: &'a Rates,
    /// The streamed intervals of one sweep and the number of each one's run.
    streamed: Vec<(&'a Interval, u32)>,
    /// Indices in `streamed` by release node.
    by_release: Vec<u32>,
    /// Index of each streamed interval in the plan is compared with this: the last access reached.
    reached: u32,
    /// Sweeps ended.
    sweep: usize,
    now: u128,
    /// What is left of the work at hand: nanoseconds at full speed times `FULL`.
    work: u128,
    reads: VecDeque<Transfer>,
    writes: VecDeque<Transfer>,
    /// Reads transferred, with the time of their completion.
    arriving: VecDeque<(u128, usize)>,
    /// The stage of each interval, numbered through three sweeps: the measured two and what is prefetched at the end.
    stage: Vec<Stage>,
    /// The next interval to reserve.
    next: usize,
    /// For each run whether an interval of it is between reservation and write-back.
    is_open: Vec<bool>,
    /// Spans taken, oldest first: interval and bytes with what was skipped for it.
    ring: VecDeque<(usize, u64)>,
    position: u64,
    used: u64,
    peak: u64,
}

impl<'a> Course<'a> {
    fn new(plan: &'a Plan, rates: &'a Rates) -> Course<'a> {
        let is_streamed = |interval: &&Interval| interval.place == Place::Window;
        let mut runs: Vec<_> = plan.intervals.iter().filter(is_streamed).map(|interval| interval.run).collect();
        let mut streamed: Vec<_> = plan.intervals.iter().filter(is_streamed).map(|interval| (interval, 0)).collect();
        runs.sort_unstable();
        runs.dedup();
        for (interval, run) in &mut streamed {
            *run = runs.binary_search(&interval.run).expect("the run was just listed") as u32;
        }
        let mut by_release: Vec<u32> = (0..streamed.len() as u32).collect();
        by_release.sort_unstable_by_key(|&index| (streamed[index as usize].0.release, index));
        Course {
            plan,
            rates,
            by_release,
            reached: 0,
            sweep: 0,
            now: 0,
            work: 0,
            reads: VecDeque::new(),
            writes: VecDeque::new(),
            arriving: VecDeque::new(),
            stage: vec![Stage::Queued; 3 * streamed.len()],
            next: 0,
            is_open: vec![false; runs.len()],
            ring: VecDeque::new(),
            position: 0,
            used: 0,
            peak: 0,
            streamed,
        }
    }

    /// The user passes through the schedule once.
    fn sweep(&mut self, commit_bytes: u64) -> Vec<Span> {
        let begin = self.now;
        let mut spans = Vec::with_capacity(self.plan.schedule.nodes.len());
        let (mut access, mut position, mut released) = (0, 0, 0);
        let base = self.sweep * self.streamed.len();
        let mut committed = commit_bytes == 0;
        self.reached = 0;
        self.reserve();
        for (node, what) in self.plan.schedule.nodes.iter().enumerate() {
            let begin_ns = (self.now - begin) as u64;
            match what {
                Node::Access(_) => {
                    self.reached = access;
                    if self.plan.intervals[access as usize].place == Place::Window {
                        self.reserve();
                        self.wait(base + position);
                        position += 1;
                    }
                    access += 1;
                }
                Node::Work { ns, .. } => self.compute(u128::from(*ns)),
                Node::Commit if !committed => {
                    committed = true;
                    self.write(commit_bytes, None);
                }
                Node::Commit => {}
            }
            spans.push(Span { begin_ns, end_ns: (self.now - begin) as u64 });
            while let Some(&index) = self.by_release.get(released) {
                if self.streamed[index as usize].0.release as usize > node {
                    break;
                }
                self.release(base + index as usize);
                released += 1;
            }
        }
        if !committed {
            self.write(commit_bytes, None);
        }
        self.sweep += 1;
        spans
    }

    fn compute(&mut self, ns: u128) {
        self.work = ns * u128::from(FULL);
        while self.work > 0 {
            self.step();
        }
    }

    fn wait(&mut self, interval: usize) {
        while self.stage[interval] != Stage::Ready {
            assert!(self.step(), "the simulated window is stuck before interval {interval}");
        }
    }

    fn release(&mut self, interval: usize) {
        let (what, _) = self.streamed[interval % self.streamed.len()];
        if what.mode.writes() {
            self.write(what.bytes, Some(interval));
        } else {
            self.free(interval);
        }
    }

    fn write(&mut self, bytes: u64, interval: Option<usize>) {
        self.writes.push_back(Transfer { left: u128::from(bytes) * SECOND, interval });
    }

    /// An interval is over: its run may be fetched again, and the oldest spans are given back as far as they are over.
    fn free(&mut self, interval: usize) {
        self.stage[interval] = Stage::Done;
        self.is_open[self.streamed[interval % self.streamed.len()].1 as usize] = false;
        while let Some(&(oldest, bytes)) = self.ring.front() {
            if self.stage[oldest] != Stage::Done {
                break;
            }
            self.ring.pop_front();
            self.used -= bytes;
        }
        self.reserve();
    }

    /// Whether the next interval may be fetched by now as far as the plan is concerned.
    fn is_due(&self, interval: usize) -> bool {
        let (sweep, position) = (interval / self.streamed.len(), interval % self.streamed.len());
        match sweep.checked_sub(self.sweep) {
            Some(0) => self.streamed[position].0.fetch_at <= self.reached,
            Some(1) => position < self.plan.exit.prefetched.len(),
            Some(_) => false,
            None => true,
        }
    }

    /// Gives spans to the next intervals, in order, and queues their fetches.
    fn reserve(&mut self) {
        while self.next < self.stage.len() && self.is_due(self.next) {
            let (what, run) = self.streamed[self.next % self.streamed.len()];
            let left = self.plan.window_bytes - self.position;
            let skipped = if what.bytes > left { left } else { 0 };
            if self.is_open[run as usize] || self.used + skipped + what.bytes > self.plan.window_bytes {
                return;
            }
            self.position = if what.bytes > left { what.bytes } else { self.position + what.bytes };
            self.used += skipped + what.bytes;
            self.peak = self.peak.max(self.used);
            self.ring.push_back((self.next, skipped + what.bytes));
            self.is_open[run as usize] = true;
            if what.mode.reads() {
                self.stage[self.next] = Stage::Fetching;
                self.reads.push_back(Transfer { left: u128::from(what.bytes) * SECOND, interval: Some(self.next) });
            } else {
                self.stage[self.next] = Stage::Ready;
            }
            self.next += 1;
        }
    }

    /// Moves time to the next event. False if nothing will ever happen.
    fn step(&mut self) -> bool {
        let Pace { read, write, speed } =
            self.rates.pace(self.work > 0, !self.reads.is_empty(), !self.writes.is_empty());
        let end =
            |queue: &VecDeque<Transfer>, rate: u64| queue.front().map(|t| self.now + t.left.div_ceil(u128::from(rate)));
        let events = [
            end(&self.reads, read),
            end(&self.writes, write),
            self.arriving.front().map(|&(time, _)| time),
            (self.work > 0).then(|| self.now + self.work.div_ceil(u128::from(speed))),
        ];
        let Some(time) = events.into_iter().flatten().min() else { return false };
        let passed = time - self.now;
        self.now = time;
        self.work = self.work.saturating_sub(passed * u128::from(speed));
        for (queue, rate) in [(&mut self.reads, read), (&mut self.writes, write)] {
            if let Some(head) = queue.front_mut() {
                head.left = head.left.saturating_sub(passed * u128::from(rate));
            }
        }
        self.complete();
        true
    }

    /// Takes note of everything that has ended by now.
    fn complete(&mut self) {
        if let Some(read) = pop_moved(&mut self.reads) {
            let interval = read.interval.expect("reads belong to intervals");
            self.arriving.push_back((self.now + u128::from(self.rates.latency_ns), interval));
        }
        while let Some(&(_, interval)) = self.arriving.front().filter(|&&(time, _)| time <= self.now) {
            self.arriving.pop_front();
            self.stage[interval] = Stage::Ready;
        }
        if let Some(interval) = pop_moved(&mut self.writes).and_then(|write| write.interval) {
            self.free(interval);
        }
    }
}

/// The transfer at the head of a queue, if it has moved all its bytes.
fn pop_moved(queue: &mut VecDeque<Transfer>) -> Option<Transfer> {
    if queue.front()?.left == 0 { queue.pop_front() } else { None }
}
