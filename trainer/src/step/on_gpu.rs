//! Instructions that a GPU computes: their leases in VRAM become the memory of an operation, and go back as soon as the
//! operation is on the queue. Nothing here waits for the GPU but taking a lease whose bytes are still on their way.
#![allow(unsafe_code)]

use super::executor::Task;
use crate::error::Result;
use crate::gpu::{Computation, Found, Memory, Refused};
use crate::schedule::{Description, Instruction, Operation};
use crate::target;
use mt_engine::device::{DeviceLease, Stream};
use mt_engine::{DeviceId, Mode, Sweep};
use mt_kernels::cuda::{Gpu, View, ViewMut};

/// A model's computation on a GPU.
pub(super) struct OnGpu {
    computation: Computation,
    device: DeviceId,
    /// The sweep has a pending update, and some of it was executed here.
    has_update: bool,
    has_updated: bool,
}

impl OnGpu {
    /// Allocates what the computation needs beside its leases.
    ///
    /// # Errors
    /// `Gpu`.
    pub(super) fn new(gpu: &Gpu, it: &Description<'_>, target: target::Gpu) -> Result<OnGpu> {
        let computation = Computation::new(gpu, it, target.precision)?;
        Ok(OnGpu { computation, device: target.device, has_update: false, has_updated: false })
    }

    /// Begins a sweep.
    ///
    /// # Errors
    /// `Gpu`.
    pub(super) fn begin(&mut self, task: &Task<'_>) -> Result<()> {
        (self.has_update, self.has_updated) = (task.pending.is_some(), false);
        match (&task.logits, task.micro) {
            (Some(_), micro) => Ok(self.computation.begin_inference(&micro[0])?),
            (None, micro) => {
                Ok(self.computation.begin(micro, task.targets, task.pending.map(|update| update.scalars))?)
            }
        }
    }

    /// Puts an instruction on the queue.
    ///
    /// # Errors
    /// The engine's; `Gpu`.
    pub(super) fn execute(&mut self, sweep: &Sweep<'_>, instruction: &Instruction) -> Result<()> {
        if let Operation::Update { unit, chunk, into } = instruction.operation {
            if !self.has_update {
                return self.join(sweep, instruction, Operation::Join { unit, chunk, into });
            }
            self.has_updated = true;
        }
        let take = |&(run, mode): &(_, Mode)| match mode.writes() {
            true => sweep.device_mut(run, self.device),
            false => sweep.device(run, self.device),
        };
        let leases = instruction.accesses.iter().map(take).collect::<std::result::Result<Vec<_>, _>>()?;
        let modes = instruction.accesses.iter().map(|(_, mode)| *mode);
        self.computation
            .execute(instruction.operation, leases.iter().zip(modes).map(|(lease, mode)| memory(lease, mode)))?;
        let stream = self.stream();
        for lease in leases {
            lease.give_back(stream)?;
        }
        Ok(())
    }

    /// Takes the weights of an update's instruction as they are.
    fn join(&mut self, sweep: &Sweep<'_>, instruction: &Instruction, join: Operation) -> Result<()> {
        let [grad, hi, lo, m, v] = instruction.accesses[..] else { panic!("an update has a gradient and four planes") };
        sweep.pass(grad.0)?;
        let (hi, lo) = (sweep.device_mut(hi.0, self.device)?, sweep.device_mut(lo.0, self.device)?);
        sweep.pass(m.0)?;
        sweep.pass(v.0)?;
        self.computation.execute(join, [&hi, &lo].map(|lease| memory(lease, Mode::Read)))?;
        let stream = self.stream();
        hi.discard(stream)?;
        lo.discard(stream)?;
        Ok(())
    }

    fn stream(&self) -> Stream {
        Stream(self.computation.queue().stream().cu_stream() as u64)
    }

    /// What the sweep's updates here refuse, if that is anything; waits for them.
    ///
    /// # Errors
    /// `Gpu`.
    pub(super) fn refused(&mut self) -> Result<Option<Refused>> {
        if self.has_updated { Ok(self.computation.refused()?) } else { Ok(None) }
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
        // SAFETY: the engine published this lease: its bytes are in VRAM, 4,096-aligned, and nobody else uses them
        // until it is given back, which `OnGpu::execute` does behind everything that it puts on the queue.
        true => Memory::Write(unsafe { ViewMut::from_raw(address, bytes) }),
        // SAFETY: as above; the engine lets nobody change bytes of a reading lease.
        false => Memory::Read(unsafe { View::from_raw(address, bytes) }),
    }
}
