use super::*;
use crate::reference;
use crate::testing::{Rng, processors};

#[test]
fn same_bits_on_every_processor_and_close_to_the_reference() {
    for (seed, n) in [0, 1, 15, 17, 1023, 1024, 1025, 70_000, (HELD + 3) * LEAF + 5].into_iter().enumerate() {
        let x = Rng(seed as u64).vec(n);
        let sums: Vec<u64> = processors().iter().map(|cpu| sum_squares(cpu, 0.5, &x).to_bits()).collect();
        assert!(sums.iter().all(|s| *s == sums[0]), "{n}: {sums:x?}");
        let want = 0.5 + reference::sum_squares(&x);
        assert!((f64::from_bits(sums[0]) - want).abs() < 1e-12 * want, "{n}");
    }
}

#[test]
fn cutting_at_leaves_changes_no_bit() {
    let cpu = Cpu::new(2).unwrap();
    let x = Rng(3).vec(50 * LEAF + 77);
    let whole = sum_squares(&cpu, 0.0, &x);
    for cut in [1, 7, 49, 50] {
        let (a, b) = x.split_at(cut * LEAF);
        assert_eq!(sum_squares(&cpu, sum_squares(&cpu, 0.0, a), b).to_bits(), whole.to_bits());
    }
}

/// The shape that the module's header gives.
#[test]
fn bits_are_those_of_the_specification() {
    let x = Rng(4).vec(1024 + 100);
    let leaf = |x: &[f32]| {
        let mut lanes = [0f64; 16];
        x.iter().enumerate().for_each(|(i, x)| lanes[i % 16] += f64::from(*x) * f64::from(*x));
        for half in [8, 4, 2, 1] {
            (0..half).for_each(|i| lanes[i] += lanes[i + half]);
        }
        lanes[0]
    };
    let want = 0.25 + leaf(&x[..1024]) + leaf(&x[1024..]);
    assert_eq!(sum_squares(&Cpu::new(1).unwrap(), 0.25, &x).to_bits(), want.to_bits());
}

#[test]
fn what_is_not_finite_shows() {
    let cpu = Cpu::new(1).unwrap();
    assert!(sum_squares(&cpu, 0.0, &[1.0, f32::NAN]).is_nan());
    assert_eq!(sum_squares(&cpu, 0.0, &[1.0, f32::NEG_INFINITY]), f64::INFINITY);
}
