//! Users: who goes on when.

use super::super::outcome::Span;
use super::super::rates::FULL;
use super::super::types::Place;
use super::Course;
use super::stays::{Stage, Stay};
use crate::schedule::Node;

/// Who goes through the nodes of one resource.
#[derive(Clone, Default, Debug)]
pub(super) struct User {
    /// Nodes of its own that are done.
    pub at: usize,
    /// What is left of the work at hand: nanoseconds at full speed times `FULL`.
    pub work: u128,
    /// When it came to the node at hand; None if it did not yet.
    begin: Option<u128>,
    /// The node at hand has begun: it comes after nothing that is not done.
    has_begun: bool,
    /// The last of its accesses that it has asked for in this sweep.
    asked: u32,
    /// Nanoseconds of work.
    pub busy_ns: u128,
    /// Nanoseconds for which the node at hand has waited for a commit.
    pub commit_ns: u128,
}

impl Course<'_> {
    /// The users pass through the schedule once; `commits`: a commit begins there.
    pub(super) fn sweep(&mut self, commits: bool) {
        let intervals = self.facts.plan.intervals.len();
        self.stays.resize((self.sweep as usize + 2) * intervals, Stay::default());
        let nodes = self.facts.plan.schedule.nodes.len();
        self.done.clear();
        self.done.resize(nodes, false);
        (self.first_undone, self.marks_passed, self.commits) = (0, 0, commits && self.facts.commits.has_any);
        for user in &mut self.users {
            *user = User { busy_ns: user.busy_ns, ..User::default() };
        }
        self.pass_marks();
        self.reserve();
        loop {
            while (0..self.users.len()).any(|user| self.go_on(user)) {}
            if self.first_undone as usize == nodes {
                break;
            }
            assert!(self.step(), "the simulated sweep is stuck before node {}", self.first_undone);
        }
        if self.commits {
            while self.commit.is_running() && self.step() {}
            self.begin_commit();
        }
    }

    /// The node that a user is at; None after its last.
    pub(super) fn node_of(&self, user: usize) -> Option<u32> {
        self.facts.nodes[user].get(self.users[user].at).copied()
    }

    /// Whether the access of an interval has been asked for in this sweep.
    pub(super) fn has_asked(&self, interval: u32) -> bool {
        let user = self.facts.user_of[self.facts.plan.intervals[interval as usize].node as usize];
        self.users[user as usize].asked >= interval
    }

    /// Whether a mark that is not passed lies before a node.
    pub(super) fn is_cut_off(&self, node: u32) -> bool {
        self.facts.marks.get(self.marks_passed).is_some_and(|&mark| mark < node)
    }

    /// The first node that a node comes after and that is not done.
    pub(super) fn waits_for(&self, node: u32) -> Option<u32> {
        let after = &self.facts.plan.schedule.after[node as usize];
        after.iter().copied().find(|&after| !self.done[after as usize])
    }

    /// A user goes on until it must wait; whether it got anywhere.
    fn go_on(&mut self, user: usize) -> bool {
        let mut moved = false;
        while let Some(node) = self.node_of(user) {
            if !self.is_done(user, node) {
                break;
            }
            self.finish(user, node);
            moved = true;
        }
        moved
    }

    /// Does what can be done of the node at hand.
    fn is_done(&mut self, user: usize, node: u32) -> bool {
        let now = self.now;
        self.users[user].begin.get_or_insert(now);
        let what = &self.facts.plan.schedule.nodes[node as usize];
        if !self.users[user].has_begun {
            if self.is_cut_off(node) || self.waits_for(node).is_some() {
                return false;
            }
            self.users[user].has_begun = true;
            match what {
                Node::Work { ns, .. } => {
                    self.users[user].begin = Some(now);
                    self.users[user].work = u128::from(*ns) * u128::from(FULL);
                }
                _ => self.ask(user, node),
            }
        }
        match what {
            Node::Work { .. } => self.users[user].work == 0,
            _ => self.is_there(self.number_of(node)),
        }
    }

    /// The number of an access's interval in this sweep.
    pub(super) fn number_of(&self, node: u32) -> u32 {
        self.sweep * self.facts.plan.intervals.len() as u32 + self.facts.interval_of[node as usize]
    }

    fn ask(&mut self, user: usize, node: u32) {
        let interval = self.facts.interval_of[node as usize];
        self.users[user].asked = interval;
        // With one user, what has its place waits for nothing, and the next that streams asks for itself.
        if self.users.len() > 1 || self.facts.plan.intervals[interval as usize].place == Place::Window {
            self.reserve();
        }
    }

    /// Whether the bytes of an access are there.
    fn is_there(&mut self, number: u32) -> bool {
        let place = self.facts.interval(number).place;
        let is_shared = self.facts.is_shared[number as usize % self.facts.plan.intervals.len()];
        if place == Place::Window {
            return self.stage(number) == Stage::Ready;
        }
        if self.is_in_flush(number) || is_shared && !self.before(number).is_none_or(|before| self.is_over(before)) {
            return false;
        }
        self.stays[number as usize].stage = Stage::Ready;
        true
    }

    fn finish(&mut self, user: usize, node: u32) {
        let User { at, asked, busy_ns, begin, commit_ns, .. } = self.users[user];
        self.span(node, begin, commit_ns);
        self.users[user] = User { at: at + 1, asked, busy_ns, ..User::default() };
        self.done[node as usize] = true;
        for at in 0..self.facts.released_at(node).len() {
            let interval = self.facts.released_at(node)[at];
            self.release(self.sweep * self.facts.plan.intervals.len() as u32 + interval);
        }
        if self.users.len() > 1 {
            // What is relayed may have waited for this node.
            self.reserve();
        }
        self.pass_marks();
    }

    /// Moves over what is done; a mark is done when all in front of it is, and one at which a commit begins when the
    /// commit before is durable.
    pub(super) fn pass_marks(&mut self) {
        loop {
            while self.done.get(self.first_undone as usize) == Some(&true) {
                self.first_undone += 1;
            }
            if self.facts.marks.get(self.marks_passed) != Some(&self.first_undone) {
                return;
            }
            if self.commits && self.commit.is_running() {
                return;
            }
            self.span(self.first_undone, Some(self.now), 0);
            self.done[self.first_undone as usize] = true;
            self.marks_passed += 1;
            if self.commits {
                self.begin_commit();
            }
        }
    }

    fn span(&mut self, node: u32, begin: Option<u128>, commit_ns: u128) {
        if self.record {
            let ns = |time: u128| (time - self.begin) as u64;
            let begin_ns = ns(begin.unwrap_or(self.now));
            self.timeline.nodes[node as usize] = Span { begin_ns, end_ns: ns(self.now), commit_ns: commit_ns as u64 };
        }
    }
}
