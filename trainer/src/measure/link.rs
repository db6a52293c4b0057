//! The link between RAM and a GPU's memory: copies from host memory of three kinds.

use super::gpu::Gpu;
use crate::error::Result;
use mt_engine::bench::Memory;
use mt_kernels::cuda::Buffer;
use mt_kernels::cuda::link::{Pinned, Registered, copy};

pub use mt_kernels::cuda::link::{Copies, Way};

/// Whose the host memory is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Host {
    /// The driver allocated it.
    Pinned,
    /// The engine's arena, which the driver was told of.
    Registered,
    /// The program's, which the driver copies to memory of its own first.
    Pageable,
}

/// Memory on both sides of the link.
pub struct Link {
    // Goes before the memory that it is about.
    _registered: Registered,
    arena: Memory,
    plain: Vec<u8>,
    pinned: Pinned,
    device: Buffer<u8>,
    gpu: mt_kernels::cuda::Gpu,
}

impl Link {
    /// With `bytes` of each kind.
    ///
    /// # Errors
    /// `Engine` or `Gpu`: there is too little memory, or it cannot be registered.
    pub fn new(gpu: &Gpu, bytes: u32) -> Result<Link> {
        let len = bytes as usize;
        let mut arena = Memory::new(bytes)?;
        // Touched, so that registering finds its pages.
        arena.bytes().fill(1);
        let _registered = Registered::new(gpu.inner(), arena.bytes().as_ptr().expose_provenance(), len)?;
        let (device, pinned) = (Buffer::new(gpu.inner(), len)?, Pinned::new(gpu.inner(), len)?);
        Ok(Link { _registered, arena, plain: vec![1; len], pinned, device, gpu: gpu.inner().clone() })
    }

    /// Makes the copies once; bytes a second, both ways added.
    ///
    /// # Errors
    /// `Gpu`: the driver refuses a copy or a stream.
    ///
    /// # Panics
    /// If the memory has no room for a piece each way, or there is no stream.
    pub fn bytes_per_s(&mut self, host: Host, copies: Copies) -> Result<f64> {
        let host = match host {
            Host::Pinned => self.pinned.bytes(),
            Host::Registered => self.arena.bytes(),
            Host::Pageable => &mut self.plain,
        };
        let ways = if copies.way == Way::Both { 2.0 } else { 1.0 };
        let bytes = copies.total.next_multiple_of(copies.piece) as f64 * ways;
        Ok(bytes / copy(&self.gpu, host, &mut self.device, copies)?.as_secs_f64())
    }
}
