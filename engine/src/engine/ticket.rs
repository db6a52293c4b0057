//! Unplanned use: pages that any thread may ask for at any time, beside sweeps.

use super::Engine;
use crate::config::Kind;
use crate::error::Error;
use crate::id::{Mode, Run};
use crate::lease::{HostLease, HostLeaseMut, Lender, Loan};

impl Engine {
    /// Says that these runs will be fetched soon. A hint: a run that cannot be fetched at once, for lack of room or
    /// since somebody uses its pages, is passed over.
    ///
    /// # Errors
    /// `Misuse` for a run that the store does not have; `Poisoned`, `Closed`.
    pub fn prefetch(&self, runs: &[Run]) -> Result<(), Error> {
        runs.iter().try_for_each(|run| self.exists(*run))?;
        self.handle.prefetch(runs.to_vec())
    }

    /// Asks for a run beside the plan, from any thread; returns at once. Readers of the same pages share them, writers
    /// have them alone. What is changed is written when the lease is given back, and belongs to the next commit.
    ///
    /// A run that lies inside a placed one is used where that is; any other needs room of `Config::unplanned_bytes`.
    ///
    /// Tickets that wait stand in nobody's way, and no ticket waits for what a sweep has only fetched ahead. But from
    /// the moment it is ready until it, or its lease, is dropped, a ticket keeps others off its pages: who holds one
    /// lease while he waits for another can wait for ever for somebody who does the same the other way round.
    ///
    /// # Errors
    /// `Misuse` for a run that the store does not have; `NoSpace` if a scratch run to be written has no space on disk
    /// and can get none; `Poisoned`, `Closed`. What else is refused is told by [`Ticket::wait`].
    pub fn fetch(&self, run: Run, mode: Mode) -> Result<Ticket<'_>, Error> {
        self.exists(run)?;
        if mode.writes() && self.layout.kind(run.region) == Kind::Scratch {
            self.reserve_scratch(run)?;
        }
        let number = self.handle.ticket_fetch(run, mode)?;
        Ok(Ticket { engine: self, mode, number: Some(number) })
    }

    fn exists(&self, run: Run) -> Result<(), Error> {
        if self.layout.contains(run) {
            return Ok(());
        }
        Err(Error::Misuse { what: format!("{run}: the store has no such run") })
    }

    /// Space on disk for pages that a ticket may write; placed ones need none.
    fn reserve_scratch(&self, run: Run) -> Result<(), Error> {
        if self.files.is_empty() || self.placed.get().is_some_and(|runs| runs.iter().any(|r| r.contains(&run))) {
            return Ok(());
        }
        let mut reserved = self.reserved.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        reserved.resize(self.layout.pages as usize, false);
        let first = self.layout.global_page(run.region, run.first) as usize;
        let pages = &mut reserved[first..first + run.count as usize];
        if pages.contains(&false) {
            self.reserve(run)?;
            pages.fill(true);
        }
        Ok(())
    }
}

/// A run that was asked for. Dropped without waiting, it is given back.
pub struct Ticket<'e> {
    engine: &'e Engine,
    mode: Mode,
    /// None once the lease was taken.
    number: Option<u64>,
}

impl<'e> Ticket<'e> {
    /// Whether a wait would return at once.
    pub fn is_ready(&self) -> bool {
        self.number.is_none_or(|number| self.engine.handle.ticket_is_ready(number))
    }

    /// Waits for the bytes of a reading ticket.
    ///
    /// # Errors
    /// `Misuse` for a writing ticket, for a run that overlaps a placed one without lying inside it, for scratch pages
    /// that were not written since the store was opened, and where there is no volume; `Config` for a run that is
    /// larger than `unplanned_bytes`; `Io` or `Corrupt` if the bytes cannot be had; `Poisoned`, `Closed`.
    pub fn wait(self) -> Result<HostLease<'e>, Error> {
        self.take(false).map(HostLease::new)
    }

    /// Waits for the bytes of a writing ticket. Those of [`Mode::Write`] are unspecified: all must be written.
    ///
    /// # Errors
    /// As [`wait`](Ticket::wait), and `Misuse` for a reading ticket or a region that is frozen.
    pub fn wait_mut(self) -> Result<HostLeaseMut<'e>, Error> {
        self.take(true).map(HostLeaseMut::new)
    }

    fn take(mut self, writes: bool) -> Result<Loan, Error> {
        if writes != self.mode.writes() {
            let what = format!("a ticket of mode {:?} was waited for as if it were another", self.mode);
            return Err(Error::Misuse { what });
        }
        let number = self.number.expect("a lease is taken once");
        let Engine { handle, arena, .. } = self.engine;
        let (offset, bytes) = handle.ticket_take(number)?;
        self.number = None;
        Ok(Loan::new(handle.clone(), arena.clone(), Lender::Ticket(number), offset, bytes, writes))
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.engine.handle.ticket_release(number, false);
        }
    }
}
