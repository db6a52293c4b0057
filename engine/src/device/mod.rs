//! The device seam: a GPU's memory and its copies behind two narrow traits, implemented over CUDA and in RAM (for tests
//! and for machines without a GPU).
//!
//! What it is not: it computes nothing, allocates nothing after open, and decides nothing. The core says which bytes
//! move when; the user computes on his own streams and says, with a *fence*, up to where a stream must have come before
//! bytes are given back. A lease may be handed out before its bytes are there: then the user's stream waits for what is
//! missing, and not the user.
//!
//! Terms: the *allocation* is all VRAM that an engine has of a device, one block made at open; places in it are byte
//! offsets. A *copy* moves bytes between arena and allocation. A *fence* is a mark on a stream of the user: it has
//! *passed* when everything that was on the stream before it is done. Uploads and clears of a device are *numbered*,
//! from 1 on, in the order in which it takes them.
//!
//! As with `Io`, an operation owns its bytes of the arena: the frame token moves in at `submit` and comes back in the
//! completion, also on error. Backends do not retry or judge; the core poisons the engine at the first failure, since
//! after one nobody knows what is in VRAM.

mod backend;
mod cuda;
mod lease;
#[doc(hidden)]
pub mod memory;

pub(crate) use backend::{Opened, open};
pub use lease::DeviceLease;

use crate::error::Error;
use crate::io::{FrameMut, FrameRef, OpId};

/// A stream of the caller (`CUstream`) in the device's primary context, as the number that its handle is. 0 is the
/// legacy default stream.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Stream(pub u64);

/// A mark on a stream that was recorded. Moved into [`DeviceOp::Fence`]; not `Clone`, since it is used again once it
/// has passed.
#[derive(PartialEq, Eq, Debug)]
pub struct Fence {
    pub(crate) slot: u32,
    /// The newest upload that what is before it may have used: its stream has waited for it.
    pub(crate) after: u64,
}

/// What a stream must wait for before work on it uses a lease's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct After {
    /// The upload, by its number, that brings them; 0: they are there.
    pub(crate) upload: u64,
    /// The fences of those who have used them and given them back: any that were recorded until now.
    pub(crate) fences: bool,
}

/// An operation of a device. Offsets and lengths are multiples of 4,096.
#[derive(PartialEq, Eq, Debug)]
pub enum DeviceOp {
    /// Copy from the arena to the allocation.
    Upload {
        /// The bytes.
        from: FrameRef,
        /// Byte offset in the allocation.
        to: u64,
    },
    /// Copy from the allocation to the arena.
    Download {
        /// Byte offset in the allocation.
        from: u64,
        /// The bytes to fill.
        into: FrameMut,
    },
    /// Fill with zeros, in the order of uploads.
    Clear {
        /// Byte offset in the allocation.
        at: u64,
        /// How many.
        bytes: u32,
    },
    /// Complete once the fence has passed.
    Fence {
        /// The fence.
        fence: Fence,
    },
}

/// The end of an operation.
#[derive(Debug)]
pub struct DeviceCompletion {
    /// As given at submission.
    pub id: OpId,
    /// The operation with its tokens.
    pub op: DeviceOp,
    /// A copy has moved all its bytes, or the device failed.
    pub result: Result<(), Error>,
}

/// A device's copies, used by one thread, the reactor.
pub trait Device {
    /// Takes an operation and starts it, without waiting for anything. Operations may overtake each other. A full queue
    /// is a normal answer: it gives the operation back. From here on a stream may wait for an upload.
    ///
    /// # Errors
    /// The operation itself, unchanged, when the queue is full.
    fn submit(&mut self, id: OpId, op: DeviceOp) -> Result<(), DeviceOp>;

    /// Appends what has completed to `out`, without sleeping. A device calls the reactor's waker when there is
    /// something new.
    ///
    /// # Errors
    /// Only when the device itself is broken; failures of operations are in their completions.
    fn poll(&mut self, out: &mut Vec<DeviceCompletion>) -> Result<(), Error>;
}

/// A device's streams, used by every thread that gives leases back.
pub trait Streams: Send + Sync {
    /// Address of the allocation's first byte, as kernels use it.
    fn base(&self) -> u64;

    /// Makes a stream wait, behind everything that is on it now, for what a lease's bytes still need. The caller does
    /// not wait.
    ///
    /// # Errors
    /// `Device`: the driver refuses, or work on the device has failed.
    fn wait(&self, stream: Stream, after: After) -> Result<(), Error>;

    /// Records a fence on a stream, behind everything that is on it now. Waits where too many have not passed.
    ///
    /// # Errors
    /// `Device`: the driver refuses, or work on the device has failed; `Closed`.
    fn record(&self, stream: Stream) -> Result<Fence, Error>;
}
