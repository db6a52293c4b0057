//! `mt train`.

use crate::STOPPED;
use crate::args::Train;
use crate::device;
use crate::failure::Failure;
use crate::layers::Layers;
use crate::profiles::{self, Request};
use crate::progress::Progress;
use crate::resolve::{Purpose, Resolved, resolve};
use crate::say;
use clap::ArgMatches;
use mt_trainer::Error;
use mt_trainer::run::{CommandLine, Ending, Event, Observer, Process, planned_stores, quoted, train, wanted};
use std::path::Path;
use std::time::Instant;

/// Trains, or with `--print-config` shows what would be trained with.
pub fn run(args: &Train, flags: &ArgMatches, command: CommandLine, started: Instant) -> Result<u8, Failure> {
    check_config(args)?;
    let layers = Layers::merge(flags, args.config.as_deref().map(Path::new))?;
    go(&layers, command, started).map_err(|failure| Failure { in_json: layers.is_on("json"), ..failure })
}

fn go(layers: &Layers, mut command: CommandLine, started: Instant) -> Result<u8, Failure> {
    let mut resolved = resolve(layers, Purpose::Train)?;
    let in_json = layers.is_on("json");
    if layers.is_on("print-config") {
        print_config(layers);
        return Ok(0);
    }
    layers.places().for_each(|(flag, place)| command.place(flag, place));
    let mut progress = Progress::new(in_json)?;
    let request = Request {
        stores: planned_stores(&resolved.settings, resolved.run.as_deref()),
        threads: resolved.settings.threads,
        wanted: wanted(&resolved.settings),
        gpu: device::wanted(&resolved),
    };
    let profile = resolved.profile.obtain(&request)?;
    if let Some(why) = device::choose(&mut resolved, &profile, &request.stores, &command) {
        progress.event(&Event::Notice(&why));
    }
    let Resolved { settings, run, stop_at, export, trace, profile: choice, .. } = resolved;
    let process = Process { stop_at, export, started, command, profile, trace, gpu_cache: profiles::gpu_cache() };
    let summary = train(&settings, run.as_deref(), &process, &mut progress)?;
    choice.learn(&request, &summary.measured);
    Ok(code(summary.ending))
}

/// Prints what every option is, and from where.
pub fn print_config(layers: &Layers) {
    match layers.is_on("json") {
        true => say::out(layers.json()),
        false => say::out(layers.print().trim_end()),
    }
}

/// Refuses a text that was given without a flag of its own, which reads as the file with the settings.
pub fn check_config(args: &Train) -> Result<(), Failure> {
    let Some(config) = args.config.as_ref().filter(|config| !args.data.is_empty() && !config.ends_with(".toml")) else {
        return Ok(());
    };
    Err(Error::Input {
        place: "command line".to_owned(),
        field: "CONFIG.toml".to_owned(),
        expected: "a file whose name ends with .toml".to_owned(),
        found: config.clone(),
        hint: Some(format!("a text needs a flag of its own: --data {}", quoted(config))),
    }
    .into())
}

/// Exit code of a run that went without an error.
pub fn code(ending: Ending) -> u8 {
    match ending {
        Ending::Done | Ending::Finished => 0,
        Ending::Stopped => STOPPED,
    }
}
