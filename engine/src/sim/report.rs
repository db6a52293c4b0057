//! What a run of the simulation says: counters of what was met, or the first check that failed.

use crate::io::memory::fault::{Counts, Fault};
use std::fmt;

/// A situation that a run may meet. A test over many seeds demands that each was.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Mark {
    /// A sweep began.
    Sweep,
    /// A sweep began that was announced while the one before it ran.
    AnnouncedSweep,
    /// A sweep began that cuts the pages into other runs than the one before.
    OtherCut,
    /// A sweep was given up.
    AbortedSweep,
    /// An access was passed over.
    PassedOver,
    /// A writing lease came back unchanged.
    Discarded,
    /// A lease was taken that had been published before it was asked for.
    TakenAtOnce,
    /// A commit became durable.
    Commit,
    /// A commit became durable after accesses that follow its mark.
    CommitBesideSweep,
    /// A commit of a store with pages that were not written since the one before.
    PartialCommit,
    /// A commit was refused because it was asked for at a wrong moment.
    CommitRefused,
    /// A write to a frozen region was refused after the first commit.
    SealedRefused,
    /// Scratch that was never written was read, and that was told.
    UndefinedScratch,
    /// Damage was found and told, with region, page and commit.
    CorruptTold,
    /// A read failed and that was told.
    ReadErrorTold,
    /// A write or sync failed, and the engine stopped.
    Poisoned,
    /// Records were damaged beyond their copies, and opening told.
    DamagedTold,
    /// The power went.
    PowerLoss,
    /// The process was killed.
    Kill,
    /// The process ended in order.
    Close,
    /// The power went or the process was killed while the store was made.
    CrashInCreation,
    /// The power went or the process was killed while the store was opened.
    CrashInRecovery,
    /// A commit that was never acknowledged was found at open.
    UnacknowledgedFound,
    /// A commit that was being made was not found at open.
    UnacknowledgedLost,
    /// A store of several volumes was opened.
    SeveralVolumes,
    /// A volume was replaced by an older copy of itself.
    OlderVolume,
    /// A lease of a ticket was used.
    Ticket,
    /// A ticket was dropped while it waited.
    TicketDropped,
    /// A ticket was refused: it does not lie inside what is placed, or is too long for the room there is.
    TicketRefused,
    /// A copy was spoiled and given back unchanged.
    Spoiled,
    /// Pages were announced.
    Prefetch,
    /// A ticket took back what a sweep had fetched ahead.
    TakenBack,
    /// The sweep's user was faster.
    TakenFirst,
}

impl Mark {
    /// Every mark.
    pub const ALL: [Mark; 33] = [
        Mark::Sweep,
        Mark::AnnouncedSweep,
        Mark::OtherCut,
        Mark::AbortedSweep,
        Mark::PassedOver,
        Mark::Discarded,
        Mark::TakenAtOnce,
        Mark::Commit,
        Mark::CommitBesideSweep,
        Mark::PartialCommit,
        Mark::CommitRefused,
        Mark::SealedRefused,
        Mark::UndefinedScratch,
        Mark::CorruptTold,
        Mark::ReadErrorTold,
        Mark::Poisoned,
        Mark::DamagedTold,
        Mark::PowerLoss,
        Mark::Kill,
        Mark::Close,
        Mark::CrashInCreation,
        Mark::CrashInRecovery,
        Mark::UnacknowledgedFound,
        Mark::UnacknowledgedLost,
        Mark::SeveralVolumes,
        Mark::OlderVolume,
        Mark::Ticket,
        Mark::TicketDropped,
        Mark::TicketRefused,
        Mark::Spoiled,
        Mark::Prefetch,
        Mark::TakenBack,
        Mark::TakenFirst,
    ];

    /// In words, for reports.
    pub fn name(self) -> &'static str {
        match self {
            Mark::Sweep => "sweep",
            Mark::AnnouncedSweep => "sweep that was announced",
            Mark::OtherCut => "sweep that cuts pages otherwise",
            Mark::AbortedSweep => "sweep given up",
            Mark::PassedOver => "access passed over",
            Mark::Discarded => "writing lease given back unchanged",
            Mark::TakenAtOnce => "lease taken at once",
            Mark::Commit => "commit",
            Mark::CommitBesideSweep => "commit beside a sweep",
            Mark::PartialCommit => "commit with pages not written since the last",
            Mark::CommitRefused => "commit refused",
            Mark::SealedRefused => "write to a frozen region refused",
            Mark::UndefinedScratch => "undefined scratch told",
            Mark::CorruptTold => "damage told",
            Mark::ReadErrorTold => "read error told",
            Mark::Poisoned => "engine stopped by a failed write or sync",
            Mark::DamagedTold => "damaged records told at open",
            Mark::PowerLoss => "power loss",
            Mark::Kill => "process killed",
            Mark::Close => "process ended in order",
            Mark::CrashInCreation => "crash in creation",
            Mark::CrashInRecovery => "crash in recovery",
            Mark::UnacknowledgedFound => "unacknowledged commit found at open",
            Mark::UnacknowledgedLost => "unacknowledged commit not found at open",
            Mark::SeveralVolumes => "store of several volumes opened",
            Mark::OlderVolume => "volume replaced by an older copy",
            Mark::Ticket => "ticket used",
            Mark::TicketDropped => "ticket dropped while it waited",
            Mark::TicketRefused => "ticket refused",
            Mark::Spoiled => "copy spoiled and given back unchanged",
            Mark::Prefetch => "prefetch",
            Mark::TakenBack => "fetched ahead and taken back for a ticket",
            Mark::TakenFirst => "fetched ahead and taken before it was taken back",
        }
    }
}

/// Counters of one run, or of many.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Report {
    /// Hash of everything that happened, in order. Of many runs: meaningless.
    pub hash: u64,
    /// Submissions and completions of the simulated disk.
    pub events: u64,
    /// Images of a crash that were recovered and checked page by page.
    pub images: u64,
    /// How often each fault struck.
    pub faults: Counts,
    marks: Marks,
}

/// How often each situation was met.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Marks([u64; Mark::ALL.len()]);

impl Default for Marks {
    fn default() -> Marks {
        Marks([0; Mark::ALL.len()])
    }
}

impl Report {
    /// How often a situation was met.
    pub fn met(&self, mark: Mark) -> u64 {
        self.marks.0[mark as usize]
    }

    /// Adds another run's counters.
    pub fn add(&mut self, other: &Report) {
        self.events += other.events;
        self.images += other.images;
        self.faults.add(&other.faults);
        self.marks.0.iter_mut().zip(other.marks.0).for_each(|(mine, theirs)| *mine += theirs);
    }

    /// Faults by name with how often each struck.
    pub fn faults_by_name(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        Fault::ALL.into_iter().map(|fault| (fault.name(), self.faults.of(fault)))
    }

    pub(super) fn mark(&mut self, mark: Mark) {
        self.marks.0[mark as usize] += 1;
    }
}

/// A clause of the contract that did not hold.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Check {
    /// Opening gives the last acknowledged commit, or the one being made.
    Recovery,
    /// A read gives the right bytes or an error.
    Bytes,
    /// Scratch that was not written since open, and writes to frozen regions, are errors.
    Kinds,
    /// Bytes of the arena have one use at a time.
    Memory,
    /// Every request ends.
    Liveness,
    /// After a failed write or sync nothing succeeds.
    Poison,
    /// Nothing fails without a reason.
    Errors,
    /// An assertion of the engine or of the simulated disk.
    Assertion,
}

impl Check {
    /// In words, for reports.
    pub fn name(self) -> &'static str {
        match self {
            Check::Recovery => "recovery",
            Check::Bytes => "bytes",
            Check::Kinds => "kinds of regions",
            Check::Memory => "memory",
            Check::Liveness => "liveness",
            Check::Poison => "poison",
            Check::Errors => "errors",
            Check::Assertion => "assertion",
        }
    }
}

/// The first check that failed, and what led to it. Shown as one line whose beginning replays it.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Replays it.
    pub seed: u64,
    /// The clause.
    pub check: Check,
    /// What was expected and found.
    pub what: String,
    /// The last rows of the trace, one a line.
    pub rows: Vec<String>,
    /// What was met until then.
    pub report: Report,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mt-bench sim --seed {:#018x}   # {}: {}", self.seed, self.check.name(), self.what)
    }
}

/// Why a run cannot go on: a check failed.
#[derive(Debug)]
pub(super) struct Broken {
    pub(super) check: Check,
    pub(super) what: String,
}

impl Broken {
    pub(super) fn new(check: Check, what: impl Into<String>) -> Broken {
        Broken { check, what: what.into() }
    }
}
