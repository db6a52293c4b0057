use super::*;
use crate::reference;
use crate::testing::{Rng, close, close_beside, everywhere, wide};

struct Case {
    s: Shape,
    scale: f32,
    first: Vec<u32>,
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    dout: Vec<f32>,
}

fn case(seed: u64, s: Shape, first: Vec<u32>) -> Case {
    let mut rng = Rng(seed);
    let (t, d) = (s.rows * s.seq, s.head_dim);
    let mut numbers = |n: usize| rng.vec(n);
    let (q, k, v) = (numbers(t * s.heads * d), numbers(t * s.kv_heads * d), numbers(t * s.kv_heads * d));
    Case { s, scale: 1.0 / (d as f32).sqrt(), first, q, k, v, dout: numbers(t * s.heads * d) }
}

/// out, lse, dq, dk, dv on every kind of processor, compared with the reference.
fn compare(what: &str, c: &Case) {
    let Case { s, scale, first, q, k, v, dout } = c;
    let results = everywhere(what, |cpu| {
        let (mut out, mut lse) = (vec![f32::NAN; q.len()], vec![f32::NAN; q.len() / s.head_dim]);
        forward(cpu, *s, *scale, q, k, v, first, &mut out, &mut lse);
        let (mut dq, mut dk, mut dv) = (vec![f32::NAN; q.len()], vec![f32::NAN; k.len()], vec![f32::NAN; v.len()]);
        backward(cpu, *s, *scale, q, k, v, first, &out, &lse, dout, &mut dq, &mut dk, &mut dv);
        vec![out, lse, dq, dk, dv]
    });
    let (q, k, v, dout, scale) = (wide(q), wide(k), wide(v), wide(dout), f64::from(*scale));
    let (out, lse) = reference::attention_forward(*s, scale, &q, &k, &v, first);
    let (dq, dk, dv) = reference::attention_backward(*s, scale, &q, &k, &v, first, &dout);
    for (name, (got, want)) in ["out", "lse", "dq", "dk", "dv"].iter().zip(results.iter().zip([out, lse, dq, dk, dv])) {
        // Where a token sees little more than itself, dq and dk cancel to nearly nothing.
        close_beside(&format!("{what} {s:?}: {name}"), got, &want, 3e-6, 0.1);
    }
}

fn shape(rows: usize, seq: usize, heads: usize, kv_heads: usize, head_dim: usize) -> Shape {
    Shape { rows, seq, heads, kv_heads, head_dim }
}

#[test]
fn causal() {
    let shapes = [
        shape(1, 1, 1, 1, 4),
        shape(1, 2, 2, 1, 8),
        shape(3, 5, 4, 4, 12),
        shape(2, 64, 3, 1, 16),
        shape(1, 65, 9, 3, 64),
        shape(2, 130, 6, 2, 20),
        shape(1, 193, 7, 1, 36),
        shape(1, 40, 16, 2, 128),
        shape(1, 33, 2, 2, 256),
        shape(1, 9, 200, 1, 4),
    ];
    for (i, s) in shapes.into_iter().enumerate() {
        compare("causal", &case(i as u64, s, vec![0; s.rows * s.seq]));
    }
}

#[test]
fn window() {
    for (seq, width) in [(150, 1), (150, 7), (200, 64), (200, 100)] {
        let s = shape(1, seq, 4, 2, 16);
        let first = (0..seq as u32).map(|t| (t + 1).saturating_sub(width)).collect();
        compare("window", &case(seq as u64 + u64::from(width), s, first));
    }
}

#[test]
fn documents() {
    let s = shape(2, 170, 6, 3, 24);
    let starts = [0u32, 1, 3, 64, 65, 128, 169];
    let first = (0..2 * 170u32).map(|t| *starts.iter().rfind(|start| **start <= t % 170).expect("0 starts"));
    compare("documents", &case(9, s, first.collect()));
}

/// Any `first` is allowed, not only increasing ones.
#[test]
fn arbitrary_bounds() {
    let s = shape(1, 140, 2, 1, 8);
    let mut rng = Rng(77);
    let first = (0..140).map(|t| rng.below(t + 1) as u32).collect();
    compare("arbitrary", &case(10, s, first));
}

/// Scores of several hundred would overflow without the running maximum.
#[test]
fn large_scores() {
    let mut c = case(11, shape(1, 100, 2, 1, 16), vec![0; 100]);
    c.q.iter_mut().for_each(|x| *x *= 300.0);
    let cpu = crate::Cpu::new(2).unwrap();
    let (mut out, mut lse) = (vec![0.0; c.q.len()], vec![0.0; 200]);
    forward(&cpu, c.s, c.scale, &c.q, &c.k, &c.v, &c.first, &mut out, &mut lse);
    let (want, _) = reference::attention_forward(c.s, 0.25, &wide(&c.q), &wide(&c.k), &wide(&c.v), &c.first);
    close("large scores", &out, &want, 1e-3);
}

#[test]
fn scratch_does_not_grow_with_the_square() {
    let short = scratch_bytes(2, shape(1, 1024, 8, 2, 64));
    let long = scratch_bytes(2, shape(1, 8192, 8, 2, 64));
    assert!(long < 8 * short && long < 64 << 20, "{short} {long}");
}
