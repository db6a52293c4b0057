//! Hashing in front of a backend: takes [`Op::Hash`] out of the stream; everything else goes through unchanged.
//! Completions of both kinds come out of the same `poll`.
//!
//! The thread that polls hashes by itself as long as it keeps up: waking another and being woken by it costs as much as
//! hashing some 100 KiB, and many operations are smaller than that. What it cannot keep up with, because the drives are
//! faster than one processor hashes (10 to 20 GB/s from memory), goes to threads.

use super::workers::Workers;
use super::{Completion, Io, IoLimits, Op, OpId, Waker};
use crate::arena::Arena;
use crate::error::Error;
use crate::format::checksum::page_checksum;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Bytes that one poll hashes: 0.1 to 0.2 ms, in which the drives' queues do not run dry.
const SLICE_BYTES: u64 = 2 << 20;

/// Bytes that wait for the thread that polls; what comes on top goes to the others.
const KEEP_BYTES: u64 = 8 << 20;

/// A backend that can also hash.
pub struct WithHashing<I: Io> {
    inner: I,
    arena: Arc<Arena>,
    /// `None`: `poll` hashes everything.
    workers: Option<Workers>,
    /// Submitted and not yet begun, with room for as many as may be in flight.
    waiting: VecDeque<(OpId, Op)>,
    slice_bytes: u64,
    keep_bytes: u64,
}

impl<I: Io> WithHashing<I> {
    /// Puts `threads` hashing threads in front of `inner`; with none, `poll` hashes. As many hash operations may be in
    /// flight as `inner` takes transfers. `waker` is the one that `inner` sleeps on.
    ///
    /// # Errors
    /// `Error::Io` when a thread cannot be started.
    pub fn new(inner: I, arena: Arc<Arena>, threads: u32, waker: Waker) -> Result<WithHashing<I>, Error> {
        WithHashing::with_limits(inner, arena, threads, waker, [SLICE_BYTES, KEEP_BYTES])
    }

    /// `new` with other bytes hashed by one poll, and kept for the next ones.
    pub(super) fn with_limits(
        inner: I,
        arena: Arc<Arena>,
        threads: u32,
        waker: Waker,
        [slice_bytes, keep_bytes]: [u64; 2],
    ) -> Result<WithHashing<I>, Error> {
        let work = {
            let arena = Arc::clone(&arena);
            move |op: &mut Op| {
                hash(&arena, op);
                Ok(0)
            }
        };
        let queue_depth = inner.limits().queue_depth;
        let workers = match threads {
            0 => None,
            _ => Some(Workers::new("mt-hash", threads, queue_depth, waker, work)?),
        };
        let waiting = VecDeque::with_capacity(queue_depth as usize);
        Ok(WithHashing { inner, arena, workers, waiting, slice_bytes, keep_bytes })
    }

    /// Hashes the first operations that wait, and hands to the threads what is too much.
    fn hash_waiting(&mut self, out: &mut Vec<Completion>) {
        if let Some(workers) = &mut self.workers {
            for (id, op) in self.waiting.drain(first_part(&self.waiting, self.keep_bytes)..) {
                workers.submit(id, op).expect("the threads take as many operations as may be in flight");
            }
        }
        for (id, mut op) in self.waiting.drain(..first_part(&self.waiting, self.slice_bytes)) {
            hash(&self.arena, &mut op);
            out.push(Completion { id, op, result: Ok(0) });
        }
    }
}

/// How many operations from the first on hold at most `bytes_max` together; at least one, if there is one.
fn first_part(waiting: &VecDeque<(OpId, Op)>, bytes_max: u64) -> usize {
    let sums = waiting.iter().scan(0, |sum, (_, op)| {
        let Op::Hash { from, .. } = op else { unreachable!("only hash operations wait here") };
        *sum += u64::from(from.bytes);
        Some(*sum)
    });
    sums.take_while(|sum| *sum <= bytes_max).count().max(1).min(waiting.len())
}

/// Runs an `Op::Hash` on the calling thread.
///
/// # Panics
/// When it is another operation, or the frame is no whole number of pages.
pub(super) fn hash(arena: &Arena, op: &mut Op) {
    let Op::Hash { from, page_bytes, digests } = op else { unreachable!("only hash operations come here") };
    let whole = *page_bytes > 0 && from.bytes.is_multiple_of(*page_bytes);
    assert!(whole, "{from:?} is no whole number of pages of {page_bytes} bytes");
    digests.clear();
    digests.extend(arena.slice(from).chunks_exact(*page_bytes as usize).map(page_checksum));
}

impl<I: Io> Io for WithHashing<I> {
    fn submit(&mut self, id: OpId, op: Op) -> Result<(), Op> {
        if !matches!(op, Op::Hash { .. }) {
            return self.inner.submit(id, op);
        }
        let with_threads = self.workers.as_ref().map_or(0, Workers::in_flight) as usize;
        if self.waiting.len() + with_threads == self.inner.limits().queue_depth as usize {
            return Err(op);
        }
        self.waiting.push_back((id, op));
        Ok(())
    }

    fn poll(&mut self, out: &mut Vec<Completion>, wait: Option<Duration>) -> io::Result<()> {
        let any_done = !self.waiting.is_empty() || self.workers.as_ref().is_some_and(Workers::any_done);
        // Before hashing, so that the drives have their next operations.
        self.inner.poll(out, if any_done { None } else { wait })?;
        self.hash_waiting(out);
        match &mut self.workers {
            Some(workers) => workers.collect(out),
            None => Ok(()),
        }
    }

    fn limits(&self) -> IoLimits {
        self.inner.limits()
    }
}
