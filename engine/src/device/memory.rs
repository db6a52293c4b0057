//! A device in RAM, for tests and for machines without a GPU: deterministic, with the freedoms that a real one takes.
//!
//! Copies move their bytes, and are told to have, in an order chosen by a seeded generator, a few at each poll; between
//! the two, and before the first, may lie any time. Streams have *work*: what a test puts there happens when the stream
//! comes to it, one piece after the other at the pace of the polls, which may be long after the call; and a stream
//! stands where it was made to wait. So bytes that are taken away, moved or read before a stream has passed are seen,
//! and so are those that a stream did not wait for.
//!
//! A copy that fails moves nothing, and may be told late. A stream that waited for it goes on (*astray*): what it does
//! from then on is worth nothing, and its fences pass as if nothing had happened.
//!
//! It panics where a submitter breaks the rules: copies that are misaligned, out of bounds or overlap while one of them
//! writes; frames of the arena that change while a copy owns them.
//!
//! What stands for VRAM is ordinary memory of the process, at the address that leases tell. Opened by an engine, its
//! users work there with their own hands and have nothing on streams: then who makes a stream wait waits himself.

use super::{After, Device, DeviceCompletion, DeviceOp, Fence, Stream, Streams};
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

/// Most copies that move their bytes in one poll, and most completions.
const COMPLETIONS_MAX: u64 = 4;

/// Most polls that news of a failed copy takes.
const LATE_MAX: u64 = 400;

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
    /// It stands until this upload has moved its bytes.
    Upload(u64),
    /// It stands until another stream has passed so many fences.
    Fences(u64, u64),
}

/// A stream.
#[derive(Default)]
struct Line {
    items: VecDeque<Item>,
    /// Fences that were recorded, and that have passed.
    recorded: u64,
    passed: u64,
    /// The newest upload that it, or another that it waits for, was made to wait for.
    awaited: u64,
    /// How many fences had passed when it went astray.
    astray: Option<u64>,
}

/// An operation that was submitted and is not told to be over.
struct InFlight {
    id: OpId,
    op: DeviceOp,
    /// Its number if it is an upload or a clear, else 0.
    upload: u64,
    /// Checksum of what a copy reads, at its beginning.
    source_checksum: u64,
    /// Of a copy that has moved its bytes, or failed.
    result: Option<Result<(), Error>>,
    /// Polls until that is told.
    late: u64,
}

/// What the device and its streams share.
struct Shared {
    id: DeviceId,
    arena: Arc<Arena>,
    vram: Arena,
    settings: Settings,
    lines: BTreeMap<u64, Line>,
    /// Fences that are recorded; passed or not.
    fences: Vec<Option<bool>>,
    in_flight: Vec<InFlight>,
    /// Uploads and clears so far, and those that failed.
    uploads: u64,
    failed: Vec<u64>,
    rng: SplitMix64,
    luck: SplitMix64,
}

impl Shared {
    /// One item of one stream that does not stand.
    fn turn(&mut self) {
        let may_go = |line: &Line| match line.items.front() {
            None => false,
            Some(Item::Work(_) | Item::Fence(_)) => true,
            Some(Item::Upload(upload)) => !self.in_flight.iter().any(|f| f.upload == *upload && f.result.is_none()),
            Some(Item::Fences(other, fences)) => self.lines[other].passed >= *fences,
        };
        let ids: Vec<u64> = self.lines.iter().filter(|(_, line)| may_go(line)).map(|(id, _)| *id).collect();
        if !ids.is_empty() {
            let id = self.rng.pick(&ids);
            self.turn_of(id);
        }
    }

    fn turn_of(&mut self, id: u64) {
        let line = self.lines.get_mut(&id).expect("a stream that was named");
        let is_astray = line.astray.is_some();
        let goes_astray = match line.items.pop_front().expect("a stream that does not stand") {
            Item::Work(work) => {
                let bytes = u32::try_from(self.vram.bytes()).expect("a device in RAM is small");
                if !is_astray {
                    work(self.vram.slice_mut(&mut FrameMut::new(0, bytes)));
                }
                return;
            }
            Item::Fence(fence) => {
                line.passed += 1;
                self.fences[fence as usize] = Some(true);
                return;
            }
            Item::Upload(upload) => self.failed.contains(&upload),
            Item::Fences(other, fences) => self.lines[&other].astray.is_some_and(|passed| passed < fences),
        };
        let line = self.lines.get_mut(&id).expect("as above");
        if goes_astray && !is_astray {
            line.astray = Some(line.passed);
        }
    }

    /// A copy moves its bytes.
    fn land(&mut self, at: usize) {
        let it = &mut self.in_flight[at];
        it.result = Some(Ok(()));
        if self.luck.thousandths(self.settings.failed_copy) {
            let (call, text) = ("copying", "a fault of the device in RAM".into());
            it.result = Some(Err(Error::Device { device: self.id, call, code: 719, text }));
            it.late = self.luck.below(LATE_MAX);
            self.failed.push(it.upload);
            return;
        }
        match &mut it.op {
            DeviceOp::Fence { .. } => unreachable!("a fence moves nothing"),
            DeviceOp::Upload { from, to } => {
                let source = self.arena.slice(from);
                assert_eq!(page_checksum(source), it.source_checksum, "an upload's bytes changed under it");
                self.vram.slice_mut(&mut FrameMut::new(*to, from.bytes)).copy_from_slice(source);
            }
            DeviceOp::Clear { at, bytes } => self.vram.slice_mut(&mut FrameMut::new(*at, *bytes)).fill(0),
            DeviceOp::Download { from, into } => {
                let frame = FrameRef::new(*from, into.bytes);
                let source = self.vram.slice(&frame);
                assert_eq!(page_checksum(source), it.source_checksum, "a download's bytes changed under it");
                self.arena.slice_mut(into).copy_from_slice(source);
            }
        }
    }

    /// One copy that has not moved its bytes.
    fn land_one(&mut self) {
        let moves = |it: &InFlight| it.result.is_none() && !matches!(it.op, DeviceOp::Fence { .. });
        let waiting: Vec<usize> = (0..self.in_flight.len()).filter(|&at| moves(&self.in_flight[at])).collect();
        if !waiting.is_empty() {
            let at = self.luck.pick(&waiting);
            self.land(at);
        }
    }

    /// Panics unless the copy may be in flight beside those that are.
    fn check(&self, op: &DeviceOp) {
        let Some((fills, arena, vram)) = ranges(op) else { return };
        for number in [arena.start, arena.end, vram.start, vram.end] {
            assert!(number.is_multiple_of(4096), "misaligned: {op:?}");
        }
        assert!(!vram.is_empty() && vram.end <= self.vram.bytes(), "out of bounds: {op:?}");
        for other in &self.in_flight {
            let Some((other_fills, other_arena, other_vram)) = ranges(&other.op) else { continue };
            // An upload fills VRAM and reads the arena, a download the other way round.
            let writes_arena = !fills || !other_fills;
            let writes_vram = fills || other_fills;
            let clash = (writes_arena && overlap(&arena, &other_arena)) || (writes_vram && overlap(&vram, &other_vram));
            assert!(!clash, "{op:?} uses bytes of {:?}", other.op);
        }
    }
}

/// The users' side of a device in RAM.
#[derive(Clone)]
pub struct MemoryStreams {
    shared: Arc<Mutex<Shared>>,
    /// The reactor's; none in tests that step the core themselves, and have work on streams.
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
        self.lock().lines.entry(stream.0).or_default().items.push_back(Item::Work(work));
    }
}

impl Streams for MemoryStreams {
    fn base(&self) -> u64 {
        self.lock().vram.base().addr() as u64
    }

    fn wait(&self, stream: Stream, after: After) -> Result<(), Error> {
        let mut shared = self.lock();
        let mut line = shared.lines.remove(&stream.0).unwrap_or_default();
        line.awaited = line.awaited.max(after.upload);
        let stands = self.waker.is_none();
        if after.upload > 0 && stands {
            line.items.push_back(Item::Upload(after.upload));
        } else if after.upload > 0 {
            let coming = |it: &InFlight| it.upload == after.upload && it.result.is_none();
            let at = shared.in_flight.iter().position(coming);
            at.into_iter().for_each(|at| shared.land(at));
        }
        for (id, other) in shared.lines.iter().filter(|_| after.fences) {
            // Those who work with their own hands have given back what they had done; but what they did it with may
            // turn out never to have come.
            if stands {
                line.items.push_back(Item::Fences(*id, other.recorded));
            }
            line.awaited = line.awaited.max(other.awaited);
        }
        shared.lines.insert(stream.0, line);
        Ok(())
    }

    fn record(&self, stream: Stream) -> Result<Fence, Error> {
        let mut shared = self.lock();
        let free = shared.fences.iter().position(Option::is_none).unwrap_or(shared.fences.len());
        if free == shared.fences.len() {
            shared.fences.push(None);
        }
        shared.fences[free] = Some(false);
        let line = shared.lines.entry(stream.0).or_default();
        line.items.push_back(Item::Fence(free as u32));
        line.recorded += 1;
        let fence = Fence { slot: free as u32, after: line.awaited };
        drop(shared);
        self.wake();
        Ok(fence)
    }
}

/// The device in RAM.
pub struct MemoryDevice {
    streams: MemoryStreams,
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
        let shared = Shared {
            id,
            arena,
            vram: Arena::new(bytes)?,
            settings,
            lines: BTreeMap::new(),
            fences: Vec::new(),
            in_flight: Vec::new(),
            uploads: 0,
            failed: Vec::new(),
            rng: SplitMix64::named(settings.seed, "device"),
            luck: SplitMix64::named(settings.seed, "device faults"),
        };
        Ok(MemoryDevice { streams: MemoryStreams { shared: Arc::new(Mutex::new(shared)), waker } })
    }

    /// Its streams.
    pub fn streams(&self) -> MemoryStreams {
        self.streams.clone()
    }
}

impl Device for MemoryDevice {
    fn submit(&mut self, id: OpId, mut op: DeviceOp) -> Result<(), DeviceOp> {
        let mut guard = self.streams.lock();
        let shared = &mut *guard;
        let is_copy = !matches!(op, DeviceOp::Fence { .. });
        let copies = shared.in_flight.iter().filter(|f| !matches!(f.op, DeviceOp::Fence { .. })).count();
        if is_copy && copies == shared.settings.queue_depth as usize {
            return Err(op);
        }
        assert!(shared.in_flight.iter().all(|f| f.id != id), "{id:?} is in flight already");
        shared.check(&op);
        let source_checksum = match &mut op {
            DeviceOp::Upload { from, to } => {
                shared.vram.slice_mut(&mut FrameMut::new(*to, from.bytes)).fill(POISON);
                page_checksum(shared.arena.slice(from))
            }
            DeviceOp::Download { from, into } => {
                shared.arena.slice_mut(into).fill(POISON);
                page_checksum(shared.vram.slice(&FrameRef::new(*from, into.bytes)))
            }
            DeviceOp::Clear { .. } | DeviceOp::Fence { .. } => 0,
        };
        let is_upload = matches!(op, DeviceOp::Upload { .. } | DeviceOp::Clear { .. });
        shared.uploads += u64::from(is_upload);
        let upload = if is_upload { shared.uploads } else { 0 };
        shared.in_flight.push(InFlight { id, op, upload, source_checksum, result: None, late: 0 });
        drop(guard);
        self.streams.wake();
        Ok(())
    }

    fn poll(&mut self, out: &mut Vec<DeviceCompletion>) -> Result<(), Error> {
        let mut guard = self.streams.lock();
        let shared = &mut *guard;
        if !shared.luck.thousandths(shared.settings.idle) {
            (0..shared.rng.below(COMPLETIONS_MAX)).for_each(|_| shared.turn());
            (0..shared.luck.below(COMPLETIONS_MAX + 1)).for_each(|_| shared.land_one());
            for _ in 0..shared.luck.below(COMPLETIONS_MAX + 1) {
                let may = |it: &InFlight| match &it.op {
                    DeviceOp::Fence { fence } => shared.fences[fence.slot as usize] == Some(true),
                    _ => it.result.is_some() && it.late == 0,
                };
                let ready: Vec<usize> = (0..shared.in_flight.len()).filter(|&n| may(&shared.in_flight[n])).collect();
                if ready.is_empty() {
                    break;
                }
                let InFlight { id, op, result, .. } = shared.in_flight.swap_remove(shared.luck.pick(&ready));
                if let DeviceOp::Fence { fence } = &op {
                    shared.fences[fence.slot as usize] = None;
                }
                out.push(DeviceCompletion { id, op, result: result.unwrap_or(Ok(())) });
            }
        }
        shared.in_flight.iter_mut().for_each(|it| it.late = it.late.saturating_sub(u64::from(it.result.is_some())));
        let is_over = shared.in_flight.is_empty();
        drop(guard);
        if !is_over {
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

#[cfg(test)]
mod tests;
