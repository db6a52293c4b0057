//! Making the superblock that was found at open durable, before anything is built upon it.
//!
//! The process before may have died, or met a failed sync, between writing the superblock of its last commit and
//! knowing that it is durable. Such a commit can be read, so it is the one that counts, and from now on pages are
//! written over the extents of the commit before it. If then the power goes, and with it a superblock that was only in
//! a cache, neither commit would be whole. So it is written once more and synced. Its pages and its table need none of
//! this: they were durable before it was written for the first time.
//!
//! This also makes two copies of it again where one was lost.

use super::recover::Target;
use crate::canary::{Canary, planted};
use crate::error::Error;
use crate::format::{BLOCK, Layout, Superblock};

/// Writes both copies of the store's newest superblock and syncs each.
///
/// # Errors
/// `Error::Io`.
pub(crate) fn renew(target: &dyn Target, superblock: &Superblock) -> Result<(), Error> {
    if planted(Canary::NoRenewal) {
        return Ok(());
    }
    let mut block = vec![0; BLOCK as usize];
    superblock.encode(&mut block);
    let slot = Superblock::slot(superblock.commit);
    let mut copies = [0, 1].map(|copy| Layout::superblock_offset(slot, copy));
    let is_whole = |offset: u64| {
        let mut found = vec![0; BLOCK as usize];
        target.read_at(offset, &mut found).is_ok() && found == block
    };
    // A copy that is whole is written to only when the other is whole and durable.
    copies.sort_by_key(|offset| is_whole(*offset));
    for offset in copies {
        target.write_at(offset, &block)?;
        target.sync()?;
    }
    Ok(())
}
