//! Measures a directory's disk in a moment, through the engine's own backend: overwriting, reading, and both at once.
//!
//! It writes only inside a file of its own that has no name any more when the first byte is written, so it goes away
//! however the process ends. It is a first estimate, not a benchmark: a drive's cache may be larger than the probe.

use crate::arena::Arena;
use crate::config::Config;
use crate::error::Error;
use crate::io::file::VolumeFile;
use crate::io::{FrameMut, FrameRef, Io, Op, OpId, Waker};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const FILE_NAME: &str = "probe.mt";
const TRANSFER_BYTES: u32 = 1 << 20;
/// Transfers in flight.
const DEPTH: u32 = 32;
/// Longest wait for a completion before the disk counts as broken.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a disk moved in a second.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct DiskRates {
    /// Reading alone.
    pub read_bytes_per_s: f64,
    /// Overwriting alone.
    pub write_bytes_per_s: f64,
    /// Both at once in equal parts, sum of both directions.
    pub mixed_bytes_per_s: f64,
}

/// Measures the disk of `dir` with `bytes` of its space, which must be free; they are moved four times.
///
/// # Errors
/// `NoSpace`, `Io`.
pub fn disk(dir: &Path, bytes: u64) -> Result<DiskRates, Error> {
    let config = Config { checksum_threads: 0, queue_depth: DEPTH, ..Config::new(vec![dir.to_path_buf()], 0) };
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
    let mut io = crate::io::open(&config, &files, arena, waker)?.io;
    let transfers = (bytes / u64::from(TRANSFER_BYTES)).max(1);
    let mut rate = |is_write: &dyn Fn(u64) -> bool| {
        let seconds = pass(&mut *io, transfers, is_write).map_err(|e| failed("measuring", e))?;
        Ok((transfers * u64::from(TRANSFER_BYTES)) as f64 / seconds)
    };
    // The first write into reserved space converts extents, which no later write has to do.
    rate(&|_| true)?;
    Ok(DiskRates {
        write_bytes_per_s: rate(&|_| true)?,
        read_bytes_per_s: rate(&|_| false)?,
        mixed_bytes_per_s: rate(&|n| n % 2 == 0)?,
    })
}

/// Moves every transfer of the file once; returns the seconds it took.
fn pass(io: &mut dyn Io, transfers: u64, is_write: &dyn Fn(u64) -> bool) -> std::io::Result<f64> {
    let start = Instant::now();
    let mut free: Vec<u32> = (0..DEPTH).collect();
    let (mut next, mut done) = (0, 0);
    let mut completions = Vec::new();
    while done < transfers {
        while next < transfers
            && let Some(frame) = free.pop()
        {
            let (at, offset) = (u64::from(frame) * u64::from(TRANSFER_BYTES), next * u64::from(TRANSFER_BYTES));
            let op = if is_write(next) {
                Op::Write { volume: 0, offset, from: FrameRef::new(at, TRANSFER_BYTES) }
            } else {
                Op::Read { volume: 0, offset, into: FrameMut::new(at, TRANSFER_BYTES) }
            };
            if io.submit(OpId(u64::from(frame)), op).is_err() {
                free.push(frame);
                break;
            }
            next += 1;
        }
        let waiting = Instant::now();
        io.poll(&mut completions, Some(PATIENCE))?;
        if completions.is_empty() && waiting.elapsed() >= PATIENCE {
            return Err(std::io::Error::new(std::io::ErrorKind::TimedOut, "no transfer ended in a minute"));
        }
        for completion in completions.drain(..) {
            completion.result?;
            free.push(completion.id.0 as u32);
            done += 1;
        }
    }
    Ok(start.elapsed().as_secs_f64())
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_disk_is_measured_and_nothing_is_left() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join(super::FILE_NAME), b"left over").expect("write");
        let rates = super::disk(dir.path(), 4 << 20).expect("measured");
        assert!(rates.read_bytes_per_s > 0.0 && rates.write_bytes_per_s > 0.0 && rates.mixed_bytes_per_s > 0.0);
        assert_eq!(std::fs::read_dir(dir.path()).expect("read").count(), 0);
    }
}
