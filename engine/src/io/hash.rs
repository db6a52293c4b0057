//! Hashing in front of a backend: takes [`Op::Hash`] out of the stream and runs it on threads of its own; everything
//! else goes through unchanged. Completions of both kinds come out of the same `poll`.

use super::workers::Workers;
use super::{Completion, Io, IoLimits, Op, OpId, Waker};
use crate::arena::Arena;
use crate::error::Error;
use crate::format::checksum::page_checksum;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// A backend that can also hash.
pub struct WithHashing<I: Io> {
    inner: I,
    arena: Arc<Arena>,
    /// `None`: hashing runs inside `submit`.
    workers: Option<Workers>,
    /// Hashed inside `submit` and not yet handed out.
    ready: Vec<Completion>,
}

impl<I: Io> WithHashing<I> {
    /// Puts `threads` hashing threads in front of `inner`; with none, `submit` hashes. As many hash operations may be
    /// in flight as `inner` takes transfers. `waker` is the one that `inner` sleeps on.
    ///
    /// # Errors
    /// `Error::Io` when a thread cannot be started.
    pub fn new(inner: I, arena: Arc<Arena>, threads: u32, waker: Waker) -> Result<WithHashing<I>, Error> {
        let work = {
            let arena = Arc::clone(&arena);
            move |op: &mut Op| {
                hash(&arena, op);
                Ok(0)
            }
        };
        let workers = match threads {
            0 => None,
            _ => Some(Workers::new("mt-hash", threads, inner.limits().queue_depth, waker, work)?),
        };
        Ok(WithHashing { inner, arena, workers, ready: Vec::new() })
    }
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
    fn submit(&mut self, id: OpId, mut op: Op) -> Result<(), Op> {
        match (&op, &mut self.workers) {
            (Op::Hash { .. }, Some(workers)) => workers.submit(id, op),
            (Op::Hash { .. }, None) => {
                if self.ready.len() == self.inner.limits().queue_depth as usize {
                    return Err(op);
                }
                hash(&self.arena, &mut op);
                self.ready.push(Completion { id, op, result: Ok(0) });
                Ok(())
            }
            _ => self.inner.submit(id, op),
        }
    }

    fn poll(&mut self, out: &mut Vec<Completion>, wait: Option<Duration>) -> io::Result<()> {
        let any_done = !self.ready.is_empty() || self.workers.as_ref().is_some_and(Workers::any_done);
        self.inner.poll(out, if any_done { None } else { wait })?;
        out.append(&mut self.ready);
        match &mut self.workers {
            Some(workers) => workers.collect(out),
            None => Ok(()),
        }
    }

    fn limits(&self) -> IoLimits {
        self.inner.limits()
    }
}
