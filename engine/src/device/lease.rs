//! Leases in VRAM: the right of a stream to a run's bytes there, from where it stands when it gets the lease until it
//! has passed the point at which the lease was given back.
//!
//! A lease is an address and no slice: the processor cannot reach the bytes, which may still be on their way. That
//! kernels stay within them, and on the stream, is the caller's part.

use super::{After, Fence, Stream, Streams};
use crate::error::Error;
use crate::id::DeviceId;
use crate::reactor::Handle;
use std::marker::PhantomData;
use std::sync::Arc;

/// A run's bytes in VRAM, contiguous and 4,096-aligned, for the work that is put on one stream while the lease lasts.
/// What they still wait for, that stream was made to wait for: work on another one must come behind something on it.
///
/// Given back with [`give_back`](DeviceLease::give_back); dropping does the same, and leaves a failure to the next call
/// that tells of it.
pub struct DeviceLease<'s> {
    handle: Arc<Handle>,
    streams: Arc<dyn Streams>,
    stream: Stream,
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
    /// Of an access that was published, at this offset of the allocation. What its bytes wait for, `stream` waits for.
    ///
    /// # Errors
    /// `Device`, as of `give_back`.
    pub(crate) fn new(
        handle: Arc<Handle>,
        streams: Arc<dyn Streams>,
        (device, stream): (DeviceId, Stream),
        seq: u64,
        (offset, bytes, after): (u64, u64, After),
        changed: bool,
    ) -> Result<Self, Error> {
        let address = streams.base() + offset;
        let waits = streams.wait(stream, after);
        let sweep = PhantomData;
        let lease =
            DeviceLease { handle, streams, stream, device, seq, address, bytes, changed, is_over: false, sweep };
        waits.inspect_err(|error| lease.handle.device_failed(error))?;
        Ok(lease)
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

    /// Gives the bytes back as soon as the lease's stream has done everything that is on it now; returns at once. Bytes
    /// of a writing access count as changed.
    ///
    /// # Errors
    /// `Device` if the stream, or work on the device, has failed; the engine is poisoned then.
    pub fn give_back(mut self) -> Result<(), Error> {
        self.end()
    }

    /// The same, with the bytes of a writing access unchanged. The caller must not have written to them: a run whose
    /// home is in VRAM would keep the change without it ever being committed.
    ///
    /// # Errors
    /// As [`give_back`](DeviceLease::give_back).
    pub fn discard(mut self) -> Result<(), Error> {
        self.changed = false;
        self.end()
    }

    fn end(&mut self) -> Result<(), Error> {
        self.is_over = true;
        let fence: Result<Fence, Error> = self.streams.record(self.stream);
        match fence {
            Ok(fence) => {
                self.handle.release(self.seq, self.changed, Some(fence));
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
            let _ = self.end();
        }
    }
}
