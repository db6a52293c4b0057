//! The I/O seam: one narrow trait, implemented by io_uring, by a thread pool and by memory (the simulator's disk).
//!
//! An operation owns its bytes: the frame token moves in at `submit` and comes back in the completion, also on error,
//! and no other token for those bytes exists in between. Backends never touch bytes without a token.
//!
//! Backends do not retry, resume or judge: the result is what the operating system said. The core compares it with what
//! was asked.

mod backend;
pub(crate) mod file;
pub(crate) mod hash;
#[doc(hidden)]
pub mod memory;
pub(crate) mod pool;
pub(crate) mod uring;
mod waker;
mod workers;

pub(crate) use backend::{Opened, open};
pub(crate) use waker::Waker;

use std::{io, time::Duration};

/// Identity of an operation, chosen by the submitter, unique among those in flight.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct OpId(pub u64);

/// Exclusive right to bytes of the arena: moved into an operation, handed back by its completion. Not `Clone`.
#[derive(PartialEq, Eq, Debug)]
pub struct FrameMut {
    pub(crate) offset: u64,
    pub(crate) bytes: u32,
}

impl FrameMut {
    /// The right to `bytes` bytes at `offset` of the arena. Only the core makes tokens; see [`FrameRef`] for the rule.
    pub(crate) fn new(offset: u64, bytes: u32) -> FrameMut {
        FrameMut { offset, bytes }
    }
}

/// Shared read right to bytes of the arena. The core creates none while a `FrameMut` for the bytes exists, and no
/// `FrameMut` while one of these does.
#[derive(PartialEq, Eq, Debug)]
pub struct FrameRef {
    pub(crate) offset: u64,
    pub(crate) bytes: u32,
}

impl FrameRef {
    /// The right to read `bytes` bytes at `offset` of the arena. Only the core makes tokens.
    pub(crate) fn new(offset: u64, bytes: u32) -> FrameRef {
        FrameRef { offset, bytes }
    }
}

/// An operation. Offsets and lengths are multiples of the volume's alignment.
#[derive(PartialEq, Eq, Debug)]
pub enum Op {
    /// Fill the frame from the volume.
    Read {
        /// Index of the volume.
        volume: u16,
        /// Byte offset in the volume's file.
        offset: u64,
        /// The bytes to fill.
        into: FrameMut,
    },
    /// Write the frame to the volume.
    Write {
        /// Index of the volume.
        volume: u16,
        /// Byte offset in the volume's file.
        offset: u64,
        /// The bytes to write.
        from: FrameRef,
    },
    /// Make every write completed before this submission durable.
    Sync {
        /// Index of the volume.
        volume: u16,
    },
    /// Compute the checksum of each `page_bytes` of the frame into `digests` (cleared first; capacity is reused).
    Hash {
        /// The bytes, a whole number of pages.
        from: FrameRef,
        /// Bytes of a page.
        page_bytes: u32,
        /// One checksum a page, in order.
        digests: Vec<u64>,
    },
}

/// The end of an operation.
#[derive(Debug)]
pub struct Completion {
    /// As given at submission.
    pub id: OpId,
    /// The operation with its tokens.
    pub op: Op,
    /// Bytes moved (0 for `Sync` and `Hash`), which may be fewer than asked, or the operating system's error.
    pub result: io::Result<u32>,
}

/// What a backend can take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IoLimits {
    /// Operations in flight.
    pub queue_depth: u32,
    /// Alignment of memory, offsets and lengths in bytes.
    pub alignment: u32,
}

/// A backend. Used by one thread, the reactor, which also creates it.
pub trait Io {
    /// Takes an operation. A full queue is a normal answer: it gives the operation back.
    ///
    /// # Errors
    /// The operation itself, unchanged, when the queue is full.
    fn submit(&mut self, id: OpId, op: Op) -> Result<(), Op>;

    /// Starts what was submitted and appends what has completed to `out`. With `wait`, sleeps until something
    /// completes, the waker is called, or the time is over; without, does not sleep. A backend that has much to do may
    /// hand out completions, and answer the waker, up to a millisecond later, many at a time.
    ///
    /// # Errors
    /// Only when the backend itself is broken; failures of operations are in their completions.
    fn poll(&mut self, out: &mut Vec<Completion>, wait: Option<Duration>) -> io::Result<()>;

    /// What the backend can take.
    fn limits(&self) -> IoLimits;
}

/// The alignment that suits every file.
fn alignment(files: &[file::VolumeFile]) -> u32 {
    files.iter().map(file::VolumeFile::alignment).max().unwrap_or(512)
}

impl<T: Io + ?Sized> Io for Box<T> {
    fn submit(&mut self, id: OpId, op: Op) -> Result<(), Op> {
        (**self).submit(id, op)
    }

    fn poll(&mut self, out: &mut Vec<Completion>, wait: Option<Duration>) -> io::Result<()> {
        (**self).poll(out, wait)
    }

    fn limits(&self) -> IoLimits {
        (**self).limits()
    }
}

#[cfg(test)]
mod tests;
