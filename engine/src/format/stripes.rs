//! How pages are dealt to volumes.
//!
//! A region's pages are cut into *stripes* of `bytes` (at least a page). Stripe k goes to the volume `slots[k %
//! slots.len()]`; on its volume a region's stripes follow each other without gaps, so that neighbours in a stripe are
//! one transfer and a long run is sequential on every volume. Slots hold each volume as often as its share says.
//!
//! It is arithmetic only: rates and sizes of the volumes are measured elsewhere, once, when the store is created; what
//! was chosen is recorded in the catalogue and never changes.

use crate::canary::{Canary, planted};

/// Volumes of a store.
pub(crate) const VOLUMES_MAX: usize = 16;
/// Slots of the pattern: the smallest share of a volume is one of them.
pub(crate) const SLOTS_MAX: usize = 256;
/// A share that slots give may differ from what was asked for by this part of it.
const SHARE_ERROR: f64 = 0.02;

/// The pattern by which stripes are dealt to volumes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Stripes {
    bytes: u32,
    slots: Vec<u16>,
    /// For each slot how many slots before it are its volume's.
    rank: Vec<u32>,
    /// For each volume its number of slots.
    counts: Vec<u32>,
}

impl Stripes {
    /// Everything on one volume; then the length of a stripe means nothing.
    pub(crate) fn single() -> Stripes {
        Stripes::new(4096, vec![0], 1)
    }

    fn new(bytes: u32, slots: Vec<u16>, volumes: usize) -> Stripes {
        let mut counts = vec![0; volumes];
        let mut take = |volume: &u16| {
            let count = &mut counts[usize::from(*volume)];
            *count += 1;
            *count - 1
        };
        let rank = slots.iter().map(&mut take).collect();
        Stripes { bytes, slots, rank, counts }
    }

    /// A pattern as the catalogue has it; the message names field, expected and found.
    pub(crate) fn from_slots(bytes: u32, slots: Vec<u16>) -> Result<Stripes, String> {
        if bytes == 0 || !bytes.is_multiple_of(4096) {
            return Err(format!("stripe bytes: expected a multiple of 4096, found {bytes}"));
        }
        if slots.is_empty() || slots.len() > SLOTS_MAX {
            return Err(format!("stripe slots: expected 1 to {SLOTS_MAX}, found {}", slots.len()));
        }
        let volumes = slots.iter().max().map_or(0, |last| usize::from(*last) + 1);
        if volumes > VOLUMES_MAX || (0..volumes).any(|v| !slots.contains(&(v as u16))) {
            return Err(format!("stripe slots: expected every volume up to {VOLUMES_MAX}, found {slots:?}"));
        }
        Ok(Stripes::new(bytes, slots, volumes))
    }

    /// The shortest pattern that gives each volume its share within a few hundredths of it, or else the one that comes
    /// nearest. Shares are positive; only their ratios count.
    pub(crate) fn with_shares(bytes: u32, shares: &[f64]) -> Stripes {
        assert!((1..=VOLUMES_MAX).contains(&shares.len()), "1 to {VOLUMES_MAX} volumes");
        assert!(shares.iter().all(|s| s.is_finite() && *s > 0.0), "shares are positive: {shares:?}");
        let sum: f64 = shares.iter().sum();
        let counts = |slots: usize| apportion(shares, sum, slots);
        let error = |slots: usize| {
            let relative = |(n, share): (&usize, &f64)| (*n as f64 / slots as f64 / (share / sum) - 1.0).abs();
            counts(slots).iter().zip(shares).map(relative).fold(0.0, f64::max)
        };
        let lengths = shares.len()..=SLOTS_MAX;
        let good = lengths.clone().find(|slots| error(*slots) <= SHARE_ERROR);
        let slots = good.unwrap_or_else(|| {
            lengths.min_by(|a, b| error(*a).total_cmp(&error(*b))).expect("there are more slots than volumes")
        });
        Stripes::new(bytes, interleave(&counts(slots)), shares.len())
    }

    pub(crate) fn bytes(&self) -> u32 {
        self.bytes
    }

    pub(crate) fn slots(&self) -> &[u16] {
        &self.slots
    }

    pub(crate) fn volumes(&self) -> u16 {
        self.counts.len() as u16
    }

    /// Pages of a stripe.
    fn pages(&self, page_bytes: u32) -> u32 {
        (self.bytes / page_bytes).max(1)
    }

    /// Volume of a region's page, and its place among the region's pages on that volume.
    pub(crate) fn locate(&self, page: u32, page_bytes: u32) -> (u16, u32) {
        let pages = self.pages(page_bytes);
        let (stripe, within) = (page / pages, page % pages);
        let slots = self.slots.len() as u32;
        let (cycle, slot) = (stripe / slots, (stripe % slots) as usize);
        let volume = self.slots[slot];
        let rank = if planted(Canary::StripeOverlap) { 0 } else { self.rank[slot] };
        let before = cycle * self.counts[usize::from(volume)] + rank;
        (volume, before * pages + within)
    }

    /// How many of a region's pages lie on the volume.
    pub(crate) fn pages_on(&self, volume: u16, region_pages: u32, page_bytes: u32) -> u32 {
        let pages = self.pages(page_bytes);
        let slots = self.slots.len() as u32;
        let (whole, rest) = (region_pages / pages, region_pages % pages);
        let open = (whole % slots) as usize;
        let in_open_cycle = self.slots[..open].iter().filter(|v| **v == volume).count() as u32;
        let stripes = whole / slots * self.counts[usize::from(volume)] + in_open_cycle;
        let last = if self.slots[open] == volume { rest } else { 0 };
        stripes * pages + last
    }
}

/// Slots of each volume: at least one, the rest by largest remainder.
fn apportion(shares: &[f64], sum: f64, slots: usize) -> Vec<usize> {
    let ideal: Vec<f64> = shares.iter().map(|s| s / sum * slots as f64).collect();
    let mut counts: Vec<usize> = ideal.iter().map(|i| (i.floor() as usize).max(1)).collect();
    while counts.iter().sum::<usize>() < slots {
        let lack = |v: &usize| ideal[*v] - counts[*v] as f64;
        let neediest = (0..counts.len()).max_by(|a, b| lack(a).total_cmp(&lack(b)).then(b.cmp(a)));
        counts[neediest.expect("there is a volume")] += 1;
    }
    while counts.iter().sum::<usize>() > slots {
        let excess = |v: &usize| counts[*v] as f64 - ideal[*v];
        let richest =
            (0..counts.len()).filter(|v| counts[*v] > 1).max_by(|a, b| excess(a).total_cmp(&excess(b)).then(b.cmp(a)));
        counts[richest.expect("there are at least as many slots as volumes")] -= 1;
    }
    counts
}

/// Deals the slots so that each volume's are spread evenly: always to the volume that is most behind its share.
fn interleave(counts: &[usize]) -> Vec<u16> {
    let total: usize = counts.iter().sum();
    let mut dealt = vec![0usize; counts.len()];
    let mut slots = Vec::with_capacity(total);
    for n in 1..=total {
        let behind = |v: &usize| (counts[*v] * n) as i64 - (dealt[*v] * total) as i64;
        let next = (0..counts.len())
            .filter(|v| dealt[*v] < counts[*v])
            .max_by(|a, b| behind(a).cmp(&behind(b)).then(b.cmp(a)))
            .expect("slots are left to deal");
        dealt[next] += 1;
        slots.push(next as u16);
    }
    slots
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_volumes_take_turns_and_a_fast_one_takes_more() {
        assert_eq!(Stripes::with_shares(4096, &[1.0, 1.0]).slots(), [0, 1]);
        assert_eq!(Stripes::with_shares(4096, &[3.0, 3.0, 3.0]).slots(), [0, 1, 2]);
        assert_eq!(Stripes::with_shares(4096, &[2.0, 1.0]).slots(), [0, 1, 0]);
        assert_eq!(Stripes::with_shares(4096, &[5.0]).slots(), [0]);
    }

    #[test]
    fn shares_are_kept_and_every_volume_is_used() {
        for shares in [vec![1.0, 1.37], vec![7.0, 2.9, 2.9], vec![1.0, 1000.0], vec![0.3; 16], vec![9.0, 1.0, 3.3, 0.2]]
        {
            let stripes = Stripes::with_shares(4096, &shares);
            assert!(stripes.slots().len() <= SLOTS_MAX);
            let sum: f64 = shares.iter().sum();
            for (volume, share) in shares.iter().enumerate() {
                let count = stripes.counts[volume];
                let expected = share / sum * stripes.slots().len() as f64;
                assert!(count >= 1 && (count as f64 - expected).abs() <= 1.0, "{shares:?}: {count} for {expected}");
            }
            let again = Stripes::from_slots(4096, stripes.slots().to_vec()).expect("a pattern that was made");
            assert_eq!(again, stripes);
        }
    }

    #[test]
    fn every_page_has_its_own_place_and_each_volume_is_filled_without_gaps() {
        for shares in [vec![1.0], vec![1.0, 1.0], vec![2.0, 1.0], vec![5.0, 3.0, 1.0]] {
            for stripe in [4096, 12288, 65536] {
                let stripes = Stripes::with_shares(stripe, &shares);
                for (pages, page_bytes) in [(1, 4096), (7, 4096), (50, 8192), (131, 4096), (9, 131_072)] {
                    let mut next = vec![0; shares.len()];
                    for page in 0..pages {
                        let (volume, place) = stripes.locate(page, page_bytes);
                        assert_eq!(place, next[usize::from(volume)], "page {page} of {pages}");
                        next[usize::from(volume)] += 1;
                    }
                    let expected: Vec<u32> =
                        (0..shares.len()).map(|v| stripes.pages_on(v as u16, pages, page_bytes)).collect();
                    assert_eq!(next, expected);
                }
            }
        }
    }

    #[test]
    fn patterns_that_no_store_has_are_refused() {
        assert!(Stripes::from_slots(0, vec![0]).is_err());
        assert!(Stripes::from_slots(4097, vec![0]).is_err());
        assert!(Stripes::from_slots(4096, vec![]).is_err());
        assert!(Stripes::from_slots(4096, vec![0; SLOTS_MAX + 1]).is_err());
        assert!(Stripes::from_slots(4096, vec![0, 2]).is_err());
        assert!(Stripes::from_slots(4096, (0..17).collect()).is_err());
    }
}
