//! Schedules with devices to plan: random ones from a seed, and the shape of a real one.

use super::PAGE;
use super::samples::{Numbers, region, run};
use crate::config::{Kind, RegionSpec};
use crate::id::{DeviceId, Mode, Run, Tier};
use crate::plan::Budget;
use crate::profile::{LinkRates, Profile};
use crate::schedule::{Node, Resource, Schedule};

/// The first GPU.
pub const GPU: DeviceId = DeviceId(0);

/// A budget of so many pages of RAM and of VRAM for each of two GPUs, and plenty of disk.
pub fn budget(ram: u64, vram: u64) -> Budget {
    let device_bytes = (0..2).map(|id| (DeviceId(id), vram * PAGE)).collect();
    Budget { host_bytes: ram * PAGE, device_bytes, disk_bytes: 1 << 40 }
}

/// Every way of every link moves a page in 1,000 ns, whatever else is moved; transfers take nothing from the cores.
pub fn profile() -> Profile {
    let rate = PAGE as f64 * 1e6;
    let link = |id| LinkRates {
        device: DeviceId(id),
        upload_bytes_per_s: rate,
        download_bytes_per_s: rate,
        upload_both_bytes_per_s: rate,
        download_both_bytes_per_s: rate,
        busy_share: 1.0,
        latency_s: 0.0,
    };
    Profile {
        disk_read_bytes_per_s: rate,
        disk_write_bytes_per_s: rate,
        disk_mixed_bytes_per_s: 2.0 * rate,
        host_copy_bytes_per_s: 1e12,
        disk_latency_s: 0.0,
        disk_sync_s: 0.0,
        transfer_cpu_s_per_byte: 0.0,
        cores: 2,
        compute_threads: 1,
        links: vec![link(0), link(1)],
    }
}

/// A run of a random schedule, with the access that is live or was the last.
struct Known {
    run: Run,
    /// Tiers that use it.
    tiers: Vec<Tier>,
    last: Option<(u32, Tier, Mode)>,
    /// An access relayed from it: work that uses it waits for that one.
    relayed: Option<u32>,
    is_live: bool,
}

/// A random schedule over `three_regions`, on the host and two GPUs. Some runs are used on one side, some on several,
/// some accesses are relayed; leases overlap, and nodes come after others of other users.
pub fn random(numbers: &mut Numbers, runs_max: u64, pages_max: u64) -> Schedule {
    let mut known: Vec<Known> = Vec::new();
    let mut begin = [0u32; 3];
    for _ in 0..=numbers.below(runs_max) {
        let (region, count) = (numbers.below(3) as u32, 1 + numbers.below(pages_max) as u32);
        let first = begin[region as usize] + numbers.below(2) as u32;
        let all = [Tier::Host, Tier::Device(GPU), Tier::Device(DeviceId(1))];
        let tiers = match numbers.below(6) {
            0 => all.to_vec(),
            1 | 2 => all[..2].to_vec(),
            3 => vec![Tier::Host],
            4 => vec![all[1]],
            _ => vec![all[2]],
        };
        if first + count <= 64 {
            let run = run(region, first, count);
            known.push(Known { run, tiers, last: None, relayed: None, is_live: false });
            begin[region as usize] = first + count;
        }
    }
    let mut schedule = Schedule { cyclic: numbers.below(4) > 0, ..Schedule::default() };
    for _ in 0..=numbers.below(50) {
        let chosen = numbers.below(known.len() as u64) as usize;
        access(&mut schedule, &mut known[chosen], numbers);
        match numbers.below(12) {
            0..4 => work(&mut schedule, &mut known, numbers),
            4 => {
                schedule.commit(Vec::new());
            }
            _ => {}
        }
    }
    schedule
}

fn access(schedule: &mut Schedule, known: &mut Known, numbers: &mut Numbers) {
    let tier = known.tiers[numbers.below(known.tiers.len() as u64) as usize];
    let mode = match known.run.region.0 {
        2 => Mode::Read,
        _ => [Mode::Read, Mode::Write, Mode::Update][numbers.below(3) as usize],
    };
    let mut after = Vec::new();
    // What a live writer has done so far is not a version of the bytes.
    let can_be_source = |(_, tier, mode)| tier == Tier::Host && !(known.is_live && mode == Mode::Write);
    let can_relay =
        mode == Mode::Read && tier != Tier::Host && known.relayed.is_none() && known.last.is_some_and(can_be_source);
    if can_relay && (known.is_live || numbers.below(2) == 0) {
        after.extend(known.last.map(|(node, ..)| node));
    } else if known.is_live {
        return;
    }
    if numbers.below(4) == 0 && !schedule.nodes.is_empty() {
        after.push(numbers.below(schedule.nodes.len() as u64) as u32);
    }
    let is_relayed = can_relay && known.last.is_some_and(|(node, ..)| after.contains(&node));
    let node = schedule.access_on(tier, known.run, mode, after, 0);
    if is_relayed && known.is_live {
        // The access in RAM stays live beside it.
        known.relayed = Some(node);
    } else {
        known.relayed = None;
    }
    if known.relayed.is_none() {
        known.last = Some((node, tier, mode));
    }
    known.is_live = true;
}

fn work(schedule: &mut Schedule, known: &mut [Known], numbers: &mut Numbers) {
    let resource =
        [Resource::HostCompute, Resource::Compute(GPU), Resource::Compute(DeviceId(1))][numbers.below(3) as usize];
    let mut after: Vec<u32> = Vec::new();
    for known in known.iter_mut().filter(|known| known.is_live) {
        if numbers.below(5) == 0 {
            continue;
        }
        // What is live is used; who would change what is relayed comes after the relay.
        after.extend(known.last.map(|(node, ..)| node));
        after.extend(known.relayed);
        // Some leases stay for later work: they overlap and end in another order than they began.
        if numbers.below(3) > 0 {
            known.is_live = false;
            known.last = known.relayed.take().map_or(known.last, |_| None);
        }
    }
    // An edge to an access would make its lease longer.
    let other = numbers.below(schedule.nodes.len() as u64) as u32;
    if !matches!(schedule.nodes[other as usize], Node::Access(_)) {
        after.push(other);
    }
    let (host_bytes, device_bytes) = (numbers.below(3) * PAGE, numbers.below(3) * PAGE);
    let device_bytes = if resource == Resource::HostCompute { 0 } else { device_bytes };
    schedule.push(Node::Work { resource, ns: numbers.below(6) * 1_000, host_bytes, device_bytes, tag: 0 }, after);
}

/// How large a `step` is.
#[derive(Clone, Copy)]
pub struct Step {
    pub units: u32,
    pub chunks: u32,
    pub pages_per_chunk: u32,
    /// Whether the GPU changes the state, and not the host.
    pub updates_on_gpu: bool,
}

/// The regions of a `step`: two planes of 4 KiB pages, two of 8 KiB, gradients, activations.
pub fn step_regions(size: Step) -> Vec<RegionSpec> {
    let pages = size.units * size.chunks * size.pages_per_chunk;
    let plane = |name: &str, page_bytes, kind| RegionSpec { name: name.into(), page_bytes, pages, kind };
    vec![
        plane("hi", 4096, Kind::Checkpointed),
        plane("lo", 4096, Kind::Checkpointed),
        plane("m", 8192, Kind::Checkpointed),
        plane("v", 8192, Kind::Checkpointed),
        plane("grad", 8192, Kind::Scratch),
        region("act", 4 * (size.units + 1), Kind::Scratch),
    ]
}

/// A step in two directions. Forward, each unit's chunks are updated, on either side, and the GPU computes with the
/// plane `hi`, relayed where the host has just changed it. The mark. Backward, it reads `hi` again and writes
/// gradients.
pub fn step(size: Step) -> Schedule {
    let mut schedule = Schedule { cyclic: true, ..Schedule::default() };
    let (gpu, compute) = (Tier::Device(GPU), Resource::Compute(GPU));
    let chunk =
        |region, unit, chunk| run(region, (unit * size.chunks + chunk) * size.pages_per_chunk, size.pages_per_chunk);
    let act = |unit| run(5, 4 * unit, 4);
    for unit in 0..size.units {
        let mut used = Vec::new();
        for c in 0..size.chunks {
            if size.updates_on_gpu {
                let grad = schedule.access_on(gpu, chunk(4, unit, c), Mode::Read, Vec::new(), 0);
                let mut after: Vec<u32> = (0..4)
                    .map(|plane| schedule.access_on(gpu, chunk(plane, unit, c), Mode::Update, Vec::new(), 0))
                    .collect();
                used.push(after[0]);
                after.push(grad);
                schedule.work(compute, 1_000, after, 0);
            } else {
                let grad = schedule.access(chunk(4, unit, c), Mode::Read, 0);
                let mut after: Vec<u32> =
                    (0..4).map(|plane| schedule.access(chunk(plane, unit, c), Mode::Update, 0)).collect();
                let hi = after[0];
                after.push(grad);
                let update = schedule.work(Resource::HostCompute, 5_000, after, 0);
                used.push(schedule.access_on(gpu, chunk(0, unit, c), Mode::Read, vec![hi, update], 0));
            }
        }
        if unit > 0 {
            used.push(schedule.access_on(gpu, act(unit), Mode::Read, Vec::new(), 0));
        }
        used.push(schedule.access_on(gpu, act(unit + 1), Mode::Write, Vec::new(), 0));
        let node = Node::Work { resource: compute, ns: 20_000, host_bytes: 0, device_bytes: 5 * PAGE, tag: 0 };
        schedule.push(node, used);
    }
    schedule.commit(Vec::new());
    for unit in (0..size.units).rev() {
        let mut used: Vec<u32> =
            (0..size.chunks).map(|c| schedule.access_on(gpu, chunk(0, unit, c), Mode::Read, Vec::new(), 0)).collect();
        used.extend((0..size.chunks).map(|c| schedule.access_on(gpu, chunk(4, unit, c), Mode::Write, Vec::new(), 0)));
        if unit > 0 {
            used.push(schedule.access_on(gpu, act(unit), Mode::Read, Vec::new(), 0));
        }
        schedule.work(compute, 40_000, used, 0);
    }
    schedule
}
