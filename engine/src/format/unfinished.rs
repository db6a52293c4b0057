//! The mark of a creation that has not finished: the first block of a volume's file from the moment it has any bytes
//! until its superblocks are durable.
//!
//! It is what a new creation may replace, together with an empty file, which holds nothing; a file that begins with
//! anything else is somebody's. The text is in one sector, so that a write that is torn leaves it whole or not at all.

use super::BLOCK;
use super::superblock::SUPERBLOCK_AREA_BYTES;

/// For people who look at the file, too.
const TEXT: &[u8] = b"MegaTrain: a volume whose creation has not finished. It holds nothing and can be removed.\n";
const _: () = assert!(TEXT.len() <= 512);

/// Where the mark is: the primary superblock of slot 0, which a store without a commit does not use.
pub(crate) const MARK_OFFSET: u64 = 0;
const _: () = assert!(MARK_OFFSET + BLOCK <= SUPERBLOCK_AREA_BYTES);

/// The block.
pub(crate) fn mark() -> Vec<u8> {
    let mut block = TEXT.to_vec();
    block.resize(BLOCK as usize, 0);
    block
}

/// Whether a block is the mark.
pub(crate) fn is_mark(block: &[u8]) -> bool {
    block.strip_prefix(TEXT).is_some_and(|rest| rest.iter().all(|byte| *byte == 0))
}
