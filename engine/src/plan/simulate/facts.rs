//! What the simulation looks up in a plan again and again, computed once.

use super::super::outcome::Station;
use super::super::predict::Commits;
use super::super::types::{Interval, Place, Plan};
use super::NONE;
use crate::id::{DeviceId, Tier};
use crate::schedule::{Node, Resource};

/// The streamed stays of one window, in the order of their spans.
pub(super) struct Stays {
    pub intervals: Vec<u32>,
    /// How many of the next sweep's may begin before it.
    pub prefetched: usize,
}

/// Derived from a plan.
pub(super) struct Facts<'a> {
    pub plan: &'a Plan,
    pub commits: &'a Commits,
    pub devices: Vec<DeviceId>,
    /// Who has nodes of its own: the host, then devices by number.
    pub users: Vec<Station>,
    /// Each user's nodes.
    pub nodes: Vec<Vec<u32>>,
    /// The user of each node; commit marks have none.
    pub user_of: Vec<u32>,
    /// The interval of each access node.
    pub interval_of: Vec<u32>,
    /// Commit marks.
    pub marks: Vec<u32>,
    /// The arena's window, then that of each device.
    pub windows: Vec<Stays>,
    /// The interval of the same run before each; of the first the last one, in the sweep before.
    pub previous: Vec<u32>,
    /// Whether different users take or give back leases of the interval's run, so that also an access in place waits
    /// for others.
    pub is_shared: Vec<bool>,
    /// For each interval that changes its run in place, the number of the run in the list of a commit; else `NONE`.
    pub flush_of: Vec<u32>,
    /// Intervals by release node.
    by_release: Vec<u32>,
    /// For each node where its part of `by_release` begins.
    release_start: Vec<u32>,
}

impl<'a> Facts<'a> {
    pub(super) fn new(plan: &'a Plan, commits: &'a Commits) -> Facts<'a> {
        let count = plan.schedule.nodes.len();
        let mut facts = Facts {
            plan,
            commits,
            devices: plan.devices.iter().map(|share| share.device).collect(),
            users: Vec::new(),
            nodes: Vec::new(),
            user_of: vec![NONE; count],
            interval_of: vec![NONE; count],
            marks: Vec::new(),
            windows: Vec::new(),
            previous: vec![NONE; plan.intervals.len()],
            is_shared: vec![false; plan.intervals.len()],
            flush_of: vec![NONE; plan.intervals.len()],
            by_release: (0..plan.intervals.len() as u32).collect(),
            release_start: Vec::with_capacity(count + 1),
        };
        facts.list_users();
        for (index, interval) in (0..).zip(&plan.intervals) {
            facts.interval_of[interval.node as usize] = index;
        }
        let streamed = |takes: &dyn Fn(&Interval) -> bool| {
            (0..).zip(&plan.intervals).filter(|(_, interval)| takes(interval)).map(|(index, _)| index).collect()
        };
        let exit = &plan.exit;
        let intervals = streamed(&Interval::takes_host_window);
        facts.windows.push(Stays { intervals, prefetched: exit.prefetched.len() });
        for held in &exit.devices {
            let tier = Tier::Device(held.device);
            let intervals = streamed(&|interval| interval.tier == tier && interval.place == Place::Window);
            facts.windows.push(Stays { intervals, prefetched: held.prefetched.len() });
        }
        facts.list_runs();
        facts.list_releases();
        facts.list_flushes();
        facts
    }

    /// Whether an interval changes bytes that a commit makes durable.
    pub(super) fn is_kept(&self, number: u32) -> bool {
        self.commits.is_kept[number as usize % self.plan.intervals.len()]
    }

    /// The interval with this number through all sweeps.
    pub(super) fn interval(&self, number: u32) -> &'a Interval {
        &self.plan.intervals[number as usize % self.plan.intervals.len()]
    }

    /// Index of a device.
    pub(super) fn device(&self, id: DeviceId) -> usize {
        self.devices.iter().position(|&device| device == id).expect("a device of the plan")
    }

    /// Intervals whose lease ends at a node.
    pub(super) fn released_at(&self, node: u32) -> &[u32] {
        let bounds = self.release_start[node as usize] as usize..self.release_start[node as usize + 1] as usize;
        &self.by_release[bounds]
    }

    fn list_users(&mut self) {
        let station = |node: &Node| match node {
            Node::Access(access) => match access.tier {
                Tier::Device(device) => Some(Station::Compute(device)),
                _ => Some(Station::HostCompute),
            },
            Node::Work { resource: Resource::Compute(device), .. } => Some(Station::Compute(*device)),
            Node::Work { .. } => Some(Station::HostCompute),
            Node::Commit => None,
        };
        let nodes = &self.plan.schedule.nodes;
        let all = [Station::HostCompute].into_iter().chain(self.devices.iter().map(|&id| Station::Compute(id)));
        // Linear, as long as there are few devices.
        self.users = all.filter(|user| nodes.iter().any(|node| station(node) == Some(*user))).collect();
        self.nodes = vec![Vec::new(); self.users.len()];
        for (index, node) in (0..).zip(nodes) {
            let Some(station) = station(node) else {
                self.marks.push(index);
                continue;
            };
            let user = self.users.iter().position(|&user| user == station).expect("every station is listed");
            self.user_of[index as usize] = user as u32;
            self.nodes[user].push(index);
        }
    }

    fn list_runs(&mut self) {
        let intervals = &self.plan.intervals;
        let mut order: Vec<u32> = (0..intervals.len() as u32).collect();
        order.sort_unstable_by_key(|&index| (intervals[index as usize].run, index));
        for run in order.chunk_by(|&a, &b| intervals[a as usize].run == intervals[b as usize].run) {
            let user = self.user_of[intervals[run[0] as usize].node as usize];
            let is_other = |node: u32| self.user_of[node as usize] != user;
            let is_shared = run.iter().map(|&index| &intervals[index as usize]);
            let is_shared = is_shared.into_iter().any(|i| is_other(i.node) || is_other(i.release));
            let mut before = run[run.len() - 1];
            for &index in run {
                self.is_shared[index as usize] = is_shared;
                self.previous[index as usize] = before;
                before = index;
            }
        }
    }

    fn list_flushes(&mut self) {
        let flushed = &self.commits.flushed;
        let mut by_run: Vec<u32> = (0..flushed.len() as u32).collect();
        by_run.sort_unstable_by_key(|&item| flushed[item as usize].run);
        for (index, interval) in self.plan.intervals.iter().enumerate() {
            if self.commits.is_kept[index] && interval.place != Place::Window {
                let found = by_run.binary_search_by_key(&interval.run, |&item| flushed[item as usize].run);
                self.flush_of[index] = by_run[found.expect("a commit flushes every run that is changed in place")];
            }
        }
    }

    fn list_releases(&mut self) {
        let intervals = &self.plan.intervals;
        self.by_release.sort_unstable_by_key(|&index| (intervals[index as usize].release, index));
        let mut at = 0;
        for node in 0..=self.plan.schedule.nodes.len() as u32 {
            while at < self.by_release.len() && intervals[self.by_release[at] as usize].release < node {
                at += 1;
            }
            self.release_start.push(at as u32);
        }
    }
}
