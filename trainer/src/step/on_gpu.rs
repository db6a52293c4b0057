//! Instructions that a GPU computes: their leases in VRAM become the memory of an operation, and go back as soon as the
//! operation is on the queue. Everything that touches them is on that queue, whose stream the engine makes wait for
//! what leases still need. Nothing here waits for the GPU but taking a lease for which there is no room in VRAM yet.
//!
//! The GPU stamps begin and end of each instruction of a step. What has ended is read whenever another instruction
//! comes, so that little is left to read at the end.
#![allow(unsafe_code)]

use super::executor::Task;
use super::laps::{GpuTimes, Laps};
use super::watch::{Begun, Watch};
use crate::error::Result;
use crate::gpu::{Computation, Found, Memory, Refused};
use crate::schedule::{Description, Instruction, Operation};
use crate::target;
use mt_engine::device::{DeviceLease, Stream};
use mt_engine::{DeviceId, Mode, Sweep};
use mt_kernels::cuda::{Clock, Gpu, View, ViewMut};
use std::time::Instant;

/// A model's computation on a GPU.
pub(super) struct OnGpu {
    computation: Computation,
    device: DeviceId,
    /// The sweep has an update, and some of it was executed here.
    has_update: bool,
    has_updated: bool,
    /// How long updates that were handed over since the last instruction here had waited for their pages.
    handed_over_ns: u64,
    clock: Clock,
    laps: Laps,
    /// The host's time of the clock's start; None: nothing is stamped.
    started: Option<Instant>,
}

/// An instruction's turn, as the thread that gives the GPU work has it.
#[derive(Clone, Copy)]
pub(super) struct Turn<'t> {
    pub(super) sweep: &'t Sweep<'t>,
    pub(super) watch: &'t Watch<'t>,
    pub(super) begun: &'t Begun,
    /// The instruction's number in the program.
    pub(super) index: usize,
    /// It needs what the processor is still to update: waiting for its bytes is waiting for the processor.
    pub(super) is_behind: bool,
}

impl OnGpu {
    /// Allocates what the computation needs beside its leases. `instructions`: the most of a step that are the GPU's.
    ///
    /// # Errors
    /// `Gpu`.
    pub(super) fn new(gpu: &Gpu, it: &Description<'_>, target: target::Gpu, instructions: usize) -> Result<OnGpu> {
        Ok(OnGpu {
            computation: Computation::new(gpu, it, target.precision)?,
            device: target.device,
            has_update: false,
            has_updated: false,
            handed_over_ns: 0,
            clock: Clock::new(gpu, instructions)?,
            laps: Laps::new(instructions),
            started: None,
        })
    }

    /// Begins a sweep.
    ///
    /// # Errors
    /// `Gpu`.
    pub(super) fn begin(&mut self, task: &Task<'_>) -> Result<()> {
        (self.has_update, self.has_updated, self.started) = (task.update().is_some(), false, None);
        self.handed_over_ns = 0;
        match (&task.logits, task.micro) {
            (Some(_), micro) => self.computation.begin_inference(&micro[0])?,
            (None, micro) => {
                self.computation.begin(micro, task.targets, task.update().map(|update| update.scalars))?;
                self.started = Some(self.clock.start(self.computation.queue())?);
                self.laps.start();
            }
        }
        Ok(())
    }

    /// The processor had an instruction, which is over.
    pub(super) fn beside(&mut self, begun: &Begun) {
        if let Some(started) = self.started {
            self.laps.beside((nanoseconds(started, begun.at()), nanoseconds(started, Instant::now())));
        }
    }

    /// An update was handed to the processor's other thread, once its pages had been waited for: with fused-backward
    /// for gradients to come down the link.
    pub(super) fn handed_over(&mut self, waited_ns: u64) {
        self.handed_over_ns += waited_ns;
    }

    /// Puts an instruction on the queue.
    ///
    /// # Errors
    /// The engine's; `Gpu`.
    pub(super) fn execute(&mut self, turn: Turn<'_>, instruction: &Instruction) -> Result<()> {
        self.read(turn.watch)?;
        let sweep = turn.sweep;
        if let Operation::Update { unit, chunk, into } = instruction.operation {
            if !self.has_update {
                return self.join(turn, instruction, Operation::Join { unit, chunk, into });
            }
            self.has_updated = true;
        }
        self.has_updated |= matches!(instruction.operation, Operation::Apply { .. });
        let stream = self.stream();
        let take = |&(run, mode): &(_, Mode)| match mode.writes() {
            true => sweep.device_mut(run, self.device, stream),
            false => sweep.device(run, self.device, stream),
        };
        let leases = instruction.accesses.iter().map(take).collect::<std::result::Result<Vec<_>, _>>()?;
        let modes = instruction.accesses.iter().map(|(_, mode)| *mode);
        self.put(turn, instruction.operation, leases.iter().zip(modes).map(|(lease, mode)| memory(lease, mode)))?;
        for lease in leases {
            lease.give_back()?;
        }
        Ok(())
    }

    /// Takes the weights of an update's instruction as they are.
    fn join(&mut self, turn: Turn<'_>, instruction: &Instruction, join: Operation) -> Result<()> {
        let sweep = turn.sweep;
        let [grad, hi, lo, m, v] = instruction.accesses[..] else { panic!("an update has a gradient and four planes") };
        sweep.pass(grad.0)?;
        let stream = self.stream();
        let take = |run| sweep.device_mut(run, self.device, stream);
        let (hi, lo) = (take(hi.0)?, take(lo.0)?);
        sweep.pass(m.0)?;
        sweep.pass(v.0)?;
        self.put(turn, join, [&hi, &lo].map(|lease| memory(lease, Mode::Read)))?;
        hi.discard()?;
        lo.discard()?;
        Ok(())
    }

    /// Puts an operation on the queue, between its two stamps: behind whatever taking the leases put there, so that
    /// waiting for their bytes is no part of it, and before they are given back.
    fn put<'a>(
        &mut self,
        turn: Turn<'_>,
        operation: Operation,
        accesses: impl IntoIterator<Item = Memory<'a>>,
    ) -> Result<()> {
        let Some(started) = self.started else { return Ok(self.computation.execute(operation, accesses)?) };
        let Turn { sweep, watch, begun, index, is_behind } = turn;
        self.clock.begin(self.computation.queue())?;
        let at_ns = nanoseconds(started, Instant::now());
        if is_behind {
            self.laps.beside((nanoseconds(started, begun.at()), at_ns));
        }
        let waited_ns = std::mem::take(&mut self.handed_over_ns) + if is_behind { 0 } else { begun.waited_ns(sweep) };
        self.laps.put(index, watch.phase(index), at_ns, waited_ns);
        self.computation.execute(operation, accesses)?;
        Ok(self.clock.end(self.computation.queue())?)
    }

    /// Takes in what has ended.
    fn read(&mut self, watch: &Watch<'_>) -> Result<()> {
        let Some(started) = self.started else { return Ok(()) };
        while let Some(span) = self.clock.read()? {
            let index = self.laps.ended(span);
            watch.computed(self.device, index, started, span);
        }
        Ok(())
    }

    /// Where the time of the sweep went, whose work was waited for; None if nothing was stamped.
    ///
    /// # Errors
    /// `Gpu`.
    pub(super) fn times(&mut self, watch: &Watch<'_>) -> Result<Option<GpuTimes>> {
        self.read(watch)?;
        Ok(self.started.map(|started| self.laps.finish(nanoseconds(started, Instant::now()))))
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

fn nanoseconds(since: Instant, at: Instant) -> u64 {
    at.saturating_duration_since(since).as_nanos() as u64
}

fn memory<'a>(lease: &'a DeviceLease<'_>, mode: Mode) -> Memory<'a> {
    let (address, bytes) = (lease.address(), lease.bytes() as usize);
    match mode.writes() {
        // SAFETY: the engine published this lease for the queue's stream: where that comes to what `OnGpu::execute`
        // puts on it, the bytes are in VRAM, 4,096-aligned, and nobody else uses them until it has passed the point at
        // which the lease is given back, which is behind all of that.
        true => Memory::Write(unsafe { ViewMut::from_raw(address, bytes) }),
        // SAFETY: as above; the engine lets nobody change bytes of a reading lease.
        false => Memory::Read(unsafe { View::from_raw(address, bytes) }),
    }
}
