//! The engine and fio on the same file with the same parameters, in turns.

use super::disk::{Disk, failed, rw, usual};
use super::options::{USUAL_BLOCK, USUAL_DEPTH};
use super::report::Against;
use super::watch::Watch;
use crate::bench::peer::{HugePages, Ratio, fio, median};
use crate::failure::Failure;
use mt_engine::bench::{Cell, Moved, Setup};
use mt_engine::{Backend, FileRange};
use std::os::fd::AsRawFd;
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
    // The file has no name; this is the way to it for as long as it is open here.
    let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()).into();
    let range = FileRange { path, offset: 0, bytes: ground.bytes() };
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
            Ok::<Moved, Failure>(moved)
        };
        let peer = || {
            let moved = fio::run(cell, &range, Some(time), pages.is_ok()).map_err(|why| Failure::new(why, 4))?;
            watch.wrote(moved.write_bytes);
            Ok::<Moved, Failure>(moved)
        };
        let (first, second) = if pair % 2 == 0 {
            let engine = engine()?;
            (engine, peer()?)
        } else {
            let peer = peer()?;
            (engine()?, peer)
        };
        rates.push((first.rate(), second.rate()));
    }
    let Ratio { median: ratio, low, high, pairs } = Ratio::of(&rates);
    let middle = |of: fn(&(f64, f64)) -> f64| median(&mut rates.iter().map(of).collect::<Vec<f64>>());
    Ok(Against {
        rw: rw(cell),
        program: program.to_owned(),
        pairs,
        seconds: time.as_secs_f64(),
        ratio,
        low,
        high,
        engine_bytes_per_s: middle(|pair| pair.0),
        fio_bytes_per_s: middle(|pair| pair.1),
        huge_pages: pages.is_ok(),
    })
}
