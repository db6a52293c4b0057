//! A profile as whole numbers, so that a prediction is the same on every machine: rates of the disk link, and the pace
//! of this link and of the host's computation while they share the cores; and the links of devices (`lanes`), which
//! take no core time.
//!
//! Sharing: a byte over the disk link costs core time (checksum, system calls, interrupts). Transfers use the cores
//! that the computation leaves free, and beyond those take from it; but they run on two threads, so they get no more
//! than two threads' share of the machine while it computes, and two cores while it waits. What they would need beyond
//! that slows the link.

mod lanes;

pub(super) use lanes::Lanes;

use super::predict::SECOND;
use crate::id::DeviceId;
use crate::profile::Profile;

/// The computation's full speed.
pub(super) const FULL: u64 = 1 << 20;

/// Threads that move bytes: one that steps the core, one that computes checksums.
const TRANSFER_THREADS: f64 = 2.0;

/// Bytes per second in each direction and the computation's speed in parts of [`FULL`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Pace {
    pub read: u64,
    pub write: u64,
    pub speed: u64,
}

/// Rates in whole bytes per second, at least 1.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Rates {
    /// Reading alone.
    pub read: u64,
    /// Writing alone.
    pub write: u64,
    /// Both at once, sum of both directions.
    pub mixed: u64,
    /// Nanoseconds from the end of a read's transfer to its completion.
    pub latency_ns: u64,
    /// Nanoseconds from a commit's last page to its being durable.
    pub sync_ns: u64,
    /// Attoseconds of one core a byte.
    byte_as: u64,
    cores: u64,
    threads: u64,
    /// By whether there is computation, a read, a write under way.
    paces: [[[Pace; 2]; 2]; 2],
    /// The links of devices, in the order of the profile.
    links: Vec<Lanes>,
}

impl Rates {
    /// The rates of a profile.
    pub(super) fn of(profile: &Profile) -> Rates {
        let whole = |rate: f64| (rate as u64).max(1);
        let (cores, threads) = (profile.cores.max(1), profile.compute_threads.clamp(1, profile.cores.max(1)));
        let mut rates = Rates {
            read: whole(profile.disk_read_bytes_per_s),
            write: whole(profile.disk_write_bytes_per_s),
            mixed: whole(profile.disk_mixed_bytes_per_s).max(2),
            latency_ns: (profile.disk_latency_s * SECOND as f64) as u64,
            sync_ns: (profile.disk_sync_s.max(0.0) * SECOND as f64) as u64,
            byte_as: (profile.transfer_cpu_s_per_byte.max(0.0) * 1e18) as u64,
            cores: u64::from(cores),
            threads: u64::from(threads),
            paces: [[[Pace { read: 0, write: 0, speed: FULL }; 2]; 2]; 2],
            links: profile.links.iter().map(Lanes::of).collect(),
        };
        for works in [false, true] {
            for reads in [false, true] {
                for writes in [false, true] {
                    rates.paces[usize::from(works)][usize::from(reads)][usize::from(writes)] =
                        rates.pace_of(works, reads, writes);
                }
            }
        }
        rates
    }

    /// How fast everything goes while these are under way.
    pub(super) fn pace(&self, works: bool, reads: bool, writes: bool) -> Pace {
        self.paces[usize::from(works)][usize::from(reads)][usize::from(writes)]
    }

    /// The link of a device. The planner refuses devices without one.
    pub(super) fn link(&self, device: DeviceId) -> &Lanes {
        self.links.iter().find(|lanes| lanes.device == device).expect("every device that is used has a link")
    }

    fn pace_of(&self, works: bool, reads: bool, writes: bool) -> Pace {
        let (read, write) = match (reads, writes) {
            (true, true) => (self.mixed / 2, self.mixed / 2),
            _ => (self.read, self.write),
        };
        let moving = u64::from(reads) * read + u64::from(writes) * write;
        let (cores, threads) = (self.cores as f64, self.threads as f64);
        let wanted = moving as f64 * self.byte_as as f64 * 1e-18;
        let fair = (cores - threads).max(cores * TRANSFER_THREADS / (TRANSFER_THREADS + threads));
        let most = if works { fair } else { cores }.min(TRANSFER_THREADS);
        let used = wanted.min(most);
        let scaled = |rate: u64| if wanted > most { ((rate as f64 * most / wanted) as u64).max(1) } else { rate };
        // Rounded down, so that no more core time is given out than there is.
        let speed = ((cores - used) / threads).min(1.0) * FULL as f64;
        Pace { read: scaled(read), write: scaled(write), speed: (speed as u64).max(1) }
    }

    /// The shortest time in which the link moves these bytes: in each direction alone, or both at once as long as both
    /// have bytes left, each at half the mixed rate. Time is linear in the bytes moved mixed, so an end is the best.
    pub(super) fn shortest_ns(&self, read_bytes: u64, write_bytes: u64) -> u128 {
        let ns = |bytes: u64, rate: u64| u128::from(bytes) * SECOND / u128::from(rate);
        let both = read_bytes.min(write_bytes);
        let apart = ns(read_bytes, self.read) + ns(write_bytes, self.write);
        let mixed = ns(2 * both, self.mixed) + ns(read_bytes - both, self.read) + ns(write_bytes - both, self.write);
        apart.min(mixed)
    }

    /// The most that `shortest_ns` falls when this many bytes fewer are moved.
    pub(super) fn relief_ns(&self, bytes: u64) -> u128 {
        u128::from(bytes) * SECOND / u128::from(self.read.min(self.write)) + 1
    }

    /// The time in which all cores together do this much computation and move these bytes.
    pub(super) fn cores_ns(&self, compute_ns: u128, bytes: u64) -> u128 {
        let moving_ns = u128::from(bytes) * u128::from(self.byte_as) / SECOND;
        (compute_ns * u128::from(self.threads) + moving_ns) / u128::from(self.cores)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(cores: u32, compute_threads: u32) -> Rates {
        // A core moves 2 GB/s, the link 1 GB/s in each direction alone or both together.
        let profile = Profile {
            disk_read_bytes_per_s: 1e9,
            disk_write_bytes_per_s: 1e9,
            disk_mixed_bytes_per_s: 1e9,
            transfer_cpu_s_per_byte: 0.5e-9,
            cores,
            compute_threads,
            ..Profile::default()
        };
        Rates::of(&profile)
    }

    #[test]
    fn transfers_take_from_the_computation_what_free_cores_do_not_give() {
        let speed = |rates: Rates, reads, writes| rates.pace(true, reads, writes).speed as f64 / FULL as f64;
        assert_eq!(speed(rates(2, 2), false, false), 1.0);
        assert_eq!(speed(rates(2, 2), true, false), 0.75);
        assert_eq!(speed(rates(2, 2), true, true), 0.75);
        assert_eq!(speed(rates(4, 2), true, true), 1.0);
        assert_eq!(speed(rates(16, 16), true, false), 1.0 - 0.5 / 16.0);
    }

    #[test]
    fn a_link_that_wants_more_than_its_threads_get_is_slowed() {
        let profile = Profile {
            disk_read_bytes_per_s: 8e9,
            transfer_cpu_s_per_byte: 0.5e-9,
            cores: 2,
            compute_threads: 2,
            ..Profile::default()
        };
        let rates = Rates::of(&profile);
        // Four cores' worth: half of two cores while they compute, both while they wait.
        assert_eq!(rates.pace(true, true, false).read, 2_000_000_000);
        assert_eq!(rates.pace(false, true, false).read, 4_000_000_000);
    }
}
