//! How much `mt-bench io` measures: three efforts, each a table of sizes, times and patterns.

use super::summary::Summary;
use mt_engine::bench::Cell;
use std::time::Duration;

/// Repeats of every measurement.
pub const REPEATS: usize = 3;

const KIB: u32 = 1 << 10;
const MIB: u32 = 1 << 20;

/// Bytes of the engine's transfers, and how many of them are in flight where bytes a second are what counts.
pub const USUAL_BLOCK: u32 = MIB;
/// See [`USUAL_BLOCK`].
pub const USUAL_DEPTH: u32 = 32;

/// Part of the free space that is taken without asking.
pub const FREE_PART: f64 = 0.2;

/// What is measured, and for how long.
#[derive(Clone, PartialEq, Debug)]
pub struct Effort {
    /// Its name in reports.
    pub name: &'static str,
    /// Bytes of the file, unless they are given; less where less is free.
    pub file_bytes: u64,
    /// Time of one measurement of a pattern.
    pub pattern: Duration,
    /// Time of one measurement of the sweep.
    pub sweep: Duration,
    /// Blocks of the sweep.
    pub blocks: &'static [u32],
    /// Depths of the sweep.
    pub depths: &'static [u32],
    /// Whether the sweep writes too.
    pub sweeps_writes: bool,
    /// The long write ends after this time, or when it has written the file's size.
    pub sustained: Duration,
    /// Writes that are made durable.
    pub syncs: usize,
    /// Time of one measurement of memory.
    pub memory: Duration,
    /// Models that are planned.
    pub shapes: &'static [&'static str],
}

/// `--quick`: less than a minute for one path.
pub const QUICK: Effort = Effort {
    name: "quick",
    file_bytes: 1 << 30,
    pattern: Duration::from_millis(250),
    sweep: Duration::from_millis(150),
    blocks: &[64 * KIB, 256 * KIB, MIB, 4 * MIB],
    depths: &[1, 4, 16, 64],
    sweeps_writes: false,
    sustained: Duration::from_secs(3),
    syncs: 20,
    memory: Duration::from_millis(100),
    shapes: &["7b"],
};

/// Without a flag: two to three minutes for one path.
pub const USUAL: Effort = Effort {
    name: "usual",
    file_bytes: 4 << 30,
    pattern: Duration::from_millis(500),
    sweep: Duration::from_millis(250),
    blocks: &[16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB],
    depths: &[1, 4, 16, 32, 64],
    sweeps_writes: true,
    sustained: Duration::from_secs(20),
    syncs: 50,
    memory: Duration::from_millis(200),
    shapes: &["7b", "70b", "120b"],
};

/// `--full`: about ten minutes for one path.
pub const FULL: Effort = Effort {
    name: "full",
    file_bytes: 16 << 30,
    pattern: Duration::from_secs(3),
    sweep: Duration::from_secs(1),
    blocks: &[4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB],
    depths: &[1, 2, 4, 8, 16, 32, 64, 128],
    sweeps_writes: true,
    sustained: Duration::from_secs(300),
    syncs: 200,
    memory: Duration::from_secs(1),
    shapes: &["7b", "70b", "120b"],
};

/// Most memory that transfers in flight take on a path; patterns beyond it are left out of the sweep.
pub const MEMORY_MAX: u64 = 128 << 20;

/// A pattern with its name.
#[derive(Clone, PartialEq, Debug)]
pub struct Pattern {
    /// For people, and for what looks the pattern up.
    pub name: &'static str,
    /// The pattern.
    pub cell: Cell,
}

/// Names of the patterns that others look up.
pub const READ: &str = "read";
/// Overwriting.
pub const WRITE: &str = "overwrite";
/// As many bytes read as written.
pub const MIXED: &str = "both at once";
/// As a run reads.
pub const READ_CHECKED: &str = "read, with checksums";
/// As a run writes.
pub const WRITE_CHECKED: &str = "overwrite, with checksums";
/// As a run does both.
pub const MIXED_CHECKED: &str = "both at once, with checksums";
/// One small read after the other.
pub const SMALL_READ: &str = "4 KiB reads, one at a time";
/// Into space that is reserved and was never written.
pub const FIRST_WRITE: &str = "first write";

/// The patterns that every effort measures.
pub fn patterns() -> Vec<Pattern> {
    let cell =
        |reads, is_random, block_bytes, depth| Cell { reads, is_random, block_bytes, depth, has_checksums: false };
    let usual = |reads| cell(reads, false, USUAL_BLOCK, USUAL_DEPTH);
    let checked = |reads| Cell { has_checksums: true, ..usual(reads) };
    let list = [
        (READ, usual(100)),
        (WRITE, usual(0)),
        (MIXED, usual(50)),
        (READ_CHECKED, checked(100)),
        (WRITE_CHECKED, checked(0)),
        (MIXED_CHECKED, checked(50)),
        ("pages at random, read", cell(100, true, 256 * KIB, USUAL_DEPTH)),
        ("pages at random, write", cell(0, true, 256 * KIB, USUAL_DEPTH)),
        (SMALL_READ, cell(100, true, 4 * KIB, 1)),
        ("4 KiB reads, 32 at a time", cell(100, true, 4 * KIB, 32)),
    ];
    list.map(|(name, cell)| Pattern { name, cell }).to_vec()
}

impl Effort {
    /// The patterns of the sweep, by direction, block and depth.
    pub fn sweep_cells(&self) -> Vec<Cell> {
        let directions: &[u32] = if self.sweeps_writes { &[100, 0] } else { &[100] };
        let mut cells = Vec::new();
        for &reads in directions {
            for &block_bytes in self.blocks {
                for &depth in self.depths {
                    if u64::from(block_bytes) * u64::from(depth) <= MEMORY_MAX {
                        cells.push(Cell { reads, is_random: false, block_bytes, depth, has_checksums: false });
                    }
                }
            }
        }
        cells
    }

    /// Seconds that a path will take, about.
    pub fn path_seconds(&self) -> f64 {
        let repeats = REPEATS as f64;
        let patterns = (patterns().len() + 9) as f64 * self.pattern.as_secs_f64() * repeats;
        let sweep = self.sweep_cells().len() as f64 * self.sweep.as_secs_f64() * repeats;
        // The file is written once at 1 GB/s, a sync takes some milliseconds, opening a backend a tenth of a second.
        let rest = self.file_bytes as f64 / 1e9 + self.syncs as f64 * 5e-3 + 1.5;
        patterns + sweep + self.sustained.as_secs_f64().min(self.file_bytes as f64 / 1e9) + rest
    }

    /// Seconds of all else, about.
    pub fn rest_seconds(&self, threads: u32) -> f64 {
        let memory = (2 * threads.ilog2() + 6) as f64 * self.memory.as_secs_f64() * REPEATS as f64;
        memory + if self.shapes.len() > 1 { 25.0 } else { 8.0 }
    }
}

/// Measures something several times.
pub fn repeated<E>(mut once: impl FnMut() -> Result<f64, E>) -> Result<Summary, E> {
    (0..REPEATS).map(|_| once()).collect::<Result<Vec<f64>, E>>().map(Summary::of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quick_ends_within_a_minute_and_the_usual_effort_in_about_two() {
        let seconds = |effort: &Effort| effort.path_seconds() + effort.rest_seconds(2);
        assert!(seconds(&QUICK) < 50.0, "{}", seconds(&QUICK));
        assert!((60.0..150.0).contains(&seconds(&USUAL)), "{}", seconds(&USUAL));
        assert!(seconds(&FULL) < 1_200.0, "{}", seconds(&FULL));
    }

    #[test]
    fn nothing_needs_more_memory_than_is_taken() {
        for effort in [&QUICK, &USUAL, &FULL] {
            let cells = effort.sweep_cells().into_iter().chain(patterns().into_iter().map(|pattern| pattern.cell));
            for cell in cells {
                assert!(u64::from(cell.block_bytes) * u64::from(cell.depth) <= MEMORY_MAX, "{cell:?}");
            }
        }
    }
}
