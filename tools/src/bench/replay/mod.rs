//! `mt-bench replay`: an access pattern from a file, planned, predicted and executed by the engine on this machine, so
//! that authors of other systems can test theirs.
//!
//! The store's files lose their names as soon as the engine has opened them, and their folder soon after, so that
//! nothing is left in whatever way it ends. Accesses in the memory of a GPU are replayed in RAM: the engine does not
//! execute them yet.

mod list;
mod shipped;

use super::args::{Replay as Args, SCALE_MIN};
use crate::failure::Failure;
use crate::profiles;
use crate::progress::bar;
use crate::say;
use crate::signals::Stop;
use crate::table::{count, line, rate, seconds};
use list::{List, PAGE_BYTES, Place, Replay};
use mt_engine::plan::{Budget, Residency, Shape, plan};
use mt_engine::probe;
use mt_engine::{
    Config, Engine, Mode, Plan, PlanError, Prediction, Profile, Resource, Run, Schedule, Stats, record_bytes,
};
use mt_trainer::profile::Machine;
use mt_trainer::run::CommandLine;
use mt_trainer::run::size::{flag, human};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes that the drive is measured with where no profile is saved.
const PROBE_BYTES: u64 = 128 << 20;

/// Part of the available RAM that is taken where nothing is said.
const RAM_PART: u64 = 2;

/// Runs it.
pub fn run(args: &Args, command: &CommandLine) -> Result<u8, Failure> {
    let list = List::read(&args.schedule)?.scaled(args.scale);
    let on_device = list.rows.iter().filter(|row| row.4 == Place::Device).count();
    let replay = list.to_engine();
    let dir = args.dir.clone().unwrap_or_else(|| PathBuf::from("."));
    // Before anything is written, so that a signal finds it listening.
    let stop = Stop::install(|| say::err("stopping; nothing is left behind"))?;
    let profile = profile(&dir)?;
    let ram = args.ram.unwrap_or_else(|| crate::machine::host::Host::this().available_bytes / RAM_PART);
    let free = mt_engine::free_bytes(&dir).map_err(mt_trainer::Error::from)?;
    let planned = planned(&replay, ram, free, &profile).map_err(|error| {
        let lacking = Lacking { args, records: record_bytes(&replay.regions), ram, free };
        lacking.refusal(&error, command)
    })?;
    let about = About { list: &list, replay: &replay, planned: &planned, on_device, ram, scale: args.scale };
    if !args.json {
        about.lines().iter().for_each(say::out);
    }
    let passes = if args.plan_only { None } else { Some(execute(&replay, &planned, &dir, ram, args, &stop)?) };
    match &passes {
        _ if args.json => say::out(about.json(passes.as_ref())),
        Some(passes) => about.replayed(passes).iter().for_each(say::out),
        None => {}
    }
    Ok(0)
}

/// The saved profile's rates, or those of a quick look at the drive.
fn profile(dir: &Path) -> Result<Profile, Failure> {
    if let Some(saved) = profiles::saved(&Machine::this()) {
        return Ok(saved.rates(&[dir.to_path_buf()], 1, None).engine);
    }
    let rates = probe::disk(dir, PROBE_BYTES).map_err(mt_trainer::Error::from)?;
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
    Ok(Profile {
        disk_read_bytes_per_s: rates.read_bytes_per_s,
        disk_write_bytes_per_s: rates.write_bytes_per_s,
        disk_mixed_bytes_per_s: rates.mixed_bytes_per_s,
        disk_latency_s: rates.latency_s,
        cores,
        compute_threads: 1,
        ..Profile::default()
    })
}

/// What is executed, and what it is expected to cost.
struct Planned {
    /// Writes every run once.
    fill: Arc<Plan>,
    /// A pass.
    steady: Arc<Plan>,
    prediction: Prediction,
}

/// A schedule that does not fit, and where.
struct Lacking<'a> {
    args: &'a Args,
    /// Bytes of RAM that the store's records take.
    records: u64,
    ram: u64,
    /// Bytes that are free in the store's folder.
    free: u64,
}

impl Lacking<'_> {
    /// The refusal, with a command that fits: with the RAM that is missing, as far as it may be taken, and with a
    /// smaller scale where that is not enough.
    fn refusal(&self, error: &PlanError, command: &CommandLine) -> Failure {
        let PlanError::DoesNotFit { nearest, .. } = error else {
            return Failure::input(format!("the schedule cannot be replayed: {error}"));
        };
        let need = self.records + nearest.host_bytes;
        let mut missing = Vec::new();
        if need > self.ram {
            missing.push(format!("RAM needs {}, has {}", human(need), human(self.ram)));
        }
        if nearest.disk_bytes > self.free {
            let (need, free) = (human(nearest.disk_bytes), human(self.free));
            missing.push(format!("the store needs {need}, its folder (--dir) has {free} free"));
        }
        let taken = crate::machine::host::Host::this().available_bytes / RAM_PART;
        let ram = self.ram.max(need.min(taken)).next_multiple_of(1 << 20);
        let way = self.scale_that_fits(ram).map_or(String::new(), |scale| {
            let ram = (ram > self.ram).then(|| ("ram", flag(ram)));
            let scale = (scale < self.args.scale).then(|| ("scale", scale.to_string()));
            let flags: Vec<_> = [ram, scale].into_iter().flatten().collect();
            format!("; run: {}", command.with_all(&flags))
        });
        Failure::new(format!("the schedule cannot be replayed here: {}{way}", missing.join("; ")), 3)
    }

    /// The scale that was asked for, or the largest that fits of those that halve it again and again, if one does.
    fn scale_that_fits(&self, ram: u64) -> Option<f64> {
        let list = List::read(&self.args.schedule).ok()?;
        let fits = |scale: &f64| {
            planned(&list.clone().scaled(*scale).to_engine(), ram, self.free, &Profile::default()).is_ok()
        };
        let scales = std::iter::successors(Some(self.args.scale), |scale| Some(scale / 2.0));
        scales.take_while(|scale| *scale >= SCALE_MIN).find(fits)
    }
}

/// Within bytes of RAM, and of free space in the store's folder.
fn planned(replay: &Replay, ram: u64, free: u64, profile: &Profile) -> Result<Planned, PlanError> {
    let host_bytes = ram.saturating_sub(record_bytes(&replay.regions));
    let budget = Budget { host_bytes, device_bytes: Vec::new(), disk_bytes: free };
    let shape = Shape { regions: &replay.regions, sweeps_per_commit: 0, prefetch_intervals_max: None, has_disk: true };
    let schedule = Arc::new(replay.schedule.clone());
    let (steady, prediction) = plan(&schedule, &shape, &budget, profile, &Residency::default())?;
    let mut writes = Schedule::default();
    for run in &replay.runs {
        let access = writes.access(*run, Mode::Write, 0);
        writes.work(Resource::HostCompute, 0, vec![access], 0);
    }
    let entry = Residency { prefetched: Vec::new(), fixed: true, ..steady.exit.clone() };
    let (fill, _) = plan(&Arc::new(writes), &shape, &budget, profile, &entry)?;
    Ok(Planned { fill: Arc::new(fill), steady: Arc::new(steady), prediction })
}

/// What passes took.
struct Passes {
    seconds: Vec<f64>,
    read_bytes: u64,
    written_bytes: u64,
    waited_seconds: f64,
}

impl Passes {
    fn median(&self) -> f64 {
        let mut sorted = self.seconds.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        super::io::middle(&sorted)
    }
}

/// Makes a store, writes every run, and goes through the passes; the first one, which finds nothing fetched, does not
/// count.
fn execute(
    replay: &Replay,
    planned: &Planned,
    dir: &Path,
    ram: u64,
    args: &Args,
    stop: &Stop,
) -> Result<Passes, Failure> {
    let failed = |error: mt_engine::Error| Failure::from(mt_trainer::Error::from(error));
    let shown = bar("replaying", args.json);
    let go_on = || if stop.is_asked() { Err(Failure::new("stopped; nothing was left behind", 130)) } else { Ok(()) };
    go_on()?;
    let store = dir.join(format!("replay-{}.mt", std::process::id()));
    std::fs::create_dir(&store).map_err(|e| Failure::new(format!("{}: {e}", store.display()), 4))?;
    let made = Engine::create(Config::new(vec![store.clone()], ram), &replay.regions);
    // The engine's files stay open: whatever comes now, nothing of them is left.
    let unlinked = unlink_all(&store);
    let steady = &planned.steady;
    let placed = made.and_then(|engine| engine.place(&steady.exit, &steady.spilled).map(|()| engine));
    // It asks for the space of its folder until the runs are placed.
    let removed = std::fs::remove_dir(&store);
    let engine = placed.map_err(failed)?;
    unlinked.and(removed).map_err(|e| Failure::new(format!("removing {}: {e}", store.display()), 4))?;
    shown.set_length((replay.runs.len() + (args.passes as usize + 1) * replay.steps.len()) as u64);
    let mut number = 1;
    let sweep = engine.sweep(&planned.fill, None).map_err(failed)?;
    for run in &replay.runs {
        fill(&mut sweep.host_mut(*run).map_err(failed)?, &mut number);
        shown.inc(1);
        go_on()?;
    }
    sweep.finish().map_err(failed)?;
    let mut passes = Passes { seconds: Vec::new(), read_bytes: 0, written_bytes: 0, waited_seconds: 0.0 };
    let mut before = engine.stats();
    for pass in 0..=args.passes {
        let start = Instant::now();
        // Without the next pass the last one would fetch what nobody takes any more.
        let next = (pass < args.passes).then_some(steady);
        let sweep = engine.sweep(steady, next).map_err(failed)?;
        walk(&sweep, replay, &|| shown.inc(1), &go_on)?;
        sweep.finish().map_err(failed)?;
        let time = start.elapsed();
        if pass == 0 {
            before = engine.stats();
            continue;
        }
        passes.seconds.push(time.as_secs_f64());
    }
    let Stats { disk_read_bytes, disk_write_bytes, wait_ns, .. } = engine.stats();
    let count = u64::from(args.passes);
    passes.read_bytes = (disk_read_bytes - before.disk_read_bytes) / count;
    passes.written_bytes = (disk_write_bytes - before.disk_write_bytes) / count;
    passes.waited_seconds = (wait_ns - before.wait_ns) as f64 * 1e-9 / count as f64;
    shown.finish_and_clear();
    Ok(passes)
}

/// Takes the names from all files of a folder.
fn unlink_all(folder: &Path) -> std::io::Result<()> {
    std::fs::read_dir(folder)?.try_for_each(|entry| std::fs::remove_file(entry?.path()))
}

/// A lease of either kind.
enum Lease<'a> {
    Read { _held: mt_engine::HostLease<'a> },
    Changed { _held: mt_engine::HostLeaseMut<'a> },
}

/// Takes the runs in their order and computes with them.
fn walk(
    sweep: &mt_engine::Sweep<'_>,
    replay: &Replay,
    done: &dyn Fn(),
    go_on: &dyn Fn() -> Result<(), Failure>,
) -> Result<(), Failure> {
    let failed = |error: mt_engine::Error| Failure::from(mt_trainer::Error::from(error));
    let mut held = Vec::new();
    for step in &replay.steps {
        go_on()?;
        held.push(match step.mode {
            Mode::Read => Lease::Read { _held: sweep.host(step.run).map_err(failed)? },
            Mode::Write | Mode::Update => Lease::Changed { _held: sweep.host_mut(step.run).map_err(failed)? },
        });
        if step.computes {
            busy(Duration::from_nanos(step.ns));
            held.clear();
        }
        done();
    }
    Ok(())
}

/// Keeps this core busy.
fn busy(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// Fills bytes with numbers that no drive can shrink.
fn fill(bytes: &mut [u8], number: &mut u64) {
    for word in bytes.as_chunks_mut::<8>().0 {
        *number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
        *word = (*number ^ (*number >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9).to_le_bytes();
    }
}

/// What is said of a replay.
struct About<'a> {
    list: &'a List,
    replay: &'a Replay,
    planned: &'a Planned,
    on_device: usize,
    ram: u64,
    scale: f64,
}

impl About<'_> {
    fn bytes(&self) -> u64 {
        let pages = |run: &Run| u64::from(run.count);
        self.replay.runs.iter().map(pages).sum::<u64>() * u64::from(PAGE_BYTES)
    }

    fn computing(&self) -> f64 {
        self.replay.steps.iter().map(|step| step.ns as f64 * 1e-9).sum()
    }

    fn lines(&self) -> Vec<String> {
        let (plan, predicted) = (&self.planned.steady, &self.planned.prediction);
        let scale = if self.scale == 1.0 { String::new() } else { format!(", scaled by {}", self.scale) };
        let mut out = vec![
            line("schedule", &format!("{}{scale}", self.list.name)),
            line(
                "",
                &format!(
                    "{} uses of {} runs, {} in pages of {}; computes {} a pass",
                    count(self.replay.steps.len() as u64),
                    count(self.replay.runs.len() as u64),
                    human(self.bytes()),
                    human(PAGE_BYTES.into()),
                    seconds(self.computing())
                ),
            ),
            line(
                "plan",
                &format!(
                    "{} of RAM: {} of the runs stay, a window of {} for the rest",
                    human(self.ram),
                    human(plan.placed_bytes),
                    human(plan.window_bytes)
                ),
            ),
            line(
                "predicted",
                &format!(
                    "{} a pass, at least {}; {} read, {} written",
                    seconds(predicted.seconds),
                    seconds(predicted.lower_bound_seconds),
                    human(predicted.disk.read_bytes),
                    human(predicted.disk.write_bytes)
                ),
            ),
        ];
        if self.on_device > 0 {
            let text = format!("{} uses in a GPU's memory are replayed in RAM", count(self.on_device as u64));
            out.push(line("note", &text));
        }
        out
    }

    fn replayed(&self, passes: &Passes) -> Vec<String> {
        let median = passes.median();
        let (low, high) = passes.seconds.iter().fold((f64::MAX, 0.0_f64), |(low, high), s| (low.min(*s), high.max(*s)));
        vec![
            line(
                "replayed",
                &format!(
                    "{} a pass ({} to {}, {} passes after one that warms up); {} read at {}, {} written at {}",
                    seconds(median),
                    seconds(low),
                    seconds(high),
                    passes.seconds.len(),
                    human(passes.read_bytes),
                    rate(passes.read_bytes, median),
                    human(passes.written_bytes),
                    rate(passes.written_bytes, median)
                ),
            ),
            line(
                "",
                &format!(
                    "waited {} a pass for pages; {:.2} times as long as predicted",
                    seconds(passes.waited_seconds),
                    median / self.planned.prediction.seconds
                ),
            ),
        ]
    }

    fn json(&self, passes: Option<&Passes>) -> serde_json::Value {
        let (plan, predicted) = (&self.planned.steady, &self.planned.prediction);
        json!({
            "name": self.list.name,
            "scale": self.scale,
            "uses": self.replay.steps.len(),
            "runs": self.replay.runs.len(),
            "bytes": self.bytes(),
            "compute_seconds": self.computing(),
            "on_device": self.on_device,
            "ram_bytes": self.ram,
            "placed_bytes": plan.placed_bytes,
            "window_bytes": plan.window_bytes,
            "predicted": {
                "seconds": predicted.seconds,
                "lower_bound_seconds": predicted.lower_bound_seconds,
                "read_bytes": predicted.disk.read_bytes,
                "written_bytes": predicted.disk.write_bytes,
            },
            "replayed": passes.map(|passes| json!({
                "median_seconds": passes.median(),
                "seconds": passes.seconds,
                "read_bytes": passes.read_bytes,
                "written_bytes": passes.written_bytes,
                "waited_seconds": passes.waited_seconds,
            })),
        })
    }
}
