//! The engine's handle: a store, the arena and the reactor thread; sweeps over it.

use crate::arena::Arena;
use crate::config::{Backend, Config, RegionSpec};
use crate::core::{Command, Core, DevicePart, Parts, meta_bytes};
use crate::device::{DeviceLease, Stream, Streams};
use crate::error::Error;
use crate::events::Recorder;
use crate::format::layout::Side;
use crate::format::superblock::Moved;
use crate::format::{BLOCK, Layout, Stripes, Superblock};
use crate::id::{CommitId, DeviceId, RegionId, Run, Tier};
use crate::io::Waker;
use crate::io::file::VolumeFile;
use crate::lease::{HostLease, HostLeaseMut, Lender, Loan};
use crate::lock::Lock;
use crate::plan::{Plan, Residency};
use crate::reactor::{self, Handle, Reactor, Wait};
use crate::ready::Published;
use crate::schedule::Node;
use crate::stats::Stats;
use crate::store::Store;
use std::cell::Cell;
use std::sync::{Arc, Mutex, OnceLock};

mod ticket;

pub use ticket::Ticket;

/// Bytes of the arena that the store's own records take beside placed runs and window.
pub fn record_bytes(regions: &[RegionSpec]) -> u64 {
    meta_bytes(&Layout::new(regions, &Stripes::single()))
}

/// What identifies a store and its history; for people and tools.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The store's identity, on every volume.
    pub uuid: uuid::Uuid,
    /// Version of the on-disk format.
    pub format_version: u32,
    /// What each volume moved over the store's life, up to the last commit at open; the lead first.
    pub ledger: Vec<VolumeLedger>,
}

/// Bytes that a volume moved over its store's life, commits included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VolumeLedger {
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
}

impl Identity {
    pub(crate) fn of(superblock: &Superblock) -> Identity {
        let moved = &superblock.ledger[..usize::from(superblock.volumes)];
        let ledger = |m: &Moved| VolumeLedger { read_bytes: m.read_bytes, write_bytes: m.write_bytes };
        Identity {
            uuid: uuid::Uuid::from_bytes(superblock.uuid),
            format_version: crate::format::FORMAT_VERSION,
            ledger: moved.iter().map(ledger).collect(),
        }
    }
}

/// A store that is open, with its arena and reactor thread. Dropping it stops the thread; what was not committed is
/// gone.
pub struct Engine {
    handle: Arc<Handle>,
    arena: Arc<Arena>,
    regions: Vec<RegionSpec>,
    layout: Layout,
    files: Arc<Vec<VolumeFile>>,
    recorder: Option<Arc<Recorder>>,
    /// The users' side of each device.
    streams: Vec<(DeviceId, Arc<dyn Streams>)>,
    identity: Identity,
    backend: Backend,
    notices: Mutex<Vec<String>>,
    /// Runs that are placed, once they are.
    placed: OnceLock<Vec<Run>>,
    /// Scratch pages that have space on disk for tickets' sake, by global number; empty until one asks.
    reserved: Mutex<Vec<bool>>,
    /// Dropped after the reactor, before the locks: nothing is in flight when the next owner comes.
    reactor: Reactor,
    _locks: Vec<Lock>,
}

impl Engine {
    /// Creates a store, with its space reserved, and opens it. It has no commit until [`commit`](Engine::commit).
    /// Without volumes the engine has RAM only, and nothing survives it.
    ///
    /// # Errors
    /// `Exists`, `Locked`, `NoSpace`, `Config`, `DirectIo`, `Uring`, `NoDevice`, `Device`, `Io`.
    pub fn create(config: Config, regions: &[RegionSpec]) -> Result<Engine, Error> {
        let store = Store::create(&config, regions)?;
        Engine::start(config, store)
    }

    /// Opens a store at its last commit.
    ///
    /// # Errors
    /// `NoStore`, `NoCommit`, `Locked`, `Damaged`, `Format`, `ForeignVolume`, `Config`, `DirectIo`, `Uring`,
    /// `NoDevice`, `Device`, `Io`.
    pub fn open(config: Config) -> Result<Engine, Error> {
        let store = Store::open(&config)?;
        if !config.read_only {
            store.take_over()?;
        }
        Engine::start(config, store)
    }

    fn start(config: Config, store: Store) -> Result<Engine, Error> {
        // Dropped last on the way out of an error, when nothing runs on the store any more.
        let Store { claim, files, superblock, regions, layout, table, note } = store;
        check(&config, &regions, &layout)?;
        let arena = Arc::new(Arena::new(config.host_bytes)?);
        let waker = Waker::new().map_err(|e| Error::Uring { what: format!("no eventfd for the reactor: {e}") })?;
        let opened = crate::device::open(&config.devices, &arena, &waker)?;
        let streams = opened.iter().map(|it| (it.id, Arc::clone(&it.streams))).collect();
        let committed = crate::format::superblock::State::Committed == superblock.state;
        let last = committed.then_some((CommitId(superblock.commit), note));
        let (handle, commands) = Handle::new(waker.clone(), last);
        let identity = Identity::of(&superblock);
        let files = Arc::new(files);
        let recorder = config.recorder.clone();
        let (ready, is_ready) = crossbeam::channel::bounded(1);
        let thread = {
            let (handle, arena, files, regions, layout) =
                (handle.clone(), arena.clone(), files.clone(), regions.clone(), layout.clone());
            let body = move || {
                let _guard = ClosedOnExit(handle.clone());
                match crate::io::open(&config, &files, arena.clone(), waker) {
                    Err(error) => drop(ready.send(Err(error))),
                    Ok(crate::io::Opened { io, backend, notices }) => {
                        let volumes = files.iter().map(|f| f.path().to_path_buf()).collect();
                        let Config { transfer_bytes, unplanned_bytes, recorder, .. } = config;
                        let parts = Parts {
                            io,
                            arena,
                            layout,
                            regions,
                            volumes,
                            transfer_bytes,
                            unplanned_bytes,
                            devices: opened.into_iter().map(DevicePart::from).collect(),
                            table,
                            superblock,
                        };
                        drop(ready.send(Ok((backend, notices))));
                        reactor::run(Core::new(parts), &handle, &commands, recorder.as_deref());
                    }
                }
            };
            std::thread::Builder::new().name("mt-reactor".into()).spawn(body)
        };
        let thread = thread.map_err(|source| Error::Io {
            doing: "starting a thread",
            path: "mt-reactor".into(),
            offset: 0,
            bytes: 0,
            source: Arc::new(source),
        })?;
        let mut reactor = Reactor(Some(thread));
        let (backend, notices) = match is_ready.recv().unwrap_or(Err(Error::Closed)) {
            Ok((backend, notices)) => (backend, Mutex::new(notices)),
            Err(error) => {
                reactor.join();
                return Err(error);
            }
        };
        let (placed, reserved) = Default::default();
        Ok(Engine {
            handle,
            arena,
            regions,
            layout,
            files,
            recorder,
            streams,
            identity,
            backend,
            notices,
            placed,
            reserved,
            reactor,
            _locks: claim.keep(),
        })
    }

    /// The regions in the order of their ids.
    pub fn regions(&self) -> &[RegionSpec] {
        &self.regions
    }

    /// The region of this name.
    pub fn region(&self, name: &str) -> Option<RegionId> {
        self.regions.iter().position(|r| r.name == name).map(|index| RegionId(index as u32))
    }

    /// What identifies the store.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The backend that moves pages: `Uring` or `Pool`.
    pub fn backend(&self) -> Backend {
        self.backend
    }

    /// Bytes of the arena.
    pub(crate) fn host_bytes(&self) -> u64 {
        self.arena.bytes()
    }

    /// The last durable commit and its note.
    pub fn committed(&self) -> Option<(CommitId, Vec<u8>)> {
        self.handle.committed()
    }

    /// Adopts a placement: these runs stay in RAM, or in VRAM, from their first use on. Reserves disk space for scratch
    /// runs that stream. Once per open, between sweeps; the same placement again changes nothing.
    ///
    /// # Errors
    /// `NoSpace`, `Misuse`, `Config`.
    pub fn place(&self, residency: &Residency, spilled: &[Run]) -> Result<(), Error> {
        for run in spilled {
            if !self.layout.contains(*run) {
                return Err(Error::Misuse { what: format!("{run}: the store has no such run") });
            }
        }
        // All of it before any: a refusal names the whole need.
        for (file, volume) in self.files.iter().zip(0..) {
            let spans = spilled.iter().flat_map(|run| self.layout.spans(*run, Side::First));
            file.require_free(spans.filter(|span| span.0 == volume).map(|span| span.2).sum())?;
        }
        for run in spilled {
            self.reserve(*run)?;
        }
        self.handle.place(Command::Place { residency: residency.clone() })?;
        // Another placement would have been refused.
        self.placed.get_or_init(|| residency.placed.iter().map(|placed| placed.run).collect());
        Ok(())
    }

    /// Space on disk for a scratch run.
    fn reserve(&self, run: Run) -> Result<(), Error> {
        if self.files.is_empty() {
            return Err(Error::Misuse { what: format!("{run} streams, but there is no volume") });
        }
        for (volume, offset, bytes) in self.layout.spans(run, Side::First) {
            self.files[usize::from(volume)].reserve(offset, bytes)?;
        }
        Ok(())
    }

    /// Starts a sweep; one at a time. `next` names the plan that will follow, so that its first runs are fetched early.
    ///
    /// # Errors
    /// `Misuse` or `Config` for a plan that this store cannot execute; `Poisoned`.
    pub fn sweep(&self, plan: &Arc<Plan>, next: Option<&Arc<Plan>>) -> Result<Sweep<'_>, Error> {
        let base = self.handle.begin(Command::Begin { plan: plan.clone(), next: next.cloned() })?;
        let (taken, waited) = Default::default();
        Ok(Sweep { engine: self, plan: plan.clone(), base, taken, waited, over: false })
    }

    /// Makes everything written so far durable as one commit, and waits for it. Not while a writing lease or ticket is
    /// held; beside a sweep that writes to placed runs only at its commit marks, by [`Sweep::commit`].
    ///
    /// # Errors
    /// `Misuse`, `Poisoned`.
    pub fn commit(&self, note: &[u8]) -> Result<CommitId, Error> {
        self.handle.commit(note)?.ok_or(Error::Closed)
    }

    /// Waits for a commit begun by [`Sweep::commit`]; returns the last durable commit.
    ///
    /// # Errors
    /// `Misuse` if the commit was refused; `Poisoned`.
    pub fn wait_committed(&self) -> Result<Option<CommitId>, Error> {
        self.handle.wait_committed()
    }

    /// What records its events, if anything does.
    pub fn recorder(&self) -> Option<&Recorder> {
        self.recorder.as_deref()
    }

    /// Counters since open.
    pub fn stats(&self) -> Stats {
        self.handle.stats()
    }

    /// One line per thing that the user should know (fallback of the backend, buffered I/O, ...). Taken once.
    pub fn notices(&self) -> Vec<String> {
        std::mem::take(&mut self.notices.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    /// Waits for a commit being made and for what is in flight, and releases the store. Uncommitted changes are gone.
    ///
    /// # Errors
    /// `Poisoned`, or the refusal of a commit that was begun.
    pub fn close(self) -> Result<(), Error> {
        self.handle.wait_committed().map(|_| ())
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.handle.stop();
        self.reactor.join();
    }
}

/// Tells waiting users that the reactor is gone, also when it panics.
struct ClosedOnExit(Arc<Handle>);

impl Drop for ClosedOnExit {
    fn drop(&mut self) {
        self.0.closed();
    }
}

fn check(config: &Config, regions: &[RegionSpec], layout: &Layout) -> Result<(), Error> {
    let fail = |what: String| Err(Error::Config { what });
    if !(1..=1024).contains(&config.queue_depth) {
        return fail(format!("queue_depth: expected 1 to 1024, found {}", config.queue_depth));
    }
    let page_max = regions.iter().map(|r| r.page_bytes).max().unwrap_or(0);
    if config.transfer_bytes == 0 || !config.transfer_bytes.is_multiple_of(4096) {
        return fail(format!("transfer_bytes: expected a multiple of 4096, found {}", config.transfer_bytes));
    }
    if !config.unplanned_bytes.is_multiple_of(BLOCK) {
        return fail(format!("unplanned_bytes: expected a multiple of {BLOCK}, found {}", config.unplanned_bytes));
    }
    let need = meta_bytes(layout).saturating_add(u64::from(page_max)).saturating_add(config.unplanned_bytes);
    if config.host_bytes < need {
        return fail(format!("host_bytes: expected at least {need} for this store, found {}", config.host_bytes));
    }
    Ok(())
}

/// One execution of a plan. Accesses are taken in the schedule's order. Dropped before [`finish`](Sweep::finish), it is
/// given up: what was not taken is forgotten.
pub struct Sweep<'e> {
    engine: &'e Engine,
    plan: Arc<Plan>,
    base: u64,
    taken: Cell<usize>,
    waited: Cell<Waited>,
    over: bool,
}

/// Nanoseconds that a sweep's user has waited for its accesses.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Waited {
    /// For pages to be read.
    pub for_reads_ns: u64,
    /// For write-backs that had to end before the access could begin.
    pub for_writes_ns: u64,
}

impl Sweep<'_> {
    /// The schedule's next access, a read of `run`. Waits until the bytes are there.
    ///
    /// # Errors
    /// `OffPlan`, or `Misuse` if the access is on a device; `Io` or `Corrupt` if the bytes cannot be had, then the
    /// access is over and the sweep can go on; `Poisoned`.
    pub fn host(&self, run: Run) -> Result<HostLease<'_>, Error> {
        let seq = self.next(run, Some(false), Some(Tier::Host))?;
        let (offset, bytes, _) = self.take(seq)?;
        Ok(HostLease::new(self.loan(seq, offset, bytes, false)))
    }

    /// The schedule's next access, a write or update of `run`. The bytes of a write are unspecified: all must be
    /// written.
    ///
    /// # Errors
    /// As [`host`](Sweep::host).
    pub fn host_mut(&self, run: Run) -> Result<HostLeaseMut<'_>, Error> {
        let seq = self.next(run, Some(true), Some(Tier::Host))?;
        let (offset, bytes, _) = self.take(seq)?;
        Ok(HostLeaseMut::new(self.loan(seq, offset, bytes, true)))
    }

    /// The schedule's next access, a read of `run` on a device, for work on `stream`. Waits until the bytes are on
    /// their way to its VRAM, with room there; for the rest the stream waits, before it does what is put on it from
    /// then on. If it is relayed from an access in RAM, the lease of that one may still be held only where the schedule
    /// says so, and nobody writes through it until this call returns.
    ///
    /// Work on another stream must come behind something on this one. Bytes that a kernel read or wrote are known to
    /// the processor only once it has synchronised the stream.
    ///
    /// # Errors
    /// As [`host`](Sweep::host), and `Misuse` if the schedule's access is elsewhere; `Device`, then the
    /// engine is poisoned.
    pub fn device(&self, run: Run, device: DeviceId, stream: Stream) -> Result<DeviceLease<'_>, Error> {
        self.on_device(run, (device, stream), false)
    }

    /// The schedule's next access, a write or update of `run` on a device. The bytes of a write are unspecified: all
    /// must be written.
    ///
    /// # Errors
    /// As [`device`](Sweep::device).
    pub fn device_mut(&self, run: Run, device: DeviceId, stream: Stream) -> Result<DeviceLease<'_>, Error> {
        self.on_device(run, (device, stream), true)
    }

    fn on_device(&self, run: Run, on: (DeviceId, Stream), changed: bool) -> Result<DeviceLease<'_>, Error> {
        let (device, _) = on;
        let seq = self.next(run, Some(changed), Some(Tier::Device(device)))?;
        let place = self.take(seq)?;
        let Engine { handle, streams, .. } = self.engine;
        let (_, streams) = streams.iter().find(|(id, _)| *id == device).expect("a plan's devices are the engine's");
        DeviceLease::new(handle.clone(), Arc::clone(streams), on, seq, place, changed)
    }

    /// Passes over the schedule's next access without using it; nothing is changed.
    ///
    /// # Errors
    /// `OffPlan`.
    pub fn pass(&self, run: Run) -> Result<(), Error> {
        let seq = self.next(run, None, None)?;
        self.engine.handle.pass(seq);
        Ok(())
    }

    /// At a commit mark of the schedule: starts the commit, which becomes durable while the sweep goes on. Waits for an
    /// earlier one first.
    ///
    /// # Errors
    /// `Misuse` while a writing lease or ticket is held (told by the next wait); `Poisoned`.
    pub fn commit(&self, note: &[u8]) -> Result<(), Error> {
        self.engine.handle.commit_start(note)
    }

    /// Ends the sweep.
    ///
    /// # Errors
    /// `OffPlan` if accesses are left; `Poisoned`.
    pub fn finish(mut self) -> Result<(), Error> {
        if let Some(interval) = self.plan.intervals.get(self.taken.get()) {
            let what = format!("the sweep ends before its access to {}", interval.run);
            return Err(Error::Misuse { what });
        }
        self.over = true;
        self.engine.handle.end(Command::End)
    }

    fn next(&self, run: Run, writes: Option<bool>, tier: Option<Tier>) -> Result<u64, Error> {
        let index = self.taken.get();
        if let (Some(interval), Some(tier)) = (self.plan.intervals.get(index), tier)
            && interval.run == run
            && interval.tier != tier
        {
            let what = format!("the schedule's access to {run} is in {:?}, not in {tier:?}", interval.tier);
            return Err(Error::Misuse { what });
        }
        match self.plan.intervals.get(index) {
            Some(i) if i.run == run && writes.is_none_or(|w| w == i.mode.writes()) => {
                self.taken.set(index + 1);
                Ok(self.base + index as u64)
            }
            other => Err(Error::OffPlan { expected: other.map(|i| i.run), found: run }),
        }
    }

    /// What the user has waited so far.
    pub fn waited(&self) -> Waited {
        self.waited.get()
    }

    fn take(&self, seq: u64) -> Result<Published, Error> {
        let taken = self.engine.handle.take(seq)?;
        if let Some(wait) = taken.wait {
            self.note_wait(&wait, seq);
        }
        Ok(taken.place)
    }

    fn note_wait(&self, wait: &Wait, seq: u64) {
        let mut waited = self.waited.get();
        *(if wait.for_writes { &mut waited.for_writes_ns } else { &mut waited.for_reads_ns }) += wait.ns;
        self.waited.set(waited);
        if let Some(recorder) = &self.engine.recorder {
            let interval = &self.plan.intervals[(seq - self.base) as usize];
            if let Node::Access(access) = self.plan.schedule.nodes[interval.node as usize] {
                recorder.waited(interval.run, access.tag, wait.begin);
            }
        }
    }

    fn loan(&self, seq: u64, offset: u64, bytes: u64, changed: bool) -> Loan {
        let Engine { handle, arena, .. } = self.engine;
        Loan::new(handle.clone(), arena.clone(), Lender::Sweep(seq), offset, bytes, changed)
    }
}

impl Drop for Sweep<'_> {
    fn drop(&mut self) {
        if !self.over {
            // A poisoned or closed engine has nothing to give up.
            let _ = self.engine.handle.end(Command::Abort);
        }
    }
}
