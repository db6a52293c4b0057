//! Device memory of the accesses of an instruction.
//!
//! Whoever walks a program takes an instruction's leases, makes a [`Memory`] of each, in the order of its accesses, and
//! gives the leases back when the operation is on the queue. Here nobody knows whose memory it is.

use mt_kernels::cuda::{Element, View, ViewMut};

/// What an access leads to.
pub enum Memory<'a> {
    /// It reads.
    Read(View<'a, u8>),
    /// It writes or updates.
    Write(ViewMut<'a, u8>),
}

/// The accesses of one instruction that are still to be taken.
pub(super) struct Accesses<'i, 'a> {
    rest: &'i mut dyn Iterator<Item = Memory<'a>>,
}

impl<'i, 'a> Accesses<'i, 'a> {
    pub(super) fn new(all: &'i mut dyn Iterator<Item = Memory<'a>>) -> Accesses<'i, 'a> {
        Accesses { rest: all }
    }

    /// The next access if there is one, which reads.
    pub(super) fn read_rest(&mut self) -> Option<View<'a, u8>> {
        self.rest.next().map(|memory| match memory {
            Memory::Read(view) => view,
            Memory::Write(_) => panic!("an operation reads what its instruction reads"),
        })
    }

    /// The next access if there is one, which writes or updates.
    pub(super) fn write_rest(&mut self) -> Option<ViewMut<'a, u8>> {
        self.rest.next().map(|memory| match memory {
            Memory::Write(view) => view,
            Memory::Read(_) => panic!("an operation writes what its instruction writes"),
        })
    }

    /// The first `n` elements of the next access, which reads.
    pub(super) fn read<T: Element>(&mut self, n: usize) -> View<'a, T> {
        let memory = self.read_rest().expect("an operation takes what its instruction lists");
        memory.slice(0..n * size_of::<T>()).cast()
    }

    /// The first `n` elements of the next access, which writes or updates.
    pub(super) fn write<T: Element>(&mut self, n: usize) -> ViewMut<'a, T> {
        let memory = self.write_rest().expect("an operation takes what its instruction lists");
        memory.slice(0..n * size_of::<T>()).cast()
    }
}
