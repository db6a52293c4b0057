//! The engine's full path, checksums included, against fio on the same file, in turns; or, with `--ceiling`, the engine
//! alone on one, two, four and eight volumes that are faster than drives.
//!
//! `cargo bench -p mt-benches --bench throughput -- --help`. Makes a store of its own (twice `--size`) below each
//! directory and removes it. To be run on a machine that does nothing else.

use clap::Parser;
use mt_benches::Mode;
use mt_benches::load::{REGION, Settings, Store};
use mt_benches::verdict::{RATIO_MIN, verdict};
use mt_engine::bench::Moved;
use mt_engine::{FileRange, extents};
use mt_tools::peer::{HugePages, Ratio, fio, median};
use serde_json::{Value, json};
use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Name of the store's directory in the one that was given.
const STORE: &str = "mt-throughput";

/// Bytes of fio's buffers.
const BUFFER_BYTES: u64 = 32 << 20;

/// Measurements of one mode on one number of volumes; their median counts.
const CEILING_RUNS: usize = 3;

/// Alternates the engine with fio on the same file, for read, write and both at once.
#[derive(Parser)]
struct Args {
    /// Where the store is made: a directory on the drive to be measured.
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// Seconds of each measurement.
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0)]
    seconds: f64,
    /// Pairs of one measurement of the engine and one of fio, for each mode.
    #[arg(long, value_name = "COUNT", default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..))]
    pairs: u32,
    /// Bytes of the pages; the store has two extents a page.
    #[arg(long, value_name = "BYTES", default_value = "4GiB", value_parser = bytes)]
    size: u64,
    /// Bytes of the window, at least 16 MiB.
    #[arg(long, value_name = "BYTES", default_value = "256MiB", value_parser = bytes)]
    window: u64,
    /// Bytes of a run, the unit of leases.
    #[arg(long, value_name = "BYTES", default_value = "4MiB", value_parser = bytes)]
    run: u64,
    /// Largest transfer of the engine. Default: the engine's.
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    transfer: Option<u64>,
    /// Operations of the engine in flight. Default: the engine's.
    #[arg(long, value_name = "COUNT")]
    depth: Option<u32>,
    /// Threads for checksums beside the reactor. Default: the engine's.
    #[arg(long, value_name = "COUNT")]
    checksum_threads: Option<u32>,
    /// Only these modes.
    #[arg(long, value_name = "MODE", value_parser = mode, num_args = 1..)]
    modes: Vec<Mode>,
    /// The engine alone on the first, the first two, four and eight of these directories.
    #[arg(long, value_name = "DIR", num_args = 1.., conflicts_with = "dir")]
    ceiling: Vec<PathBuf>,
    /// Write all measurements to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Passed by cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

impl Args {
    fn length(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }

    fn modes(&self) -> &[Mode] {
        if self.modes.is_empty() { &Mode::ALL } else { &self.modes }
    }

    fn settings(&self, dirs: &[PathBuf]) -> Settings {
        Settings {
            volumes: dirs.iter().map(|dir| dir.join(STORE)).collect(),
            bytes: self.size,
            run_bytes: self.run,
            window_bytes: self.window.max(16 << 20),
            transfer_bytes: self.transfer.map(|bytes| bytes as u32),
            queue_depth: self.depth,
            checksum_threads: self.checksum_threads,
        }
    }
}

fn bytes(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let shift = match &text[digits.len()..] {
        "" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        other => return Err(format!("expected bytes, KiB, MiB or GiB, found {other:?}")),
    };
    digits.parse().map(|n: u64| n << shift).map_err(|e| e.to_string())
}

fn mode(text: &str) -> Result<Mode, String> {
    Mode::ALL.into_iter().find(|m| m.name() == text).ok_or_else(|| "expected read, write or mixed".to_string())
}

fn main() -> ExitCode {
    let args = Args::parse();
    let measured = if args.ceiling.is_empty() { against_fio(&args) } else { ceiling(&args) };
    let written = measured.and_then(|json| match &args.json {
        Some(path) => Ok(std::fs::write(path, serde_json::to_string_pretty(&json)? + "\n")?),
        None => Ok(()),
    });
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("throughput: {error}");
            ExitCode::FAILURE
        }
    }
}

fn against_fio(args: &Args) -> Result<Value, Box<dyn Error>> {
    let version = match fio::version() {
        Ok(version) => version,
        Err(why) => {
            eprintln!("skipped: the comparison with fio ({why})");
            return Ok(json!({ "skipped": why }));
        }
    };
    let huge_pages = HugePages::reserve(BUFFER_BYTES);
    match &huge_pages {
        Ok(_) => println!("{version}, its buffers in huge pages"),
        Err(why) => println!("{version}, its buffers in 4 KiB pages, which is slower: {why}"),
    }
    let store = Store::create(args.settings(std::slice::from_ref(&args.dir)))?;
    let found = extents(store.volumes(), REGION)?;
    let (committed, spare) = (whole(&found.committed)?, whole(&found.spare)?);
    fio::run(&Mode::Write.cell(), spare, None, huge_pages.is_ok())?;
    println!(
        "{}: {} pairs of {} s each, both extents of {} MiB written",
        args.dir.display(),
        args.pairs,
        args.seconds,
        args.size >> 20
    );
    let mut report = Vec::new();
    for &mode in args.modes() {
        let range = if mode == Mode::Read { committed } else { spare };
        let mut pairs: Vec<(Moved, Moved)> = Vec::new();
        for number in 0..args.pairs {
            let engine_first = number % 2 == 0;
            let before = if engine_first { Some(store.measure(mode, args.length())?) } else { None };
            let peer = fio::run(&mode.cell(), range, Some(args.length()), huge_pages.is_ok())?;
            let engine = match before {
                Some(sample) => sample,
                None => store.measure(mode, args.length())?,
            };
            println!(
                "{:<6} {:>3}  engine {:>6.3} GB/s  fio {:>6.3} GB/s  ratio {:.3}",
                mode.name(),
                number + 1,
                engine.rate() / 1e9,
                peer.rate() / 1e9,
                engine.rate() / peer.rate()
            );
            pairs.push((engine, peer));
        }
        report.push(summary(mode, args.seconds, &pairs));
    }
    Ok(json!({ "fio": version, "huge_pages": huge_pages.is_ok(), "seconds": args.seconds, "modes": report }))
}

/// The one range that a side of the region is, as it is where all pages were written equally often.
fn whole(ranges: &[FileRange]) -> Result<&FileRange, Box<dyn Error>> {
    match ranges {
        [range] => Ok(range),
        more => Err(format!("expected one range of the file, found {}", more.len()).into()),
    }
}

/// Prints what a mode's pairs show, and returns it with all samples.
fn summary(mode: Mode, seconds: f64, pairs: &[(Moved, Moved)]) -> Value {
    let rates: Vec<(f64, f64)> = pairs.iter().map(|(engine, peer)| (engine.rate(), peer.rate())).collect();
    let ratio = Ratio::of(&rates);
    let verdict = verdict(&ratio, seconds);
    let of = |get: &dyn Fn(&(Moved, Moved)) -> f64| median(&mut pairs.iter().map(get).collect::<Vec<f64>>());
    let (engine, peer) = (of(&|p| p.0.rate()), of(&|p| p.1.rate()));
    let (engine_cpu, peer_cpu) = (of(&|p| cpu_seconds_per_gb(&p.0)), of(&|p| cpu_seconds_per_gb(&p.1)));
    println!(
        "{:<6} median engine {:.3} GB/s, fio {:.3} GB/s; ratio {:.3}, 90% interval {:.3} to {:.3}: {} (at least {})",
        mode.name(),
        engine / 1e9,
        peer / 1e9,
        ratio.median,
        ratio.low,
        ratio.high,
        verdict,
        RATIO_MIN
    );
    println!("{:<6} CPU seconds a GB: engine {engine_cpu:.3}, fio {peer_cpu:.3}", mode.name());
    let sample = |s: &Moved| json!({ "bytes": s.bytes(), "seconds": s.seconds, "cpu_seconds": s.cpu_seconds });
    json!({
        "mode": mode.name(),
        "engine_bytes_per_s": engine,
        "fio_bytes_per_s": peer,
        "ratio": { "median": ratio.median, "low": ratio.low, "high": ratio.high },
        "verdict": verdict,
        "engine_cpu_s_per_gb": engine_cpu,
        "fio_cpu_s_per_gb": peer_cpu,
        "pairs": pairs.iter().map(|(e, f)| json!({ "engine": sample(e), "fio": sample(f) })).collect::<Vec<Value>>(),
    })
}

/// Processor seconds for 10^9 bytes.
fn cpu_seconds_per_gb(moved: &Moved) -> f64 {
    moved.cpu_seconds / (moved.bytes() as f64 / 1e9)
}

fn ceiling(args: &Args) -> Result<Value, Box<dyn Error>> {
    let mut report = Vec::new();
    for volumes in [1, 2, 4, 8].into_iter().filter(|&n| n <= args.ceiling.len()) {
        let store = match Store::create(args.settings(&args.ceiling[..volumes])) {
            Err(mt_engine::Error::Config { what }) if volumes > 1 => {
                eprintln!("skipped: {volumes} volumes ({what})");
                continue;
            }
            made => made?,
        };
        for &mode in args.modes() {
            let mut samples = Vec::new();
            for _ in 0..CEILING_RUNS {
                samples.push(store.measure(mode, args.length())?);
            }
            let of = |get: fn(&Moved) -> f64| median(&mut samples.iter().map(get).collect::<Vec<f64>>());
            let (rate, cpu) = (of(Moved::rate), of(cpu_seconds_per_gb));
            println!(
                "{volumes} {:<7} {:<6} {:>6.2} GB/s, {cpu:.3} CPU seconds a GB",
                if volumes == 1 { "volume" } else { "volumes" },
                mode.name(),
                rate / 1e9
            );
            report.push(json!({
                "volumes": volumes, "mode": mode.name(), "bytes_per_s": rate, "cpu_s_per_gb": cpu,
            }));
        }
    }
    Ok(json!({ "ceiling": report }))
}
