//! The command `mt-bench`: what tests and measures the engine on a machine, apart from any training.
//!
//! A subcommand is a file here and a variant of [`args::Command`].

mod args;
mod io;
pub mod peer;
mod replay;
mod sim_cmd;

use crate::say;
use args::{Cli, Command};
use clap::Parser;
use mt_trainer::run::CommandLine;
use std::ffi::OsString;
use std::process::ExitCode;

/// The command as it is to be typed again: without the program's path.
fn line(words: &[OsString]) -> CommandLine {
    let text = words.iter().skip(1).map(|word| word.to_string_lossy().into_owned());
    CommandLine::new(std::iter::once("mt-bench".to_owned()).chain(text).collect())
}

/// Runs the command with the words of the command line.
pub fn main(words: impl IntoIterator<Item = OsString>) -> ExitCode {
    say::program("mt-bench");
    let words: Vec<OsString> = words.into_iter().collect();
    let cli = match Cli::try_parse_from(&words) {
        Ok(cli) => cli,
        // Help and version are no errors to clap either: it knows the stream and the code.
        Err(error) => error.exit(),
    };
    let result = match &cli.command {
        Command::Sim(args) => sim_cmd::run(args),
        Command::Io(args) => io::run(args),
        Command::Replay(args) => replay::run(args, &line(&words)),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            say::err(&failure.text);
            ExitCode::from(failure.code)
        }
    }
}
