//! The command line of `mt-bench`.

use clap::{Args, Parser, Subcommand};

/// Tests and measures the engine of MegaTrain on this machine.
#[derive(Parser, Debug)]
#[command(
    name = "mt-bench",
    version,
    max_term_width = 110,
    after_help = "Exit codes: 0 done, 2 bad input, 4 a check failed, 130 stopped.\n\nExamples:\n  \
        mt-bench sim\n  mt-bench sim --seconds 3600"
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
            Err(_) => None,
        };
        assert_eq!(seed_of(&["mt-bench", "sim", "--seed", "0x00000000000000ff"]), Some(255));
        assert_eq!(seed_of(&["mt-bench", "sim", "--seed", "255"]), Some(255));
        assert_eq!(seed_of(&["mt-bench", "sim", "--seed", "ff"]), None);
        assert_eq!(seed_of(&["mt-bench", "sim", "--seed", "1", "--seconds", "5"]), None);
    }
}
