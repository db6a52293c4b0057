//! A backend on the ground: it moves what a cell says, transfer by transfer, checksums included where they are asked
//! for.

use super::ground::Ground;
use super::host::cpu_seconds;
use super::moved::{Done, Moved, Visit};
use super::order::{Cell, Order, Turn, UNIT_BYTES, mix};
use crate::arena::Arena;
use crate::config::{Backend, Config};
use crate::error::Error;
use crate::io::hash::WithHashing;
use crate::io::uring::{Polling, Tuning, Uring};
use crate::io::{Completion, FrameMut, FrameRef, Io, Op, OpId, Waker};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of a checksum, where a transfer has that many.
const PAGE_BYTES: u32 = 64 << 10;

/// Longest wait for a completion before the disk counts as broken.
const PATIENCE: Duration = Duration::from_secs(60);

/// Largest piece that the memory is filled in.
const FILL_BYTES: u64 = 1 << 30;

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

impl Ground {
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

/// Arena offset of a frame.
fn place(cell: &Cell, frame: u32) -> u64 {
    u64::from(frame) * u64::from(cell.block_bytes)
}

fn hash(cell: &Cell, frame: u32) -> Op {
    let page_bytes = if cell.block_bytes.is_multiple_of(PAGE_BYTES) { PAGE_BYTES } else { UNIT_BYTES };
    let from = FrameRef::new(place(cell, frame), cell.block_bytes);
    Op::Hash { from, page_bytes, digests: Vec::new() }
}
