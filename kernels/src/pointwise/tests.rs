use super::*;
use crate::reference;
use crate::testing::{Rng, close, everywhere, wide};

#[test]
fn swiglu_equals_the_reference_on_every_processor() {
    for (seed, n) in [1, 15, 16, 1000, BLOCK + 1, 3 * BLOCK + 77].into_iter().enumerate() {
        let mut rng = Rng(seed as u64);
        let (gate, up, dout) = (rng.vec(n).iter().map(|x| x * 4.0).collect::<Vec<_>>(), rng.vec(n), rng.vec(n));
        let results = everywhere("swiglu", |cpu| {
            let (mut out, mut dgate, mut dup) = (vec![f32::NAN; n], vec![f32::NAN; n], vec![f32::NAN; n]);
            swiglu_forward(cpu, &gate, &up, &mut out);
            swiglu_backward(cpu, &dout, &gate, &up, &mut dgate, &mut dup);
            vec![out, dgate, dup]
        });
        let (gate, up, dout) = (wide(&gate), wide(&up), wide(&dout));
        let (dgate, dup) = reference::swiglu_backward(&dout, &gate, &up);
        close("out", &results[0], &reference::swiglu_forward(&gate, &up), 5e-7);
        close("dgate", &results[1], &dgate, 5e-7);
        close("dup", &results[2], &dup, 5e-7);
    }
}

#[test]
fn swiglu_saturates_without_nan() {
    let cpu = Cpu::new(1).unwrap();
    let gate = [-1e30, -200.0, -89.0, 0.0, 89.0, 200.0, 1e30];
    let (mut out, mut dgate, mut dup) = ([9.0; 7], [9.0; 7], [9.0; 7]);
    swiglu_forward(&cpu, &gate, &[1.0; 7], &mut out);
    assert_eq!(out[3..], [0.0, 89.0, 200.0, 1e30]);
    assert!(out[..3].iter().all(|x| x.abs() < 1e-30));
    swiglu_backward(&cpu, &[1.0; 7], &gate, &[1.0; 7], &mut dgate, &mut dup);
    assert_eq!(dgate[4..], [1.0; 3]);
    assert_eq!(dgate[3], 0.5);
    assert!(dgate[..3].iter().all(|x| x.abs() < 1e-30));
}

#[test]
fn add_adds() {
    let mut rng = Rng(9);
    let (x, y) = (rng.vec(BLOCK + 9), rng.vec(BLOCK + 9));
    let sum = everywhere("add", |cpu| {
        let mut y = y.clone();
        add(cpu, &mut y, &x);
        vec![y]
    });
    assert!(sum[0].iter().zip(x.iter().zip(&y)).all(|(s, (x, y))| *s == x + y));
}
