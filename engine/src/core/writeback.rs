//! RAM to disk, and where changed bytes go at all: released intervals, placed runs at a commit, and what `tickets` has
//! to write.

use super::Core;
use crate::canary::{Canary, planted};
use crate::config::Kind;
use crate::core::interval::State;
use crate::core::runs::RunId;
use crate::core::transfer::{Owner, Purpose, pieces};
use crate::id::{Run, Tier};
use crate::io::{Io, OpId};
use crate::plan::Home;

impl<I: Io> Core<I> {
    /// The user is done with an access.
    pub(crate) fn release(&mut self, seq: u64, changed: bool) {
        if seq >= self.sweeps.reserved() {
            self.skip(seq);
            return self.reached_by_release(seq);
        }
        self.reached_by_release(seq);
        let interval = self.interval_mut(seq);
        assert!(!interval.released, "interval {seq} released twice");
        interval.released = true;
        match interval.state() {
            State::Ready => {
                interval.changed = changed;
                self.over(seq);
            }
            // It ends by itself.
            State::Queued | State::Fetching | State::Uploading => {}
            // Passed over, but another needs the bytes.
            State::Reserved if interval.is_kept() => {}
            _ => self.free(seq),
        }
    }

    /// The user of an interval, and his stream if it is on a device, is done with it.
    pub(crate) fn over(&mut self, seq: u64) {
        let interval = self.interval(seq);
        let (id, mode) = (interval.run, interval.mode);
        if !interval.changed {
            if interval.is_kept() && !mode.reads() && !planted(Canary::UnwrittenSource) {
                // Nothing was written, and nothing read: the bytes for the other are still to come.
                self.interval_mut(seq).become_state(State::Reserved);
                return self.sweeps.wait_again(seq);
            }
            return self.free(seq);
        }
        assert!(mode.writes(), "interval {seq} was only read and comes back changed");
        let is_placed = interval.is_placed();
        self.tickets.frames.written(self.runs.get(id).run, None);
        if is_placed {
            let home = self.runs.home_mut(id);
            (home.loaded, home.dirty) = (true, true);
            self.free(seq);
        } else if planted(Canary::NoWriteBack) {
            self.free(seq);
        } else {
            self.write_back(seq);
        }
    }

    pub(crate) fn reached_by_release(&mut self, seq: u64) {
        if self.sweeps.cursor() <= seq && self.sweeps.is_current(seq) {
            self.reached(seq);
        }
    }

    fn write_back(&mut self, seq: u64) {
        let interval = self.interval(seq);
        let held = self.commit.is_running() && !interval.is_covered && interval.kind == Kind::Checkpointed;
        let returns = interval.home != Home::Disk;
        if self.poison.is_some() {
            return self.free(seq);
        }
        if held && !planted(if returns { Canary::ReturnNotHeld } else { Canary::NoHold }) {
            self.interval_mut(seq).become_state(State::Held);
            return;
        }
        self.write_back_now(seq);
    }

    /// Starts the write-backs that waited for a commit.
    pub(crate) fn write_back_held(&mut self) {
        for index in 0..self.live.len() {
            if self.live[index].state() == State::Held {
                self.write_back_now(self.live[index].seq);
            }
        }
        self.ticket_write_held();
    }

    fn write_back_now(&mut self, seq: u64) {
        let interval = self.interval_mut(seq);
        if interval.home != Home::Disk {
            return self.return_home(seq);
        }
        if interval.device.is_some() {
            return self.drain_later(seq);
        }
        interval.become_state(State::Writing);
        let (id, offset) = (interval.run, interval.offset);
        let started = self.store(Owner::Interval(seq), self.runs.get(id).run, offset);
        self.interval_mut(seq).outstanding = started;
        if planted(Canary::EarlySpan)
            && let Some(span) = self.interval_mut(seq).span.take()
        {
            self.window.free(span);
        }
    }

    /// Starts writing a run whose bytes are at `arena`; returns the number of operations.
    pub(crate) fn store(&mut self, owner: Owner, run: Run, arena: u64) -> u32 {
        let (layout, pages, transfers) = (&self.layout, &self.pages, &mut self.transfers);
        let page_bytes = layout.page_bytes(run.region);
        let side = |page| Some(pages.target(layout, run.region, page));
        let mut started = 0;
        pieces(layout, run, arena, self.transfer_bytes, side, |piece| {
            transfers.start(Purpose::Digest { owner }, piece, page_bytes);
            started += 1;
        });
        started
    }

    /// Starts writing a placed run that is dirty, if there is room for it on its way. Who changes it in place waits
    /// until the last operation is done.
    pub(crate) fn flush(&mut self, id: RunId) -> bool {
        let state = self.runs.get(id);
        let home = state.home.expect("only placed runs are flushed");
        if home.tier != Tier::Host {
            return self.flush_vram(id);
        }
        let started = self.store(Owner::Flush(id), state.run, home.offset);
        let home = self.runs.get_mut(id).home.as_mut().expect("only placed runs are flushed");
        home.dirty = false;
        home.flushing = started;
        true
    }

    /// A piece is on disk.
    pub(crate) fn stored(&mut self, id: OpId, owner: Owner) {
        let transfer = self.transfers.remove(id);
        let run = transfer.piece.run;
        assert_eq!(transfer.digests.len(), run.count as usize, "one checksum a page");
        for (page, &checksum) in (run.first..run.end()).zip(&transfer.digests) {
            self.pages.written(&self.layout, run.region, page, checksum);
        }
        self.transfers.recycle(transfer.digests);
        match owner {
            Owner::Interval(seq) => {
                let interval = self.interval_mut(seq);
                interval.outstanding -= 1;
                if interval.outstanding == 0 {
                    self.free(seq);
                }
            }
            Owner::Ticket(id) => self.ticket_stored(id),
            Owner::Flush(id) => {
                let home = self.runs.get_mut(id).home.as_mut().expect("only placed runs are flushed");
                home.flushing -= 1;
                if home.flushing == 0 {
                    self.staging.flushed(id);
                }
                self.stats.commit_bytes += u64::from(transfer.piece.bytes);
            }
        }
    }
}
