//! Rates of drives.

use mt_engine::Profile;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// One drive.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Disk {
    /// Directory below which it holds files.
    pub path: PathBuf,
    /// Reading alone.
    pub read_bytes_per_s: f64,
    /// Writing alone.
    pub write_bytes_per_s: f64,
    /// Both at once, sum of both directions.
    pub mixed_bytes_per_s: f64,
    /// Seconds of one small read.
    pub latency_s: f64,
}

impl Disk {
    /// A slow NVMe drive.
    pub fn assumed() -> Disk {
        let profile = Profile::default();
        Disk {
            path: PathBuf::from("/"),
            read_bytes_per_s: profile.disk_read_bytes_per_s,
            write_bytes_per_s: profile.disk_write_bytes_per_s,
            mixed_bytes_per_s: profile.disk_mixed_bytes_per_s,
            latency_s: profile.disk_latency_s,
        }
    }

    /// Its rates a second.
    pub(super) fn rates(&self) -> [f64; 3] {
        [self.read_bytes_per_s, self.write_bytes_per_s, self.mixed_bytes_per_s]
    }
}

/// The drives that hold these stores, as one: pages are dealt to them by their bandwidth. Stores below one drive's path
/// share it; a store below none is a drive of its own like the first.
///
/// The root as a path says nothing of which drive it is: every store below it alone counts as a drive.
pub(super) fn together(disks: &[Disk], stores: &[PathBuf]) -> Disk {
    let mut used: Vec<(bool, &Disk)> = Vec::new();
    for store in stores {
        let disk = drive_of(disks, store);
        let is_known = disk.path != Path::new("/");
        let disk = (is_known, disk);
        if !is_known || !used.contains(&disk) {
            used.push(disk);
        }
    }
    if used.is_empty() {
        used.push((false, &disks[0]));
    }
    let sum = |rate: fn(&Disk) -> f64| used.iter().map(|(_, disk)| rate(disk)).sum();
    Disk {
        path: PathBuf::new(),
        read_bytes_per_s: sum(|disk| disk.read_bytes_per_s),
        write_bytes_per_s: sum(|disk| disk.write_bytes_per_s),
        mixed_bytes_per_s: sum(|disk| disk.mixed_bytes_per_s),
        latency_s: used.iter().map(|(_, disk)| disk.latency_s).fold(0.0, f64::max),
    }
}

/// The drive with the longest path above the store; the first if none is above it.
fn drive_of<'a>(disks: &'a [Disk], store: &Path) -> &'a Disk {
    let above = disks.iter().filter(|disk| store.starts_with(&disk.path));
    above.max_by_key(|disk| disk.path.as_os_str().len()).unwrap_or(&disks[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_of_one_drive_share_it_and_unknown_ones_are_drives_of_their_own() {
        let disk = |path: &str, rate| Disk { path: path.into(), read_bytes_per_s: rate, ..Disk::assumed() };
        let disks = [disk("/a", 1.0), disk("/a/b", 10.0)];
        let read =
            |stores: &[&str]| together(&disks, &stores.iter().map(PathBuf::from).collect::<Vec<_>>()).read_bytes_per_s;
        assert_eq!(read(&[]), 1.0);
        assert_eq!(read(&["/a/x", "/a/y"]), 1.0);
        assert_eq!(read(&["/a/x", "/a/b/y"]), 11.0);
        let one = [disk("/", 1.0)];
        let read = |count| together(&one, &vec![PathBuf::from("/s"); count]).read_bytes_per_s;
        assert_eq!((read(1), read(4)), (1.0, 4.0));
    }
}
