//! The engine's own data path under a load that is chosen freely: one pattern of transfers at a time, through the same
//! backends, arena and checksums that stores use, on files that have no name.
//!
//! What it is not: a store (no commits, no page table), a second implementation of I/O, or a judgement: it says what
//! moved and when.
//!
//! Terms: *ground*, the nameless files that are read and written, one a directory; *load*, a backend on them with
//! memory of its own; *cell*, one pattern: direction, order, bytes of a transfer, transfers in flight.
//!
//! Invariants: nothing is written outside of the ground, and of it never more than was reserved; it is gone when the
//! process ends, in whatever way. A frame has one token at a time.

use crate::arena::Arena;
use crate::config::{Backend, Config, DirectIo};
use crate::error::Error;
use crate::io::file::VolumeFile;
use crate::io::hash::WithHashing;
use crate::io::uring::{Tuning, Uring};
use crate::io::{Completion, FrameMut, FrameRef, Io, Op, OpId, Waker};
use rustix::time::{ClockId, clock_gettime};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use crate::io::uring::Polling;

/// Bytes of a checksum, where a transfer has that many.
const PAGE_BYTES: u32 = 64 << 10;

/// Every transfer is a multiple of it: the largest alignment that direct I/O asks for.
pub const UNIT_BYTES: u32 = 4096;

/// Longest wait for a completion before the disk counts as broken.
const PATIENCE: Duration = Duration::from_secs(60);

/// Largest piece that the memory is filled in.
const FILL_BYTES: u64 = 1 << 30;

/// Nameless files with reserved space.
pub struct Ground {
    files: Vec<VolumeFile>,
    bytes: u64,
}

impl Ground {
    /// Reserves `bytes` in each directory. What is reserved was never written: see [`Ground::renew`].
    ///
    /// # Errors
    /// `Io`, `NoSpace`; `DirectIo` where an alignment is beyond what the engine has.
    pub fn reserve(dirs: &[PathBuf], bytes: u64) -> Result<Ground, Error> {
        let mut files = Vec::with_capacity(dirs.len());
        for dir in dirs {
            let file = VolumeFile::nameless(dir, DirectIo::Preferred)?;
            file.reserve(0, bytes)?;
            files.push(file);
        }
        Ok(Ground { files, bytes })
    }

    /// Gives the space back and reserves it anew, so that the next writes are again the first ones.
    ///
    /// # Errors
    /// `Io`, `NoSpace`.
    pub fn renew(&self) -> Result<(), Error> {
        self.files.iter().try_for_each(|file| {
            file.punch(0, self.bytes)?;
            file.reserve(0, self.bytes)
        })
    }

    /// Bytes in each directory.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What each file is, in the order of the directories.
    pub fn facts(&self) -> Vec<Facts> {
        let facts = |file: &VolumeFile| Facts {
            is_direct: file.is_direct(),
            alignment: file.alignment(),
            notice: file.notice.clone(),
        };
        self.files.iter().map(facts).collect()
    }

    /// Another handle of a directory's file, for programs and libraries that are compared with the engine: it is opened
    /// as the engine has it, past the page cache where that is possible.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn handle(&self, index: usize) -> std::io::Result<std::fs::File> {
        self.files[index].handle()
    }

    /// Opens a backend on the files.
    ///
    /// # Errors
    /// `Uring`, where a ring is required or tuned and the system refuses it; `Io`; `Config` where memory is not
    /// addressable.
    pub fn load(&self, setup: &Setup) -> Result<Load<'_>, Error> {
        let volumes = self.files.len() as u64;
        let arena = Arc::new(Arena::with_pages(setup.memory_bytes * volumes, setup.huge_pages)?);
        fill(&arena);
        let dirs = self.files.iter().map(|file| file.dir().to_path_buf()).collect();
        let config = Config { queue_depth: setup.depth_max, backend: setup.backend, ..Config::new(dirs, 0) };
        let waker = Waker::new().map_err(|e| self.failed("making an eventfd", e))?;
        let is_usual = setup.is_registered && setup.polling == Polling::Off;
        let (io, backend, notices): (Box<dyn Io>, _, _) = if is_usual {
            let opened = crate::io::open(&config, &self.files, Arc::clone(&arena), waker)?;
            (opened.io, opened.backend, opened.notices)
        } else {
            let tuning = Tuning { polling: setup.polling, ..Tuning::default() };
            let tuning = if setup.is_registered { tuning } else { Tuning { piece_bytes: None, ..tuning } };
            let depth = config.queue_depth * volumes as u32;
            let (uring, notices) = Uring::tuned(&self.files, Arc::clone(&arena), depth, waker.clone(), tuning)?;
            let io = WithHashing::new(uring, Arc::clone(&arena), config.checksum_threads, waker)?;
            (Box::new(io), Backend::Uring, notices)
        };
        Ok(Load {
            ground: self,
            arena,
            io,
            backend,
            notices,
            depth_max: setup.depth_max,
            memory_bytes: setup.memory_bytes,
        })
    }

    fn failed(&self, doing: &'static str, source: std::io::Error) -> Error {
        let path = self.files.first().map_or_else(PathBuf::new, |file| file.dir().to_path_buf());
        Error::Io { doing, path, offset: 0, bytes: self.bytes, source: Arc::new(source) }
    }
}

/// What a file of the ground is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Facts {
    /// Transfers go past the page cache.
    pub is_direct: bool,
    /// Bytes that memory, offsets and lengths are aligned to.
    pub alignment: u32,
    /// What the user should know of it.
    pub notice: Option<String>,
}

/// What a load's backend is made of. The default is what stores use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Setup {
    /// Which backend.
    pub backend: Backend,
    /// Transfers in flight a directory, at most.
    pub depth_max: u32,
    /// Bytes of memory for the transfers of a directory.
    pub memory_bytes: u64,
    /// The memory lies in huge pages, as far as the system gives them.
    pub huge_pages: bool,
    /// The memory is registered with the ring.
    pub is_registered: bool,
    /// Who polls; of a ring alone.
    pub polling: Polling,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup {
            backend: Backend::Auto,
            depth_max: 64,
            memory_bytes: 64 << 20,
            huge_pages: true,
            is_registered: true,
            polling: Polling::Off,
        }
    }
}

/// A pattern of transfers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cell {
    /// Transfers of a hundred that read.
    pub reads: u32,
    /// At random places, else from the beginning on and around, reads and writes each for themselves.
    pub is_random: bool,
    /// Bytes of a transfer, a multiple of [`UNIT_BYTES`].
    pub block_bytes: u32,
    /// Transfers in flight a directory.
    pub depth: u32,
    /// Each transfer's checksums are computed, before a write and after a read, as stores do it.
    pub has_checksums: bool,
}

/// A transfer that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Done {
    /// It was a write.
    pub is_write: bool,
    /// Its bytes.
    pub bytes: u32,
    /// From its submission to the engine's sight of its end, checksums apart.
    pub latency: Duration,
    /// When it ended, from the beginning of the cell.
    pub at: Duration,
}

/// What moved.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Moved {
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Seconds, from the first submission to the last completion.
    pub seconds: f64,
    /// Seconds that all threads of the process spent on cores meanwhile.
    pub cpu_seconds: f64,
}

impl Moved {
    /// Bytes in both directions.
    pub fn bytes(&self) -> u64 {
        self.read_bytes + self.write_bytes
    }

    /// Bytes a second, both directions.
    pub fn rate(&self) -> f64 {
        self.bytes() as f64 / self.seconds.max(1e-9)
    }
}

/// Who gets to see the bytes of transfers, to take them further.
pub trait Visit {
    /// Fills what is about to be written.
    fn before_write(&mut self, bytes: &mut [u8]);
    /// Sees what was read.
    fn after_read(&mut self, bytes: &[u8]);
}

/// Nobody looks.
impl Visit for () {
    fn before_write(&mut self, _bytes: &mut [u8]) {}

    fn after_read(&mut self, _bytes: &[u8]) {}
}

/// A backend on the ground. Used by the thread that opened it.
pub struct Load<'a> {
    ground: &'a Ground,
    arena: Arc<Arena>,
    io: Box<dyn Io>,
    backend: Backend,
    notices: Vec<String>,
    depth_max: u32,
    memory_bytes: u64,
}

/// What a frame is used for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    HashThenWrite,
    Write,
    ReadThenHash,
    Hash,
}

/// A frame in use.
#[derive(Clone, Copy)]
struct Slot {
    stage: Stage,
    offset: u64,
    since: Instant,
    is_write: bool,
}

/// A transfer to come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Turn {
    /// It writes.
    pub is_write: bool,
    /// Byte offset in the file.
    pub offset: u64,
}

/// The order of a cell's transfers on one file: of every hundred in a row as many reads as the cell says, evenly
/// spread; from the beginning on and around, writes half a file away from reads, or at random places.
#[derive(Clone, Debug)]
pub struct Order {
    cell: Cell,
    blocks: u64,
    turns: u64,
    read: u64,
    write: u64,
    random: u64,
}

impl Order {
    /// On a file of `bytes`, which has room for two blocks. Another seed gives other random places.
    pub fn new(cell: &Cell, bytes: u64, seed: u64) -> Order {
        let blocks = bytes / u64::from(cell.block_bytes);
        // Files that are only written are written from their beginning on.
        let write = if cell.reads == 0 { 0 } else { blocks / 2 };
        Order { cell: *cell, blocks, turns: 0, read: 0, write, random: mix(seed + 1) }
    }

    /// The next transfer.
    pub fn turn(&mut self) -> Turn {
        let reads = u64::from(self.cell.reads);
        let is_write = (self.turns + 1) * reads / 100 == self.turns * reads / 100;
        self.turns += 1;
        let block = if self.cell.is_random {
            self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
            mix(self.random) % self.blocks
        } else {
            let place = if is_write { &mut self.write } else { &mut self.read };
            *place += 1;
            (*place - 1) % self.blocks
        };
        Turn { is_write, offset: block * u64::from(self.cell.block_bytes) }
    }
}

impl Load<'_> {
    /// Address and length of the memory that transfers lie in, for whoever registers it elsewhere too.
    pub fn memory(&self) -> (usize, usize) {
        (self.arena.base().expose_provenance(), self.arena.bytes() as usize)
    }

    /// Which backend it is: `Uring` or `Pool`.
    pub fn backend(&self) -> Backend {
        self.backend
    }

    /// What the user should know of the backend.
    pub fn notices(&self) -> &[String] {
        &self.notices
    }

    /// Moves transfers until `is_over` says so, of the bytes submitted so far and the time; those under way are ended.
    /// `each` hears of every transfer.
    ///
    /// # Errors
    /// `Io`, also for a transfer that moved less than it was asked for; `Config` for a cell that the ground, the memory
    /// or the depth is too small for.
    pub fn run(
        &mut self,
        cell: &Cell,
        is_over: impl FnMut(u64, Duration) -> bool,
        each: impl FnMut(Done),
    ) -> Result<Moved, Error> {
        self.run_visited(cell, is_over, each, &mut ())
    }

    /// The same, with somebody who sees the bytes; what he does with them is part of the time, of the latency not.
    ///
    /// # Errors
    /// As [`Load::run`].
    pub fn run_visited(
        &mut self,
        cell: &Cell,
        mut is_over: impl FnMut(u64, Duration) -> bool,
        mut each: impl FnMut(Done),
        visitor: &mut dyn Visit,
    ) -> Result<Moved, Error> {
        self.check(cell)?;
        let (start, cpu) = (Instant::now(), cpu_seconds());
        let volumes = self.ground.files.len() as u32;
        let frames = cell.depth * volumes;
        // The last is taken first: volumes take turns.
        let mut free: Vec<u32> = (0..frames).rev().collect();
        let idle = Slot { stage: Stage::Hash, offset: 0, since: start, is_write: false };
        let mut slots = vec![idle; frames as usize];
        let order = |volume: u32| Order::new(cell, self.ground.bytes, volume.into());
        let mut orders: Vec<Order> = (0..volumes).map(order).collect();
        let (mut in_flight, mut submitted) = (0, 0);
        let (mut moved, mut completions) = (Moved::default(), Vec::new());
        loop {
            while !free.is_empty() && !is_over(submitted, start.elapsed()) {
                let frame = free.pop().expect("not empty");
                let slot = first_slot(cell, orders[(frame % volumes) as usize].turn());
                slots[frame as usize] = slot;
                if slot.is_write {
                    let mut bytes = FrameMut::new(place(cell, frame), cell.block_bytes);
                    visitor.before_write(self.arena.slice_mut(&mut bytes));
                }
                self.begin(cell, frame, slot)?;
                in_flight += 1;
                submitted += u64::from(cell.block_bytes);
            }
            if in_flight == 0 {
                break;
            }
            self.wait(&mut completions)?;
            let now = Instant::now();
            for mut completion in completions.drain(..) {
                let frame = completion.id.0 as u32;
                let slot = &mut slots[frame as usize];
                self.ground.check(&completion, cell.block_bytes)?;
                let is_transfer = matches!(slot.stage, Stage::Write | Stage::ReadThenHash);
                if is_transfer {
                    let (bytes, is_write) = (cell.block_bytes, slot.is_write);
                    *(if is_write { &mut moved.write_bytes } else { &mut moved.read_bytes }) += u64::from(bytes);
                    each(Done { is_write, bytes, latency: now - slot.since, at: now - start });
                }
                if let Op::Read { into, .. } = &mut completion.op {
                    visitor.after_read(self.arena.slice_mut(into));
                }
                match slot.stage {
                    Stage::HashThenWrite => {
                        (slot.stage, slot.since) = (Stage::Write, now);
                        let op = self.transfer(cell, frame, *slot);
                        self.submit(frame, op)?;
                    }
                    Stage::ReadThenHash if cell.has_checksums => {
                        slot.stage = Stage::Hash;
                        self.submit(frame, hash(cell, frame))?;
                    }
                    Stage::Write | Stage::Hash | Stage::ReadThenHash => {
                        free.push(frame);
                        in_flight -= 1;
                    }
                }
            }
        }
        moved.seconds = start.elapsed().as_secs_f64();
        moved.cpu_seconds = cpu_seconds() - cpu;
        Ok(moved)
    }

    /// Time of a write of `bytes` at the beginning of each file and of making them durable.
    ///
    /// # Errors
    /// `Io`.
    pub fn write_and_sync(&mut self, bytes: u32) -> Result<Duration, Error> {
        let start = Instant::now();
        let volumes = self.ground.files.len() as u32;
        for is_sync in [false, true] {
            for volume in 0..volumes {
                let from = FrameRef::new(u64::from(volume) * u64::from(bytes), bytes);
                let write = Op::Write { volume: volume as u16, offset: 0, from };
                self.submit(volume, if is_sync { Op::Sync { volume: volume as u16 } } else { write })?;
            }
            let (mut ended, mut completions) = (0, Vec::new());
            while ended < volumes {
                self.wait(&mut completions)?;
                for completion in completions.drain(..) {
                    self.ground.check(&completion, bytes)?;
                    ended += 1;
                }
            }
        }
        Ok(start.elapsed())
    }

    fn check(&self, cell: &Cell) -> Result<(), Error> {
        let refuse = |what: String| Err(Error::Config { what });
        let bytes = u64::from(cell.block_bytes);
        if cell.block_bytes == 0 || !cell.block_bytes.is_multiple_of(UNIT_BYTES) {
            return refuse(format!("block: expected a multiple of {UNIT_BYTES} bytes, found {bytes}"));
        }
        if cell.depth == 0 || cell.depth > self.depth_max {
            return refuse(format!("depth: expected 1 to {}, found {}", self.depth_max, cell.depth));
        }
        if u64::from(cell.depth) * bytes > self.memory_bytes {
            return refuse(format!("{} transfers of {bytes} bytes exceed {} bytes", cell.depth, self.memory_bytes));
        }
        if self.ground.bytes / bytes < 2 {
            return refuse(format!("block: {bytes} bytes are too large for a file of {}", self.ground.bytes));
        }
        Ok(())
    }

    fn begin(&mut self, cell: &Cell, frame: u32, slot: Slot) -> Result<(), Error> {
        let op = match slot.stage {
            Stage::HashThenWrite => hash(cell, frame),
            _ => self.transfer(cell, frame, slot),
        };
        self.submit(frame, op)
    }

    fn transfer(&self, cell: &Cell, frame: u32, slot: Slot) -> Op {
        let (volume, bytes) = ((frame as usize % self.ground.files.len()) as u16, cell.block_bytes);
        match slot.is_write {
            true => Op::Write { volume, offset: slot.offset, from: FrameRef::new(place(cell, frame), bytes) },
            false => Op::Read { volume, offset: slot.offset, into: FrameMut::new(place(cell, frame), bytes) },
        }
    }

    fn submit(&mut self, frame: u32, op: Op) -> Result<(), Error> {
        let full = || std::io::Error::other("the backend takes fewer operations than it was made for");
        self.io.submit(OpId(u64::from(frame)), op).map_err(|_| self.ground.failed("measuring", full()))
    }

    /// Waits for at least one completion.
    fn wait(&mut self, completions: &mut Vec<Completion>) -> Result<(), Error> {
        let waiting = Instant::now();
        while completions.is_empty() {
            self.io.poll(completions, Some(PATIENCE)).map_err(|e| self.ground.failed("measuring", e))?;
            if completions.is_empty() && waiting.elapsed() >= PATIENCE {
                let late = std::io::Error::new(std::io::ErrorKind::TimedOut, "no transfer ended in a minute");
                return Err(self.ground.failed("measuring", late));
            }
        }
        Ok(())
    }
}

impl Ground {
    /// Refuses a completion that failed or moved less than it was asked for.
    fn check(&self, completion: &Completion, bytes: u32) -> Result<(), Error> {
        let (volume, doing, offset) = match completion.op {
            Op::Read { volume, offset, .. } => (volume, "reading", offset),
            Op::Write { volume, offset, .. } => (volume, "writing", offset),
            Op::Sync { volume } => (volume, "syncing", 0),
            Op::Hash { .. } => return Ok(()),
        };
        let source = match &completion.result {
            Ok(moved) if *moved == bytes || matches!(completion.op, Op::Sync { .. }) => return Ok(()),
            Ok(moved) => std::io::Error::other(format!("{moved} bytes moved of {bytes}")),
            Err(e) => e.raw_os_error().map_or_else(|| std::io::Error::other(e.to_string()), from_code),
        };
        let path = self.files[usize::from(volume)].dir().to_path_buf();
        Err(Error::Io { doing, path, offset, bytes: bytes.into(), source: Arc::new(source) })
    }
}

fn from_code(code: i32) -> std::io::Error {
    std::io::Error::from_raw_os_error(code)
}

/// What is done first for a transfer.
fn first_slot(cell: &Cell, turn: Turn) -> Slot {
    let stage = match (turn.is_write, cell.has_checksums) {
        (true, true) => Stage::HashThenWrite,
        (true, false) => Stage::Write,
        (false, _) => Stage::ReadThenHash,
    };
    Slot { stage, offset: turn.offset, since: Instant::now(), is_write: turn.is_write }
}

/// Fills the arena with numbers that no drive can shrink.
fn fill(arena: &Arena) {
    let mut number = 1u64;
    let bytes = arena.bytes();
    for offset in (0..bytes).step_by(FILL_BYTES as usize) {
        let mut frame = FrameMut::new(offset, FILL_BYTES.min(bytes - offset) as u32);
        for word in arena.slice_mut(&mut frame).as_chunks_mut::<8>().0 {
            number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
            *word = mix(number).to_le_bytes();
        }
    }
}

/// A well mixed function of a counter.
fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// Arena offset of a frame.
fn place(cell: &Cell, frame: u32) -> u64 {
    u64::from(frame) * u64::from(cell.block_bytes)
}

fn hash(cell: &Cell, frame: u32) -> Op {
    let page_bytes = if cell.block_bytes.is_multiple_of(PAGE_BYTES) { PAGE_BYTES } else { UNIT_BYTES };
    let from = FrameRef::new(place(cell, frame), cell.block_bytes);
    Op::Hash { from, page_bytes, digests: Vec::new() }
}

/// Memory as the engine's arena is made: huge pages where the system has them. For what is measured beside transfers.
pub struct Memory {
    arena: Arena,
    frame: FrameMut,
}

impl Memory {
    /// `bytes` zero bytes.
    ///
    /// # Errors
    /// `Io`.
    pub fn new(bytes: u32) -> Result<Memory, Error> {
        let arena = Arena::new(bytes.into())?;
        Ok(Memory { arena, frame: FrameMut::new(0, bytes) })
    }

    /// Its bytes.
    pub fn bytes(&mut self) -> &mut [u8] {
        self.arena.slice_mut(&mut self.frame)
    }
}

/// Why the system refuses a ring; `None`: it allows one.
pub fn ring_refusal() -> Option<String> {
    ring(u64::from(UNIT_BYTES)).err().map(|error| error.to_string())
}

/// Whether `bytes` of memory can be registered with a ring.
pub fn registers(bytes: u64) -> bool {
    ring(bytes).is_ok_and(|notices| notices.is_empty())
}

/// Makes a ring with an arena; what it has to say.
fn ring(bytes: u64) -> Result<Vec<String>, Error> {
    let refused = |e: std::io::Error| Error::Uring { what: format!("making an eventfd: {e}") };
    let waker = Waker::new().map_err(refused)?;
    Uring::new(&[], Arc::new(Arena::new(bytes)?), 1, waker).map(|(_, notices)| notices)
}

/// Seconds that all threads of this process have spent on cores.
pub fn cpu_seconds() -> f64 {
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    spent.tv_sec as f64 + spent.tv_nsec as f64 / 1e9
}

#[cfg(test)]
mod tests;
