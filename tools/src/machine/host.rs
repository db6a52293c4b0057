//! The machine as far as moving bytes depends on it, from /proc and /sys, without extra rights.

use super::sys::{children, number_in, text_in};
use mt_trainer::profile::Machine;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// A machine.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Host {
    /// Name of the processor.
    pub processor: String,
    /// Cores that this process may use.
    pub cores: u32,
    /// Memory of the machine.
    pub ram_bytes: u64,
    /// Memory that is free or can be freed.
    pub available_bytes: u64,
    /// Nodes of memory, each with its cores.
    pub numa_nodes: Vec<String>,
    /// Memory that the process's control group allows, if that is less than the machine's.
    pub group_memory_bytes: Option<u64>,
    /// Cores' worth of time that the group allows.
    pub group_cores: Option<f64>,
    /// Bytes that the process may lock; none: as many as it likes.
    pub memlock_bytes: Option<u64>,
    /// always, madvise or never.
    pub huge_pages: Option<String>,
    /// Version of the kernel.
    pub kernel: String,
    /// kernel.io_uring_disabled; none: the kernel has no such setting.
    pub uring_disabled: Option<u64>,
}

impl Host {
    /// The machine of this process.
    pub fn this() -> Host {
        let machine = Machine::this();
        let memory = text_in(Path::new("/proc/meminfo")).unwrap_or_default();
        let version = text_in(Path::new("/proc/sys/kernel/osrelease")).unwrap_or_else(|| "unknown".to_owned());
        let huge = text_in(Path::new("/sys/kernel/mm/transparent_hugepage/enabled"));
        let limits = text_in(Path::new("/proc/self/limits")).unwrap_or_default();
        Host {
            processor: machine.processor,
            cores: machine.cores,
            ram_bytes: machine.ram_bytes,
            available_bytes: meminfo(&memory, "MemAvailable").unwrap_or(0),
            numa_nodes: nodes(),
            group_memory_bytes: group_limit(machine.ram_bytes),
            group_cores: group_cores(),
            memlock_bytes: memlock(&limits),
            huge_pages: huge.and_then(|text| in_brackets(&text)),
            kernel: version,
            uring_disabled: number_in(Path::new("/proc/sys/kernel/io_uring_disabled")),
        }
    }
}

/// A line of /proc/meminfo, in bytes.
fn meminfo(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1_024)
}

/// The soft limit of "Max locked memory" in /proc/self/limits; None: unlimited.
fn memlock(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max locked memory"))?;
    line.split_whitespace().next()?.parse().ok()
}

fn in_brackets(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    rest.split_once(']').map(|(name, _)| name.to_owned())
}

fn nodes() -> Vec<String> {
    let nodes = children(Path::new("/sys/devices/system/node"));
    let is_node = |path: &&PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.strip_prefix("node").is_some_and(|number| number.parse::<u32>().is_ok())
    };
    nodes.iter().filter(is_node).filter_map(|node| text_in(&node.join("cpulist"))).collect()
}

/// Folders of the process's control group, from its own up to the root's.
fn group_folders() -> Vec<PathBuf> {
    let text = text_in(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let own = text.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/");
    let root = Path::new("/sys/fs/cgroup");
    let folder = root.join(own.trim_start_matches('/'));
    folder.ancestors().take_while(|above| above.starts_with(root)).map(Path::to_owned).collect()
}

fn group_limit(ram_bytes: u64) -> Option<u64> {
    let limits = group_folders().into_iter().filter_map(|folder| number_in(&folder.join("memory.max")));
    let old = number_in(Path::new("/sys/fs/cgroup/memory/memory.limit_in_bytes"));
    limits.chain(old).min().filter(|limit| *limit < ram_bytes)
}

fn group_cores() -> Option<f64> {
    let quotas = group_folders().into_iter().filter_map(|folder| quota(&text_in(&folder.join("cpu.max"))?));
    quotas.reduce(f64::min)
}

/// `cpu.max`: microseconds and their period, or max.
fn quota(text: &str) -> Option<f64> {
    let (allowed, period) = text.split_once(' ')?;
    Some(allowed.parse::<f64>().ok()? / period.trim().parse::<f64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_texts_are_read() {
        assert_eq!(meminfo("MemTotal: 10 kB\nMemAvailable:    7 kB\n", "MemAvailable"), Some(7_168));
        assert_eq!(
            memlock("Max locked memory         8388608              8388608              bytes"),
            Some(8_388_608)
        );
        assert_eq!(memlock("Max locked memory         unlimited            unlimited            bytes"), None);
        assert_eq!(in_brackets("always [madvise] never").as_deref(), Some("madvise"));
        assert_eq!((quota("150000 100000"), quota("max 100000")), (Some(1.5), None));
    }

    #[test]
    fn this_machine_has_cores_and_memory() {
        let host = Host::this();
        assert!(host.cores > 0 && host.ram_bytes > 0 && host.available_bytes > 0 && host.kernel != "unknown");
    }
}
