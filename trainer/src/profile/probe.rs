//! Measures this machine in a few seconds: the drives of a run's stores, the kernels at a run's own shapes, what
//! transfers take from the computation, and GPUs.
//!
//! It is an estimate for plans, not a benchmark. It needs up to 700 MiB of RAM (200 MiB where not more than 1.5 GiB are
//! free), 1.5 GiB with a GPU: a run with a tight budget has it done by another process.

mod gpu;

use super::compute::{self, AttentionPoint, Compute, Product, ProductPoint, ProductShape};
use super::reuse::Reuse;
use super::{Disk, Machine, MachineProfile, Origin, VERSION};
use crate::block::Dims;
use crate::error::{Error, Result};
use crate::measure::gpu::Gpu;
use crate::measure::updates::Updates;
use crate::model::ModelConfig;
use crate::ram;
use mt_engine::probe;
use mt_kernels::{Cpu, attention, cross_entropy, linear, norm2, pointwise, rmsnorm, rope, split};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Bytes of a drive's space that it is measured with.
const DISK_BYTES: u64 = 64 << 20;
/// Elements of the arrays that kernels pass over once, as those of a layer.
const ELEMENTS: usize = 4 << 20;
/// Part of the free RAM that the update is measured in.
const UPDATES_SHARE: u64 = 8;
/// Rows and columns of the arrays of norms, SwiGLU and loss.
const ROWS: usize = 1_024;
const COLUMNS: usize = 1_024;
/// Side of the product that runs beside transfers, how often, and pairs of alone and beside.
const SIDE: usize = 1_024;
const TIMES: usize = 8;
const PAIRS: usize = 7;

/// Sets of operands that a product is measured with at most.
const SETS_MAX: usize = 32;
/// How often a kernel is measured: at least and at most so often, and no more once this long was spent.
const REPEATS_MIN: usize = 5;
const REPEATS_MAX: usize = 64;
const ENOUGH: Duration = Duration::from_millis(40);
/// Time for which the update is measured.
const UPDATES: Duration = Duration::from_millis(200);

/// The shapes that a run's products and attention have.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Wanted {
    products: Vec<ProductShape>,
    attention: Vec<[usize; 5]>,
}

impl Wanted {
    /// The shapes of a model and of its largest micro-batch of `rows`, of which a step has `micros`.
    pub fn new(config: &ModelConfig, rows: usize, seq: usize, micros: usize) -> Wanted {
        let (tokens, dims) = (rows * seq, Dims::new(config));
        let (hidden, query, key) = (dims.hidden, dims.query(), dims.key());
        let tile = crate::head::Tiles::new(config.vocab, hidden).rows;
        let in_layer = Reuse::of_layer(&dims, tokens);
        let projections = [
            (hidden, query, in_layer),
            (hidden, key, in_layer),
            (query, hidden, in_layer),
            (hidden, dims.mlp, in_layer),
            (dims.mlp, hidden, in_layer),
            (hidden, tile, Reuse::of_tile(hidden, tile, tokens)),
        ];
        let of = |(inputs, outputs, reuse): (usize, usize, Reuse)| {
            let shapes = [
                (Product::Forward, tokens, outputs, inputs),
                (Product::BackwardInput, tokens, inputs, outputs),
                (Product::BackwardWeight, outputs, inputs, tokens),
            ];
            shapes.map(|(product, rows, columns, depth)| {
                let reuse_bytes = reuse.bytes(product);
                ProductShape { product, rows, columns, depth, reuse_bytes }.measured()
            })
        };
        let first = projections.map(|(inputs, outputs, _)| (inputs, outputs, Reuse::NONE));
        let others = if micros > 1 { &projections[..] } else { &[] };
        let mut products: Vec<_> = first.iter().chain(others).copied().flat_map(of).collect();
        products.sort_unstable();
        products.dedup();
        let attention = vec![compute::measured_attention([rows, seq, config.heads, config.kv_heads, config.head_dim])];
        Wanted { products, attention }
    }

    /// Those that were not measured.
    pub fn missing(mut self, known: &Compute) -> Wanted {
        self.products.retain(|wanted| !known.products.iter().any(|point| point.shape() == *wanted));
        self.attention.retain(|wanted| !known.attention.iter().any(|point| point.shape() == *wanted));
        self
    }

    /// Nothing is missing.
    pub fn is_empty(&self) -> bool {
        self.products.is_empty() && self.attention.is_empty()
    }
}

/// Measures everything.
///
/// # Errors
/// The engine's: a drive that cannot be written to. `System`: threads that do not start.
pub fn machine(dirs: &[PathBuf], threads: u32, wanted: &Wanted) -> Result<MachineProfile> {
    let cpu = compute(threads)?;
    let mut disks = Vec::with_capacity(dirs.len());
    for dir in dirs {
        let rates = probe::disk(dir, DISK_BYTES)?;
        disks.push(Disk {
            path: dir.clone(),
            read_bytes_per_s: rates.read_bytes_per_s,
            write_bytes_per_s: rates.write_bytes_per_s,
            mixed_bytes_per_s: rates.mixed_bytes_per_s,
            latency_s: rates.latency_s,
        });
    }
    let transfer_cpu_s_per_byte = match dirs.first() {
        Some(dir) => transfer_cost(&cpu, dir)?,
        None => 0.0,
    };
    let mut profile = MachineProfile {
        version: VERSION,
        origin: Origin::Probed,
        date: today(),
        runs: 0,
        doubtful: false,
        machine: Machine::this(),
        disks: if disks.is_empty() { vec![Disk::assumed()] } else { disks },
        transfer_cpu_s_per_byte,
        checksum_bytes_per_s: probe::checksum_bytes_per_s(),
        compute: kernels(&cpu)?,
        gpus: Vec::new(),
        assumed: String::new(),
    };
    points(&cpu, wanted, &mut profile.compute);
    Ok(profile)
}

/// Adds the shapes that a profile of this machine lacks: all of them where its rates are in doubt, with the other
/// kernels.
///
/// # Errors
/// `System`: its threads do not start.
pub fn add(profile: &mut MachineProfile, wanted: &Wanted) -> Result<()> {
    let cpu = compute(profile.compute.threads)?;
    if std::mem::take(&mut profile.doubtful) {
        profile.compute = kernels(&cpu)?;
    }
    points(&cpu, &wanted.clone().missing(&profile.compute), &mut profile.compute);
    Ok(())
}

/// Adds GPU `index` to a profile of this machine. What is compiled for it is kept in `cache`, if given.
///
/// # Errors
/// `Gpu`: it, its driver or a library is missing, or fails. `System`: threads that do not start.
pub fn add_gpu(profile: &mut MachineProfile, index: usize, cache: Option<&Path>) -> Result<()> {
    let gpu = Gpu::open(index, cache.map(Path::to_path_buf))?;
    let mut updates = Updates::new(profile.compute.threads)?;
    profile.gpus.push(gpu::rates(&gpu, &mut updates)?);
    Ok(())
}

fn compute(threads: u32) -> Result<Cpu> {
    Cpu::new(threads as usize).map_err(|error| Error::threads(threads.into(), error))
}

/// Core-seconds that a byte takes from products beside it: the median of several pairs of them alone and beside
/// transfers, since what else runs on the machine moves one pair by more than what is measured (0.00 to 0.41
/// core-seconds a GB from one pair each).
fn transfer_cost(cpu: &Cpu, dir: &Path) -> Result<f64> {
    let (x, w) = (values(SIDE * SIDE), values(SIDE * SIDE));
    let mut y = vec![0.0; SIDE * SIDE];
    let mut run = || {
        let begin = Instant::now();
        for _ in 0..TIMES {
            linear::forward(cpu, &x, &w, None, &mut y, SIDE, SIDE, SIDE);
        }
        begin.elapsed().as_secs_f64()
    };
    run();
    let mut costs = [0.0; PAIRS];
    for cost in &mut costs {
        let alone = run();
        let (beside, moved) = probe::beside(dir, DISK_BYTES, &mut run)?;
        let lost = (beside - alone) * cpu.threads() as f64;
        // Moved also while the last product had ended already, by a transfer or two of many.
        *cost = lost / (moved.bytes as f64).max(1.0);
    }
    costs.sort_unstable_by(f64::total_cmp);
    Ok(costs[PAIRS / 2].max(0.0))
}

fn points(cpu: &Cpu, wanted: &Wanted, compute: &mut Compute) {
    for &shape in &wanted.products {
        let ProductShape { product, rows, columns, depth, reuse_bytes } = shape;
        let operations = 2.0 * rows as f64 * columns as f64 * depth as f64;
        let operations_per_s = operations / product_seconds(cpu, shape);
        compute.products.push(ProductPoint { product, rows, columns, depth, reuse_bytes, operations_per_s });
    }
    for &shape in &wanted.attention {
        compute.attention.push(attention_point(cpu, shape));
    }
}

/// In sets of operands, of which each has its turn again after the reuse distance.
fn product_seconds(cpu: &Cpu, shape: ProductShape) -> f64 {
    let ProductShape { product, rows, columns, depth, reuse_bytes } = shape;
    let floats = rows * columns + rows * depth + depth * columns;
    let sets = (reuse_bytes / (floats * size_of::<f32>())).clamp(2, SETS_MAX);
    let mut operands: Vec<_> =
        (0..sets).map(|_| (values(rows * depth), values(depth * columns), vec![0.0; rows * columns])).collect();
    let mut next = 0;
    seconds(|| {
        let (a, b, c) = &mut operands[next % sets];
        next += 1;
        match product {
            Product::Forward => linear::forward(cpu, a, b, None, c, rows, depth, columns),
            Product::BackwardInput => linear::backward_input(cpu, a, b, c, false, rows, columns, depth),
            Product::BackwardWeight => linear::backward_weight(cpu, a, b, c, false, depth, columns, rows),
        }
    })
}

fn attention_point(cpu: &Cpu, [rows, seq, heads, kv_heads, head_dim]: [usize; 5]) -> AttentionPoint {
    let s = attention::Shape { rows, seq, heads, kv_heads, head_dim };
    let tokens = rows * seq;
    let (q, k, v) =
        (values(tokens * heads * head_dim), values(tokens * kv_heads * head_dim), values(tokens * kv_heads * head_dim));
    let (first, dout, scale) = (vec![0; tokens], values(q.len()), (head_dim as f32).sqrt().recip());
    let (mut out, mut lse) = (vec![0.0; q.len()], vec![0.0; tokens * heads]);
    let (mut dq, mut dk, mut dv) = (q.clone(), k.clone(), v.clone());
    let forward = seconds(|| attention::forward(cpu, s, scale, &q, &k, &v, &first, &mut out, &mut lse));
    let backward = seconds(|| {
        attention::backward(cpu, s, scale, &q, &k, &v, &first, &out, &lse, &dout, &mut dq, &mut dk, &mut dv);
    });
    let terms = (rows * heads * head_dim) as f64 * (seq * (seq + 1) / 2) as f64;
    AttentionPoint {
        rows,
        seq,
        heads,
        kv_heads,
        head_dim,
        forward_operations_per_s: 4.0 * terms / forward,
        backward_operations_per_s: 10.0 * terms / backward,
    }
}

/// The kernels that pass over memory once. Points are still missing.
///
/// # Errors
/// `System`: threads that do not start.
fn kernels(cpu: &Cpu) -> Result<Compute> {
    let n = ROWS * COLUMNS;
    let per_s = |elements: usize, seconds: f64| elements as f64 / seconds;
    let threads = cpu.threads() as u32;
    // A step comes back to its state after all of it: a cache of 300 MiB that held it let the update of SmolLM2-135M be
    // predicted to take 93 ms instead of 140.
    let adamw = Updates::within(threads, ram::available().bytes / UPDATES_SHARE)?.elements_per_s(UPDATES);
    let (join, sum_squares, copy) = state_kernels(cpu);
    let (a, b, d, w) = (values(n), values(n), values(n), values(COLUMNS));
    let (mut y, mut z, mut rstd, mut dw) = (values(n), values(n), vec![0.0; ROWS], vec![0.0; COLUMNS]);
    let norm_forward = seconds(|| rmsnorm::forward(cpu, &a, &w, 1e-5, &mut y, &mut rstd));
    let norm_backward = seconds(|| rmsnorm::backward(cpu, &d, &a, &w, &rstd, &mut y, true, &mut dw));
    let swiglu_forward = seconds(|| pointwise::swiglu_forward(cpu, &a, &b, &mut y));
    let swiglu_backward = seconds(|| pointwise::swiglu_backward(cpu, &d, &a, &b, &mut y, &mut z));
    let add = seconds(|| pointwise::add(cpu, &mut y, &a));
    let table = rope::Table::new(1e4, 64, rope::Scaling::Default, ROWS);
    let positions: Vec<u32> = (0..ROWS as u32).collect();
    let rope = seconds(|| rope::forward(cpu, &table, &positions, &mut y, COLUMNS / 64));
    let labels: Vec<u32> = (0..ROWS as u32).map(|t| t % COLUMNS as u32).collect();
    let mut state = cross_entropy::State::new(ROWS);
    let loss_forward = seconds(|| cross_entropy::forward_tile(cpu, &mut state, &a, &labels, 0, COLUMNS));
    cross_entropy::finish(&mut state, &labels);
    let loss_backward = seconds(|| cross_entropy::backward_tile(cpu, &state, &mut z, &labels, 0, COLUMNS, 1e-3));
    Ok(Compute {
        threads,
        products: Vec::new(),
        attention: Vec::new(),
        adamw_elements_per_s: adamw,
        join_elements_per_s: join,
        sum_squares_elements_per_s: sum_squares,
        norm_forward_elements_per_s: per_s(n, norm_forward),
        norm_backward_elements_per_s: per_s(n, norm_backward),
        swiglu_forward_elements_per_s: per_s(n, swiglu_forward),
        swiglu_backward_elements_per_s: per_s(n, swiglu_backward),
        rope_elements_per_s: per_s(n, rope),
        add_elements_per_s: per_s(n, add),
        loss_forward_elements_per_s: per_s(n, loss_forward),
        loss_backward_elements_per_s: per_s(n, loss_backward),
        copy_bytes_per_s: copy,
    })
}

/// Elements a second of joining and of the sum of squares, bytes a second of a copy.
fn state_kernels(cpu: &Cpu) -> (f64, f64, f64) {
    let n = ELEMENTS;
    let g = values(n);
    let (mut hi, mut lo, mut w) = (vec![0; n], vec![0; n], vec![0.0; n]);
    split::split(cpu, &g, &mut hi, &mut lo).expect("small numbers have planes");
    let join = seconds(|| split::join(cpu, &hi, &lo, &mut w));
    let sum_squares = seconds(|| {
        std::hint::black_box(norm2::sum_squares(cpu, 0.0, &g));
    });
    let copy = seconds(|| w.copy_from_slice(&g));
    let per_s = |seconds: f64| n as f64 / seconds;
    (per_s(join), per_s(sum_squares), 4.0 * per_s(copy))
}

/// Numbers from -0.5 to 0.5.
fn values(n: usize) -> Vec<f32> {
    (0..n as u64).map(|i| (i.wrapping_mul(2_654_435_761) % 1_000) as f32 / 1_000.0 - 0.5).collect()
}

/// The median of several, after one that warms up. Not the shortest: a step, too, meets whatever slows the machine.
fn seconds(mut work: impl FnMut()) -> f64 {
    work();
    let (start, mut times) = (Instant::now(), Vec::with_capacity(REPEATS_MAX));
    while times.len() < REPEATS_MIN || (times.len() < REPEATS_MAX && start.elapsed() < ENOUGH) {
        let begin = Instant::now();
        work();
        times.push(begin.elapsed().as_secs_f64());
    }
    times.sort_unstable_by(f64::total_cmp);
    times[times.len() / 2].max(1e-9)
}

/// The day, in UTC.
pub fn today() -> String {
    date(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))
}

/// The day of a number of seconds since 1970, in UTC.
pub fn date(unix_seconds: u64) -> String {
    let (year, month, day) = civil(unix_seconds / 86_400);
    format!("{year:04}-{month:02}-{day:02}")
}

/// Year, month and day of a number of days since 1970-01-01.
fn civil(mut days: u64) -> (u64, u64, u64) {
    let is_leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let mut year = 1970;
    loop {
        let length = if is_leap(year) { 366 } else { 365 };
        if days < length {
            break;
        }
        days -= length;
        year += 1;
    }
    let february = if is_leap(year) { 29 } else { 28 };
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    (year, month, days + 1)
}

#[cfg(test)]
mod tests {
    use super::super::reuse::FAR;
    use super::*;

    #[test]
    fn days_have_their_dates() {
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(11_016), (2000, 2, 29));
        assert_eq!(civil(11_017), (2000, 3, 1));
        assert_eq!(civil(20_787), (2026, 11, 30));
    }

    #[test]
    fn a_probe_measures_what_is_wanted_and_then_nothing_is_missing() {
        let text = r#"{"model_type": "llama", "vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 1,
            "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 48}"#;
        let config = ModelConfig::parse(text, Path::new("config.json")).unwrap();
        let wanted = Wanted::new(&config, 2, 16, 1);
        let dir = tempfile::tempdir().unwrap();
        let mut profile = machine(&[dir.path().to_path_buf()], 2, &wanted).unwrap();
        assert!(wanted.clone().missing(&profile.compute).is_empty() && !wanted.missing(&Compute::assumed()).is_empty());
        assert_eq!(MachineProfile::parse(&profile.to_json(), Path::new("p.json")).unwrap(), profile);
        let other = Wanted::new(&config, 3, 16, 1);
        add(&mut profile, &other).unwrap();
        assert!(other.clone().missing(&profile.compute).is_empty());
        // With more micro-batches all products but the first ones meet weights that a cache may hold.
        let twice = Wanted::new(&config, 3, 16, 2);
        assert_eq!(twice.clone().missing(&profile.compute).products.len(), other.products.len());
        assert!(twice.missing(&profile.compute).products.iter().all(|shape| shape.reuse_bytes < FAR));

        // In doubt nothing that was measured of the processor stays, and what was of the drives does.
        for point in &mut profile.compute.products {
            point.operations_per_s *= 1e6;
        }
        let before = MachineProfile { doubtful: true, ..profile };
        let mut profile = before.clone();
        add(&mut profile, &other).unwrap();
        assert!(!profile.doubtful && other.missing(&profile.compute).is_empty());
        let fastest = |profile: &MachineProfile| {
            profile.compute.products.iter().map(|point| point.operations_per_s).fold(0.0, f64::max)
        };
        assert!(fastest(&profile) < 1e-3 * fastest(&before) && profile.disks == before.disks);
    }
}
