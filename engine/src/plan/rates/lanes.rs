//! The link of one device: a lane each way, both at once. Both are slower while the host computes.

use super::super::predict::SECOND;
use crate::id::DeviceId;
use crate::profile::LinkRates;

/// Whole bytes per second, at least 1, by whether the other lane is in use and whether the host computes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) struct Lanes {
    pub device: DeviceId,
    up: [[u64; 2]; 2],
    down: [[u64; 2]; 2],
    /// What a transfer takes beside its bytes, in bytes of its lane alone.
    up_beside: u64,
    down_beside: u64,
}

impl Lanes {
    pub(super) fn of(link: &LinkRates) -> Lanes {
        let whole = |rate: f64| (rate as u64).max(1);
        let both = |rate: f64| [whole(rate), whole(rate * link.busy_share.clamp(0.0, 1.0))];
        let up = [both(link.upload_bytes_per_s), both(link.upload_both_bytes_per_s)];
        let down = [both(link.download_bytes_per_s), both(link.download_both_bytes_per_s)];
        let beside = |rate: u64| (link.latency_s.max(0.0) * rate as f64) as u64;
        Lanes { device: link.device, up, down, up_beside: beside(up[0][0]), down_beside: beside(down[0][0]) }
    }

    /// How fast both lanes go while these are in use, and the host computes or does not.
    pub(in super::super) fn pace(&self, uploads: bool, downloads: bool, works: bool) -> (u64, u64) {
        let works = usize::from(works);
        (self.up[usize::from(downloads)][works], self.down[usize::from(uploads)][works])
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
    /// have bytes left, beside a host that waits. Time is linear in how long both are in use, so an end is the best.
    pub(in super::super) fn shortest_ns(&self, up_bytes: u64, down_bytes: u64) -> u128 {
        let ns = |bytes: u128, rate: u64| bytes * SECOND / u128::from(rate);
        let (up, down) = (u128::from(up_bytes), u128::from(down_bytes));
        let ([[up_alone, _], [up_both, _]], [[down_alone, _], [down_both, _]]) = (self.up, self.down);
        let apart = ns(up, up_alone) + ns(down, down_alone);
        // The lane that is done first, and what the other has moved by then.
        let (up_rate, down_rate) = (u128::from(up_both), u128::from(down_both));
        let both = if up * down_rate <= down * up_rate {
            ns(up, up_both) + ns(down - (up * down_rate).div_ceil(up_rate).min(down), down_alone)
        } else {
            ns(down, down_both) + ns(up - (down * up_rate).div_ceil(down_rate).min(up), up_alone)
        };
        apart.min(both)
    }

    /// The most that `shortest_ns` falls when this many bytes fewer are moved.
    pub(in super::super) fn relief_ns(&self, bytes: u64) -> u128 {
        let slowest = self.up.into_iter().chain(self.down).map(|[waiting, _]| waiting).min().unwrap_or(1);
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
                busy_share: 0.5,
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
        assert_eq!(link(0.5).pace(true, false, false), (4_000_000_000, 1_000_000_000));
        assert_eq!(link(0.5).pace(true, true, true), (1_000_000_000, 500_000_000));
    }
}
