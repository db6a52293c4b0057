//! Checks a schedule and lists its accesses, its devices and what work takes.

use super::ALIGN;
use super::draft::{Draft, Use};
use super::types::Shape;
use crate::error::PlanError;
use crate::id::{DeviceId, Run, Tier};
use crate::schedule::{Node, Resource, Schedule};

/// Memory that work takes for good.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Work {
    /// RAM: the largest of each resource, since they work at once.
    pub host_bytes: u64,
    /// The GPUs that the schedule uses, by number, and the VRAM that work takes there.
    pub devices: Vec<(DeviceId, u64)>,
}

impl Work {
    /// VRAM that work takes on a device.
    pub(super) fn device_bytes(&self, device: DeviceId) -> u64 {
        self.devices.iter().find(|&&(id, _)| id == device).map_or(0, |&(_, bytes)| bytes)
    }
}

/// Checks the schedule.
pub(super) fn draft(schedule: &Schedule, shape: &Shape<'_>) -> Result<Draft, PlanError> {
    check_order(schedule)?;
    let work = work(schedule)?;
    let release = releases(schedule);
    let mut uses = Vec::new();
    for (node, access) in schedule.nodes.iter().enumerate() {
        let Node::Access(access) = access else { continue };
        let bytes = run_bytes(access.run, shape)?;
        let (node, release) = (node as u32, release[node]);
        uses.push((Use::new(node, release, access, bytes), access.run));
    }
    Draft::new(uses, &schedule.after, work, shape)
}

/// Dependencies point backwards.
fn check_order(schedule: &Schedule) -> Result<(), PlanError> {
    if schedule.after.len() != schedule.nodes.len() {
        return Err(PlanError::Unordered { node: schedule.after.len().min(schedule.nodes.len()) as u32 });
    }
    match schedule.after.iter().enumerate().find(|&(node, after)| after.iter().any(|&a| a as usize >= node)) {
        Some((node, _)) => Err(PlanError::Unordered { node: node as u32 }),
        None => Ok(()),
    }
}

/// What work takes, and every device that a node names.
fn work(schedule: &Schedule) -> Result<Work, PlanError> {
    // By device: RAM and VRAM of its work. The host's own RAM apart.
    let mut devices: Vec<(DeviceId, u64, u64)> = Vec::new();
    let mut host = 0;
    for (index, node) in schedule.nodes.iter().enumerate() {
        let misplaced = Err(PlanError::Misplaced { node: index as u32 });
        let (device, host_bytes, device_bytes) = match node {
            Node::Access(access) => match access.tier {
                Tier::Device(device) => (device, 0, 0),
                Tier::Host => continue,
                Tier::Disk => return misplaced,
            },
            Node::Work { resource: Resource::HostCompute, device_bytes: 1.., .. } => return misplaced,
            Node::Work { resource: Resource::HostCompute, host_bytes, .. } => {
                host = host.max(*host_bytes);
                continue;
            }
            Node::Work { resource: Resource::Compute(device), host_bytes, device_bytes, .. } => {
                (*device, *host_bytes, *device_bytes)
            }
            Node::Commit => continue,
        };
        let at = devices.iter().position(|&(known, ..)| known == device).unwrap_or_else(|| {
            devices.push((device, 0, 0));
            devices.len() - 1
        });
        devices[at].1 = devices[at].1.max(host_bytes);
        devices[at].2 = devices[at].2.max(device_bytes);
    }
    devices.sort_unstable();
    let of_devices = devices.iter().map(|&(_, host_bytes, _)| host_bytes);
    // Sums beyond all memory stay beyond it.
    let host_bytes = of_devices.fold(host, u64::saturating_add);
    Ok(Work { host_bytes, devices: devices.iter().map(|&(device, _, bytes)| (device, bytes)).collect() })
}

/// For each node the last work node that depends on it, or the node itself.
fn releases(schedule: &Schedule) -> Vec<u32> {
    let mut release: Vec<u32> = (0..schedule.nodes.len() as u32).collect();
    for (node, after) in schedule.after.iter().enumerate() {
        if matches!(schedule.nodes[node], Node::Work { .. }) {
            for &access in after {
                release[access as usize] = node as u32;
            }
        }
    }
    release
}

fn run_bytes(run: Run, shape: &Shape<'_>) -> Result<u64, PlanError> {
    let region = shape.regions.get(run.region.0 as usize).ok_or(PlanError::NoSuchRun { run })?;
    if run.count == 0 || u64::from(run.first) + u64::from(run.count) > u64::from(region.pages) {
        return Err(PlanError::NoSuchRun { run });
    }
    let bytes = u64::from(region.page_bytes) * u64::from(run.count);
    assert!(bytes > 0 && bytes % ALIGN == 0, "pages of region {} are not a multiple of {ALIGN} bytes", region.name);
    Ok(bytes)
}
