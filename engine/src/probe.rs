//! Measures a directory's disk in a moment, through the engine's own backend and with its checksums: overwriting,
//! reading, both at once, and what both at once take from a computation beside them.
//!
//! It writes only inside a file of its own that has no name any more when the first byte is written, so it goes away
//! however the process ends. It is a first estimate, not a benchmark: a drive's cache may be larger than the probe.

use crate::arena::Arena;
use crate::config::Config;
use crate::error::Error;
use crate::format::checksum::page_checksum;
use crate::io::file::VolumeFile;
use crate::io::{FrameMut, FrameRef, Io, Op, OpId, Waker};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const FILE_NAME: &str = "probe.mt";
const TRANSFER_BYTES: u32 = 1 << 20;
/// Bytes of a checksum.
const PAGE_BYTES: u32 = 64 << 10;
/// Transfers in flight.
const DEPTH: u32 = 32;
/// Small reads, one at a time.
const SMALL_READS: u64 = 32;
const SMALL_BYTES: u32 = 4096;
/// Longest wait for a completion before the disk counts as broken.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a disk moved in a second, and how soon.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct DiskRates {
    /// Reading alone.
    pub read_bytes_per_s: f64,
    /// Overwriting alone.
    pub write_bytes_per_s: f64,
    /// Both at once in equal parts, sum of both directions.
    pub mixed_bytes_per_s: f64,
    /// Seconds of a read of 4 KiB at depth 1.
    pub latency_s: f64,
}

/// What moved beside a computation.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Moved {
    /// Bytes, both directions together.
    pub bytes: u64,
    /// Seconds.
    pub seconds: f64,
}

/// Measures the disk of `dir` with `bytes` of its space, which must be free; they are moved four times.
///
/// # Errors
/// `NoSpace`, `Io`.
pub fn disk(dir: &Path, bytes: u64) -> Result<DiskRates, Error> {
    let mut probe = Probe::open(dir, bytes)?;
    // The first write into reserved space converts extents, which no later write has to do.
    probe.rate(|_| true)?;
    Ok(DiskRates {
        write_bytes_per_s: probe.rate(|_| true)?,
        read_bytes_per_s: probe.rate(|_| false)?,
        mixed_bytes_per_s: probe.rate(|n| n % 2 == 0)?,
        latency_s: probe.latency()?,
    })
}

/// Reads and writes in equal parts for as long as `work` runs, on another thread. `bytes` as for [`disk`].
///
/// # Errors
/// `NoSpace`, `Io`.
pub fn beside<T: Send>(dir: &Path, bytes: u64, work: impl FnOnce() -> T + Send) -> Result<(T, Moved), Error> {
    let mut probe = Probe::open(dir, bytes)?;
    probe.rate(|_| true)?;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let result = work();
            over.store(true, Ordering::Release);
            result
        });
        let moved = probe.pass(|n| n % 2 == 0, |_| over.load(Ordering::Acquire));
        let result = worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok((result, moved.map_err(|e| probe.failed(e))?))
    })
}

/// Bytes a second of which one thread computes checksums.
pub fn checksum_bytes_per_s() -> f64 {
    const BYTES: usize = 16 << 20;
    let bytes: Vec<u8> = (0..BYTES).map(|n| n as u8).collect();
    let begin = Instant::now();
    for page in bytes.chunks(PAGE_BYTES as usize) {
        std::hint::black_box(page_checksum(page));
    }
    BYTES as f64 / begin.elapsed().as_secs_f64().max(1e-9)
}

/// A nameless file and the backend on it.
struct Probe {
    path: PathBuf,
    transfers: u64,
    io: Box<dyn Io>,
    /// Open as long as the backend may use it.
    _files: [VolumeFile; 1],
}

/// What a frame is used for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    HashThenWrite { offset: u64 },
    Write,
    ReadThenHash,
    Hash,
}

impl Probe {
    fn open(dir: &Path, bytes: u64) -> Result<Probe, Error> {
        let config = Config { queue_depth: DEPTH, ..Config::new(vec![dir.to_path_buf()], 0) };
        let path = dir.join(FILE_NAME);
        let failed = |doing, e| Error::Io { doing, path: path.clone(), offset: 0, bytes, source: Arc::new(e) };
        if let Err(e) = std::fs::remove_file(&path)
            && e.kind() != std::io::ErrorKind::NotFound
        {
            return Err(failed("removing", e));
        }
        let file = VolumeFile::create(dir, FILE_NAME, config.direct_io)?;
        std::fs::remove_file(&path).map_err(|e| failed("removing", e))?;
        file.reserve(0, bytes)?;
        let files = [file];
        let arena = Arc::new(Arena::new(u64::from(DEPTH * TRANSFER_BYTES))?);
        let waker = Waker::new().map_err(|e| failed("making an eventfd", e))?;
        let io = crate::io::open(&config, &files, arena, waker)?.io;
        let transfers = (bytes / u64::from(TRANSFER_BYTES)).max(1);
        Ok(Probe { path, transfers, io, _files: files })
    }

    fn failed(&self, source: std::io::Error) -> Error {
        let bytes = self.transfers * u64::from(TRANSFER_BYTES);
        Error::Io { doing: "measuring", path: self.path.clone(), offset: 0, bytes, source: Arc::new(source) }
    }

    /// Bytes a second of moving the whole file once.
    fn rate(&mut self, is_write: impl Fn(u64) -> bool) -> Result<f64, Error> {
        let transfers = self.transfers;
        let moved = self.pass(is_write, |next| next == transfers).map_err(|e| self.failed(e))?;
        Ok(moved.bytes as f64 / moved.seconds)
    }

    /// Moves transfers, over and over the file, until `is_over` says so of the next one; those under way are ended.
    fn pass(&mut self, is_write: impl Fn(u64) -> bool, is_over: impl Fn(u64) -> bool) -> std::io::Result<Moved> {
        let start = Instant::now();
        let mut free: Vec<u32> = (0..DEPTH).collect();
        let mut stages = [Stage::Hash; DEPTH as usize];
        let (mut next, mut done) = (0, 0);
        let mut completions = Vec::new();
        loop {
            while !is_over(next)
                && let Some(frame) = free.pop()
            {
                let offset = next % self.transfers * u64::from(TRANSFER_BYTES);
                let (stage, op) = match is_write(next) {
                    true => (Stage::HashThenWrite { offset }, hash(frame, Vec::new())),
                    false => {
                        let into = FrameMut::new(place(frame), TRANSFER_BYTES);
                        (Stage::ReadThenHash, Op::Read { volume: 0, offset, into })
                    }
                };
                stages[frame as usize] = stage;
                self.submit(frame, op)?;
                next += 1;
            }
            if done == next {
                break;
            }
            self.wait(&mut completions)?;
            for completion in completions.drain(..) {
                completion.result?;
                let frame = completion.id.0 as u32;
                match stages[frame as usize] {
                    Stage::HashThenWrite { offset } => {
                        stages[frame as usize] = Stage::Write;
                        let from = FrameRef::new(place(frame), TRANSFER_BYTES);
                        self.submit(frame, Op::Write { volume: 0, offset, from })?;
                    }
                    Stage::ReadThenHash => {
                        stages[frame as usize] = Stage::Hash;
                        self.submit(frame, hash(frame, Vec::new()))?;
                    }
                    Stage::Write | Stage::Hash => {
                        free.push(frame);
                        done += 1;
                    }
                }
            }
        }
        Ok(Moved { bytes: done * u64::from(TRANSFER_BYTES), seconds: start.elapsed().as_secs_f64() })
    }

    /// Seconds of a small read.
    fn latency(&mut self) -> Result<f64, Error> {
        let start = Instant::now();
        let mut completions = Vec::new();
        for n in 0..SMALL_READS {
            let offset = n * 7 % self.transfers * u64::from(TRANSFER_BYTES);
            let into = FrameMut::new(place(0), SMALL_BYTES);
            let read = self.submit(0, Op::Read { volume: 0, offset, into }).and_then(|()| self.wait(&mut completions));
            read.map_err(|e| self.failed(e))?;
            for completion in completions.drain(..) {
                completion.result.map_err(|e| self.failed(e))?;
            }
        }
        Ok(start.elapsed().as_secs_f64() / SMALL_READS as f64)
    }

    fn submit(&mut self, frame: u32, op: Op) -> std::io::Result<()> {
        let full = |_| std::io::Error::other("the backend takes fewer operations than it was made for");
        self.io.submit(OpId(u64::from(frame)), op).map_err(full)
    }

    /// Waits for at least one completion.
    fn wait(&mut self, completions: &mut Vec<crate::io::Completion>) -> std::io::Result<()> {
        let waiting = Instant::now();
        while completions.is_empty() {
            self.io.poll(completions, Some(PATIENCE))?;
            if completions.is_empty() && waiting.elapsed() >= PATIENCE {
                return Err(std::io::Error::new(std::io::ErrorKind::TimedOut, "no transfer ended in a minute"));
            }
        }
        Ok(())
    }
}

/// Arena offset of a frame.
fn place(frame: u32) -> u64 {
    u64::from(frame) * u64::from(TRANSFER_BYTES)
}

fn hash(frame: u32, digests: Vec<u64>) -> Op {
    Op::Hash { from: FrameRef::new(place(frame), TRANSFER_BYTES), page_bytes: PAGE_BYTES, digests }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_measured_and_nothing_is_left() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join(FILE_NAME), b"left over").expect("write");
        let rates = disk(dir.path(), 4 << 20).expect("measured");
        assert!(rates.read_bytes_per_s > 0.0 && rates.write_bytes_per_s > 0.0 && rates.mixed_bytes_per_s > 0.0);
        assert!(rates.latency_s > 0.0 && checksum_bytes_per_s() > 0.0);
        assert_eq!(std::fs::read_dir(dir.path()).expect("read").count(), 0);
    }

    #[test]
    fn bytes_move_beside_a_computation_until_it_ends() {
        let dir = tempfile::tempdir().expect("a directory");
        let work = || (0..2_000_000_u64).fold(0, |sum: u64, n| sum.wrapping_mul(31).wrapping_add(n));
        let (result, moved) = beside(dir.path(), 4 << 20, work).expect("measured");
        assert_eq!(result, work());
        assert!(moved.bytes.is_multiple_of(1 << 20) && moved.seconds > 0.0);
    }
}
