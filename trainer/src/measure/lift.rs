//! From a drive through RAM to a GPU's memory and back, as one pipeline: the engine's transfers, each of which is taken
//! on over the link.

use super::gpu::Gpu;
use crate::error::Result;
use mt_engine::bench::{Cell, Ground, Moved, Setup, Visit};
use mt_kernels::cuda::Error;
use mt_kernels::cuda::link::{Lift, Registered};
use std::time::Duration;

/// Takes every transfer's bytes on to the GPU's memory, or from there.
struct Lifted {
    lift: Lift,
    failed: Option<Error>,
}

impl Visit for Lifted {
    fn before_write(&mut self, bytes: &mut [u8]) {
        let lifted = self.lift.down(bytes);
        self.failed = self.failed.take().or(lifted.err());
    }

    fn after_read(&mut self, bytes: &[u8]) {
        let lifted = self.lift.up(bytes);
        self.failed = self.failed.take().or(lifted.err());
    }
}

/// Moves transfers between the ground and the GPU until `is_over` says so, of the bytes submitted and the time, through
/// memory that both sides are registered with.
///
/// # Errors
/// `Engine`: as [`mt_engine::bench::Load::run`]; `Gpu`: a copy fails.
pub fn lift(
    gpu: &Gpu,
    ground: &Ground,
    setup: &Setup,
    cell: &Cell,
    is_over: impl FnMut(u64, Duration) -> bool,
) -> Result<Moved> {
    let mut load = ground.load(setup)?;
    let (address, len) = load.memory();
    let _registered = Registered::new(gpu.inner(), address, len)?;
    let mut lifted = Lifted { lift: Lift::new(gpu.inner(), cell.block_bytes as usize)?, failed: None };
    let moved = load.run_visited(cell, is_over, |_| (), &mut lifted)?;
    lifted.failed.map_or(Ok(moved), |error| Err(error.into()))
}
