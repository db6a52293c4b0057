//! The engine's handle.
use crate::{config::{Config, RegionSpec}, error::Error, id::{CommitId, RegionId, Run}, plan::{Plan, Residency}};
use std::sync::Arc;

/// Counters since open. Bytes are what the volumes were asked to move.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Stats { pub disk_read_bytes: u64, pub disk_write_bytes: u64, pub commit_bytes: u64, pub stall_ns: u64, pub demand_misses: u64, pub commits: u64, pub arena_peak_bytes: u64 }

/// A store that is open, with the arena and the reactor thread.
pub struct Engine(());
/// One execution of a plan.
pub struct Sweep<'e>(&'e Engine);
/// Read right to a run; contiguous bytes, 4,096-aligned.
pub struct HostLease<'s>(&'s [u8]);
/// Write right to a run. Dropping it gives the bytes back as changed; `discard` as unchanged.
pub struct HostLeaseMut<'s>(&'s mut [u8]);

impl Engine {
    /// Creates a store (space reserved) and opens it. No commit exists until `commit`.
    pub fn create(config: Config, regions: &[RegionSpec]) -> Result<Engine, Error> { let _ = (config, regions); todo!() }
    /// Opens a store at its last commit. `Error::NoCommit` if it has none.
    pub fn open(config: Config) -> Result<Engine, Error> { let _ = config; todo!() }
    /// The regions in the order of their ids.
    pub fn regions(&self) -> &[RegionSpec] { todo!() }
    /// The region of this name.
    pub fn region(&self, name: &str) -> Option<RegionId> { let _ = name; todo!() }
    /// The store's identity.
    pub fn uuid(&self) -> uuid::Uuid { todo!() }
    /// The last durable commit and its note.
    pub fn committed(&self) -> Option<(CommitId, Vec<u8>)> { todo!() }
    /// Adopts a placement: later sweeps keep these runs in RAM. Reserves disk space for the plan's spilled scratch runs. Once per open, before any sweep that places runs.
    pub fn place(&self, residency: &Residency, spilled: &[Run]) -> Result<(), Error> { let _ = (residency, spilled); todo!() }
    /// Starts a sweep; one at a time. `next` names the plan that will follow, so that its first runs are fetched early.
    pub fn sweep(&self, plan: &Arc<Plan>, next: Option<&Arc<Plan>>) -> Result<Sweep<'_>, Error> { let _ = (plan, next); todo!() }
    /// Makes everything written so far durable as one commit, and waits for it. Not during a sweep.
    pub fn commit(&self, note: &[u8]) -> Result<CommitId, Error> { let _ = note; todo!() }
    /// Waits for a commit begun by `Sweep::commit`.
    pub fn wait_committed(&self) -> Result<Option<CommitId>, Error> { todo!() }
    /// Counters.
    pub fn stats(&self) -> Stats { todo!() }
    /// One line per thing the user should know (backend fallback, buffered I/O, ...), taken once.
    pub fn notices(&self) -> Vec<String> { todo!() }
    /// Waits for what is in flight and releases the store. Uncommitted changes are gone.
    pub fn close(self) -> Result<(), Error> { todo!() }
}
impl<'e> Sweep<'e> {
    /// The schedule's next access, which must be a read of `run`. Waits until the bytes are there.
    pub fn host(&self, run: Run) -> Result<HostLease<'_>, Error> { let _ = run; todo!() }
    /// The schedule's next access, which must be a write or update of `run`.
    pub fn host_mut(&self, run: Run) -> Result<HostLeaseMut<'_>, Error> { let _ = run; todo!() }
    /// Passes over the schedule's next access without using it (nothing is read or changed).
    pub fn pass(&self, run: Run) -> Result<(), Error> { let _ = run; todo!() }
    /// At the schedule's commit mark: starts the commit, which becomes durable while the sweep goes on. At most one in flight: waits for an earlier one.
    pub fn commit(&self, note: &[u8]) -> Result<(), Error> { let _ = note; todo!() }
    /// Ends the sweep: every access must have been taken or passed and every lease given back.
    pub fn finish(self) -> Result<(), Error> { todo!() }
}
impl HostLeaseMut<'_> { /// Gives the bytes back as unchanged; the caller must not have written to them.
    pub fn discard(self) { todo!() } }
impl std::ops::Deref for HostLease<'_> { type Target = [u8]; fn deref(&self) -> &[u8] { self.0 } }
impl std::ops::Deref for HostLeaseMut<'_> { type Target = [u8]; fn deref(&self) -> &[u8] { self.0 } }
impl std::ops::DerefMut for HostLeaseMut<'_> { fn deref_mut(&mut self) -> &mut [u8] { self.0 } }
