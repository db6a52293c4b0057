//! What a plan costs per sweep in the steady state: bytes over the links, a bound that no execution of this traffic can
//! beat (see `bound`), and the time of a simulated sweep (see `simulate`).

use super::bound::lower_bound_ns;
use super::outcome::{Busy, DevicePrediction, DiskTraffic, Prediction, Stall, Timeline};
use super::rates::Rates;
use super::simulate::{Commit, simulate};
use super::types::{Interval, Plan, Shape};
use crate::config::Kind;
use crate::id::{DeviceId, Run, Tier};
use crate::profile::Profile;

/// Nanoseconds per second.
pub(super) const SECOND: u128 = 1_000_000_000;

/// Predicts one sweep in the steady state of a cyclic schedule; for another, one sweep until its last write-back.
pub(super) fn predict(plan: &Plan, shape: &Shape<'_>, profile: &Profile) -> Prediction {
    let rates = Rates::of(profile);
    let flushed = flushed(plan, shape);
    let commit = commit(&flushed, shape);
    let lower_ns = lower_bound_ns(plan, &rates, &commit);
    let simulated = simulate(plan, &rates, &commit, false);
    let seconds = |ns: u128| ns as f64 / SECOND as f64;
    let busy = simulated.busy.iter().map(|&(station, ns)| Busy { station, seconds: seconds(ns) });
    let stalls = simulated.stalls.iter().map(|&((user, cause), ns)| Stall { user, cause, seconds: seconds(ns) });
    Prediction {
        // A single simulated sweep may borrow from its neighbours; over many it cannot.
        seconds: seconds(simulated.ns.max(lower_ns)),
        lower_bound_seconds: seconds(lower_ns),
        disk: disk_traffic(plan, &flushed),
        peak_host_bytes: plan.placed_bytes + simulated.host_peak_bytes + plan.host_work_bytes,
        devices: devices(plan, &flushed, &simulated.device_peak_bytes),
        busy: busy.collect(),
        stalls: stalls.collect(),
    }
}

/// As [`super::timeline`].
pub(super) fn timeline(plan: &Plan, shape: &Shape<'_>, profile: &Profile) -> Timeline {
    simulate(plan, &Rates::of(profile), &commit(&flushed(plan, shape), shape), true).timeline
}

/// Runs that a commit writes from their home in memory: checkpointed ones that the sweep changes.
fn flushed(plan: &Plan, shape: &Shape<'_>) -> Vec<(Run, Tier, u64)> {
    if shape.sweeps_per_commit == 0 {
        return Vec::new();
    }
    let is_kept = |interval: &&Interval| {
        let kind = shape.regions[interval.run.region.0 as usize].kind;
        interval.home.tier() != Tier::Disk && interval.mode.writes() && kind == Kind::Checkpointed
    };
    let mut written: Vec<_> = plan.intervals.iter().filter(is_kept).map(|i| (i.run, i.home.tier(), i.bytes)).collect();
    written.sort_unstable();
    written.dedup();
    written
}

/// A sweep's share of what its commit moves.
fn commit(flushed: &[(Run, Tier, u64)], shape: &Shape<'_>) -> Commit {
    let share = |bytes: u64| bytes.checked_div(u64::from(shape.sweeps_per_commit)).unwrap_or(0);
    let in_ram = flushed.iter().filter(|(_, tier, _)| *tier == Tier::Host);
    let from_devices = flushed.iter().filter_map(|&(_, tier, bytes)| match tier {
        Tier::Device(device) => Some((device, share(bytes))),
        _ => None,
    });
    Commit { host_bytes: share(in_ram.map(|&(_, _, bytes)| bytes).sum()), from_devices: from_devices.collect() }
}

/// Bytes that one sweep moves over the disk link.
fn disk_traffic(plan: &Plan, flushed: &[(Run, Tier, u64)]) -> DiskTraffic {
    let bytes = |moves: fn(&Interval) -> bool| plan.intervals.iter().filter(|i| moves(i)).map(|i| i.bytes).sum();
    DiskTraffic {
        read_bytes: bytes(Interval::reads_disk),
        write_bytes: bytes(Interval::writes_disk),
        commit_bytes: flushed.iter().map(|&(_, _, bytes)| bytes).sum(),
    }
}

/// Bytes over the link of each device, and what it holds at most.
fn devices(plan: &Plan, flushed: &[(Run, Tier, u64)], peaks: &[u64]) -> Vec<DevicePrediction> {
    let mut devices: Vec<DevicePrediction> = plan
        .devices
        .iter()
        .zip(peaks)
        .map(|(share, peak)| DevicePrediction {
            device: share.device,
            upload_bytes: 0,
            download_bytes: 0,
            commit_bytes: 0,
            peak_bytes: share.placed_bytes + peak + share.work_bytes,
        })
        .collect();
    let at = |id: DeviceId| plan.devices.iter().position(|share| share.device == id).expect("a device of the plan");
    for interval in &plan.intervals {
        if let Some(device) = interval.link() {
            let device = &mut devices[at(device)];
            let (upload, download) = interval.link_bytes();
            device.upload_bytes += upload;
            device.download_bytes += download;
        }
    }
    for &(_, tier, bytes) in flushed {
        if let Tier::Device(device) = tier {
            devices[at(device)].commit_bytes += bytes;
        }
    }
    devices
}
