//! Operations of devices that exist: copies and fences, what each is for, which wait for their turn; and the devices.
//!
//! Invariant: in steady state nothing here allocates, as in `transfer`.

use super::ring::Ring;
use super::{Core, DevicePart};
use crate::canary::{Canary, planted};
use crate::core::runs::RunId;
use crate::device::{Device, DeviceCompletion, DeviceOp};
use crate::id::DeviceId;
use crate::io::{Io, OpId};
use std::collections::VecDeque;

/// What an operation of a device is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Job {
    /// Bytes of an interval go up to VRAM.
    Upload(u64),
    /// Bytes of an interval in RAM come down from their home in VRAM.
    Fetch(u64),
    /// The stream of an interval's user passes the point at which he gave it back.
    Pass(u64),
    /// Changed bytes of an interval go to their home, up or down.
    Return(u64),
    /// Changed bytes of an interval come down into the staging ring.
    Drain(u64),
    /// A run whose home is in VRAM comes down into the staging ring for a commit.
    Flush(RunId),
}

/// An operation known to the core.
struct Copy {
    job: Job,
    bytes: u64,
    /// None while the device has it.
    op: Option<DeviceOp>,
}

/// Slots for operations; ids are reused only after the completion was taken.
#[derive(Default)]
pub(crate) struct Copies {
    slots: Vec<Option<Copy>>,
    free: Vec<u32>,
}

impl Copies {
    fn insert(&mut self, copy: Copy) -> OpId {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() as u32 - 1
        });
        self.slots[slot as usize] = Some(copy);
        OpId(u64::from(slot))
    }

    fn get_mut(&mut self, id: OpId) -> &mut Copy {
        self.slots[id.0 as usize].as_mut().expect("a completion for an operation that is not in flight")
    }

    fn remove(&mut self, id: OpId) -> Copy {
        self.free.push(id.0 as u32);
        self.slots[id.0 as usize].take().expect("a completion for an operation that is not in flight")
    }

    /// Operations that exist.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// What every operation is for.
    pub(crate) fn jobs(&self) -> impl Iterator<Item = Job> {
        self.slots.iter().flatten().map(|copy| copy.job)
    }
}

/// A device as the core has it.
pub(crate) struct Vram {
    pub(crate) id: DeviceId,
    /// Bytes of the allocation.
    pub(crate) bytes: u64,
    device: Box<dyn Device>,
    /// Its window, behind the placed runs.
    pub(crate) ring: Ring,
    /// Streamed intervals below this number have their span of it.
    pub(crate) next: u64,
    /// To submit: uploads, downloads, fences. A full way up holds nobody up who goes down.
    queues: [VecDeque<OpId>; 3],
}

impl From<DevicePart> for Vram {
    fn from(part: DevicePart) -> Vram {
        let DevicePart { id, bytes, device } = part;
        Vram { id, bytes, device, ring: Ring::new(0, bytes), next: 0, queues: Default::default() }
    }
}

impl<I: Io> Core<I> {
    /// The place of a device among ours.
    pub(crate) fn device(&self, id: DeviceId) -> Option<usize> {
        self.devices.iter().position(|vram| vram.id == id)
    }

    /// Makes an operation and queues it.
    pub(crate) fn copy(&mut self, device: usize, job: Job, op: DeviceOp) {
        let (queue, bytes) = match &op {
            DeviceOp::Upload { from, .. } => (0, from.bytes),
            DeviceOp::Clear { .. } => (0, 0),
            DeviceOp::Download { into, .. } => (1, into.bytes),
            DeviceOp::Fence { .. } => (2, 0),
        };
        let id = self.copies.insert(Copy { job, bytes: u64::from(bytes), op: Some(op) });
        self.devices[device].queues[queue].push_back(id);
    }

    /// Gives the devices what waits for them, as far as they take it. Fences go out even when the engine is poisoned:
    /// they move nothing.
    pub(crate) fn submit_copies(&mut self) {
        for vram in &mut self.devices {
            for (number, queue) in vram.queues.iter_mut().enumerate() {
                while let Some(&id) = queue.front() {
                    if self.poison.is_some() && number < 2 {
                        queue.pop_front();
                        self.copies.remove(id);
                        continue;
                    }
                    let op = self.copies.get_mut(id).op.take().expect("an operation that waits is here");
                    if let Err(back) = vram.device.submit(id, op) {
                        self.copies.get_mut(id).op = Some(back);
                        break;
                    }
                    queue.pop_front();
                }
            }
        }
    }

    /// Takes in what devices have done.
    pub(crate) fn poll_devices(&mut self) {
        for device in 0..self.devices.len() {
            let mut completions = std::mem::take(&mut self.device_completions);
            if let Err(error) = self.devices[device].device.poll(&mut completions) {
                self.poisoned(error.to_string());
            }
            for completion in completions.drain(..) {
                self.copied(completion);
            }
            self.device_completions = completions;
        }
    }

    fn copied(&mut self, completion: DeviceCompletion) {
        let DeviceCompletion { id, op, result } = completion;
        let Copy { job, bytes, .. } = self.copies.remove(id);
        match &op {
            DeviceOp::Upload { .. } => self.stats.upload_bytes += bytes,
            DeviceOp::Download { .. } => self.stats.download_bytes += bytes,
            DeviceOp::Clear { .. } | DeviceOp::Fence { .. } => {}
        }
        if let Err(error) = result
            && !planted(Canary::FailedCopyIsDone)
        {
            // What is in VRAM is unknown from now on.
            self.poisoned(error.to_string());
        }
        if self.poison.is_some() {
            return;
        }
        match job {
            Job::Upload(seq) => self.uploaded(seq),
            Job::Fetch(seq) => self.copied_down(seq),
            Job::Pass(seq) => self.passed(seq),
            Job::Return(seq) => self.returned(seq),
            Job::Drain(seq) => self.drained(seq),
            Job::Flush(run) => self.flush_staged(run),
        }
    }
}
