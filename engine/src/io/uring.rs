//! The io_uring backend: registered files and buffers, one system call a poll.
//!
//! A ring belongs to the thread that makes it (the kernel runs completions on it only when it asks), which is why
//! `Uring` is not `Send`.
//!
//! Invariants:
//! 1. An operation in the kernel lies in `slots`, with its token, until its completion is reaped; `user_data` is its
//!    slot.
//! 2. Memory that the kernel may touch (the arena, `wake_count`) outlives everything in flight: drop cancels and
//!    drains, and where that fails leaks the memory instead of freeing it.
//! 3. The queues hold `queue_depth` operations, the wake-up read and a cancellation, so a push never fails.
#![allow(unsafe_code)]

use super::file::VolumeFile;
use super::{Completion, Io, IoLimits, Op, OpId, Waker};
use crate::arena::Arena;
use crate::error::Error;
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

/// `user_data` of the read of the waker's eventfd.
const WAKE: u64 = u64::MAX;
/// `user_data` of the cancellation.
const CANCEL: u64 = u64::MAX - 1;

/// A sleep *gathers* completions while at least this many operations are in the kernel: the drives have enough to do,
/// and a thread that is woken for each of thousands of completions a second costs more than what it does for them.
const GATHER_FROM: u32 = 8;

/// Gathering ends when this share of the operations in the kernel has completed, so most of them stay there...
const GATHER_SHARE: u32 = 4;

/// ...or after this time, which bounds what gathering adds to the latency of a completion or of a call of the waker.
const GATHER: Duration = Duration::from_micros(500);

/// Largest buffer that the kernel registers.
const PIECE_BYTES: u64 = 1 << 30;

/// Milliseconds for which the kernel's thread looks for submissions before it sleeps.
const SUBMISSION_IDLE_MS: u32 = 50;

/// Who looks for what without being told: nobody, as in every store, or, for measurements of what that is worth, one of
/// the ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Polling {
    /// Interrupts tell of completions, system calls of submissions.
    #[default]
    Off,
    /// Whoever waits looks for completions at the drive (IOPOLL). Only where the drive's queues are made for it, which
    /// shows at the first transfer.
    Drive,
    /// A thread of the kernel looks for submissions (SQPOLL), and takes a core for it.
    Submissions,
}

/// How a ring is set up. The default is what stores use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tuning {
    /// Bytes of a registered buffer; `None`: the arena is not registered.
    pub piece_bytes: Option<u64>,
    /// Who polls.
    pub polling: Polling,
}

impl Default for Tuning {
    fn default() -> Tuning {
        Tuning { piece_bytes: Some(PIECE_BYTES), polling: Polling::Off }
    }
}

/// An io_uring with the volumes' files and the arena.
pub struct Uring {
    ring: IoUring,
    /// For the kernel: what it touches must outlive the ring.
    arena: Arc<Arena>,
    /// Kept open; the ring knows them by index.
    _files: Vec<Arc<std::fs::File>>,
    /// Bytes of a registered buffer, `None` when the arena is not registered.
    piece_bytes: Option<u64>,
    slots: Vec<Option<(OpId, Op)>>,
    free: Vec<u32>,
    /// Slots that the kernel has not been told of.
    pending: VecDeque<u32>,
    /// Operations handed to the ring and not reaped.
    in_kernel: u32,
    limits: IoLimits,
    polling: Polling,
    waker: Waker,
    /// Target of the wake-up read, owned, from a `Box`.
    wake_count: *mut u64,
    /// Whether the wake-up read is in the ring.
    armed: bool,
    /// Whether a cancellation is in the ring.
    cancelling: bool,
}

impl Uring {
    /// Makes a ring for `queue_depth` operations in flight, and says what the user should know. To be called on the
    /// thread that will use it. Registering the arena takes its memory from the system at once.
    ///
    /// # Errors
    /// `Error::Uring` with what to do about it.
    pub fn new(
        files: &[VolumeFile],
        arena: Arc<Arena>,
        queue_depth: u32,
        waker: Waker,
    ) -> Result<(Uring, Vec<String>), Error> {
        Uring::tuned(files, arena, queue_depth, waker, Tuning::default())
    }

    /// `new` with another set-up. With [`Polling::Drive`] calls of the waker end no sleep.
    pub(crate) fn tuned(
        files: &[VolumeFile],
        arena: Arc<Arena>,
        queue_depth: u32,
        waker: Waker,
        tuning: Tuning,
    ) -> Result<(Uring, Vec<String>), Error> {
        assert!(queue_depth > 0, "a queue holds something");
        let ring = make_ring(queue_depth + 2, tuning.polling)?;
        let descriptors: Vec<_> = files.iter().map(|f| f.file().as_raw_fd()).collect();
        if !descriptors.is_empty() {
            ring.submitter().register_files(&descriptors).map_err(|e| refused("registering files", &e))?;
        }
        let mut notices = Vec::new();
        let piece_bytes = tuning.piece_bytes.filter(|&bytes| match register_arena(&ring, &arena, bytes) {
            Ok(()) => true,
            Err(e) => {
                notices.push(not_registered(&arena, &e));
                false
            }
        });
        let uring = Uring {
            ring,
            arena,
            _files: files.iter().map(|f| Arc::clone(f.file())).collect(),
            piece_bytes,
            slots: (0..queue_depth).map(|_| None).collect(),
            free: (0..queue_depth).rev().collect(),
            pending: VecDeque::with_capacity(queue_depth as usize),
            in_kernel: 0,
            limits: IoLimits { queue_depth, alignment: super::alignment(files) },
            polling: tuning.polling,
            waker,
            wake_count: Box::into_raw(Box::new(0)),
            armed: false,
            cancelling: false,
        };
        Ok((uring, notices))
    }

    /// The registered buffer that holds the bytes whole, if there is one.
    fn buffer_index(&self, offset: u64, bytes: u32) -> Option<u16> {
        let piece_bytes = self.piece_bytes?;
        let last = offset + u64::from(bytes).max(1) - 1;
        let piece = offset / piece_bytes;
        (piece == last / piece_bytes).then(|| u16::try_from(piece).expect("at most 16,384 buffers are registered"))
    }

    /// The kernel's form of the operation in `slot`.
    fn entry(&self, slot: u32) -> squeue::Entry {
        let (_, op) = self.slots[slot as usize].as_ref().expect("a pending slot holds an operation");
        let entry = match op {
            Op::Read { volume, offset, into } => {
                let file = types::Fixed((*volume).into());
                let target = self.arena.pointer(into.offset, into.bytes.into());
                match self.buffer_index(into.offset, into.bytes) {
                    Some(index) => opcode::ReadFixed::new(file, target, into.bytes, index).offset(*offset).build(),
                    None => opcode::Read::new(file, target, into.bytes).offset(*offset).build(),
                }
            }
            Op::Write { volume, offset, from } => {
                let file = types::Fixed((*volume).into());
                let source = self.arena.pointer(from.offset, from.bytes.into());
                match self.buffer_index(from.offset, from.bytes) {
                    Some(index) => opcode::WriteFixed::new(file, source, from.bytes, index).offset(*offset).build(),
                    None => opcode::Write::new(file, source, from.bytes).offset(*offset).build(),
                }
            }
            Op::Sync { volume } => {
                opcode::Fsync::new(types::Fixed((*volume).into())).flags(types::FsyncFlags::DATASYNC).build()
            }
            Op::Hash { .. } => unreachable!("hashing is done in front of the backends"),
        };
        entry.user_data(slot.into())
    }

    /// Puts the pending operations into the submission queue.
    fn push_pending(&mut self) {
        while let Some(slot) = self.pending.pop_front() {
            let entry = self.entry(slot);
            self.push(&entry);
            self.in_kernel += 1;
        }
    }

    fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: what the entry points to stays valid until its completion: the arena's bytes by their token in
        // `slots` and the `Arc` here, `wake_count` by drop, which waits (invariants 1 and 2). The files are kept open
        // by `_files`.
        unsafe { self.ring.submission().push(entry) }.expect("the submission queue has room for everything in flight");
    }

    /// Moves what the kernel has completed to `out`.
    fn reap(&mut self, out: &mut Vec<Completion>) {
        for done in self.ring.completion() {
            match done.user_data() {
                WAKE => self.armed = false,
                CANCEL => self.cancelling = false,
                slot => {
                    let (id, op) = self.slots[slot as usize].take().expect("a completion belongs to an operation");
                    self.free.push(slot as u32);
                    self.in_kernel -= 1;
                    out.push(Completion { id, op, result: result_of(&done) });
                }
            }
        }
    }

    /// Tells the kernel of what was pushed, and lets it deliver completions.
    fn enter(&mut self) -> io::Result<()> {
        if self.polling == Polling::Submissions {
            // Wakes the kernel's thread if it sleeps; it delivers by itself.
            return tolerate(self.ring.submit());
        }
        let submission = self.ring.submission();
        let (new, deliver) = (submission.len() as u32, submission.taskrun() || submission.cq_overflow());
        drop(submission);
        if new == 0 && !deliver {
            return Ok(());
        }
        const GETEVENTS: u32 = 1;
        // SAFETY: the flag takes no argument, and none is passed; the entries are as `push` made them.
        tolerate(unsafe { self.ring.submitter().enter::<()>(new, 0, GETEVENTS, None) })
    }

    /// Like `enter`, and sleeps until `count` completions, or the end of `limit`.
    fn enter_and_sleep(&mut self, count: u32, limit: Duration) -> io::Result<()> {
        let limit = types::Timespec::from(limit);
        tolerate(self.ring.submitter().submit_with_args(count as usize, &types::SubmitArgs::new().timespec(&limit)))
    }

    /// Sleeps without being parked, so that calls of the waker cost their callers no system call, and wait.
    fn gather(&mut self, limit: Duration, out: &mut Vec<Completion>) -> io::Result<()> {
        self.enter_and_sleep(self.in_kernel / GATHER_SHARE, limit.min(GATHER))?;
        self.reap(out);
        Ok(())
    }

    /// Sleeps until a completion, a call of the waker, or the end of `limit`.
    fn sleep(&mut self, limit: Duration) -> io::Result<()> {
        if self.polling == Polling::Drive {
            // Such a ring takes transfers alone, and no read of an eventfd.
            return self.enter_and_sleep(1, limit);
        }
        if !self.waker.park() {
            return self.enter();
        }
        if !self.armed {
            let read = opcode::Read::new(types::Fd(self.waker.descriptor()), self.wake_count.cast(), 8).build();
            self.push(&read.user_data(WAKE));
            self.armed = true;
        }
        let slept = self.enter_and_sleep(1, limit);
        self.waker.unpark();
        slept
    }

    /// Cancels what can be cancelled and waits for the rest.
    fn drain(&mut self) -> io::Result<()> {
        let mut scrap = Vec::new();
        if self.in_kernel > 0 || self.armed {
            let cancel = opcode::AsyncCancel2::new(types::CancelBuilder::any()).build();
            self.push(&cancel.user_data(CANCEL));
            self.cancelling = true;
            // Ends the wake-up read also where the kernel cannot cancel.
            self.waker.signal();
        }
        while self.in_kernel > 0 || self.armed || self.cancelling {
            tolerate(self.ring.submit_and_wait(1))?;
            self.reap(&mut scrap);
        }
        Ok(())
    }
}

impl Io for Uring {
    fn submit(&mut self, id: OpId, op: Op) -> Result<(), Op> {
        let Some(slot) = self.free.pop() else { return Err(op) };
        self.slots[slot as usize] = Some((id, op));
        self.pending.push_back(slot);
        Ok(())
    }

    fn poll(&mut self, out: &mut Vec<Completion>, wait: Option<Duration>) -> io::Result<()> {
        let before = out.len();
        self.push_pending();
        self.reap(out);
        let Some(limit) = wait.filter(|_| out.len() == before) else {
            self.enter()?;
            self.reap(out);
            return Ok(());
        };
        if self.in_kernel >= GATHER_FROM && !self.waker.is_called() {
            self.gather(limit, out)?;
        }
        if out.len() == before {
            self.sleep(limit)?;
            self.reap(out);
        }
        Ok(())
    }

    fn limits(&self) -> IoLimits {
        self.limits
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        while let Some(slot) = self.pending.pop_front() {
            self.slots[slot as usize] = None;
        }
        if self.drain().is_err() {
            // The kernel may still write to this memory, and nobody can say until when.
            std::mem::forget(Arc::clone(&self.arena));
            return;
        }
        // A ring that is closed lets go of its files some time later; a volume is to be free when its store is closed.
        let _ = self.ring.submitter().unregister_files();
        // SAFETY: it came from a Box (with_pieces), is freed only here, and no read into it is in flight (drain).
        drop(unsafe { Box::from_raw(self.wake_count) });
    }
}

/// A ring with the best flags that the kernel takes.
fn make_ring(entries: u32, polling: Polling) -> Result<IoUring, Error> {
    let builder = || {
        let mut builder = IoUring::builder();
        match polling {
            Polling::Off => {}
            Polling::Drive => _ = builder.setup_iopoll(),
            Polling::Submissions => _ = builder.setup_sqpoll(SUBMISSION_IDLE_MS),
        }
        builder
    };
    // Completions run on this thread and only when it asks (6.1); on this thread at its next system call (5.19); as
    // before, which is the only way with a thread of the kernel.
    let first = builder().setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag().build(entries);
    let ring = first
        .or_else(|e| {
            if is(&e, Errno::INVAL) {
                builder().setup_coop_taskrun().setup_taskrun_flag().build(entries)
            } else {
                Err(e)
            }
        })
        .or_else(|e| if is(&e, Errno::INVAL) { builder().build(entries) } else { Err(e) })
        .map_err(|e| refused("io_uring_setup", &e))?;
    if !ring.params().is_feature_ext_arg() || !ring.params().is_feature_nodrop() {
        return Err(Error::Uring {
            what: "the kernel is older than 5.11; use a newer one or the pool backend".to_string(),
        });
    }
    Ok(ring)
}

fn register_arena(ring: &IoUring, arena: &Arena, piece_bytes: u64) -> io::Result<()> {
    let pieces: Vec<libc::iovec> = (0..arena.bytes())
        .step_by(piece_bytes as usize)
        .map(|offset| {
            let bytes = piece_bytes.min(arena.bytes() - offset);
            libc::iovec { iov_base: arena.pointer(offset, bytes).cast(), iov_len: bytes as usize }
        })
        .collect();
    if pieces.is_empty() {
        return Ok(());
    }
    // SAFETY: the pieces lie in the arena, which outlives the ring (invariant 2); the kernel touches them only for
    // operations.
    unsafe { ring.submitter().register_buffers(&pieces) }
}

fn not_registered(arena: &Arena, error: &io::Error) -> String {
    format!(
        "the arena is not registered with io_uring ({error}), so each transfer costs a little more; \
         RLIMIT_MEMLOCK: need {} bytes, have {} (raise it with `ulimit -l`)",
        arena.bytes(),
        lockable()
    )
}

/// The limit of lockable memory, in words.
fn lockable() -> String {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock).current;
    limit.map_or("no limit".to_string(), |l| format!("{l} bytes"))
}

/// The error with its remedy.
fn refused(call: &str, error: &io::Error) -> Error {
    let remedy = if is(error, Errno::PERM) {
        "it is forbidden here: set kernel.io_uring_disabled to 0 with sysctl, or allow io_uring in the container's \
         seccomp profile"
            .to_string()
    } else if is(error, Errno::NOSYS) {
        "the kernel has none (it needs 5.11), or a seccomp profile hides it: use a newer kernel or allow io_uring in \
         the profile"
            .to_string()
    } else if is(error, Errno::NOMEM) {
        let have = lockable();
        format!("there is too little lockable memory: RLIMIT_MEMLOCK: have {have} (raise it with `ulimit -l`)")
    } else {
        "use the pool backend".to_string()
    };
    Error::Uring { what: format!("{call}: {error}; {remedy}") }
}

fn is(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno.raw_os_error())
}

fn result_of(done: &cqueue::Entry) -> io::Result<u32> {
    u32::try_from(done.result()).map_err(|_| io::Error::from_raw_os_error(-done.result()))
}

/// Ends of `io_uring_enter` that are no failure of the ring: time over, a signal, and a kernel short of memory or of
/// room for completions. The entries it did not take stay queued for the next poll.
fn tolerate(entered: io::Result<usize>) -> io::Result<()> {
    match entered {
        Ok(_) => Ok(()),
        Err(e) if [Errno::TIME, Errno::INTR, Errno::AGAIN, Errno::BUSY].iter().any(|ok| is(&e, *ok)) => Ok(()),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::{Errno, refused};
    use std::io;

    #[test]
    fn a_refusal_says_what_to_do() {
        let text = |errno: Errno| refused("io_uring_setup", &io::Error::from(errno)).to_string();
        assert!(text(Errno::PERM).contains("kernel.io_uring_disabled"));
        assert!(text(Errno::NOSYS).contains("seccomp"));
        assert!(text(Errno::NOMEM).contains("RLIMIT_MEMLOCK"));
        assert!(text(Errno::MFILE).contains("pool backend"));
    }
}
