//! A device in RAM, for tests and for machines without a GPU: deterministic, with the freedoms that a real one takes.
//!
//! Copies and fences complete in an order chosen by a seeded generator, a few at each poll. Streams have *work*: what a
//! test puts there happens when the stream comes to it, one piece after the other at the pace of the polls, which may
//! be long after the call. So bytes that are taken away, moved or read before the stream has passed are seen.
//!
//! It panics where a submitter breaks the rules: copies that are misaligned, out of bounds or overlap while one of them
//! writes; frames of the arena that change while a copy owns them.
//!
//! What stands for VRAM is ordinary memory of the process, at the address that leases tell.

use super::{Device, DeviceCompletion, DeviceOp, Fence, Stream, Streams};
use crate::arena::Arena;
use crate::error::Error;
use crate::format::checksum::page_checksum;
use crate::id::DeviceId;
use crate::io::memory::rng::SplitMix64;
use crate::io::{FrameMut, FrameRef, OpId, Waker};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What bytes hold between the beginning of the copy that fills them and its end.
const POISON: u8 = 0xd6;

/// Most completions of one poll.
const COMPLETIONS_MAX: u64 = 4;

/// How a device in RAM behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Decides the order of completions and the pace of streams.
    pub seed: u64,
    /// Copies in flight.
    pub queue_depth: u32,
    /// How many copies of a thousand fail.
    pub failed_copy: u32,
    /// At how many polls of a thousand nothing happens: a slow link.
    pub idle: u32,
}

impl Settings {
    /// A device without faults.
    pub fn new(seed: u64) -> Settings {
        Settings { seed, queue_depth: 8, failed_copy: 0, idle: 0 }
    }
}

/// What a stream does in its turn, with all VRAM at hand.
pub type Work = Box<dyn FnOnce(&mut [u8]) + Send>;

/// What is on a stream.
enum Item {
    Work(Work),
    Fence(u32),
}

/// What the device and its streams share.
struct Shared {
    vram: Arena,
    streams: BTreeMap<u64, VecDeque<Item>>,
    /// Fences that are recorded; passed or not.
    fences: Vec<Option<bool>>,
    rng: SplitMix64,
}

impl Shared {
    /// One item of one stream that has any.
    fn turn(&mut self) {
        let ids: Vec<u64> = self.streams.iter().filter(|(_, items)| !items.is_empty()).map(|(id, _)| *id).collect();
        if !ids.is_empty() {
            let id = self.rng.pick(&ids);
            self.turn_of(id);
        }
    }

    fn turn_of(&mut self, id: u64) {
        match self.streams.get_mut(&id).and_then(VecDeque::pop_front) {
            Some(Item::Work(work)) => {
                let bytes = u32::try_from(self.vram.bytes()).expect("a device in RAM is small");
                work(self.vram.slice_mut(&mut FrameMut::new(0, bytes)));
            }
            Some(Item::Fence(fence)) => self.fences[fence as usize] = Some(true),
            None => {}
        }
    }
}

/// The users' side of a device in RAM.
#[derive(Clone)]
pub struct MemoryStreams {
    shared: Arc<Mutex<Shared>>,
    waker: Option<Waker>,
}

impl MemoryStreams {
    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        if let Some(waker) = &self.waker {
            waker.wake();
        }
    }

    /// Puts work on a stream.
    pub fn enqueue(&self, stream: Stream, work: Work) {
        self.lock().streams.entry(stream.0).or_default().push_back(Item::Work(work));
    }
}

impl Streams for MemoryStreams {
    fn base(&self) -> u64 {
        self.lock().vram.base().addr() as u64
    }

    fn record(&self, stream: Stream) -> Result<Fence, Error> {
        let mut shared = self.lock();
        let free = shared.fences.iter().position(Option::is_none).unwrap_or(shared.fences.len());
        if free == shared.fences.len() {
            shared.fences.push(None);
        }
        shared.fences[free] = Some(false);
        shared.streams.entry(stream.0).or_default().push_back(Item::Fence(free as u32));
        drop(shared);
        self.wake();
        Ok(Fence(free as u32))
    }

    fn synchronize(&self) -> Result<(), Error> {
        let mut shared = self.lock();
        while shared.streams.values().any(|items| !items.is_empty()) {
            shared.turn();
        }
        Ok(())
    }
}

/// An operation that was submitted and has not completed.
struct InFlight {
    id: OpId,
    op: DeviceOp,
    /// Checksum of what a copy reads, at its beginning.
    source_checksum: u64,
}

/// The device in RAM.
pub struct MemoryDevice {
    id: DeviceId,
    arena: Arc<Arena>,
    streams: MemoryStreams,
    settings: Settings,
    luck: SplitMix64,
    in_flight: Vec<InFlight>,
}

impl MemoryDevice {
    /// A device with `bytes` bytes of VRAM. `waker`: the reactor sleeps and has to be woken.
    ///
    /// # Errors
    /// `Io`, `Config`: the system has no such memory.
    pub(crate) fn new(
        id: DeviceId,
        bytes: u64,
        arena: Arc<Arena>,
        settings: Settings,
        waker: Option<Waker>,
    ) -> Result<MemoryDevice, Error> {
        let (vram, rng) = (Arena::new(bytes)?, SplitMix64::named(settings.seed, "device"));
        let shared = Shared { vram, streams: BTreeMap::new(), fences: Vec::new(), rng };
        let streams = MemoryStreams { shared: Arc::new(Mutex::new(shared)), waker };
        let luck = SplitMix64::named(settings.seed, "device faults");
        Ok(MemoryDevice { id, arena, streams, settings, luck, in_flight: Vec::new() })
    }

    /// Its streams.
    pub fn streams(&self) -> MemoryStreams {
        self.streams.clone()
    }

    /// Panics unless the copy may be in flight beside those that are.
    fn check(&self, op: &DeviceOp, vram_bytes: u64) {
        let Some((fills, arena, vram)) = ranges(op) else { return };
        for number in [arena.start, arena.end, vram.start, vram.end] {
            assert!(number.is_multiple_of(4096), "misaligned: {op:?}");
        }
        assert!(!vram.is_empty() && vram.end <= vram_bytes, "out of bounds: {op:?}");
        for other in &self.in_flight {
            let Some((other_fills, other_arena, other_vram)) = ranges(&other.op) else { continue };
            // An upload fills VRAM and reads the arena, a download the other way round.
            let writes_arena = !fills || !other_fills;
            let writes_vram = fills || other_fills;
            let clash = (writes_arena && overlap(&arena, &other_arena)) || (writes_vram && overlap(&vram, &other_vram));
            assert!(!clash, "{op:?} uses bytes of {:?}", other.op);
        }
    }

    fn complete(&mut self, at: usize) -> DeviceCompletion {
        let InFlight { id, mut op, source_checksum } = self.in_flight.swap_remove(at);
        let mut shared = self.streams.lock();
        let result = match &mut op {
            DeviceOp::Fence { fence } => {
                shared.fences[fence.0 as usize] = None;
                Ok(())
            }
            _ if self.luck.thousandths(self.settings.failed_copy) => Err(Error::Device {
                device: self.id,
                call: "copying",
                code: 719,
                text: "a fault of the device in RAM".into(),
            }),
            DeviceOp::Upload { from, to } => {
                let source = self.arena.slice(from);
                assert_eq!(page_checksum(source), source_checksum, "an upload's bytes changed under it");
                shared.vram.slice_mut(&mut FrameMut::new(*to, from.bytes)).copy_from_slice(source);
                Ok(())
            }
            DeviceOp::Clear { at, bytes } => {
                shared.vram.slice_mut(&mut FrameMut::new(*at, *bytes)).fill(0);
                Ok(())
            }
            DeviceOp::Download { from, into } => {
                let frame = FrameRef::new(*from, into.bytes);
                let source = shared.vram.slice(&frame);
                assert_eq!(page_checksum(source), source_checksum, "a download's bytes changed under it");
                self.arena.slice_mut(into).copy_from_slice(source);
                Ok(())
            }
        };
        drop(shared);
        DeviceCompletion { id, op, result }
    }
}

impl Device for MemoryDevice {
    fn submit(&mut self, id: OpId, mut op: DeviceOp) -> Result<(), DeviceOp> {
        let is_copy = !matches!(op, DeviceOp::Fence { .. });
        let copies = self.in_flight.iter().filter(|f| !matches!(f.op, DeviceOp::Fence { .. })).count();
        if is_copy && copies == self.settings.queue_depth as usize {
            return Err(op);
        }
        assert!(self.in_flight.iter().all(|f| f.id != id), "{id:?} is in flight already");
        let shared = self.streams.lock();
        self.check(&op, shared.vram.bytes());
        let source_checksum = match &mut op {
            DeviceOp::Upload { from, to } => {
                shared.vram.slice_mut(&mut FrameMut::new(*to, from.bytes)).fill(POISON);
                page_checksum(self.arena.slice(from))
            }
            DeviceOp::Download { from, into } => {
                self.arena.slice_mut(into).fill(POISON);
                page_checksum(shared.vram.slice(&FrameRef::new(*from, into.bytes)))
            }
            DeviceOp::Clear { .. } | DeviceOp::Fence { .. } => 0,
        };
        drop(shared);
        self.in_flight.push(InFlight { id, op, source_checksum });
        self.streams.wake();
        Ok(())
    }

    fn poll(&mut self, out: &mut Vec<DeviceCompletion>) -> Result<(), Error> {
        let is_idle = self.luck.thousandths(self.settings.idle);
        let count = {
            let mut shared = self.streams.lock();
            let turns = shared.rng.below(COMPLETIONS_MAX);
            (0..if is_idle { 0 } else { turns }).for_each(|_| shared.turn());
            if is_idle { 0 } else { shared.rng.below(COMPLETIONS_MAX + 1) }
        };
        for _ in 0..count {
            let shared = self.streams.lock();
            let may = |f: &InFlight| match &f.op {
                DeviceOp::Fence { fence } => shared.fences[fence.0 as usize] == Some(true),
                _ => true,
            };
            let ready: Vec<usize> = (0..self.in_flight.len()).filter(|&n| may(&self.in_flight[n])).collect();
            drop(shared);
            if ready.is_empty() {
                break;
            }
            let chosen = self.luck.pick(&ready);
            out.push(self.complete(chosen));
        }
        if !self.in_flight.is_empty() {
            self.streams.wake();
        }
        Ok(())
    }
}

/// Whether a copy fills VRAM, its bytes of the arena and its bytes of VRAM; None for a fence.
fn ranges(op: &DeviceOp) -> Option<(bool, Range<u64>, Range<u64>)> {
    let range = |offset: u64, bytes: u32| offset..offset + u64::from(bytes);
    match op {
        DeviceOp::Upload { from, to } => Some((true, range(from.offset, from.bytes), range(*to, from.bytes))),
        DeviceOp::Clear { at, bytes } => Some((true, 0..0, range(*at, *bytes))),
        DeviceOp::Download { from, into } => Some((false, range(into.offset, into.bytes), range(*from, into.bytes))),
        DeviceOp::Fence { .. } => None,
    }
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}
