//! The layer against an f64 reference: values, and gradients by central differences, for every option; and equal bits
//! whatever of the intermediates is kept.

mod reference;

use super::*;
use crate::model::Manifest;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use reference::Reference;
use std::path::Path;

const ROWS: usize = 2;
const SEQ: usize = 7;

struct Case {
    config: ModelConfig,
    unit: Unit,
    window: Option<usize>,
    positions: Vec<u32>,
    document: Vec<u32>,
    weights: Vec<f32>,
    x: Vec<f32>,
    dy: Vec<f32>,
}

fn uniform(rng: &mut ChaCha8Rng, len: usize, center: f32, width: f32) -> Vec<f32> {
    (0..len).map(|_| center + width * ((rng.next_u32() as f64 / f64::from(u32::MAX)) * 2.0 - 1.0) as f32).collect()
}

/// A layer of hidden size 12 with 4 query and 2 key heads of 4.
fn case(seed: u64, extra: &str, qk_norm: bool, window: Option<usize>, documents: bool) -> Case {
    let text = format!(
        r#"{{"model_type": "llama", "vocab_size": 16, "hidden_size": 12,
        "num_hidden_layers": 1, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 4, "intermediate_size": 20,
        "rope_theta": 100, "rms_norm_eps": 1e-5 {extra}}}"#
    );
    let mut config = ModelConfig::parse(&text, Path::new("config.json")).unwrap();
    config.qk_norm = qk_norm;
    let unit = Manifest::new(&config).units[1].clone();
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let weights = unit
        .tensors
        .iter()
        .flat_map(|t| uniform(&mut rng, t.len, if t.name.contains("norm") { 1.0 } else { 0.0 }, 0.5))
        .collect();
    let mut document = vec![0; ROWS * SEQ];
    if documents {
        document[3..SEQ].fill(3);
        document[SEQ + 1..].fill(1);
        document[SEQ + 5..].fill(5);
    }
    let positions = (0..ROWS * SEQ).map(|t| (t % SEQ) as u32 - document[t]).collect();
    let x = uniform(&mut rng, ROWS * SEQ * 12, 0.0, 1.0);
    let dy = uniform(&mut rng, ROWS * SEQ * 12, 0.0, 1.0);
    Case { config, unit, window, positions, document, weights, x, dy }
}

/// Every option alone, and all together.
fn cases() -> Vec<(&'static str, Case)> {
    let biases = r#", "attention_bias": true, "mlp_bias": true"#;
    vec![
        ("plain", case(1, "", false, None, false)),
        ("biases", case(2, biases, false, None, false)),
        ("head norms", case(3, "", true, None, false)),
        ("window", case(4, "", false, Some(3), false)),
        ("documents", case(5, "", false, None, true)),
        ("window and documents", case(6, "", false, Some(2), true)),
        ("all", case(7, biases, true, Some(3), true)),
    ]
}

struct Computed {
    y: Vec<f32>,
    dx: Vec<f32>,
    grads: Vec<f32>,
}

/// Forward and backward; the gradients are accumulated `times` times.
fn compute(case: &Case, threads: usize, level: Level, times: usize) -> Computed {
    let cpu = Cpu::new(threads).unwrap();
    let dims = Dims::new(&case.config);
    let tensors = Tensors::new(&case.config, &case.unit);
    let rope = Table::new(case.config.rope_theta, dims.head_dim, case.config.rope_scaling, SEQ);
    let count = ROWS * SEQ;
    let mut first = vec![0; count];
    first_seen(&case.document, SEQ, case.window, &mut first);
    let tokens = Tokens { rows: ROWS, seq: SEQ, positions: &case.positions, first: &first };
    let block = Block { cpu: &cpu, dims, tensors: &tensors, weights: &case.weights, rope: &rope };
    // What is not written must not be read: NaN everywhere.
    let mut kept = vec![f32::NAN; Saved::kept(&dims, count, level)];
    let mut memory = vec![f32::NAN; Saved::rest(&dims, count, level)];
    let mut scratch = vec![f32::NAN; scratch_elements(&dims, count)];
    let mut y = vec![f32::NAN; case.x.len()];
    let mut grads = vec![f32::NAN; case.unit.elements];
    let mut dx = Vec::new();
    for time in 0..times {
        let mut scratch = Scratch::new(&dims, count, &mut scratch);
        let mut saved = Saved::split_mut(&dims, count, level, &mut kept, &mut memory);
        block.forward(&tokens, &case.x, &mut saved, &mut scratch, &mut y);
        dx = case.dy.clone();
        let mut gradients = Gradients { elements: &mut grads, add: time > 0 };
        memory.fill(f32::NAN);
        let kept = Kept { level, elements: &kept };
        block.backward(&tokens, &case.x, kept, &mut memory, &mut scratch, &mut gradients, &mut dx);
    }
    Computed { y, dx, grads }
}

fn assert_close(what: &str, found: &[f32], expected: &[f64], tolerance: f64) {
    let error: f64 = found.iter().zip(expected).map(|(a, b)| (f64::from(*a) - b).powi(2)).sum::<f64>().sqrt();
    let size: f64 = expected.iter().map(|b| b * b).sum::<f64>().sqrt();
    assert!(error <= tolerance * size, "{what}: relative error {:e}", error / size);
}

#[test]
fn forward_and_backward_match_the_reference() {
    for (name, case) in cases() {
        let reference = Reference {
            config: &case.config,
            unit: &case.unit,
            rows: ROWS,
            seq: SEQ,
            positions: &case.positions,
            document: &case.document,
            window: case.window,
        };
        let widen = |x: &[f32]| x.iter().map(|a| f64::from(*a)).collect::<Vec<f64>>();
        let (weights, x, dy) = (widen(&case.weights), widen(&case.x), widen(&case.dy));
        let loss = |w: &[f64], x: &[f64]| reference.forward(w, x).iter().zip(&dy).map(|(a, b)| a * b).sum::<f64>();
        let slope = |at: &[f64], loss: &dyn Fn(&[f64]) -> f64| -> Vec<f64> {
            let mut moved = at.to_vec();
            let step = 1e-5;
            (0..at.len())
                .map(|i| {
                    moved[i] = at[i] + step;
                    let above = loss(&moved);
                    moved[i] = at[i] - step;
                    let below = loss(&moved);
                    moved[i] = at[i];
                    (above - below) / (2.0 * step)
                })
                .collect()
        };
        let computed = compute(&case, 1, Level::All, 1);
        assert_close(&format!("{name}: y"), &computed.y, &reference.forward(&weights, &x), 1e-6);
        assert_close(&format!("{name}: dx"), &computed.dx, &slope(&x, &|x| loss(&weights, x)), 5e-6);
        let expected = slope(&weights, &|w| loss(w, &x));
        for tensor in &case.unit.tensors {
            let range = tensor.offset..tensor.offset + tensor.len;
            let what = format!("{name}: {}", tensor.name);
            // A bias of k moves all scores of a query alike: its gradient is zero up to the head norm and the rotation.
            assert_close(&what, &computed.grads[range.clone()], &expected[range], 2e-5);
        }
    }
}

#[test]
fn bits_do_not_depend_on_what_is_kept_or_on_threads() {
    let bits = |x: &[f32]| x.iter().map(|a| a.to_bits()).collect::<Vec<_>>();
    for (name, case) in cases() {
        let kept = compute(&case, 1, Level::All, 2);
        let others = Level::EACH.map(|level| compute(&case, 1, level, 2));
        for other in others.into_iter().chain([compute(&case, 2, Level::All, 2)]) {
            assert_eq!(bits(&kept.y), bits(&other.y), "{name}");
            assert_eq!(bits(&kept.dx), bits(&other.dx), "{name}");
            assert_eq!(bits(&kept.grads), bits(&other.grads), "{name}");
        }
    }
}

#[test]
fn gradients_accumulate() {
    for (name, case) in cases() {
        let (once, twice) = (compute(&case, 1, Level::All, 1), compute(&case, 1, Level::All, 2));
        let doubled: Vec<f64> = once.grads.iter().map(|g| 2.0 * f64::from(*g)).collect();
        assert_close(name, &twice.grads, &doubled, 1e-6);
    }
}

#[test]
fn first_seen_is_the_later_of_document_and_window() {
    let mut first = [9; 8];
    first_seen(&[0, 0, 2, 2, 0, 0, 0, 0], 4, None, &mut first);
    assert_eq!(first, [0, 0, 2, 2, 0, 0, 0, 0]);
    first_seen(&[0, 0, 2, 2, 0, 0, 0, 0], 4, Some(2), &mut first);
    assert_eq!(first, [0, 0, 2, 2, 0, 0, 1, 2]);
    first_seen(&[0; 4], 4, Some(1), &mut first[..4]);
    assert_eq!(first[..4], [0, 1, 2, 3]);
}
