//! The one thread that steps the core, and the handle through which others talk to it.
//!
//! Commands go to the thread through a queue; events come back into a small shared state under a lock, with a condition
//! variable for those who wait. A lease that is ready is taken from the shared state without asking the thread.
//!
//! The queue is bounded, and one who finds it full waits. That cannot deadlock: the thread never sends to it, holds the
//! lock only to publish and never waits for a user, so it always comes back to empty the queue; users hold no lock
//! while they send; and when the thread is gone its end of the queue is, so that senders fail instead of waiting.

use crate::core::{Command, Core, Event};
use crate::device::Fence;
use crate::error::Error;
use crate::events::Recorder;
use crate::id::CommitId;
use crate::io::{Io, Waker};
use crate::ready::{Published, Ready};
use crate::stats::{LinkTimes, Stats};
use crossbeam::channel::{Receiver, Sender, TryRecvError};
use link::Link;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

mod link;
mod tickets;

/// The longest sleep of the thread; the waker ends it earlier whenever there is something to do.
const PARK: Duration = Duration::from_millis(500);

/// Commands that wait for the thread. One who takes leases has few; one who passes over accesses may fill it.
const COMMANDS_MAX: usize = 1024;

struct State {
    ready: Ready,
    tickets: tickets::Asked,
    /// The access that the sweep's user waits for.
    wanted: Option<u64>,
    placed: Option<Result<(), Error>>,
    begun: Option<Result<u64, Error>>,
    committing: bool,
    commit_refused: Option<Error>,
    committed: Option<(CommitId, Vec<u8>)>,
    poison: Option<String>,
    closed: bool,
    stats: Stats,
    waits: u64,
    wait_ns: u64,
    waits_for_writes_ns: u64,
}

/// An access's bytes.
pub(crate) struct Taken {
    pub(crate) place: Published,
    /// The wait for them, if there was one.
    pub(crate) wait: Option<Wait>,
}

/// A wait for an access.
pub(crate) struct Wait {
    pub(crate) begin: Instant,
    pub(crate) ns: u64,
    /// It could not begin before write-backs ended.
    pub(crate) for_writes: bool,
}

impl State {
    fn new(committed: Option<(CommitId, Vec<u8>)>) -> State {
        State {
            ready: Ready::new(),
            tickets: tickets::Asked::default(),
            wanted: None,
            placed: None,
            begun: None,
            committing: false,
            commit_refused: None,
            committed,
            poison: None,
            closed: false,
            stats: Stats::default(),
            waits: 0,
            wait_ns: 0,
            waits_for_writes_ns: 0,
        }
    }

    fn alive(&self) -> Result<(), Error> {
        match &self.poison {
            Some(first) => Err(Error::Poisoned { first: first.clone() }),
            None if self.closed => Err(Error::Closed),
            None => Ok(()),
        }
    }

    /// Whether somebody who waits may be waiting for this. Waking one for accesses that are not his costs him more than
    /// anything else here.
    fn concerns_waiters(&self, event: &Event) -> bool {
        match event {
            Event::Ready { seq, .. } | Event::Failed { seq, .. } => self.wanted == Some(*seq),
            _ => true,
        }
    }

    fn take_in(&mut self, event: Event) {
        match event {
            Event::Placed(answer) => self.placed = Some(answer),
            Event::Begun(answer) => self.begun = Some(answer),
            Event::Ready { seq, offset, bytes, after } => self.ready.publish(seq, Ok((offset, bytes, after))),
            Event::Failed { seq, error } => self.ready.publish(seq, Err(error)),
            Event::Recall { .. } => unreachable!("recalls are answered where they are met"),
            Event::TicketReady { ticket, offset, bytes } => self.tickets.answer(ticket, Ok((offset, bytes))),
            Event::TicketFailed { ticket, error } => self.tickets.answer(ticket, Err(error)),
            Event::Committed { commit, note } => {
                self.committed = Some((commit, note));
                self.committing = false;
            }
            Event::CommitRefused(error) => {
                self.commit_refused = Some(error);
                self.committing = false;
            }
            Event::Poisoned { first } => self.poison = Some(first),
        }
    }
}

/// The users' end.
pub(crate) struct Handle {
    state: Mutex<State>,
    changed: Condvar,
    /// Held while one waits for the answer to `Place` or `Begin`, of which there is one place each.
    call: Mutex<()>,
    /// Held while one waits for his own commit, so that nobody else's answer is taken for it.
    commit: Mutex<()>,
    commands: Sender<Option<Command>>,
    waker: Waker,
}

impl Handle {
    pub(crate) fn new(
        waker: Waker,
        committed: Option<(CommitId, Vec<u8>)>,
    ) -> (Arc<Handle>, Receiver<Option<Command>>) {
        let (commands, receiver) = crossbeam::channel::bounded(COMMANDS_MAX);
        let handle = Handle {
            state: Mutex::new(State::new(committed)),
            changed: Condvar::new(),
            call: Mutex::default(),
            commit: Mutex::default(),
            commands,
            waker,
        };
        (Arc::new(handle), receiver)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn send(&self, command: Command) {
        // A closed channel means that the thread is gone; waiting for the answer says so.
        let _ = self.commands.send(Some(command));
        self.waker.wake();
    }

    /// Waits until `take` finds its answer, or the engine is poisoned or closed.
    fn wait<T>(&self, mut take: impl FnMut(&mut State) -> Option<T>) -> Result<T, Error> {
        let mut state = self.lock();
        loop {
            // First: an answer from before a failure would pass for one after it.
            state.alive()?;
            if let Some(found) = take(&mut state) {
                return Ok(found);
            }
            state = self.changed.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }

    pub(crate) fn place(&self, command: Command) -> Result<(), Error> {
        let _call = self.call.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        self.send(command);
        self.wait(|state| state.placed.take())?
    }

    pub(crate) fn begin(&self, command: Command) -> Result<u64, Error> {
        let _call = self.call.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        self.send(command);
        self.wait(|state| state.begun.take())?
    }

    /// The bytes of an access, as soon as they are there.
    pub(crate) fn take(&self, seq: u64) -> Result<Taken, Error> {
        let held_up = {
            let mut state = self.lock();
            state.alive()?;
            if let Some(answer) = state.ready.take(seq) {
                drop(state);
                return Ok(Taken { place: self.taken(seq, answer)?, wait: None });
            }
            state.wanted = Some(seq);
            state.stats.waits_for_writes
        };
        let begin = Instant::now();
        self.send(Command::Reached { seq });
        let answer = self.wait(|state| state.ready.take(seq))?;
        let ns = begin.elapsed().as_nanos() as u64;
        let for_writes = {
            let mut state = self.lock();
            // One access is waited for at a time, so that what was held up meanwhile is this one.
            let for_writes = state.stats.waits_for_writes > held_up;
            state.wanted = None;
            state.waits += 1;
            state.wait_ns += ns;
            state.waits_for_writes_ns += if for_writes { ns } else { 0 };
            for_writes
        };
        Ok(Taken { place: self.taken(seq, answer)?, wait: Some(Wait { begin, ns, for_writes }) })
    }

    /// An access that failed has no lease whose end would give it back, so it is given back at once: kept, it would
    /// hold up everything behind it.
    fn taken(&self, seq: u64, answer: Result<Published, Error>) -> Result<Published, Error> {
        if answer.is_err() {
            self.release(seq, false, None);
        }
        answer
    }

    /// Gives an access back: at once, or when the fence has passed.
    pub(crate) fn release(&self, seq: u64, changed: bool, fence: Option<Fence>) {
        self.send(match fence {
            None => Command::Release { seq, changed },
            Some(fence) => Command::ReleaseBehind { seq, changed, fence },
        });
    }

    /// A call of a device has failed outside of the core.
    pub(crate) fn device_failed(&self, error: &Error) {
        self.send(Command::Failed { first: error.to_string() });
    }

    /// Passes over an access. What was published for it stays in the ring, where nobody asks for it.
    pub(crate) fn pass(&self, seq: u64) {
        self.release(seq, false, None);
    }

    /// Starts a commit once an earlier one is durable.
    pub(crate) fn commit_start(&self, note: &[u8]) -> Result<(), Error> {
        // Looked at and claimed under one lock: several threads may commit.
        let refused = self.wait(|state| {
            (!state.committing).then(|| {
                let refused = state.commit_refused.take();
                state.committing = refused.is_none();
                refused
            })
        })?;
        if let Some(error) = refused {
            return Err(error);
        }
        self.send(Command::Commit { note: note.to_vec() });
        Ok(())
    }

    /// Makes a commit and waits for it.
    pub(crate) fn commit(&self, note: &[u8]) -> Result<Option<CommitId>, Error> {
        let _commit = self.commit.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        self.commit_start(note)?;
        self.wait_committed()
    }

    /// Waits for the commit being made, if one is.
    pub(crate) fn wait_committed(&self) -> Result<Option<CommitId>, Error> {
        self.wait(|state| (!state.committing).then(|| state.commit_refused.take()))?
            .map_or_else(|| Ok(self.committed().map(|(commit, _)| commit)), Err)
    }

    pub(crate) fn committed(&self) -> Option<(CommitId, Vec<u8>)> {
        self.lock().committed.clone()
    }

    pub(crate) fn end(&self, command: Command) -> Result<(), Error> {
        self.send(command);
        self.lock().alive()
    }

    pub(crate) fn stats(&self) -> Stats {
        let state = self.lock();
        let State { waits, wait_ns, waits_for_writes_ns, stats, .. } = *state;
        Stats { waits, wait_ns, waits_for_writes_ns, ..stats }
    }

    /// Asks the thread to stop.
    pub(crate) fn stop(&self) {
        let _ = self.commands.send(None);
        self.waker.wake();
    }

    /// Tells everybody who waits that the thread is gone.
    pub(crate) fn closed(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }
}

/// Runs `core` until it is told to stop and nothing is in flight.
pub(crate) fn run<I: Io>(
    mut core: Core<I>,
    handle: &Handle,
    commands: &Receiver<Option<Command>>,
    recorder: Option<&Recorder>,
) {
    let mut stopping = false;
    let mut told = Stats::default();
    let mut link = Link::new(Instant::now());
    loop {
        core.note_moves(recorder.is_some_and(Recorder::is_on));
        // Whoever calls from here on has sent something that may be missed below.
        handle.waker.clear();
        let mut all_taken = false;
        for _ in 0..COMMANDS_MAX {
            match commands.try_recv() {
                Ok(Some(command)) => core.command(command),
                Ok(None) | Err(TryRecvError::Disconnected) => stopping = true,
                Err(TryRecvError::Empty) => all_taken = true,
            }
            if all_taken || stopping {
                break;
            }
        }
        core.step();
        look(&mut core, &mut link, recorder);
        let recalled = publish(&mut core, handle, &mut told, link.times);
        if stopping && core.is_idle() {
            return;
        }
        if (all_taken || stopping) && !recalled {
            core.park(PARK);
            look(&mut core, &mut link, recorder);
        }
    }
}

/// Takes note of the time, for which the core has no clock.
fn look<I: Io>(core: &mut Core<I>, link: &mut Link, recorder: Option<&Recorder>) {
    let now = Instant::now();
    link.look(now, core.in_flight(), &core.stats());
    if let Some(recorder) = recorder
        && let Some(moves) = core.take_moves()
    {
        recorder.moved(moves, now);
    }
}

/// Tells users what happened, if anything did; whether the core was told something too. `told`: the counters that they
/// know.
fn publish<I: Io>(core: &mut Core<I>, handle: &Handle, told: &mut Stats, link: LinkTimes) -> bool {
    let stats = core.stats();
    if stats == *told && !core.has_events() {
        return false;
    }
    *told = stats;
    let mut state = handle.lock();
    state.stats = Stats { link, ..stats };
    let (mut concerns, mut recalled) = (false, false);
    while let Some(event) = core.next_event() {
        if let Event::Recall { seq } = event {
            // Under the lock: what is found here no user takes any more.
            let taken = state.ready.take(seq).is_none();
            core.command(Command::Recalled { seq, taken });
            recalled = true;
            continue;
        }
        concerns |= state.concerns_waiters(&event);
        state.take_in(event);
    }
    drop(state);
    if concerns {
        handle.changed.notify_all();
    }
    recalled
}

/// The thread, joined when the engine is dropped.
pub(crate) struct Reactor(pub(crate) Option<JoinHandle<()>>);

impl Reactor {
    pub(crate) fn join(&mut self) {
        if let Some(thread) = self.0.take() {
            // A panic of the thread was printed by it and closed the handle; there is nothing to add.
            let _ = thread.join();
        }
    }
}
