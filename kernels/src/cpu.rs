//! The processor: a pool of threads that every kernel takes as its first argument.

use crate::simd::Detected;
use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder};
use std::sync::Arc;

/// Threads and detected instruction sets. Clones share the threads.
#[derive(Clone)]
pub struct Cpu {
    pool: Arc<ThreadPool>,
    threads: usize,
    level: Detected,
}

impl Cpu {
    /// A pool of `threads` threads (at least 1).
    ///
    /// # Errors
    /// The operating system refuses to start a thread.
    pub fn new(threads: usize) -> Result<Cpu, ThreadPoolBuildError> {
        Cpu::with_level(threads, Detected::best())
    }

    /// A pool that uses a chosen instruction set.
    pub(crate) fn with_level(threads: usize, level: Detected) -> Result<Cpu, ThreadPoolBuildError> {
        let threads = threads.max(1);
        let pool = ThreadPoolBuilder::new().num_threads(threads).thread_name(|i| format!("compute-{i}")).build()?;
        Ok(Cpu { pool: Arc::new(pool), threads, level })
    }

    /// Number of threads.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// The instruction set of the inner loops.
    pub(crate) fn level(&self) -> Detected {
        self.level
    }

    /// Runs `f` on the pool; parallel iterators inside it use the pool's threads.
    pub(crate) fn install<R: Send>(&self, f: impl FnOnce() -> R + Send) -> R {
        self.pool.install(f)
    }

    /// Runs `work` on the calling thread and on the pool's, as many in all as the pool has but at most `most`; returns
    /// when all are done. `work` shares itself out. The caller begins at once, while the others still wake up.
    pub(crate) fn share(&self, most: usize, work: impl Fn() + Sync) {
        self.pool.in_place_scope(|scope| {
            for _ in 1..self.threads.min(most) {
                scope.spawn(|_| work());
            }
            work();
        });
    }
}
