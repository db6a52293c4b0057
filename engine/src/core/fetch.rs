//! Disk to RAM: an interval's pages are read, checked against their checksums, and published.

use super::{Core, Event};
use crate::core::interval::State;
use crate::core::pages::Content;
use crate::core::transfer::{Purpose, pieces};
use crate::error::Error;
use crate::id::CommitId;
use crate::io::{FrameMut, Io, OpId};

impl<I: Io> Core<I> {
    /// Starts what an interval needs before it is ready; nothing, if it needs nothing.
    pub(crate) fn fetch(&mut self, seq: u64) {
        let interval = self.interval_mut(seq);
        let (id, mode, offset) = (interval.run, interval.mode, interval.offset);
        let state = self.runs.get(id);
        let run = state.run;
        let loaded = state.home.is_some_and(|home| home.loaded);
        if !mode.reads() || loaded {
            return self.ready(seq);
        }
        self.interval_mut(seq).become_state(State::Fetching);
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
            let region = &self.regions[run.region.0 as usize].name;
            let what = format!("page {page} of scratch region {region} was not written since the store was opened");
            return self.fetch_failed_now(seq, Error::Misuse { what });
        }
        let mut found = Vec::new();
        let (layout, pages) = (&self.layout, &self.pages);
        let side = |page| match pages.content(layout, run.region, page) {
            Content::Disk { side, .. } => Some(side),
            _ => None,
        };
        pieces(layout, run, offset, self.transfer_bytes, side, |piece| found.push(piece));
        self.interval_mut(seq).outstanding = found.len() as u32;
        if found.is_empty() {
            return self.ready(seq);
        }
        for piece in found {
            self.enqueue(Purpose::Fetch { seq }, piece);
        }
    }

    /// A piece's checksums are computed: compares them.
    pub(crate) fn verified(&mut self, id: OpId, seq: u64) {
        let transfer = self.transfers.remove(id);
        let run = transfer.piece.run;
        for (page, &found) in (run.first..run.end()).zip(&transfer.digests) {
            let Content::Disk { checksum: expected, .. } = self.pages.content(&self.layout, run.region, page) else {
                unreachable!("a page that was fetched from disk is not there");
            };
            if expected != found {
                let region = self.regions[run.region.0 as usize].name.clone();
                let commit = CommitId(self.commit.last());
                return self.fetch_failed(seq, Error::Corrupt { region, page, expected, found, commit });
            }
        }
        self.fetch_piece_done(seq);
    }

    /// A piece failed; the interval fails once its other pieces are done.
    pub(crate) fn fetch_failed(&mut self, seq: u64, error: Error) {
        let interval = self.interval_mut(seq);
        interval.error.get_or_insert(error);
        self.fetch_piece_done(seq);
    }

    fn fetch_failed_now(&mut self, seq: u64, error: Error) {
        self.interval_mut(seq).error = Some(error);
        self.ready(seq);
    }

    fn fetch_piece_done(&mut self, seq: u64) {
        let interval = self.interval_mut(seq);
        interval.outstanding -= 1;
        if interval.outstanding == 0 {
            self.ready(seq);
        }
    }

    /// Publishes an interval, or its failure, or frees it if nobody waits for it.
    fn ready(&mut self, seq: u64) {
        let interval = self.interval_mut(seq);
        let (id, offset, bytes, released) = (interval.run, interval.offset, interval.bytes, interval.released);
        let error = interval.error.take();
        if error.is_none()
            && let Some(home) = self.runs.get_mut(id).home.as_mut()
        {
            home.loaded = true;
        }
        if released {
            return self.free(seq);
        }
        match error {
            Some(error) => {
                self.interval_mut(seq).become_state(State::Failed);
                self.events.push_back(Event::Failed { seq, error });
            }
            None => {
                self.interval_mut(seq).become_state(State::Ready);
                self.events.push_back(Event::Ready { seq, offset, bytes });
            }
        }
    }
}
