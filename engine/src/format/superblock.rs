//! The superblock: the one record whose write makes a commit real.
//!
//! Four blocks at the start of each volume: slot 0, slot 1, copy of slot 0, copy of slot 1. Commit c goes to slot c %
//! 2, so a torn write leaves the commit before it intact; the copy survives the loss of a sector. Volumes other than
//! the lead hold the superblock of creation only: it identifies them.

use super::stripes::VOLUMES_MAX;
use super::{BLOCK, FORMAT_VERSION};
use crate::canary::{Canary, planted};
use crate::format::checksum::page_checksum;
use bytemuck::{Pod, Zeroable};

const MAGIC: [u8; 8] = *b"MTSTORE1";

/// Blocks that hold superblocks.
pub(crate) const SUPERBLOCKS: u64 = 4;

/// Bytes of the superblock area of a volume.
pub(crate) const SUPERBLOCK_AREA_BYTES: u64 = SUPERBLOCKS * BLOCK;

/// Whether the store has a commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// Space reserved and catalogue written; no commit yet.
    Created,
    /// `commit` is durable.
    Committed,
}

/// Bytes that a volume moved.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Pod, Zeroable)]
pub(crate) struct Moved {
    pub(crate) read_bytes: u64,
    pub(crate) write_bytes: u64,
}

/// What each volume moved over the store's life, commits included.
pub(crate) type Ledger = [Moved; VOLUMES_MAX];

/// A decoded superblock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Superblock {
    pub(crate) uuid: [u8; 16],
    pub(crate) volume: u16,
    pub(crate) volumes: u16,
    pub(crate) state: State,
    pub(crate) commit: u64,
    pub(crate) catalogue_bytes: u32,
    pub(crate) catalogue_checksum: u64,
    pub(crate) table_bytes: u64,
    pub(crate) table_checksum: u64,
    pub(crate) note_bytes: u32,
    pub(crate) note_checksum: u64,
    /// Up to this commit.
    pub(crate) ledger: Ledger,
}

/// Why a block is not a superblock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reject {
    /// No magic: never written, or something else.
    NotOurs,
    /// Written by a newer version.
    Newer { found: u32 },
    /// The checksum or a field does not check.
    Damaged,
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Record {
    magic: [u8; 8],
    version: u32,
    volume: u16,
    volumes: u16,
    uuid: [u8; 16],
    commit: u64,
    state: u32,
    catalogue_bytes: u32,
    catalogue_checksum: u64,
    table_bytes: u64,
    table_checksum: u64,
    note_checksum: u64,
    note_bytes: u32,
    zero: u32,
    ledger: Ledger,
}

const RECORD_BYTES: usize = size_of::<Record>();
const CHECKSUM_AT: usize = BLOCK as usize - 8;
const _: () = assert!(RECORD_BYTES == 88 + 16 * VOLUMES_MAX && RECORD_BYTES <= CHECKSUM_AT);

impl Superblock {
    /// The slot a commit is written to: 0 or 1. Page table slots follow the same rule.
    pub(crate) fn slot(commit: u64) -> u64 {
        if planted(Canary::OneSlot) { 0 } else { commit % 2 }
    }

    /// Fills one block.
    pub(crate) fn encode(&self, block: &mut [u8]) {
        assert_eq!(block.len() as u64, BLOCK, "a superblock is one block");
        block.fill(0);
        let record = Record {
            magic: MAGIC,
            version: FORMAT_VERSION,
            volume: self.volume,
            volumes: self.volumes,
            uuid: self.uuid,
            commit: self.commit,
            state: u32::from(self.state == State::Committed),
            catalogue_bytes: self.catalogue_bytes,
            catalogue_checksum: self.catalogue_checksum,
            table_bytes: self.table_bytes,
            table_checksum: self.table_checksum,
            note_checksum: self.note_checksum,
            note_bytes: self.note_bytes,
            zero: 0,
            ledger: self.ledger,
        };
        block[..RECORD_BYTES].copy_from_slice(bytemuck::bytes_of(&record));
        let sum = page_checksum(&block[..CHECKSUM_AT]);
        block[CHECKSUM_AT..].copy_from_slice(&sum.to_le_bytes());
    }

    /// Reads one block. The checksum comes first, and lies where it does in every version: a version that is damage is
    /// not taken for a newer one.
    pub(crate) fn decode(block: &[u8]) -> Result<Superblock, Reject> {
        assert_eq!(block.len() as u64, BLOCK, "a superblock is one block");
        let record: Record = bytemuck::pod_read_unaligned(&block[..RECORD_BYTES]);
        if record.magic != MAGIC {
            return Err(Reject::NotOurs);
        }
        let sum = u64::from_le_bytes(block[CHECKSUM_AT..].try_into().map_err(|_| Reject::Damaged)?);
        if sum != page_checksum(&block[..CHECKSUM_AT]) {
            return Err(Reject::Damaged);
        }
        if record.version > FORMAT_VERSION {
            return Err(Reject::Newer { found: record.version });
        }
        if record.version == 0 || record.state > 1 {
            return Err(Reject::Damaged);
        }
        Ok(Superblock {
            uuid: record.uuid,
            volume: record.volume,
            volumes: record.volumes,
            state: if record.state == 1 { State::Committed } else { State::Created },
            commit: record.commit,
            catalogue_bytes: record.catalogue_bytes,
            catalogue_checksum: record.catalogue_checksum,
            table_bytes: record.table_bytes,
            table_checksum: record.table_checksum,
            note_bytes: record.note_bytes,
            note_checksum: record.note_checksum,
            ledger: record.ledger,
        })
    }
}
