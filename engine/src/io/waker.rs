//! Wakes the reactor out of a poll from another thread.
//!
//! Terms: the *sleeper* is the one thread that polls; everybody else is a *caller*. The state says whether the
//! sleeper runs, is *parked* (about to sleep or asleep) or was *called* since it last parked or cleared. A call costs
//! an atomic swap, and a system call only when the sleeper is parked.
//!
//! Invariants: a call makes the next park return at once, unless the sleeper cleared it, which it does before it looks
//! at its queues; only the sleeper reads the eventfd. A sleeper may wake without a reason, so callers of `poll` look at
//! their queues and never rely on a count.

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

const RUNNING: u8 = 0;
const PARKED: u8 = 1;
const CALLED: u8 = 2;

/// A handle that wakes the thread polling a backend. Clones wake the same thread.
#[derive(Clone)]
pub struct Waker {
    shared: Arc<Shared>,
}

struct Shared {
    /// Blocking, since io_uring waits on it only then; the sleeper reads it only when it is readable.
    eventfd: OwnedFd,
    state: AtomicU8,
}

impl Waker {
    /// A waker for one backend.
    ///
    /// # Errors
    /// When the process is out of file descriptors.
    pub fn new() -> io::Result<Waker> {
        let eventfd = eventfd(0, EventfdFlags::CLOEXEC)?;
        Ok(Waker { shared: Arc::new(Shared { eventfd, state: AtomicU8::new(RUNNING) }) })
    }

    /// Makes the poll in progress return, or else the next one that would sleep.
    pub fn wake(&self) {
        if self.shared.state.swap(CALLED, Ordering::SeqCst) == PARKED {
            self.signal();
        }
    }

    /// Forgets calls made so far; for the sleeper, who looks at its queues after this. What a caller put there before
    /// such a call is seen then: the swap reads what the caller's swap wrote.
    pub(crate) fn clear(&self) {
        self.shared.state.swap(RUNNING, Ordering::SeqCst);
    }

    /// Whether a park would return at once. For the sleeper.
    pub(super) fn is_called(&self) -> bool {
        self.shared.state.load(Ordering::SeqCst) == CALLED
    }

    /// Declares the sleeper about to sleep. False: it was called since, and must not sleep.
    pub(super) fn park(&self) -> bool {
        let parked = self.shared.state.compare_exchange(RUNNING, PARKED, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        if !parked {
            self.shared.state.store(RUNNING, Ordering::SeqCst);
        }
        parked
    }

    /// Declares the sleeper awake again. Calls made while it was parked are answered by that.
    pub(super) fn unpark(&self) {
        self.clear();
    }

    /// Makes the eventfd readable.
    pub(super) fn signal(&self) {
        // Fails only when the counter is full, and then it is readable already.
        let _ = rustix::io::write(&self.shared.eventfd, &1u64.to_ne_bytes());
    }

    /// The eventfd, for a backend that waits on it by itself.
    pub(super) fn descriptor(&self) -> RawFd {
        self.shared.eventfd.as_raw_fd()
    }

    /// Sleeps until a call or until `limit` is over; for a backend whose completions call the waker.
    pub(super) fn sleep(&self, limit: Duration) -> io::Result<()> {
        if !self.park() {
            return Ok(());
        }
        let limit = Timespec { tv_sec: limit.as_secs().min(1 << 31) as i64, tv_nsec: limit.subsec_nanos().into() };
        let readable = poll(&mut [PollFd::new(&self.shared.eventfd.as_fd(), PollFlags::IN)], Some(&limit));
        self.unpark();
        match readable {
            Ok(0) | Err(rustix::io::Errno::INTR) => Ok(()),
            Ok(_) => {
                rustix::io::read(&self.shared.eventfd, &mut [0u8; 8])?;
                Ok(())
            }
            Err(e) => Err(e.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Waker;
    use std::time::Duration;

    /// Long enough that a test that sleeps through it has failed by hanging.
    const FOREVER: Duration = Duration::from_secs(3600);

    #[test]
    fn a_call_that_was_cleared_ends_no_sleep() {
        let waker = Waker::new().expect("eventfd");
        waker.wake();
        assert!(waker.is_called());
        waker.clear();
        assert!(!waker.is_called() && waker.park());
        waker.wake();
        assert!(waker.is_called(), "a call of a parked sleeper is known until it unparks");
        waker.unpark();
        assert!(waker.park());
    }

    #[test]
    fn a_call_before_the_sleep_ends_it() {
        let waker = Waker::new().expect("eventfd");
        waker.wake();
        waker.wake();
        waker.sleep(FOREVER).expect("sleep");
        waker.sleep(Duration::ZERO).expect("the call was used up, and the time limit holds");
    }

    #[test]
    fn no_call_is_lost() {
        let waker = Waker::new().expect("eventfd");
        let said = std::sync::atomic::AtomicU32::new(0);
        let heard = std::sync::atomic::AtomicU32::new(0);
        std::thread::scope(|scope| {
            let caller = waker.clone();
            scope.spawn(|| {
                let caller = caller;
                for n in 1..=2000 {
                    said.store(n, std::sync::atomic::Ordering::SeqCst);
                    caller.wake();
                    while heard.load(std::sync::atomic::Ordering::SeqCst) < n {
                        std::hint::spin_loop();
                        std::thread::yield_now();
                    }
                }
            });
            while heard.load(std::sync::atomic::Ordering::SeqCst) < 2000 {
                waker.sleep(FOREVER).expect("sleep");
                heard.store(said.load(std::sync::atomic::Ordering::SeqCst), std::sync::atomic::Ordering::SeqCst);
            }
        });
    }
}
