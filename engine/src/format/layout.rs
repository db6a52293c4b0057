//! Where everything lies on the volumes: pure arithmetic over the catalogue.
//!
//! Pages are numbered through all regions (*global page*). A region's extents on a volume are contiguous in page
//! order, so neighbouring pages of a stripe are one transfer. Volume 0, the lead, holds the store's records before its
//! extents; the others begin with superblocks that identify them.

use super::stripes::Stripes;
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
    /// On each volume the offset of the first extents, and of the second (equal unless checkpointed).
    offset: Vec<[u64; 2]>,
}

impl Area {
    /// Takes the region's extents from where each volume's free part begins.
    fn take_space(&mut self, stripes: &Stripes, next: &mut [u64]) {
        for (volume, next) in next.iter_mut().enumerate() {
            let pages = stripes.pages_on(volume as u16, self.pages, self.page_bytes);
            let bytes = u64::from(pages) * u64::from(self.page_bytes);
            let second = if self.kind == Kind::Checkpointed { *next + bytes } else { *next };
            self.offset[volume] = [*next, second];
            *next = second + bytes;
        }
    }
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
    stripes: Stripes,
    /// Per volume: bytes that are reserved when the store is created; scratch extents follow.
    reserved_bytes: Vec<u64>,
    /// Per volume: bytes including all scratch extents.
    total_bytes: Vec<u64>,
}

impl Layout {
    /// The layout of a store with these regions, dealt to volumes in this pattern.
    pub(crate) fn new(regions: &[RegionSpec], stripes: &Stripes) -> Layout {
        let catalogue_bytes = catalogue::encode(regions, stripes).len() as u64;
        let catalogue_room = block_round_up(catalogue_bytes);
        let pages: u32 = regions.iter().map(|r| r.pages).sum();
        let table_bytes = u64::from(pages) * ENTRY_BYTES;
        let table_room = block_round_up(table_bytes) + NOTE_BYTES_MAX;
        let table_offset = SUPERBLOCK_AREA_BYTES + 2 * catalogue_room;
        let volumes = usize::from(stripes.volumes());
        let mut next = vec![SUPERBLOCK_AREA_BYTES; volumes];
        next[0] = table_offset + 2 * table_room;
        let mut areas = Vec::with_capacity(regions.len());
        let mut first_page = 0;
        for region in regions {
            let (page_bytes, pages, kind) = (region.page_bytes, region.pages, region.kind);
            areas.push(Area { first_page, page_bytes, pages, kind, offset: vec![[0; 2]; volumes] });
            first_page += region.pages;
        }
        let mut give = |areas: &mut [Area], scratch: bool| {
            for area in areas.iter_mut().filter(|a| (a.kind == Kind::Scratch) == scratch) {
                area.take_space(stripes, &mut next);
            }
            next.clone()
        };
        let reserved_bytes = give(&mut areas, false);
        let total_bytes = give(&mut areas, true);
        Layout {
            areas,
            pages,
            catalogue_bytes,
            catalogue_offset: SUPERBLOCK_AREA_BYTES,
            catalogue_room,
            table_bytes,
            table_offset,
            table_room,
            stripes: stripes.clone(),
            reserved_bytes,
            total_bytes,
        }
    }

    /// Number of volumes.
    pub(crate) fn volumes(&self) -> u16 {
        self.stripes.volumes()
    }

    /// The pattern by which pages are dealt to volumes.
    pub(crate) fn stripes(&self) -> &Stripes {
        &self.stripes
    }

    /// Bytes of a volume that are reserved when the store is created.
    pub(crate) fn reserved_bytes(&self, volume: u16) -> u64 {
        self.reserved_bytes[usize::from(volume)]
    }

    /// Bytes of a volume including all scratch extents, which follow the reserved ones.
    pub(crate) fn total_bytes(&self, volume: u16) -> u64 {
        self.total_bytes[usize::from(volume)]
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
        let (volume, place) = self.stripes.locate(page, area.page_bytes);
        let base = area.offset[usize::from(volume)][if side == Side::First { 0 } else { 1 }];
        Extent { volume, offset: base + u64::from(place) * u64::from(area.page_bytes) }
    }

    /// The run's extents as volume, offset and bytes, neighbours on a volume joined.
    pub(crate) fn spans(&self, run: Run, side: Side) -> Vec<(u16, u64, u64)> {
        let page_bytes = u64::from(self.page_bytes(run.region));
        let mut ends: Vec<Option<usize>> = vec![None; usize::from(self.volumes())];
        let mut spans: Vec<(u16, u64, u64)> = Vec::new();
        for page in run.first..run.end() {
            let extent = self.extent(run.region, page, side);
            // On one volume a run's pages follow each other without gaps.
            match ends[usize::from(extent.volume)] {
                Some(index) => spans[index].2 += page_bytes,
                None => {
                    ends[usize::from(extent.volume)] = Some(spans.len());
                    spans.push((extent.volume, extent.offset, page_bytes));
                }
            }
        }
        spans
    }
}
