//! What a plan costs per sweep in the steady state: bytes over the disk link, a bound that no execution of this traffic
//! can beat, and the time of a simulated sweep.

use super::rates::Rates;
use super::simulate::simulate;
use super::types::{DiskTraffic, Interval, Place, Plan, Prediction, Shape, Span};
use crate::config::Kind;
use crate::profile::Profile;
use crate::schedule::Node;

/// Nanoseconds per second.
pub(super) const SECOND: u128 = 1_000_000_000;

/// Predicts one sweep in the steady state of a cyclic schedule; for another, one sweep until its last write-back.
pub(super) fn predict(plan: &Plan, shape: &Shape<'_>, profile: &Profile) -> Prediction {
    let rates = Rates::of(profile);
    let disk = traffic(plan, shape);
    let commit_bytes = commit_bytes(&disk, shape);
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

/// As [`super::timeline`].
pub(super) fn timeline(plan: &Plan, shape: &Shape<'_>, profile: &Profile) -> Vec<Span> {
    simulate(plan, &Rates::of(profile), commit_bytes(&traffic(plan, shape), shape)).spans
}

/// A sweep's share of what its commit writes for placed runs.
fn commit_bytes(disk: &DiskTraffic, shape: &Shape<'_>) -> u64 {
    disk.commit_bytes.checked_div(u64::from(shape.sweeps_per_commit)).unwrap_or(0)
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

/// Nanoseconds that a sweep takes at least, over many sweeps: all computation, all transfers, the cores' time for both,
/// and phase by phase the larger of computation and transfers. A phase ends at a commit mark. Reads may run ahead of
/// their phase and writes behind it, but no more than a window of bytes is on its way across either end.
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
    let cores = rates.cores_ns(compute, all_read + all_write);
    compute.max(phases).max(cores).max(rates.shortest_ns(all_read, all_write))
}
