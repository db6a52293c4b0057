//! The command line of `mt-bench`.

use super::io::Through;
use crate::failure::Failure;
use clap::{Args, Parser, Subcommand};
use mt_engine::Backend;
use mt_engine::bench::{Cell, UNIT_BYTES};
use std::path::PathBuf;
use std::time::Duration;

/// Tests and measures the engine of MegaTrain on this machine.
#[derive(Parser, Debug)]
#[command(
    name = "mt-bench",
    version,
    max_term_width = 110,
    after_help = "Exit codes: 0 done, 2 bad input, 3 does not fit, 4 I/O error or a check failed, 130 stopped.\n\n\
        Examples:\n  mt-bench io /nvme0\n  mt-bench io /nvme0 /nvme1 --full --html io.html\n  mt-bench sim"
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Simulate stores on disks that reorder, tear, fail and lie, and check every image that a crash leaves
    #[command(
        after_help = "Each seed is a world of its own: a small store, its users, its disk and its crashes. Seeds \
        are fresh in each call. A seed that fails is printed as the line that replays it.\n\nExamples:\n  \
        mt-bench sim --seconds 3600\n  \
        mt-bench sim --seconds 600 --threads 4 --json\n  \
        mt-bench sim --seed 0x1f2e3d4c5b6a7988 | less"
    )]
    Sim(Sim),
    /// Measure what drives, memory, cores and GPU do for moving pages, and say what to set
    #[command(
        after_help = "Writes only into files of its own that have no names: nothing is left, also after Ctrl-C or \
        kill -9. Every number is measured three times; ~ marks those whose repeats lie more than a quarter apart. \
        tools/io-report.schema.json describes the JSON.\n\nExamples:\n  mt-bench io --quick\n  \
        mt-bench io /nvme0 /nvme1 --html io.html --save\n  \
        mt-bench io /nvme0 --rw mixed:70 --bs 256KiB --depth 16 --time 30s --against fio\n  \
        mt-bench io --compare before.json after.json"
    )]
    Io(Box<Io>),
    /// Plan, predict and execute an access pattern from a file on this machine
    #[command(
        after_help = "tools/replay-schedule.md describes the file. Shipped: train-7b (a training step) and stream-8b \
        (layers streamed for inference). Nothing is left, also after Ctrl-C or kill -9.\n\nExamples:\n  \
        mt-bench replay train-7b --scale 0.05 --ram 2GiB --dir /nvme0\n  mt-bench replay mine.json --plan-only"
    )]
    Replay(Replay),
}

/// Flags of `mt-bench replay`.
#[derive(Args, Debug)]
pub struct Replay {
    /// A file, or the name of a shipped one
    #[arg(value_name = "SCHEDULE.json")]
    pub schedule: PathBuf,
    /// Folder on the drive [default: the present one]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// RAM for pages [default: half of what is available]
    #[arg(long, value_name = "SIZE", value_parser = crate::values::bytes)]
    pub ram: Option<u64>,
    /// Multiply all bytes and times by this
    #[arg(long, value_name = "F", default_value_t = 1.0, value_parser = scale)]
    pub scale: f64,
    /// Passes that are measured, after one that warms up
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub passes: u32,
    /// Plan and predict, move nothing
    #[arg(long)]
    pub plan_only: bool,
    /// Print one JSON object on stdout
    #[arg(long)]
    pub json: bool,
}

/// The smallest scale of a schedule.
pub const SCALE_MIN: f64 = 1e-6;

fn scale(text: &str) -> Result<f64, String> {
    let scale = text.parse::<f64>().ok().filter(|scale| (SCALE_MIN..=1e3).contains(scale));
    scale.ok_or_else(|| "expected a number from 0.000001 to 1000".to_owned())
}

/// Flags of `mt-bench io`.
#[derive(Args, Debug)]
pub struct Io {
    /// Folders, one a drive [default: the present one]
    #[arg(value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Less than a minute for a path
    #[arg(long, conflicts_with = "full")]
    pub quick: bool,
    /// About ten minutes for a path, of which three write: hundreds of GB on a fast drive [default: two to three
    /// minutes, of which a half writes]
    #[arg(long)]
    pub full: bool,
    /// Bytes of the file on each path, which the long write writes once [default: 4GiB, --quick 1GiB, --full 16GiB; at
    /// most 20% of what is free]
    #[arg(long, value_name = "SIZE", value_parser = crate::values::bytes)]
    pub size: Option<u64>,
    /// Take more than 20% of the free space without asking
    #[arg(long)]
    pub yes: bool,
    /// Number of the GPU, or none [default: 0]
    #[arg(long = "gpu", value_name = "N|none", default_value = "0", hide_default_value = true)]
    pub gpu_text: String,
    /// What patterns go through: the engine's rings or threads, or tokio-uring to compare with [default: the engine's
    /// rings, or threads where rings are forbidden]
    #[arg(long, value_name = "uring|psync|tokio-uring", value_parser = Through::parse)]
    pub engine: Option<Through>,
    /// One pattern alone: read, write, randread, randwrite, or mixed:NN with the part that reads in percent
    #[arg(long, value_name = "KIND", value_parser = kind)]
    pub rw: Option<Kind>,
    /// Bytes of a transfer of that pattern [default: 1MiB]
    #[arg(long, value_name = "SIZE", value_parser = block, requires = "rw")]
    pub bs: Option<u32>,
    /// Transfers in flight of that pattern [default: 32]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024), requires = "rw")]
    pub depth: Option<u32>,
    /// Time of each of its measurements [default: 10s; against fio 5s]
    #[arg(long, value_name = "TIME", value_parser = time, requires = "rw")]
    pub time: Option<Duration>,
    /// Alternate with fio on the same file, 15 pairs a pattern, and print ratios
    #[arg(long, value_name = "fio", value_parser = ["fio"])]
    pub against: Option<String>,
    /// Keep what was measured as this machine's profile for mt plan and mt train
    #[arg(long, conflicts_with = "rw")]
    pub save: bool,
    /// Write the report as JSON; - is stdout, and then nothing else is printed there
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
    /// Write the report as one HTML page
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Compare two reports
    #[arg(long, value_name = "REPORT.json", num_args = 2, conflicts_with_all = ["paths", "rw", "quick", "full"])]
    pub compare: Vec<PathBuf>,
}

/// A pattern's direction and order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kind {
    reads: u32,
    is_random: bool,
}

impl Io {
    /// The one pattern, if one was asked for.
    pub fn cell(&self) -> Option<Cell> {
        let Kind { reads, is_random } = self.rw?;
        let (block_bytes, depth) = (self.bs.unwrap_or(1 << 20), self.depth.unwrap_or(32));
        Some(Cell { reads, is_random, block_bytes, depth, has_checksums: false })
    }

    /// What patterns go through.
    pub fn through(&self) -> Through {
        self.engine.unwrap_or(Through::Engine(Backend::Auto))
    }

    /// Number of the GPU; None: none is wanted.
    ///
    /// # Errors
    /// It is neither (exit code 2).
    pub fn gpu(&self) -> Result<Option<usize>, Failure> {
        match self.gpu_text.as_str() {
            "none" => Ok(None),
            text => text
                .parse()
                .map(Some)
                .map_err(|_| Failure::input(format!("--gpu: expected a number or none, found \"{text}\""))),
        }
    }
}

fn kind(text: &str) -> Result<Kind, String> {
    let kind = |reads, is_random| Ok(Kind { reads, is_random });
    let part = |text: &str| text.parse::<u32>().ok().filter(|part| (1..=99).contains(part));
    match (text, text.split_once(':')) {
        ("read", _) => kind(100, false),
        ("write", _) => kind(0, false),
        ("randread", _) => kind(100, true),
        ("randwrite", _) => kind(0, true),
        (_, Some(("mixed", reads))) => part(reads)
            .map(|reads| Kind { reads, is_random: false })
            .ok_or("expected a part from 1 to 99, as in mixed:70".to_owned()),
        _ => Err("expected read, write, randread, randwrite or mixed:NN".to_owned()),
    }
}

fn block(text: &str) -> Result<u32, String> {
    let bytes = crate::values::bytes(text)?;
    let fits = bytes.is_multiple_of(UNIT_BYTES.into()) && bytes <= 16 << 20;
    if fits { Ok(bytes as u32) } else { Err(format!("expected a multiple of {UNIT_BYTES} bytes up to 16MiB")) }
}

fn time(text: &str) -> Result<Duration, String> {
    let expected = || "expected a time such as 10s, 500ms or 2min".to_owned();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let seconds = match unit {
        "ms" => 1e-3,
        "s" | "" => 1.0,
        "min" => 60.0,
        _ => return Err(expected()),
    };
    let time = number.parse::<f64>().map_err(|_| expected())? * seconds;
    if (0.01..=86_400.0).contains(&time) { Ok(Duration::from_secs_f64(time)) } else { Err(expected()) }
}

/// Flags of `mt-bench sim`.
#[derive(Args, Debug)]
pub struct Sim {
    /// How long to run seeds
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    pub seconds: u64,
    /// Run this seed alone and print its trace: turn, event, pages, and numbers (sequence, offset, bytes, result)
    #[arg(long, value_name = "SEED", value_parser = seed, conflicts_with_all = ["seconds", "threads"])]
    pub seed: Option<u64>,
    /// Threads, each with a seed at a time [default: all processors]
    #[arg(long, value_name = "T", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// Print one JSON object on stdout [default: off]
    #[arg(long)]
    pub json: bool,
}

/// A seed as it is printed, or a decimal number.
fn seed(text: &str) -> Result<u64, String> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    number.map_err(|_| "expected a number such as 0x1f2e3d4c5b6a7988".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_read_as_it_is_printed() {
        let seed_of = |words: &[&str]| match Cli::try_parse_from(words).map(|cli| cli.command) {
            Ok(Command::Sim(sim)) => sim.seed,
            _ => None,
        };
        assert_eq!(seed_of(&["mt-bench", "sim", "--seed", "0x00000000000000ff"]), Some(255));
        assert_eq!(seed_of(&["mt-bench", "sim", "--seed", "255"]), Some(255));
        assert_eq!(seed_of(&["mt-bench", "sim", "--seed", "ff"]), None);
        assert_eq!(seed_of(&["mt-bench", "sim", "--seed", "1", "--seconds", "5"]), None);
    }

    #[test]
    fn one_pattern_is_said_exactly() {
        let cell_of = |words: &str| {
            let words = words.split_whitespace();
            match Cli::try_parse_from(["mt-bench", "io", "/a"].into_iter().chain(words)).map(|cli| cli.command) {
                Ok(Command::Io(io)) => io.cell().map(|cell| (cell, io.time)),
                _ => None,
            }
        };
        let (cell, time) = cell_of("--rw mixed:70 --bs 256KiB --depth 16 --time 1.5s").unwrap();
        assert_eq!((cell.reads, cell.is_random, cell.block_bytes, cell.depth), (70, false, 256 << 10, 16));
        assert_eq!(time, Some(Duration::from_millis(1_500)));
        let (cell, _) = cell_of("--rw randwrite").unwrap();
        assert_eq!((cell.reads, cell.is_random, cell.block_bytes, cell.depth), (0, true, 1 << 20, 32));
        for bad in
            ["--rw mixed", "--rw mixed:0", "--rw trim", "--bs 1MiB", "--rw read --bs 1000", "--rw read --time 1h"]
        {
            assert!(cell_of(bad).is_none(), "{bad}");
        }
    }
}
