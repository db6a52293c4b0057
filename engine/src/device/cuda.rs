//! A GPU through CUDA's driver, which is opened at run time: neither building nor starting needs it.
//!
//! One allocation, one stream for each direction of copies, and events, all made at open. A copy is put on its stream
//! by the reactor, which never waits; so the streams have their next copies while one runs. Three threads a device
//! sleep on events: of uploads, of downloads, and of fences. Fences are looked at in the order in which they were
//! submitted, so one of a stream that is behind holds up news of others; work on streams ends by itself, so that is a
//! matter of time alone.
//!
//! Users' streams wait on the same events: for an upload on that of its copy, for others' fences on the last of each of
//! their streams. An event may be recorded again before a stream waits on it; then what it stood for is over, and the
//! stream waits a little longer, for something that waits for nobody.
//!
//! Invariants:
//! 1. The arena is pinned (registered with the driver) as long as a copy may run: each device holds the registration,
//!    and its threads have ended, so that all copies have, before it lets go.
//! 2. Handles belong to the primary context of the device, which is retained until all of them are destroyed.
//! 3. An event is in the hands of one operation, or free; threads and streams that look at it change nothing of it.
#![allow(unsafe_code)]

mod driver;

use super::{After, Device, DeviceCompletion, DeviceOp, Fence, Stream, Streams};
use crate::arena::Arena;
use crate::error::Error;
use crate::id::DeviceId;
use crate::io::{OpId, Waker};
use crossbeam::channel::{Receiver, Sender, bounded};
use cudarc::driver::sys;
use driver::{Context, Event, check};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

pub(super) use driver::Pinned;

/// Copies in flight each way. Two keep a link busy; more spare the reactor a hurry.
const COPIES_MAX: usize = 16;

/// Fences in flight. Where they are used up, who records one more waits for the first that passes.
const FENCES_MAX: usize = 1024;

/// Streams of users for which there is room from the start.
const STREAMS: usize = 16;

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
        done: &Sender<DeviceCompletion>,
        waker: &Waker,
    ) -> Result<Watch, Error> {
        let (flying, queue) = bounded::<Flying>(room);
        let name = format!("mt-gpu{}-{name}", context.id.0);
        let (context, done, waker) = (Arc::clone(context), done.clone(), waker.clone());
        let body = move || {
            for Flying { id, op, event } in queue {
                let result = context.bind().and_then(|()| event.wait(context.id));
                if done.send(DeviceCompletion { id, op, result }).is_err() {
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

/// Copies in one direction, which end in their order.
struct Lane {
    /// First, so that its thread has ended when events go.
    watch: Watch,
    stream: driver::Stream,
    /// As many as copies may be in flight, used in turn.
    events: Vec<Event>,
    /// Copies that were taken, and that were told to be over.
    taken: u64,
    told: u64,
}

impl Lane {
    /// The event of the next copy, which is number `taken + 1`; None: there are too many.
    fn next(&self) -> Option<Event> {
        let is_free = self.taken - self.told < COPIES_MAX as u64;
        is_free.then(|| self.events[event_of(self.taken + 1)].again())
    }
}

/// Which of a lane's events a copy has, by its number.
fn event_of(copy: u64) -> usize {
    (copy % COPIES_MAX as u64) as usize
}

/// A user's stream.
struct User {
    stream: Stream,
    /// Its last fence.
    fence: Option<u32>,
    /// The newest upload that it, or another that it waits for, was made to wait for.
    awaited: u64,
}

/// The user of a stream, who is made known by this.
fn user(users: &mut Vec<User>, stream: Stream) -> &mut User {
    let at = users.iter().position(|user| user.stream == stream).unwrap_or_else(|| {
        users.push(User { stream, fence: None, awaited: 0 });
        users.len() - 1
    });
    &mut users[at]
}

/// Fences that nobody has.
struct Free {
    slots: Vec<u32>,
    /// Nobody gives any back any more.
    is_closed: bool,
}

/// The users' side.
struct Shared {
    context: Arc<Context>,
    vram: driver::Vram,
    /// Those of the lane up.
    uploads: Vec<Event>,
    /// Uploads that are known to be over.
    uploaded: AtomicU64,
    fences: Vec<Event>,
    /// What the reactor's thread locks: nobody calls the driver, which may make him wait, while he has it.
    free: Mutex<Free>,
    given_back: Condvar,
    users: Mutex<Vec<User>>,
}

impl Shared {
    fn free(&self) -> MutexGuard<'_, Free> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn users(&self) -> MutexGuard<'_, Vec<User>> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn give_back(&self, fence: u32) {
        self.free().slots.push(fence);
        self.given_back.notify_one();
    }

    fn close(&self) {
        self.free().is_closed = true;
        self.given_back.notify_all();
    }

    /// A fence that nobody has. The reactor waits for no user, and what is on streams comes to its end, so one comes
    /// back.
    fn take(&self) -> Result<u32, Error> {
        let mut free = self.free();
        loop {
            if free.is_closed {
                return Err(Error::Closed);
            }
            if let Some(slot) = free.slots.pop() {
                return Ok(slot);
            }
            free = self.given_back.wait(free).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Streams for Shared {
    fn base(&self) -> u64 {
        self.vram.base
    }

    fn wait(&self, stream: Stream, after: After) -> Result<(), Error> {
        let (id, raw) = (self.context.id, stream.0 as sys::CUstream);
        let waits_for_upload = after.upload > self.uploaded.load(Ordering::Acquire);
        let mut users = self.users();
        let mut awaited = after.upload;
        if waits_for_upload {
            self.context.bind()?;
            self.uploads[event_of(after.upload)].hold_up(id, raw)?;
        }
        for other in users.iter().filter(|other| after.fences && other.stream != stream) {
            awaited = awaited.max(other.awaited);
            if let Some(fence) = other.fence {
                self.context.bind()?;
                self.fences[fence as usize].hold_up(id, raw)?;
            }
        }
        let user = user(&mut users, stream);
        user.awaited = user.awaited.max(awaited);
        Ok(())
    }

    fn record(&self, stream: Stream) -> Result<Fence, Error> {
        let slot = self.take()?;
        let mut users = self.users();
        let event = &self.fences[slot as usize];
        let recorded = self.context.bind().and_then(|()| event.record(self.context.id, stream.0 as sys::CUstream));
        recorded.inspect_err(|_| self.give_back(slot))?;
        let user = user(&mut users, stream);
        user.fence = Some(slot);
        Ok(Fence { slot, after: user.awaited })
    }
}

/// A GPU. Fields are dropped in their order: threads first, so that nothing runs when the rest goes.
pub(super) struct Cuda {
    up: Lane,
    down: Lane,
    fences: Watch,
    done: Receiver<DeviceCompletion>,
    /// Copies that failed when they were submitted.
    failed: Vec<DeviceCompletion>,
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
        let (fences, uploads) = (events(FENCES_MAX)?, events(COPIES_MAX)?);
        let again = |events: &[Event]| events.iter().map(Event::again).collect::<Vec<Event>>();
        let (sender, done) = bounded(2 * COPIES_MAX + FENCES_MAX);
        let watch = |name, room| Watch::new(name, room, &context, &sender, waker);
        let lane = |name, events| {
            let (stream, watch) = (driver::Stream::new(&context)?, watch(name, COPIES_MAX)?);
            Ok::<_, Error>(Lane { watch, stream, events, taken: 0, told: 0 })
        };
        let (up, down) = (lane("up", again(&uploads))?, lane("down", events(COPIES_MAX)?)?);
        let watch = watch("fences", FENCES_MAX)?;
        let free = Mutex::new(Free { slots: (0..FENCES_MAX as u32).collect(), is_closed: false });
        let users = Mutex::new(Vec::with_capacity(STREAMS));
        let (uploaded, given_back) = (AtomicU64::new(0), Condvar::new());
        let shared = Arc::new(Shared { context, vram, uploads, uploaded, fences, free, given_back, users });
        let (arena, failed) = (Arc::clone(arena), Vec::new());
        Ok(Cuda { up, down, fences: watch, done, failed, shared, arena, _pinned: pinned })
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
        let is_down = match &op {
            DeviceOp::Fence { fence } => {
                let event = self.shared.fences[fence.slot as usize].again();
                self.fences.watch(Flying { id, op, event });
                return Ok(());
            }
            DeviceOp::Upload { .. } | DeviceOp::Clear { .. } => false,
            DeviceOp::Download { .. } => true,
        };
        let Some(event) = (if is_down { &self.down } else { &self.up }).next() else { return Err(op) };
        let started = self.start(&mut op, &event);
        let lane = if is_down { &mut self.down } else { &mut self.up };
        lane.taken += 1;
        match started {
            Ok(()) => lane.watch.watch(Flying { id, op, event }),
            // The copy may have begun. The engine is poisoned by this, and frees the arena only after the context has
            // ended everything (`Context::drop`).
            Err(error) => self.failed.push(DeviceCompletion { id, op, result: Err(error) }),
        }
        Ok(())
    }

    fn poll(&mut self, out: &mut Vec<DeviceCompletion>) -> Result<(), Error> {
        let first = out.len();
        out.append(&mut self.failed);
        out.extend(self.done.try_iter());
        for completion in &out[first..] {
            match &completion.op {
                DeviceOp::Upload { .. } | DeviceOp::Clear { .. } => {
                    self.up.told += 1;
                    self.shared.uploaded.store(self.up.told, Ordering::Release);
                }
                DeviceOp::Download { .. } => self.down.told += 1,
                DeviceOp::Fence { fence } => self.shared.give_back(fence.slot),
            }
        }
        Ok(())
    }
}

impl Drop for Cuda {
    /// Who waits for a fence to be free need not wait any more.
    fn drop(&mut self) {
        self.shared.close();
    }
}
