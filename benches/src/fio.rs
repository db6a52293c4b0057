//! fio on a range of the store's file: io_uring, direct I/O, 1 MiB, 32 in flight.
//!
//! What it writes goes where it is told to; that is a spare range of the store, never a committed one.

use crate::{Mode, Sample};
use mt_engine::FileRange;
use serde_json::Value;
use std::process::Command;
use std::time::Duration;

/// How fio runs.
#[derive(Clone, Copy, Debug)]
pub struct Fio {
    /// Whether its buffers lie in huge pages.
    pub huge_pages: bool,
}

impl Fio {
    /// The installed version.
    ///
    /// # Errors
    /// Why it cannot be run.
    pub fn version() -> Result<String, String> {
        let out = Command::new("fio").arg("--version").output().map_err(|e| format!("fio --version: {e}"))?;
        Ok(String::from_utf8_lossy(&out.stdout).trim().to_string())
    }

    /// Writes every byte of the range once.
    ///
    /// # Errors
    /// What fio says, in words.
    pub fn fill(&self, range: &FileRange) -> Result<(), String> {
        self.run(Mode::Write, range, None).map(|_| ())
    }

    /// Moves bytes within the range for this long.
    ///
    /// # Errors
    /// What fio says, in words.
    pub fn measure(&self, mode: Mode, range: &FileRange, length: Duration) -> Result<Sample, String> {
        self.run(mode, range, Some(length))
    }

    fn run(&self, mode: Mode, range: &FileRange, length: Option<Duration>) -> Result<Sample, String> {
        let mut command = Command::new("fio");
        command.args(["--name=peer", "--ioengine=io_uring", "--direct=1", "--bs=1M", "--iodepth=32"]);
        // Its buffers stay as they are, as those of the engine do.
        command.args(["--scramble_buffers=0", "--allow_file_create=0", "--output-format=json"]);
        command.arg(match mode {
            Mode::Read => "--rw=read",
            Mode::Write => "--rw=write",
            Mode::Mixed => "--rw=rw",
        });
        command.arg(format!("--filename={}", range.path.display()));
        command.arg(format!("--offset={}", range.offset)).arg(format!("--size={}", range.bytes));
        if self.huge_pages {
            command.arg("--iomem=shmhuge");
        }
        if let Some(length) = length {
            command.arg("--time_based").arg(format!("--runtime={}ms", length.as_millis()));
        }
        let out = command.output().map_err(|e| format!("fio: {e}"))?;
        let said = || format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        if !out.status.success() {
            return Err(format!("fio: {}: {}", out.status, said()));
        }
        let json: Value = serde_json::from_slice(&out.stdout).map_err(|e| format!("fio: {e}: {}", said()))?;
        sample(&json["jobs"][0]).ok_or_else(|| format!("fio said nothing of its rate: {}", said()))
    }
}

/// Bytes and times of a job's report.
fn sample(job: &Value) -> Option<Sample> {
    let of = |direction: &str, key: &str| job[direction][key].as_u64();
    let bytes = of("read", "io_bytes")? + of("write", "io_bytes")?;
    let milliseconds = of("read", "runtime")?.max(of("write", "runtime")?);
    let percent = job["usr_cpu"].as_f64()? + job["sys_cpu"].as_f64()?;
    let job_seconds = job["job_runtime"].as_f64()? / 1e3;
    (bytes > 0).then_some(Sample {
        bytes,
        seconds: milliseconds as f64 / 1e3,
        cpu_seconds: percent / 100.0 * job_seconds,
    })
}

#[cfg(test)]
mod tests {
    use super::sample;
    use serde_json::json;

    #[test]
    fn a_report_is_understood() {
        let job = json!({
            "read": {"io_bytes": 3_000_000u64, "runtime": 1_990}, "write": {"io_bytes": 1_000_000u64, "runtime": 2_000},
            "usr_cpu": 2.5, "sys_cpu": 7.5, "job_runtime": 2_000,
        });
        let sample = sample(&job).expect("everything is there");
        assert_eq!((sample.bytes, sample.seconds), (4_000_000, 2.0));
        assert!((sample.cpu_seconds - 0.2).abs() < 1e-12);
        assert!(super::sample(&json!({})).is_none());
    }
}
