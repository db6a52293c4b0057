//! What a plan costs per sweep in the steady state: bytes over the disk link, a bound that no execution of this traffic
//! can beat, and the time of a simulated sweep.

use super::simulate::simulate;
use super::types::{DiskTraffic, Interval, Place, Plan, Prediction, Shape};
use crate::config::Kind;
use crate::profile::Profile;
use crate::schedule::Node;

/// Nanoseconds per second.
pub(super) const SECOND: u128 = 1_000_000_000;

/// Rates in whole bytes per second, at least 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Rates {
    /// Reading alone.
    pub read: u64,
    /// Writing alone.
    pub write: u64,
    /// Both at once, sum of both directions.
    pub mixed: u64,
    /// Nanoseconds from the end of a read's transfer to its completion.
    pub latency_ns: u64,
}

impl Rates {
    /// The rates of a profile.
    pub(super) fn of(profile: &Profile) -> Rates {
        let whole = |rate: f64| (rate as u64).max(1);
        Rates {
            read: whole(profile.disk_read_bytes_per_s),
            write: whole(profile.disk_write_bytes_per_s),
            mixed: whole(profile.disk_mixed_bytes_per_s).max(2),
            latency_ns: (profile.disk_latency_s * SECOND as f64) as u64,
        }
    }

    /// The shortest time in which the link moves these bytes: in each direction alone, or both at once as long as both
    /// have bytes left, each at half the mixed rate. Time is linear in the bytes moved mixed, so an end is the best.
    fn shortest_ns(&self, read_bytes: u64, write_bytes: u64) -> u128 {
        let ns = |bytes: u64, rate: u64| u128::from(bytes) * SECOND / u128::from(rate);
        let both = read_bytes.min(write_bytes);
        let apart = ns(read_bytes, self.read) + ns(write_bytes, self.write);
        let mixed = ns(2 * both, self.mixed) + ns(read_bytes - both, self.read) + ns(write_bytes - both, self.write);
        apart.min(mixed)
    }

    /// The most that `shortest_ns` falls when this many bytes fewer are moved.
    fn relief_ns(&self, bytes: u64) -> u128 {
        u128::from(bytes) * SECOND / u128::from(self.read.min(self.write)) + 1
    }
}

/// Predicts one sweep in the steady state of a cyclic schedule; for another, one sweep until its last write-back.
pub(super) fn predict(plan: &Plan, shape: &Shape<'_>, profile: &Profile) -> Prediction {
    let rates = Rates::of(profile);
    let disk = traffic(plan, shape);
    let commit_bytes =
        if shape.sweeps_per_commit == 0 { 0 } else { disk.commit_bytes / u64::from(shape.sweeps_per_commit) };
    let lower_ns = lower_bound_ns(plan, &rates, commit_bytes);
    let simulated = simulate(plan, &rates, commit_bytes);
    let seconds = |ns: u128| ns as f64 / SECOND as f64;
    Prediction {
        // A single simulated sweep may borrow from its neighbours; over many it cannot.
        seconds: seconds(simulated.ns.max(lower_ns)),
        lower_bound_seconds: seconds(lower_ns),
        disk,
        peak_host_bytes: plan.placed_bytes + simulated.window_peak_bytes,
    }
}

/// Bytes that one sweep moves.
fn traffic(plan: &Plan, shape: &Shape<'_>) -> DiskTraffic {
    let mut disk = DiskTraffic::default();
    for interval in plan.intervals.iter().filter(|interval| interval.place == Place::Window) {
        disk.read_bytes += if interval.mode.reads() { interval.bytes } else { 0 };
        disk.write_bytes += if interval.mode.writes() { interval.bytes } else { 0 };
    }
    if shape.sweeps_per_commit > 0 {
        let is_kept = |interval: &&Interval| {
            let kind = shape.regions[interval.run.region.0 as usize].kind;
            interval.place != Place::Window && interval.mode.writes() && kind == Kind::Checkpointed
        };
        let mut written: Vec<_> = plan.intervals.iter().filter(is_kept).map(|i| (i.run, i.bytes)).collect();
        written.sort_unstable();
        written.dedup();
        disk.commit_bytes = written.iter().map(|&(_, bytes)| bytes).sum();
    }
    disk
}

/// Nanoseconds that a sweep takes at least, over many sweeps: all computation, all transfers, and phase by phase the
/// larger of both. A phase ends at a commit mark. Reads may run ahead of their phase and writes behind it, but no more
/// than a window of bytes is on its way across either end.
fn lower_bound_ns(plan: &Plan, rates: &Rates, commit_bytes: u64) -> u128 {
    let (mut compute, mut phases) = (0u128, 0u128);
    let (mut phase_compute, mut phase_read, mut phase_write) = (0u128, 0u64, 0u64);
    let (mut all_read, mut all_write) = (0u64, commit_bytes);
    let mut intervals = plan.intervals.iter().peekable();
    let slack = 2 * rates.relief_ns(plan.window_bytes);
    let phase_ns = |compute: u128, read, write| compute.max(rates.shortest_ns(read, write).saturating_sub(slack));
    for (index, node) in plan.schedule.nodes.iter().enumerate() {
        match node {
            Node::Work { ns, .. } => {
                compute += u128::from(*ns);
                phase_compute += u128::from(*ns);
            }
            Node::Commit => {
                phases += phase_ns(phase_compute, phase_read, phase_write);
                (phase_compute, phase_read, phase_write) = (0, 0, 0);
            }
            Node::Access(_) => {
                let interval = intervals.next_if(|i| i.node as usize == index).expect("one interval per access node");
                if interval.place == Place::Window {
                    phase_read += if interval.mode.reads() { interval.bytes } else { 0 };
                    phase_write += if interval.mode.writes() { interval.bytes } else { 0 };
                    all_read += if interval.mode.reads() { interval.bytes } else { 0 };
                    all_write += if interval.mode.writes() { interval.bytes } else { 0 };
                }
            }
        }
    }
    phases += phase_ns(phase_compute, phase_read, phase_write);
    compute.max(phases).max(rates.shortest_ns(all_read, all_write))
}
