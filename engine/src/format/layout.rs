//! Where everything lies on the volumes: pure arithmetic over the catalogue.
//!
//! Pages are numbered through all regions (*global page*). Extents of a region are contiguous in page order, so
//! neighbouring pages of a run are one transfer. With one volume, volume 0 holds everything; the types carry the volume
//! for striping.

use super::{BLOCK, NOTE_BYTES_MAX, block_round_up, catalogue, superblock::SUPERBLOCK_AREA_BYTES, table::ENTRY_BYTES};
use crate::config::{Kind, RegionSpec};
use crate::id::{RegionId, Run};

/// A place on a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Extent {
    pub(crate) volume: u16,
    pub(crate) offset: u64,
}

/// Which of a page's extents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    First,
    Second,
}

impl Side {
    pub(crate) fn other(self) -> Side {
        match self {
            Side::First => Side::Second,
            Side::Second => Side::First,
        }
    }
}

#[derive(Clone, Debug)]
struct Area {
    first_page: u32,
    page_bytes: u32,
    pages: u32,
    kind: Kind,
    /// Offset of the first extents, and of the second (equal unless checkpointed).
    offset: [u64; 2],
}

/// Offsets of a store's parts.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    areas: Vec<Area>,
    /// Global pages.
    pub(crate) pages: u32,
    /// Bytes of the encoded catalogue.
    pub(crate) catalogue_bytes: u64,
    /// Offset of the catalogue's first copy; the second follows after `catalogue_room`.
    pub(crate) catalogue_offset: u64,
    pub(crate) catalogue_room: u64,
    /// Bytes of the entries.
    pub(crate) table_bytes: u64,
    table_offset: u64,
    /// Bytes of one table slot: entries and note, each rounded up to blocks.
    pub(crate) table_room: u64,
    /// Bytes that are reserved when the store is created; scratch extents follow.
    pub(crate) reserved_bytes: u64,
    /// Bytes including all scratch extents.
    pub(crate) total_bytes: u64,
}

impl Layout {
    /// The layout of a store with these regions.
    pub(crate) fn new(regions: &[RegionSpec]) -> Layout {
        let catalogue_bytes = catalogue::encode(regions).len() as u64;
        let catalogue_room = block_round_up(catalogue_bytes);
        let pages: u32 = regions.iter().map(|r| r.pages).sum();
        let table_bytes = u64::from(pages) * ENTRY_BYTES;
        let table_room = block_round_up(table_bytes) + NOTE_BYTES_MAX;
        let table_offset = SUPERBLOCK_AREA_BYTES + 2 * catalogue_room;
        let mut next = table_offset + 2 * table_room;
        let mut areas = Vec::with_capacity(regions.len());
        let mut first_page = 0;
        for region in regions {
            areas.push(Area {
                first_page,
                page_bytes: region.page_bytes,
                pages: region.pages,
                kind: region.kind,
                offset: [0; 2],
            });
            first_page += region.pages;
        }
        for (area, region) in areas.iter_mut().zip(regions).filter(|(_, r)| r.kind != Kind::Scratch) {
            area.offset = [next, next];
            next += region.bytes();
            if region.kind == Kind::Checkpointed {
                area.offset[1] = next;
                next += region.bytes();
            }
        }
        let reserved_bytes = next;
        for (area, region) in areas.iter_mut().zip(regions).filter(|(_, r)| r.kind == Kind::Scratch) {
            area.offset = [next, next];
            next += region.bytes();
        }
        Layout {
            areas,
            pages,
            catalogue_bytes,
            catalogue_offset: SUPERBLOCK_AREA_BYTES,
            catalogue_room,
            table_bytes,
            table_offset,
            table_room,
            reserved_bytes,
            total_bytes: next,
        }
    }

    /// Offset of a table slot on the lead.
    pub(crate) fn table_offset(&self, slot: u64) -> u64 {
        self.table_offset + slot * self.table_room
    }

    /// Offset of a slot's note on the lead.
    pub(crate) fn note_offset(&self, slot: u64) -> u64 {
        self.table_offset(slot) + block_round_up(self.table_bytes)
    }

    /// Offset of a superblock slot's primary (copy 0) or copy (copy 1).
    pub(crate) fn superblock_offset(slot: u64, copy: u64) -> u64 {
        (copy * 2 + slot) * BLOCK
    }

    /// Whether the run exists.
    pub(crate) fn contains(&self, run: Run) -> bool {
        self.areas
            .get(run.region.0 as usize)
            .is_some_and(|a| run.count > 0 && run.first.checked_add(run.count).is_some_and(|end| end <= a.pages))
    }

    /// Global number of a region's page.
    pub(crate) fn global_page(&self, region: RegionId, page: u32) -> u32 {
        self.areas[region.0 as usize].first_page + page
    }

    /// Region and page of a global number.
    pub(crate) fn local_page(&self, global: u32) -> (RegionId, u32) {
        let region = self.areas.partition_point(|a| a.first_page <= global) - 1;
        (RegionId(region as u32), global - self.areas[region].first_page)
    }

    pub(crate) fn page_bytes(&self, region: RegionId) -> u32 {
        self.areas[region.0 as usize].page_bytes
    }

    pub(crate) fn kind(&self, region: RegionId) -> Kind {
        self.areas[region.0 as usize].kind
    }

    /// Bytes of a run.
    pub(crate) fn run_bytes(&self, run: Run) -> u64 {
        u64::from(self.page_bytes(run.region)) * u64::from(run.count)
    }

    /// Where a page's extent lies.
    pub(crate) fn extent(&self, region: RegionId, page: u32, side: Side) -> Extent {
        let area = &self.areas[region.0 as usize];
        let base = area.offset[if side == Side::First { 0 } else { 1 }];
        Extent { volume: 0, offset: base + u64::from(page) * u64::from(area.page_bytes) }
    }
}
