//! An executor reduced to what can go wrong: users, rings and transfers without time. Whatever can happen next happens
//! in random order, transfers too, and the rules of `window` and of `crate::schedule` are written down here once more.
//! Bytes are version numbers, so an access before its data is seen; spans are compared with each other; and where
//! nothing can happen although something is left, the plan is stuck.

mod moves;
mod ring;
mod stays;

use super::samples::Numbers;
use crate::id::{Run, Tier};
use crate::plan::{Interval, Place, Plan};
use crate::schedule::{Node, Resource};
use moves::Move;
use ring::Ring;
use std::collections::{BTreeMap, VecDeque};

/// What is known of an interval.
#[derive(Clone, Copy, Default)]
struct State {
    /// The version of its bytes in its own place.
    version: Option<u64>,
    /// In RAM on their way to VRAM.
    transit: Option<u64>,
    has_span: bool,
    taken: bool,
    released: bool,
    over: bool,
    host_span: bool,
}

pub struct Executor<'a> {
    plan: &'a Plan,
    numbers: &'a mut Numbers,
    sweep: usize,
    users: Vec<(Tier, usize)>,
    done: Vec<bool>,
    states: Vec<State>,
    rings: Vec<Ring>,
    next: Vec<usize>,
    staging: Ring,
    held: VecDeque<usize>,
    moves: Vec<Move>,
    /// Versions at the homes.
    homes: BTreeMap<Run, u64>,
    expected: Vec<u64>,
}

/// Executes three sweeps. `shrink` takes so many bytes off every window. Says at which node it is stuck, or panics
/// where bytes are wrong.
pub fn execute(plan: &Plan, shrink: u64, numbers: &mut Numbers) -> Result<(), usize> {
    let sweeps = if plan.schedule.cyclic { 3 } else { 1 };
    let mut ring = |bytes: u64| {
        let capacity = bytes.saturating_sub(shrink);
        let position = if capacity == 0 { 0 } else { numbers.below(capacity / 4096) * 4096 };
        Ring { capacity, position, spans: VecDeque::new() }
    };
    let mut rings = vec![ring(plan.window_bytes)];
    rings.extend(plan.devices.iter().map(|share| ring(share.window_bytes)));
    let staging = ring(plan.staging_bytes + shrink);
    let count = (sweeps + 1) * plan.intervals.len();
    let mut executor = Executor {
        plan,
        sweep: 0,
        users: Vec::new(),
        done: Vec::new(),
        states: vec![State::default(); count],
        next: vec![0; rings.len()],
        rings,
        staging,
        held: VecDeque::new(),
        moves: Vec::new(),
        homes: BTreeMap::new(),
        expected: vec![0; count],
        numbers,
    };
    executor.expect(sweeps);
    for sweep in 0..sweeps {
        executor.sweep = sweep;
        executor.one()?;
    }
    while executor.step(&[2]) {}
    assert!(executor.held.is_empty() && executor.moves.is_empty(), "something is left to move");
    assert!(executor.states[..sweeps * plan.intervals.len()].iter().all(|state| state.over), "an interval is not over");
    Ok(())
}

impl Executor<'_> {
    fn interval(&self, number: usize) -> Interval {
        self.plan.intervals[number % self.plan.intervals.len()]
    }

    /// The version that each access must find, from the schedule alone: a release of a writer makes the next one.
    fn expect(&mut self, sweeps: usize) {
        let (mut versions, count) = (BTreeMap::<Run, u64>::new(), self.plan.intervals.len());
        for sweep in 0..sweeps {
            for node in 0..self.plan.schedule.nodes.len() as u32 {
                for (index, interval) in self.plan.intervals.iter().enumerate() {
                    let number = sweep * count + index;
                    if interval.node == node {
                        self.expected[number] = *versions.get(&interval.run).unwrap_or(&0);
                    }
                    if interval.release == node && interval.mode.writes() {
                        versions.insert(interval.run, number as u64 + 1);
                    }
                }
            }
        }
    }

    fn one(&mut self) -> Result<(), usize> {
        let tiers = [Tier::Host].into_iter().chain(self.plan.devices.iter().map(|share| Tier::Device(share.device)));
        self.users = tiers.map(|tier| (tier, 0)).collect();
        self.done = vec![false; self.plan.schedule.nodes.len()];
        // Users first, reservations first, transfers first, or anything.
        let mut order = [0, 1, 2];
        for at in (1..3).rev() {
            order.swap(at, self.numbers.below(at as u64 + 1) as usize);
        }
        while let Some(undone) = self.done.iter().position(|done| !done) {
            if self.numbers.below(8) == 0 {
                order.rotate_left(1);
            }
            if !self.step(&order) {
                return Err(undone);
            }
        }
        Ok(())
    }

    /// One thing happens, of the first kind that can; false if nothing can.
    fn step(&mut self, order: &[u64]) -> bool {
        order.iter().any(|kind| match kind {
            0 => {
                let first = self.numbers.below(self.users.len() as u64) as usize;
                (0..self.users.len()).any(|other| self.user((first + other) % self.users.len()))
            }
            1 => {
                let first = self.numbers.below(self.rings.len() as u64) as usize;
                (0..self.rings.len()).any(|other| self.reserve((first + other) % self.rings.len()))
            }
            _ => self.transfer(),
        })
    }

    fn tier_of(&self, node: usize) -> Option<Tier> {
        match &self.plan.schedule.nodes[node] {
            Node::Access(access) => Some(access.tier),
            Node::Work { resource: Resource::Compute(device), .. } => Some(Tier::Device(*device)),
            Node::Work { .. } => Some(Tier::Host),
            Node::Commit => None,
        }
    }

    /// A user does its next node, if it can. Marks are done by whoever comes to them first.
    fn user(&mut self, user: usize) -> bool {
        let (tier, at) = self.users[user];
        let nodes = &self.plan.schedule.nodes;
        let Some(node) = (at..nodes.len()).find(|&node| self.tier_of(node) == Some(tier)) else {
            return self.mark(nodes.len());
        };
        if self.mark(node) {
            return true;
        }
        let is_cut_off = (0..node).any(|other| self.tier_of(other).is_none() && !self.done[other]);
        if is_cut_off || self.plan.schedule.after[node].iter().any(|&after| !self.done[after as usize]) {
            return false;
        }
        if matches!(nodes[node], Node::Access(_)) && !self.take(node) {
            return false;
        }
        self.users[user].1 = node + 1;
        self.finish(node);
        true
    }

    /// Passes the first mark before a node if all in front of it is done.
    fn mark(&mut self, before: usize) -> bool {
        let mark = (0..before).find(|&node| self.tier_of(node).is_none() && !self.done[node]);
        match mark {
            Some(mark) if self.done[..mark].iter().all(|&done| done) => {
                self.finish(mark);
                true
            }
            _ => false,
        }
    }

    fn take(&mut self, node: usize) -> bool {
        let count = self.plan.intervals.len();
        let index = self.plan.intervals.iter().position(|i| i.node as usize == node).expect("an interval per access");
        let number = self.sweep * count + index;
        let interval = self.interval(number);
        if let Place::Placed { .. } = interval.place {
            if self.before(number).is_some_and(|before| !self.states[before].over) {
                return false;
            }
            self.states[number].version = Some(*self.homes.get(&interval.run).unwrap_or(&0));
        }
        let Some(version) = self.states[number].version else { return false };
        let expected = self.expected[number];
        assert!(!interval.mode.reads() || version == expected, "node {node} finds {version} and not {expected}");
        self.states[number].taken = true;
        true
    }

    fn before(&self, number: usize) -> Option<usize> {
        let run = self.interval(number).run;
        (0..number).rev().find(|&other| self.interval(other).run == run)
    }

    fn finish(&mut self, node: usize) {
        self.done[node] = true;
        for index in 0..self.plan.intervals.len() {
            let number = self.sweep * self.plan.intervals.len() + index;
            if self.plan.intervals[index].release as usize == node {
                self.release(number);
            }
        }
    }

    /// Whether the user of an access has come to it.
    fn has_come_to(&self, node: usize) -> bool {
        let tier = self.tier_of(node).expect("an access has a tier");
        let (_, at) = self.users.iter().find(|(other, _)| *other == tier).expect("a user of each tier");
        (*at..node).all(|other| self.tier_of(other) != Some(tier))
    }
}
