//! The fault atlas: which sectors of the simulated volumes may hold other bytes than the submitter believes, and which
//! do not read.
//!
//! A sector becomes *suspect* when a write to it was lost, went elsewhere or stored a wrong bit, or when a write meant
//! for another place hit it. It stays so until a later write to it is durable: until then a power loss may bring the
//! damage back. Suspicion is never too narrow, so bytes that are wrong outside it are a bug of the submitter.
//!
//! *Spared* ranges are never damaged. A test spares the second of two copies, since one copy is what a store survives.

use super::disk::SECTOR_BYTES;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// A sector by volume and index.
type Sector = (u16, u64);

/// The atlas.
#[derive(Clone, Default)]
pub(super) struct Damage {
    /// With the number of the write that did it.
    suspect: BTreeMap<Sector, u64>,
    bad: BTreeSet<Sector>,
    spared: Vec<(u16, Range<u64>)>,
}

/// The sectors that a range touches.
fn touched(range: &Range<u64>) -> Range<u64> {
    range.start / SECTOR_BYTES..range.end.div_ceil(SECTOR_BYTES)
}

/// The sectors that a range covers whole.
fn covered(range: &Range<u64>) -> Range<u64> {
    range.start.div_ceil(SECTOR_BYTES)..range.end / SECTOR_BYTES
}

impl Damage {
    /// The range is suspect since the write of this number.
    pub(super) fn suspect(&mut self, volume: u16, range: &Range<u64>, number: u64) {
        self.suspect.extend(touched(range).map(|sector| ((volume, sector), number)));
    }

    /// The write of this number is durable.
    pub(super) fn durable(&mut self, volume: u16, range: &Range<u64>, number: u64) {
        if !self.suspect.is_empty() {
            for sector in covered(range) {
                if self.suspect.get(&(volume, sector)).is_some_and(|since| *since < number) {
                    self.suspect.remove(&(volume, sector));
                }
            }
        }
    }

    /// A sector of the range is suspect.
    pub(super) fn is_suspect(&self, volume: u16, range: &Range<u64>) -> bool {
        let sectors = touched(range);
        self.suspect.range((volume, sectors.start)..(volume, sectors.end)).next().is_some()
    }

    /// The sector that holds this byte does not read from now on.
    pub(super) fn spoil(&mut self, volume: u16, offset: u64) {
        self.bad.insert((volume, offset / SECTOR_BYTES));
    }

    /// The range was written: it reads again.
    pub(super) fn written(&mut self, volume: u16, range: &Range<u64>) {
        if !self.bad.is_empty() {
            covered(range).for_each(|sector| _ = self.bad.remove(&(volume, sector)));
        }
    }

    /// A sector of the range does not read.
    pub(super) fn is_bad(&self, volume: u16, range: &Range<u64>) -> bool {
        let sectors = touched(range);
        self.bad.range((volume, sectors.start)..(volume, sectors.end)).next().is_some()
    }

    /// Every sector reads again.
    pub(super) fn heal_bad(&mut self) {
        self.bad.clear();
    }

    /// The range is never damaged.
    pub(super) fn spare(&mut self, volume: u16, range: Range<u64>) {
        self.spared.push((volume, range));
    }

    /// Whether damage to the range is forbidden.
    pub(super) fn is_spared(&self, volume: u16, range: &Range<u64>) -> bool {
        self.spared
            .iter()
            .any(|(other, spared)| *other == volume && spared.start < range.end && range.start < spared.end)
    }
}
