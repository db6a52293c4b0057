//! From VRAM: leases that were given back behind a fence, and changed bytes on their way to where they live.

use super::Core;
use crate::canary::{Canary, planted};
use crate::core::copies::Job;
use crate::core::interval::State;
use crate::core::runs::RunId;
use crate::core::transfer::Owner;
use crate::device::{DeviceOp, Fence};
use crate::io::{FrameMut, FrameRef, Io};
use crate::plan::Home;

impl<I: Io> Core<I> {
    /// The user is done with an access on a device once his stream has passed the fence.
    pub(crate) fn release_behind(&mut self, seq: u64, changed: bool, fence: Fence) {
        self.reached_by_release(seq);
        let interval = self.interval_mut(seq);
        assert!(!interval.released, "interval {seq} released twice");
        (interval.released, interval.changed) = (true, changed);
        let device = interval.device.expect("only leases on devices are given back behind a fence");
        let (id, is_placed, is_there) = (interval.run, interval.is_placed(), interval.outstanding == 0);
        if planted(Canary::FenceIgnored) && is_there {
            return self.over(seq);
        }
        interval.become_state(State::Passing);
        interval.outstanding += 1;
        if changed && is_placed {
            // For those who use them where they are, behind this fence.
            let home = self.runs.home_mut(id);
            (home.loaded, home.dirty) = (true, true);
        }
        self.copy(device, Job::Pass(seq), DeviceOp::Fence { fence });
    }

    /// Whether an interval uses bytes at their home in VRAM: then those before it that were given back there are not in
    /// its way, since its user's stream waits for their fences. Who copies them waits himself.
    pub(crate) fn is_ordered(&self, seq: u64) -> bool {
        let interval = self.interval(seq);
        let is_copy = matches!(interval.home, Home::Device { .. }) && planted(Canary::CopyBeforeFence);
        (interval.device.is_some() && interval.is_placed()) || is_copy
    }

    /// Whether there are such.
    pub(crate) fn is_behind_fences(&self, seq: u64) -> bool {
        let interval = self.interval(seq);
        let alone = || self.runs.get(interval.run).may_start(seq, interval.mode.writes(), |_| false);
        interval.device.is_some() && interval.is_placed() && !alone()
    }

    /// The stream has passed.
    pub(crate) fn passed(&mut self, seq: u64) {
        self.interval_mut(seq).outstanding -= 1;
        self.over(seq);
    }

    /// Copies changed bytes to their home in another memory.
    pub(crate) fn return_home(&mut self, seq: u64) {
        let interval = self.interval_mut(seq);
        interval.become_state(State::Writing);
        interval.outstanding = 1;
        let (bytes, offset) = (interval.bytes as u32, interval.offset);
        let (device, op) = match (interval.device, interval.home) {
            (Some(device), Home::Host { offset: home }) => {
                (device, DeviceOp::Download { from: offset, into: FrameMut::new(home, bytes) })
            }
            (None, Home::Device { device, offset: home }) => {
                let device = self.device(device).expect("a run's home is on one of our devices");
                (device, DeviceOp::Upload { from: FrameRef::new(offset, bytes), to: home })
            }
            other => unreachable!("interval {seq} has no home in another memory: {other:?}"),
        };
        self.copy(device, Job::Return(seq), op);
    }

    /// Changed bytes are at home.
    pub(crate) fn returned(&mut self, seq: u64) {
        let interval = self.interval_mut(seq);
        interval.outstanding = 0;
        let home = interval.run;
        let home = self.runs.home_mut(home);
        (home.loaded, home.dirty) = (true, true);
        self.free(seq);
    }

    /// Changed bytes of a run that lives on disk wait for room in the staging ring.
    pub(crate) fn drain_later(&mut self, seq: u64) {
        self.interval_mut(seq).become_state(State::Draining);
        self.staging.wait(seq);
    }

    /// It has room: they come down.
    pub(crate) fn drain(&mut self, seq: u64) {
        let interval = self.interval_mut(seq);
        interval.outstanding = 1;
        let into = FrameMut::new(interval.stage.expect("it was just given").offset, interval.bytes as u32);
        let (from, device) = (interval.offset, interval.device.expect("an interval on a device"));
        self.copy(device, Job::Drain(seq), DeviceOp::Download { from, into });
        if planted(Canary::DrainEarly) {
            self.free_vram(seq);
        }
    }

    /// They are in the staging ring; VRAM does not wait for the disk.
    pub(crate) fn drained(&mut self, seq: u64) {
        self.free_vram(seq);
        let interval = self.interval_mut(seq);
        interval.become_state(State::Writing);
        let (id, stage) = (interval.run, interval.stage.expect("they came down there"));
        let started = self.store(Owner::Interval(seq), self.runs.get(id).run, stage.offset);
        self.interval_mut(seq).outstanding = started;
        if planted(Canary::StagingEarly) {
            self.interval_mut(seq).stage = None;
            self.staging.ring.free(stage);
        }
    }

    /// Gives the span in VRAM back.
    pub(crate) fn free_vram(&mut self, seq: u64) {
        let interval = self.interval_mut(seq);
        if let (Some(device), Some(span)) = (interval.device, interval.vram.take()) {
            self.devices[device].ring.free(span);
        }
    }

    /// An access in RAM of a run that lives in VRAM: brings its bytes down.
    pub(crate) fn copy_down(&mut self, seq: u64) {
        let interval = self.interval_mut(seq);
        let Home::Device { device, offset: from } = interval.home else { unreachable!("its home is in VRAM") };
        interval.become_state(State::Fetching);
        interval.outstanding = 1;
        let into = FrameMut::new(interval.offset, interval.bytes as u32);
        let device = self.device(device).expect("a run's home is on one of our devices");
        self.copy(device, Job::Fetch(seq), DeviceOp::Download { from, into });
    }

    /// They are down.
    pub(crate) fn copied_down(&mut self, seq: u64) {
        self.interval_mut(seq).outstanding = 0;
        self.ready(seq);
    }

    /// Starts flushing a run whose home is in VRAM, if there is room in the staging ring.
    pub(crate) fn flush_vram(&mut self, id: RunId) -> bool {
        let run = self.runs.get(id).run;
        let bytes = self.layout.run_bytes(run);
        let Some(span) = self.staging.take_for_flush(id, bytes) else { return false };
        let home = self.runs.home_mut(id);
        home.dirty = false;
        home.flushing = 1;
        let crate::id::Tier::Device(device) = home.tier else { unreachable!("its home is in VRAM") };
        let (from, into) = (home.offset, FrameMut::new(span.offset, bytes as u32));
        let device = self.device(device).expect("a run's home is on one of our devices");
        self.copy(device, Job::Flush(id), DeviceOp::Download { from, into });
        true
    }

    /// A run that is being flushed is in the staging ring.
    pub(crate) fn flush_staged(&mut self, id: RunId) {
        let span = self.staging.flush_span(id).expect("it came down there");
        let run = self.runs.get(id).run;
        self.stats.commit_download_bytes += self.layout.run_bytes(run);
        let started = self.store(Owner::Flush(id), run, span.offset);
        self.runs.home_mut(id).flushing = started;
    }
}
