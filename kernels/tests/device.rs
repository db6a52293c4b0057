//! Every kernel on a GPU against the CPU: exact ones bit for bit, others against a plain reference in f64, on random
//! inputs, with outputs poisoned first and each result computed twice. Prints a table; ends with "N passed, N failed, N
//! timed". What fails or panics is counted, and the rest is run, as long as the device takes work.
//!
//! A program of its own (no test harness), so that it can be built here and run on a machine with a GPU and without
//! Rust: `device [PART ...]` runs the parts whose names are given, or all; those of times are parts of their own, since
//! tools that check every access take minutes for them. Skipped, loudly, where there is no device.

#[path = "device/attention.rs"]
mod attention;
#[path = "device/measure.rs"]
mod measure;
#[path = "device/products.rs"]
mod products;
#[path = "device/rig.rs"]
mod rig;
#[path = "device/rows.rs"]
mod rows;
#[path = "device/state.rs"]
mod state;

use mt_kernels::cuda::{Error, Gpu, Queue, Search, sources};
use rig::Rig;
use std::process::ExitCode;
use std::time::Instant;

/// A part by its name.
type Part = (&'static str, fn(&mut Rig));

const PARTS: [Part; 9] = [
    ("state", state::run),
    ("rows", rows::run),
    ("products", products::run),
    ("attention", attention::run),
    ("attention-small", attention::small),
    ("state-times", state::times),
    ("rows-times", rows::times),
    ("products-times", products::times),
    ("attention-times", attention::times),
];

fn main() -> ExitCode {
    let asked: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    match run(&asked) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error @ (Error::NoDriver { .. } | Error::NoDevice { .. })) => {
            eprintln!("skipped: kernels on a GPU: {error}");
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
    let begin = Instant::now();
    let gpu = Gpu::open(0, &Search::from_env(), None)?;
    let versions = gpu.versions()?.map(|(name, version)| format!("{name} {version}")).join(", ");
    println!("{}, {}, {versions}", gpu.name(), gpu.arch());
    let opened = begin.elapsed();
    gpu.prepare(&sources())?;
    println!("opened in {:.2} s, compiled in {:.2} s", opened.as_secs_f64(), (begin.elapsed() - opened).as_secs_f64());
    let mut rig = Rig::new(Queue::new(&gpu)?);
    for (name, part) in PARTS {
        if asked.is_empty() || asked.iter().any(|a| a == name) {
            let begin = Instant::now();
            part(&mut rig);
            println!("-- {name}: {:.1} s", begin.elapsed().as_secs_f64());
        }
    }
    Ok(rig.finish())
}
