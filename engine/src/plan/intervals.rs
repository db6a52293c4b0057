//! From a placement to what the executor walks: one interval an access, with its home, its place and the earliest
//! moment of each of its ways.

use super::draft::{Draft, Use};
use super::place::Placement;
use super::queue::Queue;
use super::types::{DeviceResidency, Home, Interval, Place, Residency, Shape};
use super::window;
use crate::id::Tier;

/// The intervals of a plan and what is resident when it ends.
pub(super) fn intervals(
    draft: &Draft,
    shape: &Shape<'_>,
    placement: &Placement,
    cyclic: bool,
) -> (Vec<Interval>, Residency) {
    let place = |(index, use_)| interval(draft, placement, index, use_);
    let mut intervals: Vec<Interval> = draft.uses.iter().enumerate().map(place).collect();
    let homes = &placement.homes;
    let ahead = shape.prefetch_intervals_max;
    let mut schedule = |queue: &Queue, window_bytes: u64| {
        let at = window::earliest(queue, draft, homes, window_bytes, ahead);
        for (entry, &at) in queue.entries.iter().zip(&at) {
            let interval = &mut intervals[entry.use_ as usize];
            *(if queue.tier == Tier::Host { &mut interval.fetch_at } else { &mut interval.upload_at }) = at;
        }
        if cyclic { window::prefetchable(queue, draft, homes, &at, shape, window_bytes) } else { Vec::new() }
    };
    let host = &placement.host;
    let prefetched = schedule(&Queue::host(draft), host.window_bytes);
    let devices = placement.devices.iter().map(|(device, share)| DeviceResidency {
        device: *device,
        placed: share.placed.clone(),
        placed_bytes: share.placed_bytes,
        prefetched: schedule(&Queue::device(draft, *device), share.window_bytes),
    });
    let devices = devices.collect();
    let (placed, placed_bytes) = (host.placed.clone(), host.placed_bytes);
    (intervals, Residency { placed, placed_bytes, fixed: true, prefetched, devices })
}

fn interval(draft: &Draft, placement: &Placement, index: usize, use_: &Use) -> Interval {
    let offset = placement.offset[use_.run as usize];
    let home = match placement.homes[use_.run as usize] {
        Tier::Disk => Home::Disk,
        Tier::Host => Home::Host { offset },
        Tier::Device(device) => Home::Device { device, offset },
    };
    Interval {
        node: use_.node,
        release: use_.release,
        run: draft.runs[use_.run as usize].run,
        mode: use_.mode,
        bytes: use_.bytes,
        tier: use_.tier,
        home,
        place: if home.tier() == use_.tier { Place::Placed { offset } } else { Place::Window },
        fetch_at: index as u32,
        upload_at: index as u32,
        relay: use_.relay,
        kept_for: use_.kept_for,
    }
}
