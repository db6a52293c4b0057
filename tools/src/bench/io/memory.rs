//! Memory and cores: copying by threads, the update of pages alone and beside the drive's traffic, checksums.

use super::disk::{failed, usual};
use super::options::{Effort, REPEATS, USUAL_BLOCK, USUAL_DEPTH, repeated};
use super::summary::Summary;
use super::watch::Watch;
use crate::failure::Failure;
use mt_engine::bench::{Cell, Ground, Setup};
use mt_engine::probe;
use mt_trainer::measure::updates::Updates;
use serde::{Deserialize, Serialize};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Bytes that each thread copies at a time: more than caches hold.
const COPY_BYTES: usize = 64 << 20;

/// Rates of memory and cores.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Memory {
    /// Copying by so many threads, each from memory of its own to memory of its own.
    pub copies: Vec<Copy>,
    /// Threads of the update.
    pub update_threads: u32,
    /// AdamW on split weights, elements a second; an element is 32 bytes read and written.
    pub update_elements_per_s: Summary,
    /// The same while the first path is read and written as a run does it.
    pub update_beside_disk_elements_per_s: Summary,
    /// What the path moved meanwhile, bytes a second.
    pub disk_beside_update_bytes_per_s: Summary,
    /// Checksums by one thread, bytes a second.
    pub checksum_bytes_per_s: Summary,
}

/// Copying by so many threads.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Copy {
    /// Threads.
    pub threads: u32,
    /// Bytes copied a second, each counted once though it is read and written.
    pub bytes_per_s: Summary,
}

impl Memory {
    /// The most that any number of threads copies.
    pub fn copy_max(&self) -> f64 {
        self.copies.iter().map(|copy| copy.bytes_per_s.median).fold(0.0, f64::max)
    }
}

/// Measures with up to so many threads, beside traffic on the ground.
///
/// # Errors
/// The engine's; threads that do not start; a stop.
pub fn measure(threads: u32, ground: &Ground, effort: &Effort, watch: &Watch) -> Result<Memory, Failure> {
    let mut copies = Vec::new();
    for threads in counts(threads) {
        watch.go_on()?;
        let bytes_per_s = repeated(|| Ok::<f64, Failure>(copy(threads, effort.memory)))?;
        copies.push(Copy { threads, bytes_per_s });
    }
    let mut updates = Updates::new(threads)?;
    let (mut alone, mut beside, mut disk) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..REPEATS {
        watch.go_on()?;
        alone.push(updates.elements_per_s(effort.memory));
        let (update, moved) = together(&mut updates, ground, effort.memory, watch)?;
        beside.push(update);
        disk.push(moved);
    }
    Ok(Memory {
        copies,
        update_threads: threads,
        update_elements_per_s: Summary::of(alone),
        update_beside_disk_elements_per_s: Summary::of(beside),
        disk_beside_update_bytes_per_s: Summary::of(disk),
        checksum_bytes_per_s: repeated(|| Ok::<f64, Failure>(probe::checksum_bytes_per_s()))?,
    })
}

/// 1, 2, 4 and so on, and all.
fn counts(threads: u32) -> Vec<u32> {
    let powers = (0..).map(|power| 1 << power).take_while(|count| *count < threads);
    powers.chain([threads]).collect()
}

/// Bytes a second copied by all threads together.
fn copy(threads: u32, time: Duration) -> f64 {
    let ready = Barrier::new(threads as usize);
    let work = || {
        let (from, mut to) = (vec![1_u8; COPY_BYTES], vec![0_u8; COPY_BYTES]);
        // Touched, so that no page is made while it is measured.
        to.copy_from_slice(&from);
        ready.wait();
        let (start, mut bytes) = (Instant::now(), 0);
        while bytes == 0 || start.elapsed() < time {
            to.copy_from_slice(std::hint::black_box(&from));
            std::hint::black_box(&mut to);
            bytes += COPY_BYTES;
        }
        bytes as f64 / start.elapsed().as_secs_f64()
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|thread| thread.join().expect("copying does not panic")).sum()
    })
}

/// Elements a second of the update, and bytes a second of the ground beside it.
fn together(updates: &mut Updates, ground: &Ground, time: Duration, watch: &Watch) -> Result<(f64, f64), Failure> {
    let memory_bytes = u64::from(USUAL_BLOCK * USUAL_DEPTH);
    let setup = Setup { depth_max: USUAL_DEPTH, memory_bytes, ..Setup::default() };
    let cell = Cell { has_checksums: true, ..usual(50) };
    let (over, is_moving) = (AtomicBool::new(false), Barrier::new(2));
    let moved = std::thread::scope(|scope| {
        let traffic = scope.spawn(|| {
            let load = ground.load(&setup);
            is_moving.wait();
            load?.run(&cell, |_, _| over.load(Ordering::Acquire), |_| ())
        });
        is_moving.wait();
        let rate = updates.elements_per_s(time);
        over.store(true, Ordering::Release);
        let moved = traffic.join().expect("transfers do not panic");
        moved.map(|moved| (rate, moved))
    });
    let (rate, moved) = moved.map_err(failed)?;
    watch.wrote(moved.write_bytes);
    Ok((rate, moved.rate()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_doubled_up_to_all() {
        assert_eq!((counts(1), counts(2), counts(12)), (vec![1], vec![1, 2], vec![1, 2, 4, 8, 12]));
    }
}
