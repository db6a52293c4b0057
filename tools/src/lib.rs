//! The command `mt`: flags, files, progress and exit codes around the trainer library. And `mt-bench`, around the engine
//! alone.
//!
//! What it is not: it decides nothing about training. Values are text until `resolve.rs`, settings from there on.
//!
//! Human text goes to stdout and errors to stderr; with `--json`, stdout carries JSON lines alone.

mod args;
mod bench;
mod export_cmd;
mod failure;
mod inspect_cmd;
mod layers;
mod list_cmd;
mod options;
mod progress;
mod report;
mod resolve;
mod resume_cmd;
mod signals;
mod table;
mod toml_file;
mod train_cmd;
mod values;
mod verify_cmd;

pub use bench::main as bench_main;
pub use failure::Failure;

use args::{Cli, Command};
use clap::{CommandFactory, FromArgMatches};
use mt_trainer::run::CommandLine;
use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Instant;

/// Exit code of a run that was stopped and can be resumed.
const STOPPED: u8 = 130;

/// Runs the command. `started` is the start of the process; `words` are those of the command line.
pub fn main(started: Instant, words: impl IntoIterator<Item = OsString>) -> ExitCode {
    let words: Vec<OsString> = words.into_iter().collect();
    let matches = match Cli::command().try_get_matches_from(&words) {
        Ok(matches) => matches,
        // Help and version are no errors to clap either: it knows the stream and the code.
        Err(error) => error.exit(),
    };
    let cli = match Cli::from_arg_matches(&matches) {
        Ok(cli) => cli,
        Err(error) => error.exit(),
    };
    let text = words.iter().map(|word| word.to_string_lossy().into_owned());
    // The program's path would be noise in a command that is to be typed again.
    let command = CommandLine::new(std::iter::once("mt".to_owned()).chain(text.skip(1)).collect());
    let result = match &cli.command {
        Command::Train(args) => {
            let flags = matches.subcommand_matches("train").expect("the subcommand that was parsed");
            train_cmd::run(args, flags, command, started)
        }
        Command::Resume(args) => resume_cmd::run(args, command, started),
        Command::Export(args) => export_cmd::run(args),
        Command::Verify(args) => verify_cmd::run(args),
        Command::Inspect(args) => inspect_cmd::run(args),
        Command::Ls(args) => list_cmd::list(args),
        Command::Rm(args) => list_cmd::remove(args),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            eprintln!("mt: {}", failure.text);
            ExitCode::from(failure.code)
        }
    }
}
