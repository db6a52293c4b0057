//! What follows from the numbers, for somebody who wants to train: what binds, what to set, how many tokens a step
//! should have, what drives live through, and what about the machine is in the way.

use super::gpu::GpuReport;
use super::options;
use super::report::{CellReport, PathReport};
use crate::args::Cli;
use crate::failure::Failure;
use crate::layers::Layers;
use crate::machine::checks::{self, Check, Level};
use crate::machine::host::Host;
use crate::resolve::{Purpose, resolve};
use clap::CommandFactory;
use mt_trainer::profile::MachineProfile;
use mt_trainer::run::{CommandLine, Question, Report as Planned, plan};
use mt_trainer::schedule::Phase;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Part of the best rate that is good enough, so that the smallest transfers and the shortest queues win.
const ENOUGH: f64 = 0.95;

/// Bytes that a process has in use before its pages, beside what a plan counts.
const RESIDENT_BYTES: u64 = 32 << 20;

/// Space that plans may take: the question is what a step costs, not whether these drives have the room.
const DISK: &str = "64TiB";

/// Multiplications and additions that a token takes a parameter: forward, backward, and the forward computed again.
const OPERATIONS: f64 = 8.0;

/// What follows.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Verdict {
    /// The smallest block and depth that read as fast as any, within a twentieth.
    pub best_read: Option<Best>,
    /// The same for writing, where the sweep writes.
    pub best_write: Option<Best>,
    /// What a step of known models costs here.
    pub models: Vec<Model>,
    /// What is in the way, and what is as it should be.
    pub checks: Vec<Check>,
}

/// A block and a depth.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Best {
    /// Bytes of a transfer.
    pub block_bytes: u32,
    /// Transfers in flight.
    pub depth: u32,
    /// Bytes a second.
    pub bytes_per_s: f64,
}

/// A model's step, planned with what was measured. Everything is predicted.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Model {
    /// Name of the shape.
    pub name: String,
    /// Why it is not planned; then all else is empty.
    pub refused: Option<String>,
    /// Parameters.
    pub parameters: u64,
    /// Tokens of the planned step.
    pub tokens: u64,
    /// Its time.
    pub seconds: f64,
    /// What most of its time is bound by.
    pub binding: String,
    /// Bytes read by a step.
    pub read_bytes: u64,
    /// Bytes written by a step, commits apart.
    pub written_bytes: u64,
    /// Space that the store takes.
    pub disk_bytes: u64,
    /// Seconds that a step's bytes take alone.
    pub disk_seconds: f64,
    /// Tokens a step from which on computing takes longer than moving.
    pub hiding_tokens: u64,
    /// The same if the GPU computed everything at its measured rate of bf16 products, which no run reaches.
    pub hiding_tokens_gpu: Option<u64>,
    /// Steps until a drive has written 1,000 TB; none: a step writes nothing.
    pub steps_per_1000_tb: Option<u64>,
}

/// Draws the conclusions.
pub fn verdict(
    host: &Host,
    paths: &[PathReport],
    profile: &MachineProfile,
    gpu: &GpuReport,
    shapes: &[&str],
    threads: u64,
) -> Verdict {
    let sweep: Vec<&CellReport> = paths.first().map(|path| path.sweep.iter().collect()).unwrap_or_default();
    let of = |rw: &str| best(&sweep.iter().filter(|cell| cell.rw == rw).copied().collect::<Vec<_>>());
    let mut all = checks::host(host);
    let places = paths.iter().filter(|path| path.places.len() == 1);
    places.for_each(|path| all.extend(checks::place(&path.places[0], path.direct)));
    all.extend(paths.first().and_then(huge_pages_pay));
    all.extend(gpu.checks());
    let stores: Vec<PathBuf> =
        paths.iter().filter(|path| path.places.len() == 1).map(|path| path.places[0].path.clone()).collect();
    let matrix = gpu.bf16_operations_per_s();
    let model = |name: &&str| model(name, &stores, profile, matrix, threads);
    Verdict { best_read: of("read"), best_write: of("write"), models: shapes.iter().map(model).collect(), checks: all }
}

/// The cheapest that is good enough: fewest bytes in flight, then smallest depth.
fn best(cells: &[&CellReport]) -> Option<Best> {
    let most = cells.iter().map(|cell| cell.bytes_per_s.median).reduce(f64::max)?;
    let enough = cells.iter().filter(|cell| cell.bytes_per_s.median >= ENOUGH * most);
    let cheapest = enough.min_by_key(|cell| (u64::from(cell.block_bytes) * u64::from(cell.depth), cell.depth))?;
    Some(Best { block_bytes: cheapest.block_bytes, depth: cheapest.depth, bytes_per_s: cheapest.bytes_per_s.median })
}

/// Says it where memory in huge pages makes a difference.
fn huge_pages_pay(path: &PathReport) -> Option<Check> {
    let rate = |name: &str| {
        let found = path.variants.iter().find(|variant| variant.name == name)?;
        found.bytes_per_s.as_ref().map(|rate| rate.median)
    };
    let times = rate("as the engine is")? / rate("memory in pages of 4 KiB")?;
    (times >= 1.1).then(|| {
        Check::good("huge pages pay", format!("reading is {times:.2} times as fast as with memory in pages of 4 KiB"))
    })
}

fn model(name: &str, stores: &[PathBuf], profile: &MachineProfile, matrix: Option<f64>, threads: u64) -> Model {
    match planned(name, stores, profile, threads) {
        Ok(planned) => found(name, &planned, stores, profile, matrix, threads),
        Err(failure) => Model {
            name: name.to_owned(),
            refused: Some(failure.text),
            parameters: 0,
            tokens: 0,
            seconds: 0.0,
            binding: String::new(),
            read_bytes: 0,
            written_bytes: 0,
            disk_bytes: 0,
            disk_seconds: 0.0,
            hiding_tokens: 0,
            hiding_tokens_gpu: None,
            steps_per_1000_tb: None,
        },
    }
}

/// Asks what `mt plan --shape NAME` asks, with this profile and room on the drives.
fn planned(name: &str, stores: &[PathBuf], profile: &MachineProfile, threads: u64) -> Result<Planned, Failure> {
    let threads = threads.to_string();
    let mut words = vec!["mt", "plan", "--shape", name, "--disk", DISK, "--threads", &threads];
    let stores: Vec<String> = stores.iter().map(|store| store.display().to_string()).collect();
    stores.iter().for_each(|store| words.extend(["--store", store.as_str()]));
    let command = CommandLine::new(words.iter().map(|word| (*word).to_owned()).collect());
    let matches = Cli::command().try_get_matches_from(&words).map_err(|error| Failure::input(error.to_string()))?;
    let flags = matches.subcommand_matches("plan").expect("the subcommand that was named");
    let resolved = resolve(&Layers::merge(flags, None)?, Purpose::Plan)?;
    Ok(plan(&Question {
        settings: &resolved.settings,
        profile,
        resident_bytes: Some(RESIDENT_BYTES),
        stores: resolved.settings.store.clone(),
        drive_life_bytes: None,
        command: &command,
    })?)
}

fn found(
    name: &str,
    planned: &Planned,
    stores: &[PathBuf],
    profile: &MachineProfile,
    matrix: Option<f64>,
    threads: u64,
) -> Model {
    let step = &planned.step;
    let is_update = |phase: Phase| phase == Phase::Update;
    let computing = |update: bool| -> f64 {
        let phases = step.phases.iter().filter(|time| is_update(time.phase) == update);
        phases.map(|time| time.compute_seconds).sum()
    };
    let rates = profile.rates(stores, threads as u32, None).engine;
    let (read, written) = (step.disk_read_bytes as f64, step.disk_write_bytes as f64);
    let alone = (read / rates.disk_read_bytes_per_s).max(written / rates.disk_write_bytes_per_s);
    let disk_seconds = alone.max((read + written) / rates.disk_mixed_bytes_per_s);
    // What is moved hardly depends on the tokens, nor does the update; the rest of the computation does.
    let tokens = planned.tokens() as f64;
    let hiding = (disk_seconds - computing(true)).max(0.0) / (computing(false) / tokens).max(1e-12);
    let longest = step.phases.iter().max_by(|a, b| a.seconds.total_cmp(&b.seconds));
    let drives = planned.limits.drives.max(1);
    Model {
        name: name.to_owned(),
        refused: None,
        parameters: planned.parameters,
        tokens: planned.tokens(),
        seconds: step.seconds,
        binding: longest.map_or("", |time| time.binding.name()).to_owned(),
        read_bytes: step.disk_read_bytes,
        written_bytes: step.disk_write_bytes,
        disk_bytes: planned.limits.disk,
        disk_seconds,
        hiding_tokens: hiding.ceil() as u64,
        hiding_tokens_gpu: matrix
            .map(|rate| (disk_seconds * rate / (OPERATIONS * planned.parameters as f64)).ceil() as u64),
        steps_per_1000_tb: (step.disk_write_bytes > 0)
            .then(|| (1e15 * drives as f64 / step.disk_write_bytes as f64) as u64),
    }
}

impl Verdict {
    /// What is in the way, worst first.
    pub fn to_mend(&self) -> Vec<&Check> {
        let mut out: Vec<&Check> = self.checks.iter().filter(|check| check.level > Level::Good).collect();
        out.sort_by_key(|check| std::cmp::Reverse(check.level));
        out
    }
}

/// What binds reading and writing pages here: the slowest of what their bytes pass through.
pub fn binding(path: &PathReport, copy_bytes_per_s: f64, checksum_bytes_per_s: f64) -> Option<(&'static str, f64)> {
    let disk = path.cell(options::MIXED_CHECKED).or_else(|| path.cell(options::MIXED))?.bytes_per_s.median;
    let parts = [("the drive", disk), ("memory", copy_bytes_per_s), ("checksums by one thread", checksum_bytes_per_s)];
    parts.into_iter().min_by(|a, b| a.1.total_cmp(&b.1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::io::summary::Summary;

    fn cell(block_bytes: u32, depth: u32, rate: f64) -> CellReport {
        CellReport {
            name: String::new(),
            rw: "read".into(),
            block_bytes,
            depth,
            checksums: false,
            bytes_per_s: Summary::of(vec![rate]),
            latency: None,
            cpu_s_per_gb: 0.0,
            fio: String::new(),
        }
    }

    #[test]
    fn the_cheapest_of_the_fastest_is_best() {
        let cells = [cell(4096, 64, 1.0), cell(1 << 20, 8, 9.6), cell(1 << 20, 64, 10.0), cell(4 << 20, 4, 9.9)];
        let found = best(&cells.iter().collect::<Vec<_>>()).unwrap();
        assert_eq!((found.block_bytes, found.depth), (1 << 20, 8));
        assert_eq!(best(&[]), None);
    }

    #[test]
    fn a_model_is_planned_with_what_was_measured() {
        let profile = MachineProfile::assumed(2);
        let small = model("1.5b", &[PathBuf::from("/nowhere/a")], &profile, Some(100e12), 2);
        assert_eq!(small.refused, None);
        assert!(small.parameters > 1_000_000_000 && small.seconds > 0.0 && small.tokens > 0);
        if small.written_bytes > 0 {
            assert!(small.hiding_tokens_gpu.unwrap() > 0 && small.steps_per_1000_tb.unwrap() > 0);
        }
    }
}
