//! Measures a directory's disk in a moment, through the engine's own backend and with its checksums: overwriting,
//! reading, both at once, and what both at once take from a computation beside them.
//!
//! It writes only inside a nameless file of its own ([`crate::bench`]). It is a first estimate, not a benchmark: a
//! drive's cache may be larger than the probe.

use crate::bench::{Cell, Ground, Load, Moved as Transferred, Setup, UNIT_BYTES};
use crate::error::Error;
use crate::format::checksum::page_checksum;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

const TRANSFER_BYTES: u32 = 1 << 20;
/// Bytes of a checksum.
const PAGE_BYTES: u32 = 64 << 10;
/// Transfers in flight.
const DEPTH: u32 = 32;
/// Small reads, one at a time.
const SMALL_READS: u64 = 32;

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

/// Measures the disk of `dir` with `bytes` of its space, at least 2 MiB, which must be free; they are moved four times.
///
/// # Errors
/// `NoSpace`, `Io`.
pub fn disk(dir: &Path, bytes: u64) -> Result<DiskRates, Error> {
    let ground = Ground::reserve(&[dir.to_path_buf()], bytes)?;
    let mut load = ground.load(&setup())?;
    let mut rate = |reads| once(&mut load, reads, bytes).map(|moved| moved.rate());
    // The first write into reserved space converts extents, which no later write has to do.
    rate(0)?;
    let (write_bytes_per_s, read_bytes_per_s, mixed_bytes_per_s) = (rate(0)?, rate(100)?, rate(50)?);
    let small = Cell { reads: 100, is_random: true, block_bytes: UNIT_BYTES, depth: 1, has_checksums: false };
    let reads = load.run(&small, |submitted, _| submitted >= SMALL_READS * u64::from(UNIT_BYTES), |_| ())?;
    let latency_s = reads.seconds / SMALL_READS as f64;
    Ok(DiskRates { read_bytes_per_s, write_bytes_per_s, mixed_bytes_per_s, latency_s })
}

/// Reads and writes in equal parts for as long as `work` runs, on another thread. `bytes` as for [`disk`].
///
/// # Errors
/// `NoSpace`, `Io`.
pub fn beside<T: Send>(dir: &Path, bytes: u64, work: impl FnOnce() -> T + Send) -> Result<(T, Moved), Error> {
    let ground = Ground::reserve(&[dir.to_path_buf()], bytes)?;
    let mut load = ground.load(&setup())?;
    once(&mut load, 0, bytes)?;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let result = work();
            over.store(true, Ordering::Release);
            result
        });
        let moved = load.run(&cell(50), |_, _| over.load(Ordering::Acquire), |_| ());
        let result = worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        moved.map(|moved| (result, Moved { bytes: moved.bytes(), seconds: moved.seconds }))
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

fn setup() -> Setup {
    Setup { depth_max: DEPTH, memory_bytes: u64::from(DEPTH * TRANSFER_BYTES), ..Setup::default() }
}

fn cell(reads: u32) -> Cell {
    Cell { reads, is_random: false, block_bytes: TRANSFER_BYTES, depth: DEPTH, has_checksums: true }
}

/// Moves as many bytes as the file has.
fn once(load: &mut Load<'_>, reads: u32, bytes: u64) -> Result<Transferred, Error> {
    load.run(&cell(reads), |submitted, _| submitted >= bytes, |_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_measured_and_nothing_is_left() {
        let dir = tempfile::tempdir().expect("a directory");
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
