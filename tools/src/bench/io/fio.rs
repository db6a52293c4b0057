//! fio: the command for a pattern, and a run of it on the very file that the engine was measured on.

use mt_engine::bench::Cell;
use serde_json::Value;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Jobs that stand for the engine's pool of threads.
const POOL_JOBS: u32 = 16;

/// Words that say the pattern to fio.
fn words(cell: &Cell, is_pool: bool) -> Vec<String> {
    let mut words: Vec<String> = match is_pool {
        false => vec!["--ioengine=io_uring".into(), format!("--iodepth={}", cell.depth)],
        true => vec![
            "--ioengine=psync".into(),
            format!("--numjobs={}", cell.depth.min(POOL_JOBS)),
            "--thread".into(),
            "--group_reporting".into(),
        ],
    };
    let kind = match (cell.reads, cell.is_random) {
        (100, false) => "read",
        (0, false) => "write",
        (_, false) => "rw",
        (100, true) => "randread",
        (0, true) => "randwrite",
        (_, true) => "randrw",
    };
    words.extend(["--direct=1".into(), format!("--rw={kind}"), format!("--bs={}", cell.block_bytes)]);
    if !matches!(cell.reads, 0 | 100) {
        words.push(format!("--rwmixread={}", cell.reads));
    }
    if cell.is_random {
        words.push("--norandommap".into());
    }
    words
}

/// The command for a pattern in a folder, to be typed.
pub fn command(cell: &Cell, is_pool: bool, dir: &Path, bytes: u64, time: Duration) -> String {
    let dir = mt_trainer::run::quoted(&dir.to_string_lossy());
    format!(
        "fio --name=mt --directory={dir} --size={bytes} --unlink=1 {} --time_based --runtime={}ms",
        words(cell, is_pool).join(" "),
        time.as_millis()
    )
}

/// The installed version.
///
/// # Errors
/// Why it cannot be run.
pub fn version() -> Result<String, String> {
    let out = Command::new("fio").arg("--version").output().map_err(|e| format!("fio cannot be run: {e}"))?;
    Ok(String::from_utf8_lossy(&out.stdout).trim().to_owned())
}

/// Bytes a second of fio on an open file; `huge_pages`: its buffers come from the system's pool of these.
///
/// # Errors
/// What fio says, in words.
pub fn measure(cell: &Cell, file: &File, bytes: u64, time: Duration, huge_pages: bool) -> Result<f64, String> {
    let mut command = Command::new("fio");
    command.args(["--name=peer", "--scramble_buffers=0", "--allow_file_create=0", "--output-format=json"]);
    command.args(words(cell, false)).arg(format!("--size={bytes}"));
    command.arg("--time_based").arg(format!("--runtime={}ms", time.as_millis()));
    // The file has no name; this is the way to it for as long as it is open here.
    command.arg(format!("--filename=/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()));
    if huge_pages {
        command.arg("--iomem=shmhuge");
    }
    let out = command.output().map_err(|e| format!("fio: {e}"))?;
    let said = || format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    if !out.status.success() {
        return Err(format!("fio: {}: {}", out.status, said().trim_end()));
    }
    let json: Value = serde_json::from_slice(&out.stdout).map_err(|e| format!("fio: {e}: {}", said()))?;
    rate(&json["jobs"][0]).ok_or_else(|| format!("fio said nothing of its rate: {}", said()))
}

/// Bytes a second of a job's report.
fn rate(job: &Value) -> Option<f64> {
    let of = |direction: &str, key: &str| job[direction][key].as_u64();
    let bytes = of("read", "io_bytes")? + of("write", "io_bytes")?;
    let milliseconds = of("read", "runtime")?.max(of("write", "runtime")?);
    (bytes > 0 && milliseconds > 0).then(|| bytes as f64 / (milliseconds as f64 / 1e3))
}

/// Huge pages for fio's buffers, from the system's pool; what was added for them goes back when this is dropped. A
/// transfer of 1 MiB over 4 KiB pages has 256 segments, over a huge page one.
pub struct HugePages {
    before: Option<u64>,
}

impl HugePages {
    const COUNT: &str = "/proc/sys/vm/nr_hugepages";
    const FREE: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";
    /// fio's own use of the pool beside its buffers.
    const SPARE: u64 = 8;

    /// Makes sure that enough for `bytes` are free.
    ///
    /// # Errors
    /// Why they cannot be had, in words.
    pub fn reserve(bytes: u64) -> Result<HugePages, String> {
        let number =
            |path: &str| crate::machine::place::number_in(Path::new(path)).ok_or_else(|| format!("{path}: no number"));
        let needed = bytes.div_ceil(2 << 20) + HugePages::SPARE;
        let (count, free) = (number(HugePages::COUNT)?, number(HugePages::FREE)?);
        if free >= needed {
            return Ok(HugePages { before: None });
        }
        let wanted = count + needed - free;
        std::fs::write(HugePages::COUNT, wanted.to_string()).map_err(|e| format!("setting vm.nr_hugepages: {e}"))?;
        let pages = HugePages { before: Some(count) };
        match number(HugePages::FREE)? {
            free if free >= needed => Ok(pages),
            free => Err(format!("{needed} huge pages are needed, and the system finds {free}")),
        }
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            // The pages are the system's again at the latest when it starts anew.
            let _ = std::fs::write(HugePages::COUNT, before.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn cell(reads: u32, is_random: bool) -> Cell {
        Cell { reads, is_random, block_bytes: 1 << 20, depth: 32, has_checksums: false }
    }

    #[test]
    fn a_pattern_is_said_in_fios_words() {
        let dir = Path::new("/a b");
        let of = |cell, is_pool| command(&cell, is_pool, dir, 1 << 30, Duration::from_secs(5));
        assert_eq!(
            of(cell(100, false), false),
            "fio --name=mt --directory='/a b' --size=1073741824 --unlink=1 --ioengine=io_uring --iodepth=32 --direct=1 \
             --rw=read --bs=1048576 --time_based --runtime=5000ms"
        );
        assert!(of(cell(70, true), false).contains("--rw=randrw --bs=1048576 --rwmixread=70 --norandommap"));
        assert!(of(cell(0, true), true).contains("--ioengine=psync --numjobs=16"));
    }

    #[test]
    fn a_report_is_understood() {
        let job = json!({
            "read": {"io_bytes": 3_000_000u64, "runtime": 1_990}, "write": {"io_bytes": 1_000_000u64, "runtime": 2_000},
        });
        assert_eq!(rate(&job), Some(2e6));
        assert_eq!(rate(&json!({})), None);
    }
}
