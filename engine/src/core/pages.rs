//! What is known of every page's bytes on disk: which extent is current, its checksum, whether it was ever written.
//!
//! A page has a *committed* side and, once written since the last commit, a *fresh* one. Checkpointed pages write to
//! the side that is not committed; Scratch and Frozen pages have one side. A page neither committed nor fresh was never
//! written: it reads as zeros without I/O (Scratch: as undefined).

use crate::canary::{Canary, planted};
use crate::config::Kind;
use crate::format::layout::{Layout, Side};
use crate::format::table::{Entry, SECOND, WRITTEN};
use crate::id::RegionId;

#[derive(Clone, Copy, Debug)]
struct State {
    /// Of the current bytes.
    checksum: u64,
    committed: Option<Side>,
    fresh: bool,
}

/// Where a page's current bytes are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Content {
    /// On disk, on this side, with this checksum.
    Disk { side: Side, checksum: u64 },
    /// Never written: zeros.
    Zeros,
    /// Scratch that was not written since open.
    Undefined,
}

/// All pages of the store.
pub(crate) struct Pages {
    states: Vec<State>,
}

impl Pages {
    /// Pages as a page table has them; an empty table: never written.
    pub(crate) fn new(layout: &Layout, table: &[Entry]) -> Pages {
        assert!(table.is_empty() || table.len() == layout.pages as usize, "one entry a page");
        let blank = State { checksum: 0, committed: None, fresh: false };
        let mut states = vec![blank; layout.pages as usize];
        for (state, entry) in states.iter_mut().zip(table) {
            if entry.flags & WRITTEN != 0 {
                state.checksum = entry.checksum;
                state.committed = Some(if entry.flags & SECOND != 0 { Side::Second } else { Side::First });
            }
        }
        Pages { states }
    }

    fn state(&self, layout: &Layout, region: RegionId, page: u32) -> State {
        self.states[layout.global_page(region, page) as usize]
    }

    /// Where the current bytes are.
    pub(crate) fn content(&self, layout: &Layout, region: RegionId, page: u32) -> Content {
        let state = self.state(layout, region, page);
        match (state.fresh, state.committed) {
            (true, _) => Content::Disk { side: self.target(layout, region, page), checksum: state.checksum },
            (false, Some(side)) => Content::Disk { side, checksum: state.checksum },
            (false, None) if layout.kind(region) == Kind::Scratch => Content::Undefined,
            (false, None) => Content::Zeros,
        }
    }

    /// The side that new bytes of the page are written to.
    pub(crate) fn target(&self, layout: &Layout, region: RegionId, page: u32) -> Side {
        let state = self.state(layout, region, page);
        match (layout.kind(region), state.committed) {
            (Kind::Checkpointed, Some(side)) if planted(Canary::CommittedExtent) => side,
            (Kind::Checkpointed, Some(side)) => side.other(),
            _ => Side::First,
        }
    }

    /// Records that the page's bytes were written to its target.
    pub(crate) fn written(&mut self, layout: &Layout, region: RegionId, page: u32, checksum: u64) {
        let state = &mut self.states[layout.global_page(region, page) as usize];
        state.checksum = checksum;
        state.fresh = true;
    }

    /// Writes the table of a commit of the present state into `out`, 16 bytes a page. Scratch pages have empty entries.
    pub(crate) fn encode(&self, layout: &Layout, out: &mut [u8]) {
        let (entries, rest) = out.as_chunks_mut::<16>();
        assert!(rest.is_empty() && entries.len() == self.states.len(), "one entry a page");
        for (global, (state, out)) in self.states.iter().zip(entries).enumerate() {
            let (region, page) = layout.local_page(global as u32);
            let entry = match (layout.kind(region), self.content(layout, region, page)) {
                (Kind::Checkpointed | Kind::Frozen, Content::Disk { side, .. }) => {
                    Entry { checksum: state.checksum, flags: WRITTEN | if side == Side::Second { SECOND } else { 0 } }
                }
                _ => Entry::default(),
            };
            out.copy_from_slice(bytemuck::bytes_of(&entry));
        }
    }

    /// The encoded state is durable: fresh pages swap roles.
    pub(crate) fn committed(&mut self, layout: &Layout) {
        for global in 0..layout.pages {
            let (region, page) = layout.local_page(global);
            if layout.kind(region) == Kind::Scratch || !self.states[global as usize].fresh {
                continue;
            }
            let side = self.target(layout, region, page);
            let state = &mut self.states[global as usize];
            state.committed = Some(side);
            state.fresh = false;
        }
    }
}
