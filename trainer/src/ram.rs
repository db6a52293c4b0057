//! What RAM the process uses and may use, as Linux tells it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Left free by `--ram auto`: this share of what is available, and at least `MARGIN_MIN`.
const MARGIN_SHARE: u64 = 20;
const MARGIN_MIN: u64 = 256 << 20;

/// Resident bytes of this process now; 0 if the system does not say.
pub fn resident_bytes() -> u64 {
    status_field("VmRSS:")
}

/// Largest resident bytes of this process so far; 0 if the system does not say. Never falls: the system counts in
/// portions for each thread, so that its own answer may.
pub fn peak_bytes() -> u64 {
    static PEAK: AtomicU64 = AtomicU64::new(0);
    let now = status_field("VmHWM:");
    PEAK.fetch_max(now, Ordering::Relaxed).max(now)
}

/// RAM of the machine; 0 if the system does not say.
pub fn machine_bytes() -> u64 {
    field_kib(&fs::read_to_string("/proc/meminfo").unwrap_or_default(), "MemTotal:")
}

/// RAM that `--ram auto` takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Available {
    /// For this process as a whole, its present use included.
    pub bytes: u64,
    /// Left free beside it.
    pub margin: u64,
    /// Whether a control group sets the bound, rather than the machine.
    pub by_group: bool,
}

/// Looks at the machine and at the control groups of this process.
pub fn available() -> Available {
    let own = resident_bytes();
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let machine = field_kib(&text, "MemAvailable:").saturating_add(own);
    let membership = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let group = group_bytes(&membership, Path::new("/sys/fs/cgroup")).map(|free| free.saturating_add(own));
    let by_group = group.is_some_and(|bytes| bytes < machine);
    let free = group.unwrap_or(u64::MAX).min(machine);
    let margin = (free / MARGIN_SHARE).max(MARGIN_MIN).min(free / 2);
    Available { bytes: free - margin, margin, by_group }
}

/// Bytes that the tightest of the process's control groups has free (page cache counts as free); None without a limit.
fn group_bytes(membership: &str, root: &Path) -> Option<u64> {
    let mut least: Option<u64> = None;
    for line in membership.lines() {
        let mut parts = line.splitn(3, ':');
        let (_, Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else { continue };
        let (base, files) = match controllers {
            "" => (root.to_owned(), GroupFiles::V2),
            _ if controllers.split(',').any(|name| name == "memory") => (root.join("memory"), GroupFiles::V1),
            _ => continue,
        };
        // A limit of any ancestor binds. In a container the path may name a group outside of what is mounted: the
        // mounted root then is the container's own group, and the walk ends there.
        let mut folder = base.join(path.trim_start_matches('/'));
        loop {
            if let Some(free) = files.free_bytes(&folder) {
                least = Some(least.map_or(free, |least| least.min(free)));
            }
            if folder == base || !folder.pop() {
                break;
            }
        }
    }
    least
}

/// Names of a memory group's files.
#[derive(Clone, Copy)]
enum GroupFiles {
    V1,
    V2,
}

impl GroupFiles {
    fn free_bytes(self, folder: &Path) -> Option<u64> {
        let (limit, usage, cache) = match self {
            GroupFiles::V1 => ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
            GroupFiles::V2 => ("memory.max", "memory.current", "inactive_file"),
        };
        let number = |path: PathBuf| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
        // "max" does not parse; version 1 writes a number near 2^63.
        let limit = number(folder.join(limit)).filter(|limit| *limit < 1 << 60)?;
        let usage = number(folder.join(usage)).unwrap_or(0);
        let stat = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
        let cached = stat.lines().find_map(|line| line.strip_prefix(cache)?.trim().parse::<u64>().ok()).unwrap_or(0);
        Some(limit.saturating_sub(usage.saturating_sub(cached)))
    }
}

fn status_field(name: &str) -> u64 {
    field_kib(&fs::read_to_string("/proc/self/status").unwrap_or_default(), name)
}

/// The bytes of a line "Name:   123 kB".
fn field_kib(text: &str, name: &str) -> u64 {
    let value = text.lines().find_map(|line| line.strip_prefix(name));
    value.and_then(|value| value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()).unwrap_or(0) * 1_024
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(folder: &Path, files: &[(&str, &str)]) {
        fs::create_dir_all(folder).unwrap();
        for (name, text) in files {
            fs::write(folder.join(name), text).unwrap();
        }
    }

    #[test]
    fn tightest_group_of_version_2_binds() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        write(
            &root.join("a"),
            &[("memory.max", "1000\n"), ("memory.current", "700\n"), ("memory.stat", "inactive_file 100\n")],
        );
        write(&root.join("a/b"), &[("memory.max", "max\n"), ("memory.current", "50\n")]);
        assert_eq!(group_bytes("0::/a/b\n", root), Some(400));
        assert_eq!(group_bytes("0::/\n", root), None);
    }

    #[test]
    fn version_1_is_read_from_its_own_tree() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        write(
            &root.join("memory/x"),
            &[
                ("memory.limit_in_bytes", "5000"),
                ("memory.usage_in_bytes", "1000"),
                ("memory.stat", "total_inactive_file 10\n"),
            ],
        );
        write(&root.join("memory"), &[("memory.limit_in_bytes", "9223372036854771712")]);
        assert_eq!(group_bytes("5:cpu:/y\n4:memory,hugetlb:/x\n", root), Some(4010));
    }

    #[test]
    fn own_status_is_read() {
        assert!(resident_bytes() > 1 << 20 && peak_bytes() >= resident_bytes() / 2);
        assert_eq!(field_kib("VmHWM:\t  12 kB\nVmRSS:\t 8 kB\n", "VmRSS:"), 8 << 10);
    }
}
