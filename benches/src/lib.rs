//! What the benchmark of transfers is made of: the engine under load, and what its ratio to fio, measured in turns,
//! shows. fio itself is [`mt_tools::peer`]'s.

use mt_engine::bench::Cell;

pub mod load;
pub mod verdict;

/// What is moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Committed pages are read.
    Read,
    /// Pages are written to their spare extents.
    Write,
    /// As many bytes are read as are written.
    Mixed,
}

impl Mode {
    /// All modes, in the order in which they are measured.
    pub const ALL: [Mode; 3] = [Mode::Read, Mode::Write, Mode::Mixed];

    /// For output.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Read => "read",
            Mode::Write => "write",
            Mode::Mixed => "mixed",
        }
    }

    /// The same for fio: transfers of 1 MiB in order, 32 in flight.
    pub fn cell(self) -> Cell {
        let reads = match self {
            Mode::Read => 100,
            Mode::Write => 0,
            Mode::Mixed => 50,
        };
        Cell { reads, is_random: false, block_bytes: 1 << 20, depth: 32, has_checksums: false }
    }
}
