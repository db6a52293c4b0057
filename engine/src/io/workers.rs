//! Threads that run operations: the common part of the pool backend and of hashing.
//!
//! Invariants: at most `queue_depth` operations are inside, so neither queue ever blocks; an operation inside is
//! owned by a queue or by one thread; a thread that panics marks the workers broken and wakes the sleeper, so that
//! nobody waits for it forever.

use super::{Completion, Op, OpId, Waker};
use crate::error::Error;
use crossbeam::channel::{Receiver, Sender, bounded};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

/// Stack of a thread that makes one call on bytes of the arena.
const STACK_BYTES: usize = 256 << 10;

/// Named threads between two queues.
pub(super) struct Workers {
    /// `None` only while dropping: a closed queue ends the threads.
    jobs: Option<Sender<(OpId, Op)>>,
    done: Receiver<Completion>,
    in_flight: u32,
    queue_depth: u32,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    /// Operations not yet started are to be dropped.
    stop: AtomicBool,
    /// A thread panicked.
    broken: AtomicBool,
    waker: Waker,
}

/// Tells of a panic on the way out of its thread.
struct Alarm(Arc<Shared>);

impl Drop for Alarm {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.broken.store(true, Ordering::Release);
            self.0.waker.wake();
        }
    }
}

impl Workers {
    /// Starts `threads` threads, called `name` and a number, that run `work` on each operation.
    ///
    /// # Errors
    /// `Error::Io` when a thread cannot be started.
    pub(super) fn new<F>(name: &str, threads: u32, queue_depth: u32, waker: Waker, work: F) -> Result<Workers, Error>
    where
        F: Fn(&mut Op) -> io::Result<u32> + Send + Clone + 'static,
    {
        let (jobs, job_queue) = bounded::<(OpId, Op)>(queue_depth as usize);
        let (done_queue, done) = bounded::<Completion>(queue_depth as usize);
        let shared = Arc::new(Shared { stop: AtomicBool::new(false), broken: AtomicBool::new(false), waker });
        let mut workers = Workers {
            jobs: Some(jobs),
            done,
            in_flight: 0,
            queue_depth,
            shared,
            threads: Vec::with_capacity(threads as usize),
        };
        for n in 0..threads {
            let (jobs, done, work) = (job_queue.clone(), done_queue.clone(), work.clone());
            let alarm = Alarm(Arc::clone(&workers.shared));
            let name = format!("{name}-{n}");
            let started = thread::Builder::new().name(name.clone()).stack_size(STACK_BYTES).spawn(move || {
                while let Ok((id, mut op)) = jobs.recv() {
                    if alarm.0.stop.load(Ordering::Acquire) {
                        return;
                    }
                    let result = work(&mut op);
                    if done.send(Completion { id, op, result }).is_err() {
                        return;
                    }
                    alarm.0.waker.wake();
                }
            });
            workers.threads.push(started.map_err(|source| Error::Io {
                doing: "starting a thread",
                path: PathBuf::from(name),
                offset: 0,
                bytes: 0,
                source: Arc::new(source),
            })?);
        }
        Ok(workers)
    }

    /// Queues an operation, or gives it back when `queue_depth` are inside.
    pub(super) fn submit(&mut self, id: OpId, op: Op) -> Result<(), Op> {
        assert!(!self.threads.is_empty(), "an operation that no thread will run: {op:?}");
        if self.in_flight == self.queue_depth {
            return Err(op);
        }
        let jobs = self.jobs.as_ref().expect("the queue is open until drop");
        jobs.try_send((id, op)).map_err(|e| e.into_inner().1)?;
        self.in_flight += 1;
        Ok(())
    }

    /// Operations inside.
    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Whether `collect` would find something.
    pub(super) fn any_done(&self) -> bool {
        !self.done.is_empty()
    }

    /// Appends what has completed.
    ///
    /// # Errors
    /// When a thread has panicked: its operation will never complete.
    pub(super) fn collect(&mut self, out: &mut Vec<Completion>) -> io::Result<()> {
        let before = out.len();
        out.extend(self.done.try_iter());
        self.in_flight -= (out.len() - before) as u32;
        if self.shared.broken.load(Ordering::Acquire) {
            return Err(io::Error::other("a worker thread has panicked"));
        }
        Ok(())
    }
}

impl Drop for Workers {
    /// Operations not yet started are dropped; those in progress are waited for, since they use the arena.
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.jobs = None;
        for thread in self.threads.drain(..) {
            // A panic of a thread has been reported by the panic hook already.
            let _ = thread.join();
        }
    }
}
