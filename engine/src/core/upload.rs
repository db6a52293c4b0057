//! To VRAM: what an interval on a device needs before it is ready. Its bytes are brought to RAM, unless they are there,
//! and copied up.
//!
//! Where they come from: their home in RAM; the interval that it is relayed from (`relay`); disk, through the span that
//! it has in the arena's window, or, where that is used up or the home is in VRAM, through the staging ring.
//!
//! Its user need not wait for the copy, since his stream can: an interval is published as soon as the device has taken
//! its upload, and stays `Uploading`. Nothing that its user gives back counts before that has ended well (`Uploads`).

use super::Core;
use crate::canary::{Canary, planted};
use crate::core::copies::Job;
use crate::core::interval::State;
use crate::core::pages::Content;
use crate::core::transfer::Owner;
use crate::device::DeviceOp;
use crate::error::Error;
use crate::id::Run;
use crate::io::{FrameRef, Io};
use crate::plan::Home;

impl<I: Io> Core<I> {
    /// Starts what an interval on a device needs before it is ready.
    pub(crate) fn fetch_on_device(&mut self, seq: u64) {
        let interval = self.interval(seq);
        let (id, home, span, is_past_transit) = (interval.run, interval.home, interval.span, interval.is_past_transit);
        if !interval.mode.reads() {
            return self.ready(seq);
        }
        if let Some(offset) = self.relayed_from(seq) {
            return self.upload(seq, offset);
        }
        let is_loaded = self.runs.get(id).home.is_some_and(|home| home.loaded);
        match home {
            Home::Device { .. } if is_loaded => self.ready(seq),
            Home::Host { offset } if is_loaded => self.upload(seq, offset),
            Home::Host { offset } => {
                self.runs.home_mut(id).loading = true;
                self.load_interval(seq, offset);
            }
            Home::Disk if !is_past_transit => {
                self.load_interval(seq, span.expect("one that has room").offset);
            }
            Home::Disk => self.queue(seq),
            Home::Device { .. } => {
                self.runs.home_mut(id).loading = true;
                match self.zeros(self.runs.get(id).run) {
                    Some(Ok(())) => self.clear(seq),
                    Some(Err(error)) => self.fetch_failed_now(seq, error),
                    None => self.queue(seq),
                }
            }
        }
    }

    /// Whether a run has no byte on disk: it reads as zeros, or cannot be read. Nothing need cross the link then, and
    /// without a disk there is no staging ring that it could come through.
    fn zeros(&self, run: Run) -> Option<Result<(), Error>> {
        let content = |page| self.pages.content(&self.layout, run.region, page);
        if (run.first..run.end()).any(|page| matches!(content(page), Content::Disk { .. })) {
            return None;
        }
        let undefined = (run.first..run.end()).find(|page| content(*page) == Content::Undefined);
        Some(undefined.map_or(Ok(()), |page| Err(self.undefined(run, page))))
    }

    fn clear(&mut self, seq: u64) {
        let interval = self.interval_mut(seq);
        interval.become_state(State::Uploading);
        interval.outstanding = 1;
        let device = interval.device.expect("an interval on a device");
        let (at, bytes) = (interval.offset, interval.bytes as u32);
        self.copy(device, Job::Upload(seq), DeviceOp::Clear { at, bytes });
    }

    fn queue(&mut self, seq: u64) {
        self.interval_mut(seq).become_state(State::Queued);
        self.staging.wait(seq);
    }

    /// It has room in the staging ring.
    pub(crate) fn load_staged(&mut self, seq: u64) {
        let offset = self.interval(seq).stage.expect("it was just given").offset;
        self.load_interval(seq, offset);
    }

    /// Starts reading an interval's run from disk into the arena.
    fn load_interval(&mut self, seq: u64, offset: u64) {
        self.interval_mut(seq).become_state(State::Fetching);
        let run = self.runs.get(self.interval(seq).run).run;
        match self.load(run, offset, Owner::Interval(seq)) {
            Ok(0) => self.landed(seq),
            Ok(outstanding) => self.interval_mut(seq).outstanding = outstanding,
            Err(error) => self.fetch_failed_now(seq, error),
        }
    }

    /// Its bytes are in RAM, or cannot be had.
    pub(crate) fn landed(&mut self, seq: u64) {
        let interval = self.interval(seq);
        let (id, home, is_failed) = (interval.run, interval.home, interval.error.is_some());
        if let Home::Host { .. } = home {
            let home = self.runs.home_mut(id);
            home.loaded |= !is_failed;
            home.loading = false;
        }
        if is_failed {
            return self.ready(seq);
        }
        if self.interval(seq).released {
            return self.not_loaded(seq);
        }
        match self.landing(seq) {
            Some(offset) => self.upload(seq, offset),
            None => self.interval_mut(seq).become_state(State::Landed),
        }
    }

    /// Where its bytes are in RAM, if it has room in VRAM.
    fn landing(&self, seq: u64) -> Option<u64> {
        let interval = self.interval(seq);
        if !interval.is_placed() && interval.vram.is_none() {
            return None;
        }
        let home = if let Home::Host { offset } = interval.home { Some(offset) } else { None };
        let span = interval.stage.or(interval.span).map(|span| span.offset);
        Some(home.or(span).expect("bytes that have landed are somewhere"))
    }

    /// It was given its span in VRAM.
    pub(crate) fn has_vram(&mut self, seq: u64) {
        match self.interval(seq).state() {
            State::Landed => {
                let offset = self.landing(seq).expect("it was just given");
                self.upload(seq, offset);
            }
            // What is in transit began, or begins, with its span in RAM.
            State::Reserved if !self.interval(seq).is_in_transit() => self.sweeps.wait_again(seq),
            _ => {}
        }
    }

    /// An interval that was passed over before its bytes went up.
    pub(crate) fn not_loaded(&mut self, seq: u64) {
        let interval = self.interval(seq);
        if let (Home::Device { .. }, id) = (interval.home, interval.run) {
            self.runs.home_mut(id).loading = false;
        }
        self.free(seq);
    }

    fn upload(&mut self, seq: u64, offset: u64) {
        let interval = self.interval_mut(seq);
        interval.become_state(State::Uploading);
        interval.outstanding = 1;
        let device = interval.device.expect("an interval on a device");
        let (from, to) = (FrameRef::new(offset, interval.bytes as u32), interval.offset);
        self.copy(device, Job::Upload(seq), DeviceOp::Upload { from, to });
    }

    /// The device has taken its upload, of this number.
    pub(crate) fn lend(&mut self, seq: u64, upload: u64) {
        if !self.interval(seq).released && self.lends_early(seq) {
            self.publish(seq, upload);
        }
    }

    /// Whether it may be published before its bytes are in VRAM. Not where they come from beside a lease in RAM: when
    /// its user has this one, he may write there.
    fn lends_early(&self, seq: u64) -> bool {
        !self.interval(seq).relay.is_some_and(|relay| relay.is_beside) || planted(Canary::BesideEarly)
    }

    /// Its bytes are in VRAM: nobody needs those in RAM for it any more.
    pub(crate) fn uploaded(&mut self, seq: u64) {
        let is_published = self.lends_early(seq);
        let interval = self.interval_mut(seq);
        interval.outstanding -= 1;
        self.end_transit(seq);
        if let Some(relay) = self.interval_mut(seq).relay.take() {
            self.let_go(relay.source);
        }
        let interval = self.interval(seq);
        match interval.state() {
            State::Uploading if is_published && !interval.released => {
                self.arrived(seq);
                self.interval_mut(seq).become_state(State::Ready);
            }
            State::Uploading => self.ready(seq),
            // Its user is done with it already.
            _ => self.arrived(seq),
        }
    }

    fn end_transit(&mut self, seq: u64) {
        let interval = self.interval_mut(seq);
        interval.is_past_transit = true;
        let (span, stage) = (interval.span.take(), interval.stage.take());
        span.into_iter().for_each(|span| self.window.free(span));
        stage.into_iter().for_each(|stage| self.staging.ring.free(stage));
    }
}
