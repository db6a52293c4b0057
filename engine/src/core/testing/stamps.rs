//! Stamps: numbers that tell which write bytes are from. A stamp fills what was written, eight bytes at a time.

use std::fmt::Display;

/// Fills bytes with a stamp.
pub(crate) fn fill(bytes: &mut [u8], stamp: u64) {
    bytes.chunks_exact_mut(8).for_each(|chunk| chunk.copy_from_slice(&stamp.to_le_bytes()));
}

/// Panics unless a stamp fills the bytes of `what`.
pub(crate) fn check(bytes: &[u8], stamp: u64, what: impl Display) {
    let wrong = bytes.chunks_exact(8).find(|chunk| *chunk != stamp.to_le_bytes());
    assert!(wrong.is_none(), "{what}: found {wrong:02x?} in place of stamp {stamp}");
}
