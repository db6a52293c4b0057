//! Rates of the kernels on all processors of the machine, at the sizes of a 135 M parameter model (hidden 576, MLP
//! 1,536, 9/3 heads of 64, 1,024 tokens). Criterion prints elements a second: for products and attention these are
//! floating-point operations, for the rest bytes read and written.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use mt_kernels::adamw::Step;
use mt_kernels::attention::Shape;
use mt_kernels::{Cpu, adamw, attention, cross_entropy, linear, pointwise, rmsnorm, split};
use std::hint::black_box;

const TOKENS: usize = 1024;

fn cpu() -> Cpu {
    Cpu::new(std::thread::available_parallelism().map_or(1, usize::from)).expect("threads start")
}

/// Seeded values in -0.5..0.5.
fn values(n: usize) -> Vec<f32> {
    (0..n as u64).map(|i| (i.wrapping_mul(2_654_435_761) % 1000) as f32 / 1000.0 - 0.5).collect()
}

fn products(c: &mut Criterion) {
    let cpu = cpu();
    let mut group = c.benchmark_group("linear");
    for (inputs, outputs) in [(576, 1536), (1536, 576), (576, 576), (576, 192)] {
        let (x, w, dy) = (values(TOKENS * inputs), values(inputs * outputs), values(TOKENS * outputs));
        let (mut y, mut dx, mut dw) = (dy.clone(), x.clone(), w.clone());
        group.throughput(Throughput::Elements(2 * (TOKENS * inputs * outputs) as u64));
        let shape = format!("{TOKENS}x{inputs}x{outputs}");
        group.bench_function(BenchmarkId::new("forward", &shape), |b| {
            b.iter(|| linear::forward(&cpu, &x, &w, None, black_box(&mut y), TOKENS, inputs, outputs));
        });
        group.bench_function(BenchmarkId::new("backward_input", &shape), |b| {
            b.iter(|| linear::backward_input(&cpu, &dy, &w, black_box(&mut dx), false, TOKENS, inputs, outputs));
        });
        group.bench_function(BenchmarkId::new("backward_weight", &shape), |b| {
            b.iter(|| linear::backward_weight(&cpu, &dy, &x, black_box(&mut dw), false, TOKENS, inputs, outputs));
        });
    }
    group.finish();
}

fn attend(c: &mut Criterion) {
    let cpu = cpu();
    let s = Shape { rows: 4, seq: 256, heads: 9, kv_heads: 3, head_dim: 64 };
    let (q, k, v) = (values(TOKENS * 576), values(TOKENS * 192), values(TOKENS * 192));
    let first = vec![0; TOKENS];
    let dout = values(q.len());
    let (mut out, mut lse) = (q.clone(), vec![0.0; TOKENS * 9]);
    let (mut dq, mut dk, mut dv) = (q.clone(), k.clone(), v.clone());
    // Operations of the causal half: two products of 2 D a pair forward, five backward.
    let pairs = (4 * 9 * 256 * 257 / 2) as u64;
    let mut group = c.benchmark_group("attention");
    group.throughput(Throughput::Elements(pairs * 4 * 64));
    group.bench_function("forward", |b| {
        b.iter(|| attention::forward(&cpu, s, 0.125, &q, &k, &v, &first, black_box(&mut out), &mut lse));
    });
    group.throughput(Throughput::Elements(pairs * 10 * 64));
    group.bench_function("backward", |b| {
        b.iter(|| {
            let to = (black_box(&mut dq), &mut dk, &mut dv);
            attention::backward(&cpu, s, 0.125, &q, &k, &v, &first, &out, &lse, &dout, to.0, to.1, to.2);
        });
    });
    group.finish();
}

fn optimizer(c: &mut Criterion) {
    let cpu = cpu();
    let n = 16 << 20;
    let g = values(n);
    let (mut hi, mut lo, mut m, mut v) = (vec![0; n], vec![0; n], vec![0.0; n], vec![0.0; n]);
    split::split(&cpu, &g, &mut hi, &mut lo).expect("small numbers");
    let step = Step::new(1e-4, (0.9, 0.95), 1e-8, 0.1, 10, 1.0);
    let mut w = vec![0.0; n];
    let mut group = c.benchmark_group("optimizer");
    group.sample_size(10);
    group.throughput(Throughput::Bytes(28 * n as u64));
    group.bench_function("adamw", |b| {
        b.iter(|| adamw::update(&cpu, &step, true, &g, &mut hi, &mut lo, &mut m, &mut v, None).expect("finite"));
    });
    group.throughput(Throughput::Bytes(8 * n as u64));
    group.bench_function("join", |b| b.iter(|| split::join(&cpu, &hi, &lo, black_box(&mut w))));
    group.finish();
}

fn rows(c: &mut Criterion) {
    let cpu = cpu();
    let mut group = c.benchmark_group("rows");
    let tile = 8192;
    let logits = values(TOKENS * tile);
    let labels: Vec<u32> = (0..TOKENS as u32).map(|t| t * 7).collect();
    let mut state = cross_entropy::State::new(TOKENS);
    group.throughput(Throughput::Bytes(4 * logits.len() as u64));
    group.bench_function("cross_entropy_forward", |b| {
        b.iter(|| cross_entropy::forward_tile(&cpu, &mut state, &logits, &labels, 0, tile));
    });
    cross_entropy::finish(&mut state, &labels);
    let mut gradient = logits.clone();
    group.throughput(Throughput::Bytes(8 * logits.len() as u64));
    group.bench_function("cross_entropy_backward", |b| {
        b.iter(|| cross_entropy::backward_tile(&cpu, &state, &mut gradient, &labels, 0, tile, 1.0));
    });
    let (gate, up, dout) = (values(TOKENS * 1536), values(TOKENS * 1536), values(TOKENS * 1536));
    let (mut out, mut dgate, mut dup) = (gate.clone(), gate.clone(), gate.clone());
    group.throughput(Throughput::Bytes(12 * gate.len() as u64));
    group.bench_function("swiglu_forward", |b| {
        b.iter(|| pointwise::swiglu_forward(&cpu, &gate, &up, black_box(&mut out)))
    });
    group.throughput(Throughput::Bytes(20 * gate.len() as u64));
    group.bench_function("swiglu_backward", |b| {
        b.iter(|| pointwise::swiglu_backward(&cpu, &dout, &gate, &up, black_box(&mut dgate), &mut dup));
    });
    let (x, w, dy) = (values(TOKENS * 576), values(576), values(TOKENS * 576));
    let (mut y, mut rstd, mut dx, mut dw) = (x.clone(), vec![0.0; TOKENS], x.clone(), w.clone());
    group.throughput(Throughput::Bytes(8 * x.len() as u64));
    group.bench_function("rmsnorm_forward", |b| {
        b.iter(|| rmsnorm::forward(&cpu, &x, &w, 1e-5, black_box(&mut y), &mut rstd))
    });
    group.throughput(Throughput::Bytes(12 * x.len() as u64));
    group.bench_function("rmsnorm_backward", |b| {
        b.iter(|| rmsnorm::backward(&cpu, &dy, &x, &w, &rstd, black_box(&mut dx), false, &mut dw));
    });
    group.finish();
}

criterion_group!(benches, products, attend, optimizer, rows);
criterion_main!(benches);
