//! What happens to an interval: it takes spans, its bytes come, it is released, its bytes leave, it is over.

use super::super::outcome::Station;
use super::super::types::{Home, Interval, Place};
use super::lines::{Ended, Job};
use super::{Course, NONE};
use crate::id::{DeviceId, Tier};

/// How far an interval is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// It has not begun.
    Queued,
    /// Its bytes come over this line.
    Coming(Station),
    /// Its bytes came from disk and wait in the arena for a span in VRAM.
    Staged,
    /// The access can be taken, or is.
    Ready,
    /// Released; its bytes wait in VRAM for a span of the staging ring.
    Held,
    /// Released while a commit is being made that it does not belong to; its bytes stay until that is durable.
    KeptBack,
    /// Released; its bytes leave over this line.
    Leaving(Station),
    /// Over: the run may be fetched again.
    Done,
}

/// An interval with the spans that it has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stay {
    pub stage: Stage,
    host_span: u32,
    device_span: u32,
    staging_span: u32,
}

impl Default for Stay {
    fn default() -> Stay {
        Stay { stage: Stage::Queued, host_span: NONE, device_span: NONE, staging_span: NONE }
    }
}

/// The next stay of a window: its sweep and its place among the window's stays.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Next {
    sweep: u32,
    position: usize,
}

impl Next {
    /// Goes on to the one behind it, of so many a sweep.
    fn pass(&mut self, stays: usize) {
        self.position += 1;
        if self.position == stays {
            *self = Next { sweep: self.sweep + 1, position: 0 };
        }
    }
}

/// The device of an interval on one.
fn device_of(interval: &Interval) -> DeviceId {
    match interval.tier {
        Tier::Device(device) => device,
        _ => unreachable!("an access in RAM where one in VRAM was expected"),
    }
}

impl Course<'_> {
    pub(super) fn stage(&self, number: u32) -> Stage {
        self.stays[number as usize].stage
    }

    /// The number of another interval of the same sweep.
    pub(super) fn beside(&self, number: u32, interval: u32) -> u32 {
        let count = self.facts.plan.intervals.len() as u32;
        number / count * count + interval
    }

    /// The interval of the same run before this one, if there was any.
    pub(super) fn before(&self, number: u32) -> Option<u32> {
        let count = self.facts.plan.intervals.len() as u32;
        let previous = self.facts.previous[(number % count) as usize];
        let same_sweep = self.beside(number, previous);
        if previous < number % count { Some(same_sweep) } else { same_sweep.checked_sub(count) }
    }

    /// Whether nothing of an interval is left to happen.
    pub(super) fn is_over(&self, number: u32) -> bool {
        let source = self.facts.interval(number).relay.map(|source| self.beside(number, source));
        self.stage(number) == Stage::Done && source.is_none_or(|source| self.stage(source) == Stage::Done)
    }

    /// Whether the interval's bytes may move: they are at the run's home, or in RAM to be relayed.
    pub(super) fn is_free(&self, number: u32) -> bool {
        let Interval { node, relay, .. } = *self.facts.interval(number);
        let Some(source) = relay else { return self.before(number).is_none_or(|before| self.is_over(before)) };
        let release = self.facts.interval(source).release;
        let is_this_sweep = number / self.facts.plan.intervals.len() as u32 == self.sweep;
        let is_done = |node: u32| self.done[node as usize];
        is_this_sweep
            && self.facts.plan.schedule.after[node as usize].iter().all(|&after| is_done(after))
            && (release > node || is_done(release))
    }

    /// The interval whose stay is next in a window, if any is left.
    pub(super) fn next_stay(&self, window: usize) -> Option<u32> {
        let Next { sweep, position } = self.next[window];
        let &interval = self.facts.windows[window].intervals.get(position)?;
        (sweep < self.sweep + 2).then(|| sweep * self.facts.plan.intervals.len() as u32 + interval)
    }

    /// Whether the plan lets the next stay of a window begin by now; else the interval whose access must come first.
    pub(super) fn due(&self, window: usize) -> Result<(), Option<u32>> {
        let Next { sweep, position } = self.next[window];
        let stays = &self.facts.windows[window];
        let interval = &self.facts.plan.intervals[stays.intervals[position] as usize];
        let at = if window == 0 { interval.fetch_at } else { interval.upload_at };
        let is_due = match sweep.checked_sub(self.sweep) {
            Some(0) => at == 0 || self.has_asked(at),
            Some(1) => position < stays.prefetched,
            Some(_) => false,
            None => true,
        };
        if is_due { Ok(()) } else { Err((sweep == self.sweep).then_some(at)) }
    }

    /// Gives spans of every window to the next stays, in order, and begins them.
    pub(super) fn reserve(&mut self) {
        for window in 0..self.windows.len() {
            while let Some(number) = self.next_stay(window) {
                if self.due(window).is_err() || !self.is_free(number) {
                    break;
                }
                let Some(span) = self.windows[window].take(self.facts.interval(number).bytes, number) else { break };
                self.next[window].pass(self.facts.windows[window].intervals.len());
                let stay = &mut self.stays[number as usize];
                *(if window == 0 { &mut stay.host_span } else { &mut stay.device_span }) = span;
                self.begin_stay(window, number);
            }
        }
    }

    fn begin_stay(&mut self, window: usize, number: u32) {
        let interval = self.facts.interval(number);
        let is_upload = window > 0;
        match interval.home {
            _ if !interval.mode.reads() => self.stays[number as usize].stage = Stage::Ready,
            Home::Device { device, .. } => self.come(number, Station::Download(device)),
            Home::Disk if !is_upload => self.come(number, Station::DiskRead),
            // On its way from disk: `landed` goes on.
            Home::Disk if interval.relay.is_none() && self.stage(number) != Stage::Staged => {}
            Home::Disk | Home::Host { .. } => self.come(number, Station::Upload(device_of(interval))),
        }
    }

    fn come(&mut self, number: u32, station: Station) {
        self.stays[number as usize].stage = Stage::Coming(station);
        self.lines.push(station, Job::Fetch(number), self.facts.interval(number).bytes);
    }

    fn leave(&mut self, number: u32, station: Station) {
        self.stays[number as usize].stage = Stage::Leaving(station);
        self.lines.push(station, Job::Leave(number), self.facts.interval(number).bytes);
    }

    /// A read from disk has completed.
    pub(super) fn landed(&mut self, number: u32) {
        let interval = self.facts.interval(number);
        if !interval.is_on_device() {
            self.stays[number as usize].stage = Stage::Ready;
            return;
        }
        self.stays[number as usize].stage = Stage::Staged;
        if self.stays[number as usize].device_span != NONE {
            self.come(number, Station::Upload(device_of(interval)));
        }
    }

    /// A transfer has ended.
    pub(super) fn ended(&mut self, ended: Ended) {
        match (ended.station, ended.job) {
            (Station::DiskRead, Job::Fetch(number)) => {
                self.arriving.push_back((self.now + u128::from(self.rates.latency_ns), number));
            }
            (_, Job::Fetch(number)) => self.arrived(number),
            (Station::Download(_), Job::Leave(number)) if self.facts.interval(number).home == Home::Disk => {
                self.give_back_device_span(number);
                self.leave(number, Station::DiskWrite);
                self.reserve();
            }
            (_, Job::Leave(number)) => self.over(number),
            (Station::Download(_), job @ Job::Flush { .. }) => self.lines.push(Station::DiskWrite, job, ended.bytes),
            (_, Job::Flush { item, span }) => {
                if let Some(span) = span {
                    self.staging.give_back(span);
                    self.stage_held();
                }
                self.commit.flushed(item, ended.bytes);
            }
        }
    }

    /// Bytes are in VRAM, or came from there.
    fn arrived(&mut self, number: u32) {
        self.stays[number as usize].stage = Stage::Ready;
        let interval = self.facts.interval(number);
        if interval.is_on_device() {
            self.give_back_host_span(number);
        }
        if let Some(source) = interval.relay {
            self.settle(self.beside(number, source));
        }
        self.reserve();
    }

    /// The lease of an interval is given back.
    pub(super) fn release(&mut self, number: u32) {
        let interval = self.facts.interval(number);
        let is_shared = self.facts.is_shared[number as usize % self.facts.plan.intervals.len()];
        match (interval.place, interval.home) {
            (Place::Placed { .. }, _) if !is_shared => {}
            (Place::Placed { .. }, _) => self.over(number),
            _ if !interval.mode.writes() => self.over(number),
            _ if self.facts.is_kept(number) && self.commit.is_running() => {
                self.stays[number as usize].stage = Stage::KeptBack;
                self.commit.keep_back(number);
            }
            _ => self.depart(number),
        }
    }

    /// Changed bytes leave the window for the run's home.
    pub(super) fn depart(&mut self, number: u32) {
        let interval = self.facts.interval(number);
        self.commit.leaving += u32::from(self.facts.is_kept(number));
        match (interval.place, interval.home) {
            (Place::Placed { .. }, _) => unreachable!("what is changed in place stays there"),
            (Place::Window, Home::Device { device, .. }) => self.leave(number, Station::Upload(device)),
            (Place::Window, Home::Host { .. }) => self.leave(number, Station::Download(device_of(interval))),
            (Place::Window, Home::Disk) if interval.is_on_device() => {
                self.stays[number as usize].stage = Stage::Held;
                self.held.push_back((device_of(interval), Job::Leave(number), interval.bytes));
                self.stage_held();
            }
            (Place::Window, Home::Disk) => self.leave(number, Station::DiskWrite),
        }
    }

    /// Gives spans of the staging ring to what waits for them, in order.
    pub(super) fn stage_held(&mut self) {
        while let Some(&(device, job, bytes)) = self.held.front() {
            let owner = if let Job::Leave(number) = job { number } else { NONE };
            let Some(span) = self.staging.take(bytes, owner) else { return };
            self.held.pop_front();
            match job {
                Job::Leave(number) => {
                    self.stays[number as usize].staging_span = span;
                    self.leave(number, Station::Download(device));
                }
                Job::Flush { item, .. } => {
                    self.lines.push(Station::Download(device), Job::Flush { item, span: Some(span) }, bytes);
                }
                Job::Fetch(_) => unreachable!("what comes to an interval takes no span of the staging ring"),
            }
        }
    }

    /// An interval is over: its run may be fetched again, and its spans are given back.
    fn over(&mut self, number: u32) {
        let interval = self.facts.interval(number);
        if interval.place == Place::Window && self.facts.is_kept(number) {
            self.commit.leaving -= 1;
        }
        self.stays[number as usize].stage = Stage::Done;
        self.give_back_device_span(number);
        let staging_span = std::mem::replace(&mut self.stays[number as usize].staging_span, NONE);
        if staging_span != NONE {
            self.staging.give_back(staging_span);
            self.stage_held();
        }
        self.settle(number);
        self.reserve();
    }

    /// Gives back the span of an interval in RAM that is over, unless another is still to be relayed from it.
    fn settle(&mut self, number: u32) {
        let kept_for = self.facts.interval(number).kept_for.map(|other| self.beside(number, other));
        let is_kept =
            kept_for.is_some_and(|other| matches!(self.stage(other), Stage::Queued | Stage::Coming(_) | Stage::Staged));
        if self.stage(number) == Stage::Done && !is_kept {
            self.give_back_host_span(number);
        }
    }

    fn give_back_host_span(&mut self, number: u32) {
        let span = std::mem::replace(&mut self.stays[number as usize].host_span, NONE);
        if span != NONE {
            self.windows[0].give_back(span);
        }
    }

    fn give_back_device_span(&mut self, number: u32) {
        let span = std::mem::replace(&mut self.stays[number as usize].device_span, NONE);
        if span != NONE {
            let window = 1 + self.facts.device(device_of(self.facts.interval(number)));
            self.windows[window].give_back(span);
        }
    }
}
