//! Training that is bound by the disk against the engine's own read/write loop, in alternation on the same directory:
//! the share of the disk rate that training reaches, and its demand misses.
//!
//! `cargo bench -p mt-benches --bench io_bound -- --model DIR`, with `--help` for the rest. With `--prefetch 0` nothing
//! is fetched ahead, and the check must fail: exit code 1.

use clap::Parser;
use mt_engine::plan::{Plan, Shape, plan};
use mt_engine::{
    Budget, Config, Engine, Kind, Mode, Profile, RegionId, RegionSpec, Residency, Resource, Run, Schedule, Stats,
    record_bytes,
};
use mt_tests::rig::{Job, Rig, Setup};
use mt_trainer::batch::{Batch, MicroBatch, NO_TARGET};
use mt_trainer::model::ModelConfig;
use mt_trainer::settings::Recompute;
use mt_trainer::step::Hyper;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

/// Tokens of the one row of a step: little to compute, so that the disk binds.
const SEQ: usize = 64;
/// Share of the raw rate that training is to reach.
const TARGET: f64 = 0.8;
/// The raw loop's store: larger than any drive's short-term memory of this moment, small enough to be made quickly.
const RAW_PAGES: u32 = 1024;
const RAW_PAGE_BYTES: u32 = 1 << 20;

/// Training that is bound by the disk against the engine's own read/write loop.
#[derive(Parser)]
struct Args {
    /// Folder of the model: config.json and weights.
    #[arg(long)]
    model: Option<PathBuf>,
    /// Where the stores are made.
    #[arg(long, default_value_os_t = std::env::temp_dir())]
    dir: PathBuf,
    /// Bytes of RAM for arena and workspace.
    #[arg(long, default_value_t = 500 << 20)]
    ram: u64,
    /// Pairs of a raw sweep and steps.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Steps of a round.
    #[arg(long, default_value_t = 3)]
    steps: usize,
    /// Most runs fetched ahead; as far as RAM allows if not given.
    #[arg(long)]
    prefetch: Option<u32>,
    /// Given by cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let Some(model) = args.model.clone().filter(|model| model.join("config.json").is_file()) else {
        eprintln!("skipped: --model DIR, a folder with config.json and weights, is not given");
        return ExitCode::SUCCESS;
    };
    let folder = tempfile::tempdir_in(&args.dir).expect("a directory for the stores");
    let raw = Raw::new(folder.path().join("raw"));
    let mut training = Training::new(&args, &model, folder.path().join("training"));
    training.steps(2);
    raw.sweep();
    let (mut ratios, mut misses) = (Vec::new(), 0);
    println!("round  raw GB/s  training GB/s  ratio  step s  misses");
    for round in 1..=args.rounds {
        let raw_rate = rate(|| raw.engine.stats(), || raw.sweep());
        let before = training.rig.stats().demand_misses;
        let start = Instant::now();
        let found = training.measured(args.steps);
        let step = start.elapsed().as_secs_f64() / args.steps as f64;
        let missed = training.rig.stats().demand_misses - before;
        println!(
            "{round:<5}  {:8.3}  {:13.3}  {:5.3}  {step:6.3}  {missed}",
            raw_rate / 1e9,
            found / 1e9,
            found / raw_rate
        );
        ratios.push(found / raw_rate);
        misses += missed;
    }
    ratios.sort_by(f64::total_cmp);
    let median = ratios[ratios.len() / 2];
    let passed = median >= TARGET && misses == 0;
    let verdict = if passed { "passed" } else { "missed" };
    println!("{verdict}: median {median:.3} of the raw rate (at least {TARGET}), {misses} demand misses (none)");
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Bytes a second that the volumes moved while `work` ran.
fn rate(stats: impl Fn() -> Stats, mut work: impl FnMut()) -> f64 {
    let moved = |s: Stats| s.disk_read_bytes + s.disk_write_bytes;
    let (before, start) = (moved(stats()), Instant::now());
    work();
    (moved(stats()) - before) as f64 / start.elapsed().as_secs_f64()
}

/// The engine alone: every page is read, changed and written.
struct Raw {
    engine: Engine,
    plan: Arc<Plan>,
}

impl Raw {
    fn new(dir: PathBuf) -> Raw {
        let regions =
            [RegionSpec { name: "raw".into(), page_bytes: RAW_PAGE_BYTES, pages: RAW_PAGES, kind: Kind::Checkpointed }];
        let mut schedule = Schedule { cyclic: true, ..Schedule::default() };
        for first in 0..RAW_PAGES {
            let access = schedule.access(page(first), Mode::Update, 0);
            schedule.work(Resource::HostCompute, 0, vec![access], 0);
        }
        let host_bytes = 256 << 20;
        let shape = Shape { regions: &regions, sweeps_per_commit: 0, prefetch_intervals_max: None, has_disk: true };
        let budget = Budget { host_bytes, device_bytes: vec![], disk_bytes: u64::MAX };
        let entry = Residency { fixed: true, ..Residency::default() };
        let (plan, _) = plan(&Arc::new(schedule), &shape, &budget, &Profile::default(), &entry).expect("it fits");
        let config = Config::new(vec![dir], host_bytes + record_bytes(&regions));
        let engine = Engine::create(config, &regions).expect("the raw store");
        engine.place(&plan.exit, &plan.spilled).expect("nothing is placed");
        let raw = Raw { engine, plan: Arc::new(plan) };
        // First write into reserved space, then a state that is read from the disk and not as zeros.
        raw.sweep();
        raw.engine.commit(b"").expect("a commit");
        raw.sweep();
        raw
    }

    fn sweep(&self) {
        let sweep = self.engine.sweep(&self.plan, Some(&self.plan)).expect("a sweep");
        for first in 0..RAW_PAGES {
            let mut lease = sweep.host_mut(page(first)).expect("a lease");
            lease[0] = lease[0].wrapping_add(1);
        }
        sweep.finish().expect("the sweep ends");
    }
}

fn page(first: u32) -> Run {
    Run { region: RegionId(0), first, count: 1 }
}

/// Steps of a trainer whose state streams.
struct Training {
    rig: Rig,
    batch: Batch,
}

impl Training {
    fn new(args: &Args, model: &Path, store: PathBuf) -> Training {
        let config = ModelConfig::read(&model.join("config.json")).expect("a model that is supported");
        let vocab = config.vocab as u32;
        let hyper = Hyper { betas: (0.9, 0.999), eps: 1e-8, weight_decay: 0.0, max_grad_norm: Some(1.0) };
        let job = Job { config, dir: model.to_path_buf(), micro_rows: vec![1], seq: SEQ, hyper };
        let setup = Setup {
            stores: vec![store],
            budget: Some(args.ram),
            recompute: Recompute::Auto,
            prefetch: args.prefetch,
            stripe_bytes: None,
            ..Setup::default()
        };
        let rig = job.begin(&setup).expect("the budget suffices");
        let ids: Vec<u32> = (0..SEQ as u32).map(|n| n * 7919 % vocab).collect();
        let mut targets: Vec<u32> = ids[1..].to_vec();
        targets.push(NO_TARGET);
        let positions = (0..SEQ as u32).collect();
        let micro = MicroBatch { rows: 1, seq: SEQ, ids, targets, positions, document: vec![0; SEQ] };
        Training { rig, batch: Batch { micro: vec![micro] } }
    }

    fn steps(&mut self, count: usize) {
        for _ in 0..count {
            self.rig.step(&self.batch, 1e-5).expect("the step runs");
        }
    }

    /// Bytes a second that the volumes moved during these steps.
    fn measured(&mut self, count: usize) -> f64 {
        let moved = |s: Stats| s.disk_read_bytes + s.disk_write_bytes;
        let (before, start) = (moved(self.rig.stats()), Instant::now());
        self.steps(count);
        (moved(self.rig.stats()) - before) as f64 / start.elapsed().as_secs_f64()
    }
}
