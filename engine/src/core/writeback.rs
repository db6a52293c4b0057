//! RAM to disk: released intervals with changed bytes, placed runs at a commit, and what `tickets` has to write.

use super::Core;
use crate::canary::{Canary, planted};
use crate::config::Kind;
use crate::core::interval::State;
use crate::core::runs::RunId;
use crate::core::transfer::{Owner, Purpose, pieces};
use crate::id::Run;
use crate::io::{Io, OpId};

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
        let (id, mode) = (interval.run, interval.mode);
        match interval.state() {
            State::Ready if changed => {
                assert!(mode.writes(), "interval {seq} was only read and comes back changed");
                self.tickets.frames.written(self.runs.get(id).run, None);
                match self.runs.get_mut(id).home.as_mut() {
                    Some(home) => {
                        (home.loaded, home.dirty) = (true, true);
                        self.free(seq);
                    }
                    None if planted(Canary::NoWriteBack) => self.free(seq),
                    None => self.write_back(seq),
                }
            }
            State::Fetching => {}
            _ => self.free(seq),
        }
    }

    fn reached_by_release(&mut self, seq: u64) {
        if self.sweeps.cursor() <= seq && self.sweeps.is_current(seq) {
            self.reached(seq);
        }
    }

    fn write_back(&mut self, seq: u64) {
        let held = self.commit.is_running() && self.interval_mut(seq).kind == Kind::Checkpointed;
        if self.poison.is_some() {
            return self.free(seq);
        }
        if held && !planted(Canary::NoHold) {
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
        interval.become_state(State::Writing);
        let (id, offset) = (interval.run, interval.offset);
        let started = self.store(Owner::Interval(seq), self.runs.get(id).run, offset);
        self.interval_mut(seq).outstanding = started;
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

    /// Starts writing a placed run that is dirty. Writers of it wait until the last operation is done.
    pub(crate) fn flush(&mut self, id: RunId) {
        let state = self.runs.get(id);
        let home = state.home.expect("only placed runs are flushed");
        let started = self.store(Owner::Flush(id), state.run, home.offset);
        let home = self.runs.get_mut(id).home.as_mut().expect("only placed runs are flushed");
        home.dirty = false;
        home.flushing = started;
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
                self.stats.commit_bytes += u64::from(transfer.piece.bytes);
            }
        }
    }
}
