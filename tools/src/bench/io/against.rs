//! The engine and fio on the same file with the same parameters, in turns.

use super::disk::{Disk, failed, rw, usual};
use super::fio::{self, HugePages};
use super::options::{USUAL_BLOCK, USUAL_DEPTH};
use super::ratio::ratio;
use super::report::Against;
use super::summary::Summary;
use super::watch::Watch;
use crate::failure::Failure;
use mt_engine::Backend;
use mt_engine::bench::{Cell, Setup};
use std::time::Duration;

/// Pairs of a pattern.
pub const PAIRS: usize = 15;

/// Patterns that are compared where none is asked for.
pub fn usual_cells() -> Vec<Cell> {
    [100, 0, 50].map(usual).to_vec()
}

/// Alternates the engine with fio on the first place's file, which is full.
///
/// # Errors
/// fio cannot be run; the engine's; a stop.
pub fn measure(disk: &Disk<'_>, cells: &[Cell], time: Duration, watch: &Watch) -> Result<Vec<Against>, Failure> {
    let program = fio::version().map_err(|why| Failure::input(format!("--against fio: {why}")))?;
    cells.iter().map(|cell| pairs(disk, cell, time, &program, watch)).collect()
}

fn pairs(disk: &Disk<'_>, cell: &Cell, time: Duration, program: &str, watch: &Watch) -> Result<Against, Failure> {
    let memory_bytes = (u64::from(cell.block_bytes) * u64::from(cell.depth)).max(u64::from(USUAL_BLOCK * USUAL_DEPTH));
    let depth_max = cell.depth.max(USUAL_DEPTH);
    let ground = disk.ground();
    let mut load =
        ground.load(&Setup { backend: Backend::Uring, depth_max, memory_bytes, ..Setup::default() }).map_err(failed)?;
    let file = ground.handle(0).map_err(|e| Failure::new(format!("a handle of the file: {e}"), 4))?;
    let pages = HugePages::reserve(memory_bytes);
    if let Err(why) = &pages {
        watch.say(format_args!("fio's buffers lie in pages of 4 KiB, which is slower: {why}"));
    }
    let mut rates = Vec::with_capacity(PAIRS);
    for pair in 0..PAIRS {
        watch.part(format!("{} against fio, pair {} of {PAIRS}", rw(cell), pair + 1));
        let mut engine = || {
            let moved = load.run(cell, |_, elapsed| elapsed >= time || watch.is_stopped(), |_| ()).map_err(failed)?;
            watch.wrote(moved.write_bytes);
            watch.go_on()?;
            Ok::<f64, Failure>(moved.rate())
        };
        let peer = || {
            let rate = fio::measure(cell, &file, ground.bytes(), time, pages.is_ok());
            rate.map_err(|why| Failure::new(why, 4))
        };
        let (first, second) = if pair % 2 == 0 {
            let engine = engine()?;
            (engine, peer()?)
        } else {
            let peer = peer()?;
            (engine()?, peer)
        };
        watch.wrote((second * time.as_secs_f64() * f64::from(100 - cell.reads) / 100.0) as u64);
        rates.push((first, second));
    }
    let (ratio, low, high) = ratio(&rates);
    let median = |of: fn(&(f64, f64)) -> f64| Summary::of(rates.iter().map(of).collect()).median;
    Ok(Against {
        rw: rw(cell),
        program: program.to_owned(),
        pairs: rates.len(),
        seconds: time.as_secs_f64(),
        ratio,
        low,
        high,
        engine_bytes_per_s: median(|pair| pair.0),
        fio_bytes_per_s: median(|pair| pair.1),
        huge_pages: pages.is_ok(),
    })
}
