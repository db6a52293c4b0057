//! What a path is: file system, mount, drives below it, and what is known of these; from /proc and /sys, without extra
//! rights. What cannot be read is left out.

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

/// A line of /proc/self/mountinfo.
#[derive(Clone, PartialEq, Debug)]
struct Mount {
    at: PathBuf,
    kind: String,
    source: String,
    options: Vec<String>,
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

/// The mount that holds a path: of those above it the last one of the longest.
fn mount_of(mounts: &str, path: &Path) -> Option<Mount> {
    let above = mounts.lines().filter_map(mount).filter(|mount| path.starts_with(&mount.at));
    above.max_by_key(|mount| mount.at.components().count())
}

/// Reads a line: `id parent major:minor root mount-point options [tags] - kind source super-options`.
fn mount(line: &str) -> Option<Mount> {
    let (first, last) = line.split_once(" - ")?;
    let mut first = first.split(' ').skip(2);
    let (_device, _root, at, options) = (first.next()?, first.next()?, first.next()?, first.next()?);
    let mut last = last.split(' ');
    let (kind, source) = (last.next()?, last.next()?);
    let mut all: Vec<String> = options.split(',').map(str::to_owned).collect();
    let more = last.next().unwrap_or("").split(',').filter(|option| !option.is_empty());
    more.for_each(|option| {
        if !all.iter().any(|known| known == option) {
            all.push(option.to_owned());
        }
    });
    Some(Mount { at: PathBuf::from(unescaped(at)), kind: kind.to_owned(), source: unescaped(source), options: all })
}

/// White space stands as three octal digits there.
fn unescaped(text: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(text.to_owned(), |text, (code, character)| text.replace(code, character))
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

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Entries of a folder in order of their names; none if it cannot be read.
pub fn children(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let mut entries: Vec<PathBuf> = entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
    entries.sort();
    entries
}

/// A small file's text without white space around; None if it is empty or cannot be read.
pub fn text_in(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// A small file's number.
pub fn number_in(path: &Path) -> Option<u64> {
    text_in(path)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
25 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
26 25 0:21 / /dev/shm rw - tmpfs tmpfs rw,size=24684092k
27 25 259:1 / /data rw,noatime shared:3 master:1 - xfs /dev/nvme0n1p1 rw,inode64
28 27 259:2 / /data/with\\040space rw - btrfs /dev/nvme1n1 rw,compress=zstd:1
29 27 259:3 / /data rw,noatime - ext4 /dev/nvme2n1 rw
";

    #[test]
    fn the_mount_of_a_path_is_the_last_of_the_longest_above_it() {
        let of = |path: &str| mount_of(MOUNTS, Path::new(path)).unwrap();
        assert_eq!((of("/home/x").kind, of("/home/x").source), ("ext4".into(), "/dev/vda".into()));
        assert_eq!(of("/dev/shm/a").kind, "tmpfs");
        assert_eq!(of("/data/x").source, "/dev/nvme2n1", "the later one covers the earlier");
        assert_eq!(of("/database").source, "/dev/vda");
        let inner = of("/data/with space/x");
        assert_eq!((inner.kind, inner.options), ("btrfs".into(), vec!["rw".into(), "compress=zstd:1".into()]));
        assert_eq!(mount_of("nonsense\n", Path::new("/")), None);
    }

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
    fn a_link_says_what_it_could_be() {
        let link = Link { address: "0".into(), speed_gt_s: 8.0, width: 2, speed_max_gt_s: 16.0, width_max: 4 };
        assert!(link.is_narrow());
        assert_eq!(link.in_words(), "PCIe 3 x2 of 4 x4");
        assert_eq!(Link { width: 4, speed_gt_s: 32.0, ..link }.in_words(), "PCIe 5 x4");
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
