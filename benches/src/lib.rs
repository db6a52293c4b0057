//! What the benchmark of transfers is made of: the engine under load, fio under the same load, and what may be said of
//! two that were measured in turns.

pub mod fio;
pub mod huge_pages;
pub mod load;
pub mod pairs;

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
}

/// What one measurement found.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sample {
    /// Bytes moved in either direction.
    pub bytes: u64,
    /// Seconds that it took.
    pub seconds: f64,
    /// Seconds that all threads of the process spent on processors, in the system's code too.
    pub cpu_seconds: f64,
}

impl Sample {
    /// Bytes a second.
    pub fn rate(&self) -> f64 {
        self.bytes as f64 / self.seconds
    }

    /// Processor seconds for 10^9 bytes.
    pub fn cpu_seconds_per_gb(&self) -> f64 {
        self.cpu_seconds / (self.bytes as f64 / 1e9)
    }
}
