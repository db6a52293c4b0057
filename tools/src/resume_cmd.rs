//! `mt resume`.

use crate::args::Resume;
use crate::device::wanted_by;
use crate::failure::Failure;
use crate::progress::Progress;
use crate::say;
use crate::train_cmd::code;
use crate::{profiles, values};
use mt_trainer::Error;
use mt_trainer::run::{Changes, CommandLine, Process, Resumed, Traced, WantedByRun, resume, wanted_by_run};
use mt_trainer::settings::{Auto, STEPS_MAX};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Goes on with a run.
pub fn run(args: &Resume, command: CommandLine, started: Instant) -> Result<u8, Failure> {
    let threads = read(&args.threads, "threads", values::auto(values::threads))?;
    let changes = Changes {
        steps: read(&args.steps, "steps", values::count(0, STEPS_MAX))?,
        allow_steps: args.allow_change.iter().any(|what| what == "steps"),
        direct_io: read(&args.direct_io, "direct-io", values::named)?,
        io: read(&args.io, "io", values::named)?,
        ram: read(&args.ram, "ram", values::auto(values::bytes))?,
        threads: threads.map(|threads| match threads {
            Auto::Value(threads) => threads,
            Auto::Auto => values::all_threads(),
        }),
        checkpoint_every: read(&args.checkpoint_every, "checkpoint-every", values::auto(values::count(1, STEPS_MAX)))?,
        disk: read(&args.disk, "disk", values::auto(values::bytes))?,
        max_writes: read(&args.max_writes, "max-writes", values::bytes)?,
        stores: args.store.iter().map(|text| moved(text)).collect::<Result<_, _>>()?,
    };
    let choice = profiles::Choice::parse(&args.profile).map_err(|e| refuse("profile", &e, &args.profile))?;
    let WantedByRun { stores, threads, wanted, device } = wanted_by_run(Path::new(&args.run));
    let threads = changes.threads.or(threads).unwrap_or_else(values::all_threads);
    let request = profiles::Request { stores, threads, wanted, gpu: wanted_by(device) };
    let trace = read(&args.trace, "trace", values::here)?;
    let steps = read(&args.trace_steps, "trace-steps", values::steps)?.unwrap_or(values::TRACED);
    let process = Process {
        stop_at: read(&args.stop_at, "stop-at", values::count(0, STEPS_MAX))?,
        export: read(&args.export, "export", values::here)?,
        started,
        command,
        profile: choice.obtain(&request)?,
        trace: trace.map(|file| Traced { file, steps }),
        gpu_cache: profiles::gpu_cache(),
    };
    let mut progress = Progress::new(args.json)?;
    match resume(Path::new(&args.run), &changes, &process, &mut progress)? {
        Resumed::Went(summary) => {
            choice.learn(&request, &summary.measured);
            Ok(code(summary.ending))
        }
        Resumed::Finished(step) => {
            match args.json {
                true => say::out(json!({"event": "finished", "step": step})),
                false => say::out(format_args!("finished: all {step} steps are done")),
            }
            Ok(0)
        }
    }
}

fn moved(text: &str) -> Result<(PathBuf, PathBuf), Failure> {
    let pair = text.split_once('=').and_then(|(old, new)| Some((values::path(old).ok()?, values::path(new).ok()?)));
    pair.ok_or_else(|| refuse("store", "OLD=NEW", text))
}

/// Reads a flag's value, if it was given.
pub fn read<T>(
    text: &Option<String>,
    flag: &str,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<Option<T>, Failure> {
    let parse = |text: &String| parse(text).map_err(|expected| refuse(flag, &expected, text));
    text.as_ref().map(parse).transpose()
}

/// The refusal of a flag's value.
pub fn refuse(flag: &str, expected: &str, found: &str) -> Failure {
    Error::input("command line", format!("--{flag}"), expected, format!("\"{found}\"")).into()
}
