//! Where a model's elements lie in a store: the only place where tensors and pages meet.
//!
//! Five regions with pages of the same number of elements, so that they line up: `hi` (2 bytes an element), `lo` (2),
//! `m` (4), `v` (4), `grad` (4, scratch). Every unit begins on a page boundary. Planes are little-endian.

use crate::model::Manifest;
use mt_engine::{RegionId, RegionSpec, Run};

/// Region ids are fixed by this order.
pub const HI: RegionId = RegionId(0);
/// Low halves of master weights.
pub const LO: RegionId = RegionId(1);
/// First moments.
pub const M: RegionId = RegionId(2);
/// Second moments.
pub const V: RegionId = RegionId(3);
/// Accumulated gradients (scratch), absent with the fused-backward update.
pub const GRAD: RegionId = RegionId(4);

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
    pub fn run(&self, region: RegionId) -> Run { Run { region, first: self.first_page, count: self.pages } }
}

impl Layout {
    /// A layout with pages of `page_elements` (None: the largest from 2,048 to 1 Mi that keeps padding at most 1% of the model, else 2,048) and chunks of at most `chunk_elements` (at least a page).
    pub fn new(manifest: &Manifest, page_elements: Option<usize>, chunk_elements: usize) -> Layout { let _ = (manifest, page_elements, chunk_elements); todo!() }
    /// The chunks of a unit, in element order.
    pub fn chunks(&self, manifest: &Manifest, unit: usize) -> Vec<Chunk> { let _ = (manifest, unit); todo!() }
    /// hi, lo, m, v of the given kind, and with `gradients` the scratch region `grad`.
    pub fn regions(&self, checkpointed: bool, gradients: bool) -> Vec<RegionSpec> { let _ = (checkpointed, gradients); todo!() }
}
