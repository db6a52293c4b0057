//! The life of an interval: its span, the lease given back, its bytes written back.

use super::moves::Move;
use super::{Executor, Interval};
use crate::id::Tier;
use crate::plan::{Home, Place};

impl Executor<'_> {
    pub(super) fn release(&mut self, number: usize) {
        let interval = self.interval(number);
        assert!(self.states[number].taken && !self.states[number].released, "a lease is given back twice");
        self.states[number].released = true;
        if interval.mode.writes() {
            self.states[number].version = Some(number as u64 + 1);
        }
        match (interval.place, interval.home, interval.tier) {
            (Place::Placed { .. }, ..) => {
                self.homes.insert(interval.run, self.states[number].version.expect("it was taken"));
                self.over(number);
            }
            _ if !interval.mode.writes() => self.over(number),
            (_, Home::Disk, Tier::Host) => self.moves.push(Move::RamToDisk(number)),
            (_, Home::Disk, _) => self.held.push_back(number),
            (_, Home::Host { .. }, _) => self.moves.push(Move::VramToRam(number)),
            (_, Home::Device { .. }, _) => self.moves.push(Move::RamToHome(number)),
        }
        self.stage();
    }

    pub(super) fn stage(&mut self) {
        while let Some(&number) = self.held.front() {
            if !self.staging.take(number, self.interval(number).bytes) {
                return;
            }
            self.held.pop_front();
            self.moves.push(Move::VramToStaging(number));
        }
    }

    pub(super) fn over(&mut self, number: usize) {
        self.states[number].over = true;
        if self.states[number].has_span && self.interval(number).tier != Tier::Host {
            self.leave_vram(number);
        }
        self.settle(number);
    }

    pub(super) fn leave_vram(&mut self, number: usize) {
        let at = self.plan.devices.iter().position(|share| Tier::Device(share.device) == self.interval(number).tier);
        self.rings[1 + at.expect("a device of the plan")].give_back(number);
        self.states[number].has_span = false;
    }

    /// Gives the span in RAM back once nobody needs it.
    pub(super) fn settle(&mut self, number: usize) {
        let sweep = number / self.plan.intervals.len() * self.plan.intervals.len();
        let relayed = self.interval(number).kept_for.map(|other| sweep + other as usize);
        let is_kept = relayed.is_some_and(|other| self.states[other].version.is_none());
        if self.states[number].over && !is_kept && self.states[number].host_span {
            self.states[number].host_span = false;
            self.rings[0].give_back(number);
        }
    }

    /// Whether the bytes for an interval are final where they come from.
    pub(super) fn is_free(&self, number: usize) -> bool {
        let interval = self.interval(number);
        let Some(relay) = interval.relay else {
            let chain = |before: usize| {
                let source = self.interval(before).relay.map(|source| self.beside(before, source));
                self.states[before].over && source.is_none_or(|source| self.states[source].over)
            };
            return self.before(number).is_none_or(chain);
        };
        let source = self.beside(number, relay);
        let is_behind = self.interval(source).release > interval.node;
        number / self.plan.intervals.len() == self.sweep
            && self.plan.schedule.after[interval.node as usize].iter().all(|&after| self.done[after as usize])
            && (is_behind || self.states[source].released)
    }

    pub(super) fn beside(&self, number: usize, other: u32) -> usize {
        number / self.plan.intervals.len() * self.plan.intervals.len() + other as usize
    }

    /// Gives the next stay of a ring its span, if plan and ring let it, and begins it.
    pub(super) fn reserve(&mut self, ring: usize) -> bool {
        let count = self.plan.intervals.len();
        let tier = if ring == 0 { Tier::Host } else { Tier::Device(self.plan.devices[ring - 1].device) };
        let is_stay = |interval: &Interval| {
            let is_transit = interval.tier != Tier::Host
                && interval.home == Home::Disk
                && interval.mode.reads()
                && interval.relay.is_none();
            interval.tier == tier && interval.place == Place::Window || ring == 0 && is_transit
        };
        let Some(number) =
            (self.next[ring]..self.states.len()).find(|&number| is_stay(&self.plan.intervals[number % count]))
        else {
            return false;
        };
        let interval = self.interval(number);
        let at = if ring == 0 { interval.fetch_at } else { interval.upload_at } as usize;
        let is_due = match (number / count).checked_sub(self.sweep) {
            Some(0) => at == 0 || self.has_come_to(self.plan.intervals[at].node as usize),
            Some(1) => {
                let first = number / count * count;
                let before = (first..number).filter(|&other| is_stay(&self.interval(other))).count();
                let exit = &self.plan.exit;
                before < if ring == 0 { &exit.prefetched } else { &exit.devices[ring - 1].prefetched }.len()
            }
            _ => false,
        };
        if !is_due || !self.is_free(number) || !self.rings[ring].take(number, interval.bytes) {
            return false;
        }
        self.next[ring] = number + 1;
        let state = &mut self.states[number];
        *(if ring == 0 { &mut state.host_span } else { &mut state.has_span }) = true;
        match (interval.home, ring) {
            _ if !interval.mode.reads() => state.version = Some(u64::MAX),
            (Home::Device { .. }, _) => self.moves.push(Move::HomeToRam(number)),
            (Home::Disk, 0) => self.moves.push(Move::DiskToRam(number)),
            (Home::Disk, _) if interval.relay.is_none() && state.transit.is_none() => {}
            _ => self.moves.push(Move::RamToVram(number)),
        }
        true
    }
}
