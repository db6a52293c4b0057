//! Picks the backend that the configuration asks for and the system allows.

use super::file::VolumeFile;
use super::hash::WithHashing;
use super::pool::Pool;
use super::uring::Uring;
use super::{Io, Waker};
use crate::arena::Arena;
use crate::config::{Backend, Config};
use crate::error::Error;
use std::sync::Arc;

/// Operations in flight over all volumes: a ring's size has a limit in the kernel.
const QUEUE_DEPTH_MAX: u32 = 8192;

/// Threads of the pool a volume; enough to keep a drive busy at transfers of 1 MiB.
const POOL_THREADS_PER_VOLUME: u32 = 16;

/// Threads of the pool in all.
const POOL_THREADS_MAX: u32 = 64;

/// A backend, ready for use.
pub(crate) struct Opened {
    /// With hashing in front of it.
    pub(crate) io: Box<dyn Io>,
    /// Which it is: `Uring` or `Pool`.
    pub(crate) backend: Backend,
    /// What the user should know, a line each.
    pub(crate) notices: Vec<String>,
}

/// Makes the backend for `files`. To be called on the thread that will use it. Without files it only hashes.
///
/// # Errors
/// `Error::Uring` when io_uring is required and cannot be used; `Error::Io` when a thread cannot be started.
pub(crate) fn open(config: &Config, files: &[VolumeFile], arena: Arc<Arena>, waker: Waker) -> Result<Opened, Error> {
    let volumes = files.len() as u32;
    let queue_depth = config.queue_depth.saturating_mul(volumes.max(1)).min(QUEUE_DEPTH_MAX);
    let hashers = config.checksum_threads;
    let mut notices: Vec<String> = files.iter().filter_map(|f| f.notice.clone()).collect();
    if !files.is_empty() && config.backend != Backend::Pool {
        match Uring::new(files, Arc::clone(&arena), queue_depth, waker.clone()) {
            Ok((uring, more)) => {
                notices.extend(more);
                let io = Box::new(WithHashing::new(uring, arena, hashers, waker)?);
                return Ok(Opened { io, backend: Backend::Uring, notices });
            }
            Err(e) if config.backend == Backend::Uring => return Err(e),
            Err(e) => notices.push(format!("{e}; transfers run on a pool of threads instead")),
        }
    }
    let threads = config.queue_depth.min(POOL_THREADS_PER_VOLUME).saturating_mul(volumes).min(POOL_THREADS_MAX);
    let pool = Pool::new(files, Arc::clone(&arena), queue_depth, threads, waker.clone())?;
    Ok(Opened { io: Box::new(WithHashing::new(pool, arena, hashers, waker)?), backend: Backend::Pool, notices })
}
