//! What the unit tests share: seeded numbers, comparisons, and one processor of each kind.

use crate::Cpu;
use crate::simd::{Detected, Level};

/// A small generator (splitmix64), so that tests are the same everywhere.
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// About normal, standard deviation 1 (sum of four uniforms).
    pub(crate) fn normal(&mut self) -> f64 {
        let uniform = |rng: &mut Rng| (rng.next() >> 11) as f64 / (1u64 << 53) as f64;
        let sum: f64 = (0..4).map(|_| uniform(self)).sum();
        (sum - 2.0) * 3f64.sqrt()
    }

    pub(crate) fn vec(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.normal() as f32).collect()
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

pub(crate) fn wide(x: &[f32]) -> Vec<f64> {
    x.iter().map(|x| f64::from(*x)).collect()
}

/// Asserts that the relative L2 distance is below `tolerance`.
#[track_caller]
pub(crate) fn close(what: &str, got: &[f32], want: &[f64], tolerance: f64) {
    close_beside(what, got, want, tolerance, 1e-30);
}

/// As [`close`], where sums of terms of size `term` may cancel to less.
#[track_caller]
pub(crate) fn close_beside(what: &str, got: &[f32], want: &[f64], tolerance: f64, term: f64) {
    assert_eq!(got.len(), want.len(), "{what}");
    let norm = want.iter().map(|x| x * x).sum::<f64>().sqrt().max(term * (want.len() as f64).sqrt());
    let distance = got.iter().zip(want).map(|(a, b)| (f64::from(*a) - b).powi(2)).sum::<f64>().sqrt();
    assert!(distance <= tolerance * norm, "{what}: {:.2e} relative, {tolerance:.0e} allowed", distance / norm);
}

/// Asserts equal bits.
#[track_caller]
pub(crate) fn same(what: &str, a: &[f32], b: &[f32]) {
    assert_eq!(a.len(), b.len(), "{what}");
    let first = a.iter().zip(b).position(|(a, b)| a.to_bits() != b.to_bits());
    assert_eq!(first, None, "{what}: bits differ");
}

/// Every instruction set with one thread, then 2, 3 and 4 threads with the best.
pub(crate) fn processors() -> Vec<Cpu> {
    let levels = Level::all().into_iter().map(|level| Cpu::with_level(1, Detected::at_most(level)).unwrap());
    levels.chain([2, 3, 4].map(|threads| Cpu::new(threads).unwrap())).collect()
}

/// Runs `f` on all of [`processors`]; all results must have the bits of the first, which is returned.
#[track_caller]
pub(crate) fn everywhere(what: &str, f: impl Fn(&Cpu) -> Vec<Vec<f32>>) -> Vec<Vec<f32>> {
    let mut results = processors().into_iter().map(|cpu| f(&cpu));
    let first = results.next().expect("there is a processor");
    for (i, other) in results.enumerate() {
        for (part, (a, b)) in first.iter().zip(&other).enumerate() {
            same(&format!("{what}: result {part} on processor {}", i + 1), a, b);
        }
    }
    first
}
