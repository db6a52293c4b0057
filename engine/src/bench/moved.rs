//! What a cell moved, and who gets to see the bytes.

use std::time::Duration;

/// A transfer that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Done {
    /// It was a write.
    pub is_write: bool,
    /// Its bytes.
    pub bytes: u32,
    /// From its submission to the engine's sight of its end, checksums apart.
    pub latency: Duration,
    /// When it ended, from the beginning of the cell.
    pub at: Duration,
}

/// What moved.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Moved {
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Seconds, from the first submission to the last completion.
    pub seconds: f64,
    /// Seconds that all threads of the process spent on cores meanwhile.
    pub cpu_seconds: f64,
}

impl Moved {
    /// Bytes in both directions.
    pub fn bytes(&self) -> u64 {
        self.read_bytes + self.write_bytes
    }

    /// Bytes a second, both directions.
    pub fn rate(&self) -> f64 {
        self.bytes() as f64 / self.seconds.max(1e-9)
    }
}

/// Who gets to see the bytes of transfers, to take them further.
pub trait Visit {
    /// Fills what is about to be written.
    fn before_write(&mut self, bytes: &mut [u8]);
    /// Sees what was read.
    fn after_read(&mut self, bytes: &[u8]);
}

/// Nobody looks.
impl Visit for () {
    fn before_write(&mut self, _bytes: &mut [u8]) {}

    fn after_read(&mut self, _bytes: &[u8]) {}
}
