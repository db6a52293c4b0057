//! What is measured beside transfers: memory as the engine has it, what the system allows, time on cores.

use super::order::UNIT_BYTES;
use crate::arena::Arena;
use crate::error::Error;
use crate::io::uring::Uring;
use crate::io::{FrameMut, Waker};
use rustix::time::{ClockId, clock_gettime};
use std::sync::Arc;

/// Memory as the engine's arena is made: huge pages where the system has them. For what is measured beside transfers.
pub struct Memory {
    arena: Arena,
    frame: FrameMut,
}

impl Memory {
    /// `bytes` zero bytes.
    ///
    /// # Errors
    /// `Io`.
    pub fn new(bytes: u32) -> Result<Memory, Error> {
        let arena = Arena::new(bytes.into())?;
        Ok(Memory { arena, frame: FrameMut::new(0, bytes) })
    }

    /// Its bytes.
    pub fn bytes(&mut self) -> &mut [u8] {
        self.arena.slice_mut(&mut self.frame)
    }
}

/// Why the system refuses a ring; `None`: it allows one.
pub fn ring_refusal() -> Option<String> {
    ring(u64::from(UNIT_BYTES)).err().map(|error| error.to_string())
}

/// Whether `bytes` of memory can be registered with a ring.
pub fn registers(bytes: u64) -> bool {
    ring(bytes).is_ok_and(|notices| notices.is_empty())
}

/// Makes a ring with an arena; what it has to say.
fn ring(bytes: u64) -> Result<Vec<String>, Error> {
    let refused = |e: std::io::Error| Error::Uring { what: format!("making an eventfd: {e}") };
    let waker = Waker::new().map_err(refused)?;
    Uring::new(&[], Arc::new(Arena::new(bytes)?), 1, waker).map(|(_, notices)| notices)
}

/// Seconds that all threads of this process have spent on cores.
pub fn cpu_seconds() -> f64 {
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    spent.tv_sec as f64 + spent.tv_nsec as f64 / 1e9
}
