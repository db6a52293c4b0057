//! Where a model's elements lie in a store: the only place where tensors and pages meet.
//!
//! Five regions with pages of the same number of elements, so that they line up: `hi` (2 bytes an element), `lo` (2),
//! `m` (4), `v` (4), `grad` (4, scratch). Every unit begins on a page boundary. Planes are little-endian.

use crate::model::Manifest;
use mt_engine::{Kind, RegionId, RegionSpec, Run};

/// High halves of master weights. Region ids are fixed by this order.
pub const HI: RegionId = RegionId(0);
/// Low halves of master weights.
pub const LO: RegionId = RegionId(1);
/// First moments.
pub const M: RegionId = RegionId(2);
/// Second moments.
pub const V: RegionId = RegionId(3);
/// Accumulated gradients (scratch).
pub const GRAD: RegionId = RegionId(4);

/// Elements of the smallest page.
pub const PAGE_ELEMENTS_MIN: usize = 2_048;
/// Elements of the largest page.
pub const PAGE_ELEMENTS_MAX: usize = 1 << 20;

/// Pages of a unit, cut into chunks: the runs that every sweep over the state uses, the same in all state regions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Elements of a page: a power of two from 2,048 to 1 Mi.
    pub page_elements: usize,
    /// First page of each unit; one more entry: the number of pages.
    pub first_page: Vec<u32>,
    /// Pages of a chunk (the last of a unit may have fewer).
    pub chunk_pages: u32,
}

/// A chunk: consecutive pages of one unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chunk {
    /// First page in each state region.
    pub first_page: u32,
    /// Pages.
    pub pages: u32,
    /// First element, counted from the unit's start.
    pub start: usize,
    /// Elements of the unit in it; the rest of the last page is padding (zeros).
    pub len: usize,
}

impl Chunk {
    /// The chunk's run in a state region.
    pub fn run(&self, region: RegionId) -> Run {
        Run { region, first: self.first_page, count: self.pages }
    }
}

impl Layout {
    /// A layout with pages of `page_elements` (None: the largest from 2,048 to 1 Mi that keeps padding at most 1% of
    /// the model, else 2,048) and chunks of at most `chunk_elements` (at least a page).
    pub fn new(manifest: &Manifest, page_elements: Option<usize>, chunk_elements: usize) -> Layout {
        let page_elements = page_elements.unwrap_or_else(|| auto_page(manifest));
        let mut first_page = vec![0_u32];
        let mut next = 0_u32;
        for unit in &manifest.units {
            next += u32::try_from(unit.elements.div_ceil(page_elements)).expect("a unit has fewer than 2^32 pages");
            first_page.push(next);
        }
        let chunk_pages =
            u32::try_from((chunk_elements / page_elements).max(1)).expect("a chunk has fewer than 2^32 pages");
        Layout { page_elements, first_page, chunk_pages }
    }

    /// The chunks of a unit, in element order.
    pub fn chunks(&self, manifest: &Manifest, unit: usize) -> Vec<Chunk> {
        let (first, end) = (self.first_page[unit], self.first_page[unit + 1]);
        let elements = manifest.units[unit].elements;
        (first..end)
            .step_by(self.chunk_pages as usize)
            .map(|page| {
                let pages = self.chunk_pages.min(end - page);
                let start = (page - first) as usize * self.page_elements;
                let len = (pages as usize * self.page_elements).min(elements - start);
                Chunk { first_page: page, pages, start, len }
            })
            .collect()
    }

    /// Pages of each state region.
    pub fn pages(&self) -> u32 {
        self.first_page.last().copied().unwrap_or(0)
    }

    /// hi, lo, m, v of the given kind, and the scratch region `grad`, whether gradients wait there or not: a store does
    /// not depend on when updates run.
    pub fn regions(&self, checkpointed: bool) -> Vec<RegionSpec> {
        let kind = if checkpointed { Kind::Checkpointed } else { Kind::Scratch };
        let planes = [("hi", 2, kind), ("lo", 2, kind), ("m", 4, kind), ("v", 4, kind), ("grad", 4, Kind::Scratch)];
        planes
            .iter()
            .map(|&(name, bytes, kind)| RegionSpec {
                name: name.to_owned(),
                page_bytes: u32::try_from(self.page_elements * bytes).expect("a page is at most 4 MiB"),
                pages: self.pages(),
                kind,
            })
            .collect()
    }
}

/// The largest page that keeps padding at most 1% of the model, else the smallest.
fn auto_page(manifest: &Manifest) -> usize {
    let total = manifest.elements();
    let padding = |page: usize| -> u64 {
        manifest.units.iter().map(|unit| (unit.elements.next_multiple_of(page) - unit.elements) as u64).sum()
    };
    let mut page = PAGE_ELEMENTS_MAX;
    while page > PAGE_ELEMENTS_MIN && padding(page) * 100 > total {
        page /= 2;
    }
    page
}

#[cfg(test)]
mod tests;
