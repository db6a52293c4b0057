//! What a plan costs per sweep in the steady state: bytes over the links, a bound that no execution of this traffic can
//! beat (see `bound`), and the time of a simulated sweep (see `simulate`).

use super::bound::lower_bound_ns;
use super::outcome::{Busy, DevicePrediction, DiskTraffic, Prediction, Stall, Timeline};
use super::rates::Rates;
use super::simulate::{Simulated, simulate};
use super::types::{Interval, Place, Plan, Shape};
use crate::config::Kind;
use crate::id::{DeviceId, Run, Tier};
use crate::profile::Profile;
use crate::schedule::Node;
use std::collections::BTreeMap;

/// Nanoseconds per second.
pub(super) const SECOND: u128 = 1_000_000_000;

/// What commits move, and how often.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Commits {
    /// Sweeps from one to the next; 0: there are none, as without a disk.
    pub every: u32,
    /// Something that a commit makes durable is changed at all.
    pub has_any: bool,
    /// What one writes from memory, in the order in which the engine does.
    pub flushed: Vec<Flushed>,
    /// For each interval whether it changes bytes that a commit makes durable.
    pub is_kept: Vec<bool>,
}

/// A run that a commit writes from its home in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Flushed {
    pub run: Run,
    pub tier: Tier,
    pub bytes: u64,
}

impl Commits {
    /// The commits of a plan.
    fn of(plan: &Plan, shape: &Shape<'_>) -> Commits {
        let every = if shape.has_disk { shape.sweeps_per_commit } else { 0 };
        let is_kept = |interval: &Interval| {
            let kind = shape.regions[interval.run.region.0 as usize].kind;
            every > 0 && interval.mode.writes() && kind == Kind::Checkpointed
        };
        let is_kept: Vec<bool> = plan.intervals.iter().map(is_kept).collect();
        let in_memory = plan.intervals.iter().zip(&is_kept).filter(|(i, kept)| **kept && i.home.tier() != Tier::Disk);
        // First what is changed in place, in the order in which the accesses behind the mark do, and around.
        let mark = plan.schedule.nodes.iter().position(|node| matches!(node, Node::Commit)).unwrap_or(0);
        let is_elsewhere = |i: &Interval| i.place == Place::Window;
        let key = |i: &Interval| (is_elsewhere(i), !is_elsewhere(i) && (i.node as usize) < mark, i.home.tier(), i.node);
        let mut keyed: Vec<_> = in_memory
            .map(|(i, _)| (i.run, key(i), Flushed { run: i.run, tier: i.home.tier(), bytes: i.bytes }))
            .collect();
        keyed.sort_unstable_by_key(|&(run, key, _)| (run, key));
        keyed.dedup_by_key(|&mut (run, ..)| run);
        keyed.sort_unstable_by_key(|&(_, key, _)| key);
        let flushed = keyed.into_iter().map(|(.., flushed)| flushed).collect();
        Commits { every, has_any: is_kept.contains(&true), flushed, is_kept }
    }

    /// Bytes that a commit writes from memory.
    pub(super) fn bytes(&self) -> u64 {
        self.flushed.iter().map(|flushed| flushed.bytes).sum()
    }
}

/// Predicts one sweep in the steady state of a cyclic schedule, the mean of those from one commit to the next; for
/// another, one sweep until its last write-back and its commit.
pub(super) fn predict(plan: &Plan, shape: &Shape<'_>, profile: &Profile) -> Prediction {
    let rates = Rates::of(profile);
    let commits = Commits::of(plan, shape);
    let lower_ns = lower_bound_ns(plan, &rates, &commits);
    let Simulated { sweeps, host_peak_bytes, device_peak_bytes } = simulate(plan, &rates, &commits, false);
    let period: u128 = sweeps.iter().map(|sweep| u128::from(sweep.times)).sum();
    let mut ns = 0;
    let (mut busy, mut stalls) = (BTreeMap::new(), BTreeMap::new());
    for sweep in &sweeps {
        let times = u128::from(sweep.times);
        ns += times * sweep.ns;
        sweep.busy.iter().for_each(|&(station, ns)| *busy.entry(station).or_default() += times * ns);
        sweep.stalls.iter().for_each(|&(who, ns)| *stalls.entry(who).or_default() += times * ns);
    }
    let seconds = |ns: u128| ns as f64 / SECOND as f64;
    let mean = |sum: u128| seconds(sum / period);
    let busy = busy.into_iter().map(|(station, ns)| Busy { station, seconds: mean(ns) });
    let stalls = stalls.into_iter().map(|((user, cause), ns)| Stall { user, cause, seconds: mean(ns) });
    Prediction {
        // A few simulated sweeps may borrow from their neighbours; over many they cannot.
        seconds: seconds((ns / period).max(lower_ns)),
        lower_bound_seconds: seconds(lower_ns),
        disk: disk_traffic(plan, &commits),
        peak_host_bytes: plan.placed_bytes + host_peak_bytes + plan.host_work_bytes,
        devices: devices(plan, &commits, &device_peak_bytes),
        busy: busy.collect(),
        stalls: stalls.collect(),
    }
}

/// As [`super::timelines`].
pub(super) fn timelines(plan: &Plan, shape: &Shape<'_>, profile: &Profile) -> Vec<(u32, Timeline)> {
    let simulated = simulate(plan, &Rates::of(profile), &Commits::of(plan, shape), true);
    simulated.sweeps.into_iter().map(|sweep| (sweep.times, sweep.timeline)).collect()
}

/// Bytes that one sweep moves over the disk link.
fn disk_traffic(plan: &Plan, commits: &Commits) -> DiskTraffic {
    let bytes = |moves: fn(&Interval) -> bool| plan.intervals.iter().filter(|i| moves(i)).map(|i| i.bytes).sum();
    DiskTraffic {
        read_bytes: bytes(Interval::reads_disk),
        write_bytes: bytes(Interval::writes_disk),
        commit_bytes: commits.bytes(),
    }
}

/// Bytes over the link of each device, and what it holds at most.
fn devices(plan: &Plan, commits: &Commits, peaks: &[u64]) -> Vec<DevicePrediction> {
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
    for &Flushed { tier, bytes, .. } in &commits.flushed {
        if let Tier::Device(device) = tier {
            devices[at(device)].commit_bytes += bytes;
        }
    }
    devices
}
