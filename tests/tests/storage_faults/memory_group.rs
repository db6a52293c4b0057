//! A control group that bounds memory (D04).
//!
//! These make a group below that of the test, which needs root, so they run only where `MT_MEMORY_GROUP=1` asks for it.

use super::{MT, names};
use mt_tests::command::{Finished, Place};
use mt_tests::skipped;
use std::path::{Path, PathBuf};

/// A group of processes with a limit. It goes with its value.
struct Group {
    folder: PathBuf,
    names: Names,
}

/// Names of the files of one version of control groups.
#[derive(Clone, Copy)]
struct Names {
    limit: &'static str,
    peak: &'static str,
    swap: &'static str,
}

const V1: Names =
    Names { limit: "memory.limit_in_bytes", peak: "memory.max_usage_in_bytes", swap: "memory.memsw.limit_in_bytes" };
const V2: Names = Names { limit: "memory.max", peak: "memory.peak", swap: "memory.swap.max" };

impl Group {
    /// A group below that of this process.
    fn new(name: &str) -> Result<Group, String> {
        let membership = std::fs::read_to_string("/proc/self/cgroup").map_err(|e| e.to_string())?;
        let place = |root: &str, line: &str, names| {
            let path = line.splitn(3, ':').nth(2)?.trim_start_matches('/');
            let folder = Path::new(root).join(path);
            folder
                .join(if root.ends_with("memory") { V1.limit } else { "cgroup.procs" })
                .exists()
                .then_some((folder, names))
        };
        let v1 = membership.lines().find(|line| line.contains(":memory:"));
        let v2 = membership.lines().find(|line| line.starts_with("0::"));
        let found = v1.and_then(|line| place("/sys/fs/cgroup/memory", line, V1));
        let (own, names) =
            found.or_else(|| v2.and_then(|line| place("/sys/fs/cgroup", line, V2))).ok_or("no memory group")?;
        let folder = own.join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        let group = Group { folder, names };
        if !group.folder.join(names.limit).exists() {
            return Err(format!("{}: its parent does not pass the memory controller on", group.folder.display()));
        }
        Ok(group)
    }

    fn limit(&self, bytes: u64) {
        std::fs::write(self.folder.join(self.names.limit), bytes.to_string()).expect("the limit can be set");
        // Where swap can be bounded, too, there is none.
        let swap = if self.names.swap == V1.swap { bytes } else { 0 };
        let _ = std::fs::write(self.folder.join(self.names.swap), swap.to_string());
    }

    fn peak(&self) -> u64 {
        let text = std::fs::read_to_string(self.folder.join(self.names.peak)).expect("the kernel counts");
        text.trim().parse().expect("a number")
    }

    /// Runs the command in the group from its first instruction on.
    fn run(&self, place: &Place, words: &str) -> Finished {
        let procs = self.folder.join("cgroup.procs").display().to_string();
        let script = "echo $$ > \"$0\" && exec \"$@\"";
        mt_tests::command::finish(place.wrapped(&["sh", "-c", script, &procs], words))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Charges of the group go to its parent.
        let _ = std::fs::remove_dir(&self.folder);
    }
}

fn group(name: &str) -> Option<Group> {
    if std::env::var_os("MT_MEMORY_GROUP").is_none() {
        skipped(name, "set MT_MEMORY_GROUP=1 to let it make a control group (needs root)");
        return None;
    }
    Group::new(name).map_err(|why| skipped(name, &why)).ok()
}

#[test]
fn the_default_run_stays_within_its_budget_and_64_mib() {
    let Some(group) = group("budget") else { return };
    let place = Place::new(MT);
    let budget = 64 << 20;
    group.limit(budget + (64 << 20));
    let done = group.run(&place, "train --steps 3 --ram 64MiB --run r");
    assert_eq!(done.code, Some(0), "{done}");
    let done = group.run(&place, "export r --out o");
    assert_eq!(done.code, Some(0), "{done}");
    assert!(group.peak() <= budget + (64 << 20), "{} bytes at the peak", group.peak());
    assert!(!names(&place.path("o")).is_empty());
}

#[test]
fn a_budget_that_is_found_is_that_of_the_group() {
    let Some(group) = group("auto") else { return };
    let place = Place::new(MT);
    group.limit(512 << 20);
    let done = group.run(&place, "train --steps 1 --ram auto --run r --json");
    assert_eq!(done.code, Some(0), "{done}");
    assert!(done.err.contains("control group"), "{done}");
    let planned: serde_json::Value = serde_json::from_str(done.out.lines().next().expect("a line")).expect("JSON");
    let ram = planned["ram_bytes"].as_u64().expect("a number");
    assert!((128 << 20..512 << 20).contains(&ram), "{ram} bytes of 512 MiB: {done}");
}
