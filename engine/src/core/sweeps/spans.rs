//! Which intervals are known, have their spans, and are started: in each ring in schedule order, as far as the plan
//! lets them, there is room, and their run is free for them.

use super::sealed;
use crate::canary::{Canary, planted};
use crate::config::Kind;
use crate::core::interval::{Interval, State};
use crate::core::relay::Source;
use crate::core::{AHEAD_MAX, Core};
use crate::id::Tier;
use crate::io::Io;
use crate::schedule::Node;

impl<I: Io> Core<I> {
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
}
