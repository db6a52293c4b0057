//! Judges plans with devices without the planner's own code: the rules of a plan one by one, and a simulated sweep at
//! every instant.

use crate::id::{Run, Tier};
use crate::plan::{Budget, Home, Interval, Place, Placed, Plan, Shape, Span, Station, Timeline};
use crate::schedule::{Node, Resource};
use std::collections::BTreeMap;

/// A stay in a window's queue.
pub struct Stay {
    pub interval: usize,
    pub streams: bool,
    /// The interval whose access allows it.
    pub at: u32,
    /// The node after which it can leave.
    leave: u32,
}

/// A window with everything that stands in its queue.
pub struct Window {
    pub tier: Tier,
    bytes: u64,
    pub stays: Vec<Stay>,
}

/// The windows of a plan.
pub fn windows(plan: &Plan) -> Vec<Window> {
    let mut windows = vec![Window { tier: Tier::Host, bytes: plan.window_bytes, stays: Vec::new() }];
    for share in &plan.devices {
        windows.push(Window { tier: Tier::Device(share.device), bytes: share.window_bytes, stays: Vec::new() });
    }
    for (index, interval) in plan.intervals.iter().enumerate() {
        let streams = interval.place == Place::Window;
        for Window { tier, stays, .. } in &mut windows {
            let at = if *tier == Tier::Host { interval.fetch_at } else { interval.upload_at };
            if interval.tier == *tier {
                let kept = interval.kept_for.filter(|_| streams).map(|other| plan.intervals[other as usize].node);
                let leave = interval.release.max(kept.unwrap_or(0));
                stays.push(Stay { interval: index, streams, at, leave });
            } else if *tier == Tier::Host && reads_disk(interval) {
                stays.push(Stay { interval: index, streams: true, at, leave: interval.node });
            }
        }
    }
    windows
}

fn reads_disk(interval: &Interval) -> bool {
    interval.home == Home::Disk && interval.mode.reads() && interval.relay.is_none()
}

/// Checks every rule that a plan keeps; says which one it breaks.
pub fn check(plan: &Plan, shape: &Shape<'_>, budget: &Budget) -> Result<(), String> {
    if plan.placed_bytes + plan.window_bytes + plan.staging_bytes + plan.host_work_bytes > budget.host_bytes {
        return Err("RAM is larger than its budget".into());
    }
    let over = |share: &&crate::plan::DeviceShare| {
        share.placed_bytes + share.window_bytes + share.work_bytes > budget.device(share.device)
    };
    if let Some(share) = plan.devices.iter().find(over) {
        return Err(format!("the VRAM of {:?} is larger than its budget", share.device));
    }
    check_homes(plan, shape)?;
    for window in windows(plan) {
        for position in 0..window.stays.len() {
            check_begin(plan, &window, position)?;
        }
    }
    Ok(())
}

fn check_homes(plan: &Plan, shape: &Shape<'_>) -> Result<(), String> {
    let mut homes: BTreeMap<Run, Home> = BTreeMap::new();
    let mut memory = |placed: &[Placed], bytes: u64, home: &dyn Fn(u64) -> Home| {
        let mut end = 0;
        for span in placed {
            if span.offset < end || span.offset % 4096 != 0 {
                return Err(format!("the span of {} overlaps or is not aligned", span.run));
            }
            end = span.offset + span.bytes;
            homes.insert(span.run, home(span.offset));
        }
        if end > bytes { Err("placed spans reach into the window".to_owned()) } else { Ok(()) }
    };
    memory(&plan.exit.placed, plan.placed_bytes, &|offset| Home::Host { offset })?;
    for (held, share) in plan.exit.devices.iter().zip(&plan.devices) {
        let device = held.device;
        memory(&held.placed, share.placed_bytes, &|offset| Home::Device { device, offset })?;
    }
    for interval in &plan.intervals {
        let home = homes.get(&interval.run).copied().unwrap_or(Home::Disk);
        if interval.home != home || (home == Home::Disk && !shape.has_disk) {
            return Err(format!("{} does not live where its interval says", interval.run));
        }
        if matches!(interval.place, Place::Placed { .. }) != (home.tier() == interval.tier) {
            return Err(format!("interval of {} is not where its run is", interval.run));
        }
    }
    Ok(())
}

/// At the access that allows a stay everything that has not left, the stay itself and one wrap fit the window, and the
/// bytes are where they come from.
fn check_begin(plan: &Plan, window: &Window, position: usize) -> Result<(), String> {
    let stay = &window.stays[position];
    let (index, interval) = (stay.interval, &plan.intervals[stay.interval]);
    if stay.at as usize > index {
        return Err(format!("interval {index} may begin only after its own access"));
    }
    if !stay.streams {
        return Ok(());
    }
    let begin = plan.intervals[stay.at as usize].node;
    let is_undone = |node: u32| stay.at == 0 || node >= begin;
    let is_used = |earlier: &Interval| earlier.run == interval.run && is_undone(earlier.release);
    let runs = &plan.intervals[..index];
    let is_early = match interval.relay {
        None => runs.iter().any(is_used),
        Some(source) => {
            let release = plan.intervals[source as usize].release;
            let after = &plan.schedule.after[interval.node as usize];
            after.iter().any(|&node| is_undone(node)) || (release < interval.node && is_undone(release))
        }
    };
    if is_early {
        return Err(format!("interval {index} may begin while its run is in use"));
    }
    let bytes = |stay: &Stay| if stay.streams { plan.intervals[stay.interval].bytes } else { 0 };
    let largest = window.stays.iter().map(bytes).max().unwrap_or(0);
    let before = window.stays[..position].iter().skip_while(|earlier| !is_undone(earlier.leave));
    if before.map(bytes).sum::<u64>() + interval.bytes + largest > window.bytes {
        return Err(format!("interval {index} may begin before the window has room for it"));
    }
    Ok(())
}

/// The moments of an interval in a sweep that is executed once.
#[derive(Clone, Copy, Default, Debug)]
struct Moments {
    read: Option<(u64, u64)>,
    up: Option<(u64, u64)>,
    down: Option<(u64, u64)>,
    write: Option<(u64, u64)>,
}

/// Judges the timeline of a schedule that is executed once: transfers of one way one after the other, nodes after what
/// they come after, no access before its bytes, no transfer before its cause, no memory over its size.
pub fn check_timeline(plan: &Plan, timeline: &Timeline) -> Result<(), String> {
    let mut moments = vec![Moments::default(); plan.intervals.len()];
    let mut ways: BTreeMap<Station, u64> = BTreeMap::new();
    for transfer in &timeline.transfers {
        let (begin, end) = (transfer.begin_ns as u64, transfer.end_ns);
        let free = ways.insert(transfer.station, end).unwrap_or(0);
        if begin < free || end - begin < transfer.bytes / 4096 * 1_000 {
            return Err(format!("{transfer:?} is too fast, or beside another"));
        }
        let Some(interval) = transfer.interval else { continue };
        let moments = &mut moments[interval as usize];
        *(match transfer.station {
            Station::DiskRead => &mut moments.read,
            Station::DiskWrite => &mut moments.write,
            Station::Upload(_) => &mut moments.up,
            _ => &mut moments.down,
        }) = Some((begin, end));
    }
    check_nodes(plan, &timeline.nodes)?;
    let mut changes: BTreeMap<Memory, Vec<(u64, i64)>> = BTreeMap::new();
    for (index, interval) in plan.intervals.iter().enumerate() {
        check_interval(plan, timeline, &moments, index, interval)?;
        let (node, release) = (timeline.nodes[interval.node as usize], timeline.nodes[interval.release as usize]);
        let Moments { read, up, down, write } = moments[index];
        let mut hold = |memory: Memory, from: u64, to: u64| {
            let changes = changes.entry(memory).or_default();
            changes.extend([(from, interval.bytes as i64), (to, -(interval.bytes as i64))]);
        };
        if interval.place == Place::Window && interval.tier != Tier::Host {
            hold(
                Memory::Window(interval.tier),
                up.map_or(node.end_ns, |up| up.0),
                down.map_or(release.end_ns, |d| d.1),
            );
            if let (Some(read), Some(up)) = (read, up) {
                hold(Memory::Window(Tier::Host), read.0, up.1);
            }
            if let (Some(down), Some(write)) = (down, write) {
                hold(Memory::Staging, down.0, write.1);
            }
        } else if interval.place == Place::Window {
            let kept = interval.kept_for.and_then(|other| moments[other as usize].up).map_or(0, |up| up.1);
            let to = write.or(up).map_or(release.end_ns, |write| write.1).max(kept);
            hold(Memory::Window(Tier::Host), read.or(down).map_or(node.end_ns, |read| read.0), to);
        }
    }
    for (memory, mut changes) in changes {
        // What is given back at an instant may be taken at the same.
        changes.sort_unstable();
        let mut used = 0;
        let size = memory.bytes(plan) as i64;
        if changes
            .iter()
            .map(|&(_, change)| {
                used += change;
                used
            })
            .any(|used| used > size)
        {
            return Err(format!("{memory:?} holds more than {size}"));
        }
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Memory {
    Window(Tier),
    Staging,
}

impl Memory {
    fn bytes(self, plan: &Plan) -> u64 {
        match self {
            Memory::Staging => plan.staging_bytes,
            Memory::Window(Tier::Device(device)) => {
                plan.devices.iter().find(|share| share.device == device).map_or(0, |share| share.window_bytes)
            }
            Memory::Window(_) => plan.window_bytes,
        }
    }
}

/// Nodes begin after what they come after, each user does one at a time, and marks cut.
fn check_nodes(plan: &Plan, spans: &[Span]) -> Result<(), String> {
    let mut free: BTreeMap<Tier, u64> = BTreeMap::new();
    let mut cut = 0;
    for (index, node) in plan.schedule.nodes.iter().enumerate() {
        let tier = match node {
            Node::Access(access) => access.tier,
            Node::Work { resource: Resource::Compute(device), .. } => Tier::Device(*device),
            Node::Work { .. } => Tier::Host,
            Node::Commit => {
                cut = spans[..index].iter().map(|span| span.end_ns).max().unwrap_or(0);
                continue;
            }
        };
        let after = plan.schedule.after[index].iter().map(|&after| spans[after as usize].end_ns).max().unwrap_or(0);
        let before = free.insert(tier, spans[index].end_ns).unwrap_or(0);
        let is_access = matches!(node, Node::Access(_));
        let earliest = before.max(if is_access { 0 } else { after.max(cut) });
        if spans[index].begin_ns < earliest || spans[index].end_ns < after.max(cut) {
            return Err(format!("node {index} begins before it may"));
        }
    }
    Ok(())
}

/// Bytes come before the access and leave after the release, one way behind the other.
fn check_interval(
    plan: &Plan,
    timeline: &Timeline,
    moments: &[Moments],
    index: usize,
    interval: &Interval,
) -> Result<(), String> {
    let (node, release) = (timeline.nodes[interval.node as usize], timeline.nodes[interval.release as usize]);
    let Moments { read, up, down, write } = moments[index];
    let streams = interval.place == Place::Window;
    let (reads, writes) = (streams && interval.mode.reads(), streams && interval.mode.writes());
    let on_device = interval.tier != Tier::Host;
    let from_vram = matches!(interval.home, Home::Device { .. });
    let expected = (
        streams && reads_disk(interval),
        if on_device { reads } else { writes && from_vram },
        if on_device { writes } else { reads && from_vram },
        writes && interval.home == Home::Disk,
    );
    if expected != (read.is_some(), up.is_some(), down.is_some(), write.is_some()) {
        return Err(format!("interval {index} moves over other links than it should"));
    }
    let (coming, leaving) = if on_device { (up, down) } else { (read.or(down), write.or(up)) };
    let is_early = coming.is_some_and(|coming| coming.1 > node.end_ns)
        || leaving.is_some_and(|leaving| leaving.0 < release.end_ns)
        || read.zip(up).is_some_and(|(read, up)| on_device && read.1 > up.0)
        || down.zip(write).is_some_and(|(down, write)| on_device && down.1 > write.0);
    let source = interval.relay.map(|source| {
        let source = &plan.intervals[source as usize];
        let given_back = Some(source.release).filter(|&release| release < interval.node);
        let after = plan.schedule.after[interval.node as usize].iter().copied();
        let ends = after.chain([source.node]).chain(given_back).map(|node| timeline.nodes[node as usize].end_ns);
        ends.max().unwrap_or(0)
    });
    let before = plan.intervals[..index].iter().rposition(|earlier| earlier.run == interval.run);
    let is_stale = match (source, before) {
        (Some(source), _) => coming.is_some_and(|coming| coming.0 < source),
        (None, Some(before)) => {
            let Moments { up, down, write, .. } = moments[before];
            let earlier = &plan.intervals[before];
            let release = timeline.nodes[earlier.release as usize].end_ns;
            let written = if earlier.tier == Tier::Host { write.or(up) } else { write.or(down) };
            let final_at = written.filter(|_| earlier.mode.writes()).map_or(release, |written| written.1);
            read.or(coming).map_or(node.end_ns, |coming| coming.0) < final_at
        }
        (None, None) => false,
    };
    if is_early || is_stale {
        return Err(format!("interval {index}: {:?} around {node:?} and {release:?}", moments[index]));
    }
    Ok(())
}
