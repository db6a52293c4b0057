use super::*;
use crate::reference;
use crate::testing::{Rng, close, everywhere, wide};

/// The columns first..first+tile of [T, vocabulary].
fn columns(logits: &[f32], vocabulary: usize, first: usize, tile: usize) -> Vec<f32> {
    logits.chunks_exact(vocabulary).flat_map(|row| row[first..first + tile].iter().copied()).collect()
}

/// Loss (as f32 in a vector of one) and gradient, in tiles of at most `tile` columns.
fn tiled(cpu: &Cpu, logits: &[f32], labels: &[u32], vocabulary: usize, tile: usize, scale: f32) -> (f64, Vec<f32>) {
    let firsts: Vec<usize> = (0..vocabulary).step_by(tile).collect();
    let mut state = State::new(labels.len());
    for &first in &firsts {
        let tile = tile.min(vocabulary - first);
        forward_tile(cpu, &mut state, &columns(logits, vocabulary, first, tile), labels, first, tile);
    }
    let loss = finish(&mut state, labels);
    let mut gradient = vec![f32::NAN; logits.len()];
    for first in firsts {
        let tile = tile.min(vocabulary - first);
        let mut part = columns(logits, vocabulary, first, tile);
        backward_tile(cpu, &state, &mut part, labels, first, tile, scale);
        for (to, from) in gradient.chunks_exact_mut(vocabulary).zip(part.chunks_exact(tile)) {
            to[first..first + tile].copy_from_slice(from);
        }
    }
    (loss, gradient)
}

#[test]
fn equals_the_reference_on_every_processor() {
    let shapes = [(1, 1, 1), (1, 2, 1), (5, 17, 17), (5, 17, 4), (20, 1000, 300), (9, 5000, 2048), (33, 257, 256)];
    for (seed, (tokens, vocabulary, tile)) in shapes.into_iter().enumerate() {
        let mut rng = Rng(seed as u64);
        let logits: Vec<f32> = rng.vec(tokens * vocabulary).iter().map(|x| x * 5.0).collect();
        let mut labels: Vec<u32> = (0..tokens).map(|_| rng.below(vocabulary) as u32).collect();
        if tokens > 2 {
            labels[1] = NO_TARGET;
        }
        let results = everywhere("cross-entropy", |cpu| {
            let (loss, gradient) = tiled(cpu, &logits, &labels, vocabulary, tile, 0.25);
            let halves = [(loss.to_bits() >> 32) as u32, loss.to_bits() as u32].map(f32::from_bits);
            vec![halves.to_vec(), gradient]
        });
        let [high, low] = [results[0][0].to_bits(), results[0][1].to_bits()].map(u64::from);
        let loss = f64::from_bits(high << 32 | low);
        let (want, gradient) = reference::cross_entropy(&wide(&logits), &labels, vocabulary, 0.25);
        assert!((loss - want).abs() <= 2e-7 * (tokens as f64 + want), "{loss} {want}");
        if vocabulary > 1 {
            close("gradient", &results[1], &gradient, 3e-6);
        }
    }
}

#[test]
fn rows_without_target_count_nothing() {
    let cpu = Cpu::new(1).unwrap();
    let mut state = State::new(2);
    let mut logits = vec![f32::NAN, 1.0, 2.0, 3.0];
    forward_tile(&cpu, &mut state, &logits, &[NO_TARGET, 1], 0, 2);
    let loss = finish(&mut state, &[NO_TARGET, 1]);
    assert!((loss - (1.0 + (-1f64).exp()).ln()).abs() < 1e-7, "{loss}");
    backward_tile(&cpu, &state, &mut logits, &[NO_TARGET, 1], 0, 2, 1.0);
    assert_eq!(logits[..2], [0.0, 0.0]);
    assert!((logits[2] + logits[3]).abs() < 1e-6);
}

#[test]
fn far_apart_logits_do_not_overflow() {
    let cpu = Cpu::new(1).unwrap();
    let logits = [-500.0, 500.0, 0.0, 499.0];
    let (loss, gradient) = tiled(&cpu, &logits, &[1], 4, 1, 1.0);
    assert!((loss - (1.0 + (-1f64).exp()).ln()).abs() < 1e-6, "{loss}");
    assert!(gradient.iter().all(|x| x.is_finite()) && gradient[0] == 0.0);
}
