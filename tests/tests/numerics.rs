//! Kinds of numeric faults (C01 to C05, C07): scale of accumulation, order of clipping, which tensors decay, small
//! updates, the optimizer's formula, non-finite numbers. Gradients are the trainer's own, checked against an f64
//! forward pass by finite differences; updates are compared with AdamW written out in f64.

use mt_tests::command::Place;
use mt_tests::forward::Reference;
use mt_tests::numbers::{AdamW, Sums, clip_scale, norm, relative};
use mt_tests::rig::{Job, Rig, Setup};
use mt_tests::small::{self, Normal, Small};
use mt_tests::tensors::Tensors;
use mt_trainer::batch::{Batch, MicroBatch, NO_TARGET};
use mt_trainer::model::ModelConfig;
use mt_trainer::settings::Recompute;
use mt_trainer::step::Hyper;
use serde_json::json;
use std::collections::BTreeMap;

const MT: &str = env!("CARGO_BIN_EXE_mt-under-test");
const SEQ: usize = 128;
const HYPER: Hyper = Hyper { betas: (0.9, 0.95), eps: 1e-8, weight_decay: 0.1, max_grad_norm: Some(1.0) };

/// Rows with the first `targets[i]` positions as targets, in micro-batches of `micro` rows.
fn batch(targets: &[usize], micro: usize, seq: usize, vocab: usize) -> Batch {
    let mut random = Normal::new(77);
    let rows: Vec<(Vec<u32>, Vec<u32>)> = targets
        .iter()
        .map(|&count| {
            let ids: Vec<u32> = (0..seq).map(|_| random.below(vocab) as u32).collect();
            let shifted = ids[1..].iter().copied().chain([NO_TARGET]).enumerate();
            let targets = shifted.map(|(i, id)| if i < count { id } else { NO_TARGET }).collect();
            (ids, targets)
        })
        .collect();
    let part = |rows: &[(Vec<u32>, Vec<u32>)]| MicroBatch {
        rows: rows.len(),
        seq,
        ids: rows.iter().flat_map(|(ids, _)| ids.clone()).collect(),
        targets: rows.iter().flat_map(|(_, targets)| targets.clone()).collect(),
        positions: rows.iter().flat_map(|_| 0..seq as u32).collect(),
        document: vec![0; rows.len() * seq],
    };
    Batch { micro: rows.chunks(micro).map(part).collect() }
}

/// A model in a temporary folder, and the job that trains it on batches of this shape.
fn job(model: &Small, batch: &Batch, hyper: Hyper) -> (tempfile::TempDir, Job) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    model.write(folder.path());
    let config = ModelConfig::read(&folder.path().join("config.json")).expect("the model is sound");
    let micro_rows = batch.micro.iter().map(|m| m.rows).collect();
    let job = Job { config, dir: folder.path().to_owned(), micro_rows, seq: batch.micro[0].seq, hyper };
    (folder, job)
}

fn weights(rig: &mut Rig) -> Tensors {
    rig.flush(None).expect("the update runs");
    rig.weights().expect("the weights can be read")
}

/// AdamW in f64 for every tensor; matrices decay.
struct Optimizer(BTreeMap<String, AdamW>);

impl Optimizer {
    fn new(start: &Tensors, hyper: Hyper) -> Optimizer {
        let decay = |name: &str| if start.shape(name).len() >= 2 { hyper.weight_decay } else { 0.0 };
        let of = |n: &String| (n.clone(), AdamW::new(start.values(n), hyper.betas, hyper.eps, decay(n)));
        Optimizer(start.names().map(of).collect())
    }

    fn update(&mut self, gradients: &Tensors, scale: f64, lr: f64) {
        for (name, adam) in &mut self.0 {
            adam.update(gradients.values(name), scale, lr);
        }
    }

    fn compare(&self, weights: &Tensors, tolerance: f64) {
        for (name, adam) in &self.0 {
            let off = adam.largest_difference(weights.values(name));
            assert!(off <= tolerance, "{name}: off by {off:e}");
        }
    }
}

fn all(tensors: &Tensors) -> impl Iterator<Item = &[f32]> {
    tensors.names().map(|n| tensors.values(n))
}

/// A family with everything: biases on every projection, head sizes that do not follow from the hidden size.
fn biased() -> Small {
    Small::with(
        5,
        json!({"attention_bias": true, "mlp_bias": true, "head_dim": 24, "vocab_size": 96, "bos_token_id": 1,
                          "eos_token_id": 2, "rope_theta": 500.0}),
    )
}

fn qwen3() -> Small {
    Small::with(
        6,
        json!({"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "head_dim": 32, "vocab_size": 96,
                          "rms_norm_eps": 1e-6, "tie_word_embeddings": true, "bos_token_id": 1, "eos_token_id": 2}),
    )
}

#[test]
fn gradients_are_the_slopes_of_the_loss() {
    for (name, model) in [("biased", biased()), ("qwen3", qwen3()), ("m0", Small::with(7, json!({"vocab_size": 96})))] {
        let batch = batch(&[5, 12, 3], 2, 16, 96);
        let (_folder, job) = job(&model, &batch, HYPER);
        let mut rig = job.begin(&Setup::default()).expect("the set-up is sound");
        let outcome = rig.step(&batch, 0.0).expect("the step runs");
        let reference = Reference::new(&model.config, &model.tensors);
        let expected = reference.loss(&batch);
        assert!(relative(outcome.loss, expected) < 1e-5, "{name}: loss {} and {expected}", outcome.loss);
        let gradients = rig.gradients().expect("the gradients can be read");
        assert_eq!(gradients.names().collect::<Vec<_>>(), model.tensors.names().collect::<Vec<_>>());
        let mut random = Normal::new(8);
        for tensor in model.tensors.names() {
            let gradient = gradients.values(tensor);
            // Along the gradient itself, mixed with noise of the same size, so that a wrong element shows too.
            let size = norm([gradient]) / (gradient.len() as f64).sqrt();
            let direction: Vec<f64> = gradient.iter().map(|&g| f64::from(g) + size * random.normal()).collect();
            let product: f64 = direction.iter().zip(gradient).map(|(d, &g)| d * f64::from(g)).sum();
            let length = direction.iter().map(|d| d * d).sum::<f64>().sqrt();
            let slope = reference.slope(&batch, &[(tensor.clone(), direction)], 1e-4 / length.max(1e-12));
            let scale = length * norm([gradient]);
            assert!(
                (slope - product).abs() <= 1e-4 * scale,
                "{name} {tensor}: slope {slope:e}, gradient says {product:e}"
            );
        }
    }
}

#[test]
fn c01_loss_norm_and_weights_do_not_depend_on_the_accumulation() {
    let model = Small::m0(1);
    let targets = [3, 50, 7, 120];
    let mut first: Option<(Vec<f64>, Vec<f64>, Tensors)> = None;
    for micro in [4, 2, 1] {
        let batch = batch(&targets, micro, SEQ, 512);
        assert_eq!(batch.target_count(), 180);
        let (_folder, job) = job(&model, &batch, HYPER);
        let mut rig = job.begin(&Setup::default()).expect("the set-up is sound");
        let outcomes: Vec<_> = (0..3).map(|_| rig.step(&batch, 1e-3).expect("the step runs")).collect();
        let losses: Vec<f64> = outcomes.iter().map(|o| o.loss).collect();
        let norms: Vec<f64> = outcomes.iter().map(|o| o.grad_norm.expect("the norm")).collect();
        let expected = Reference::new(&model.config, &model.tensors).loss(&batch);
        assert!(relative(losses[0], expected) < 1e-5, "the loss is per target");
        let weights = weights(&mut rig);
        let Some((first_losses, first_norms, first_weights)) = &first else {
            first = Some((losses, norms, weights));
            continue;
        };
        for i in 0..3 {
            assert!(relative(losses[i], first_losses[i]) < 1e-6, "{micro}: loss of step {i}");
            assert!(relative(norms[i], first_norms[i]) < 1e-6, "{micro}: norm of step {i}");
        }
        let mut all = Sums::default();
        weights.names().for_each(|name| all.add(weights.values(name), first_weights.values(name)));
        assert!(all.error() < 1e-6, "{micro}: the weights are off by {:e}", all.error());
    }
}

#[test]
fn c02_one_norm_over_all_tensors_clips_after_the_accumulation() {
    let model = Small::m0(2);
    let batch = batch(&[100, 20, 60, 127], 1, SEQ, 512);
    for limit in [Some(0.1), None, Some(1e6)] {
        let hyper = Hyper { max_grad_norm: limit, ..HYPER };
        let (folder, job) = job(&model, &batch, hyper);
        let streamed = Setup { stores: vec![folder.path().join("store")], page: Some(2_048), ..Setup::default() };
        let budget = Some(job.smallest_budget(&streamed));
        let mut rig = job.begin(&Setup { budget, ..streamed }).expect("the set-up is sound");
        let mut optimizer = Optimizer::new(&model.tensors, hyper);
        for step in 0..3 {
            let outcome = rig.step(&batch, 1e-3).expect("the step runs");
            let gradients = rig.gradients().expect("the gradients can be read");
            let expected = norm(all(&gradients));
            if limit.is_some() {
                let found = outcome.grad_norm.expect("clipping needs the norm");
                assert!(relative(found, expected) < 1e-6, "step {step}: norm {found}, over all tensors {expected}");
                assert!(expected > 0.1, "the limit bites, and the norm is printed before clipping");
            }
            optimizer.update(&gradients, clip_scale(expected, limit), 1e-3);
            optimizer.compare(&weights(&mut rig), 1e-6);
        }
    }
}

#[test]
fn c03_only_matrices_decay() {
    for model in [biased(), qwen3()] {
        let hyper = Hyper { weight_decay: 0.5, ..HYPER };
        let batch = batch(&[9, 4], 1, 16, 48);
        let (_folder, job) = job(&model, &batch, hyper);
        let mut rig = job.begin(&Setup::default()).expect("the set-up is sound");
        let mut optimizer = Optimizer::new(&model.tensors, hyper);
        for _ in 0..4 {
            let outcome = rig.step(&batch, 1e-2).expect("the step runs");
            let gradients = rig.gradients().expect("the gradients can be read");
            optimizer.update(&gradients, clip_scale(outcome.grad_norm.expect("the norm"), Some(1.0)), 1e-2);
        }
        let weights = weights(&mut rig);
        optimizer.compare(&weights, 2e-6);
        if !model.tensors.has("lm_head.weight") {
            continue;
        }
        // Rows of tokens that never occur have no gradient: what is left of them is the decay alone.
        let factor = (1.0 - 1e-2 * 0.5_f64).powi(4);
        let name = "model.embed_tokens.weight";
        for (now, start) in weights.values(name)[48 * 64..].iter().zip(&model.tensors.values(name)[48 * 64..]) {
            assert!((f64::from(*now) - f64::from(*start) * factor).abs() < 1e-6);
        }
    }
}

/// AdamW in f32 in the order of PyTorch's code: what a plain f32 trainer gives.
struct PlainF32 {
    w: Vec<f32>,
    m: Vec<f32>,
    v: Vec<f32>,
    step: i32,
}

impl PlainF32 {
    fn update(&mut self, gradient: &[f32], scale: f64, lr: f64, hyper: Hyper) {
        self.step += 1;
        let (b1, b2) = hyper.betas;
        let (c1, c2) = (1.0 - b1.powi(self.step), 1.0 - b2.powi(self.step));
        for (i, &g) in gradient.iter().enumerate() {
            let g = (f64::from(g) * scale) as f32;
            self.w[i] *= (1.0 - lr * hyper.weight_decay) as f32;
            self.m[i] += (1.0 - b1) as f32 * (g - self.m[i]);
            self.v[i] = self.v[i] * b2 as f32 + (1.0 - b2) as f32 * g * g;
            let d = self.v[i].sqrt() / c2.sqrt() as f32 + hyper.eps as f32;
            self.w[i] -= (lr / c1) as f32 * (self.m[i] / d);
        }
    }
}

#[test]
fn c04_small_updates_do_not_vanish() {
    let mut model =
        Small::with(9, json!({"vocab_size": 96, "bos_token_id": 1, "eos_token_id": 2, "num_hidden_layers": 1}));
    let one = "model.layers.0.mlp.up_proj.weight";
    for name in [one, "model.norm.weight"] {
        let near: Vec<f32> =
            model.tensors.values(name).iter().map(|w| half::bf16::from_f32(1.0 + 0.1 * w).to_f32()).collect();
        let shape = model.tensors.shape(name).to_vec();
        model.tensors.insert(name, &shape, near);
    }
    let (lr, steps) = (1e-6, 200_u32);
    let hyper = Hyper { weight_decay: 0.01, ..HYPER };
    let batch = batch(&[10, 15], 2, 16, 96);
    let (_folder, job) = job(&model, &batch, hyper);
    let mut rig = job.begin(&Setup::default()).expect("the set-up is sound");
    let mut exact = Optimizer::new(&model.tensors, hyper);
    let start = model.tensors.values(one);
    let zeros = vec![0.0; start.len()];
    let mut plain = PlainF32 { w: start.to_vec(), m: zeros.clone(), v: zeros, step: 0 };
    for _ in 0..steps {
        let outcome = rig.step(&batch, lr).expect("the step runs");
        let gradients = rig.gradients().expect("the gradients can be read");
        let scale = clip_scale(outcome.grad_norm.expect("the norm"), Some(1.0));
        exact.update(&gradients, scale, lr);
        plain.update(gradients.values(one), scale, lr, hyper);
    }
    let weights = weights(&mut rig);
    let found = weights.values(one);
    let off = found.iter().zip(&plain.w).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(off <= 1e-6, "off by {off:e} from plain f32");
    let moved: f64 = found.iter().zip(start).map(|(a, b)| f64::from((a - b).abs())).sum::<f64>() / found.len() as f64;
    assert!(moved > 1e-5, "the weights moved by {moved:e} on average; in bf16 they could not");
    // Each update rounds once, by at most half a unit of the last place of a weight below 2.
    exact.compare(&weights, f64::from(steps) * 2.0_f64.powi(-24));
}

#[test]
fn c05_the_formula_is_adamw_and_states_do_not_depend_on_where_they_live() {
    let mut model = Small::with(10, json!({"vocab_size": 96, "bos_token_id": 1, "eos_token_id": 2}));
    // A final norm of 1e-9 makes every gradient but its own about that small.
    model.tensors.insert("model.norm.weight", &[64], vec![1e-9; 64]);
    let hyper = Hyper { weight_decay: 0.0, max_grad_norm: None, ..HYPER };
    let batch = batch(&[10, 15], 1, 16, 96);
    let (folder, job) = job(&model, &batch, hyper);
    let mut rig = job.begin(&Setup::default()).expect("the set-up is sound");
    let mut optimizer = Optimizer::new(&model.tensors, hyper);
    for step in 0..5 {
        rig.step(&batch, 1e-3).expect("the step runs");
        let gradients = rig.gradients().expect("the gradients can be read");
        if step == 0 {
            let head = gradients.values("lm_head.weight");
            let typical = norm([head]) / (head.len() as f64).sqrt();
            assert!((1e-12..1e-8).contains(&typical), "gradients about 1e-9: {typical:e}");
        }
        optimizer.update(&gradients, 1.0, 1e-3);
    }
    let in_ram = weights(&mut rig);
    optimizer.compare(&in_ram, 1e-6);
    let streamed = Setup { stores: vec![folder.path().join("store")], page: Some(2_048), ..Setup::default() };
    let budget = Some(job.smallest_budget(&streamed));
    let mut rig = job.begin(&Setup { budget, ..streamed }).expect("the set-up is sound");
    for _ in 0..5 {
        rig.step(&batch, 1e-3).expect("the step runs");
    }
    assert!(weights(&mut rig).bits() == in_ram.bits(), "the same bits from a store");
}

#[test]
fn recomputation_changes_no_gradient() {
    let model = biased();
    let batch = batch(&[9, 4, 15], 2, 16, 96);
    let (_folder, job) = job(&model, &batch, HYPER);
    let gradients = |recompute| {
        let mut rig = job.begin(&Setup { recompute, ..Setup::default() }).expect("the set-up is sound");
        rig.step(&batch, 1e-3).expect("the step runs");
        rig.gradients().expect("the gradients can be read")
    };
    assert!(gradients(Recompute::All).bits() == gradients(Recompute::None).bits());
}

#[test]
fn c07_a_checkpoint_with_a_number_that_is_not_finite_is_refused() {
    let place = Place::new(MT);
    place.write("t.txt", small::text(1, 4_000));
    let words = "train --model m --data t.txt --seq-len 32 --batch 2 --steps 1";
    for (i, bad) in [f32::INFINITY, f32::NAN, f32::NEG_INFINITY, f32::from_bits(0x7f7f_8000)].into_iter().enumerate() {
        let mut model = Small::m0(1);
        let name = "model.layers.1.mlp.down_proj.weight";
        let mut values = model.tensors.values(name).to_vec();
        values[777] = bad;
        model.tensors.insert(name, &[64, 176], values);
        place.model("m", &model);
        let run = format!("r{i}");
        place.refused(&format!("{words} --run {run}"), 2, &[name]);
        assert!(place.metrics(&run).is_empty());
    }
    place.model("m", &Small::m0(1));
    place.ok(&format!("{words} --run good"));
}

#[test]
fn c07_a_step_that_is_not_finite_stops_before_anything_is_touched() {
    let place = Place::new(MT);
    place.write("t.txt", small::text(1, 8_000));
    place.model("m", &Small::m0(1));
    for (run, clip) in [("clipped", "1"), ("free", "off")] {
        let words = format!(
            "train --model m --data t.txt --seq-len 32 --batch 2 --steps 9 --lr 1e30 --lr-schedule constant --warmup 0 \
             --max-grad-norm {clip} --checkpoint-every 1 --run {run}"
        );
        let stopped = place.run(&words);
        assert_eq!(stopped.code, Some(5), "{stopped}");
        assert!(!stopped.err.contains("panicked"), "{stopped}");
        place.ok(&format!("verify {run}"));
        let weights = place.weights(run);
        assert!(all(&weights).flatten().all(|w| w.is_finite()), "{run}: the last commit is whole");
        assert!(place.losses(run).iter().all(|l| l.is_finite()), "{run}: no loss that is not a number");
        let again = place.run(&format!("resume {run}"));
        assert_eq!(again.code, Some(5), "{again}");
        assert!(place.weights(run).bits() == weights.bits(), "{run}: trying again changes nothing");
    }
}
