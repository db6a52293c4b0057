//! What a machine can do: a profile in a file, and the rates that a plan takes out of it.
//!
//! A profile is *measured* (by a benchmark, saved; or by the runs that were planned with it), *probed* (in seconds,
//! when none is saved) or *assumed*. Predictions and the choice between plans depend on it; results never do.
//!
//! `compute` has the processor's kernels, `reuse` what their caches still hold, `disk` the drives, `gpu` GPUs and their
//! links; `probe` measures them, `feedback` takes in what runs measure; this file holds them together.

pub mod compute;
pub mod disk;
pub mod feedback;
pub mod gpu;
pub mod probe;
pub mod reuse;

pub use compute::{AttentionPoint, Compute, Kernel, Product, ProductPoint, ProductShape};
pub use disk::Disk;
pub use feedback::Measured;
pub use gpu::GpuRates;
pub use reuse::Reuse;

use crate::digits::digits;
use crate::error::{Error, Result};
use crate::input;
use crate::ram;
use mt_engine::{DeviceId, Profile};
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

/// What a commit takes for its records and syncs once its pages are written; assumed.
const SYNC_SECONDS: f64 = 0.02;

/// Rates a second that a profile may hold, and the longest latency in seconds: far beyond all machines, and such that
/// a plan's nanoseconds do not overflow.
const RATES: RangeInclusive<f64> = 1e6..=1e18;
const LATENCY_MAX: f64 = 1.0;
/// Shares of a link's rates that a busy processor may leave.
const BUSY: RangeInclusive<f64> = 0.01..=1.0;

/// Version of the file's fields.
pub const VERSION: u32 = 1;

/// Where a profile's numbers come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// A benchmark measured them, or runs did.
    Measured,
    /// A probe of a few seconds measured them.
    Probed,
    /// Nobody measured them.
    Assumed,
}

/// The machine that a profile describes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Name of the processor, as the system gives it.
    pub processor: String,
    /// Cores that a process may use.
    pub cores: u32,
    /// Bytes of RAM.
    pub ram_bytes: u64,
}

impl Machine {
    /// The machine of this process.
    pub fn this() -> Machine {
        let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let name = info.lines().find_map(|line| line.strip_prefix("model name")?.trim_start().strip_prefix(':'));
        Machine {
            processor: name.map_or("unknown", str::trim).to_owned(),
            cores: std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32),
            ram_bytes: ram::machine_bytes(),
        }
    }
}

/// A machine's profile, as in the file.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineProfile {
    /// Version of these fields.
    pub version: u32,
    /// Where the numbers come from.
    pub origin: Origin,
    /// Day of the measurement, year-month-day in UTC.
    pub date: String,
    /// Runs whose rates were taken in.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub runs: u32,
    /// The last run found the processor's rates to be far off: the next plan has them measured anew.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub doubtful: bool,
    /// What was measured.
    pub machine: Machine,
    /// Drives by the path below which they hold files. At least one; the first stands for drives that are not listed.
    pub disks: Vec<Disk>,
    /// Core-seconds that a byte over the disk link takes from the computation.
    pub transfer_cpu_s_per_byte: f64,
    /// Bytes a second of which one thread computes checksums.
    pub checksum_bytes_per_s: f64,
    /// The kernels' rates.
    pub compute: Compute,
    /// GPUs, by their number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<GpuRates>,
    /// What of the numbers nobody measured, in words; beside what GPUs say of themselves.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub assumed: String,
}

/// Rates as a plan needs them: those of the stores, threads and GPU at hand.
#[derive(Clone, PartialEq, Debug)]
pub struct Rates {
    /// Links and cores.
    pub engine: Profile,
    /// The kernels' rates.
    pub compute: Compute,
    /// Factor on the kernels' rates.
    pub speed: f64,
    /// The GPU; assumed where the profile has none.
    pub gpu: GpuRates,
}

impl Default for Rates {
    /// Assumed, for one drive and two threads.
    fn default() -> Rates {
        MachineProfile::assumed(2).rates(&[], 2, None)
    }
}

impl MachineProfile {
    /// What is assumed of a machine with these cores.
    pub fn assumed(cores: u32) -> MachineProfile {
        MachineProfile {
            version: VERSION,
            origin: Origin::Assumed,
            date: "never".to_owned(),
            runs: 0,
            doubtful: false,
            machine: Machine { processor: "unknown".to_owned(), cores, ram_bytes: 0 },
            disks: vec![Disk::assumed()],
            transfer_cpu_s_per_byte: Profile::default().transfer_cpu_s_per_byte,
            checksum_bytes_per_s: 10e9,
            compute: Compute::assumed(),
            gpus: Vec::new(),
            assumed: String::new(),
        }
    }

    /// Reads a profile.
    ///
    /// # Errors
    /// Those of [`input::text`]; `Input` for another version, fields that are missing or unknown, or a rate or latency
    /// of no machine.
    pub fn read(path: &Path) -> Result<MachineProfile> {
        MachineProfile::parse(&input::text(path, "a machine's profile, or auto or assumed")?, path)
    }

    /// From text; `path` is named in errors.
    ///
    /// # Errors
    /// As [`MachineProfile::read`], without those of reading.
    pub fn parse(text: &str, path: &Path) -> Result<MachineProfile> {
        let place = path.display().to_string();
        let refuse = |field: &str, expected: &str, found: String| Error::input(place.clone(), field, expected, found);
        let value: serde_json::Value =
            serde_json::from_str(text).map_err(|e| refuse("the file", "JSON", e.to_string()))?;
        let version = value.get("version").and_then(serde_json::Value::as_u64);
        if version != Some(u64::from(VERSION)) {
            let found = value.get("version").map_or("none".to_owned(), ToString::to_string);
            return Err(refuse("version", &VERSION.to_string(), found));
        }
        let profile: MachineProfile =
            serde_json::from_value(value).map_err(|e| refuse("the file", "a machine's profile", e.to_string()))?;
        if profile.disks.is_empty() {
            return Err(refuse("disks", "at least one drive", "none".to_owned()));
        }
        let disks = profile.disks.iter().flat_map(Disk::rates);
        let gpus = profile.gpus.iter().flat_map(GpuRates::rates);
        let mut rates = disks.chain(profile.compute.rates()).chain(gpus).chain([profile.checksum_bytes_per_s]);
        if let Some(bad) = rates.find(|rate| !RATES.contains(rate)) {
            let expected = format!("numbers from {:e} to {:e} a second", RATES.start(), RATES.end());
            return Err(refuse("rates", &expected, bad.to_string()));
        }
        let latencies = profile.disks.iter().map(|disk| disk.latency_s);
        let mut latencies = latencies.chain(profile.gpus.iter().flat_map(GpuRates::seconds));
        if let Some(bad) = latencies.find(|latency| !(*latency > 0.0 && *latency <= LATENCY_MAX)) {
            let expected = format!("seconds above 0, at most {LATENCY_MAX}");
            return Err(refuse("latency_s, launch_s", &expected, bad.to_string()));
        }
        if let Some(bad) = profile.gpus.iter().map(|gpu| gpu.link.busy_share).find(|share| !BUSY.contains(share)) {
            let expected = format!("a part from {} to {}", BUSY.start(), BUSY.end());
            return Err(refuse("busy_share", &expected, bad.to_string()));
        }
        if profile.machine.cores == 0 || profile.compute.threads == 0 {
            return Err(refuse("cores, threads", "at least 1", "0".to_owned()));
        }
        if !profile.transfer_cpu_s_per_byte.is_finite() || profile.transfer_cpu_s_per_byte < 0.0 {
            let found = profile.transfer_cpu_s_per_byte.to_string();
            return Err(refuse("transfer_cpu_s_per_byte", "a number of at least 0", found));
        }
        Ok(profile)
    }

    /// As text for a file.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("a profile holds only numbers and text");
        text.push('\n');
        text
    }

    /// What a plan for these stores and threads, and this GPU if it uses one, needs.
    pub fn rates(&self, stores: &[PathBuf], threads: u32, device: Option<DeviceId>) -> Rates {
        let cores = self.machine.cores.max(1);
        let disk = disk::together(&self.disks, stores);
        let used = threads.clamp(1, cores);
        // The engine's own thread and its helpers, one for every four cores, compute the checksum of every byte.
        let checkers = 1 + (cores / 4).clamp(1, 4);
        let checked = |rate: f64| rate.min(f64::from(checkers) * self.checksum_bytes_per_s);
        let gpu = self.gpu(device.unwrap_or(DeviceId(0))).cloned().unwrap_or_else(GpuRates::assumed);
        Rates {
            engine: Profile {
                disk_read_bytes_per_s: checked(disk.read_bytes_per_s),
                disk_write_bytes_per_s: checked(disk.write_bytes_per_s),
                disk_mixed_bytes_per_s: checked(disk.mixed_bytes_per_s),
                host_copy_bytes_per_s: self.compute.copy_bytes_per_s,
                disk_latency_s: disk.latency_s,
                disk_sync_s: SYNC_SECONDS,
                transfer_cpu_s_per_byte: self.transfer_cpu_s_per_byte,
                cores,
                compute_threads: used,
                links: device.map(|device| gpu.link(device)).into_iter().collect(),
            },
            compute: self.compute.clone(),
            speed: f64::from(used) / f64::from(self.compute.threads),
            gpu,
        }
    }

    /// The GPU of a number; where the profile has fewer, its first, which stands for the others.
    pub fn gpu(&self, device: DeviceId) -> Option<&GpuRates> {
        self.gpus.get(usize::from(device.0)).or(self.gpus.first())
    }

    /// The rates that matter most, in words.
    pub fn rates_in_words(&self) -> String {
        let disk = &self.disks[0];
        let fastest = self.compute.products.iter().map(|point| point.operations_per_s).fold(0.0, f64::max);
        let gpus: Vec<String> = self.gpus.iter().map(|gpu| format!("; {}", gpu.in_words())).collect();
        format!(
            "products up to {} G operations/s on {} threads, AdamW {} G elements/s; disk {} GB/s read, {} written, {} \
             both ways, {:.2} core-seconds a GB{}",
            digits(fastest * 1e-9),
            self.compute.threads,
            digits(self.compute.adamw_elements_per_s * 1e-9),
            digits(disk.read_bytes_per_s * 1e-9),
            digits(disk.write_bytes_per_s * 1e-9),
            digits(disk.mixed_bytes_per_s * 1e-9),
            self.transfer_cpu_s_per_byte * 1e9,
            gpus.concat()
        )
    }

    /// The rates that another profile of this machine does not have, in words: what was measured since.
    pub fn news_in_words(&self, known: &MachineProfile) -> String {
        let (new, old) = (&self.compute, &known.compute);
        let products: Vec<f64> = new
            .products
            .iter()
            .filter(|point| !old.products.contains(point))
            .map(|point| point.operations_per_s)
            .collect();
        let mut words = Vec::new();
        if !products.is_empty() {
            let fastest = digits(products.iter().copied().fold(0.0, f64::max) * 1e-9);
            let count = products.len();
            words.push(format!("{count} shapes of products up to {fastest} G operations/s on {} threads", new.threads));
        }
        match new.attention.iter().filter(|point| !old.attention.contains(point)).count() {
            0 => {}
            1 => words.push("a shape of attention".to_owned()),
            count => words.push(format!("{count} shapes of attention")),
        }
        if new.adamw_elements_per_s != old.adamw_elements_per_s {
            words.push(format!("AdamW {} G elements/s", digits(new.adamw_elements_per_s * 1e-9)));
        }
        words.extend(self.gpus.iter().filter(|gpu| !known.gpus.contains(gpu)).map(GpuRates::in_words));
        words.join("; ")
    }

    /// Where the numbers come from, in words.
    pub fn describe(&self) -> String {
        let Machine { processor, cores, .. } = &self.machine;
        let assumed = if self.assumed.is_empty() { String::new() } else { format!("; assumed: {}", self.assumed) };
        let described = match self.origin {
            Origin::Measured if self.runs > 0 => {
                let runs = if self.runs == 1 { "a run".to_owned() } else { format!("{} runs", self.runs) };
                format!("measured by {runs}, the last on {}, {processor}, {cores} cores", self.date)
            }
            Origin::Measured => format!("measured on {}, {processor}, {cores} cores", self.date),
            Origin::Probed => format!("probed on {}, {processor}, {cores} cores", self.date),
            Origin::Assumed => format!("assumed, nothing of it measured; {cores} cores"),
        };
        described + &assumed
    }
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_gives_the_profile_back_and_refuses_what_it_does_not_know() {
        let profile = MachineProfile::assumed(8);
        let path = Path::new("profile.json");
        assert_eq!(MachineProfile::parse(&profile.to_json(), path).unwrap(), profile);
        for (from, to, part) in [
            ("\"version\": 1", "\"version\": 2", "version"),
            ("\"cores\": 8", "\"cores\": 0", "at least 1"),
            ("\"date\"", "\"day\"", "day"),
            ("\"adamw_elements_per_s\": ", "\"adamw_elements_per_s\": -", "numbers from 1e6 to 1e18"),
            // These made a plan overflow.
            ("\"adamw_elements_per_s\": 150000000.0", "\"adamw_elements_per_s\": 1e-9", "numbers from"),
            ("\"latency_s\": ", "\"latency_s\": 9", "at most 1"),
        ] {
            let text = profile.to_json().replace(from, to);
            assert!(text != profile.to_json(), "{from}");
            let error = MachineProfile::parse(&text, path).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn what_a_busy_processor_leaves_of_a_link_is_a_part_and_all_of_it_where_nobody_measured() {
        let profile = MachineProfile { gpus: vec![GpuRates::assumed()], ..MachineProfile::assumed(8) };
        let (text, path) = (profile.to_json(), Path::new("profile.json"));
        let without = text.lines().filter(|line| !line.contains("busy_share")).collect::<Vec<_>>().join("\n");
        assert!(without.len() < text.len());
        assert_eq!(MachineProfile::parse(&without, path).unwrap(), profile);
        for bad in ["0.0", "1.5", "-0.5"] {
            let text = text.replace("\"busy_share\": 1.0", &format!("\"busy_share\": {bad}"));
            let error = MachineProfile::parse(&text, path).unwrap_err().to_string();
            assert!(error.contains("busy_share") && error.contains("a part from 0.01 to 1"), "{error}");
        }
    }

    #[test]
    fn only_what_another_profile_lacks_is_told_as_new() {
        let mut known = MachineProfile::assumed(2);
        known.compute.threads = 2;
        let mut new = known.clone();
        assert_eq!(new.news_in_words(&known), "");
        new.compute.attention.push(AttentionPoint { seq: 77, ..known.compute.attention[0] });
        assert_eq!(new.news_in_words(&known), "a shape of attention");
        let point = ProductPoint { rows: 77, operations_per_s: 21.34e9, ..known.compute.products[0] };
        new.compute.products.extend([point, ProductPoint { rows: 78, operations_per_s: 1e9, ..point }]);
        let shapes = "2 shapes of products up to 21.3 G operations/s on 2 threads; a shape of attention";
        assert_eq!(new.news_in_words(&known), shapes);
        let mut with_gpu = MachineProfile { gpus: vec![GpuRates::assumed()], ..known.clone() };
        let gpu = GpuRates::assumed().in_words();
        assert_eq!(with_gpu.news_in_words(&known), gpu);
        with_gpu.compute.adamw_elements_per_s = 1.5e9;
        assert_eq!(with_gpu.news_in_words(&known), format!("AdamW 1.50 G elements/s; {gpu}"));
    }

    #[test]
    fn threads_beyond_the_cores_bring_nothing() {
        let profile = MachineProfile::assumed(4);
        let speed = |threads| profile.rates(&[], threads, None).speed;
        assert_eq!((speed(1), speed(4), speed(64)), (1.0, 4.0, 4.0));
    }
}
