//! Leases: the right to a run's bytes in the arena, from the moment the core published them until it is told of their
//! release.
#![allow(unsafe_code)]

use crate::arena::Arena;
use crate::reactor::Handle;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// Who published the bytes, and is told of their release.
#[derive(Clone, Copy)]
pub(crate) enum Lender {
    /// An access of a sweep, by its sequence number.
    Sweep(u64),
    /// A ticket, by its number.
    Ticket(u64),
}

/// The bytes of a published access or ticket. Gives them back when dropped.
pub(crate) struct Loan {
    handle: Arc<Handle>,
    arena: Arc<Arena>,
    lender: Lender,
    offset: u64,
    bytes: u64,
    changed: bool,
}

impl Loan {
    /// Only for what the core published and nobody took before. For an access the sweep's cursor sees to that, for a
    /// ticket that waiting consumes it.
    pub(crate) fn new(
        handle: Arc<Handle>,
        arena: Arc<Arena>,
        lender: Lender,
        offset: u64,
        bytes: u64,
        changed: bool,
    ) -> Loan {
        Loan { handle, arena, lender, offset, bytes, changed }
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        match self.lender {
            Lender::Sweep(seq) => self.handle.release(seq, self.changed, None),
            Lender::Ticket(ticket) => self.handle.ticket_release(ticket, self.changed),
        }
    }
}

/// Read right to a run: its bytes, contiguous and 4,096-aligned.
pub struct HostLease<'s> {
    loan: Loan,
    lender: std::marker::PhantomData<&'s ()>,
}

/// Write right to a run: its bytes, contiguous and 4,096-aligned. Dropping it gives them back as changed,
/// [`discard`](HostLeaseMut::discard) as unchanged.
pub struct HostLeaseMut<'s> {
    loan: Loan,
    lender: std::marker::PhantomData<&'s ()>,
}

impl HostLease<'_> {
    pub(crate) fn new(loan: Loan) -> Self {
        HostLease { loan, lender: std::marker::PhantomData }
    }
}

impl HostLeaseMut<'_> {
    pub(crate) fn new(loan: Loan) -> Self {
        HostLeaseMut { loan, lender: std::marker::PhantomData }
    }

    /// Gives the bytes back as unchanged. The caller must not have written to them: a placed run would keep the change
    /// without it ever being committed.
    pub fn discard(mut self) {
        self.loan.changed = false;
    }
}

impl Deref for HostLease<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the core published this access or ticket and keeps its bytes free of writers (fetches and writing
        // leases) until `Loan::drop` tells it of the release; the arena outlives the loan that holds it.
        unsafe { self.loan.arena.bytes_at(self.loan.offset, self.loan.bytes) }
    }
}

impl Deref for HostLeaseMut<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: as in `deref_mut`, through a shared borrow of the only lease.
        unsafe { self.loan.arena.bytes_at(self.loan.offset, self.loan.bytes) }
    }
}

impl DerefMut for HostLeaseMut<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: the core publishes a writing access or ticket only when no other access or ticket is active on its
        // pages and no operation reads or fills its bytes, and starts none until `Loan::drop`; this lease is the only
        // one and is borrowed mutably.
        unsafe { self.loan.arena.bytes_at_mut(self.loan.offset, self.loan.bytes) }
    }
}
