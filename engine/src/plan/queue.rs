//! What passes through one window: the stays in the arena, or in the VRAM of one device, in schedule order.
//!
//! The queue of a device has every access on it; that of the arena every access in RAM, and the *transits* of accesses
//! on devices: stays of bytes on their way from disk to VRAM. A stay *streams*, that is, takes a span of the window, if
//! the run's home says so; the others stand in the queue all the same, since one that is held keeps those behind it.

use super::draft::{Draft, Use};
use crate::id::{DeviceId, Tier};

/// A stay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    /// Index of the use.
    pub use_: u32,
    /// Index of the run.
    pub run: u32,
    /// Bytes of the run.
    pub bytes: u64,
    /// The last use whose access comes while this one is live.
    pub last: u32,
    /// The same if it streams: a use that is relayed from it keeps it.
    pub last_streaming: u32,
    /// The node that ends it: the release; its own node for a transit.
    leave: u32,
    leave_streaming: u32,
    is_transit: bool,
}

/// The stays of one tier.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Queue {
    pub tier: Tier,
    pub entries: Vec<Entry>,
}

impl Queue {
    /// The queue of the arena.
    pub(super) fn host(draft: &Draft) -> Queue {
        let entry = |(index, use_): (usize, &Use)| match use_.tier {
            Tier::Host => Some(Entry::new(draft, index, false)),
            _ => (use_.mode.reads() && use_.relay.is_none()).then(|| Entry::new(draft, index, true)),
        };
        Queue { tier: Tier::Host, entries: draft.uses.iter().enumerate().filter_map(entry).collect() }
    }

    /// The queue of a device.
    pub(super) fn device(draft: &Draft, device: DeviceId) -> Queue {
        let tier = Tier::Device(device);
        let uses = draft.uses.iter().enumerate().filter(|(_, use_)| use_.tier == tier);
        Queue { tier, entries: uses.map(|(index, _)| Entry::new(draft, index, false)).collect() }
    }

    /// Whether a stay takes a span of the window; `homes` has the home of each run.
    pub(super) fn streams(&self, entry: &Entry, homes: &[Tier]) -> bool {
        let home = homes[entry.run as usize];
        if entry.is_transit { home == Tier::Disk } else { home != self.tier }
    }

    /// The last use whose access comes before the stay can end.
    pub(super) fn last(&self, entry: &Entry, homes: &[Tier]) -> u32 {
        if self.streams(entry, homes) { entry.last_streaming } else { entry.last }
    }

    /// The node that must be done before the stay can end.
    pub(super) fn leave(&self, entry: &Entry, homes: &[Tier]) -> u32 {
        if self.streams(entry, homes) { entry.leave_streaming } else { entry.leave }
    }
}

impl Entry {
    fn new(draft: &Draft, index: usize, is_transit: bool) -> Entry {
        let Use { node, release, run, bytes, last, kept_for, .. } = draft.uses[index];
        let (last, leave) = if is_transit { (index as u32, node) } else { (last, release) };
        let kept = kept_for.filter(|_| !is_transit);
        Entry {
            use_: index as u32,
            run,
            bytes,
            last,
            last_streaming: kept.map_or(last, |other| last.max(other)),
            leave,
            leave_streaming: kept.map_or(leave, |other| leave.max(draft.uses[other as usize].node)),
            is_transit,
        }
    }
}
