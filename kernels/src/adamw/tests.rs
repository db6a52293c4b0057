use super::*;
use crate::reference::{AdamW, adamw};
use crate::split::{join, split};
use crate::testing::{Rng, close, everywhere};

struct Segment {
    hi: Vec<u16>,
    lo: Vec<i16>,
    m: Vec<f32>,
    v: Vec<f32>,
}

fn segment(rng: &mut Rng, n: usize) -> Segment {
    let w = rng.vec(n);
    let (mut hi, mut lo) = (vec![0; n], vec![0; n]);
    split(&Cpu::new(1).unwrap(), &w, &mut hi, &mut lo).expect("normal numbers are representable");
    let m = rng.vec(n).into_iter().map(|x| x * 1e-2).collect();
    let v = rng.vec(n).into_iter().map(|x| x * x * 1e-4).collect();
    Segment { hi, lo, m, v }
}

const H: AdamW = AdamW { lr: 3e-3, betas: (0.9, 0.95), eps: 1e-8, weight_decay: 0.1, step: 7, grad_scale: 0.37 };

fn step(h: &AdamW) -> Step {
    Step::new(h.lr, h.betas, h.eps, h.weight_decay, h.step, h.grad_scale)
}

#[test]
fn equals_the_reference_on_every_processor() {
    for (seed, n) in [1, 255, 256, 257, BLOCK - 1, BLOCK + GROUP + 1, 100_001].into_iter().enumerate() {
        for decay in [true, false] {
            let mut rng = Rng(seed as u64);
            let start = segment(&mut rng, n);
            let g = rng.vec(n);
            let results = everywhere("adamw", |cpu| {
                let (mut hi, mut lo, mut m, mut v) =
                    (start.hi.clone(), start.lo.clone(), start.m.clone(), start.v.clone());
                let mut out = vec![f32::NAN; n];
                update(cpu, &step(&H), decay, &g, &mut hi, &mut lo, &mut m, &mut v, Some(&mut out)).expect("finite");
                let mut w = vec![0.0; n];
                join(cpu, &hi, &lo, &mut w);
                vec![w, m, v, out]
            });
            let mut w = vec![0.0; n];
            join(&Cpu::new(1).unwrap(), &start.hi, &start.lo, &mut w);
            let h = AdamW { weight_decay: if decay { H.weight_decay } else { 0.0 }, ..H };
            let wide = |i: usize| (f64::from(w[i]), f64::from(start.m[i]), f64::from(start.v[i]));
            let want: Vec<_> = (0..n).map(|i| adamw(&h, f64::from(g[i]), wide(i))).collect();
            close("w", &results[0], &want.iter().map(|x| x.0).collect::<Vec<_>>(), 3e-7);
            close("m", &results[1], &want.iter().map(|x| x.1).collect::<Vec<_>>(), 3e-7);
            close("v", &results[2], &want.iter().map(|x| x.2).collect::<Vec<_>>(), 3e-7);
            assert_eq!(results[0], results[3], "w_out is the new weight");
        }
    }
}

/// The operations of the module's header, one by one.
#[test]
fn bits_are_those_of_the_specification() {
    let mut rng = Rng(5);
    let start = segment(&mut rng, 1000);
    let g = rng.vec(1000);
    let s = step(&H);
    let (mut hi, mut lo, mut m, mut v) = (start.hi.clone(), start.lo.clone(), start.m.clone(), start.v.clone());
    update(&Cpu::new(1).unwrap(), &s, true, &g, &mut hi, &mut lo, &mut m, &mut v, None).expect("finite");
    for i in 0..1000 {
        let scaled = g[i] * s.grad_scale;
        let want_m = s.beta1.mul_add(start.m[i], s.one_minus_beta1 * scaled);
        let want_v = s.beta2.mul_add(start.v[i], (s.one_minus_beta2 * scaled) * scaled);
        let d = want_v.sqrt().mul_add(s.inv_sqrt_correction2, s.eps);
        let w = join_one(start.hi[i], start.lo[i]);
        let want_w = (-s.step_size).mul_add(want_m / d, w * s.decay_factor);
        assert_eq!((m[i].to_bits(), v[i].to_bits()), (want_m.to_bits(), want_v.to_bits()));
        assert_eq!(join_one(hi[i], lo[i]).to_bits(), want_w.to_bits());
    }
}

#[test]
fn a_rate_of_zero_moves_moments_alone() {
    let mut rng = Rng(6);
    let start = segment(&mut rng, 3000);
    let g = rng.vec(3000);
    let (mut hi, mut lo, mut m, mut v) = (start.hi.clone(), start.lo.clone(), start.m.clone(), start.v.clone());
    let s = step(&AdamW { lr: 0.0, ..H });
    update(&Cpu::new(2).unwrap(), &s, true, &g, &mut hi, &mut lo, &mut m, &mut v, None).expect("finite");
    assert!(hi == start.hi && lo == start.lo);
    assert!(m != start.m && v != start.v);
}

#[test]
fn the_smallest_bad_index_is_named() {
    const N: usize = 200_000;
    let bad_gradients = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e30];
    for (case, bad) in bad_gradients.into_iter().enumerate() {
        for at in [0, GROUP - 1, GROUP, BLOCK - 1, BLOCK, 65_537, N - 1] {
            for threads in [1, 2, 3] {
                let mut rng = Rng(case as u64);
                let mut s = segment(&mut rng, N);
                let mut g = vec![0.1; N];
                g[at] = bad;
                g[N - 1] = bad;
                let result = update(
                    &Cpu::new(threads).unwrap(),
                    &step(&H),
                    true,
                    &g,
                    &mut s.hi,
                    &mut s.lo,
                    &mut s.m,
                    &mut s.v,
                    None,
                );
                assert_eq!(result, Err(at), "{bad} at {at}, {threads} threads");
            }
        }
    }
}

#[test]
fn weights_too_large_for_the_planes_are_refused() {
    let (mut m, mut v) = (vec![-1e3; 3], vec![0.0; 3]);
    let largest = f32::from_bits(0x7F7F_7FFF);
    let (mut hi, mut lo) = (vec![0; 3], vec![0; 3]);
    let cpu = Cpu::new(1).unwrap();
    split(&cpu, &[1.0, largest, 1.0], &mut hi, &mut lo).expect("just representable");
    let s = Step { step_size: 1e33, ..step(&AdamW { grad_scale: 0.0, eps: 1.0, weight_decay: 0.0, ..H }) };
    assert_eq!(update(&cpu, &s, false, &[0.0; 3], &mut hi, &mut lo, &mut m, &mut v, None), Err(1));
}
