//! The processor: a pool of threads that every kernel takes as its first argument.

/// Threads and detected instruction sets.
pub struct Cpu { /* rayon::ThreadPool of exactly `threads` threads */ }
impl Cpu {
    /// A pool of `threads` threads (at least 1).
    pub fn new(threads: usize) -> Cpu { let _ = threads; todo!() }
    /// Number of threads.
    pub fn threads(&self) -> usize { todo!() }
}
