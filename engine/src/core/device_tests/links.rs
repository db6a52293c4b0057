//! Bytes that must cross the links, by the plan and what was done.

use super::World;
use crate::plan::{Home, Interval};

/// To VRAM, and from it.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Links {
    pub(super) up: u64,
    pub(super) down: u64,
}

impl World {
    /// An access reads.
    pub(super) fn count_up(&mut self, interval: &Interval) {
        let (before, _) = if interval.is_on_device() { interval.link_bytes() } else { (0, 0) };
        self.links.up += before;
        if let Home::Device { .. } = interval.home {
            let is_first = self.loaded.insert(interval.run);
            match interval.is_on_device() {
                // What was never written is made of zeros there.
                true => {
                    let is_there = self.expected(interval.run).is_some_and(|stamps| stamps.iter().any(|s| *s > 0));
                    self.links.up += if is_first && is_there { interval.bytes } else { 0 };
                }
                // What is not loaded comes from disk, and stays unloaded.
                false if is_first => drop(self.loaded.remove(&interval.run)),
                false => self.links.down += interval.bytes,
            }
        }
    }

    /// An access comes back changed.
    pub(super) fn count_down(&mut self, interval: &Interval) {
        let (up, down) = interval.link_bytes();
        match interval.is_on_device() {
            true => self.links.down += down,
            false => self.links.up += up,
        }
        self.loaded.insert(interval.run);
    }
}
