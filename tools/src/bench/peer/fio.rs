//! fio: the command for a pattern, and a run of it on the very file that the engine is measured on.

use mt_engine::FileRange;
use mt_engine::bench::{Cell, Moved};
use serde_json::Value;
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

/// Runs the pattern on a range of a file for a time, or, without one, over the range once; `huge_pages`: its buffers
/// come from the system's pool of these (see [`super::HugePages`]).
///
/// # Errors
/// What fio says, in words.
pub fn run(cell: &Cell, range: &FileRange, time: Option<Duration>, huge_pages: bool) -> Result<Moved, String> {
    let mut command = Command::new("fio");
    // Its buffers stay as they are, as those of the engine do.
    command.args(["--name=peer", "--scramble_buffers=0", "--allow_file_create=0", "--output-format=json"]);
    command.args(words(cell, false)).arg(format!("--filename={}", range.path.display()));
    command.arg(format!("--offset={}", range.offset)).arg(format!("--size={}", range.bytes));
    if let Some(time) = time {
        command.arg("--time_based").arg(format!("--runtime={}ms", time.as_millis()));
    }
    if huge_pages {
        command.arg("--iomem=shmhuge");
    }
    let out = command.output().map_err(|e| format!("fio: {e}"))?;
    let said = || format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    if !out.status.success() {
        return Err(format!("fio: {}: {}", out.status, said().trim_end()));
    }
    let json: Value = serde_json::from_slice(&out.stdout).map_err(|e| format!("fio: {e}: {}", said()))?;
    moved(&json["jobs"][0]).ok_or_else(|| format!("fio said nothing of its rate: {}", said()))
}

/// Bytes and times of a job's report.
fn moved(job: &Value) -> Option<Moved> {
    let of = |direction: &str, key: &str| job[direction][key].as_u64();
    let (read_bytes, write_bytes) = (of("read", "io_bytes")?, of("write", "io_bytes")?);
    let milliseconds = of("read", "runtime")?.max(of("write", "runtime")?);
    let percent = job["usr_cpu"].as_f64()? + job["sys_cpu"].as_f64()?;
    let cpu_seconds = percent / 100.0 * job["job_runtime"].as_f64()? / 1e3;
    let moved = Moved { read_bytes, write_bytes, seconds: milliseconds as f64 / 1e3, cpu_seconds };
    (moved.bytes() > 0 && milliseconds > 0).then_some(moved)
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
            "usr_cpu": 2.5, "sys_cpu": 7.5, "job_runtime": 2_000,
        });
        let found = moved(&job).unwrap();
        assert_eq!((found.read_bytes, found.write_bytes, found.rate()), (3_000_000, 1_000_000, 2e6));
        assert!((found.cpu_seconds - 0.2).abs() < 1e-12);
        assert_eq!(moved(&json!({})), None);
    }
}
