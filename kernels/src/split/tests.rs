use super::*;
use crate::testing::Rng;
use std::ops::Range;

fn planes(cpu: &Cpu, w: &[f32]) -> Result<(Vec<u16>, Vec<i16>), usize> {
    let (mut hi, mut lo) = (vec![0; w.len()], vec![0; w.len()]);
    split(cpu, w, &mut hi, &mut lo).map(|()| (hi, lo))
}

/// Every one of the 2^32 patterns: representable ones come back bit for bit with hi finite, others are refused.
#[test]
fn all_patterns() {
    const PARTS: u64 = 4;
    std::thread::scope(|scope| {
        for part in 0..PARTS {
            let span = (1u64 << 32) / PARTS;
            scope.spawn(move || check_patterns(part * span..(part + 1) * span));
        }
    });
}

fn check_patterns(patterns: Range<u64>) {
    const RUN: usize = 1 << 16;
    let cpu = Cpu::new(1).unwrap();
    let (mut w, mut back) = (vec![0f32; RUN], vec![0f32; RUN]);
    let (mut hi, mut lo) = (vec![0; RUN], vec![0; RUN]);
    for start in patterns.step_by(RUN) {
        w.iter_mut().enumerate().for_each(|(i, w)| *w = f32::from_bits(start as u32 + i as u32));
        let refused = w.iter().position(|w| w.to_bits() & 0x7FFF_FFFF >= REFUSED);
        assert_eq!(split(&cpu, &w, &mut hi, &mut lo), refused.map_or(Ok(()), Err));
        let kept = refused.unwrap_or(RUN);
        if kept < RUN {
            assert!(w[kept..].iter().all(|w| w.to_bits() & 0x7FFF_FFFF >= REFUSED), "magnitudes rise within a run");
            split(&cpu, &w[..kept], &mut hi[..kept], &mut lo[..kept]).expect("all before the first refused");
        }
        join(&cpu, &hi[..kept], &lo[..kept], &mut back[..kept]);
        let differing = w[..kept].iter().zip(&back).fold(0, |sum, (a, b)| sum | (a.to_bits() ^ b.to_bits()));
        let infinite = hi[..kept].iter().fold(false, |any, hi| any | (hi & 0x7FFF >= 0x7F80));
        assert!(differing == 0 && !infinite, "from {start:x}");
    }
}

#[test]
fn hi_is_nearest_with_ties_away_from_zero() {
    let cpu = Cpu::new(1).unwrap();
    let bits = [0x3F80_0000, 0x3F80_7FFF, 0x3F80_8000, 0x3F80_8001, 0xBF80_8000, 0x3F81_8000u32];
    let (hi, lo) = planes(&cpu, &bits.map(f32::from_bits)).expect("representable");
    assert_eq!(hi, [0x3F80, 0x3F80, 0x3F81, 0x3F81, 0xBF81, 0x3F82]);
    assert_eq!(lo, [0, 0x7FFF, -0x8000, -0x7FFF, -0x8000, -0x8000]);
}

#[test]
fn the_edges_of_what_is_refused() {
    let cpu = Cpu::new(1).unwrap();
    for sign in [0u32, 0x8000_0000] {
        assert!(planes(&cpu, &[f32::from_bits(sign | 0x7F7F_7FFF)]).is_ok());
        for bits in [0x7F7F_8000, 0x7F7F_FFFF, 0x7F80_0000, 0x7F80_0001, 0x7FC0_0000, 0x7FFF_FFFF] {
            assert_eq!(planes(&cpu, &[1.0, f32::from_bits(sign | bits)]), Err(1), "{bits:x}");
        }
    }
}

#[test]
fn the_smallest_index_whatever_the_threads() {
    let mut rng = Rng(1);
    let mut w = rng.vec(300_001);
    w[299_999] = f32::NAN;
    for at in [299_999, 70_000, 65_536, 65_535, 1] {
        w[at] = f32::INFINITY;
        for threads in [1, 2, 3] {
            assert_eq!(planes(&Cpu::new(threads).unwrap(), &w), Err(at));
        }
    }
}
