//! Errors of the engine. Each carries the facts and tells the caller what can be done.

use crate::id::{CommitId, DeviceId, Run, Tier};
use crate::plan::Budget;
use std::path::PathBuf;
use std::{fmt, io, sync::Arc};

/// What went wrong in an engine call.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Error {
    /// The operating system failed an operation on a volume. After a failed write or sync the engine is poisoned.
    Io {
        /// What was being done, as a verb phrase.
        doing: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// Byte offset in the file.
        offset: u64,
        /// Bytes asked for.
        bytes: u64,
        /// The operating system's answer.
        source: Arc<io::Error>,
    },
    /// A page's bytes are not those that were committed or written. The store has one copy: restore it from an export.
    Corrupt {
        /// The region's name.
        region: String,
        /// Page index within the region.
        page: u32,
        /// Checksum recorded when the page was written.
        expected: u64,
        /// Checksum of the bytes read.
        found: u64,
        /// The commit the store was opened at.
        commit: CommitId,
    },
    /// A record of the store's own (superblock, catalogue, page table) does not check.
    Damaged {
        /// The file.
        path: PathBuf,
        /// Which record and what is wrong with it.
        what: String,
    },
    /// The volume cannot hold what the store needs. Nothing was changed.
    NoSpace {
        /// The directory of the volume.
        path: PathBuf,
        /// Bytes needed.
        need: u64,
        /// Bytes free.
        free: u64,
    },
    /// Another process uses the store.
    Locked {
        /// The directory of the volume.
        path: PathBuf,
        /// The owner's process id, 0 if it could not be read.
        pid: u32,
    },
    /// The store was written by a newer version.
    Format {
        /// The file.
        path: PathBuf,
        /// Version found.
        found: u32,
        /// Newest version this build reads.
        supported: u32,
    },
    /// There is no store in the directory.
    NoStore {
        /// The directory.
        path: PathBuf,
    },
    /// The store exists but has no commit: its creation did not finish.
    NoCommit {
        /// The directory.
        path: PathBuf,
    },
    /// A directory for a new store already holds one.
    Exists {
        /// The directory.
        path: PathBuf,
    },
    /// A volume of the store is not in the directories given.
    MissingVolume {
        /// The store's lead, or the directory that should hold the volume.
        path: PathBuf,
        /// Which volume of which store.
        what: String,
    },
    /// The volume belongs to another store or has another place in this one.
    ForeignVolume {
        /// The directory.
        path: PathBuf,
        /// What was expected and found.
        what: String,
    },
    /// The file system refuses direct I/O and it was required, or its alignment is larger than 4,096.
    DirectIo {
        /// The directory.
        path: PathBuf,
        /// The refusal.
        what: String,
    },
    /// io_uring was required and cannot be used.
    Uring {
        /// The call that failed and what to do.
        what: String,
    },
    /// A device that was asked for cannot be used: it, or its driver, is not there or too old.
    NoDevice {
        /// The device.
        device: DeviceId,
        /// What was looked for.
        looked_for: String,
        /// What was found instead.
        found: String,
        /// What is needed.
        needed: String,
    },
    /// A call of a device's driver failed. After a failed copy or fence the engine is poisoned.
    Device {
        /// The device.
        device: DeviceId,
        /// The call.
        call: &'static str,
        /// The driver's number for the error.
        code: u32,
        /// Its name and description.
        text: String,
    },
    /// A value of the configuration is out of its range.
    Config {
        /// Field, expected, found.
        what: String,
    },
    /// A sweep was asked for another access than the schedule's next.
    OffPlan {
        /// The schedule's next access, if any is left.
        expected: Option<Run>,
        /// What was asked for.
        found: Run,
    },
    /// A call that the engine's state does not allow (a fetch during a sweep, a write to a sealed region).
    Misuse {
        /// Which call and why not.
        what: String,
    },
    /// A write, sync or copy to or from a device failed earlier: what is on disk or in VRAM is unknown since then.
    /// Close, and open the last commit.
    Poisoned {
        /// The first failure.
        first: String,
    },
    /// The reactor thread is gone.
    Closed,
}

impl Error {
    /// Whether the configuration asked for a way of I/O that this machine does not have (`DirectIo`, `Uring`): nothing
    /// is wrong with the store, and another configuration works.
    pub fn is_refused_io(&self) -> bool {
        matches!(self, Error::DirectIo { .. } | Error::Uring { .. })
    }
}

/// Why a plan cannot be made.
#[derive(Clone, PartialEq, Debug)]
pub enum PlanError {
    /// The schedule needs more of a tier than the budget has.
    DoesNotFit {
        /// The tier that is too small.
        tier: Tier,
        /// Bytes needed at least.
        need: u64,
        /// Bytes given.
        have: u64,
        /// The budget nearest to the given one that fits.
        nearest: Budget,
    },
    /// A node depends on itself or on a later one.
    Unordered {
        /// The node.
        node: u32,
    },
    /// Two accesses use runs that overlap without being equal.
    Overlap {
        /// The run met first.
        first: Run,
        /// The other.
        second: Run,
    },
    /// An access to a run of which an earlier access is still live: its bytes would have to be in two places.
    LiveTwice {
        /// The run.
        run: Run,
        /// The later access node.
        node: u32,
    },
    /// A run names a region or pages that do not exist.
    NoSuchRun {
        /// The run.
        run: Run,
    },
    /// The profile has no link to a GPU that the schedule uses.
    NoLink {
        /// The GPU.
        device: DeviceId,
    },
    /// A node asks for what no budget gives: an access to the disk itself, an access on one GPU to a run that lives on
    /// another, a relayed access to a run that lives in VRAM, or host work with VRAM.
    Misplaced {
        /// The node.
        node: u32,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io { doing, path, offset: 0, bytes: 0, source } => {
                write!(f, "{}: {doing} failed: {source}", path.display())
            }
            Error::Io { doing, path, offset, bytes, source } => {
                write!(f, "{}: {doing} of {bytes} bytes at offset {offset} failed: {source}", path.display())
            }
            Error::Corrupt { region, page, expected, found, commit } => write!(
                f,
                "page {page} of region {region} is corrupt: checksum expected {expected:016x}, found {found:016x} \
                 (store at commit {commit}); the store holds one copy, so restore from an export"
            ),
            Error::Damaged { path, what } => write!(f, "{}: {what}", path.display()),
            Error::NoSpace { path, need, free } => {
                write!(f, "{}: not enough space: {need} bytes needed, {free} bytes free", path.display())
            }
            Error::Locked { path, pid } => write!(f, "{}: the store is in use by process {pid}", path.display()),
            Error::Format { path, found, supported } => write!(
                f,
                "{}: store format {found} is newer than {supported}, the newest this version reads; use a newer one",
                path.display()
            ),
            Error::NoStore { path } => write!(f, "{}: no store here", path.display()),
            Error::NoCommit { path } => write!(f, "{}: the store has no commit yet", path.display()),
            Error::Exists { path } => write!(f, "{}: a store exists here already", path.display()),
            Error::MissingVolume { path, what } => {
                write!(f, "{}: a volume of the store is missing: {what}", path.display())
            }
            Error::ForeignVolume { path, what } => write!(f, "{}: not this store's volume: {what}", path.display()),
            Error::DirectIo { path, what } => write!(f, "{}: direct I/O cannot be used: {what}", path.display()),
            Error::Uring { what } => write!(f, "io_uring cannot be used: {what}"),
            Error::NoDevice { device, looked_for, found, needed } => {
                write!(
                    f,
                    "device {} cannot be used: looked for {looked_for}, found {found}; needed: {needed}",
                    device.0
                )
            }
            Error::Device { device, call, code, text } => {
                write!(f, "device {}: {call} failed with error {code}: {text}", device.0)
            }
            Error::Config { what } => write!(f, "engine configuration: {what}"),
            Error::OffPlan { expected: Some(e), found } => {
                write!(f, "off plan: expected an access to {e}, found {found}")
            }
            Error::OffPlan { expected: None, found } => {
                write!(f, "off plan: the sweep is over, found an access to {found}")
            }
            Error::Misuse { what } => write!(f, "{what}"),
            Error::Poisoned { first } => {
                write!(
                    f,
                    "the engine stopped after a failed write, sync or copy ({first}); open the store again at its last \
                     commit"
                )
            }
            Error::Closed => write!(f, "the engine's reactor has stopped"),
        }
    }
}

impl std::error::Error for Error {}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlanError::DoesNotFit { tier, need, have, .. } => {
                write!(f, "the plan does not fit: {tier:?} needs {need} bytes, has {have}")
            }
            PlanError::Unordered { node } => write!(f, "schedule node {node} depends on itself or on a later node"),
            PlanError::Overlap { first, second } => write!(f, "runs overlap without being equal: {first} and {second}"),
            PlanError::LiveTwice { run, node } => {
                write!(f, "schedule node {node} accesses {run} while an earlier access to it is still in use")
            }
            PlanError::NoSuchRun { run } => write!(f, "no such run: {run}"),
            PlanError::NoLink { device } => write!(f, "the profile has no link to device {}", device.0),
            PlanError::Misplaced { node } => {
                write!(f, "schedule node {node} asks for a tier that it cannot have, whatever the budget")
            }
        }
    }
}

impl std::error::Error for PlanError {}
