//! Plans for a GPU: what holds whatever the budgets are.

use super::*;
use crate::block::Level;
use crate::error::{Error, Part};
use crate::model::{Manifest, ModelConfig};
use crate::profile::{GpuRates, MachineProfile};
use crate::run::size::human;
use crate::schedule::Operation;
use crate::target::{Gpu, Precision};
use mt_engine::{DeviceId, Node};
use std::collections::BTreeMap;
use std::path::Path;

const GPU: Gpu = Gpu { device: DeviceId(0), precision: Precision::Bf16 };
/// Bytes of the model's state and gradients: 16 a parameter.
const STATE: u64 = 16 * PARAMETERS;
const PARAMETERS: u64 = 67_000_000;

/// Eight layers of 6.6 M parameters, and 14 M in embedding and head.
fn model() -> ModelConfig {
    let text = r#"{"model_type": "llama", "vocab_size": 7000, "hidden_size": 1024, "num_hidden_layers": 8,
        "num_attention_heads": 16, "num_key_value_heads": 4, "intermediate_size": 1280,
        "tie_word_embeddings": false}"#;
    ModelConfig::parse(text, Path::new("config.json")).unwrap()
}

/// A plan within these budgets, on a GPU that is slow enough for so small a model to matter.
fn planned(vram: u64, ram: u64, has_disk: bool, batch: usize) -> crate::error::Result<Prepared> {
    planned_on(slow_gpu(), vram, ram, has_disk, batch)
}

fn planned_on(gpu: GpuRates, vram: u64, ram: u64, has_disk: bool, batch: usize) -> crate::error::Result<Prepared> {
    planned_with(gpu, false, vram, ram, has_disk, batch)
}

fn planned_with(
    gpu: GpuRates,
    fused_backward: bool,
    vram: u64,
    ram: u64,
    has_disk: bool,
    batch: usize,
) -> crate::error::Result<Prepared> {
    prepared(&options(gpu, fused_backward, vram, ram, has_disk), batch)
}

fn options(gpu: GpuRates, fused_backward: bool, vram: u64, ram: u64, has_disk: bool) -> Options {
    let profile = MachineProfile { gpus: vec![gpu], ..MachineProfile::assumed(8) };
    Options {
        target: Target::Gpu(GPU),
        recompute: Recompute::Auto,
        fused_backward,
        durable: has_disk,
        has_disk,
        page_elements: None,
        sweeps_per_commit: u32::from(has_disk),
        threads: 8,
        rates: profile.rates(&[], 8, Some(GPU.device)),
        prefetch_intervals_max: None,
        budget_bytes: Some(ram),
        vram_bytes: vram,
        disk_bytes: u64::MAX,
        is_rough: false,
        is_roomy: false,
    }
}

fn prepared(options: &Options, batch: usize) -> crate::error::Result<Prepared> {
    let config = model();
    let shapes = Shapes { rows_per_micro: 4, micro_rows: vec![4; batch / 4], seq: 256 };
    prepare(&config, &Manifest::new(&config), &shapes, options)
}

fn slow_gpu() -> GpuRates {
    let mut gpu = GpuRates::assumed();
    gpu.products.iter_mut().for_each(|point| point.operations_per_s /= 10.0);
    gpu
}

/// The smallest VRAM that is accepted.
fn least(ram: u64, has_disk: bool, batch: usize) -> u64 {
    match planned(1 << 20, ram, has_disk, batch) {
        Err(Error::DoesNotFit { part: Part::Vram, need_bytes, .. }) => need_bytes,
        other => panic!("a refusal for want of VRAM: {:?}", other.map(|found| found.prediction.seconds)),
    }
}

/// What the processor updates has no place in VRAM, what the GPU updates has: VRAM that holds all state is enough,
/// with next to nothing of anything else, whatever else is asked for.
#[test]
fn state_that_vram_holds_needs_nothing_else() {
    for (fused_backward, recompute, batch) in [
        (false, Recompute::Auto, 4),
        (false, Recompute::All, 16),
        (false, Recompute::None, 8),
        (true, Recompute::Auto, 8),
    ] {
        let mut asked = Options { recompute, ..options(slow_gpu(), fused_backward, 2 * STATE, 0, false) };
        let Err(Error::DoesNotFit { part: Part::Ram, need_bytes, .. }) = prepared(&asked, batch) else {
            panic!("pages pass through RAM between steps")
        };
        assert!(need_bytes < STATE / 4, "{} of RAM", human(need_bytes));
        asked.budget_bytes = Some(need_bytes);
        for is_rough in [false, true] {
            let found = prepared(&Options { is_rough, ..asked.clone() }, batch).expect("VRAM holds all state");
            assert_eq!(found.residence().iter().map(|it| it.placed_bytes + it.streamed_bytes).sum::<u64>(), 0);
            assert!(found.arena_bytes + found.workspace_bytes <= need_bytes);
        }
    }
}

/// Whoever updates in it, the nearest budget is what a refusal names: of VRAM that holds half of the state and more,
/// with hardly any RAM, the processor's updates are short of all state, the GPU's of what VRAM does not hold.
#[test]
fn a_refusal_names_the_nearer_budget() {
    let ram = STATE / 4;
    let mut refusals = 0;
    for vram in (5..12).map(|eighths| eighths * STATE / 8) {
        let Err(Error::DoesNotFit { need_bytes, have_bytes, .. }) = planned(vram, ram, false, 8) else { continue };
        refusals += 1;
        assert!(
            need_bytes - have_bytes < STATE - vram.min(STATE) + STATE / 4,
            "{}: {}",
            human(vram),
            human(need_bytes)
        );
        let budgets = |ram| planned(vram, ram, false, 8);
        assert!(budgets(need_bytes).is_ok() && budgets(need_bytes - STATE / 64).is_err(), "{}", human(vram));
    }
    assert!(refusals >= 2);
    // The other way round RAM holds the state, and VRAM no window for it.
    let Err(Error::DoesNotFit { part, .. }) = planned(1 << 20, 2 * STATE, false, 8) else { panic!("no such VRAM") };
    assert_eq!(part, Part::Vram);
}

#[test]
fn budgets_are_kept_and_more_vram_is_never_slower() {
    assert!(Manifest::new(&model()).elements().abs_diff(PARAMETERS) < PARAMETERS / 50);
    for (ram, has_disk) in [(2 * STATE, false), (STATE / 2, true)] {
        let mut slowest = f64::INFINITY;
        let least = least(ram, has_disk, 8);
        let mut vram = least;
        while vram < 2 * STATE {
            let found = planned(vram, ram, has_disk, 8).expect("what was accepted is accepted with more");
            let prediction = &found.prediction;
            assert!(prediction.devices[0].peak_bytes <= vram, "{}", human(vram));
            assert!(found.arena_bytes + found.workspace_bytes <= ram, "{}", human(vram));
            assert!(prediction.seconds <= 1.02 * slowest, "{}: {} after {slowest}", human(vram), prediction.seconds);
            assert!(prediction.lower_bound_seconds <= prediction.seconds);
            slowest = slowest.min(prediction.seconds);
            vram = vram * 5 / 4;
        }
        // What the GPU updates stays there now, and what the processor updates is all that crosses the link.
        let (little, all) = (planned(least, ram, has_disk, 8).unwrap(), planned(3 * STATE, ram, has_disk, 8).unwrap());
        let on_cpu = PARAMETERS - all.updated_on_gpu(&Manifest::new(&model())).min(PARAMETERS);
        let moved = |found: &Prepared| found.prediction.devices[0].upload_bytes;
        assert!(on_cpu < PARAMETERS / 2 && moved(&all) <= 5 * on_cpu, "{on_cpu} {}", moved(&all));
        assert!(moved(&little) > 3 * PARAMETERS, "{}", moved(&little));
    }
}

#[test]
fn tiles_and_chunks_depend_on_no_budget() {
    let identity = |found: &Prepared| {
        let numbers = found.scheme.tiles;
        (numbers, found.layout.clone(), found.regions.clone())
    };
    let (small, large) =
        (planned(least(STATE / 2, true, 8), STATE / 2, true, 8), planned(4 * STATE, 4 * STATE, true, 8));
    assert_eq!(identity(&small.unwrap()), identity(&large.unwrap()));
}

#[test]
fn phases_add_up_and_the_whole_is_told_by_the_gpu() {
    for vram in [1, 2, 8] {
        let found = planned(vram * least(2 * STATE, false, 16), 2 * STATE, false, 16).unwrap();
        let phases = found.phases();
        let sum: f64 = phases.iter().map(|phase| phase.seconds).sum();
        assert!((sum / found.prediction.seconds - 1.0).abs() < 1e-6, "{sum}");
        let moved = found.prediction.devices[0];
        assert_eq!(phases.iter().map(|phase| phase.upload_bytes).sum::<u64>(), moved.upload_bytes);
        assert_eq!(phases.iter().map(|phase| phase.download_bytes).sum::<u64>(), moved.download_bytes);
    }
}

/// What is kept takes VRAM, and little of it leaves over a slow link.
#[test]
fn levels_follow_vram() {
    let ram = 2 * STATE;
    let mut gpu = slow_gpu();
    (gpu.link.download_both_bytes_per_s, gpu.link.upload_both_bytes_per_s) = (0.5e9, 0.5e9);
    (gpu.link.download_bytes_per_s, gpu.link.upload_bytes_per_s) = (0.5e9, 0.5e9);
    let kept = |vram: u64| planned_on(gpu.clone(), vram, ram, false, 16).unwrap().kept().count(Level::Input);
    let (little, much) = (kept(least(ram, false, 16)), kept(4 * STATE));
    assert!(much == 0 && little > 0, "{little} and {much} layers recompute");
}

/// With updates in backward the processor updates a layer while the GPU computes the next one, gradients take no more
/// than their turns, and what the GPU updates leaves none.
#[test]
fn updates_in_backward_run_beside_it() {
    let ram = 2 * STATE;
    // So slow that the processor is through with a layer before the GPU is with the next.
    let mut gpu = slow_gpu();
    gpu.products.iter_mut().for_each(|point| point.operations_per_s /= 10.0);
    for (vram, has_disk) in [(least(ram, false, 16), false), (least(ram, false, 16), true), (4 * STATE, false)] {
        let plan = |fused| planned_with(gpu.clone(), fused, 5 * vram / 4, ram, has_disk, 16).expect("it fits");
        let (forward, backward) = (plan(false), plan(true));
        assert!(backward.prediction.seconds <= forward.prediction.seconds, "{}", human(vram));
        let phases: f64 = backward.phases().iter().map(|phase| phase.seconds).sum();
        assert!((phases / backward.prediction.seconds - 1.0).abs() < 1e-6, "{phases}");
        let gradients = backward.residence()[crate::layout::GRAD.0 as usize].clone();
        let most = 4 * (PARAMETERS - backward.updated_on_gpu(&Manifest::new(&model())).min(PARAMETERS));
        assert!(gradients.placed_bytes + gradients.streamed_bytes <= most + most / 20 && gradients.vram_bytes == 0);
        let spans = backward.timeline();
        let mut update: BTreeMap<usize, u64> = BTreeMap::new();
        let mut computed: BTreeMap<usize, u64> = BTreeMap::new();
        for (node, span) in backward.steady.schedule.nodes.iter().zip(&spans.nodes) {
            let Node::Work { tag, .. } = node else { continue };
            match backward.steady_program.instructions[*tag as usize].operation {
                Operation::Update { unit, .. } => _ = update.entry(unit).or_insert(span.begin_ns),
                Operation::LayerBackward { layer, .. } => _ = computed.insert(layer + 1, span.end_ns),
                _ => {}
            }
        }
        let beside = update.iter().filter(|(unit, begin)| **unit > 1 && **begin < computed[&(**unit - 1)]);
        let behind = update.keys().filter(|unit| **unit > 1).count();
        assert!(2 * beside.count() >= behind, "{update:?} {computed:?}");
    }
}
