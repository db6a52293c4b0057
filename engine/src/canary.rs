//! Planted bugs: each is a mistake that a store like this could make, and the simulation, or the tests of devices,
//! must find every one of them. They test the tests.
//!
//! Outside of tests nothing can be planted: `planted` is a constant `false`, and what depends on it is not compiled in.

/// A bug that can be planted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Canary {
    /// The superblock is written before the pages and the table are synced.
    NoSyncBeforeSuperblock,
    /// A commit is acknowledged before its superblock is synced.
    NoSyncAfterSuperblock,
    /// The superblock is written together with the table.
    SuperblockWithTable,
    /// Every commit uses the same superblock and table slot.
    OneSlot,
    /// The superblock leads to the table of the commit before.
    StaleTable,
    /// Changed pages are written over their committed extent.
    CommittedExtent,
    /// A short transfer counts as whole.
    ShortIsWhole,
    /// A failed transfer counts as done.
    FailedIsDone,
    /// A failed sync is tried again.
    SyncAgain,
    /// Checksums are not compared.
    NoVerify,
    /// A span of the window is free before its write-back has ended.
    EarlySpan,
    /// Changed bytes leave the window without a write-back.
    NoWriteBack,
    /// Write-backs are not held while a commit is being made.
    NoHold,
    /// A placed run is flushed while its next writer goes on.
    FlushUnguarded,
    /// Leases of the next interval are published although a commit mark lies between.
    NoGate,
    /// A commit is taken on away from a mark, while leases of placed runs are published that it would read.
    StrayCommit,
    /// A write that was passed over makes a placed run count as loaded.
    LoadedUnread,
    /// Every reader of a placed run that is not loaded fetches it.
    TwoFetches,
    /// Frozen pages are written after the first commit.
    Unsealed,
    /// A superblock that was found at open is not made durable before it is built upon.
    NoRenewal,
    /// A commit syncs the pages of the lead only.
    SyncLeadOnly,
    /// Stripes that a volume has several of in the pattern lie on each other.
    StripeOverlap,
    /// A volume of another store is taken for one of this.
    ForeignVolume,
    /// Copies of pages that are written elsewhere are found again.
    StaleCopy,
    /// A ticket does not keep the sweeps' users off its pages.
    TicketAside,
    /// What a ticket has changed is written while a commit is being made.
    TicketNoHold,
    /// A commit is taken on while a writing ticket is held.
    CommitBesideTicket,
    /// An access is taken back although its user has the lease.
    RecallTaken,
    /// A copy that came back unchanged from a writing ticket is found again.
    UnchangedCopy,
    /// Bytes on a device are free before the user's stream has passed.
    FenceIgnored,
    /// A span of the staging ring is free before its bytes are on disk.
    StagingEarly,
    /// Changed bytes leave VRAM before they are in the staging ring.
    DrainEarly,
    /// The span that another interval is relayed from is not kept for it.
    RelayNotKept,
    /// What is relayed from an access that was to write, and wrote nothing, is what lay in its span.
    UnwrittenSource,
    /// Changed bytes go to their home while a commit flushes it.
    ReturnNotHeld,
    /// A commit does not wait for the streams of those who changed what it flushes.
    FlushBeforeFence,
    /// A commit leaves out what lives in VRAM.
    VramNotFlushed,
    /// A failed copy counts as done.
    FailedCopyIsDone,
    /// A stream uses bytes in VRAM without waiting for the streams of those who had them before.
    FencesNotAwaited,
    /// A stream uses bytes in VRAM without waiting for the upload that brings them.
    UploadNotAwaited,
    /// Bytes are copied from their home in VRAM while those who have given them back still change them.
    CopyBeforeFence,
    /// What was computed from bytes whose upload failed is taken for good.
    FenceBeforeUpload,
    /// A lease on a device that is relayed beside the one in RAM is handed out while its bytes are still read there.
    BesideEarly,
}

/// Whether the bug is planted on this thread.
#[cfg(not(test))]
#[inline(always)]
pub(crate) const fn planted(_: Canary) -> bool {
    false
}

#[cfg(test)]
pub(crate) use nest::{ALL, DEVICES, Nest, planted};

#[cfg(test)]
mod nest {
    use super::Canary;
    use std::cell::Cell;

    /// Every bug that the simulation finds.
    pub(crate) const ALL: [Canary; 29] = [
        Canary::NoSyncBeforeSuperblock,
        Canary::NoSyncAfterSuperblock,
        Canary::SuperblockWithTable,
        Canary::OneSlot,
        Canary::StaleTable,
        Canary::CommittedExtent,
        Canary::ShortIsWhole,
        Canary::FailedIsDone,
        Canary::SyncAgain,
        Canary::NoVerify,
        Canary::EarlySpan,
        Canary::NoWriteBack,
        Canary::NoHold,
        Canary::FlushUnguarded,
        Canary::NoGate,
        Canary::StrayCommit,
        Canary::LoadedUnread,
        Canary::TwoFetches,
        Canary::Unsealed,
        Canary::NoRenewal,
        Canary::SyncLeadOnly,
        Canary::StripeOverlap,
        Canary::ForeignVolume,
        Canary::StaleCopy,
        Canary::TicketAside,
        Canary::TicketNoHold,
        Canary::CommitBesideTicket,
        Canary::RecallTaken,
        Canary::UnchangedCopy,
    ];

    /// Bugs on the ways to and from devices, which `core/device_tests` finds.
    pub(crate) const DEVICES: [Canary; 14] = [
        Canary::FenceIgnored,
        Canary::StagingEarly,
        Canary::DrainEarly,
        Canary::RelayNotKept,
        Canary::UnwrittenSource,
        Canary::ReturnNotHeld,
        Canary::FlushBeforeFence,
        Canary::VramNotFlushed,
        Canary::FailedCopyIsDone,
        Canary::FencesNotAwaited,
        Canary::UploadNotAwaited,
        Canary::CopyBeforeFence,
        Canary::FenceBeforeUpload,
        Canary::BesideEarly,
    ];

    thread_local! {
        static PLANTED: Cell<Option<Canary>> = const { Cell::new(None) };
    }

    pub(crate) fn planted(canary: Canary) -> bool {
        PLANTED.get() == Some(canary)
    }

    /// Keeps a bug planted on this thread while it lives.
    pub(crate) struct Nest;

    impl Nest {
        pub(crate) fn of(canary: Canary) -> Nest {
            PLANTED.set(Some(canary));
            Nest
        }
    }

    impl Drop for Nest {
        fn drop(&mut self) {
            PLANTED.set(None);
        }
    }
}
