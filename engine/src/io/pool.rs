//! The backend of plain threads: pread and pwrite, for systems where io_uring is blocked. Same trait and semantics,
//! with more threads and system calls.

use super::file::VolumeFile;
use super::workers::Workers;
use super::{Completion, Io, IoLimits, Op, OpId, Waker};
use crate::arena::Arena;
use crate::error::Error;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

/// Threads that transfer. Operations start at `submit`; each thread runs one at a time.
pub struct Pool {
    workers: Workers,
    limits: IoLimits,
    waker: Waker,
}

impl Pool {
    /// Starts `threads` threads (none are needed without files). `queue_depth` operations may be in flight in all.
    ///
    /// # Errors
    /// `Error::Io` when a thread cannot be started.
    pub fn new(
        files: &[VolumeFile],
        arena: Arc<Arena>,
        queue_depth: u32,
        threads: u32,
        waker: Waker,
    ) -> Result<Pool, Error> {
        let limits = IoLimits { queue_depth, alignment: super::alignment(files) };
        let files: Arc<[Arc<File>]> = files.iter().map(|f| Arc::clone(f.file())).collect();
        let work = move |op: &mut Op| transfer(&files, &arena, op);
        let workers = Workers::new("mt-io", threads, queue_depth, waker.clone(), work)?;
        Ok(Pool { workers, limits, waker })
    }
}

/// One system call; its result is passed on as it is.
fn transfer(files: &[Arc<File>], arena: &Arena, op: &mut Op) -> io::Result<u32> {
    match op {
        Op::Read { volume, offset, into } => {
            files[usize::from(*volume)].read_at(arena.slice_mut(into), *offset).map(|n| n as u32)
        }
        Op::Write { volume, offset, from } => {
            files[usize::from(*volume)].write_at(arena.slice(from), *offset).map(|n| n as u32)
        }
        Op::Sync { volume } => files[usize::from(*volume)].sync_data().map(|()| 0),
        Op::Hash { .. } => unreachable!("hashing is done in front of the backends"),
    }
}

impl Io for Pool {
    fn submit(&mut self, id: OpId, op: Op) -> Result<(), Op> {
        self.workers.submit(id, op)
    }

    fn poll(&mut self, out: &mut Vec<Completion>, wait: Option<Duration>) -> io::Result<()> {
        let before = out.len();
        self.workers.collect(out)?;
        if let (Some(limit), true) = (wait, out.len() == before) {
            // A completion that comes from now on calls the waker, which ends the sleep.
            self.waker.sleep(limit)?;
            self.workers.collect(out)?;
        }
        Ok(())
    }

    fn limits(&self) -> IoLimits {
        self.limits
    }
}
