//! Leases in VRAM: the right to a run's bytes there, from the moment they are uploaded until the user's stream has
//! passed the point at which he gave them back.
//!
//! A lease is an address and no slice: the processor cannot reach the bytes. That kernels stay within them, and within
//! the time of the lease on the stream that is named at its end, is the caller's part.

use super::{Fence, Stream, Streams};
use crate::error::Error;
use crate::id::DeviceId;
use crate::reactor::Handle;
use std::marker::PhantomData;
use std::sync::Arc;

/// A run's bytes in VRAM, contiguous and 4,096-aligned. They are there: work on any stream may use them at once.
///
/// Given back with [`give_back`](DeviceLease::give_back). Dropped without, for instance on the way out of an error, it
/// waits for all work on the device first.
pub struct DeviceLease<'s> {
    handle: Arc<Handle>,
    streams: Arc<dyn Streams>,
    device: DeviceId,
    seq: u64,
    address: u64,
    bytes: u64,
    /// Whether the bytes count as changed when they come back.
    changed: bool,
    is_over: bool,
    sweep: PhantomData<&'s ()>,
}

impl DeviceLease<'_> {
    /// Of an access that was published, at this offset of the allocation.
    pub(crate) fn new(
        handle: Arc<Handle>,
        streams: Arc<dyn Streams>,
        device: DeviceId,
        seq: u64,
        (offset, bytes): (u64, u64),
        changed: bool,
    ) -> Self {
        let address = streams.base() + offset;
        DeviceLease { handle, streams, device, seq, address, bytes, changed, is_over: false, sweep: PhantomData }
    }

    /// The device.
    pub fn device(&self) -> DeviceId {
        self.device
    }

    /// Address of the first byte (`CUdeviceptr`).
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Number of bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Gives the bytes back as soon as `stream` has done everything that is on it now; returns at once. What uses the
    /// bytes must be on that stream, or before something on it. Bytes of a writing access count as changed.
    ///
    /// # Errors
    /// `Device` if the stream, or work on the device, has failed; the engine is poisoned then.
    pub fn give_back(mut self, stream: Stream) -> Result<(), Error> {
        self.is_over = true;
        let fence = self.streams.record(stream);
        self.end(fence.map(Some))
    }

    /// The same, with the bytes of a writing access unchanged. The caller must not have written to them: a run whose
    /// home is in VRAM would keep the change without it ever being committed.
    ///
    /// # Errors
    /// As [`give_back`](DeviceLease::give_back).
    pub fn discard(mut self, stream: Stream) -> Result<(), Error> {
        self.changed = false;
        self.give_back(stream)
    }

    fn end(&self, fence: Result<Option<Fence>, Error>) -> Result<(), Error> {
        match fence {
            Ok(fence) => {
                self.handle.release(self.seq, self.changed, fence);
                Ok(())
            }
            Err(error) => {
                self.handle.device_failed(&error);
                Err(error)
            }
        }
    }
}

impl Drop for DeviceLease<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            // The failure poisons the engine, so every later call tells of it.
            let _ = self.end(self.streams.synchronize().map(|()| None));
        }
    }
}
