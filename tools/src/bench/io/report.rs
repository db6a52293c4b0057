//! What `mt-bench io` found, as data: the fields of its JSON (`tools/io-report.schema.json`), from which text, page and
//! comparison are made.

use super::gpu::GpuReport;
use super::memory::Memory;
use super::summary::{Latency, Summary};
use super::sustained::{Knee, Point};
use super::verdict::Verdict;
use crate::failure::Failure;
use crate::machine::host::Host;
use crate::machine::place::Place;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Version of the fields.
pub const VERSION: u32 = 1;

/// A report.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Version of these fields.
    pub version: u32,
    /// Program and its version.
    pub program: String,
    /// Day of the measurement in UTC.
    pub date: String,
    /// quick, usual, full, or cell: one pattern alone.
    pub effort: String,
    /// How long it took.
    pub seconds: f64,
    /// Bytes that it wrote to the paths, all together.
    pub written_bytes: u64,
    /// The machine.
    pub host: Host,
    /// Each path, and where there are several all of them together at the end.
    pub paths: Vec<PathReport>,
    /// Memory and cores; none for one pattern alone.
    pub memory: Option<Memory>,
    /// The GPU, or why there is nothing of it; none for one pattern alone.
    pub gpu: Option<GpuReport>,
    /// What follows from it; none for one pattern alone.
    pub verdict: Option<Verdict>,
}

/// A path, or all paths together.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PathReport {
    /// The paths measured at once: one, or all.
    pub places: Vec<Place>,
    /// Bytes of the file in each.
    pub file_bytes: u64,
    /// Transfers went past the page cache, on every path.
    pub direct: bool,
    /// Alignment of memory, offsets and lengths that the file systems ask for.
    pub alignment: u32,
    /// uring or pool.
    pub engine: String,
    /// What the engine has to say of it.
    pub notices: Vec<String>,
    /// Patterns, named.
    pub cells: Vec<CellReport>,
    /// Reads and writes by block and depth.
    pub sweep: Vec<CellReport>,
    /// What settings of the engine are worth.
    pub variants: Vec<Variant>,
    /// A long write.
    pub sustained: Option<Sustained>,
    /// Seconds of a write of 4 KiB and of making it durable.
    pub sync_s: Option<Summary>,
    /// Ratios to fio, with `--against fio`.
    pub against: Vec<Against>,
}

/// A pattern of transfers.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CellReport {
    /// For people.
    pub name: String,
    /// read, write, randread, randwrite or mixed:NN, the part that reads in percent.
    pub rw: String,
    /// Bytes of a transfer.
    pub block_bytes: u32,
    /// Transfers in flight, on each path.
    pub depth: u32,
    /// The engine's checksums are computed, as in a run.
    pub checksums: bool,
    /// Bytes a second, both directions.
    pub bytes_per_s: Summary,
    /// Latencies of transfers, of all repeats together.
    pub latency: Option<Latency>,
    /// Seconds of cores for 10^9 bytes.
    pub cpu_s_per_gb: f64,
    /// The command of fio for the same pattern.
    pub fio: String,
}

/// The same pattern with another setting of the engine, or with another program.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Variant {
    /// What is different.
    pub name: String,
    /// Bytes a second; none where it does not work.
    pub bytes_per_s: Option<Summary>,
    /// Why it does not.
    pub refused: Option<String>,
}

/// A long write.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Sustained {
    /// Bytes written.
    pub bytes: u64,
    /// Time.
    pub seconds: f64,
    /// The line.
    pub line: Vec<Point>,
    /// Where the fast cache ends; none: not within these bytes.
    pub knee: Option<Knee>,
    /// Bytes a second after the knee, or of the last half without one.
    pub lasting_bytes_per_s: f64,
    /// Degrees Celsius at the beginning and at the end, where the drive tells.
    pub temperatures_c: Option<(f64, f64)>,
}

/// The engine and fio on the same file, in turns.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Against {
    /// The pattern, as in [`CellReport::rw`].
    pub rw: String,
    /// fio's version.
    pub program: String,
    /// Pairs of neighbours.
    pub pairs: usize,
    /// Seconds of each measurement.
    pub seconds: f64,
    /// Median of the pairs' ratios, the engine's rate to fio's.
    pub ratio: f64,
    /// Lower end of the 90% interval of that median.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
    /// The engine's median, bytes a second.
    pub engine_bytes_per_s: f64,
    /// fio's.
    pub fio_bytes_per_s: f64,
    /// fio's buffers lay in huge pages, as the engine's do.
    pub huge_pages: bool,
}

impl PathReport {
    /// What it is called.
    pub fn name(&self) -> String {
        match self.places.as_slice() {
            [place] => place.path.display().to_string(),
            places => format!("{} paths together", places.len()),
        }
    }

    /// The pattern of this name.
    pub fn cell(&self, name: &str) -> Option<&CellReport> {
        self.cells.iter().find(|cell| cell.name == name)
    }
}

impl Report {
    /// Reads a report.
    ///
    /// # Errors
    /// The file cannot be read, or is no report of this version (exit code 2).
    pub fn read(path: &Path) -> Result<Report, Failure> {
        let place = path.display();
        let text = mt_trainer::input::text(path, "a report of mt-bench io")?;
        let value: serde_json::Value = serde_json::from_str(&text)
            .map_err(|e| Failure::input(format!("{place}: expected a report of mt-bench io, found {e}")))?;
        if value["version"] != VERSION {
            let found = &value["version"];
            return Err(Failure::input(format!("{place}: version: expected {VERSION}, found {found}")));
        }
        serde_json::from_value(value)
            .map_err(|e| Failure::input(format!("{place}: expected a report of mt-bench io, found {e}")))
    }

    /// As text for a file.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a report holds only numbers and text") + "\n"
    }
}
