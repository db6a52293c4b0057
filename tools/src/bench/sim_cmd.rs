//! `mt-bench sim`: fresh seeds on all processors for a time, or one seed with its trace.

use super::args::Sim;
use crate::failure::Failure;
use crate::progress::bar;
use crate::say;
use crate::signals::Stop;
use crate::table::{count, line, seconds};
use crate::values::all_threads;
use mt_engine::sim::{self, Mark, Report};
use serde_json::{Map, Value, json};
use std::hash::{BuildHasher, RandomState};
use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Exit code of a failed check.
const FAILED: u8 = 4;

/// Exit code after a stop signal.
const STOPPED: u8 = 130;

/// How often progress is shown.
const LOOK: Duration = Duration::from_millis(200);

/// Runs the simulation.
pub fn run(args: &Sim) -> Result<u8, Failure> {
    match args.seed {
        Some(seed) => replay(seed, args.json),
        None => many(args),
    }
}

/// One seed, with every row of its trace.
fn replay(seed: u64, json: bool) -> Result<u8, Failure> {
    let started = Instant::now();
    let (rows, result) = sim::replay(seed, usize::MAX);
    if !json {
        // A pipe that was closed is no failure.
        let mut out = std::io::stdout().lock();
        _ = rows.iter().try_for_each(|row| writeln!(out, "{row}"));
    }
    let (report, failure) = match result {
        Ok(report) => (report, None),
        // Its rows are shown already.
        Err(failure) => (failure.report.clone(), Some(sim::Failure { rows: Vec::new(), ..*failure })),
    };
    let tally = Tally { seeds: 1, report };
    let outcome = Outcome { first_seed: seed, threads: 1, elapsed: started.elapsed(), tally, failure };
    finish(&outcome, json, false)
}

/// What was run.
#[derive(Default)]
struct Tally {
    seeds: u64,
    report: Report,
}

/// What is printed at the end.
struct Outcome {
    first_seed: u64,
    threads: u64,
    elapsed: Duration,
    tally: Tally,
    failure: Option<sim::Failure>,
}

/// Seeds from a fresh one on, until the time is over, one fails, or a signal comes.
fn many(args: &Sim) -> Result<u8, Failure> {
    let stop = Stop::install(|| ())?;
    let threads = args.threads.map_or_else(all_threads, u64::from);
    let first_seed = RandomState::new().hash_one(0);
    let (started, limit) = (Instant::now(), Duration::from_secs(args.seconds));
    let next = AtomicU64::new(0);
    let ended = AtomicBool::new(false);
    let tally = Mutex::new(Tally::default());
    let failed = Mutex::new(None);
    let shown = bar("simulating", args.json);
    shown.set_length(limit.as_millis() as u64);
    let work = || {
        while !ended.load(Ordering::Relaxed) {
            let seed = first_seed.wrapping_add(next.fetch_add(1, Ordering::Relaxed));
            let result = sim::run(seed);
            let mut tally = tally.lock().expect("no holder panics");
            tally.seeds += 1;
            match result {
                Ok(report) => tally.report.add(&report),
                Err(failure) => {
                    tally.report.add(&failure.report);
                    failed.lock().expect("no holder panics").get_or_insert(*failure);
                    ended.store(true, Ordering::Relaxed);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        (0..threads).for_each(|_| _ = scope.spawn(work));
        while started.elapsed() < limit && !ended.load(Ordering::Relaxed) && !stop.is_asked() {
            std::thread::sleep(LOOK.min(limit.saturating_sub(started.elapsed())));
            shown.set_position(started.elapsed().as_millis() as u64);
            let tally = tally.lock().expect("no holder panics");
            shown.set_message(format!("{} seeds, {} images", count(tally.seeds), count(tally.report.images)));
        }
        ended.store(true, Ordering::Relaxed);
    });
    shown.finish_and_clear();
    let outcome = Outcome {
        first_seed,
        threads,
        elapsed: started.elapsed(),
        tally: tally.into_inner().expect("no holder panics"),
        failure: failed.into_inner().expect("no holder panics"),
    };
    finish(&outcome, args.json, stop.is_asked())
}

/// Prints what was run; the exit code, or the failure.
fn finish(outcome: &Outcome, json: bool, is_stopped: bool) -> Result<u8, Failure> {
    if json {
        say::out(object(outcome));
    } else {
        lines(outcome).iter().for_each(say::out);
    }
    match &outcome.failure {
        Some(failure) => {
            let rows = if json { String::new() } else { format!("\n{}", failure.rows.join("\n")) };
            Err(Failure::new(format!("a check failed; replay it with\n{failure}{rows}"), FAILED))
        }
        None => Ok(if is_stopped { STOPPED } else { 0 }),
    }
}

fn lines(outcome: &Outcome) -> Vec<String> {
    let Tally { seeds, report } = &outcome.tally;
    let faults: u64 = report.faults_by_name().map(|(_, struck)| struck).sum();
    let ran = format!(
        "{} run from {:#018x} on, {} threads, {}",
        count(*seeds),
        outcome.first_seed,
        outcome.threads,
        seconds(outcome.elapsed.as_secs_f64())
    );
    let each = |parts: Vec<(String, u64)>| {
        parts.into_iter().map(|(name, times)| format!("  {:>13}  {name}", count(times))).collect::<Vec<_>>()
    };
    let mut out = vec![
        line("seeds", &ran),
        line("events", &count(report.events)),
        line("crash images", &format!("{} inspected", count(report.images))),
        line("faults", &format!("{} injected", count(faults))),
    ];
    out.extend(each(report.faults_by_name().map(|(name, times)| (name.to_owned(), times)).collect()));
    out.push(line("met", ""));
    out.extend(each(Mark::ALL.map(|mark| (mark.name().to_owned(), report.met(mark))).to_vec()));
    out.push(line("result", if outcome.failure.is_some() { "a check failed" } else { "every check held" }));
    out
}

fn object(outcome: &Outcome) -> Value {
    let Tally { seeds, report } = &outcome.tally;
    let faults: Map<String, Value> =
        report.faults_by_name().map(|(name, struck)| (name.to_owned(), struck.into())).collect();
    let met: Map<String, Value> =
        Mark::ALL.iter().map(|mark| (mark.name().to_owned(), report.met(*mark).into())).collect();
    let failure = outcome.failure.as_ref().map(|failure| {
        json!({
            "seed": format!("{:#018x}", failure.seed),
            "replay": failure.to_string(),
            "check": failure.check.name(),
            "what": failure.what,
            "rows": failure.rows,
        })
    });
    json!({
        "seeds": seeds,
        "first_seed": format!("{:#018x}", outcome.first_seed),
        "threads": outcome.threads,
        "seconds": outcome.elapsed.as_secs_f64(),
        "events": report.events,
        "crash_images": report.images,
        "faults": faults,
        "met": met,
        "failure": failure,
    })
}
