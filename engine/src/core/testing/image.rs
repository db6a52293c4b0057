//! The image of a store's one volume: a new store's, what the records of one say, where its pages are, and what a loss
//! of power may leave of it.

use crate::config::RegionSpec;
use crate::error::Error;
use crate::format::checksum::page_checksum;
use crate::format::layout::{Layout, Side};
use crate::format::table::{SECOND, WRITTEN};
use crate::format::{Entry, Stripes, Superblock};
use crate::id::RegionId;
use crate::io::memory::MemoryIo;
use crate::io::memory::disk::Crash;
use crate::store::recover::{Found, Recovered, Source, look, recover};
use crate::store::{blank, first_records};
use std::path::Path;

const UUID: [u8; 16] = [9; 16];

/// All bytes of the volume.
pub(crate) struct Image(pub(crate) Vec<u8>);

impl Source for Image {
    fn path(&self) -> &Path {
        Path::new("image")
    }

    fn len(&self) -> Result<u64, Error> {
        Ok(self.0.len() as u64)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        into.copy_from_slice(&self.0[offset as usize..][..into.len()]);
        Ok(())
    }
}

/// A new store's image: no page was written.
pub(crate) fn fresh(regions: &[RegionSpec]) -> Vec<u8> {
    let layout = Layout::new(regions, &Stripes::single());
    let mut image = vec![0xee; layout.total_bytes(0) as usize];
    for (offset, bytes) in first_records(&layout, regions, &blank(&layout, regions, UUID)) {
        image[offset as usize..][..bytes.len()].copy_from_slice(&bytes);
    }
    image
}

impl Image {
    /// The last commit; None: there is none yet.
    ///
    /// # Panics
    /// If its records do not check.
    pub(crate) fn committed(&self) -> Option<(Superblock, Recovered)> {
        let Found::Store(superblock) = look(self).expect("a superblock that checks, or none yet") else { return None };
        let recovered = recover(self, &superblock).expect("records of a commit check");
        Some((*superblock, recovered))
    }

    /// What a core is opened with, superblock and page table, and the note of the last commit. A new store has a table
    /// and a note without content.
    pub(crate) fn opened(&self, regions: &[RegionSpec]) -> (Superblock, Vec<Entry>, Vec<u8>) {
        match self.committed() {
            Some((superblock, Recovered { table, note, .. })) => (superblock, table, note),
            None => (blank(&Layout::new(regions, &Stripes::single()), regions, UUID), Vec::new(), Vec::new()),
        }
    }

    /// Checks a page of a commit: its bytes with `check`, and that they have the checksum of its entry. `may_be_new`:
    /// it need not have been written.
    pub(crate) fn check_page(
        &self,
        it: &Recovered,
        region: RegionId,
        page: u32,
        may_be_new: bool,
        check: impl Fn(&[u8]),
    ) {
        let Some(offset) = offset_of(it, region, page) else {
            return assert!(may_be_new, "page {page} was written and is said not to be");
        };
        let bytes = &self.0[offset..][..it.layout.page_bytes(region) as usize];
        check(bytes);
        let entry = it.table[it.layout.global_page(region, page) as usize];
        assert_eq!(page_checksum(bytes), entry.checksum, "page {page}");
    }
}

/// Where a commit has a page; None: it was never written.
pub(crate) fn offset_of(it: &Recovered, region: RegionId, page: u32) -> Option<usize> {
    let entry = it.table[it.layout.global_page(region, page) as usize];
    let side = if entry.flags & SECOND != 0 { Side::Second } else { Side::First };
    (entry.flags & WRITTEN != 0).then(|| it.layout.extent(region, page, side).offset as usize)
}

/// Every image of a power loss now, and that of the death of the process. `torn`: how many with torn writes there are
/// before and behind those in which one write alone survives or is lost.
pub(crate) fn after_crashes(io: &MemoryIo, seed: u64, torn: [usize; 2]) -> Vec<Vec<u8>> {
    let mut crashes = vec![Crash::NoneSurvive, Crash::AllSurvive];
    crashes.extend(vec![Crash::Torn; torn[0]]);
    for number in 0..io.unflushed() {
        crashes.extend([Crash::OnlySurvivor(number), Crash::OnlyLoss(number)]);
    }
    crashes.extend(vec![Crash::Torn; torn[1]]);
    let image = |(index, crash)| io.crash_image(seed + index as u64, crash).remove(0);
    let mut images: Vec<Vec<u8>> = crashes.into_iter().enumerate().map(image).collect();
    images.push(io.process_kill_image(seed).remove(0));
    images
}
