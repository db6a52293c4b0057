//! A GPU through CUDA's driver, which is opened at run time: neither building nor starting needs it.
//!
//! One allocation, one stream for each direction of copies, and events, all made at open. A copy is put on its stream
//! by the reactor, which never waits; so the streams have their next copies while one runs. Three threads a device
//! sleep on events: of uploads, of downloads, and of fences. Fences are looked at in the order in which they were
//! submitted, so one of a stream that is behind holds up news of others; work on streams ends by itself, so that is a
//! matter of time alone.
//!
//! Invariants:
//! 1. The arena is pinned (registered with the driver) as long as a copy may run: each device holds the registration,
//!    and its threads have ended, so that all copies have, before it lets go.
//! 2. Handles belong to the primary context of the device, which is retained until all of them are destroyed.
//! 3. An event is in the hands of one operation, or free.
#![allow(unsafe_code)]

mod driver;

use super::{Device, DeviceCompletion, DeviceOp, Fence, Stream, Streams};
use crate::arena::Arena;
use crate::error::Error;
use crate::id::DeviceId;
use crate::io::{OpId, Waker};
use crossbeam::channel::{Receiver, Sender, bounded};
use cudarc::driver::sys;
use driver::{Context, Event, check};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

pub(super) use driver::Pinned;

/// Copies in flight each way. Two keep a link busy; more spare the reactor a hurry.
const COPIES_MAX: usize = 16;

/// Fences in flight. Where they are used up, who records one more waits for his stream.
const FENCES_MAX: usize = 1024;

/// The fence that passed before it was given to the core.
const PASSED: u32 = u32::MAX;

/// Stack of a thread that waits for events.
const STACK_BYTES: usize = 256 << 10;

/// What is on its way, with the event that tells of its end.
struct Flying {
    id: OpId,
    op: DeviceOp,
    event: Event,
}

/// A thread that sleeps until events have happened, in their order.
struct Watch {
    /// None only while dropping: a closed queue ends the thread.
    flying: Option<Sender<Flying>>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    fn new(
        name: &str,
        room: usize,
        context: &Arc<Context>,
        done: &Sender<(Event, DeviceCompletion)>,
        waker: &Waker,
    ) -> Result<Watch, Error> {
        let (flying, queue) = bounded::<Flying>(room);
        let name = format!("mt-gpu{}-{name}", context.id.0);
        let (context, done, waker) = (Arc::clone(context), done.clone(), waker.clone());
        let body = move || {
            for Flying { id, op, event } in queue {
                let result = context.bind().and_then(|()| event.wait(context.id));
                if done.send((event, DeviceCompletion { id, op, result })).is_err() {
                    return;
                }
                waker.wake();
            }
        };
        let thread = thread::Builder::new().name(name.clone()).stack_size(STACK_BYTES).spawn(body);
        let thread = thread.map_err(|source| Error::Io {
            doing: "starting a thread",
            path: PathBuf::from(name),
            offset: 0,
            bytes: 0,
            source: Arc::new(source),
        })?;
        Ok(Watch { flying: Some(flying), thread: Some(thread) })
    }

    /// There is room for all events that there are.
    fn watch(&self, flying: Flying) {
        let queue = self.flying.as_ref().expect("the queue is open until drop");
        queue.try_send(flying).unwrap_or_else(|_| unreachable!("as much room as events, and a thread that lives"));
    }
}

impl Drop for Watch {
    /// Waits for what is on its way.
    fn drop(&mut self) {
        self.flying = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed by it; there is nothing to add.
            let _ = thread.join();
        }
    }
}

/// Copies in one direction.
struct Lane {
    stream: driver::Stream,
    free: Vec<Event>,
    watch: Watch,
}

/// The users' side.
struct Shared {
    context: Arc<Context>,
    vram: driver::Vram,
    fences: Vec<Event>,
    free: Mutex<Vec<u32>>,
}

impl Shared {
    fn give_back(&self, fence: u32) {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).push(fence);
    }
}

impl Streams for Shared {
    fn base(&self) -> u64 {
        self.vram.base
    }

    fn record(&self, stream: Stream) -> Result<Fence, Error> {
        self.context.bind()?;
        let stream = stream.0 as sys::CUstream;
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let Some(fence) = free else {
            // SAFETY: the caller names a stream of this device's primary context, which is current (`Stream`).
            check(self.context.id, "cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(stream) })?;
            return Ok(Fence(PASSED));
        };
        let recorded = self.fences[fence as usize].record(self.context.id, stream);
        recorded.map(|()| Fence(fence)).inspect_err(|_| self.give_back(fence))
    }

    fn synchronize(&self) -> Result<(), Error> {
        self.context.bind()?;
        // SAFETY: the context is current.
        check(self.context.id, "cuCtxSynchronize", unsafe { sys::cuCtxSynchronize() })
    }
}

/// A GPU. Fields are dropped in their order: threads first, so that nothing runs when the rest goes.
pub(super) struct Cuda {
    up: Lane,
    down: Lane,
    fences: Watch,
    done: Receiver<(Event, DeviceCompletion)>,
    /// Fences that had passed when they were submitted.
    passed: Vec<DeviceCompletion>,
    shared: Arc<Shared>,
    arena: Arc<Arena>,
    _pinned: Arc<Pinned>,
}

impl Cuda {
    /// Opens a GPU, makes its allocation, and registers the arena if no other has.
    ///
    /// # Errors
    /// `NoDevice` with what was looked for, found and needed; `Device` with the call that failed; `Io`.
    pub(super) fn open(
        id: DeviceId,
        bytes: u64,
        arena: &Arc<Arena>,
        pinned: &mut Option<Arc<Pinned>>,
        waker: &Waker,
    ) -> Result<Cuda, Error> {
        let context = Arc::new(Context::open(id)?);
        let pinned = match pinned {
            Some(pinned) => Arc::clone(pinned),
            None => Arc::clone(pinned.insert(Arc::new(Pinned::new(&context, arena)?))),
        };
        let vram = driver::Vram::new(&context, bytes)?;
        let events = |count: usize| (0..count).map(|_| Event::new(&context)).collect::<Result<Vec<Event>, Error>>();
        let fences = events(FENCES_MAX)?;
        let free = Mutex::new((0..FENCES_MAX as u32).collect());
        let (sender, done) = bounded(2 * COPIES_MAX + FENCES_MAX);
        let watch = |name, room| Watch::new(name, room, &context, &sender, waker);
        let lane = |name| {
            let (stream, free) = (driver::Stream::new(&context)?, events(COPIES_MAX)?);
            Ok::<_, Error>(Lane { stream, free, watch: watch(name, COPIES_MAX)? })
        };
        let (up, down, watch) = (lane("up")?, lane("down")?, watch("fences", FENCES_MAX)?);
        let shared = Arc::new(Shared { context, vram, fences, free });
        let (arena, passed) = (Arc::clone(arena), Vec::new());
        Ok(Cuda { up, down, fences: watch, done, passed, shared, arena, _pinned: pinned })
    }

    /// Its streams.
    pub(super) fn streams(&self) -> Arc<dyn Streams> {
        Arc::clone(&self.shared) as Arc<dyn Streams>
    }

    /// Puts a copy on its stream; its event.
    fn start(&mut self, op: &mut DeviceOp, event: &Event) -> Result<(), Error> {
        let (id, base) = (self.shared.context.id, self.shared.vram.base);
        self.shared.context.bind()?;
        let stream = match op {
            DeviceOp::Upload { from, to } => {
                self.shared.vram.check(*to, from.bytes);
                let source = self.arena.slice(from);
                // SAFETY: the source is `from`'s, which stays with the operation until its end (`Flying`), in the
                // arena, which outlives all copies and is pinned (invariant 1); the destination lies in the allocation,
                // just checked; stream and context are of this device (invariant 2).
                let result = unsafe {
                    let (source, stream) = (source.as_ptr().cast(), self.up.stream.raw());
                    sys::cuMemcpyHtoDAsync_v2(base + *to, source, from.bytes as usize, stream)
                };
                check(id, "cuMemcpyHtoDAsync", result)?;
                &self.up.stream
            }
            DeviceOp::Download { from, into } => {
                self.shared.vram.check(*from, into.bytes);
                let bytes = into.bytes as usize;
                let target = self.arena.slice_mut(into);
                // SAFETY: as above, with the roles exchanged: nobody else has `into`'s bytes until the operation's end.
                let result = unsafe {
                    let (target, stream) = (target.as_mut_ptr().cast(), self.down.stream.raw());
                    sys::cuMemcpyDtoHAsync_v2(target, base + *from, bytes, stream)
                };
                check(id, "cuMemcpyDtoHAsync", result)?;
                &self.down.stream
            }
            DeviceOp::Clear { at, bytes } => {
                self.shared.vram.check(*at, *bytes);
                // SAFETY: the bytes lie in the allocation, just checked; nobody else uses them until the operation's
                // end.
                let result = unsafe { sys::cuMemsetD8Async(base + *at, 0, *bytes as usize, self.up.stream.raw()) };
                check(id, "cuMemsetD8Async", result)?;
                &self.up.stream
            }
            DeviceOp::Fence { .. } => unreachable!("fences are recorded by users"),
        };
        event.record(id, stream.raw())
    }
}

impl Device for Cuda {
    fn submit(&mut self, id: OpId, mut op: DeviceOp) -> Result<(), DeviceOp> {
        let lane = match &op {
            DeviceOp::Fence { fence: Fence(PASSED) } => {
                self.passed.push(DeviceCompletion { id, op, result: Ok(()) });
                return Ok(());
            }
            DeviceOp::Fence { fence } => {
                let event = self.shared.fences[fence.0 as usize].again();
                self.fences.watch(Flying { id, op, event });
                return Ok(());
            }
            DeviceOp::Upload { .. } | DeviceOp::Clear { .. } => &mut self.up,
            DeviceOp::Download { .. } => &mut self.down,
        };
        let Some(event) = lane.free.pop() else { return Err(op) };
        match self.start(&mut op, &event) {
            Ok(()) => {
                let lane = if matches!(op, DeviceOp::Download { .. }) { &self.down } else { &self.up };
                lane.watch.watch(Flying { id, op, event });
            }
            // The copy may have begun. The engine is poisoned by this, and frees the arena only after the context has
            // ended everything (`Context::drop`).
            Err(error) => {
                let lane = if matches!(op, DeviceOp::Download { .. }) { &mut self.down } else { &mut self.up };
                lane.free.push(event);
                self.passed.push(DeviceCompletion { id, op, result: Err(error) });
            }
        }
        Ok(())
    }

    fn poll(&mut self, out: &mut Vec<DeviceCompletion>) -> Result<(), Error> {
        out.append(&mut self.passed);
        for (event, completion) in self.done.try_iter() {
            match &completion.op {
                DeviceOp::Upload { .. } | DeviceOp::Clear { .. } => self.up.free.push(event),
                DeviceOp::Download { .. } => self.down.free.push(event),
                DeviceOp::Fence { fence } => self.shared.give_back(fence.0),
            }
            out.push(completion);
        }
        Ok(())
    }
}
