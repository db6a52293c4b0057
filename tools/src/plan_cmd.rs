//! `mt plan`.

use crate::args::Plan;
use crate::device;
use crate::failure::Failure;
use crate::layers::Layers;
use crate::plan_text;
use crate::profiles::Request;
use crate::resolve::{Purpose, resolve};
use crate::say;
use crate::train_cmd::{check_config, print_config};
use clap::ArgMatches;
use mt_trainer::default_model;
use mt_trainer::model::shapes::SHAPES;
use mt_trainer::run::{CommandLine, Question, plan, planned_stores, wanted};
use mt_trainer::settings::Auto;
use serde_json::json;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Planning that takes longer is announced.
const PATIENCE: Duration = Duration::from_secs(1);

/// Prints what a run would do, or the known shapes.
pub fn run(args: &Plan, flags: &ArgMatches, command: CommandLine) -> Result<u8, Failure> {
    if args.list_shapes {
        match args.train.json {
            true => say::out(json!({"shapes": SHAPES})),
            false => plan_text::shapes().iter().for_each(say::out),
        }
        return Ok(0);
    }
    check_config(&args.train)?;
    let layers = Layers::merge(flags, args.train.config.as_deref().map(Path::new))?;
    go(&layers, command).map_err(|failure| Failure { in_json: layers.is_on("json"), ..failure })
}

fn go(layers: &Layers, mut command: CommandLine) -> Result<u8, Failure> {
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
        wanted: wanted(&resolved.settings),
        gpu: device::wanted(&resolved),
    })?;
    if resolved.profile.is_file() && !layers.is_said("threads") {
        // Of the machine that is planned for.
        resolved.settings.threads = profile.machine.cores.into();
        let is_built_in = !layers.is_said("model") && !layers.is_said("shape");
        if is_built_in && !layers.is_said("ram") {
            resolved.settings.ram = Auto::Value(default_model::ram(resolved.settings.threads));
        }
    }
    if let Some(why) = device::choose(&mut resolved, &profile, &stores, &command) {
        say::err(why);
    }
    let question = Question {
        settings: &resolved.settings,
        profile: &profile,
        resident_bytes: None,
        stores,
        drive_life_bytes: resolved.drive_life_bytes,
        command: &command,
    };
    let report = announced("planning takes some seconds for a step of this size", || plan(&question))?;
    match layers.is_on("json") {
        true => say::out(serde_json::to_string(&report).expect("a report holds only numbers and text")),
        false => plan_text::report(&report).iter().for_each(say::out),
    }
    Ok(0)
}

/// Works, and says so on stderr once it takes longer than a second.
fn announced<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let (done, is_done) = channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            if is_done.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                say::err(what);
            }
        });
        let found = work();
        drop(done);
        found
    })
}
