//! The trainer itself on a GPU, with leases of an engine: each golden case has the same bits with all the VRAM it likes
//! and with the least that is accepted, with its state in RAM and streamed from a store, wherever updates run, and when
//! it is stopped and resumed; and the losses of the file. Without clipping also with updates in backward.

use crate::Rig;
use crate::golden::folder;
use mt_engine::DeviceId;
use mt_tests::case::{Case, REQUIRED};
use mt_tests::numbers::relative;
use mt_tests::rig::{Job, Setup};
use mt_tests::trace::{self, Trace};
use mt_trainer::Error;
use mt_trainer::error::Part;
use mt_trainer::model::Manifest;
use mt_trainer::profile::MachineProfile;
use mt_trainer::settings::Recompute;
use mt_trainer::target::{Gpu, Precision, Target};

const STEPS: u64 = 6;
const SMALLEST_PAGE: usize = 2_048;

pub fn run(rig: &mut Rig) {
    for name in REQUIRED {
        for precision in [Precision::Bf16, Precision::Fp32] {
            rig.case(&format!("placement of {name} {precision:?}"), |rig| {
                compare(rig, name, precision).map_err(|error| error.to_string())?
            });
            rig.case(&format!("updates in backward of {name} {precision:?}"), |rig| {
                in_backward(rig, name, precision).map_err(|error| error.to_string())?
            });
            rig.case(&format!("a gradient that is not finite, of {name} {precision:?}"), |rig| {
                not_finite(rig, name, precision).map_err(|error| error.to_string())?
            });
        }
    }
}

/// The bits of every set-up against those of the first; why they differ, or how many set-ups there were.
fn compare(rig: &Rig, name: &str, precision: Precision) -> Result<Result<String, String>, Error> {
    let case = Case::read(&folder().join(name));
    let job = trace::job(&case, Some(1.0));
    let roomy = roomy(rig, precision);
    let base = Trace::of(&case, &job, &roomy, STEPS)?;
    let allowed = if precision == Precision::Fp32 { 1e-5 } else { 5e-3 };
    for (step, expected) in case.steps().iter().enumerate() {
        let error = relative(f64::from_bits(base.losses[step]), expected.loss);
        if error.is_nan() || error > allowed {
            return Ok(Err(format!("loss of step {}: error {error:.1e}, {allowed:.0e} allowed", step + 1)));
        }
    }
    let tempdir = tempfile::tempdir().expect("a temporary folder");
    let stores = |name: &str| vec![tempdir.path().join(name)];
    let small = |setup: Setup| smallest(&job, setup);
    let pages = Setup { page: Some(SMALLEST_PAGE), ..roomy.clone() };
    let setups = [
        ("again", roomy.clone()),
        ("one thread", Setup { threads: 1, ..roomy.clone() }),
        ("nothing kept", Setup { recompute: Recompute::All, ..roomy.clone() }),
        ("all kept", Setup { recompute: Recompute::None, ..roomy.clone() }),
        ("a store", Setup { stores: stores("roomy"), ..roomy.clone() }),
        ("the least VRAM", small(pages.clone())?),
        ("the least VRAM and RAM", small(Setup { stores: stores("small"), budget: Some(0), ..pages.clone() })?),
    ];
    for (what, setup) in &setups {
        let found = Trace::of(&case, &job, setup, STEPS)?;
        if let Some(difference) = found.difference(&base) {
            return Ok(Err(format!("{what}: other {difference}")));
        }
    }
    let stored = small(Setup { stores: stores("resumed"), ..pages })?;
    let mut found = Trace::default();
    let mut rig = job.begin(&stored)?;
    found.go_on(&mut rig, &case, 1..=3)?;
    rig.flush(Some(b"3"))?;
    rig.close()?;
    let mut rig = job.resume(&Setup { vram: roomy.vram, ..stored })?;
    found.go_on(&mut rig, &case, 4..=STEPS)?;
    found.end(&mut rig)?;
    Ok(match found.difference(&base) {
        Some(difference) => Err(format!("resumed: other {difference}")),
        None => Ok(format!("{} set-ups", setups.len() + 2)),
    })
}

/// With all the VRAM it likes.
fn roomy(rig: &Rig, precision: Precision) -> Setup {
    let target = Target::Gpu(Gpu { device: DeviceId(0), precision });
    let rates = MachineProfile::assumed(2).rates(&[], 2, Some(DeviceId(0)));
    Setup { target, gpu: Some(rig.gpu.clone()), vram: 1 << 30, rates, ..Setup::default() }
}

/// The bits of updates in backward against those in forward, from all in VRAM to all streamed; then a run that is
/// committed with one schedule and goes on with the other. Tells how many parameters the GPU updated in each.
fn in_backward(rig: &Rig, name: &str, precision: Precision) -> Result<Result<String, String>, Error> {
    let case = Case::read(&folder().join(name));
    let job = trace::job(&case, None);
    let forward = roomy(rig, precision);
    let base = Trace::of(&case, &job, &forward, STEPS)?;
    let tempdir = tempfile::tempdir().expect("a temporary folder");
    let stores = |name: &str| vec![tempdir.path().join(name)];
    let roomy = Setup { fused_backward: true, ..forward.clone() };
    let pages = Setup { page: Some(SMALLEST_PAGE), ..roomy.clone() };
    let streamed = smallest(&job, Setup { stores: stores("small"), budget: Some(0), ..pages.clone() })?;
    let setups = [
        ("all in VRAM", roomy.clone()),
        ("one thread", Setup { threads: 1, ..roomy.clone() }),
        ("the least VRAM", smallest(&job, pages)?),
        ("the least VRAM and RAM", streamed.clone()),
    ];
    let manifest = Manifest::new(&job.config);
    let mut updated = Vec::new();
    for (what, setup) in &setups {
        updated.push(job.prepare(setup)?.updated_on_gpu(&manifest).to_string());
        let found = Trace::of(&case, &job, setup, STEPS)?;
        if let Some(difference) = found.difference(&base) {
            return Ok(Err(format!("{what}: other {difference}")));
        }
    }
    let first = Setup { stores: stores("resumed"), ..streamed };
    let mut found = Trace::default();
    let mut rig = job.begin(&first)?;
    found.go_on(&mut rig, &case, 1..=3)?;
    rig.flush(Some(b"3"))?;
    rig.close()?;
    let mut rig = job.resume(&Setup { stores: first.stores, page: first.page, ..forward })?;
    found.go_on(&mut rig, &case, 4..=STEPS)?;
    found.end(&mut rig)?;
    Ok(match found.difference(&base) {
        Some(difference) => Err(format!("gone on with in forward: other {difference}")),
        None => Ok(format!("{} set-ups; of them on the GPU {} parameters", setups.len() + 1, updated.join(", "))),
    })
}

/// With updates in backward some weights have met a gradient that is not finite once it is found: the step fails, all
/// that follows is refused, and the last commit stands. On the GPU and on the processor.
fn not_finite(rig: &Rig, name: &str, precision: Precision) -> Result<Result<String, String>, Error> {
    let case = Case::read(&folder().join(name));
    let job = trace::job(&case, None);
    let forward = roomy(rig, precision);
    let tempdir = tempfile::tempdir().expect("a temporary folder");
    let stores = |name: &str| vec![tempdir.path().join(name)];
    let backward = Setup { fused_backward: true, ..forward };
    let pages = Setup { page: Some(SMALLEST_PAGE), stores: stores("small"), budget: Some(0), ..backward.clone() };
    let setups = [
        ("all in VRAM", Setup { stores: stores("roomy"), ..backward }),
        ("the least VRAM and RAM", smallest(&job, pages)?),
    ];
    let batch = case.batch();
    let mut told = Vec::new();
    for (what, setup) in &setups {
        let mut rig = job.begin(setup)?;
        // Weights of 1e30 are finite, and products of two of them are not.
        rig.step(&batch, 1e30)?;
        rig.flush(Some(b"1"))?;
        let committed = rig.weights()?;
        match rig.step(&batch, 1e-3) {
            Err(error @ Error::Numeric { step: 2, .. }) => told.push(error.to_string()),
            Err(other) => return Ok(Err(format!("{what}: {other}"))),
            Ok(outcome) => return Ok(Err(format!("{what}: a loss of {}", outcome.loss))),
        }
        if rig.step(&batch, 1e-3).is_ok() || rig.flush(Some(b"2")).is_ok() {
            return Ok(Err(format!("{what}: it goes on with what is left")));
        }
        drop(rig);
        if job.resume(setup)?.weights()?.bits() != committed.bits() {
            return Ok(Err(format!("{what}: the last commit has other weights")));
        }
    }
    Ok(Ok(told.join("; ")))
}

/// The set-up with the least VRAM that is accepted, and with the least RAM if it has a budget.
fn smallest(job: &Job, setup: Setup) -> Result<Setup, Error> {
    let mut setup = Setup { vram: 1, ..setup };
    loop {
        match job.prepare(&setup) {
            Ok(_) => return Ok(setup),
            Err(Error::DoesNotFit { part: Part::Vram, need_bytes, .. }) if need_bytes > setup.vram => {
                setup.vram = need_bytes;
            }
            Err(Error::DoesNotFit { part: Part::Ram, need_bytes, .. }) if Some(need_bytes) > setup.budget => {
                setup.budget = Some(need_bytes);
            }
            Err(other) => return Err(other),
        }
    }
}
