//! Seeded random initialization: normal for matrices and embeddings, ones for norm weights, zeros for biases.
//!
//! What it is not: a random generator for anything else; data order and sampling have their own.
//!
//! Invariant: an element's bits depend on the seed, the tensor's index, the element's index and the standard deviation
//! alone: not on how the tensor is cut, on threads, or on the machine's mathematical library. Each pair of elements
//! (2k, 2k + 1) takes words 2k and 2k + 1 of the tensor's own ChaCha8 stream through a Box-Muller transform whose
//! logarithm, sine and cosine are the fixed series below (additions, multiplications and divisions in f64, none fused).

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// Fewest elements that are worth a thread.
const THREAD_ELEMENTS_MIN: usize = 1 << 14;

/// Fills `out` with elements `start..` of the normal tensor of index `stream`, on up to `threads` threads.
pub(crate) fn normal(seed: u64, stream: u64, deviation: f64, start: usize, out: &mut [f32], threads: usize) {
    let threads = threads.min(out.len() / THREAD_ELEMENTS_MIN).max(1);
    let piece = out.len().div_ceil(threads).max(1);
    std::thread::scope(|scope| {
        let mut pieces = out.chunks_mut(piece).enumerate();
        let own = pieces.next();
        for (index, out) in pieces {
            scope.spawn(move || normal_range(seed, stream, deviation, start + index * piece, out));
        }
        if let Some((_, out)) = own {
            normal_range(seed, stream, deviation, start, out);
        }
    });
}

fn normal_range(seed: u64, stream: u64, deviation: f64, start: usize, out: &mut [f32]) {
    let mut words = ChaCha8Rng::seed_from_u64(seed);
    words.set_stream(stream);
    words.set_word_pos((start - start % 2) as u128);
    let mut next_pair = || {
        let radius = (-2.0 * ln_unit(words.next_u32())).sqrt() * deviation;
        let (sin, cos) = sin_cos_turn(words.next_u32());
        [(radius * cos) as f32, (radius * sin) as f32]
    };
    let mut rest = out;
    if start % 2 == 1 && !rest.is_empty() {
        let (first, others) = rest.split_at_mut(1);
        first[0] = next_pair()[1];
        rest = others;
    }
    for two in rest.chunks_mut(2) {
        two.copy_from_slice(&next_pair()[..two.len()]);
    }
}

/// Natural logarithm of (word + 1) / 2^32, from the series 2 (s + s^3/3 + s^5/5 ...) of s = (x - 1) / (x + 1).
fn ln_unit(word: u32) -> f64 {
    let bits = (f64::from(word) + 1.0).to_bits();
    let mut exponent = (bits >> 52) as i64 - 1_023 - 32;
    let mut mantissa = f64::from_bits(bits & ((1 << 52) - 1) | 1_023 << 52);
    if mantissa > std::f64::consts::SQRT_2 {
        mantissa *= 0.5;
        exponent += 1;
    }
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let square = s * s;
    let mut sum = 0.0;
    for denominator in (1..=21).rev().step_by(2) {
        sum = sum * square + 1.0 / f64::from(denominator);
    }
    exponent as f64 * std::f64::consts::LN_2 + 2.0 * s * sum
}

/// Sine and cosine of word / 2^32 of a turn: the nearest quarter, and Taylor series of what is left (at most pi / 4).
fn sin_cos_turn(word: u32) -> (f64, f64) {
    let quarter = (u64::from(word) + (1 << 29)) >> 30;
    let rest = i64::from(word) - ((quarter as i64) << 30);
    let angle = rest as f64 * (std::f64::consts::FRAC_PI_2 / (1_u64 << 30) as f64);
    let square = angle * angle;
    let (mut sin, mut cos) = (1.0, 1.0);
    for n in [14.0, 12.0, 10.0, 8.0, 6.0, 4.0, 2.0] {
        sin = 1.0 - sin * square / (n * (n + 1.0));
        cos = 1.0 - cos * square / (n * (n - 1.0));
    }
    sin *= angle;
    match quarter & 3 {
        0 => (sin, cos),
        1 => (cos, -sin),
        2 => (-sin, -cos),
        _ => (-cos, sin),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_do_not_depend_on_cuts_or_threads() {
        let len = 100_003;
        let mut whole = vec![0.0; len];
        normal(7, 3, 0.02, 0, &mut whole, 1);
        for (piece, threads) in [(1, 1), (17, 1), (4_096, 1), (60_001, 2), (len, 3)] {
            let mut cut = vec![0.0; len];
            for (index, out) in cut.chunks_mut(piece).enumerate() {
                normal(7, 3, 0.02, index * piece, out, threads);
            }
            assert!(whole == cut, "pieces of {piece}, {threads} threads");
        }
        let mut other = vec![0.0; len];
        normal(7, 4, 0.02, 0, &mut other, 1);
        assert_ne!(whole, other);
    }

    #[test]
    fn moments_are_those_of_a_normal_distribution() {
        let mut values = vec![0.0; 1 << 20];
        normal(1, 0, 0.5, 0, &mut values, 2);
        let n = values.len() as f64;
        let moment = |power: i32| values.iter().map(|v| (f64::from(*v) / 0.5).powi(power)).sum::<f64>() / n;
        assert!(moment(1).abs() < 4e-3, "{}", moment(1));
        assert!((moment(2) - 1.0).abs() < 6e-3, "{}", moment(2));
        assert!(moment(3).abs() < 2e-2, "{}", moment(3));
        assert!((moment(4) - 3.0).abs() < 4e-2, "{}", moment(4));
        let correlation = values.windows(2).map(|w| f64::from(w[0] * w[1]) / 0.25).sum::<f64>() / n;
        assert!(correlation.abs() < 4e-3, "{correlation}");
    }

    #[test]
    fn series_agree_with_the_mathematical_library() {
        let mut words = ChaCha8Rng::seed_from_u64(2);
        let edges = [0, 1, u32::MAX, 1 << 29, (1 << 29) - 1, 1 << 30, 3 << 29, 1 << 31, 3 << 30, 0xB504_F333];
        for word in edges.into_iter().chain((0..100_000).map(|_| words.next_u32())) {
            let ln = ((f64::from(word) + 1.0) / 2.0_f64.powi(32)).ln();
            assert!((ln_unit(word) - ln).abs() <= 1e-14 * ln.abs().max(1.0), "ln of word {word}");
            let (sin, cos) = (f64::from(word) * (std::f64::consts::TAU / 2.0_f64.powi(32))).sin_cos();
            let found = sin_cos_turn(word);
            assert!((found.0 - sin).abs() < 1e-14 && (found.1 - cos).abs() < 1e-14, "angle of word {word}");
        }
    }
}
