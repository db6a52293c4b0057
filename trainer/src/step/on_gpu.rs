//! Instructions that a GPU computes: their leases in VRAM become the memory of an operation, and go back as soon as the
//! operation is on the queue. Nothing here waits for the GPU but taking a lease whose bytes are still on their way.
#![allow(unsafe_code)]

use super::executor::Task;
use crate::error::Result;
use crate::gpu::{Computation, Found, Memory};
use crate::schedule::{Description, Instruction};
use crate::target;
use mt_engine::device::{DeviceLease, Stream};
use mt_engine::{DeviceId, Mode, Sweep};
use mt_kernels::cuda::{Gpu, View, ViewMut};

/// A model's computation on a GPU.
pub(super) struct OnGpu {
    computation: Computation,
    device: DeviceId,
}

impl OnGpu {
    /// Allocates what the computation needs beside its leases.
    ///
    /// # Errors
    /// `Gpu`.
    pub(super) fn new(gpu: &Gpu, it: &Description<'_>, target: target::Gpu) -> Result<OnGpu> {
        Ok(OnGpu { computation: Computation::new(gpu, it, target.precision)?, device: target.device })
    }

    /// Begins a sweep.
    ///
    /// # Errors
    /// `Gpu`.
    pub(super) fn begin(&mut self, task: &Task<'_>) -> Result<()> {
        match (&task.logits, task.micro) {
            (_, []) => Ok(()),
            (Some(_), micro) => Ok(self.computation.begin_inference(&micro[0])?),
            (None, micro) => Ok(self.computation.begin(micro, task.targets)?),
        }
    }

    /// Puts an instruction on the queue.
    ///
    /// # Errors
    /// The engine's; `Gpu`.
    pub(super) fn execute(&mut self, sweep: &Sweep<'_>, instruction: &Instruction) -> Result<()> {
        let take = |&(run, mode): &(_, Mode)| match mode.writes() {
            true => sweep.device_mut(run, self.device),
            false => sweep.device(run, self.device),
        };
        let leases = instruction.accesses.iter().map(take).collect::<std::result::Result<Vec<_>, _>>()?;
        let modes = instruction.accesses.iter().map(|(_, mode)| *mode);
        self.computation
            .execute(instruction.operation, leases.iter().zip(modes).map(|(lease, mode)| memory(lease, mode)))?;
        let stream = Stream(self.computation.queue().stream().cu_stream() as u64);
        for lease in leases {
            lease.give_back(stream)?;
        }
        Ok(())
    }

    /// Waits for the sweep's work, and gives what it found: nothing without micro-batches.
    ///
    /// # Errors
    /// `Gpu`.
    pub(super) fn finish(&mut self, task: &mut Task<'_>) -> Result<Option<Found>> {
        match (&mut task.logits, task.micro) {
            (_, []) => Ok(None),
            (Some(logits), _) => {
                logits.copy_from_slice(&self.computation.finish_inference()?);
                Ok(None)
            }
            (None, _) => Ok(Some(self.computation.finish()?)),
        }
    }
}

fn memory<'a>(lease: &'a DeviceLease<'_>, mode: Mode) -> Memory<'a> {
    let (address, bytes) = (lease.address(), lease.bytes() as usize);
    match mode.writes() {
        // SAFETY: the engine published this lease: its bytes are in VRAM, 4,096-aligned, and nobody else uses them until
        // it is given back, which `OnGpu::execute` does behind everything that it puts on the queue.
        true => Memory::Write(unsafe { ViewMut::from_raw(address, bytes) }),
        // SAFETY: as above; the engine lets nobody change bytes of a reading lease.
        false => Memory::Read(unsafe { View::from_raw(address, bytes) }),
    }
}
