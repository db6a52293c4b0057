//! The golden cases on a GPU, in all precisions: logits, the loss and norm of every step, gradients, parameters after
//! the first and the last step. Tolerances are those of golden/README.md; tf32, for which it has none, has those of
//! bf16.

use crate::Rig;
use crate::whole::{Setup, Whole};
use mt_kernels::cuda::Error;
use mt_tests::case::{Case, REQUIRED, golden_dir};
use mt_tests::numbers::{Sums, relative, relative_l2};
use mt_tests::tensors::Tensors;
use mt_trainer::model::ModelConfig;
use mt_trainer::step::Hyper;
use mt_trainer::target::Precision;
use std::path::{Path, PathBuf};

/// Greatest relative errors. None: not compared.
struct Tolerances {
    logits: f64,
    loss: f64,
    norm: f64,
    /// Of each gradient.
    gradient: Option<f64>,
    gradients: f64,
    parameters: Option<f64>,
    movement: Option<f64>,
}

const F32: Tolerances = Tolerances {
    logits: 2e-5,
    loss: 1e-5,
    norm: 1e-4,
    gradient: Some(1e-4),
    gradients: 1e-4,
    parameters: Some(5e-5),
    movement: Some(4e-3),
};
const BF16: Tolerances = Tolerances {
    logits: 2e-2,
    loss: 5e-3,
    norm: 2e-2,
    gradient: None,
    gradients: 5e-2,
    parameters: None,
    movement: None,
};

/// The folder of cases: in the working directory, if it is the repository.
pub fn folder() -> PathBuf {
    let here = Path::new("tests/golden");
    if std::env::var_os("MT_GOLDEN").is_none() && here.is_dir() { here.to_owned() } else { golden_dir() }
}

/// What is read of a case.
pub struct Golden {
    pub case: Case,
    pub config: ModelConfig,
    pub hyper: Hyper,
}

impl Golden {
    pub fn read(name: &str) -> Golden {
        let case = Case::read(&folder().join(name));
        let config = ModelConfig::read(&case.dir.join("config.json")).expect("a sound configuration");
        let hyper = Hyper {
            betas: (case.hyper("beta1"), case.hyper("beta2")),
            eps: case.hyper("eps"),
            weight_decay: case.hyper("weight_decay"),
            max_grad_norm: Some(case.hyper("max_grad_norm")),
        };
        Golden { case, config, hyper }
    }

    pub fn begin<'r>(&self, rig: &'r Rig, setup: &Setup) -> Result<Whole<'r>, Error> {
        let rows: Vec<usize> = self.case.micro.iter().map(|micro| micro.batch.rows).collect();
        Whole::new(rig, &self.config, &self.case.start, &rows, self.case.micro[0].batch.seq, self.hyper, setup)
    }
}

/// Greatest errors, by what they are of, with their tolerance.
#[derive(Default)]
struct Checks {
    worst: Vec<(&'static str, f64, f64)>,
}

impl Checks {
    /// NaN is off, whatever the tolerance.
    fn add(&mut self, what: &'static str, error: f64, tolerance: f64) {
        let at = self.worst.iter().position(|(other, ..)| *other == what).unwrap_or(self.worst.len());
        if at == self.worst.len() {
            self.worst.push((what, 0.0, tolerance));
        }
        let (_, worst, _) = &mut self.worst[at];
        if error > *worst || error.is_nan() {
            *worst = error;
        }
    }

    fn verdict(self) -> Result<String, String> {
        let text = |(what, worst, tolerance): &(&str, f64, f64)| format!("{what} {worst:.1e} ({tolerance:.0e})");
        let all = self.worst.iter().map(text).collect::<Vec<_>>().join(", ");
        let good = self.worst.iter().all(|(_, worst, tolerance)| worst <= tolerance);
        if good { Ok(all) } else { Err(all) }
    }
}

pub fn run(rig: &mut Rig) {
    for name in REQUIRED {
        for precision in Precision::EACH {
            rig.case(&format!("{name} {precision:?}"), |rig| {
                let tolerances = if precision == Precision::Fp32 { F32 } else { BF16 };
                compare(rig, &Golden::read(name), precision, &tolerances).map_err(|e| e.to_string())?.verdict()
            });
        }
    }
}

fn compare(rig: &Rig, golden: &Golden, precision: Precision, allowed: &Tolerances) -> Result<Checks, Error> {
    let case = &golden.case;
    let mut checks = Checks::default();
    // Several tiles, which no chunk lines up with.
    let setup = Setup { tile_rows: Some(128), ..Setup::new(precision) };
    let mut whole = golden.begin(rig, &setup)?;
    let (logits, expected) = (whole.logits(&case.micro[0].batch)?, case.numbers.values("logits"));
    let vocab = expected.len() / case.micro[0].real.len();
    let real = |values: &[f32]| {
        let rows = values.chunks(vocab).zip(&case.micro[0].real).filter(|(_, real)| **real);
        rows.flat_map(|(row, _)| row.to_vec()).collect::<Vec<f32>>()
    };
    checks.add("logits", relative_l2(&real(&logits), &real(expected)), allowed.logits);
    let (rates, given, batch) = (case.learning_rate(), case.param_steps(), case.batch());
    for (i, expected) in case.steps().into_iter().enumerate() {
        let outcome = whole.step(&batch, rates.at(i as u64 + 1))?;
        checks.add("loss", relative(outcome.loss, expected.loss), allowed.loss);
        checks.add("norm", relative(outcome.norm, expected.grad_norm), allowed.norm);
        if i == 0 {
            gradients(case, &whole.gradients()?, &mut checks, allowed);
        }
        if given.contains(&(i + 1)) {
            assert_eq!(whole.flush()?, None, "no update is refused");
            parameters(case, i + 1, &whole.weights()?, &mut checks, allowed);
        }
    }
    Ok(checks)
}

fn gradients(case: &Case, found: &Tensors, checks: &mut Checks, allowed: &Tolerances) {
    let mut all = Sums::default();
    for (name, reference) in case.part("grad") {
        if let Some(allowed) = allowed.gradient {
            checks.add("each gradient", relative_l2(found.values(name), reference), allowed);
        }
        all.add(found.values(name), reference);
    }
    checks.add("gradients", all.error(), allowed.gradients);
}

fn parameters(case: &Case, step: usize, found: &Tensors, checks: &mut Checks, allowed: &Tolerances) {
    let (mut all, mut moved) = (Sums::default(), Sums::default());
    for (name, reference) in case.part(&format!("param{step}")) {
        let start = case.start.values(name);
        let away = |values: &[f32]| values.iter().zip(start).map(|(a, b)| a - b).collect::<Vec<f32>>();
        all.add(found.values(name), reference);
        moved.add(&away(found.values(name)), &away(reference));
    }
    if let Some(allowed) = allowed.parameters {
        checks.add("parameters", all.error(), allowed);
    }
    if let Some(allowed) = allowed.movement
        && step > 1
    {
        checks.add("movement", moved.error(), allowed);
    }
}
