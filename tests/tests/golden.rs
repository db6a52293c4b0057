//! Golden cases, with a harness of its own: a line a case, beginning at column 0, and `N passed, N failed, N skipped`
//! at the end. Takes the arguments of `cargo test`: filters (against `golden::NAME`), `--exact`, `--skip`, `--list`.
//! `MT_GOLDEN` names another folder of cases; a folder without cases fails.
//!
//! Every number that golden/README.md lists is compared: logits, the loss of each micro-batch, rate, loss and norm of
//! each step, each gradient, all gradients as one vector, the parameters after every step that the file has them for,
//! and the movement. Each case runs with both layouts of config.json, with pages as the trainer chooses them and with
//! the smallest.

use mt_tests::case::{Case, REQUIRED, golden_dir, list};
use mt_tests::numbers::{Sums, relative, relative_l2};
use mt_tests::rig::{Job, Rig, Setup};
use mt_tests::tensors::Tensors;
use mt_trainer::Error;
use mt_trainer::batch::Batch;
use mt_trainer::model::ModelConfig;
use mt_trainer::step::Hyper;
use std::path::Path;
use std::process::ExitCode;

/// Tolerances of f32, as golden/README.md states them.
mod tolerance {
    pub const LOGITS: f64 = 2e-5;
    pub const LOSS: f64 = 1e-5;
    pub const GRAD_NORM: f64 = 1e-4;
    pub const GRADIENT: f64 = 1e-4;
    pub const PARAMETERS: f64 = 5e-5;
    pub const MOVEMENT: f64 = 4e-3;
    /// The rate is computed in f64 on both sides.
    pub const RATE: f64 = 1e-12;
}

/// The smallest pages, which every tensor of a case spans or shares.
const SMALLEST_PAGE: usize = 2_048;

/// How a case ends.
enum Verdict {
    Pass,
    NotYet(String),
    Fail(String),
}

/// Why a case cannot go on.
enum Stop {
    NotYet(String),
    Fail(String),
}

/// Compares numbers and remembers the first that is off.
struct Checks {
    context: String,
    failed: Option<String>,
}

impl Checks {
    /// NaN is off, whatever the tolerance.
    fn error(&mut self, what: &str, error: f64, tolerance: f64) {
        let good = error <= tolerance;
        if !good && self.failed.is_none() {
            self.failed = Some(format!("{}{what}, error {error:.1e}, tolerance {tolerance:.0e}", self.context));
        }
    }

    fn done(self) -> Result<(), Stop> {
        self.failed.map_or(Ok(()), |what| Err(Stop::Fail(what)))
    }
}

fn broken(error: Error) -> Stop {
    Stop::Fail(error.to_string())
}

/// The configuration, or "not yet" where the family is one that the trainer says it does not read.
fn config(path: &Path) -> Result<ModelConfig, Stop> {
    ModelConfig::read(path).map_err(|error| match error {
        Error::Input { field, found, .. } if field == "model_type" => Stop::NotYet(format!("model_type {found}")),
        other => broken(other),
    })
}

fn job(case: &Case, config: &ModelConfig) -> Job {
    let hyper = Hyper {
        betas: (case.hyper("beta1"), case.hyper("beta2")),
        eps: case.hyper("eps"),
        weight_decay: case.hyper("weight_decay"),
        max_grad_norm: Some(case.hyper("max_grad_norm")),
    };
    Job {
        config: config.clone(),
        dir: case.dir.clone(),
        micro_rows: case.micro.iter().map(|m| m.batch.rows).collect(),
        seq: case.micro[0].batch.seq,
        hyper,
    }
}

/// Logits of the first micro-batch, at every token that is not padding, and the loss of each micro-batch by itself.
fn before_training(case: &Case, job: &Job, setup: &Setup, checks: &mut Checks) -> Result<(), Stop> {
    let logits = job.begin(setup).and_then(|mut rig| rig.logits(&case.micro[0].batch)).map_err(broken)?;
    let expected = case.numbers.values("logits");
    let vocab = expected.len() / case.micro[0].real.len();
    let real = |values: &[f32]| {
        let rows = values.chunks(vocab).zip(&case.micro[0].real).filter(|(_, real)| **real);
        rows.flat_map(|(row, _)| row.to_vec()).collect::<Vec<f32>>()
    };
    if logits.len() != expected.len() {
        return Err(Stop::Fail(format!("{} logits instead of {}", logits.len(), expected.len())));
    }
    checks.error("logits", relative_l2(&real(&logits), &real(expected)), tolerance::LOGITS);
    for (i, (targets, sum, mean)) in case.micro_losses().into_iter().enumerate() {
        let batch = Batch { micro: vec![case.micro[i].batch.clone()] };
        checks.error(
            &format!("targets of micro-batch {i}"),
            relative(batch.target_count() as f64, targets as f64),
            0.0,
        );
        let alone = Job { micro_rows: vec![case.micro[i].batch.rows], ..job.clone() };
        let outcome = alone.begin(setup).and_then(|mut rig| rig.step(&batch, 0.0)).map_err(broken)?;
        checks.error(&format!("mean loss of micro-batch {i}"), relative(outcome.loss, mean), tolerance::LOSS);
        let total = outcome.loss * targets as f64;
        checks.error(&format!("summed loss of micro-batch {i}"), relative(total, sum), tolerance::LOSS);
    }
    Ok(())
}

fn gradients(case: &Case, found: &Tensors, checks: &mut Checks) -> Result<(), Stop> {
    let expected = case.part("grad");
    if !expected.iter().map(|(name, _)| *name).eq(found.names().map(String::as_str)) {
        return Err(Stop::Fail("other tensors have gradients than in the file".into()));
    }
    let mut all = Sums::default();
    for (name, reference) in expected {
        checks.error(&format!("grad.{name}"), relative_l2(found.values(name), reference), tolerance::GRADIENT);
        all.add(found.values(name), reference);
    }
    checks.error("all gradients", all.error(), tolerance::GRADIENT);
    Ok(())
}

/// All parameters after a step as one vector, and with `movement` how far they moved from the start.
fn parameters(case: &Case, step: usize, movement: bool, found: &Tensors, checks: &mut Checks) -> Result<(), Stop> {
    let (mut all, mut moved) = (Sums::default(), Sums::default());
    let expected = case.part(&format!("param{step}"));
    if !expected.iter().map(|(name, _)| *name).eq(found.names().map(String::as_str)) {
        return Err(Stop::Fail(format!("other tensors than param{step} has")));
    }
    for (name, reference) in expected {
        let start = case.start.values(name);
        let away = |values: &[f32]| values.iter().zip(start).map(|(a, b)| a - b).collect::<Vec<f32>>();
        all.add(found.values(name), reference);
        moved.add(&away(found.values(name)), &away(reference));
    }
    checks.error(&format!("param{step}"), all.error(), tolerance::PARAMETERS);
    if movement {
        checks.error("movement", moved.error(), tolerance::MOVEMENT);
    }
    Ok(())
}

/// The steps of the file, with their parameters where it has them.
fn training(case: &Case, job: &Job, setup: &Setup, checks: &mut Checks) -> Result<(), Stop> {
    let mut rig = job.begin(setup).map_err(broken)?;
    let (rates, given, batch) = (case.learning_rate(), case.param_steps(), case.batch());
    let last = *given.last().ok_or_else(|| Stop::Fail("no parameters in the file".into()))?;
    for (i, expected) in case.steps().into_iter().enumerate() {
        let step = i + 1;
        let lr = rates.at(step as u64);
        checks.error(&format!("lr of step {step}"), relative(lr, expected.lr), tolerance::RATE);
        let outcome = rig.step(&batch, lr).map_err(broken)?;
        checks.error(&format!("loss of step {step}"), relative(outcome.loss, expected.loss), tolerance::LOSS);
        let norm = outcome.grad_norm.unwrap_or(f64::NAN);
        checks.error(&format!("grad_norm of step {step}"), relative(norm, expected.grad_norm), tolerance::GRAD_NORM);
        if step == 1 {
            gradients(case, &rig.gradients().map_err(broken)?, checks)?;
        }
        if given.contains(&step) {
            parameters(case, step, step == last, &weights(&mut rig)?, checks)?;
        }
    }
    Ok(())
}

fn weights(rig: &mut Rig) -> Result<Tensors, Stop> {
    rig.flush(None).and_then(|()| rig.weights()).map_err(broken)
}

fn run(dir: &Path) -> Result<(), Stop> {
    if dir.join("adapter").is_dir() {
        config(&dir.join("config.json"))?;
        return Err(Stop::NotYet("LoRA adapter".into()));
    }
    for file in ["config.json", "config.legacy.json"] {
        if !dir.join(file).exists() {
            continue;
        }
        let config = config(&dir.join(file))?;
        let case = Case::read(dir);
        let job = job(&case, &config);
        for page in [None, Some(SMALLEST_PAGE)] {
            let setup = Setup { page, ..Setup::default() };
            let pages = page.map_or("pages as chosen".to_owned(), |p| format!("pages of {p}"));
            let mut checks = Checks { context: format!("{file}, {pages}: "), failed: None };
            before_training(&case, &job, &setup, &mut checks)?;
            training(&case, &job, &setup, &mut checks)?;
            checks.done()?;
        }
    }
    Ok(())
}

fn verdict(name: &str, dir: &Path) -> Verdict {
    match std::panic::catch_unwind(|| run(dir)) {
        Ok(Ok(())) => Verdict::Pass,
        Ok(Err(Stop::NotYet(reason))) if REQUIRED.contains(&name) => Verdict::Fail(format!("must run, but: {reason}")),
        Ok(Err(Stop::NotYet(reason))) => Verdict::NotYet(reason),
        Ok(Err(Stop::Fail(what))) => Verdict::Fail(what),
        Err(_) => Verdict::Fail("panicked, see above".into()),
    }
}

/// What `cargo test` passes on: which tests to run, and whether only to list them.
#[derive(Default)]
struct Arguments {
    filters: Vec<String>,
    skips: Vec<String>,
    exact: bool,
    list: bool,
}

impl Arguments {
    fn read(words: impl Iterator<Item = String>) -> Arguments {
        let mut out = Arguments::default();
        let mut words = words;
        while let Some(word) = words.next() {
            match word.as_str() {
                "--exact" => out.exact = true,
                "--list" => out.list = true,
                "--skip" => out.skips.extend(words.next()),
                "--test-threads" | "--format" | "--color" | "--logfile" | "--shuffle-seed" | "-Z" => drop(words.next()),
                flag if flag.starts_with('-') => (),
                filter => out.filters.push(filter.to_owned()),
            }
        }
        out
    }

    fn wants(&self, name: &str) -> bool {
        let hit = |pattern: &String| if self.exact { name == pattern } else { name.contains(pattern.as_str()) };
        (self.filters.is_empty() || self.filters.iter().any(hit)) && !self.skips.iter().any(hit)
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::read(std::env::args().skip(1));
    let dir = golden_dir();
    let cases = list(&dir);
    let name = |path: &Path| path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let wanted = cases.iter().filter(|path| arguments.wants(&format!("golden::{}", name(path))));
    if arguments.list {
        wanted.for_each(|path| println!("golden::{}: test", name(path)));
        return ExitCode::SUCCESS;
    }
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for path in wanted {
        let name = name(path);
        match verdict(&name, path) {
            Verdict::Pass => {
                passed += 1;
                println!("{name}: pass");
            }
            Verdict::NotYet(reason) => {
                skipped += 1;
                println!("{name}: not yet ({reason})");
            }
            Verdict::Fail(what) => {
                failed += 1;
                println!("{name}: FAIL ({what})");
            }
        }
    }
    if cases.is_empty() && arguments.wants("golden") {
        failed += 1;
        println!("golden: FAIL (no case in {}, a folder with batch.json and config.json)", dir.display());
    }
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
