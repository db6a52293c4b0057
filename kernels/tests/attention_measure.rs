//! The comparison that judges attention on a GPU (device/measure.rs and device/attention_reference.rs), without one:
//! results that are rounded as a bf16 kernel rounds them pass, and results with a fault do not.

use mt_kernels::cuda::attention::{Layout, Shape};
use reference::{ALLOWED_BF16, LEAST, Sees, backward, firsts, forward, part};

#[path = "device/measure.rs"]
mod measure;
#[path = "device/attention_reference.rs"]
mod reference;

/// out, dq, dk, dv.
type Results = [Vec<f64>; 4];

struct Inputs {
    shape: Shape,
    qkv: Vec<f64>,
    first: Vec<u32>,
    dout: Vec<f64>,
}

/// To bf16, nearest, ties to even.
fn narrow(x: f64) -> f64 {
    let bits = (x as f32).to_bits();
    f64::from(f32::from_bits((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF_0000))
}

fn inputs(shape: Shape, sees: Sees) -> Inputs {
    // About normal: sums of four uniforms of a congruential generator.
    let mut state = 1u64;
    let mut uniform = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f64 / f64::from(1 << 24)
    };
    let mut numbers = |n: usize| -> Vec<f64> {
        (0..n).map(|_| narrow(((0..4).map(|_| uniform()).sum::<f64>() - 2.0) * 3f64.sqrt())).collect()
    };
    let (qkv, dout) = (numbers(shape.qkv_len()), numbers(shape.tokens() * shape.heads * shape.head_dim));
    Inputs { shape, qkv, first: firsts(&shape, sees), dout }
}

/// As a kernel computes them.
fn kernel(given: &Inputs) -> Results {
    let (out, lse) = rounded_forward(given);
    let dqkv = backward(&given.shape, &given.qkv, &given.first, &out, &lse, &given.dout, narrow);
    let dqkv: Vec<f64> = dqkv.into_iter().map(narrow).collect();
    let [dq, dk, dv] = [0, 1, 2].map(|i| part(&given.shape, i, &dqkv));
    [out, dq, dk, dv]
}

fn rounded_forward(given: &Inputs) -> (Vec<f64>, Vec<f64>) {
    let (out, lse) = forward(&given.shape, &given.qkv, &given.first, narrow);
    (out.into_iter().map(narrow).collect(), lse)
}

/// What is wanted of it. Its backward pass is given its rounded `out`.
fn wanted(given: &Inputs) -> Results {
    let (rounded, lse) = rounded_forward(given);
    let dqkv = backward(&given.shape, &given.qkv, &given.first, &rounded, &lse, &given.dout, |x| x);
    let [dq, dk, dv] = [0, 1, 2].map(|i| part(&given.shape, i, &dqkv));
    [forward(&given.shape, &given.qkv, &given.first, |x| x).0, dq, dk, dv]
}

/// The measure of each result.
fn measures(given: &Inputs, got: &Results, want: &Results) -> [f64; 4] {
    let width = given.shape.head_dim;
    [0, 1, 2, 3].map(|i| measure::worst(got[i].iter().copied(), &want[i], width, LEAST).1)
}

fn shapes() -> Vec<Inputs> {
    let shape = |seq, head_dim, cap| Shape {
        rows: 1,
        seq,
        heads: 4,
        kv_heads: 2,
        head_dim,
        layout: Layout::Beside,
        scale: 1.0 / (head_dim as f32).sqrt(),
        cap,
    };
    vec![
        inputs(shape(200, 64, None), Sees::All),
        inputs(shape(150, 128, None), Sees::Window(37)),
        inputs(shape(150, 128, None), Sees::Documents(29)),
        inputs(shape(150, 64, Some(1.5)), Sees::Window(100)),
        inputs(shape(150, 4, None), Sees::All),
        inputs(shape(1, 128, None), Sees::All),
    ]
}

#[test]
fn rounding_passes() {
    for given in shapes() {
        let measures = measures(&given, &kernel(&given), &wanted(&given));
        eprintln!("{:?}: {measures:.4?}", given.shape);
        assert!(measures.iter().all(|x| *x <= ALLOWED_BF16), "{:?}: {measures:?}", given.shape);
    }
}

/// Results of a kernel with a fault. All the rest is right: `kernel` of other inputs, or its results changed.
type Fault = (&'static str, fn(&Inputs) -> Results);

/// The results of inputs that are changed.
fn with(given: &Inputs, change: impl FnOnce(&mut Inputs)) -> Results {
    let Inputs { shape, qkv, first, dout } = given;
    let mut changed = Inputs { shape: *shape, qkv: qkv.clone(), first: first.clone(), dout: dout.clone() };
    change(&mut changed);
    kernel(&changed)
}

/// Token t's part from token `from`.
fn copy(given: &mut Inputs, part: usize, t: usize, from: usize) {
    let (to, from) = (reference::places(&given.shape, part, t), reference::places(&given.shape, part, from));
    given.qkv.copy_within(from, to.start);
}

fn begins_late(given: &Inputs) -> Results {
    with(given, |g| (0u32..).zip(&mut g.first).for_each(|(t, first)| *first = (*first + 1).min(t)))
}

fn sees_the_next(given: &Inputs) -> Results {
    with(given, |g| {
        for t in 0..g.shape.seq - 1 {
            copy(g, 1, t, t + 1);
            copy(g, 2, t, t + 1);
        }
    })
}

fn stale_keys(given: &Inputs) -> Results {
    with(given, |g| (64..128).for_each(|t| copy(g, 1, t, t - 64)))
}

fn stale_values(given: &Inputs) -> Results {
    with(given, |g| (64..128).for_each(|t| copy(g, 2, t, t - 64)))
}

fn one_stale_row(given: &Inputs) -> Results {
    with(given, |g| copy(g, 1, 100, 99))
}

fn no_scale(given: &Inputs) -> Results {
    let mut results = kernel(given);
    results[1].iter_mut().for_each(|x| *x /= f64::from(given.shape.scale));
    results
}

fn scale_twice(given: &Inputs) -> Results {
    let mut results = kernel(given);
    results[2].iter_mut().for_each(|x| *x *= f64::from(given.shape.scale));
    results
}

fn another_cap(given: &Inputs) -> Results {
    with(given, |g| g.shape.cap = g.shape.cap.map_or(Some(30.0), |cap| Some(cap * 1.1)))
}

fn no_delta(given: &Inputs) -> Results {
    let Inputs { shape: s, qkv, first, dout } = given;
    let (out, lse) = forward(s, qkv, first, |x| x);
    let dqkv = backward(s, qkv, first, &vec![0.0; out.len()], &lse, dout, |x| x);
    let [dq, dk, dv] = [0, 1, 2].map(|i| part(s, i, &dqkv));
    [out, dq, dk, dv]
}

fn heads_exchanged(given: &Inputs) -> Results {
    with(given, |g| {
        for t in 0..g.shape.seq {
            let keys = reference::places(&g.shape, 1, t);
            g.qkv[keys].rotate_left(g.shape.head_dim);
        }
    })
}

fn a_column_exchanged(given: &Inputs) -> Results {
    let mut results = kernel(given);
    results[3].swap(100 * given.shape.head_dim, 100 * given.shape.head_dim + 1);
    results
}

fn a_row_not_written(given: &Inputs) -> Results {
    let mut results = kernel(given);
    results[1][given.shape.head_dim * 77..][..4].fill(f64::NAN);
    results
}

const FAULTS: [Fault; 12] = [
    ("begins_late", begins_late),
    ("sees_the_next", sees_the_next),
    ("stale_keys", stale_keys),
    ("stale_values", stale_values),
    ("one_stale_row", one_stale_row),
    ("no_scale", no_scale),
    ("scale_twice", scale_twice),
    ("another_cap", another_cap),
    ("no_delta", no_delta),
    ("heads_exchanged", heads_exchanged),
    ("a_column_exchanged", a_column_exchanged),
    ("a_row_not_written", a_row_not_written),
];

#[test]
fn faults_do_not_pass() {
    for given in shapes().iter().filter(|given| given.shape.seq > 1) {
        let want = wanted(given);
        for (name, fault) in FAULTS {
            let measures = measures(given, &fault(given), &want);
            eprintln!("{} {:?} {name}: {measures:.4?}", given.shape.head_dim, given.shape.cap);
            let worst = measures.into_iter().fold(0.0, f64::max);
            assert!(worst > 2.0 * ALLOWED_BF16, "{name} of {:?}: {measures:?}", given.shape);
        }
    }
}
