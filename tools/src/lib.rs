//! The command `mt`: flags, files, progress and exit codes around the trainer library. And `mt-bench`, around the
//! engine alone.
//!
//! What it is not: it decides nothing about training. Values are text until `resolve.rs`, settings from there on.
//!
//! Human text goes to stdout and errors to stderr; with `--json`, stdout carries JSON lines alone, the last of which
//! says how the command ended.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod allocator;
mod args;
mod bench;
mod device;
mod doctor_cmd;
mod export_cmd;
mod failure;
mod inspect_cmd;
mod layers;
mod list_cmd;
mod machine;
mod options;
mod plan_cmd;
mod plan_text;
mod probe_cmd;
mod profiles;
mod progress;
mod report;
mod report_cmd;
mod report_page;
mod resolve;
mod resume_cmd;
mod say;
mod signals;
mod table;
mod toml_file;
mod train_cmd;
mod values;
mod verify_cmd;

pub use bench::main as bench_main;
pub use bench::peer;
pub use failure::Failure;

use args::{Cli, Command};
use clap::{ArgMatches, CommandFactory, FromArgMatches};
use mt_trainer::run::CommandLine;
use serde_json::json;
use std::ffi::OsString;
use std::panic::AssertUnwindSafe;
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
    // What is wrong in the program itself ends as an I/O error does: the last commit stands. The panic has been
    // printed.
    let run = || run(&cli.command, &matches, command, started);
    let panicked = |_| Err(Failure::new("the program failed; please report the message above", 4));
    let failure = match std::panic::catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(panicked) {
        Ok(code) => return ExitCode::from(code),
        Err(failure) => failure,
    };
    if failure.in_json || cli.command.is_json() {
        let event = if failure.code == STOPPED { "stopped" } else { "failed" };
        say::out(json!({"event": event, "code": failure.code, "message": failure.text}));
    }
    say::err(failure.text);
    ExitCode::from(failure.code)
}

fn run(command: &Command, matches: &ArgMatches, line: CommandLine, started: Instant) -> Result<u8, Failure> {
    match command {
        Command::Train(args) => {
            let flags = matches.subcommand_matches("train").expect("the subcommand that was parsed");
            train_cmd::run(args, flags, line, started)
        }
        Command::Plan(args) => {
            let flags = matches.subcommand_matches("plan").expect("the subcommand that was parsed");
            plan_cmd::run(args, flags, line)
        }
        Command::Resume(args) => resume_cmd::run(args, line, started),
        Command::Export(args) => export_cmd::run(args),
        Command::Verify(args) => verify_cmd::run(args),
        Command::Inspect(args) => inspect_cmd::run(args),
        Command::Report(args) => report_cmd::run(args),
        Command::Probe(args) => probe_cmd::run(args),
        Command::Doctor(args) => doctor_cmd::run(args),
        Command::Ls(args) => list_cmd::list(args),
        Command::Rm(args) => list_cmd::remove(args),
    }
}
