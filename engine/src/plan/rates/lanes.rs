//! The link of one device: a lane each way, both at once.

use super::super::predict::SECOND;
use crate::id::DeviceId;
use crate::profile::LinkRates;

/// Whole bytes per second, at least 1, by whether the other lane is in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) struct Lanes {
    pub device: DeviceId,
    up: [u64; 2],
    down: [u64; 2],
    /// What a transfer takes beside its bytes, in bytes of its lane alone.
    up_beside: u64,
    down_beside: u64,
}

impl Lanes {
    pub(super) fn of(link: &LinkRates) -> Lanes {
        let whole = |rate: f64| (rate as u64).max(1);
        let up = [whole(link.upload_bytes_per_s), whole(link.upload_both_bytes_per_s)];
        let down = [whole(link.download_bytes_per_s), whole(link.download_both_bytes_per_s)];
        let beside = |rate: u64| (link.latency_s.max(0.0) * rate as f64) as u64;
        Lanes { device: link.device, up, down, up_beside: beside(up[0]), down_beside: beside(down[0]) }
    }

    /// How fast both lanes go while these are in use.
    pub(in super::super) fn pace(&self, uploads: bool, downloads: bool) -> (u64, u64) {
        (self.up[usize::from(downloads)], self.down[usize::from(uploads)])
    }

    /// Bytes that an upload counts as.
    pub(in super::super) fn up_bytes(&self, bytes: u64) -> u64 {
        bytes + self.up_beside
    }

    /// Bytes that a download counts as.
    pub(in super::super) fn down_bytes(&self, bytes: u64) -> u64 {
        bytes + self.down_beside
    }

    /// The shortest time in which both lanes move these bytes: one after the other, or both at once as long as both
    /// have bytes left. Time is linear in how long both are in use, so an end is the best.
    pub(in super::super) fn shortest_ns(&self, up_bytes: u64, down_bytes: u64) -> u128 {
        let ns = |bytes: u128, rate: u64| bytes * SECOND / u128::from(rate);
        let (up, down) = (u128::from(up_bytes), u128::from(down_bytes));
        let apart = ns(up, self.up[0]) + ns(down, self.down[0]);
        // The lane that is done first, and what the other has moved by then.
        let (up_both, down_both) = (u128::from(self.up[1]), u128::from(self.down[1]));
        let both = if up * down_both <= down * up_both {
            ns(up, self.up[1]) + ns(down - (up * down_both).div_ceil(up_both).min(down), self.down[0])
        } else {
            ns(down, self.down[1]) + ns(up - (down * up_both).div_ceil(down_both).min(up), self.up[0])
        };
        apart.min(both)
    }

    /// The most that `shortest_ns` falls when this many bytes fewer are moved.
    pub(in super::super) fn relief_ns(&self, bytes: u64) -> u128 {
        let slowest = self.up.into_iter().chain(self.down).min().unwrap_or(1);
        u128::from(bytes) * SECOND / u128::from(slowest) + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_at_once_are_faster_where_the_link_allows() {
        let link = |both: f64| {
            let (upload_bytes_per_s, download_bytes_per_s, latency_s) = (4e9, 2e9, 1e-6);
            let (upload_both_bytes_per_s, download_both_bytes_per_s) = (4e9 * both, 2e9 * both);
            let device = DeviceId(0);
            Lanes::of(&LinkRates {
                device,
                upload_bytes_per_s,
                download_bytes_per_s,
                upload_both_bytes_per_s,
                download_both_bytes_per_s,
                latency_s,
            })
        };
        // 4,000 bytes up take 1,000 ns alone, 4,000 down 2,000.
        assert_eq!(link(1.0).shortest_ns(4_000, 4_000), 2_000);
        // At half speed the first is done after 2,000 ns, and half of the other is left.
        assert_eq!(link(0.5).shortest_ns(4_000, 4_000), 3_000);
        assert_eq!(link(0.25).shortest_ns(4_000, 4_000), 3_000);
        assert_eq!(link(0.75).shortest_ns(0, 4_000), 2_000);
        assert_eq!((link(1.0).up_bytes(100), link(1.0).down_bytes(100)), (4_100, 2_100));
        assert_eq!(link(0.5).pace(true, false), (4_000_000_000, 1_000_000_000));
    }
}
