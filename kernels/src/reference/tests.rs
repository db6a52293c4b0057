//! The gradients' formulas against central differences of the forward functions.

use super::*;
use crate::attention::Shape;
use crate::cross_entropy::NO_TARGET;
use crate::testing::Rng;

fn random(rng: &mut Rng, n: usize) -> Vec<f64> {
    (0..n).map(|_| rng.normal()).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Compares `gradient` with (f(x + h) - f(x - h)) / 2h, element by element.
#[track_caller]
fn differences(what: &str, x: &[f64], gradient: &[f64], f: impl Fn(&[f64]) -> f64) {
    const H: f64 = 1e-5;
    for i in 0..x.len() {
        let mut moved = x.to_vec();
        moved[i] = x[i] + H;
        let above = f(&moved);
        moved[i] = x[i] - H;
        let slope = (above - f(&moved)) / (2.0 * H);
        assert!((slope - gradient[i]).abs() < 1e-7 * (1.0 + slope.abs()), "{what} {i}: {slope} {}", gradient[i]);
    }
}

#[test]
fn attention_gradients() {
    let s = Shape { rows: 2, seq: 5, heads: 4, kv_heads: 2, head_dim: 4 };
    let mut rng = Rng(1);
    let (q, k, v) = (random(&mut rng, 160), random(&mut rng, 80), random(&mut rng, 80));
    let dout = random(&mut rng, 160);
    let first = [0, 0, 0, 2, 2, 0, 1, 1, 2, 3];
    let (dq, dk, dv) = attention_backward(s, 0.7, &q, &k, &v, &first, &dout);
    let value = |q: &[f64], k: &[f64], v: &[f64]| dot(&attention_forward(s, 0.7, q, k, v, &first).0, &dout);
    differences("dq", &q, &dq, |q| value(q, &k, &v));
    differences("dk", &k, &dk, |k| value(&q, k, &v));
    differences("dv", &v, &dv, |v| value(&q, &k, v));
}

#[test]
fn rmsnorm_gradients() {
    let mut rng = Rng(2);
    let (x, w, dy) = (random(&mut rng, 21), random(&mut rng, 7), random(&mut rng, 21));
    let (dx, dw) = rmsnorm_backward(&dy, &x, &w, 1e-3);
    differences("dx", &x, &dx, |x| dot(&rmsnorm_forward(x, &w, 1e-3).0, &dy));
    differences("dw", &w, &dw, |w| dot(&rmsnorm_forward(&x, w, 1e-3).0, &dy));
}

#[test]
fn swiglu_gradients() {
    let mut rng = Rng(3);
    let (gate, up, dout) = (random(&mut rng, 40), random(&mut rng, 40), random(&mut rng, 40));
    let (dgate, dup) = swiglu_backward(&dout, &gate, &up);
    differences("dgate", &gate, &dgate, |gate| dot(&swiglu_forward(gate, &up), &dout));
    differences("dup", &up, &dup, |up| dot(&swiglu_forward(&gate, up), &dout));
}

#[test]
fn cross_entropy_gradient() {
    let mut rng = Rng(4);
    let logits = random(&mut rng, 33);
    let labels = [10, NO_TARGET, 0];
    let (_, gradient) = cross_entropy(&logits, &labels, 11, 0.3);
    differences("logits", &logits, &gradient, |x| 0.3 * cross_entropy(x, &labels, 11, 1.0).0);
}

#[test]
fn linear_gradients() {
    let mut rng = Rng(5);
    let (x, w, b, dy) = (random(&mut rng, 12), random(&mut rng, 20), random(&mut rng, 5), random(&mut rng, 15));
    let value = |x: &[f64], w: &[f64], b: &[f64]| dot(&linear_forward(x, w, Some(b), 4, 5), &dy);
    differences("dx", &x, &linear_backward_input(&dy, &w, 4, 5), |x| value(x, &w, &b));
    differences("dw", &w, &linear_backward_weight(&dy, &x, 4, 5), |w| value(&x, w, &b));
    differences("db", &b, &linear_backward_bias(&dy, 5), |b| value(&x, &w, b));
}

#[test]
fn rotation_and_its_transpose() {
    let mut rng = Rng(6);
    let (x, dy) = (random(&mut rng, 24), random(&mut rng, 24));
    let rotated = |x: &[f64], back| rotate(x, &[0, 3, 11], &[1.0, 0.1], 2, back);
    differences("dx", &x, &rotated(&dy, true), |x| dot(&rotated(x, false), &dy));
}
