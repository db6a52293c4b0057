//! An instruction's leases, taken in the order of its accesses, and their bytes as numbers.

use crate::error::Result;
use mt_engine::{HostLease, HostLeaseMut, Mode, Run, Sweep};

/// The accesses of one instruction that are still to be taken.
pub(super) struct Leases<'s, 'i> {
    sweep: &'s Sweep<'s>,
    accesses: std::slice::Iter<'i, (Run, Mode)>,
}

impl<'s, 'i> Leases<'s, 'i> {
    pub(super) fn new(sweep: &'s Sweep<'s>, accesses: &'i [(Run, Mode)]) -> Leases<'s, 'i> {
        Leases { sweep, accesses: accesses.iter() }
    }

    fn next(&mut self) -> Run {
        self.accesses.next().expect("an operation takes what its instruction lists").0
    }

    /// The next access, which reads.
    pub(super) fn read(&mut self) -> Result<HostLease<'s>> {
        Ok(self.sweep.host(self.next())?)
    }

    /// The next access, which writes or updates.
    pub(super) fn write(&mut self) -> Result<HostLeaseMut<'s>> {
        Ok(self.sweep.host_mut(self.next())?)
    }

    /// The next access if there is one, which writes or updates.
    pub(super) fn write_rest(&mut self) -> Result<Option<HostLeaseMut<'s>>> {
        if self.accesses.len() == 0 { Ok(None) } else { self.write().map(Some) }
    }

    /// The next access if there is one, which reads.
    pub(super) fn read_rest(&mut self) -> Result<Option<HostLease<'s>>> {
        if self.accesses.len() == 0 { Ok(None) } else { self.read().map(Some) }
    }

    /// Passes over the next access.
    pub(super) fn pass(&mut self) -> Result<()> {
        Ok(self.sweep.pass(self.next())?)
    }
}

/// The first `n` elements of a lease.
pub(super) fn numbers<T: bytemuck::AnyBitPattern>(bytes: &[u8], n: usize) -> &[T] {
    &bytemuck::cast_slice(bytes)[..n]
}

/// The first `n` elements of a lease.
pub(super) fn numbers_mut<T: bytemuck::AnyBitPattern + bytemuck::NoUninit>(bytes: &mut [u8], n: usize) -> &mut [T] {
    &mut bytemuck::cast_slice_mut(bytes)[..n]
}
