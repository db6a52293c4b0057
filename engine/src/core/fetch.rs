//! Disk to RAM: pages of an interval or a ticket are read and checked against their checksums. Intervals are published
//! here, tickets in `tickets`; what is on its way to VRAM goes on in `upload`.

use super::{Core, Event};
use crate::canary::{Canary, planted};
use crate::core::interval::State;
use crate::core::pages::Content;
use crate::core::transfer::{Owner, Purpose, pieces};
use crate::device::After;
use crate::error::Error;
use crate::id::{CommitId, Run};
use crate::io::{FrameMut, Io, OpId};

impl<I: Io> Core<I> {
    /// Starts what an interval needs before it is ready; nothing, if it needs nothing.
    pub(crate) fn fetch(&mut self, seq: u64) {
        let interval = self.interval(seq);
        if interval.device.is_some() {
            return self.fetch_on_device(seq);
        }
        let (id, offset, placed) = (interval.run, interval.offset, interval.is_placed());
        let state = self.runs.get(id);
        let run = state.run;
        let loaded = state.home.is_some_and(|home| home.loaded);
        if !interval.reads() || (loaded && placed) {
            return self.ready(seq);
        }
        if loaded {
            return self.copy_down(seq);
        }
        self.interval_mut(seq).become_state(State::Fetching);
        if placed {
            self.runs.home_mut(id).loading = true;
        }
        match self.load(run, offset, Owner::Interval(seq)) {
            Ok(0) => self.ready(seq),
            Ok(outstanding) => self.interval_mut(seq).outstanding = outstanding,
            Err(error) => self.fetch_failed_now(seq, error),
        }
    }

    /// Starts reading a run into the arena; returns the number of operations, which may be none.
    pub(crate) fn load(&mut self, run: Run, offset: u64, owner: Owner) -> Result<u32, Error> {
        let page_bytes = self.layout.page_bytes(run.region);
        let mut undefined = None;
        for page in run.first..run.end() {
            match self.pages.content(&self.layout, run.region, page) {
                Content::Disk { .. } => {}
                Content::Zeros => {
                    let at = offset + u64::from(page - run.first) * u64::from(page_bytes);
                    self.arena.zero(&mut FrameMut::new(at, page_bytes));
                }
                Content::Undefined => undefined = undefined.or(Some(page)),
            }
        }
        if let Some(page) = undefined {
            return Err(self.undefined(run, page));
        }
        let (layout, pages, transfers) = (&self.layout, &self.pages, &mut self.transfers);
        let side = |page| match pages.content(layout, run.region, page) {
            Content::Disk { side, .. } => Some(side),
            _ => None,
        };
        let mut started = 0;
        pieces(layout, run, offset, self.transfer_bytes, side, |piece| {
            transfers.start(Purpose::Fetch { owner }, piece, page_bytes);
            started += 1;
        });
        Ok(started)
    }

    /// The refusal of a scratch page that holds nothing.
    pub(crate) fn undefined(&self, run: Run, page: u32) -> Error {
        let region = &self.regions[run.region.0 as usize].name;
        Error::Misuse {
            what: format!("page {page} of scratch region {region} was not written since the store was opened"),
        }
    }

    /// A piece's checksums are computed: compares them.
    pub(crate) fn verified(&mut self, id: OpId, owner: Owner) {
        let transfer = self.transfers.remove(id);
        let run = transfer.piece.run;
        assert_eq!(transfer.digests.len(), run.count as usize, "one checksum a page");
        let wrong = (run.first..run.end()).zip(&transfer.digests).find_map(|(page, &found)| {
            let Content::Disk { checksum: expected, .. } = self.pages.content(&self.layout, run.region, page) else {
                unreachable!("a page that was fetched from disk is not there");
            };
            (expected != found && !planted(Canary::NoVerify)).then_some((page, expected, found))
        });
        self.transfers.recycle(transfer.digests);
        match wrong {
            None => self.fetch_piece_done(owner, None),
            Some((page, expected, found)) => {
                let region = self.regions[run.region.0 as usize].name.clone();
                let commit = CommitId(self.commit.last());
                self.fetch_failed(owner, Error::Corrupt { region, page, expected, found, commit });
            }
        }
    }

    /// A piece failed; its owner fails once its other pieces are done.
    pub(crate) fn fetch_failed(&mut self, owner: Owner, error: Error) {
        self.fetch_piece_done(owner, Some(error));
    }

    pub(crate) fn fetch_failed_now(&mut self, seq: u64, error: Error) {
        let interval = self.interval_mut(seq);
        interval.error = Some(error);
        if interval.state() == State::Fetching && interval.device.is_some() {
            return self.landed(seq);
        }
        self.ready(seq);
    }

    fn fetch_piece_done(&mut self, owner: Owner, error: Option<Error>) {
        let seq = match owner {
            Owner::Interval(seq) => seq,
            Owner::Ticket(id) => return self.ticket_piece_done(id, error),
            Owner::Flush(_) => unreachable!("a flush reads nothing"),
        };
        let interval = self.interval_mut(seq);
        interval.error = interval.error.take().or(error);
        interval.outstanding -= 1;
        if interval.outstanding == 0 {
            if interval.device.is_some() { self.landed(seq) } else { self.ready(seq) }
        }
    }

    /// Publishes an interval, or its failure, or frees it if nobody waits for it.
    pub(crate) fn ready(&mut self, seq: u64) {
        self.arrived(seq);
        let interval = self.interval(seq);
        // A copy: what is relayed from it fails with the same.
        let error = interval.error.clone();
        if interval.released {
            return self.free(seq);
        }
        match error {
            Some(error) => {
                self.interval_mut(seq).become_state(State::Failed);
                self.events.push_back(Event::Failed { seq, error });
            }
            None => {
                self.interval_mut(seq).become_state(State::Ready);
                self.publish(seq, 0);
            }
        }
    }

    /// What waits for the bytes of an interval in its run's home may have them, or try itself.
    pub(crate) fn arrived(&mut self, seq: u64) {
        let interval = self.interval(seq);
        let (id, mode, is_there) = (interval.run, interval.mode, interval.error.is_none());
        if interval.is_placed() {
            let home = self.runs.home_mut(id);
            // What is only to be written holds nothing yet: it counts as loaded when it comes back changed.
            home.loaded |= is_there && (mode.reads() || planted(Canary::LoadedUnread));
            home.loading = false;
        }
    }

    /// Hands an interval out; `upload`: what brings its bytes, if that is not over.
    pub(crate) fn publish(&mut self, seq: u64, upload: u64) {
        let interval = self.interval(seq);
        let (offset, bytes) = (interval.offset, interval.bytes);
        let fences = self.is_behind_fences(seq) && !planted(Canary::FencesNotAwaited);
        let upload = if planted(Canary::UploadNotAwaited) { 0 } else { upload };
        self.events.push_back(Event::Ready { seq, offset, bytes, after: After { upload, fences } });
    }
}
