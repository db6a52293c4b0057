//! What a step costs: time, and the bytes that wear the drives. Between two plans time decides, but for a little of it
//! that less wear is worth. Pure.
//!
//! Wear can never make a step much slower, and what commits write counts like what streams. Else more RAM would: where
//! it is just enough to keep the state of a large model, a plan that streams nothing and computes layers again was
//! taken for 8 B parameters in 128 GiB, 1.18 times as slow as the plan in 64 GiB that streamed, although it wrote as
//! much for commits as the faster one streamed.

use mt_engine::plan::DiskTraffic;

/// What moves more bytes must be this many times as fast.
const MORE: f64 = 1.02;

/// Drives wear: every doubling of the bytes written must make the step this many times as fast.
const DOUBLING: f64 = 1.1;

/// No wear is worth more than this, so that more memory never costs more.
const WEAR_MOST: f64 = 1.05;

/// Written bytes of a step are compared in units of this share of the weights and moments, so that the first bytes
/// that are written count as a few doublings and not as infinitely many.
const UNIT_SHARE: u64 = 16;

/// What a step costs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Price {
    /// Its time.
    pub seconds: f64,
    /// Bytes read and written.
    moved: u64,
    /// Bytes written, and the unit in which they are compared.
    written: u64,
    unit: u64,
}

impl Price {
    /// Of a step with this time and traffic, `every` of them from one commit to the next (0: no commits), for a model
    /// with so many bytes of weights and moments.
    pub(super) fn new(seconds: f64, disk: DiskTraffic, every: u32, state_bytes: u64) -> Price {
        let committed = disk.commit_bytes.checked_div(u64::from(every)).unwrap_or(0);
        let written = disk.write_bytes + committed;
        Price { seconds, moved: disk.read_bytes + written, written, unit: (state_bytes / UNIT_SHARE).max(1) }
    }

    /// Whether it is worth more than another plan's.
    pub(super) fn beats(&self, other: &Price) -> bool {
        let units = |price: &Price| (price.written + self.unit) as f64;
        let doublings = (units(self) / units(other)).log2().max(0.0);
        let more = if self.moved > other.moved { MORE } else { 1.0 };
        self.seconds * DOUBLING.powf(doublings).min(WEAR_MOST).max(more) < other.seconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn price(seconds: f64, write_bytes: u64, commit_bytes: u64) -> Price {
        Price::new(seconds, DiskTraffic { read_bytes: 0, write_bytes, commit_bytes }, 4, 1_600)
    }

    #[test]
    fn time_decides_but_for_a_little_that_wear_is_worth() {
        // The unit is 100 bytes.
        assert!(price(0.99, 100, 0).beats(&price(1.0, 100, 0)));
        assert!(!price(0.99, 110, 0).beats(&price(1.0, 100, 0)), "2% for more traffic");
        assert!(price(0.97, 110, 0).beats(&price(1.0, 100, 0)));
        assert!(!price(0.97, 180, 0).beats(&price(1.0, 100, 0)), "4.7% for half a doubling");
        assert!(price(0.95, 100_000, 0).beats(&price(1.0, 0, 0)), "never more than 5%");
        assert!(!price(0.96, 100_000, 0).beats(&price(1.0, 0, 0)));
    }

    #[test]
    fn what_commits_write_wears_too() {
        assert!(price(0.99, 100, 0).beats(&price(1.0, 0, 400)), "a commit every fourth step");
        assert!(!price(0.99, 100, 0).beats(&price(1.0, 0, 0)));
    }
}
