//! Operations of devices that exist: copies and fences, what each is for, which wait for their turn; and the devices.
//!
//! Invariants: in steady state nothing here allocates, as in `transfer`; a fence counts as passed only when every
//! upload that its stream waited for is known to have ended well, since what is before it may have used those bytes.

use super::ring::Ring;
use super::transfer::{InFlight, Move, Owner};
use super::{Core, DevicePart};
use crate::canary::{Canary, planted};
use crate::core::runs::RunId;
use crate::device::{Device, DeviceCompletion, DeviceOp};
use crate::events::Doing;
use crate::id::{DeviceId, Run};
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

impl Job {
    /// Whose bytes it moves.
    fn owner(self) -> Owner {
        match self {
            Job::Upload(seq) | Job::Fetch(seq) | Job::Pass(seq) | Job::Return(seq) | Job::Drain(seq) => {
                Owner::Interval(seq)
            }
            Job::Flush(run) => Owner::Flush(run),
        }
    }
}

/// An operation known to the core.
struct Copy {
    job: Job,
    bytes: u32,
    /// What a recording calls it; None for what moves nothing over the link.
    doing: Option<Doing>,
    run: Run,
    /// The schedule's label of the access that it is for.
    tag: Option<u64>,
    /// Its number among the device's uploads, once it has one.
    upload: u64,
    /// None while the device has it.
    op: Option<DeviceOp>,
}

impl Copy {
    /// What it moves over the link.
    fn in_flight(&self) -> InFlight {
        let bytes = u64::from(self.bytes);
        match self.doing {
            Some(Doing::Uploading(_)) => InFlight { upload_bytes: bytes, ..InFlight::default() },
            Some(Doing::Downloading(_)) => InFlight { download_bytes: bytes, ..InFlight::default() },
            _ => InFlight::default(),
        }
    }

    /// Its beginning (`moved` None) or end, for a recording.
    fn noted(&self, moved: Option<u32>) -> Option<Move> {
        let (owner, run) = (Some(self.job.owner()), Some(self.run));
        Some(Move { doing: self.doing?, owner, volume: 0, run, tag: self.tag, moved })
    }
}

/// Uploads of a device, clears included, by their numbers: which are over.
#[derive(Default)]
pub(crate) struct Uploads {
    /// All up to this one are.
    over: u64,
    /// Of those behind it that were submitted, whether each is.
    ahead: VecDeque<bool>,
    /// Intervals whose fences have passed, each with the upload that must be over first.
    late: Vec<(u64, u64)>,
}

impl Uploads {
    /// One more is submitted; its number.
    fn submitted(&mut self) -> u64 {
        self.ahead.push_back(false);
        self.over + self.ahead.len() as u64
    }

    fn ended(&mut self, upload: u64) {
        self.ahead[(upload - self.over - 1) as usize] = true;
        while self.ahead.front() == Some(&true) {
            self.ahead.pop_front();
            self.over += 1;
        }
    }

    /// The next interval that waits for nothing any more.
    fn next_late(&mut self) -> Option<u64> {
        let at = self.late.iter().position(|(_, upload)| *upload <= self.over)?;
        Some(self.late.remove(at).0)
    }
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
    uploads: Uploads,
}

impl Vram {
    /// Whether an interval's fence has passed and an upload before it is not known to be over.
    pub(crate) fn is_late(&self, seq: u64) -> bool {
        self.uploads.late.iter().any(|(late, _)| *late == seq)
    }
}

impl From<DevicePart> for Vram {
    fn from(part: DevicePart) -> Vram {
        let DevicePart { id, bytes, device } = part;
        Vram {
            id,
            bytes,
            device,
            ring: Ring::new(0, bytes),
            next: 0,
            queues: Default::default(),
            uploads: Uploads::default(),
        }
    }
}

impl<I: Io> Core<I> {
    /// The place of a device among ours.
    pub(crate) fn device(&self, id: DeviceId) -> Option<usize> {
        self.devices.iter().position(|vram| vram.id == id)
    }

    /// Makes an operation and queues it.
    pub(crate) fn copy(&mut self, device: usize, job: Job, op: DeviceOp) {
        let id = self.devices[device].id;
        let (queue, bytes, doing) = match &op {
            DeviceOp::Upload { from, .. } => (0, from.bytes, Some(Doing::Uploading(id))),
            DeviceOp::Clear { .. } => (0, 0, None),
            DeviceOp::Download { into, .. } => (1, into.bytes, Some(Doing::Downloading(id))),
            DeviceOp::Fence { .. } => (2, 0, None),
        };
        let (run, tag) = match job.owner() {
            Owner::Flush(run) => (run, None),
            Owner::Interval(seq) => (self.interval(seq).run, Some(self.interval(seq).tag)),
            Owner::Ticket(_) => unreachable!("tickets are not for devices"),
        };
        let run = self.runs.get(run).run;
        let id = self.copies.insert(Copy { job, bytes, doing, run, tag, upload: 0, op: Some(op) });
        self.devices[device].queues[queue].push_back(id);
    }

    /// Gives the devices what waits for them, as far as they take it. Fences go out even when the engine is poisoned:
    /// they move nothing.
    pub(crate) fn submit_copies(&mut self) {
        for device in 0..self.devices.len() {
            for number in 0..self.devices[device].queues.len() {
                while let Some(&id) = self.devices[device].queues[number].front() {
                    let vram = &mut self.devices[device];
                    if self.poison.is_some() && number < 2 {
                        vram.queues[number].pop_front();
                        self.copies.remove(id);
                        continue;
                    }
                    let copy = self.copies.get_mut(id);
                    let op = copy.op.take().expect("an operation that waits is here");
                    if let Err(back) = vram.device.submit(id, op) {
                        copy.op = Some(back);
                        break;
                    }
                    vram.queues[number].pop_front();
                    if number == 0 {
                        copy.upload = vram.uploads.submitted();
                    }
                    self.in_flight.add(copy.in_flight());
                    if let Some(moves) = &mut self.moves {
                        moves.extend(copy.noted(None));
                    }
                    if let (0, Job::Upload(seq), upload) = (number, copy.job, copy.upload) {
                        self.lend(seq, upload);
                    }
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
                self.copied(device, completion);
            }
            self.device_completions = completions;
        }
    }

    fn copied(&mut self, device: usize, completion: DeviceCompletion) {
        let DeviceCompletion { id, op, result } = completion;
        let copy = self.copies.remove(id);
        let (job, upload, moved) = (copy.job, copy.upload, copy.in_flight());
        self.in_flight.remove(moved);
        self.stats.upload_bytes += moved.upload_bytes;
        self.stats.download_bytes += moved.download_bytes;
        if let Some(moves) = &mut self.moves {
            moves.extend(copy.noted(Some(copy.bytes)));
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
            Job::Pass(seq) => {
                let DeviceOp::Fence { fence } = op else { unreachable!("a stream passes a fence") };
                let is_there = self.interval(seq).outstanding == 1;
                let upload = if planted(Canary::FenceBeforeUpload) && is_there { 0 } else { fence.after };
                self.devices[device].uploads.late.push((seq, upload));
            }
            Job::Return(seq) => self.returned(seq),
            Job::Drain(seq) => self.drained(seq),
            Job::Flush(run) => self.flush_staged(run),
        }
        if upload > 0 {
            self.devices[device].uploads.ended(upload);
        }
        while let Some(seq) = self.devices[device].uploads.next_late() {
            self.passed(seq);
        }
    }
}
