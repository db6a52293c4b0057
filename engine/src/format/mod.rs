//! The on-disk format, bytes only: no I/O here. design.md has the same tables in words.
//!
//! Invariant: every offset in a store follows from the catalogue, so a catalogue that checks is all that is needed to
//! find a page.

pub(crate) mod catalogue;
pub mod checksum;
pub(crate) mod layout;
pub(crate) mod stripes;
pub(crate) mod superblock;
pub(crate) mod table;
pub(crate) mod unfinished;

pub(crate) use layout::Layout;
pub(crate) use stripes::Stripes;
pub(crate) use superblock::Superblock;
pub(crate) use table::Entry;

/// Every offset and length on a volume is a multiple of this.
pub(crate) const BLOCK: u64 = 4096;

/// Version written and the newest that is read.
pub(crate) const FORMAT_VERSION: u32 = 1;

/// Largest caller's note.
pub(crate) const NOTE_BYTES_MAX: u64 = 64 << 10;

#[cfg(target_endian = "big")]
compile_error!("the on-disk format is little-endian and records are cast in place");

/// Rounds up to a whole number of blocks.
pub(crate) fn block_round_up(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK) * BLOCK
}

#[cfg(test)]
mod tests;
