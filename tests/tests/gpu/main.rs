//! The computation on a GPU, with the whole model in plain device memory in place of leases: the golden cases, layers
//! against the processor's, equal bits whatever is kept and however chunks are cut, and times. Prints a line a case;
//! ends with "N passed, N failed". Skipped, loudly, where there is no device.
//!
//! A program of its own (no test harness), so that it can be built here and run on a machine with a GPU and without
//! Rust: `gpu [PART ...]` runs the parts whose names are given, or all. Golden cases are in `tests/golden` of the
//! working directory, or where `MT_GOLDEN` says.

mod bits;
mod golden;
mod layers;
mod placement;
mod speed;
mod whole;

use mt_kernels::Cpu;
use mt_kernels::cuda::{Error, Gpu, Search, sources};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Instant;

/// What the parts share.
pub struct Rig {
    /// The device.
    pub gpu: Gpu,
    /// What is compared with.
    pub cpu: Cpu,
    passed: usize,
    failed: usize,
}

impl Rig {
    /// Runs a case; what it gives is why it fails, or what to tell of it.
    pub fn case(&mut self, name: &str, run: impl FnOnce(&Rig) -> Result<String, String>) {
        match catch_unwind(AssertUnwindSafe(|| run(self))) {
            Ok(Ok(what)) => {
                self.passed += 1;
                println!("ok    {name}: {what}");
            }
            Ok(Err(why)) => {
                self.failed += 1;
                println!("FAIL  {name}: {why}");
            }
            Err(_) => {
                self.failed += 1;
                println!("FAIL  {name}: it panicked, see above");
            }
        }
    }
}

/// A part by its name.
type Part = (&'static str, fn(&mut Rig));

const PARTS: [Part; 5] = [
    ("layers", layers::run),
    ("golden", golden::run),
    ("bits", bits::run),
    ("placement", placement::run),
    ("speed", speed::run),
];

fn main() -> ExitCode {
    let asked: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    match run(&asked) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error @ (Error::NoDriver { .. } | Error::NoDevice { .. })) => {
            eprintln!("skipped: the computation on a GPU: {error}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether everything passed.
fn run(asked: &[String]) -> Result<bool, Error> {
    let gpu = Gpu::open(0, &Search::from_env(), None)?;
    let begin = Instant::now();
    gpu.prepare(&sources())?;
    println!("{}, {}; compiled in {:.1} s", gpu.name(), gpu.arch(), begin.elapsed().as_secs_f64());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let cpu = Cpu::new(threads).expect("threads start");
    let mut rig = Rig { gpu, cpu, passed: 0, failed: 0 };
    for (name, part) in PARTS {
        if asked.is_empty() || asked.iter().any(|a| a == name) {
            let begin = Instant::now();
            part(&mut rig);
            println!("-- {name}: {:.1} s", begin.elapsed().as_secs_f64());
        }
    }
    println!("{} passed, {} failed", rig.passed, rig.failed);
    Ok(rig.failed == 0)
}
