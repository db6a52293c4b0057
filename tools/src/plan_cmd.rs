//! `mt plan`.

use crate::args::Plan;
use crate::failure::Failure;
use crate::layers::Layers;
use crate::plan_text;
use crate::profiles::Request;
use crate::resolve::{Purpose, resolve};
use crate::say;
use crate::train_cmd::{check_config, print_config};
use clap::ArgMatches;
use mt_trainer::Error;
use mt_trainer::model::shapes::{self, NamedShape, SHAPES};
use mt_trainer::run::{CommandLine, Question, plan, planned_stores, wanted};
use std::path::Path;

/// Prints what a run would do, or the known shapes.
pub fn run(args: &Plan, flags: &ArgMatches, command: CommandLine) -> Result<u8, Failure> {
    if args.list_shapes {
        plan_text::shapes().iter().for_each(say::out);
        return Ok(0);
    }
    let shape = match &args.shape {
        None => None,
        Some(name) => Some(shapes::find(name).ok_or_else(|| unknown(name))?),
    };
    check_config(&args.train)?;
    let layers = Layers::merge(flags, args.train.config.as_deref().map(Path::new), shape.is_some())?;
    go(&layers, shape, command).map_err(|failure| Failure { in_json: layers.is_on("json"), ..failure })
}

fn go(layers: &Layers, shape: Option<&NamedShape>, mut command: CommandLine) -> Result<u8, Failure> {
    let mut resolved = resolve(layers, Purpose::Plan)?;
    if layers.is_on("print-config") {
        print_config(layers);
        return Ok(0);
    }
    layers.places().for_each(|(flag, place)| command.place(flag, place));
    let stores = planned_stores(&resolved.settings, resolved.run.as_deref());
    let profile = resolved.profile.obtain(&Request {
        stores: stores.clone(),
        threads: resolved.settings.threads,
        wanted: wanted(&resolved.settings, shape),
    })?;
    if resolved.profile.is_file() && !layers.is_said("threads") {
        // Of the machine that is planned for.
        resolved.settings.threads = profile.machine.cores.into();
    }
    let report = plan(&Question {
        settings: &resolved.settings,
        shape,
        profile: &profile,
        resident_bytes: None,
        stores,
        drive_life_bytes: resolved.drive_life_bytes,
        command: &command,
    })?;
    match layers.is_on("json") {
        true => say::out(serde_json::to_string(&report).expect("a report holds only numbers and text")),
        false => plan_text::report(&report).iter().for_each(say::out),
    }
    Ok(0)
}

fn unknown(name: &str) -> Failure {
    let names: Vec<&str> = SHAPES.iter().map(|shape| shape.name).collect();
    Error::Input {
        place: "command line".to_owned(),
        field: "--shape".to_owned(),
        expected: format!("one of {}", names.join(", ")),
        found: format!("\"{name}\""),
        hint: Some("mt plan --list-shapes prints their dimensions".to_owned()),
    }
    .into()
}
