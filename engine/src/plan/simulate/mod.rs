//! The course of a sweep in time, event by event: the disk with a queue of reads and one of writes, the link of each
//! device with a lane each way, the windows' rings and the staging ring, and users that go through their nodes in order
//! beside each other. Disk transfers and the host's computation share the cores (see `rates`). Integer nanoseconds
//! throughout, so that the prediction is the same on every machine.
//!
//! What it leaves out: volumes of different speed, queue depth, what devices take from each other's links. Transfers of
//! one way are served in the order in which they become possible; the latency of the disk delays a completion without
//! occupying the link, that of a link occupies it.
//!
//! A commit begins at the first mark of a sweep that has one to make, or at its end: it writes what lives in memory,
//! waits for the write-backs that were on their way, and is durable when the volumes have synced. Meanwhile who changes
//! a run in place waits for the run's flush, what is given back stays where it is, and the next commit waits.
//!
//! `facts` is what it looks up in the plan, `lines` moves bytes, `ring` is a window, `stays` says what happens to an
//! interval, `users` who goes on when, `commit` makes commits, `stalls` what somebody who cannot go on waits for.

mod commit;
mod facts;
mod lines;
mod ring;
mod stalls;
mod stays;
mod users;

use super::outcome::{Span, Station, Timeline};
use super::predict::Commits;
use super::rates::{FULL, Rates};
use super::types::Plan;
use crate::id::DeviceId;
use commit::Committing;
use facts::Facts;
use lines::{Job, Lines};
use ring::Ring;
use stays::{Next, Stay};
use std::collections::VecDeque;
use users::User;

/// No index.
const NONE: u32 = u32::MAX;

/// A sweep as it was measured.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Measured {
    /// How many sweeps from one commit to the next are like it.
    pub times: u32,
    /// A steady sweep, or the only one with its last write-back and commit.
    pub ns: u128,
    /// How long each station worked, if it did.
    pub busy: Vec<(Station, u128)>,
    /// How long each user waited for each station.
    pub stalls: Vec<((Station, Station), u128)>,
    /// The sweep, if it was recorded.
    pub timeline: Timeline,
}

/// What the simulation measured.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Simulated {
    /// The sweeps from one commit to the next: first one of those that no commit touches, if there are any.
    pub sweeps: Vec<Measured>,
    /// Most bytes of the arena's window and of staging in use.
    pub host_peak_bytes: u64,
    /// The same of each device's window.
    pub device_peak_bytes: Vec<u64>,
}

/// Runs a cyclic plan until it is steady and measures the sweeps from one commit to the next; runs another plan once.
pub(super) fn simulate(plan: &Plan, rates: &Rates, commits: &Commits, record: bool) -> Simulated {
    let facts = Facts::new(plan, commits);
    let mut course = Course::new(&facts, rates);
    let every = commits.every;
    let sweeps = if !plan.schedule.cyclic {
        course.measure(record);
        course.sweep(every > 0);
        while course.step() {}
        vec![course.measured(1)]
    } else if every <= 1 {
        course.sweep(every == 1);
        vec![course.another(every == 1, record)]
    } else {
        course.sweep(false);
        let plain = course.another(false, record);
        let mut sweeps = vec![plain, course.another(true, record)];
        // The sweep behind the commit's changes what is still being flushed, and meets what was kept back.
        while sweeps.len() <= every as usize && (sweeps.len() < 3 || course.commit.is_running()) {
            sweeps.push(course.another(false, record));
        }
        sweeps[0].times = every - (sweeps.len() as u32 - 1);
        sweeps.retain(|sweep| sweep.times > 0);
        sweeps
    };
    Simulated {
        sweeps,
        host_peak_bytes: course.windows[0].peak() + course.staging.peak(),
        device_peak_bytes: course.windows[1..].iter().map(Ring::peak).collect(),
    }
}

struct Course<'a> {
    facts: &'a Facts<'a>,
    rates: &'a Rates,
    lines: Lines<'a>,
    /// The arena's window, then that of each device.
    windows: Vec<Ring>,
    /// The next stay of each window.
    next: Vec<Next>,
    staging: Ring,
    /// What waits for a span of it, in order: from where, what for, bytes.
    held: VecDeque<(DeviceId, Job, u64)>,
    /// Reads transferred, with the time of their completion.
    arriving: VecDeque<(u128, u32)>,
    /// Every interval, numbered through all sweeps, the next one with what is prefetched from it included.
    stays: Vec<Stay>,
    commit: Committing,
    users: Vec<User>,
    /// Nodes of this sweep that are done, the first that is not, and the marks passed.
    done: Vec<bool>,
    first_undone: u32,
    marks_passed: usize,
    /// A commit is still to begin in this sweep.
    commits: bool,
    /// Sweeps ended.
    sweep: u32,
    now: u128,
    /// When the measured sweep began.
    begin: u128,
    record: bool,
    timeline: Timeline,
    /// How long each user waited for each station, in no order.
    stalls: Vec<((Station, Station), u128)>,
}

impl<'a> Course<'a> {
    fn new(facts: &'a Facts<'a>, rates: &'a Rates) -> Course<'a> {
        let plan = facts.plan;
        let capacities = [plan.window_bytes].into_iter().chain(plan.devices.iter().map(|share| share.window_bytes));
        Course {
            facts,
            rates,
            lines: Lines::new(rates, &facts.devices),
            windows: capacities.map(Ring::new).collect(),
            next: vec![Next::default(); facts.windows.len()],
            staging: Ring::new(plan.staging_bytes),
            held: VecDeque::new(),
            arriving: VecDeque::new(),
            stays: Vec::new(),
            commit: Committing::new(facts.commits.flushed.len()),
            users: vec![User::default(); facts.users.len()],
            done: Vec::new(),
            first_undone: 0,
            marks_passed: 0,
            commits: false,
            sweep: 0,
            now: 0,
            begin: 0,
            record: false,
            timeline: Timeline::default(),
            stalls: Vec::new(),
        }
    }

    /// What happens from now on is measured.
    fn measure(&mut self, record: bool) {
        self.begin = self.now;
        self.record = record;
        self.stalls.clear();
        self.lines.reset_busy();
        self.users.iter_mut().for_each(|user| user.busy_ns = 0);
        if record {
            let none = Span { begin_ns: 0, end_ns: 0, commit_ns: 0 };
            self.timeline.nodes = vec![none; self.facts.plan.schedule.nodes.len()];
            self.timeline.transfers.clear();
        }
    }

    /// Runs and measures one more sweep, in which a commit begins or none.
    fn another(&mut self, commits: bool, record: bool) -> Measured {
        self.sweep += 1;
        self.measure(record);
        self.sweep(commits);
        self.measured(1)
    }

    /// What was measured since `measure`.
    fn measured(&mut self, times: u32) -> Measured {
        let users = self.facts.users.iter().copied().zip(self.users.iter().map(|user| user.busy_ns));
        let busy = users.chain(self.lines.busy()).filter(|&(_, ns)| ns > 0);
        let mut busy: Vec<_> = busy.collect();
        busy.sort_unstable();
        let mut stalls = std::mem::take(&mut self.stalls);
        stalls.sort_unstable();
        Measured { times, ns: self.now - self.begin, busy, stalls, timeline: std::mem::take(&mut self.timeline) }
    }

    /// Moves time to the next event. False if nothing will ever happen.
    fn step(&mut self) -> bool {
        let is_host = |user: usize| self.facts.users[user] == Station::HostCompute;
        let works = (0..self.users.len()).any(|user| is_host(user) && self.users[user].work > 0);
        let speed = self.lines.set_pace(works);
        let speed_of = |user: usize| u128::from(if is_host(user) { speed } else { FULL });
        let works = (0..self.users.len()).filter(|&user| self.users[user].work > 0);
        let events = works
            .map(|user| self.now + self.users[user].work.div_ceil(speed_of(user)))
            .chain(self.lines.next_end(self.now))
            .chain(self.arriving.front().map(|&(time, _)| time))
            .chain(self.commit.durable_at());
        let Some(time) = events.min() else { return false };
        let passed = time - self.now;
        let speeds: [u128; 2] = [u128::from(speed), u128::from(FULL)];
        self.note_stalls(passed);
        self.lines.pass(self.now, passed);
        for (user, station) in self.users.iter_mut().zip(&self.facts.users) {
            let speed = speeds[usize::from(*station != Station::HostCompute)];
            user.busy_ns += if user.work > 0 { passed } else { 0 };
            user.work = user.work.saturating_sub(passed * speed);
        }
        self.now = time;
        self.complete();
        true
    }

    /// Takes note of everything that has ended by now.
    fn complete(&mut self) {
        for line in 0..self.lines.len() {
            if let Some(ended) = self.lines.take_ended(line, self.now) {
                self.record(&ended);
                self.ended(ended);
            }
            if line > 0 {
                continue;
            }
            while let Some(&(_, number)) = self.arriving.front().filter(|&&(time, _)| time <= self.now) {
                self.arriving.pop_front();
                self.landed(number);
            }
        }
        self.go_on_committing();
    }

    fn record(&mut self, ended: &lines::Ended) {
        if !self.record {
            return;
        }
        let interval = match ended.job {
            Job::Fetch(number) | Job::Leave(number) => Some(number % self.facts.plan.intervals.len() as u32),
            Job::Flush { .. } => None,
        };
        self.timeline.transfers.push(super::outcome::Transfer {
            station: ended.station,
            interval,
            bytes: ended.bytes,
            begin_ns: ended.begin as i64 - self.begin as i64,
            end_ns: (self.now - self.begin) as u64,
        });
    }
}
