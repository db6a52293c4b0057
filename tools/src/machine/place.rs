//! What a path is: file system, mount, drives below it, and what is known of these; from /proc and /sys, without extra
//! rights. What cannot be read is left out.

use super::link::Link;
use super::mount::mount_of;
use super::sys::{children, name_of, number_in, text_in};
use serde::{Deserialize, Serialize};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// File systems that are RAM.
const RAM: [&str; 2] = ["tmpfs", "ramfs"];
/// File systems that are on another machine.
const REMOTE: [&str; 7] = ["nfs", "nfs4", "cifs", "smb3", "9p", "virtiofs", "ceph"];
/// Bytes of a sector in /sys, whatever the drive's own are.
const SECTOR: u64 = 512;
/// Devices below devices, at most: a RAID of encrypted logical volumes has three.
const DEPTH_MAX: u32 = 8;

/// A path.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Place {
    /// As it was given, made absolute.
    pub path: PathBuf,
    /// Kind of the file system.
    pub file_system: String,
    /// Where that is mounted.
    pub mount: PathBuf,
    /// What is mounted.
    pub source: String,
    /// Options of mount and file system.
    pub options: Vec<String>,
    /// Bytes that may be written.
    pub free_bytes: u64,
    /// Bytes written to the file system in its life, where it counts them.
    pub written_bytes: Option<u64>,
    /// The device that holds it, then those below that (members of a RAID, a loop device's drive).
    pub devices: Vec<Device>,
    /// What may make measurements of it mislead.
    pub warnings: Vec<String>,
}

/// A block device.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Device {
    /// Name in /sys/block.
    pub name: String,
    /// The device that it is below, if any.
    pub below: Option<String>,
    /// Model, as the drive tells it.
    pub model: Option<String>,
    /// Firmware, as the drive tells it.
    pub firmware: Option<String>,
    /// Its size.
    pub bytes: Option<u64>,
    /// It has turning disks, or says so.
    pub is_rotational: Option<bool>,
    /// Level of a RAID, such as raid0.
    pub raid: Option<String>,
    /// File behind a loop device.
    pub loop_file: Option<String>,
    /// Scheduler in use.
    pub scheduler: Option<String>,
    /// Requests that its queue takes.
    pub queue_requests: Option<u64>,
    /// Its queues can be polled.
    pub is_polled: Option<bool>,
    /// Segments that a request may have.
    pub segments_max: Option<u64>,
    /// Bytes written since the system started.
    pub written_since_start_bytes: Option<u64>,
    /// Its link, for a drive on PCI Express.
    pub link: Option<Link>,
    /// Degrees Celsius.
    pub temperature_c: Option<f64>,
}

impl Place {
    /// Looks at a path, which exists.
    ///
    /// # Errors
    /// The path cannot be looked at.
    pub fn of(path: &Path, free_bytes: u64) -> std::io::Result<Place> {
        let path = fs::canonicalize(path)?;
        let number = fs::metadata(&path)?.dev();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let mount = mount_of(&mounts, &path);
        let mut place = Place { path, free_bytes, ..Place::default() };
        if let Some(mount) = mount {
            place.file_system = mount.kind;
            place.mount = mount.at;
            place.source = mount.source;
            place.options = mount.options;
        }
        let mut folder = device_folder(number);
        if !folder.exists() && place.source.starts_with("/dev/") {
            // A file system with a number of its own, over the device that it names.
            let real = fs::canonicalize(&place.source).unwrap_or_default();
            folder = Path::new("/sys/class/block").join(real.file_name().unwrap_or_default());
        }
        if let Ok(folder) = fs::canonicalize(folder) {
            let life = format!("/sys/fs/{}/{}/lifetime_write_kbytes", place.file_system, name_of(&folder));
            place.written_bytes = number_in(Path::new(&life)).map(|kib| kib * 1_024);
            devices(&whole(&folder), None, 0, &mut place.devices);
        }
        place.warnings = warnings(&place);
        Ok(place)
    }

    /// The drive's temperature in degrees Celsius, the warmest of several.
    pub fn temperature_c(&self) -> Option<f64> {
        let warm = self.devices.iter().filter_map(|device| temperature(&Path::new("/sys/block").join(&device.name)));
        warm.reduce(f64::max)
    }

    /// A line about each device.
    pub fn devices_in_words(&self) -> Vec<String> {
        self.devices.iter().map(Device::in_words).collect()
    }
}

impl Device {
    fn in_words(&self) -> String {
        let mut parts = vec![self.name.clone()];
        parts.extend(self.raid.clone());
        parts.extend(self.model.clone());
        parts.extend(self.bytes.map(mt_trainer::run::size::human));
        parts.extend(self.loop_file.as_ref().map(|file| format!("over the file {file}")));
        parts.extend(self.is_rotational.filter(|is| *is).map(|_| "says that it has turning disks".to_owned()));
        parts.extend(self.link.as_ref().map(Link::in_words));
        parts.extend(self.scheduler.as_ref().map(|name| format!("scheduler {name}")));
        parts.extend(self.temperature_c.map(|degrees| format!("{degrees:.0} C")));
        let below = self.below.as_ref().map_or(String::new(), |name| format!(" (below {name})"));
        format!("{}{below}", parts.join(", "))
    }
}

/// The folder of a block device by its number; file systems without a device of their own have numbers that none has.
fn device_folder(number: u64) -> PathBuf {
    let (major, minor) = ((number >> 8) & 0xfff, (number & 0xff) | ((number >> 12) & 0xf_ff00));
    PathBuf::from(format!("/sys/dev/block/{major}:{minor}"))
}

/// The folder of the drive that a partition is of.
fn whole(folder: &Path) -> PathBuf {
    match folder.join("partition").exists() {
        true => folder.parent().unwrap_or(folder).to_owned(),
        false => folder.to_owned(),
    }
}

/// A device and those below it.
fn devices(folder: &Path, below: Option<&str>, depth: u32, out: &mut Vec<Device>) {
    let name = name_of(folder);
    if depth > DEPTH_MAX || out.iter().any(|known| known.name == name) {
        return;
    }
    let queue = folder.join("queue");
    let flag = |path: PathBuf| number_in(&path).map(|number| number != 0);
    let stat = text_in(&folder.join("stat")).unwrap_or_default();
    let written = stat.split_whitespace().nth(6).and_then(|sectors| sectors.parse::<u64>().ok());
    let loop_file = text_in(&folder.join("loop/backing_file"));
    out.push(Device {
        name: name.clone(),
        below: below.map(str::to_owned),
        model: text_in(&folder.join("device/model")).or_else(|| text_in(&folder.join("dm/name"))),
        firmware: text_in(&folder.join("device/firmware_rev")),
        bytes: number_in(&folder.join("size")).map(|sectors| sectors * SECTOR),
        is_rotational: flag(queue.join("rotational")),
        raid: text_in(&folder.join("md/level")),
        loop_file: loop_file.clone(),
        scheduler: text_in(&queue.join("scheduler")).as_deref().and_then(chosen),
        queue_requests: number_in(&queue.join("nr_requests")),
        is_polled: flag(queue.join("io_poll")),
        segments_max: number_in(&queue.join("max_segments")),
        written_since_start_bytes: written.map(|sectors| sectors * SECTOR),
        link: link_above(folder),
        temperature_c: temperature(folder),
    });
    for member in children(&folder.join("slaves")) {
        if let Ok(member) = fs::canonicalize(member) {
            devices(&whole(&member), Some(&name), depth + 1, out);
        }
    }
    if let Some(data) = loop_file.and_then(|file| fs::metadata(file).ok())
        && let Ok(below) = fs::canonicalize(device_folder(data.dev()))
    {
        devices(&whole(&below), Some(&name), depth + 1, out);
    }
}

/// The link of the PCI device that a block device hangs on.
fn link_above(folder: &Path) -> Option<Link> {
    let device = fs::canonicalize(folder.join("device")).ok()?;
    device.ancestors().take_while(|above| above.starts_with("/sys/devices/pci")).find_map(Link::of)
}

/// What hwmon says of a drive, in degrees Celsius.
fn temperature(folder: &Path) -> Option<f64> {
    let monitors = ["device", "device/hwmon", "device/device/hwmon"].map(|name| children(&folder.join(name)));
    let monitors = monitors.iter().flatten().filter(|path| name_of(path).starts_with("hwmon"));
    let degrees = |path: &PathBuf| number_in(&path.join("temp1_input")).map(|milli| milli as f64 / 1e3);
    monitors.filter_map(degrees).reduce(f64::max)
}

/// The scheduler in brackets, or the only one.
fn chosen(text: &str) -> Option<String> {
    let inside = text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(name, _)| name);
    inside.or_else(|| text.split_whitespace().next()).map(str::to_owned)
}

fn warnings(place: &Place) -> Vec<String> {
    let mut out = Vec::new();
    let kind = place.file_system.as_str();
    if RAM.contains(&kind) {
        out.push(format!(
            "{kind} is RAM: this measures no drive, and what is stored there takes the RAM it is to save"
        ));
    }
    if REMOTE.contains(&kind) || kind.starts_with("fuse") {
        out.push(format!("{kind} is served by another program or machine: its cache and network are measured too"));
    }
    if kind == "overlay" {
        out.push("an overlay (a container's own file system): give a folder that is mounted from a drive".to_owned());
    }
    if kind == "btrfs" || kind == "zfs" {
        out.push(format!("{kind} writes to new places and computes checksums of its own; ext4 or xfs move more"));
    }
    for device in &place.devices {
        if let Some(file) = &device.loop_file {
            out.push(format!("{} is a loop device over {file}: the file system below is measured too", device.name));
        }
        if device.name.starts_with("zram") {
            out.push(format!("{} is compressed RAM: this measures no drive", device.name));
        }
    }
    for option in ["sync", "dirsync", "data=journal"] {
        if place.options.iter().any(|known| known == option) {
            out.push(format!("mounted with {option}: every write waits for the drive"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_name_what_misleads() {
        let of = |kind: &str, device: Device| {
            let place = Place { file_system: kind.into(), devices: vec![device], ..Place::default() };
            warnings(&place).join("; ")
        };
        assert!(of("tmpfs", Device::default()).contains("RAM"));
        assert!(of("overlay", Device::default()).contains("container"));
        assert!(of("nfs4", Device::default()).contains("network"));
        let over = Device { name: "loop0".into(), loop_file: Some("/images/a".into()), ..Device::default() };
        assert!(of("ext4", over).contains("/images/a"));
        assert_eq!(of("ext4", Device::default()), "");
    }

    #[test]
    fn the_chosen_scheduler_stands_in_brackets() {
        assert_eq!(chosen("mq-deadline [none] kyber").as_deref(), Some("none"));
        assert_eq!(chosen("none").as_deref(), Some("none"));
    }

    #[test]
    fn a_folder_of_this_machine_has_a_file_system() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::of(dir.path(), 1).unwrap();
        assert!(!place.file_system.is_empty() && dir.path().canonicalize().unwrap().starts_with(&place.mount));
        assert!(Place::of(&dir.path().join("none"), 1).is_err());
    }
}
