//! The page table: one 16-byte entry a page, regions in order, then the caller's note on the next block boundary.

use bytemuck::{Pod, Zeroable};

/// What is committed of one page.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Pod, Zeroable)]
pub(crate) struct Entry {
    /// XXH3-64 of the page's bytes; 0 if it was never written.
    pub(crate) checksum: u64,
    /// Bit 0: the second extent is the committed one. Bit 1: the page was written at least once.
    pub(crate) flags: u64,
}

/// The second extent holds the committed bytes.
pub(crate) const SECOND: u64 = 1;
/// The page was written at least once.
pub(crate) const WRITTEN: u64 = 2;

/// Bytes of an entry.
pub(crate) const ENTRY_BYTES: u64 = size_of::<Entry>() as u64;

/// Reads a table. `None` if a flag is unknown or the length is not a whole number of entries.
pub(crate) fn decode(bytes: &[u8]) -> Option<Vec<Entry>> {
    let (entries, rest) = bytes.as_chunks::<16>();
    if !rest.is_empty() {
        return None;
    }
    let table: Vec<Entry> = entries.iter().map(|e| bytemuck::pod_read_unaligned(e)).collect();
    table.iter().all(|e| e.flags & !(SECOND | WRITTEN) == 0).then_some(table)
}
