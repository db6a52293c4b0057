//! What somebody who cannot go on waits for: the line that moves what it needs, or who makes room for it, or the user
//! whose work it comes after.
//!
//! The question is followed from one wait to the next. Where users wait for each other's bytes in turn (none of them is
//! the one that everybody waits for) it would go round, so it ends after a few turns with whatever moves.

use super::super::outcome::Station;
use super::super::types::Home;
use super::Course;
use super::stays::Stage;
use crate::schedule::Node;

/// Waits followed: more than any chain through two windows, staging and a few users has.
const TURNS: u32 = 16;

impl Course<'_> {
    /// Counts the time that passes for every user that does not work.
    pub(super) fn note_stalls(&mut self, passed: u128) {
        for user in 0..self.users.len() {
            if self.users[user].work == 0 && passed > 0 {
                let cause = self.cause_of_user(user, TURNS);
                let key = (self.facts.users[user], cause);
                // A handful of pairs.
                match self.stalls.iter_mut().find(|(known, _)| *known == key) {
                    Some((_, ns)) => *ns += passed,
                    None => self.stalls.push((key, passed)),
                }
                self.users[user].commit_ns += if cause == Station::Commit { passed } else { 0 };
            }
        }
    }

    /// Whatever makes progress, for want of a better answer.
    fn anything(&self) -> Station {
        let working = (0..self.users.len()).find(|&user| self.users[user].work > 0);
        let working = working.map(|user| self.facts.users[user]);
        // Nothing works and nothing moves: a read is on its way through the disk's latency.
        working.or(self.lines.moving()).unwrap_or(Station::DiskRead)
    }

    fn cause_of_user(&self, user: usize, turns: u32) -> Station {
        if turns == 0 {
            return self.anything();
        }
        if self.users[user].work > 0 {
            return self.facts.users[user];
        }
        let Some(node) = self.node_of(user) else { return self.cause_of_first_undone(turns) };
        if self.is_cut_off(node) {
            return self.cause_of_first_undone(turns);
        }
        if let Some(other) = self.waits_for(node) {
            return self.cause_of_node(other, turns);
        }
        match self.facts.plan.schedule.nodes[node as usize] {
            Node::Access(_) => self.cause_of_interval(self.number_of(node), turns),
            _ => self.anything(),
        }
    }

    fn cause_of_first_undone(&self, turns: u32) -> Station {
        let is_at_mark = self.facts.marks.get(self.marks_passed) == Some(&self.first_undone);
        if is_at_mark && self.commit.is_running() {
            return Station::Commit;
        }
        if (self.first_undone as usize) < self.done.len() {
            self.cause_of_node(self.first_undone, turns)
        } else {
            self.anything()
        }
    }

    fn cause_of_node(&self, node: u32, turns: u32) -> Station {
        match self.facts.user_of.get(node as usize) {
            Some(&user) if (user as usize) < self.users.len() => self.cause_of_user(user as usize, turns - 1),
            _ => self.cause_of_first_undone(turns - 1),
        }
    }

    /// What keeps an interval from being ready, or from being over if it is.
    fn cause_of_interval(&self, number: u32, turns: u32) -> Station {
        if turns == 0 {
            return self.anything();
        }
        match self.stage(number) {
            _ if self.is_in_flush(number) => Station::Commit,
            Stage::Coming(station) | Stage::Leaving(station) => station,
            Stage::KeptBack => Station::Commit,
            Stage::Held => match self.staging.oldest().filter(|&owner| owner != super::NONE) {
                Some(owner) if owner != number => self.cause_of_interval(owner, turns - 1),
                _ => Station::DiskWrite,
            },
            Stage::Ready => self.cause_of_node(self.facts.interval(number).release, turns),
            Stage::Staged => self.cause_of_window(self.device_window(number), number, turns),
            Stage::Queued => {
                let interval = self.facts.interval(number);
                if interval.place != super::super::types::Place::Window {
                    return self.cause_of_run(number, turns);
                }
                let is_transit = interval.is_on_device() && interval.home == Home::Disk && interval.takes_host_window();
                let window = if interval.is_on_device() && !is_transit { self.device_window(number) } else { 0 };
                self.cause_of_window(window, number, turns)
            }
            // Only kept for an access on a device, which takes its bytes.
            Stage::Done => match self.facts.interval(number).kept_for {
                Some(other) => self.cause_of_interval(self.beside(number, other), turns - 1),
                None => self.anything(),
            },
        }
    }

    fn device_window(&self, number: u32) -> usize {
        match self.facts.interval(number).tier {
            crate::id::Tier::Device(device) => 1 + self.facts.device(device),
            _ => 0,
        }
    }

    /// What keeps the stays of a window from going on.
    fn cause_of_window(&self, window: usize, number: u32, turns: u32) -> Station {
        let Some(head) = self.next_stay(window) else { return self.anything() };
        // The interval's own stay is behind the head, or is it.
        if head > number {
            return self.anything();
        }
        match self.due(window) {
            Err(Some(at)) => {
                let user = self.facts.user_of[self.facts.plan.intervals[at as usize].node as usize];
                self.cause_of_user(user as usize, turns - 1)
            }
            Err(None) => self.anything(),
            Ok(()) if !self.is_free(head) => self.cause_of_run(head, turns),
            Ok(()) => match self.windows[window].oldest() {
                Some(oldest) => self.cause_of_interval(oldest, turns - 1),
                None => self.anything(),
            },
        }
    }

    /// What keeps an interval's run in use.
    fn cause_of_run(&self, number: u32, turns: u32) -> Station {
        let interval = self.facts.interval(number);
        if interval.relay.is_some() {
            return match self.waits_for(interval.node) {
                Some(node) => self.cause_of_node(node, turns),
                None => self.anything(),
            };
        }
        match self.before(number).filter(|&before| !self.is_over(before)) {
            Some(before) => self.cause_of_interval(before, turns - 1),
            None => self.anything(),
        }
    }
}
