//! The time that a sweep takes at least, over many sweeps: what each station has to do in all, the cores' time for
//! computation and transfers, and phase by phase the largest of what the stations have to do.
//!
//! A phase ends at a commit mark, which is a cut for all users. Transfers into RAM and VRAM may run ahead of their
//! phase and write-backs behind it, but no more bytes than the rings hold are on their way across either end.

use super::predict::Commits;
use super::rates::Rates;
use super::types::Plan;
use crate::id::{DeviceId, Tier};
use crate::schedule::{Node, Resource};

/// What the stations have to do in a phase, or in all.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Load {
    host_ns: u128,
    disk_read: u64,
    disk_write: u64,
    /// By device: computation, bytes up, bytes down.
    devices: Vec<(u128, u64, u64)>,
}

impl Load {
    fn none(plan: &Plan) -> Load {
        Load { host_ns: 0, disk_read: 0, disk_write: 0, devices: vec![(0, 0, 0); plan.devices.len()] }
    }

    fn add(&mut self, other: &Load) {
        self.host_ns += other.host_ns;
        self.disk_read += other.disk_read;
        self.disk_write += other.disk_write;
        for (sum, device) in self.devices.iter_mut().zip(&other.devices) {
            *sum = (sum.0 + device.0, sum.1 + device.1, sum.2 + device.2);
        }
    }

    /// The largest of them, each link with its slack.
    fn ns(&self, plan: &Plan, rates: &Rates, slack: &Slack) -> u128 {
        let disk = rates.shortest_ns(self.disk_read, self.disk_write).saturating_sub(slack.disk_ns);
        let shares = plan.devices.iter().zip(&self.devices).zip(&slack.links_ns);
        let devices = shares.map(|((share, &(compute, up, down)), slack)| {
            compute.max(rates.link(share.device).shortest_ns(up, down).saturating_sub(*slack))
        });
        devices.fold(self.host_ns.max(disk), u128::max)
    }
}

/// What a phase may leave to its neighbours.
struct Slack {
    disk_ns: u128,
    links_ns: Vec<u128>,
}

/// Nanoseconds that a sweep takes at least.
pub(super) fn lower_bound_ns(plan: &Plan, rates: &Rates, commits: &Commits) -> u128 {
    let at = |id: DeviceId| plan.devices.iter().position(|share| share.device == id).expect("a device of the plan");
    let (mut all, mut phase, mut phases) = (Load::none(plan), Load::none(plan), 0u128);
    let slack = slack(plan, rates);
    let mut intervals = plan.intervals.iter().peekable();
    for (index, node) in plan.schedule.nodes.iter().enumerate() {
        match node {
            Node::Work { resource: Resource::HostCompute, ns, .. } => phase.host_ns += u128::from(*ns),
            Node::Work { resource: Resource::Compute(id), ns, .. } => phase.devices[at(*id)].0 += u128::from(*ns),
            Node::Commit => {
                phases += phase.ns(plan, rates, &slack);
                all.add(&phase);
                phase = Load::none(plan);
            }
            Node::Access(_) => {
                let interval = intervals.next_if(|i| i.node as usize == index).expect("one interval per access node");
                phase.disk_read += if interval.reads_disk() { interval.bytes } else { 0 };
                phase.disk_write += if interval.writes_disk() { interval.bytes } else { 0 };
                if let Some(id) = interval.link() {
                    let (device, lanes) = (&mut phase.devices[at(id)], rates.link(id));
                    let (up, down) = interval.link_bytes();
                    device.1 += if up > 0 { lanes.up_bytes(up) } else { 0 };
                    device.2 += if down > 0 { lanes.down_bytes(down) } else { 0 };
                }
            }
        }
    }
    phases += phase.ns(plan, rates, &slack);
    all.add(&phase);
    let period = if plan.schedule.cyclic { u64::from(commits.every.max(1)) } else { 1 };
    all.disk_write += commits.bytes() / period;
    for flushed in &commits.flushed {
        if let Tier::Device(id) = flushed.tier {
            all.devices[at(id)].2 += rates.link(id).down_bytes(flushed.bytes) / period;
        }
    }
    let none = Slack { disk_ns: 0, links_ns: vec![0; plan.devices.len()] };
    let cores = rates.cores_ns(all.host_ns, all.disk_read + all.disk_write);
    phases.max(cores).max(all.ns(plan, rates, &none))
}

fn slack(plan: &Plan, rates: &Rates) -> Slack {
    let vram: u64 = plan.devices.iter().map(|share| share.window_bytes).sum();
    let disk_ns = 2 * rates.relief_ns(plan.window_bytes + plan.staging_bytes + vram);
    // An access in RAM to a run that lives in VRAM goes through the arena's window.
    let links_ns = plan.devices.iter().map(|share| {
        let lanes = rates.link(share.device);
        // What a transfer takes beside its bytes comes on top, once for each.
        let bytes = share.window_bytes + plan.window_bytes;
        let crossing = plan.intervals.iter().filter(|interval| interval.link() == Some(share.device));
        let transfers = bytes / crossing.map(|interval| interval.bytes).min().unwrap_or(u64::MAX);
        2 * lanes.relief_ns(bytes + transfers * lanes.up_bytes(0).max(lanes.down_bytes(0)))
    });
    Slack { disk_ns, links_ns: links_ns.collect() }
}
