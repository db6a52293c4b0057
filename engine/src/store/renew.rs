//! Making the superblock that was found at open durable, in all four blocks, before anything is built upon it.
//!
//! The process before may have died, or met a failed sync, between writing the superblock of its last commit and
//! knowing that it is durable. Such a commit can be read, so it is the one that counts, and from now on pages are
//! written over the extents of the commit before it. If then the power goes, and with it a superblock that was only in
//! a cache, neither commit would be whole. So it is written once more and synced. Its pages and its table need none of
//! this: they were durable before it was written for the first time.
//!
//! Then it is written over the other slot too. That may hold, where a sector did not read, a newer superblock that was
//! never acknowledged; if the sector came back later, that commit would be opened, over extents that are written from
//! now on. The next commit takes one of the slots, and this one stays in the other.

use super::recover::Target;
use crate::canary::{Canary, planted};
use crate::error::Error;
use crate::format::{BLOCK, Layout, Superblock};

/// Writes the store's newest superblock to every block and syncs.
///
/// # Errors
/// `Error::Io`.
pub(crate) fn renew(target: &dyn Target, superblock: &Superblock) -> Result<(), Error> {
    if planted(Canary::NoRenewal) {
        return Ok(());
    }
    let mut block = vec![0; BLOCK as usize];
    superblock.encode(&mut block);
    let is_whole = |offset: u64| {
        let mut found = vec![0; BLOCK as usize];
        target.read_at(offset, &mut found).is_ok() && found == block
    };
    let own = Superblock::slot(superblock.commit);
    let mut copies = [0, 1].map(|copy| Layout::superblock_offset(own, copy));
    // A copy that is whole is written to only when the other is whole and durable.
    copies.sort_by_key(|offset| is_whole(*offset));
    for offset in copies {
        target.write_at(offset, &block)?;
        target.sync()?;
    }
    // Not before: until here the commit before may be the only one that is durable.
    for copy in 0..2 {
        target.write_at(Layout::superblock_offset(1 - own, copy), &block)?;
    }
    target.sync()
}
