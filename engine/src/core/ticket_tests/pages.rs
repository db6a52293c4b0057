//! What the pages must hold, and who has them.

use super::{DURABLE, PAGE_BYTES, PAGES};
use crate::arena::Arena;
use crate::core::testing::stamps;
use crate::id::{RegionId, Run};
use crate::io::{FrameMut, FrameRef};
use std::collections::BTreeMap;

/// The stamp of each page, 0: zeros, never written; and those who hold it.
#[derive(Default)]
pub(super) struct Pages {
    pub(super) stamps: BTreeMap<(RegionId, u32), u64>,
    /// Readers of each page, and its writer as -1.
    holders: BTreeMap<(RegionId, u32), i32>,
    pub(super) written: u64,
}

impl Pages {
    fn of(run: Run) -> impl Iterator<Item = (RegionId, u32)> {
        (run.first..run.end()).map(move |page| (run.region, page))
    }

    fn stamp(&self, page: (RegionId, u32)) -> u64 {
        self.stamps.get(&page).copied().unwrap_or(0)
    }

    /// Somebody has the pages: checks that he may.
    pub(super) fn enter(&mut self, run: Run, writes: bool) {
        for page in Pages::of(run) {
            let holders = self.holders.entry(page).or_default();
            assert!(if writes { *holders == 0 } else { *holders >= 0 }, "{page:?} is shared with a writer");
            *holders += if writes { -1 } else { 1 };
        }
    }

    pub(super) fn leave(&mut self, run: Run, writes: bool) {
        for page in Pages::of(run) {
            *self.holders.entry(page).or_default() -= if writes { -1 } else { 1 };
        }
    }

    pub(super) fn check(&self, arena: &Arena, run: Run, offset: u64) {
        let frame = FrameRef::new(offset, run.count * PAGE_BYTES);
        for (page, bytes) in Pages::of(run).zip(arena.slice(&frame).chunks(PAGE_BYTES as usize)) {
            stamps::check(bytes, self.stamp(page), format_args!("{page:?}"));
        }
    }

    pub(super) fn write(&mut self, arena: &Arena, run: Run, offset: u64) {
        let mut frame = FrameMut::new(offset, run.count * PAGE_BYTES);
        for (page, bytes) in Pages::of(run).zip(arena.slice_mut(&mut frame).chunks_mut(PAGE_BYTES as usize)) {
            self.written += 1;
            self.stamps.insert(page, self.written);
            stamps::fill(bytes, self.written);
        }
    }

    /// What a commit of now holds.
    pub(super) fn durable(&self) -> Vec<u64> {
        DURABLE.iter().flat_map(|region| (0..PAGES).map(|page| self.stamp((*region, page)))).collect()
    }
}
