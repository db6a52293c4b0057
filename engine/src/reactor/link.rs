//! How long each link was busy, and how fast the disk's was while it was full, from what is in flight between looks.

use crate::core::InFlight;
use crate::stats::{LinkTimes, Moving, Stats};
use std::time::Instant;

/// Bytes in flight from which on the link counts as full: four transfers of the default size, with which an NVMe drive
/// reaches its bandwidth.
const FULL_BYTES: u64 = 4 << 20;

/// The links' course.
pub(super) struct Link {
    /// The last look: when, what was in flight from then on, bytes read and written until then.
    at: Instant,
    in_flight: InFlight,
    read_bytes: u64,
    write_bytes: u64,
    pub(super) times: LinkTimes,
}

impl Link {
    pub(super) fn new(at: Instant) -> Link {
        let (in_flight, times) = Default::default();
        Link { at, in_flight, read_bytes: 0, write_bytes: 0, times }
    }

    /// Looks: what has moved since the last look, moved with what was in flight then.
    pub(super) fn look(&mut self, at: Instant, in_flight: InFlight, stats: &Stats) {
        let ns = at.saturating_duration_since(self.at).as_nanos() as u64;
        let bytes = stats.disk_read_bytes - self.read_bytes + stats.disk_write_bytes - self.write_bytes;
        let InFlight { read_bytes, write_bytes, upload_bytes, download_bytes } = self.in_flight;
        let times = &mut self.times;
        let busy = |bytes: u64| if bytes > 0 { ns } else { 0 };
        times.read_ns += busy(read_bytes);
        times.write_ns += busy(write_bytes);
        times.upload_ns += busy(upload_bytes);
        times.download_ns += busy(download_bytes);
        let full = match (read_bytes, write_bytes) {
            (read, 0) if read >= FULL_BYTES => Some(&mut times.full_read),
            (0, write) if write >= FULL_BYTES => Some(&mut times.full_write),
            (read, write) if read >= FULL_BYTES / 2 && write >= FULL_BYTES / 2 => Some(&mut times.full_mixed),
            _ => None,
        };
        if let Some(Moving { bytes: all_bytes, ns: all_ns }) = full {
            *all_bytes += bytes;
            *all_ns += ns;
        }
        (self.at, self.in_flight) = (at, in_flight);
        (self.read_bytes, self.write_bytes) = (stats.disk_read_bytes, stats.disk_write_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn only_a_full_link_tells_its_rate() {
        let begin = Instant::now();
        let mut link = Link::new(begin);
        let mut stats = Stats::default();
        let mut look = |ms: u64, read, write, in_flight: (u64, u64)| {
            (stats.disk_read_bytes, stats.disk_write_bytes) = (read, write);
            // The ways of a device's link are looked at as those of the disk's.
            let (read_bytes, write_bytes) = in_flight;
            let in_flight = InFlight { read_bytes, write_bytes, upload_bytes: write_bytes, download_bytes: read_bytes };
            link.look(begin + Duration::from_millis(ms), in_flight, &stats);
        };
        look(5, 0, 0, (FULL_BYTES, 0));
        look(15, 100, 0, (FULL_BYTES / 2, FULL_BYTES / 2));
        look(18, 110, 20, (1, 0));
        look(19, 111, 20, (0, FULL_BYTES));
        look(23, 111, 60, (0, 0));
        look(99, 111, 60, (0, 0));
        let times = link.times;
        assert_eq!((times.read_ns, times.write_ns), (14_000_000, 7_000_000));
        assert_eq!((times.upload_ns, times.download_ns), (7_000_000, 14_000_000));
        assert_eq!(times.full_read, Moving { bytes: 100, ns: 10_000_000 });
        assert_eq!(times.full_mixed, Moving { bytes: 30, ns: 3_000_000 });
        assert_eq!(times.full_write, Moving { bytes: 40, ns: 4_000_000 });
    }
}
