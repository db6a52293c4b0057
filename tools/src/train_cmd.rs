//! `mt train`.

use crate::STOPPED;
use crate::args::Train;
use crate::failure::Failure;
use crate::layers::Layers;
use crate::progress::Progress;
use crate::resolve::resolve;
use crate::signals::Stop;
use clap::ArgMatches;
use mt_trainer::run::{CommandLine, Ending, Process, train};
use std::path::Path;
use std::time::Instant;

/// Trains, or with `--print-config` shows what would be trained with.
pub fn run(args: &Train, flags: &ArgMatches, command: CommandLine, started: Instant) -> Result<u8, Failure> {
    let layers = Layers::merge(flags, args.config.as_deref().map(Path::new))?;
    let resolved = resolve(&layers)?;
    if layers.is_on("print-config") {
        print!("{}", layers.print());
        return Ok(0);
    }
    let mut progress = Progress::new(Stop::install()?, layers.is_on("json"));
    let process = Process { stop_at: resolved.stop_at, export: resolved.export, started, command };
    let summary = train(&resolved.settings, resolved.run.as_deref(), &process, &mut progress)?;
    Ok(code(summary.ending))
}

/// Exit code of a run that went without an error.
pub fn code(ending: Ending) -> u8 {
    match ending {
        Ending::Done | Ending::Finished => 0,
        Ending::Stopped => STOPPED,
    }
}
