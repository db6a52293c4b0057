//! Steps on an engine in RAM: pending updates, both update schedules, refusals. Numbers are checked by the tests of the
//! whole, against references.

use super::prepare::Inputs;
use super::*;
use crate::batch::{Batch, MicroBatch, NO_TARGET};
use crate::block::Level;
use crate::error::Error;
use crate::layout::{HI, LO, Layout};
use crate::model::{Manifest, ModelConfig};
use crate::schedule::Kept;
use crate::target::Target;
use mt_engine::{Config, Engine, Mode, Schedule};
use mt_kernels::{Cpu, split};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use std::path::Path;

const SEQ: usize = 12;
/// Enough for three vocabulary tiles.
const VOCAB: usize = 9_000;
const HYPER: Hyper = Hyper { betas: (0.9, 0.95), eps: 1e-8, weight_decay: 0.1, max_grad_norm: None };

fn config(tied: bool) -> ModelConfig {
    let text = format!(
        r#"{{"model_type": "qwen3", "vocab_size": {VOCAB}, "hidden_size": 32, "num_hidden_layers": 2, "head_dim": 8,
        "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 48, "tie_word_embeddings": {tied}}}"#
    );
    ModelConfig::parse(&text, Path::new("config.json")).unwrap()
}

fn batch(seed: u64, rows: &[usize]) -> Batch {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let micro = rows.iter().map(|&rows| {
        let ids: Vec<u32> = (0..rows * SEQ).map(|_| rng.next_u32() % VOCAB as u32).collect();
        let next = |t: usize| if t % SEQ == SEQ - 1 { NO_TARGET } else { ids[t + 1] };
        let targets = (0..rows * SEQ).map(next).collect();
        let positions = (0..rows * SEQ).map(|t| (t % SEQ) as u32).collect();
        MicroBatch { rows, seq: SEQ, targets, ids, positions, document: vec![0; rows * SEQ] }
    });
    Batch { micro: micro.collect() }
}

fn options(recompute: Recompute, fused_backward: bool) -> Options {
    Options {
        target: Target::Cpu,
        recompute,
        fused_backward,
        durable: false,
        has_disk: false,
        page_elements: Some(2_048),
        sweeps_per_commit: 0,
        threads: 1,
        rates: Rates::default(),
        prefetch_intervals_max: None,
        budget_bytes: None,
        vram_bytes: 0,
        disk_bytes: u64::MAX,
        is_rough: false,
        is_roomy: false,
    }
}

/// A trainer on seeded weights, all in RAM.
fn trainer(tied: bool, rows: &[usize], options: &Options, hyper: Hyper) -> Trainer {
    chunked(tied, rows, options, hyper, 1 << 20)
}

/// As [`trainer`], with chunks of the given elements.
fn chunked(tied: bool, rows: &[usize], options: &Options, hyper: Hyper, chunk: usize) -> Trainer {
    let level = if options.recompute == Recompute::None { Level::All } else { Level::Input };
    keeping(tied, rows, options, hyper, chunk, Kept::uniform(2, level, false))
}

/// As [`chunked`], with what is kept for backward.
fn keeping(tied: bool, rows: &[usize], options: &Options, hyper: Hyper, chunk: usize, kept: Kept) -> Trainer {
    let config = config(tied);
    let manifest = Manifest::new(&config);
    let shapes = Shapes { rows_per_micro: rows[0], micro_rows: rows.to_vec(), seq: SEQ };
    let inputs = Inputs { config: &config, manifest: &manifest, shapes: &shapes, options };
    let layout = Layout::new(&manifest, options.page_elements, chunk);
    let prepared = inputs.with_layout(layout, kept, Vec::new()).unwrap();
    let engine = Engine::create(Config::new(Vec::new(), prepared.arena_bytes), &prepared.regions).unwrap();
    let trainer = Trainer::new(engine, &config, &manifest, prepared, &shapes, Cpu::new(1).unwrap(), hyper, 0).unwrap();
    let mut schedule = Schedule::default();
    let chunks = trainer.model.chunks.clone();
    for chunk in chunks.iter().flatten() {
        schedule.access(chunk.run(HI), Mode::Write, 0);
        schedule.access(chunk.run(LO), Mode::Write, 0);
    }
    let plan = trainer.prepared.plan_another(schedule).unwrap();
    let sweep = trainer.engine.sweep(&plan, None).unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(9);
    for (unit, chunk) in chunks.iter().enumerate().flat_map(|(unit, c)| c.iter().map(move |c| (unit, *c))) {
        let mut weights = vec![0.0; chunk.len];
        for segment in trainer.model.segments(unit, chunk) {
            let center = if segment.tensor.decay { 0.0 } else { 1.0 };
            for index in segment.range {
                weights[index - chunk.start] =
                    center + 0.1 * ((f64::from(rng.next_u32()) / 2_147_483_648.0) - 1.0) as f32;
            }
        }
        let (mut hi, mut lo) = (sweep.host_mut(chunk.run(HI)).unwrap(), sweep.host_mut(chunk.run(LO)).unwrap());
        hi.fill(0);
        lo.fill(0);
        let (hi, lo) = (leases::numbers_mut(&mut hi, chunk.len), leases::numbers_mut(&mut lo, chunk.len));
        split::split(&trainer.cpu, &weights, hi, lo).unwrap();
    }
    sweep.finish().unwrap();
    trainer
}

fn weights(trainer: &mut Trainer) -> Vec<u32> {
    let mut bits = Vec::new();
    trainer.read_weights(|_, _, weights| bits.extend(weights.iter().map(|w| w.to_bits()))).unwrap();
    bits
}

#[test]
fn a_flush_between_steps_changes_no_bit() {
    for tied in [false, true] {
        let rows = [2, 1];
        let run = |flush: bool| {
            let hyper = Hyper { max_grad_norm: Some(0.5), ..HYPER };
            let mut trainer = trainer(tied, &rows, &options(Recompute::All, false), hyper);
            let mut losses = Vec::new();
            for step in 0..4 {
                losses.push(trainer.step(&batch(step, &rows), 1e-2, None).unwrap().loss.to_bits());
                if flush {
                    trainer.flush(None).unwrap();
                }
            }
            assert_eq!(trainer.completed_steps(), 4);
            (losses, weights(&mut trainer))
        };
        assert_eq!(run(true), run(false));
    }
}

#[test]
fn what_is_kept_and_when_it_updates_changes_no_bit() {
    for tied in [false, true] {
        let rows = [2, 2, 1];
        let run = |kept: Kept, fused_backward| {
            let options = options(Recompute::Auto, fused_backward);
            let mut trainer = keeping(tied, &rows, &options, HYPER, 1 << 20, kept);
            let outcomes: Vec<Outcome> = (0..3).map(|s| trainer.step(&batch(s, &rows), 1e-2, None).unwrap()).collect();
            let numbers: Vec<_> = outcomes.iter().map(|o| (o.loss.to_bits(), o.grad_norm.map(f64::to_bits))).collect();
            (numbers, weights(&mut trainer))
        };
        let base = run(Kept::uniform(2, Level::Input, false), false);
        for first in Level::EACH {
            for second in Level::EACH {
                for logits in [false, true] {
                    let kept = Kept { layers: vec![first, second], logits };
                    assert!(base == run(kept.clone(), false), "{kept:?}");
                    assert!(base == run(kept.clone(), true), "{kept:?}, updates in backward");
                }
            }
        }
    }
}

#[test]
fn chunks_change_no_bit() {
    for tied in [false, true] {
        let rows = [2, 1];
        let run = |chunk, fused_backward| {
            let options = options(Recompute::All, fused_backward);
            let mut trainer = chunked(tied, &rows, &options, HYPER, chunk);
            let outcomes: Vec<Outcome> = (0..2).map(|s| trainer.step(&batch(s, &rows), 1e-2, None).unwrap()).collect();
            let numbers: Vec<_> = outcomes.iter().map(|o| (o.loss.to_bits(), o.grad_norm.map(f64::to_bits))).collect();
            (numbers, weights(&mut trainer))
        };
        let base = run(1 << 20, false);
        for chunk in [2_048, 3 * 2_048, 65 * 2_048] {
            assert_eq!(base, run(chunk, false), "{chunk}");
            assert_eq!(base, run(chunk, true), "{chunk}");
        }
    }
}

#[test]
fn the_norm_is_that_of_the_gradients() {
    for tied in [false, true] {
        let mut trainer = trainer(tied, &[2, 1], &options(Recompute::All, false), HYPER);
        let outcome = trainer.step(&batch(1, &[2, 1]), 1e-2, None).unwrap();
        assert_eq!((outcome.targets, outcome.tokens), (3 * (SEQ as u64 - 1), 3 * SEQ as u64));
        let mut sum = 0.0;
        trainer.read_gradients(|_, _, g| sum += g.iter().map(|g| f64::from(*g).powi(2)).sum::<f64>()).unwrap();
        let norm = outcome.grad_norm.unwrap();
        assert!((norm - sum.sqrt()).abs() < 1e-12 * norm, "{norm} {}", sum.sqrt());
        trainer.flush(None).unwrap();
        assert!(trainer.read_gradients(|_, _, _| ()).is_err());
    }
}

#[test]
fn logits_give_the_loss() {
    let rows = [2, 1];
    for recompute in [Recompute::All, Recompute::None] {
        let mut trainer = trainer(true, &rows, &options(recompute, false), HYPER);
        let batch = batch(5, &rows);
        let mut sum = 0.0;
        for micro in &batch.micro {
            let logits = trainer.logits(micro).unwrap();
            for (row, target) in logits.chunks(VOCAB).zip(&micro.targets).filter(|(_, t)| **t != NO_TARGET) {
                let total: f64 = row.iter().map(|l| f64::from(*l).exp()).sum();
                sum += total.ln() - f64::from(row[*target as usize]);
            }
        }
        let loss = trainer.step(&batch, 1e-2, None).unwrap().loss;
        assert!((loss - sum / batch.target_count() as f64).abs() < 1e-5 * loss);
        let large = self::batch(5, &[3]).micro.swap_remove(0);
        assert!(matches!(trainer.logits(&large), Err(Error::Input { .. })));
    }
}

#[test]
fn batches_of_another_kind_are_refused_before_anything_runs() {
    let mut trainer = trainer(true, &[2, 1], &options(Recompute::All, false), HYPER);
    let good = batch(1, &[2, 1]);
    let mut bad = vec![batch(1, &[2]), batch(1, &[1, 2])];
    for edit in [0, 1, 2, 3] {
        let mut batch = good.clone();
        match edit {
            0 => batch.micro[1].ids[3] = VOCAB as u32,
            1 => batch.micro[0].targets[3] = VOCAB as u32,
            2 => batch.micro[0].document[3] = 4,
            _ => batch.micro.iter_mut().for_each(|m| m.targets.fill(NO_TARGET)),
        }
        bad.push(batch);
    }
    for batch in bad {
        assert!(matches!(trainer.step(&batch, 1e-2, None), Err(Error::Input { .. })));
    }
    assert_eq!(trainer.completed_steps(), 0);
    trainer.step(&good, 1e-2, None).unwrap();
}

#[test]
fn clipping_needs_the_norm_before_the_update() {
    let config = config(true);
    let manifest = Manifest::new(&config);
    let shapes = Shapes { rows_per_micro: 1, micro_rows: vec![1], seq: SEQ };
    let prepared = prepare(&config, &manifest, &shapes, &options(Recompute::All, true)).unwrap();
    let engine = Engine::create(Config::new(Vec::new(), prepared.arena_bytes), &prepared.regions).unwrap();
    let hyper = Hyper { max_grad_norm: Some(1.0), ..HYPER };
    assert!(Trainer::new(engine, &config, &manifest, prepared, &shapes, Cpu::new(1).unwrap(), hyper, 0).is_err());
}

#[test]
fn a_refused_budget_names_one_that_is_accepted() {
    let config = config(false);
    let manifest = Manifest::new(&config);
    let shapes = Shapes { rows_per_micro: 2, micro_rows: vec![2, 1], seq: SEQ };
    for has_disk in [false, true] {
        let with = |budget| {
            let options = Options { budget_bytes: Some(budget), has_disk, ..options(Recompute::Auto, false) };
            prepare(&config, &manifest, &shapes, &options)
        };
        let Err(Error::DoesNotFit { need_bytes, have_bytes, .. }) = with(1) else { panic!("a byte is enough") };
        assert_eq!(have_bytes, 1);
        let mut budget = need_bytes;
        let prepared = loop {
            match with(budget) {
                Ok(prepared) => break prepared,
                Err(Error::DoesNotFit { need_bytes, .. }) if need_bytes > budget => budget = need_bytes,
                other => panic!("{other:?}"),
            }
        };
        assert!(prepared.arena_bytes + prepared.workspace_bytes <= budget);
    }
}

/// Over growing budgets of RAM seconds grow by less than 1/0.95, which is what a larger chunk may cost by rule. Not a
/// property that the search has: seconds grow by up to 4.2% here, in part where the chunks stay the same.
#[test]
fn more_ram_is_planned_to_be_little_slower_at_most() {
    const GIVEN_AWAY: f64 = 1.0 / 0.95;
    let config = config(false);
    let manifest = Manifest::new(&config);
    let shapes = Shapes { rows_per_micro: 4, micro_rows: vec![4, 4], seq: SEQ };
    let state = 16 * manifest.elements();
    for (sweeps_per_commit, recompute) in
        [(0, Recompute::All), (0, Recompute::Auto), (1, Recompute::Auto), (10, Recompute::Auto)]
    {
        let (mut least, mut planned) = (f64::INFINITY, 0);
        for budget in (1..=40).map(|part| part * state / 32) {
            let options = Options {
                budget_bytes: Some(budget),
                has_disk: true,
                durable: sweeps_per_commit > 0,
                sweeps_per_commit,
                ..options(recompute, false)
            };
            let Ok(prepared) = prepare(&config, &manifest, &shapes, &options) else { continue };
            let seconds = prepared.prediction.seconds;
            assert!(seconds <= GIVEN_AWAY * least, "{budget} bytes, {recompute:?}: {seconds} s after {least} s");
            (least, planned) = (least.min(seconds), planned + 1);
        }
        assert!(planned > 25, "only {planned} budgets were enough");
    }
}
