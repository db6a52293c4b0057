//! Predicted against measured: twelve configurations of one model, each trained for a few steps in a process of its
//! own, with the machine's profile taken before and after. A configuration whose profile drifted is repeated. The run
//! is planned with the profile from before it; what is compared is the mean of the predictions from both profiles,
//! since a machine that others share changes while a configuration runs.
//!
//! `cargo bench -p mt-benches --bench prediction -- --model DIR`, with `--help` for the rest. Exit code 1 where a
//! prediction is off by more than a tenth, traffic exceeds the formula by more than 3%, the kernel counted more than 3%
//! other bytes for the process at the block layer than the engine, an access was missed or the peak of RAM exceeds the
//! predicted by more than 3%.
//!
//! `--saved FILE` predicts the same runs with a profile that was saved before, too (`mt-bench io --save`), as `mt plan`
//! does where there is one. Exit code 1 then also where its median error is more than a percentage point above that of
//! the profile taken for the run.
//!
//! Traffic by the formula, a parameter: 16 bytes read and 12 written of the state that streams, 4 and 4 of gradients
//! that stream; a head that shares the embedding's weights reads them once more, and its gradient moves twice.

use clap::Parser;
use mt_engine::Stats;
use mt_tests::rig::{Job, Setup};
use mt_tools::peer::median;
use mt_trainer::batch::{Batch, MicroBatch, NO_TARGET};
use mt_trainer::model::{Manifest, ModelConfig};
use mt_trainer::profile::MachineProfile;
use mt_trainer::profile::probe::{Wanted, add, machine};
use mt_trainer::settings::Recompute;
use mt_trainer::step::{Hyper, Prepared};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

/// Largest error of a step's time.
const ERROR_MAX: f64 = 0.10;
/// Largest drift of a profile while a configuration runs, and how often one is repeated.
const DRIFT_MAX: f64 = 0.10;
const TRIES: usize = 3;
/// Traffic and peaks beyond what was said.
const EXCESS_MAX: f64 = 0.03;

/// By how much the saved profile's median error may be the larger one.
const WORSE_MAX: f64 = 0.01;

/// How much of what a step touches stays in RAM.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Room {
    /// All of it.
    All,
    /// Half of it.
    Half,
    /// As little as leaves room to fetch ahead.
    Little,
}

/// One configuration.
#[derive(Clone, Copy, Debug)]
struct Case {
    name: &'static str,
    room: Room,
    /// Rows of a micro-batch, and micro-batches of a step.
    rows: usize,
    micros: usize,
    seq: usize,
    clip: bool,
}

const CASES: [Case; 12] = [
    case("RAM, 4 x 256 tokens", Room::All, 4, 1, 256, true),
    case("RAM, 1 x 256, accumulation 4", Room::All, 1, 4, 256, true),
    case("RAM, 1 x 64", Room::All, 1, 1, 64, true),
    case("RAM, 4 x 256, no clipping", Room::All, 4, 1, 256, false),
    case("half, 4 x 256", Room::Half, 4, 1, 256, true),
    case("half, 1 x 256, accumulation 4", Room::Half, 1, 4, 256, true),
    case("half, 1 x 256, accumulation 16", Room::Half, 1, 16, 256, true),
    case("half, 4 x 256, no clipping", Room::Half, 4, 1, 256, false),
    case("disk, 4 x 256", Room::Little, 4, 1, 256, true),
    case("disk, 1 x 256, accumulation 4", Room::Little, 1, 4, 256, true),
    case("disk, 1 x 64", Room::Little, 1, 1, 64, true),
    case("disk, 4 x 256, no clipping", Room::Little, 4, 1, 256, false),
];

const fn case(name: &'static str, room: Room, rows: usize, micros: usize, seq: usize, clip: bool) -> Case {
    Case { name, room, rows, micros, seq, clip }
}

/// Predicted against measured over twelve configurations.
#[derive(Parser)]
struct Args {
    /// Folder of the model: config.json and weights.
    #[arg(long)]
    model: Option<PathBuf>,
    /// Where stores are made.
    #[arg(long, default_value_os_t = std::env::temp_dir())]
    dir: PathBuf,
    /// Steps that are measured, after two that are not.
    #[arg(long, default_value_t = 4)]
    steps: usize,
    /// Only the configuration of this number, from 1.
    #[arg(long)]
    only: Option<usize>,
    /// A profile of this machine that was saved, to predict with beside the one that is taken for each run.
    #[arg(long)]
    saved: Option<PathBuf>,
    /// Runs one configuration and prints its result: for the process that this one starts.
    #[arg(long, hide = true)]
    child: Option<usize>,
    /// Prints what a step of this configuration is predicted to take: for another such process.
    #[arg(long, hide = true)]
    predict: Option<usize>,
    /// The profile to predict with, for those processes.
    #[arg(long, hide = true)]
    profile: Option<PathBuf>,
    /// Prints a profile for this configuration: for another such process.
    #[arg(long, hide = true)]
    probe: Option<usize>,
    /// Prints the saved profile with this configuration's shapes, as commands use it: for another such process.
    #[arg(long, hide = true)]
    complete: Option<usize>,
    /// Given by cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

fn wanted(config: &ModelConfig, case: &Case) -> Wanted {
    Wanted::new(config, case.rows, case.seq, case.micros)
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn main() -> ExitCode {
    let args = Args::parse();
    let Some(model) = args.model.clone().filter(|model| model.join("config.json").is_file()) else {
        eprintln!("skipped: --model DIR, a folder with config.json and weights, is not given");
        return ExitCode::SUCCESS;
    };
    let config = ModelConfig::read(&model.join("config.json")).expect("a model that is supported");
    if let Some(index) = args.probe {
        let wanted = wanted(&config, &CASES[index]);
        let profile =
            machine(std::slice::from_ref(&args.dir), threads() as u32, &wanted).expect("the machine is measured");
        print!("{}", profile.to_json());
        return ExitCode::SUCCESS;
    }
    if let Some(index) = args.complete {
        let path = args.saved.as_ref().expect("there is a saved profile to complete");
        let mut profile = MachineProfile::read(path).expect("a saved profile");
        add(&mut profile, &wanted(&config, &CASES[index])).expect("the machine is measured");
        print!("{}", profile.to_json());
        return ExitCode::SUCCESS;
    }
    if let Some(index) = args.child.or(args.predict) {
        let path = args.profile.as_ref().expect("a child gets a profile");
        let profile = MachineProfile::read(path).expect("the profile that was just written");
        let trial = Trial { args: &args, case: CASES[index], model: &model, config, profile };
        let printed = if args.child.is_some() { trial.run().to_string() } else { trial.predict().to_string() };
        println!("{printed}");
        return ExitCode::SUCCESS;
    }
    println!(
        "{:<32} {:>9} {:>9} {:>6}{} {:>9} {:>12} {:>17} {:>19} {:>15} {:>6} {:>16} {:>5}",
        "configuration",
        "measured",
        "predicted",
        "error",
        if args.saved.is_some() { format!(" {:>9} {:>6}", "saved", "error") } else { String::new() },
        "bound",
        "binding",
        "MiB read of said",
        "MiB written of said",
        "kernel's MiB",
        "misses",
        "peak MiB of said",
        "tries"
    );
    let chosen = (0..CASES.len()).filter(|index| args.only.is_none_or(|only| only == index + 1));
    let judged: Vec<Judged> = chosen.map(|index| judged(&args, index)).collect();
    if summed_up(&judged) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// How a configuration went.
struct Judged {
    is_good: bool,
    /// Of the prediction, as a part of what was measured.
    error: f64,
    /// The same with the saved profile.
    saved_error: Option<f64>,
}

/// Prints how far off predictions were; whether all is good.
fn summed_up(judged: &[Judged]) -> bool {
    let print = |name: &str, errors: Vec<f64>| {
        let mut sizes: Vec<f64> = errors.into_iter().map(f64::abs).collect();
        let middle = (!sizes.is_empty()).then(|| median(&mut sizes))?;
        let largest = sizes.last().expect("not empty");
        println!("{name}: median error {:.1}%, largest {:.1}%, of {}", 100.0 * middle, 100.0 * largest, sizes.len());
        Some(middle)
    };
    let own = print("profile taken for each run", judged.iter().map(|judged| judged.error).collect());
    let saved = print("saved profile", judged.iter().filter_map(|judged| judged.saved_error).collect());
    let is_no_worse = saved.zip(own).is_none_or(|(saved, own)| saved <= own + WORSE_MAX);
    is_no_worse && judged.iter().all(|judged| judged.is_good)
}

/// Runs a configuration until its profile holds, and prints its line.
fn judged(args: &Args, index: usize) -> Judged {
    let folder = tempfile::tempdir_in(&args.dir).expect("a folder for the profile");
    let file = folder.path().join("profile.json");
    let number = index.to_string();
    for attempt in 1.. {
        let before = child(args, &None, &["--probe", &number]);
        std::fs::write(&file, &before).expect("the profile is written");
        let saved = args.saved.is_some().then(|| {
            let path = folder.path().join("saved.json");
            let completed = child(args, &args.saved, &["--complete", &number]);
            std::fs::write(&path, completed).expect("the profile is written");
            path
        });
        let words = ["--child", &number, "--profile", file.to_str().expect("a UTF-8 path")];
        let mut result: Value = serde_json::from_str(&child(args, &saved, &words)).expect("a child prints its result");
        let after = child(args, &None, &["--probe", &number]);
        std::fs::write(&file, &after).expect("the profile is written");
        let words = ["--predict", &number, "--profile", file.to_str().expect("a UTF-8 path")];
        let then: f64 = child(args, &None, &words).trim().parse().expect("a child prints seconds");
        result["predicted"] = json!(f64::midpoint(result["predicted"].as_f64().expect("a number"), then));
        let drift = drift(&before, &after);
        if drift > DRIFT_MAX && attempt < TRIES {
            eprintln!("{}: the profile drifted by {:.0}%, again", CASES[index].name, 100.0 * drift);
            continue;
        }
        return line(CASES[index].name, &result, attempt, drift);
    }
    unreachable!("the last try is judged")
}

/// Runs this program again with these words and a saved profile, and gives what it printed.
fn child(args: &Args, saved: &Option<PathBuf>, words: &[&str]) -> String {
    let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
    command.arg("--model").arg(args.model.as_ref().expect("checked")).arg("--dir").arg(&args.dir);
    saved.iter().for_each(|path| _ = command.arg("--saved").arg(path));
    command.args(["--steps", &args.steps.to_string()]).args(words);
    let output = command.output().expect("this program starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("its output is text")
}

/// The largest change of the rates that matter most.
fn drift(before: &str, after: &str) -> f64 {
    let read = |text: &str| MachineProfile::parse(text, Path::new("probe")).expect("a probe prints a profile");
    let (before, after) = (read(before), read(after));
    let products = |profile: &MachineProfile| {
        profile.compute.products.iter().map(|point| 1.0 / point.operations_per_s).sum::<f64>()
    };
    let change = |a: f64, b: f64| (a / b - 1.0).abs();
    change(products(&before), products(&after))
        .max(change(before.disks[0].mixed_bytes_per_s, after.disks[0].mixed_bytes_per_s))
}

fn line(name: &str, result: &Value, attempt: usize, drift: f64) -> Judged {
    let number = |key: &str| result[key].as_f64().expect("a number");
    let (predicted, measured) = (number("predicted"), number("measured"));
    let error = predicted / measured - 1.0;
    let saved = result["saved"].as_f64();
    let saved_error = saved.map(|saved| saved / measured - 1.0);
    let beside = saved.zip(saved_error).map(|(saved, error)| format!(" {saved:>7.3} s {:>5.1}%", 100.0 * error));
    let mib = |key: &str| number(key) / f64::from(1 << 20);
    let pair = |found: &str, said: &str| format!("{:.0} of {:.0}", mib(found), mib(said));
    println!(
        "{name:<32} {measured:>7.3} s {predicted:>7.3} s {:>5.1}%{} {:>7.3} s {:>12} {:>17} {:>19} {:>15} {:>6} {:>16} \
         {attempt:>5}{}",
        100.0 * error,
        beside.unwrap_or_default(),
        number("bound"),
        result["binding"].as_str().expect("a name"),
        pair("read", "read_said"),
        pair("written", "written_said"),
        format!("{:.0} + {:.0}", mib("kernel_read"), mib("kernel_written")),
        number("misses"),
        pair("peak", "peak_said"),
        if drift > DRIFT_MAX { " drifted" } else { "" }
    );
    let within = |found: &str, said: &str| number(found) <= number(said) * (1.0 + EXCESS_MAX) + f64::from(1 << 20);
    let alike = |counted: f64, by_kernel: &str| {
        (number(by_kernel) - counted).abs() <= counted * EXCESS_MAX + f64::from(1 << 20)
    };
    let is_good = error.abs() <= ERROR_MAX
        && alike(number("read"), "kernel_read")
        && alike(number("written") + number("commits"), "kernel_written")
        && within("read", "read_said")
        && within("written", "written_said")
        && within("peak", "peak_said")
        && number("misses") == 0.0;
    Judged { is_good, error, saved_error }
}

/// A configuration in its own process.
struct Trial<'a> {
    args: &'a Args,
    case: Case,
    model: &'a Path,
    config: ModelConfig,
    profile: MachineProfile,
}

impl Trial<'_> {
    fn job(&self) -> Job {
        let limit = self.case.clip.then_some(1.0);
        let hyper = Hyper { betas: (0.9, 0.95), eps: 1e-8, weight_decay: 0.1, max_grad_norm: limit };
        Job {
            config: self.config.clone(),
            dir: self.model.to_path_buf(),
            micro_rows: vec![self.case.rows; self.case.micros],
            seq: self.case.seq,
            hyper,
        }
    }

    /// Predicted seconds of a step.
    fn predict(&self) -> f64 {
        let job = self.job();
        let setup = self.setup(&job, self.args.dir.join("store"), &self.profile);
        job.prepare(&setup).expect("the budget suffices").prediction.seconds
    }

    fn run(&self) -> Value {
        let folder = tempfile::tempdir_in(&self.args.dir).expect("a folder for the store");
        let store = folder.path().join("store");
        let job = self.job();
        let setup = self.setup(&job, store.clone(), &self.profile);
        let prepared = job.prepare(&setup).expect("the budget suffices");
        let saved = self.args.saved.as_ref().map(|path| {
            let profile = MachineProfile::read(path).expect("a saved profile");
            let setup = Setup { budget: setup.budget, ..self.setup(&job, store, &profile) };
            job.prepare(&setup).expect("the budget suffices").prediction.seconds
        });
        let base = resident("VmRSS:");
        let mut rig = job.begin(&setup).expect("the store is made");
        let batch = self.batch();
        let step = |rig: &mut mt_tests::rig::Rig| {
            rig.step_committing(&batch, 1e-5, Some(b"a step")).expect("the step runs");
        };
        (0..2).for_each(|_| step(&mut rig));
        let mut times = Vec::new();
        let (before, kernel_before) = (rig.stats(), block_bytes());
        for _ in 0..self.args.steps {
            let begin = Instant::now();
            step(&mut rig);
            times.push(begin.elapsed().as_secs_f64());
        }
        let (after, kernel_after) = (rig.stats(), block_bytes());
        times.sort_by(f64::total_cmp);
        let steps = self.args.steps as u64;
        let each = |count: fn(&Stats) -> u64| (count(&after) - count(&before)) / steps;
        let (read_said, written_said) = self.formula(&prepared);
        let binding = prepared.phases().into_iter().max_by(|a, b| a.seconds.total_cmp(&b.seconds));
        json!({
            "predicted": prepared.prediction.seconds,
            "saved": saved,
            "measured": times[times.len() / 2],
            "bound": prepared.prediction.lower_bound_seconds,
            "binding": binding.map_or("", |phase| phase.binding.name()),
            "read": each(|stats| stats.disk_read_bytes),
            "read_said": read_said,
            "written": each(|stats| stats.disk_write_bytes - stats.commit_bytes),
            "written_said": written_said,
            "commits": each(|stats| stats.commit_bytes),
            "kernel_read": (kernel_after.0 - kernel_before.0) / steps,
            "kernel_written": (kernel_after.1 - kernel_before.1) / steps,
            "misses": after.demand_misses,
            "peak": resident("VmHWM:"),
            "peak_said": base + prepared.arena_bytes + prepared.workspace_bytes,
        })
    }

    fn setup(&self, job: &Job, store: PathBuf, profile: &MachineProfile) -> Setup {
        let rates = profile.rates(std::slice::from_ref(&store), threads() as u32, None);
        let all = Setup {
            stores: vec![store],
            threads: threads(),
            recompute: Recompute::All,
            fused_backward: !self.case.clip,
            stripe_bytes: None,
            rates,
            ..Setup::default()
        };
        let whole = job.prepare(&all).expect("without a budget everything fits");
        let touched = whole.arena_bytes;
        let budget = match self.case.room {
            Room::All => None,
            Room::Half => Some(whole.workspace_bytes + touched / 2),
            Room::Little => Some(job.smallest_budget(&all) + (192 << 20)),
        };
        Setup { budget, ..all }
    }

    fn batch(&self) -> Batch {
        let (rows, seq, vocab) = (self.case.rows, self.case.seq, self.config.vocab as u32);
        let micro = |index: usize| {
            let ids: Vec<u32> = (0..rows * seq).map(|n| ((index * rows * seq + n) as u32 * 7_919) % vocab).collect();
            let next = |at: usize| if at % seq == seq - 1 { NO_TARGET } else { ids[at + 1] };
            let targets = (0..rows * seq).map(next).collect();
            let positions = (0..rows * seq).map(|at| (at % seq) as u32).collect();
            MicroBatch { rows, seq, targets, positions, ids, document: vec![0; rows * seq] }
        };
        Batch { micro: (0..self.case.micros).map(micro).collect() }
    }

    /// Bytes read and written a step, by the formula for what streams; activations as the plan says.
    fn formula(&self, prepared: &Prepared) -> (u64, u64) {
        let parts = prepared.residence();
        let streamed = |name: &str| parts.iter().find(|p| p.region == name).map_or(0, |p| p.streamed_bytes);
        let (weights, moments, gradients) =
            (streamed("hi") + streamed("lo"), streamed("m") + streamed("v"), streamed("grad"));
        let embedding = 4 * Manifest::new(&self.config).units[0].elements as u64;
        let tied = if self.config.tied { embedding } else { 0 };
        let activations = prepared.activation_traffic();
        // Forward with the update, backward; the head's own reads in both directions replace its unit's.
        let read = 2 * weights + moments + gradients + (2 * tied).min(weights) + tied.min(gradients) + activations.0;
        let written = weights + moments + gradients + tied.min(gradients) + activations.1;
        (read, written)
    }
}

/// Bytes that the kernel's block layer has read and written for this process.
fn block_bytes() -> (u64, u64) {
    let counted = std::fs::read_to_string("/proc/self/io").expect("Linux tells");
    let number = |field: &str| {
        let line = counted.lines().find_map(|line| line.strip_prefix(field)).expect("the field is there");
        line.trim().parse::<u64>().expect("a number")
    };
    (number("read_bytes:"), number("write_bytes:"))
}

/// A field of this process's status in bytes.
fn resident(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux tells");
    let line = status.lines().find_map(|line| line.strip_prefix(field)).expect("the field is there");
    line.trim().trim_end_matches("kB").trim().parse::<u64>().expect("a number") * 1_024
}
