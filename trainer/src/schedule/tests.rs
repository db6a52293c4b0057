//! Programs: the rules that the executor and the planner rely on, over tied and untied models, one and more
//! micro-batches, chunks smaller and larger than tensors, several levels, both update schedules, and a GPU with updates
//! on the processor and on itself.

use super::*;
use crate::block::{Dims, Level};
use crate::head::Tiles;
use crate::layout::{HI, Layout};
use crate::model::{Manifest, ModelConfig};
use crate::profile::Rates;
use crate::target::{Gpu, Precision, Target};
use mt_engine::{DeviceId, Mode, Node, Resource, Run, Tier};
use std::collections::BTreeMap;
use std::path::Path;

struct Case {
    config: ModelConfig,
    manifest: Manifest,
    layout: Layout,
    activations: Activations,
    tiles: Tiles,
    micro_rows: Vec<usize>,
    kept: Kept,
    fused_backward: bool,
    gpu: Option<Gpu>,
    updates: Vec<UpdateOn>,
    ahead: usize,
    rates: Rates,
}

const SEQ: usize = 16;

impl Case {
    fn new(tied: bool, hidden: usize, chunk: usize, micro_rows: &[usize], kept: Kept, fused_backward: bool) -> Case {
        let text = format!(
            r#"{{"model_type": "llama", "vocab_size": 300, "hidden_size": {hidden}, "num_hidden_layers": 2,
            "num_attention_heads": 4, "head_dim": 8, "intermediate_size": 48, "tie_word_embeddings": {tied}}}"#
        );
        let config = ModelConfig::parse(&text, Path::new("config.json")).unwrap();
        let manifest = Manifest::new(&config);
        let layout = Layout::new(&manifest, Some(2_048), chunk);
        let tiles = Tiles { rows: 128, count: 3, vocab: 300, hidden };
        let tokens: Vec<usize> = micro_rows.iter().map(|rows| rows * SEQ).collect();
        let activations = Activations::new(5, &Dims::new(&config), 2, &tiles, &tokens);
        let (micro_rows, rates) = (micro_rows.to_vec(), Rates::default());
        let (gpu, updates, ahead) = (None, Vec::new(), 0);
        Case {
            config,
            manifest,
            layout,
            activations,
            tiles,
            micro_rows,
            kept,
            fused_backward,
            gpu,
            updates,
            ahead,
            rates,
        }
    }

    /// The same on a GPU.
    fn on_gpu(mut self, precision: Precision, updates: [UpdateOn; 4], ahead: usize) -> Case {
        let gpu = Gpu { device: DeviceId(0), precision };
        self.gpu = Some(gpu);
        self.tiles = Tiles::on_gpu(self.config.vocab, self.config.hidden);
        let tokens: Vec<usize> = self.micro_rows.iter().map(|rows| rows * SEQ).collect();
        let dims = Dims::new(&self.config);
        self.activations = Activations::on(Target::Gpu(gpu), 5, &dims, 2, &self.tiles, &tokens);
        (self.updates, self.ahead) = (updates.to_vec(), ahead);
        self
    }

    fn description(&self) -> Description<'_> {
        Description {
            config: &self.config,
            manifest: &self.manifest,
            layout: &self.layout,
            activations: &self.activations,
            tiles: &self.tiles,
            micro_rows: &self.micro_rows,
            seq: SEQ,
            kept: &self.kept,
            fused_backward: self.fused_backward,
            gpu: self.gpu.map(|gpu| OnGpu { gpu, updates: &self.updates, ahead: self.ahead, turns: 2 }),
            rates: &self.rates,
        }
    }
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for tied in [false, true] {
        // A hidden size beyond a page: the final norm then spans chunks.
        for (hidden, chunk) in [(32, 2_048), (32, 4_096), (32, 1 << 20), (2_560, 2_048)] {
            for micro_rows in [&[2][..], &[2, 2, 1]] {
                for levels in [[Level::Input; 2], [Level::All; 2], [Level::Attention, Level::Input]] {
                    let case = |fused_backward| {
                        let kept = Kept { layers: levels.to_vec(), logits: levels[1] == Level::All };
                        Case::new(tied, hidden, chunk, micro_rows, kept, fused_backward)
                    };
                    cases.extend([case(false), case(true)]);
                    let (cpu, gpu) = (UpdateOn::Cpu, UpdateOn::Gpu);
                    cases.push(case(false).on_gpu(Precision::Bf16, [cpu; 4], usize::MAX));
                    cases.push(case(false).on_gpu(Precision::Tf32, [cpu, gpu, cpu, cpu], 3_000));
                    cases.push(case(false).on_gpu(Precision::Fp32, [gpu; 4], 0));
                    for updates in [[cpu; 4], [gpu, cpu, gpu, cpu], [cpu, gpu, cpu, gpu], [gpu; 4]] {
                        cases.push(case(true).on_gpu(Precision::Bf16, updates, 0));
                    }
                }
            }
        }
    }
    cases
}

fn accesses(program: &Program) -> impl Iterator<Item = (Run, Mode)> {
    program.instructions.iter().flat_map(|i| i.accesses.iter().copied())
}

#[test]
fn scratch_is_written_before_it_is_read() {
    for case in cases() {
        let program = Writer::steady(case.description());
        let mut written = BTreeMap::new();
        for (run, mode) in accesses(&program).filter(|(run, _)| run.region.0 >= 5) {
            assert!(mode == Mode::Write || written.contains_key(&run), "{run} is read before it is written");
            written.insert(run, ());
        }
    }
}

#[test]
fn every_gradient_is_left_for_exactly_one_update() {
    for case in cases() {
        let program = Writer::steady(case.description());
        let pages = case.layout.pages();
        let mut updated = vec![0; pages as usize];
        let mut kept = vec![0; pages as usize];
        for instruction in &program.instructions {
            let (count, unit, chunk) = match instruction.operation {
                Operation::Update { unit, chunk, .. } | Operation::Apply { unit, chunk, .. } => {
                    (&mut updated, unit, chunk)
                }
                Operation::Keep { partial: false, unit, chunk, .. } => (&mut kept, unit, chunk),
                _ => continue,
            };
            let run = case.layout.chunks(&case.manifest, unit)[chunk].run(HI);
            (run.first..run.end()).for_each(|page| count[page as usize] += 1);
        }
        assert_eq!(updated, vec![1; pages as usize]);
        for (unit, first) in case.layout.first_page.iter().take(case.manifest.units.len()).enumerate() {
            let is_kept = !case.fused_backward || case.updates.get(unit) == Some(&UpdateOn::Cpu);
            let end = case.layout.first_page[unit + 1];
            assert!(
                kept[*first as usize..end as usize].iter().all(|count| *count == i32::from(is_kept)),
                "unit {unit}"
            );
        }
    }
}

/// An update finds the gradients of its chunk as they were kept: nothing else is kept in their run before it.
#[test]
fn an_update_in_backward_has_its_own_gradients() {
    for case in cases().into_iter().filter(|case| case.fused_backward && case.gpu.is_some()) {
        let program = Writer::steady(case.description());
        let mut kept = BTreeMap::new();
        for instruction in &program.instructions {
            match instruction.operation {
                Operation::Keep { unit, chunk, partial, .. } => {
                    let before = kept.insert(instruction.accesses[0].0, (unit, chunk, partial));
                    assert!(before.is_none_or(|(_, _, partial)| partial), "{before:?} is lost for {unit} {chunk}");
                }
                Operation::Update { unit, chunk, .. } => {
                    assert_eq!(kept.remove(&instruction.accesses[0].0), Some((unit, chunk, false)));
                }
                _ => {}
            }
        }
        // A head's part is taken up by the embedding's, which the GPU applies.
        assert!(kept.values().all(|(_, _, partial)| *partial), "{kept:?}");
    }
}

/// With updates in backward the processor's are written one unit behind: when the GPU has been given the backward of
/// the next unit, and before that of the one after.
#[test]
fn the_processor_updates_behind_the_gpu() {
    let mut behind = 0;
    for case in cases().into_iter().filter(|case| case.fused_backward && case.gpu.is_some()) {
        let program = Writer::steady(case.description());
        // The unit whose backward was written last: head, two layers, embedding.
        let mut computed = 3;
        for instruction in &program.instructions {
            match instruction.operation {
                Operation::LayerBackward { layer, .. } => computed = layer + 1,
                Operation::Scatter { .. } => computed = 0,
                Operation::Update { unit, into, .. } => {
                    assert_eq!((instruction.on, into), (Resource::HostCompute, Sink::Nowhere));
                    assert_eq!(case.updates[unit], UpdateOn::Cpu);
                    let is_last = computed == 0 && unit <= 1;
                    assert!(unit == computed + 1 || is_last, "unit {unit} after unit {computed}");
                    behind += 1;
                }
                Operation::Apply { unit, .. } => {
                    assert_eq!(instruction.on, case.description().target().resource());
                    assert_eq!((case.updates[unit], unit), (UpdateOn::Gpu, unit.min(computed)));
                }
                _ => {}
            }
        }
    }
    assert!(behind > 0);
}

#[test]
fn no_instruction_updates_after_the_commit_mark_what_it_updated_before() {
    for case in cases() {
        let program = Writer::steady(case.description());
        let mark = program.instructions.iter().position(|i| i.operation == Operation::Commit).unwrap();
        let writes_state = |i: &Instruction| i.accesses.iter().any(|(run, mode)| run.region.0 < 4 && mode.writes());
        assert_eq!(program.instructions.iter().filter(|i| i.operation == Operation::Commit).count(), 1);
        let (before, after) = program.instructions.split_at(mark);
        let (quiet, busy) = if case.fused_backward { (before, after) } else { (after, before) };
        assert!(!quiet.iter().any(writes_state) && busy.iter().any(writes_state));
    }
}

#[test]
fn the_schedule_is_the_program() {
    for case in cases() {
        for program in [Writer::steady(case.description()), Writer::inference(case.description())] {
            let schedule = program.schedule(true);
            let planned = schedule.nodes.iter().filter_map(|node| match node {
                Node::Access(access) => Some((access.run, access.mode)),
                _ => None,
            });
            assert!(planned.eq(accesses(&program)));
            // Every access is given back by the work of its own instruction, and nothing else is waited for but an
            // update on the processor.
            for (node, after) in schedule.after.iter().enumerate() {
                let is_work = matches!(schedule.nodes[node], Node::Work { .. });
                assert!(after.iter().all(|&a| (a as usize) < node && (!is_work || node - (a as usize) <= 5)));
                let is_on_gpu = |node: &Node| matches!(node, Node::Access(access) if access.tier != Tier::Host);
                let reads = matches!(&schedule.nodes[node], Node::Access(access) if access.mode.reads());
                let is_relay =
                    |a: &u32| reads && is_on_gpu(&schedule.nodes[node]) && !is_on_gpu(&schedule.nodes[*a as usize]);
                assert!(is_work || after.iter().all(is_relay), "node {node}");
            }
        }
    }
}

/// With a GPU the processor updates its units, each chunk before the GPU takes up the new weights, and as many ahead of
/// whatever chunk the GPU takes up as the distance allows; everything else is the GPU's.
#[test]
fn the_processor_updates_ahead_of_the_gpu() {
    for case in cases().into_iter().filter(|case| case.gpu.is_some() && !case.fused_backward) {
        let program = Writer::steady(case.description());
        let target = case.description().target();
        let planes = target.weight_planes().len();
        let chunks = |unit| case.layout.chunks(&case.manifest, unit).into_iter().enumerate();
        let on_cpu = (0..4).filter(|unit| case.updates[*unit] == UpdateOn::Cpu);
        let all: Vec<_> = on_cpu.flat_map(|unit| chunks(unit).map(move |(n, at)| ((unit, n), at.len))).collect();
        let elements = |count: usize| all[..count].iter().map(|(_, len)| len).sum::<usize>();
        let (mut updated, mut wanted) = (Vec::new(), 0);
        for instruction in &program.instructions {
            match instruction.operation {
                Operation::Update { unit, chunk, into } if case.updates[unit] == UpdateOn::Cpu => {
                    assert_eq!((instruction.on, into), (Resource::HostCompute, Sink::Nowhere));
                    updated.push((unit, chunk));
                    continue;
                }
                Operation::Join { unit, chunk, .. } | Operation::Update { unit, chunk, .. } => {
                    let is_join = matches!(instruction.operation, Operation::Join { .. });
                    assert!(!is_join || instruction.accesses.len() == planes);
                    let own = all.iter().filter(|(at, _)| *at <= (unit, chunk)).count();
                    let reach = elements(own).saturating_add(case.ahead);
                    let reached = (own..=all.len()).rev().find(|count| elements(*count) <= reach).unwrap();
                    wanted = wanted.max(reached);
                    assert!(updated.iter().eq(all[..wanted].iter().map(|(at, _)| at)), "unit {unit}, chunk {chunk}");
                }
                _ => {}
            }
            assert_eq!(instruction.on, target.resource());
            assert_eq!(instruction.device_bytes, crate::vram::workspace_bytes(&case.description()));
        }
    }
}

#[test]
fn runs_are_equal_or_share_no_page() {
    for case in cases() {
        let mut runs: Vec<Run> = accesses(&Writer::steady(case.description())).map(|(run, _)| run).collect();
        runs.sort_unstable();
        runs.dedup();
        assert!(runs.windows(2).all(|pair| !pair[0].overlaps(&pair[1])));
        let [act, dact] = case.activations.regions();
        assert!(runs.iter().all(|run| run.region.0 != 5 || run.end() <= act.pages));
        assert!(runs.iter().all(|run| run.region.0 != 6 || run.end() <= dact.pages));
    }
}

#[test]
fn the_update_alone_touches_every_page_once() {
    for case in cases().into_iter().filter(|case| !case.fused_backward) {
        let program = Writer::update_only(case.description());
        for region in 0..5 {
            let pages: u32 =
                accesses(&program).filter(|(run, _)| run.region.0 == region).map(|(run, _)| run.count).sum();
            assert_eq!(pages, case.layout.pages());
        }
    }
}
