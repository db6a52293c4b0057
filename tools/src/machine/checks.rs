//! What about a machine or a path is in the way, each with the command that mends it.

use super::host::Host;
use super::place::Place;
use serde::{Deserialize, Serialize};

/// Kernel from which on io_uring has all that the engine uses, and the oldest that it works on.
const KERNEL_GOOD: (u32, u32) = (6, 1);
const KERNEL_LEAST: (u32, u32) = (5, 11);

/// Memory that a small run registers with the ring: less than this and it cannot.
const MEMLOCK_LEAST: u64 = 64 << 20;

/// Degrees Celsius at which drives begin to slow down.
const HOT_C: f64 = 75.0;

/// How good.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// As it should be.
    Good,
    /// It works, but slower than it could, or it is worth knowing.
    Note,
    /// In the way.
    Bad,
}

/// One thing that was looked at.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Check {
    /// What was looked at.
    pub what: String,
    /// How good it is.
    pub level: Level,
    /// What was found.
    pub found: String,
    /// The command, or the deed, that mends it.
    pub remedy: Option<String>,
}

impl Check {
    /// As it should be.
    pub fn good(what: impl Into<String>, found: impl Into<String>) -> Check {
        Check { what: what.into(), level: Level::Good, found: found.into(), remedy: None }
    }

    /// Not as it should be.
    pub fn not(level: Level, what: &str, found: impl Into<String>, remedy: impl Into<String>) -> Check {
        Check { what: what.to_owned(), level, found: found.into(), remedy: Some(remedy.into()) }
    }
}

/// Looks at the machine.
pub fn host(host: &Host) -> Vec<Check> {
    vec![kernel(host), uring(host), memlock(host), huge_pages(host), memory(host), cores(host)]
}

fn kernel(host: &Host) -> Check {
    let mut numbers = host.kernel.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let remedy = "install a kernel of 6.1 or newer";
    match version {
        version if version >= KERNEL_GOOD => Check::good("kernel", &host.kernel),
        version if version >= KERNEL_LEAST => {
            let found = format!("{}: io_uring works; from 6.1 on it costs fewer system calls", host.kernel);
            Check::not(Level::Note, "kernel", found, remedy)
        }
        _ => Check::not(Level::Bad, "kernel", format!("{}: too old for io_uring", host.kernel), remedy),
    }
}

fn uring(host: &Host) -> Check {
    let what = "io_uring";
    match mt_engine::bench::ring_refusal() {
        None => Check::good(what, "allowed"),
        Some(why) => {
            let remedy = match host.uring_disabled {
                Some(1..) => "sudo sysctl kernel.io_uring_disabled=0",
                _ => "allow io_uring in the container's seccomp profile (docker: --security-opt seccomp=PROFILE)",
            };
            Check::not(Level::Bad, what, format!("refused, so transfers run on a pool of threads: {why}"), remedy)
        }
    }
}

fn memlock(host: &Host) -> Check {
    let what = "lockable memory";
    match host.memlock_bytes {
        None => Check::good(what, "no limit"),
        Some(bytes) if mt_engine::bench::registers(MEMLOCK_LEAST) => {
            let found = format!("{}, but this process may lock more: it locked {}", size(bytes), size(MEMLOCK_LEAST));
            Check::good(what, found)
        }
        Some(bytes) => Check::not(
            Level::Note,
            what,
            format!("{}: memory is not registered with the ring, so each transfer costs more", size(bytes)),
            "ulimit -l unlimited (for good: `* - memlock unlimited` in /etc/security/limits.conf)",
        ),
    }
}

fn huge_pages(host: &Host) -> Check {
    let what = "huge pages";
    let remedy = "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled";
    match host.huge_pages.as_deref() {
        Some(mode @ ("always" | "madvise")) => Check::good(what, mode),
        Some(mode) => {
            let found = format!("{mode}: a transfer of 1 MiB has 256 pieces, which some drives take in two requests");
            Check::not(Level::Note, what, found, remedy)
        }
        None => Check::not(Level::Note, what, "the kernel has none", remedy),
    }
}

fn memory(host: &Host) -> Check {
    let what = "memory";
    match host.group_memory_bytes {
        None => Check::good(what, format!("{}, {} available", size(host.ram_bytes), size(host.available_bytes))),
        Some(limit) => Check::not(
            Level::Note,
            what,
            format!("the control group allows {} of {}", size(limit), size(host.ram_bytes)),
            "raise memory.max of the control group (docker: --memory)",
        ),
    }
}

fn cores(host: &Host) -> Check {
    let what = "cores";
    let numa = match host.numa_nodes.len() {
        0 | 1 => String::new(),
        nodes => format!(", {nodes} NUMA nodes"),
    };
    match host.group_cores.filter(|allowed| *allowed < f64::from(host.cores)) {
        None => Check::good(what, format!("{} of {}{numa}", host.cores, host.processor)),
        Some(allowed) => Check::not(
            Level::Note,
            what,
            format!("the control group allows the time of {allowed:.1} of {}{numa}", host.cores),
            "raise cpu.max of the control group (docker: --cpus)",
        ),
    }
}

/// Looks at a path; `is_direct`: whether direct I/O was possible there.
pub fn place(place: &Place, is_direct: bool) -> Vec<Check> {
    let what = format!("{}", place.path.display());
    let on = format!("{} on {}", place.file_system, place.source);
    let mut out = vec![match is_direct {
        true => Check::good(what.as_str(), format!("{on}: direct I/O")),
        false => Check::not(
            Level::Bad,
            &what,
            format!("{on}: no direct I/O, so transfers go through the page cache"),
            "use a folder on ext4 or xfs of a local drive",
        ),
    }];
    for warning in &place.warnings {
        out.push(Check::not(Level::Note, &what, warning, "use a folder on ext4 or xfs of a local drive"));
    }
    for device in &place.devices {
        let is_slow = device.scheduler.as_deref().is_some_and(|name| !matches!(name, "none" | "mq-deadline"));
        if is_slow && device.is_rotational == Some(false) {
            let found = format!("{} uses the scheduler {}", device.name, device.scheduler.as_deref().unwrap_or(""));
            let remedy = format!("echo none | sudo tee /sys/block/{}/queue/scheduler", device.name);
            out.push(Check::not(Level::Note, &what, found, remedy));
        }
        if let Some(degrees) = device.temperature_c.filter(|degrees| *degrees >= HOT_C) {
            let found = format!("{} is at {degrees:.0} C", device.name);
            out.push(Check::not(Level::Note, &what, found, "give the drive a heat sink or moving air"));
        }
        if let Some(link) = device.link.as_ref().filter(|link| link.is_narrow()) {
            let remedy = format!("sudo lspci -vv -s {}; seat the drive anew or use another slot", link.address);
            out.push(Check::not(Level::Note, &what, format!("{}: {}", device.name, link.in_words()), remedy));
        }
    }
    out
}

fn size(bytes: u64) -> String {
    mt_trainer::run::size::human(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::link::Link;
    use crate::machine::place::Device;

    fn this() -> Host {
        Host {
            kernel: "6.8.0-31-generic".into(),
            huge_pages: Some("madvise".into()),
            group_memory_bytes: None,
            group_cores: None,
            memlock_bytes: None,
            ..Host::this()
        }
    }

    #[test]
    fn what_is_in_the_way_comes_with_its_remedy() {
        assert_eq!(kernel(&this()).level, Level::Good);
        assert_eq!(kernel(&Host { kernel: "5.15.0".into(), ..this() }).level, Level::Note);
        assert_eq!(kernel(&Host { kernel: "5.4.0".into(), ..this() }).level, Level::Bad);
        let never = huge_pages(&Host { huge_pages: Some("never".into()), ..this() });
        assert!(never.level == Level::Note && never.remedy.unwrap().contains("transparent_hugepage"));
        let group = memory(&Host { group_memory_bytes: Some(1 << 30), ..this() });
        assert!(group.found.contains("1.00 GiB") && group.remedy.unwrap().contains("memory.max"));
        assert_eq!(cores(&Host { group_cores: Some(0.5), ..this() }).level, Level::Note);
        assert_eq!((memory(&this()).level, cores(&this()).level), (Level::Good, Level::Good));
    }

    #[test]
    fn a_path_is_bad_without_direct_io_and_noted_for_its_drive() {
        let link =
            Link { address: "0000:01:00.0".into(), speed_gt_s: 8.0, width: 2, speed_max_gt_s: 16.0, width_max: 4 };
        let device = Device {
            name: "nvme0n1".into(),
            scheduler: Some("bfq".into()),
            is_rotational: Some(false),
            temperature_c: Some(81.0),
            link: Some(link),
            ..Device::default()
        };
        let slow = Place { devices: vec![device], ..Place::default() };
        assert_eq!(place(&slow, false)[0].level, Level::Bad);
        let notes = place(&slow, true);
        assert_eq!(notes.len(), 4);
        let remedies: Vec<&str> = notes[1..].iter().filter_map(|check| check.remedy.as_deref()).collect();
        assert!(remedies[0].contains("/sys/block/nvme0n1/queue/scheduler"), "{remedies:?}");
        assert!(remedies[2].contains("lspci -vv -s 0000:01:00.0"), "{remedies:?}");
    }
}
