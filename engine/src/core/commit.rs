//! A commit: flush, page table, sync of all volumes, superblock, sync of the lead. One at a time, beside the sweep.
//!
//! Invariants: the phases run in this order and each begins only when every operation of the one before has completed;
//! records are encoded only when all pages of the commit are written, so that one sync covers both (nothing leads to a
//! table slot before its superblock); checkpointed pages released later wait.
//!
//! Placed runs are flushed in the order in which the accesses ahead change them, since those wait for it: a step that
//! follows at once goes on right behind the flush, where in the order of regions its first update, which takes runs of
//! all of them, would wait for nearly all.

use super::{Core, Event};
use crate::canary::{Canary, planted};
use crate::config::Kind;
use crate::core::runs::{Home, RunId, RunState};
use crate::core::transfer::{Piece, Purpose};
use crate::error::Error;
use crate::format::checksum::page_checksum;
use crate::format::superblock::{Ledger, State};
use crate::format::{BLOCK, Layout, NOTE_BYTES_MAX, Superblock, block_round_up};
use crate::id::{CommitId, RegionId, Run, Tier};
use crate::io::{FrameMut, Io};
use std::collections::VecDeque;

/// Arena bytes for the store's own records: a table slot and one superblock.
pub(crate) fn meta_bytes(layout: &Layout) -> u64 {
    layout.table_room + BLOCK
}

/// Operations from which on no further placed run is flushed: enough to keep the drives busy whatever the runs' sizes,
/// and few enough to bound what exists at once.
const OPERATIONS_MAX: usize = 128;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Idle,
    /// Write-backs released before the commit, and flushes of placed runs.
    Draining,
    WritingTable,
    Syncing,
    WritingSuper,
    SyncingSuper,
}

/// The commit machine.
pub(crate) struct Commit {
    /// The last commit's superblock.
    superblock: Superblock,
    /// The one being made.
    draft: Superblock,
    /// Where the records' bytes are in the arena.
    arena_offset: u64,
    phase: Phase,
    outstanding: u32,
    note: Vec<u8>,
    to_flush: VecDeque<RunId>,
    flushing: Vec<RunId>,
    /// What the volumes had moved when the store was opened.
    ledger_before: Ledger,
}

impl Commit {
    pub(crate) fn new(superblock: Superblock, arena_offset: u64) -> Commit {
        Commit {
            draft: superblock.clone(),
            ledger_before: superblock.ledger,
            superblock,
            arena_offset,
            phase: Phase::Idle,
            outstanding: 0,
            note: Vec::new(),
            to_flush: VecDeque::new(),
            flushing: Vec::new(),
        }
    }

    pub(crate) fn is_running(&self) -> bool {
        self.phase != Phase::Idle
    }

    pub(crate) fn has_commit(&self) -> bool {
        self.superblock.state == State::Committed
    }

    /// The last commit's number, 0 if there is none.
    pub(crate) fn last(&self) -> u64 {
        self.superblock.commit
    }

    /// End of the arena's part for pages.
    pub(crate) fn arena_offset(&self) -> u64 {
        self.arena_offset
    }

    /// Whether a placed run still waits for its flush.
    pub(crate) fn is_to_flush(&self, id: RunId) -> bool {
        self.to_flush.contains(&id)
    }

    /// Operations of the present phase that are not done.
    pub(crate) fn outstanding(&self) -> u32 {
        self.outstanding
    }

    /// One of the phase's operations is done.
    pub(crate) fn finished(&mut self) {
        self.outstanding -= 1;
    }
}

impl<I: Io> Core<I> {
    pub(crate) fn commit_start(&mut self, note: Vec<u8>) {
        if let Err(error) = self.commit_check(&note) {
            return self.events.push_back(Event::CommitRefused(error));
        }
        self.sweeps.pass_marks(true);
        self.commit.note = note;
        self.commit.phase = Phase::Draining;
        self.live.iter_mut().for_each(|interval| interval.is_covered = interval.released);
        let is_to_flush = |core: &Self, id: RunId| {
            let state = core.runs.get(id);
            // What is still on its way to its home counts.
            let is_dirty = |home: Home| {
                let skipped = home.tier != Tier::Host && planted(Canary::VramNotFlushed);
                home.flushing == 0 && (home.dirty || core.is_changing(state)) && !skipped
            };
            core.layout.kind(state.run.region) != Kind::Scratch && state.home.is_some_and(is_dirty)
        };
        let order: Vec<RunId> = self.sweeps.changed_ahead().chain(self.runs.ids()).collect();
        for id in order {
            if is_to_flush(self, id) {
                self.commit.to_flush.push_back(id);
                // From now on who changes it in place waits, also while the run is still queued.
                self.runs.home_mut(id).flushing = 1;
            }
        }
    }

    fn commit_check(&self, note: &[u8]) -> Result<(), Error> {
        self.check_alive()?;
        let misuse = |what: &str| Err(Error::Misuse { what: what.into() });
        if self.volumes.is_empty() {
            return misuse("a commit needs a volume; this engine has none");
        }
        if note.len() as u64 > NOTE_BYTES_MAX {
            return Err(Error::Config {
                what: format!("note bytes: expected at most {NOTE_BYTES_MAX}, found {}", note.len()),
            });
        }
        if self.commit.is_running() {
            return misuse("a commit is being made; one at a time");
        }
        // A lease that is ready is taken without asking, so where the commit reads the very bytes of a lease (placed
        // runs), or writes to the same extent (frozen ones), one that may be held counts.
        let held = |i: &super::Interval| {
            let shared = (i.kind == Kind::Frozen || i.is_placed()) && !planted(Canary::StrayCommit);
            let writes = !i.released && i.mode.writes() && i.kind != Kind::Scratch;
            writes && (i.seq < self.sweeps.cursor() || (shared && i.state().is_started()))
        };
        if self.live.iter().any(held) {
            return misuse("a commit was asked for away from a mark, or while a writing lease is held");
        }
        if self.tickets.has_writer() && !planted(Canary::CommitBesideTicket) {
            return misuse("a commit was asked for while a writing ticket is held");
        }
        Ok(())
    }

    /// Whether changed bytes of a run, which belong to this commit, have not come to its home.
    fn is_changing(&self, state: &RunState) -> bool {
        let live = state.live.iter().filter_map(|(seq, _)| self.find(*seq));
        live.filter(|interval| interval.is_covered).any(|interval| interval.changed)
    }

    /// Goes on to the next phase when the present one is done.
    pub(crate) fn commit_advance(&mut self) {
        if self.poison.is_some() {
            return;
        }
        if self.commit.phase == Phase::Draining {
            return self.commit_drain();
        }
        if self.commit.phase == Phase::Idle || self.commit.outstanding > 0 {
            return;
        }
        match self.commit.phase {
            Phase::Idle | Phase::Draining => {}
            Phase::WritingTable if planted(Canary::NoSyncBeforeSuperblock) => self.commit_write_superblock(),
            Phase::WritingTable if planted(Canary::SyncLeadOnly) => self.commit_sync(Phase::Syncing, 1),
            Phase::WritingTable => self.commit_sync(Phase::Syncing, self.volumes.len() as u16),
            Phase::Syncing => self.commit_write_superblock(),
            Phase::WritingSuper if planted(Canary::NoSyncAfterSuperblock) => self.commit_done(),
            Phase::WritingSuper => self.commit_sync(Phase::SyncingSuper, 1),
            Phase::SyncingSuper => self.commit_done(),
        }
    }

    fn commit_drain(&mut self) {
        let runs = &self.runs;
        let is_flushing = |id: &RunId| runs.get(*id).home.is_some_and(|home| home.flushing > 0);
        self.commit.flushing.retain(is_flushing);
        let mut at = 0;
        while (self.commit.flushing.is_empty() || self.transfers.len() < OPERATIONS_MAX)
            && let Some(&id) = self.commit.to_flush.get(at)
        {
            if self.is_changing(self.runs.get(id)) && !planted(Canary::FlushBeforeFence) {
                // His stream, or the copy to the home, has not come to its end.
                at += 1;
                continue;
            }
            if !self.flush(id) {
                break;
            }
            self.commit.to_flush.remove(at);
            self.commit.flushing.push(id);
        }
        let is_on_its_way = |i: &super::Interval| i.is_covered && i.state().is_leaving() && i.mode.writes();
        let writing = self.live.iter().any(|i| is_on_its_way(i) && i.kind != Kind::Scratch);
        // Tickets given back since the commit began are held, so those that are being written belong to it.
        let writing = writing || self.tickets.is_writing();
        if self.commit.to_flush.is_empty() && self.commit.flushing.is_empty() && !writing {
            self.commit_write_table();
        }
    }

    fn commit_sync(&mut self, phase: Phase, volumes: u16) {
        self.commit.phase = phase;
        self.commit.outstanding = u32::from(volumes);
        for volume in 0..volumes {
            self.transfers.start(Purpose::Sync, Piece { run: NO_RUN, volume, disk: 0, arena: 0, bytes: 0 }, 0);
        }
    }

    /// Encodes entries and note into the arena and writes them to the slot that the last commit does not use.
    fn commit_write_table(&mut self) {
        let commit = if self.commit.has_commit() { self.commit.last() + 1 } else { 0 };
        let entries = self.layout.table_bytes;
        let room = block_round_up(entries);
        let note = std::mem::take(&mut self.commit.note);
        let note_room = block_round_up(note.len() as u64);
        let mut frame =
            FrameMut::new(self.commit.arena_offset, u32::try_from(room + note_room).expect("table under 4 GiB"));
        let bytes = self.arena.slice_mut(&mut frame);
        let (table, rest) = bytes.split_at_mut(room as usize);
        if !planted(Canary::StaleTable) {
            table.fill(0);
            self.pages.encode(&self.layout, &mut table[..entries as usize]);
        }
        rest.fill(0);
        rest[..note.len()].copy_from_slice(&note);
        self.commit.draft = Superblock {
            state: State::Committed,
            commit,
            table_bytes: entries,
            table_checksum: page_checksum(&table[..entries as usize]),
            note_bytes: note.len() as u32,
            note_checksum: page_checksum(&note),
            ..self.commit.superblock.clone()
        };
        self.commit.note = note;
        self.commit.phase = Phase::WritingTable;
        let disk = self.layout.table_offset(Superblock::slot(commit));
        let mut at = 0;
        while at < room + note_room {
            let bytes = (room + note_room - at).min(u64::from(self.transfer_bytes)) as u32;
            let arena = self.commit.arena_offset + at;
            self.transfers.start(Purpose::Table, Piece { run: NO_RUN, volume: 0, disk: disk + at, arena, bytes }, 0);
            self.commit.outstanding += 1;
            at += u64::from(bytes);
        }
        if planted(Canary::SuperblockWithTable) {
            let tables = self.commit.outstanding;
            self.commit_write_superblock();
            self.commit.outstanding += tables;
        }
    }

    fn commit_write_superblock(&mut self) {
        let arena = self.commit.arena_offset + self.layout.table_room;
        self.commit.draft.ledger = self.commit.ledger_before;
        for (total, moved) in self.commit.draft.ledger.iter_mut().zip(&self.moved) {
            total.read_bytes = total.read_bytes.saturating_add(moved.read_bytes);
            total.write_bytes = total.write_bytes.saturating_add(moved.write_bytes);
        }
        // With the two copies of this superblock, which are counted when they are written: it may be the last.
        let lead = &mut self.commit.draft.ledger[0];
        lead.write_bytes = lead.write_bytes.saturating_add(2 * BLOCK);
        let mut frame = FrameMut::new(arena, BLOCK as u32);
        self.commit.draft.encode(self.arena.slice_mut(&mut frame));
        self.commit.phase = Phase::WritingSuper;
        self.commit.outstanding = 2;
        for copy in 0..2 {
            let disk = Layout::superblock_offset(Superblock::slot(self.commit.draft.commit), copy);
            self.transfers.start(Purpose::Super, Piece { run: NO_RUN, volume: 0, disk, arena, bytes: BLOCK as u32 }, 0);
        }
    }

    fn commit_done(&mut self) {
        self.commit.phase = Phase::Idle;
        self.commit.superblock = self.commit.draft.clone();
        self.pages.committed(&self.layout);
        self.stats.commits += 1;
        let commit = CommitId(self.commit.superblock.commit);
        self.events.push_back(Event::Committed { commit, note: std::mem::take(&mut self.commit.note) });
        self.write_back_held();
    }
}

/// The run of pieces that hold no pages.
const NO_RUN: Run = Run { region: RegionId(0), first: 0, count: 0 };
