//! Three steps of each golden case have the same bits whatever is kept, however chunks and pages are cut, wherever
//! updates run, and when they are run again; without clipping also with updates in backward.

use crate::Rig;
use crate::golden::Golden;
use crate::whole::Setup;
use mt_kernels::cuda::Error;
use mt_tests::case::REQUIRED;
use mt_trainer::block::Level;
use mt_trainer::gpu::Refused;
use mt_trainer::schedule::UpdateOn;
use mt_trainer::target::Precision;

const STEPS: u64 = 3;

pub fn run(rig: &mut Rig) {
    rig.case("an update that is refused", refused);
    for name in REQUIRED {
        for precision in [Precision::Bf16, Precision::Fp32] {
            rig.case(&format!("bits of {name} {precision:?}"), |rig| compare(rig, name, precision));
            rig.case(&format!("bits of {name} {precision:?} without clipping"), |rig| unclipped(rig, name, precision));
        }
    }
}

/// An update that gives infinite weights is told by the first of them.
fn refused(rig: &Rig) -> Result<String, String> {
    let golden = Golden::read(REQUIRED[0]);
    let setup = Setup { updates: UpdateOn::Gpu, ..Setup::new(Precision::Bf16) };
    let run = || -> Result<Option<Refused>, Error> {
        let mut whole = golden.begin(rig, &setup)?;
        whole.step(&golden.case.batch(), 1e39)?;
        whole.flush()
    };
    match run().map_err(|e| e.to_string())? {
        Some(Refused { unit: 0, element }) => Ok(format!("element {element} of the embedding")),
        other => Err(format!("{other:?}")),
    }
}

/// Losses, norms, gradients and weights by their bits.
fn bits(rig: &Rig, golden: &Golden, setup: &Setup) -> Result<Vec<u64>, Error> {
    let mut whole = golden.begin(rig, setup)?;
    let (batch, rates) = (golden.case.batch(), golden.case.learning_rate());
    let mut all = Vec::new();
    for step in 1..=STEPS {
        let outcome = whole.step(&batch, rates.at(step))?;
        all.extend([outcome.loss.to_bits(), outcome.norm.to_bits()]);
    }
    assert_eq!(whole.flush()?, None, "no update is refused");
    // In backward no gradient is left.
    let gradients = (golden.hyper.max_grad_norm.is_some()).then(|| whole.gradients()).transpose()?;
    for tensors in gradients.into_iter().chain([whole.weights()?]) {
        for name in tensors.names() {
            all.extend(tensors.values(name).iter().map(|x| u64::from(x.to_bits())));
        }
    }
    Ok(all)
}

/// Updates in backward, on the processor and on the GPU, give the losses, norms and weights that updates in forward do.
fn unclipped(rig: &Rig, name: &str, precision: Precision) -> Result<String, String> {
    let mut golden = Golden::read(name);
    golden.hyper.max_grad_norm = None;
    let forward = Setup { tile_rows: Some(128), ..Setup::new(precision) };
    let backward = Setup { fused_backward: true, ..forward.clone() };
    let others = [
        ("updates in backward", backward.clone()),
        ("updates in backward on the GPU", Setup { updates: UpdateOn::Gpu, ..backward.clone() }),
        ("the same in large chunks", Setup { updates: UpdateOn::Gpu, page: 4_096, chunk: 1 << 20, ..backward.clone() }),
        ("chunks of three pages", Setup { chunk: 3 * 2_048, ..backward }),
    ];
    same(rig, &golden, &forward, &others)
}

fn compare(rig: &Rig, name: &str, precision: Precision) -> Result<String, String> {
    let golden = Golden::read(name);
    let plain = Setup { tile_rows: Some(128), ..Setup::new(precision) };
    let others = [
        ("again", plain.clone()),
        ("attention kept", Setup { level: Level::Attention, ..plain.clone() }),
        ("all kept", Setup { level: Level::All, logits: true, ..plain.clone() }),
        ("large chunks", Setup { page: 4_096, chunk: 1 << 20, ..plain.clone() }),
        ("updates on the GPU", Setup { updates: UpdateOn::Gpu, ..plain.clone() }),
        ("chunks of three pages", Setup { chunk: 3 * 2_048, ..plain.clone() }),
    ];
    same(rig, &golden, &plain, &others)
}

/// All set-ups have the first one's bits; why they differ, or how many numbers and set-ups there are.
fn same(rig: &Rig, golden: &Golden, first: &Setup, others: &[(&str, Setup)]) -> Result<String, String> {
    let first = bits(rig, golden, first).map_err(|e| e.to_string())?;
    for (what, setup) in others {
        let other = bits(rig, golden, setup).map_err(|e| e.to_string())?;
        if other.len() != first.len() {
            return Err(format!("{what}: other tensors"));
        }
        let differ = first.iter().zip(&other).filter(|(a, b)| a != b).count();
        if differ > 0 {
            return Err(format!("{what}: {differ} of {} differ", first.len()));
        }
    }
    Ok(format!("{} numbers, {} set-ups", first.len(), others.len() + 1))
}
