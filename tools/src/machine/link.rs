//! A PCI Express link, as the system tells it in /sys.

use super::sys::{name_of, text_in};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// A PCI Express link.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Link {
    /// Address of the device.
    pub address: String,
    /// Transfers a second and lane now, in 10^9.
    pub speed_gt_s: f64,
    /// Lanes now.
    pub width: u32,
    /// The same at most.
    pub speed_max_gt_s: f64,
    /// Lanes at most.
    pub width_max: u32,
}

impl Link {
    /// In words.
    pub fn in_words(&self) -> String {
        let now = format!("PCIe {} x{}", generation(self.speed_gt_s), self.width);
        match self.is_narrow() {
            true => format!("{now} of {} x{}", generation(self.speed_max_gt_s), self.width_max),
            false => now,
        }
    }

    /// It has fewer lanes than it could.
    pub fn is_narrow(&self) -> bool {
        self.width < self.width_max
    }

    /// The link of a PCI device, by its folder in /sys.
    pub fn of(folder: &Path) -> Option<Link> {
        let speed = |name: &str| text_in(&folder.join(name))?.split_whitespace().next()?.parse().ok();
        let width = |name: &str| text_in(&folder.join(name))?.parse().ok();
        Some(Link {
            address: name_of(folder),
            speed_gt_s: speed("current_link_speed")?,
            width: width("current_link_width")?,
            speed_max_gt_s: speed("max_link_speed")?,
            width_max: width("max_link_width")?,
        })
    }
}

/// Generation of PCI Express by the speed of a lane.
fn generation(speed_gt_s: f64) -> String {
    let known = [(2.5, 1), (5.0, 2), (8.0, 3), (16.0, 4), (32.0, 5), (64.0, 6)];
    let found = known.iter().find(|(speed, _)| *speed == speed_gt_s);
    found.map_or_else(|| format!("{speed_gt_s} GT/s"), |(_, number)| number.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_says_what_it_could_be() {
        let link = Link { address: "0".into(), speed_gt_s: 8.0, width: 2, speed_max_gt_s: 16.0, width_max: 4 };
        assert!(link.is_narrow());
        assert_eq!(link.in_words(), "PCIe 3 x2 of 4 x4");
        assert_eq!(Link { width: 4, speed_gt_s: 32.0, ..link }.in_words(), "PCIe 5 x4");
    }
}
