//! Times in bf16 of one layer and of the head with the shapes of models of 3 B and 7 B parameters, 8 rows of 1,024
//! tokens: forward, backward at each level, state in and out, and each kernel by itself. No time is judged here.

use crate::Rig;
use crate::whole::device;
use mt_kernels::adamw;
use mt_kernels::cuda::pointwise::GateUp;
use mt_kernels::cuda::{Buffer, Error, Queue, ViewMut, attention, linear, pointwise, rmsnorm, rope};
use mt_trainer::batch::MicroBatch;
use mt_trainer::block::{Dims, Level};
use mt_trainer::gpu::{Computation, Memory, kept_bytes};
use mt_trainer::head::Tiles;
use mt_trainer::layout::Layout;
use mt_trainer::model::{Manifest, ModelConfig};
use mt_trainer::profile::Rates;
use mt_trainer::schedule::{Activations, Description, Gradients, Kept, OnGpu, Operation, Sink, UpdateOn};
use mt_trainer::target::{Precision, Target};
use std::path::Path;
use std::time::Instant;

const ROWS: usize = 8;
const SEQ: usize = 1_024;
const TOKENS: usize = ROWS * SEQ;
/// Elements of a chunk: what a model of 7 B has.
const CHUNK: usize = 2 << 20;
/// Repeats of what is timed.
const REPEATS: u32 = 10;

/// Name, config.json.
const SHAPES: [(&str, &str); 2] = [
    (
        "3B",
        r#"{"model_type": "llama", "vocab_size": 128256, "hidden_size": 3072, "num_hidden_layers": 1,
        "num_attention_heads": 24, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 8192}"#,
    ),
    (
        "7B",
        r#"{"model_type": "qwen2", "vocab_size": 152064, "hidden_size": 3584, "num_hidden_layers": 1,
        "num_attention_heads": 28, "num_key_value_heads": 4, "intermediate_size": 18944}"#,
    ),
];

/// What work amounts to.
#[derive(Clone, Copy)]
enum Work {
    Flops(f64),
    Bytes(f64),
}

/// Milliseconds of a launch, when many follow each other, in a line with its rate.
fn time(queue: &Queue, what: &str, work: Work, mut launch: impl FnMut() -> Result<(), Error>) -> Result<(), Error> {
    launch()?;
    launch()?;
    queue.synchronize()?;
    let begin = Instant::now();
    for _ in 0..REPEATS {
        launch()?;
    }
    queue.synchronize()?;
    let ms = begin.elapsed().as_secs_f64() * 1e3 / f64::from(REPEATS);
    let rate = match work {
        Work::Flops(flops) => format!("{:.0} TFLOP/s", flops / ms / 1e9),
        Work::Bytes(bytes) => format!("{:.0} GB/s", bytes / ms / 1e6),
    };
    println!("time  {what:34} {ms:8.3} ms {rate}");
    Ok(())
}

/// `n` random bytes as small bf16 numbers: the exponents are of numbers up to 1.
fn random(queue: &Queue, n: usize) -> Result<Buffer<u8>, Error> {
    let mut state = 1_u64;
    let mut number = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let x = (state >> 40) as f32 / (1_u32 << 24) as f32 * 2.0 - 1.0;
        ((x * 0.05).to_bits() >> 16) as u16
    };
    let some: Vec<u8> = (0..1 << 19).flat_map(|_| number().to_le_bytes()).collect();
    let all: Vec<u8> = some.iter().copied().cycle().take(n).collect();
    Buffer::from_slice(queue, &all)
}

/// Multiplications and additions of a layer's forward: products, attention.
fn flops(dims: &Dims) -> (f64, f64) {
    let Dims { hidden, mlp, .. } = *dims;
    let (q, k) = (dims.query(), dims.key());
    let weights = hidden * (q + 2 * k) + q * hidden + 3 * hidden * mlp;
    let seen = (SEQ + 1) as f64 / 2.0;
    (2.0 * TOKENS as f64 * weights as f64, 4.0 * TOKENS as f64 * seen * q as f64)
}

fn whole(rig: &Rig, name: &str, config: &ModelConfig) -> Result<(), Error> {
    let (manifest, dims) = (Manifest::new(config), Dims::new(config));
    let layout = Layout::new(&manifest, Some(1 << 20), CHUNK);
    let tiles = Tiles::on_gpu(config.vocab, config.hidden);
    let activations = Activations::on(Target::Gpu(device(Precision::Bf16)), 5, &dims, 1, &tiles, &[TOKENS]);
    let kept = Kept::uniform(1, Level::Input, false);
    let description = Description {
        config,
        manifest: &manifest,
        layout: &layout,
        activations: &activations,
        tiles: &tiles,
        micro_rows: &[ROWS],
        seq: SEQ,
        kept: &kept,
        fused_backward: false,
        gpu: Some(OnGpu { gpu: device(Precision::Bf16), updates: &[UpdateOn::Cpu; 3], ahead: 0, turns: 2 }),
        rates: &Rates::default(),
    };
    let mut it = Computation::new(&rig.gpu, &description, Precision::Bf16)?;
    let next = |t: u32| t.wrapping_mul(2_654_435_761) % config.vocab as u32;
    let micro = MicroBatch {
        rows: ROWS,
        seq: SEQ,
        ids: (0..TOKENS as u32).map(next).collect(),
        targets: (1..=TOKENS as u32).map(next).collect(),
        positions: (0..TOKENS).map(|t| (t % SEQ) as u32).collect(),
        document: vec![0; TOKENS],
    };
    it.begin(&[micro], TOKENS as u64, Some(adamw::Step::new(1e-3, (0.9, 0.95), 1e-8, 0.1, 3, 1.0)))?;
    let boundary = TOKENS * config.hidden * 2;
    let x = random(it.queue(), boundary)?;
    let (mut y, mut dx) = (random(it.queue(), boundary)?, random(it.queue(), boundary)?);
    let mut kept = random(it.queue(), kept_bytes(&dims, TOKENS, Precision::Bf16, Level::All))?;
    let (hi, mut grad) = (random(it.queue(), CHUNK * 2)?, random(it.queue(), CHUNK * 4)?);
    let chunks = layout.chunks(&manifest, 1).len();
    let elements = manifest.units[1].elements as f64;
    let (products, scores) = flops(&dims);
    let down = 2.0 * (TOKENS * config.hidden * config.mlp) as f64;
    let mlp = products - 2.0 * (TOKENS * config.hidden * (dims.query() + 2 * dims.key())) as f64 - down;
    // The computation's own queue, which it lends.
    let queue = Queue::on(&rig.gpu, it.queue().stream().clone())?;
    let title = |what: &str| format!("{name} {what}");
    time(&queue, &title("layer join"), Work::Bytes(elements * 4.0), || {
        (0..chunks).try_for_each(|chunk| {
            it.execute(Operation::Join { unit: 1, chunk, into: Sink::Layer }, [Memory::Read(hi.view())])
        })
    })?;
    for level in Level::EACH {
        let forward = Operation::LayerForward { layer: 0, micro: 0, level };
        let backward = Operation::LayerBackward { layer: 0, micro: 0, level };
        let again = match level {
            Level::Input => products - down + scores,
            Level::Attention => mlp,
            Level::All => 0.0,
        };
        let is_kept = level > Level::Input;
        time(&queue, &title(&format!("layer forward {level:?}")), Work::Flops(products + scores), || {
            let mut accesses = vec![Memory::Read(x.view()), Memory::Write(y.view_mut())];
            accesses.extend(is_kept.then(|| Memory::Write(kept.view_mut())));
            it.execute(forward, accesses)
        })?;
        let work = Work::Flops(2.0 * products + 2.5 * scores + again);
        time(&queue, &title(&format!("layer backward {level:?}")), work, || {
            let mut accesses = vec![Memory::Read(x.view()), Memory::Write(dx.view_mut())];
            accesses.extend(is_kept.then(|| Memory::Read(kept.view())));
            it.execute(backward, accesses)
        })?;
    }
    time(&queue, &title("layer keep"), Work::Bytes(elements * 8.0), || {
        (0..chunks).try_for_each(|chunk| {
            let keep = Operation::Keep { unit: 1, chunk, from: Gradients::Layer, partial: false };
            it.execute(keep, [Memory::Write(grad.view_mut())])
        })
    })?;
    let (mut high, mut low) = (random(it.queue(), CHUNK * 2)?, random(it.queue(), CHUNK * 2)?);
    let (mut m, mut v) = (random(it.queue(), CHUNK * 4)?, random(it.queue(), CHUNK * 4)?);
    m.fill(it.queue(), 0)?;
    v.fill(it.queue(), 0)?;
    time(&queue, &title("layer update and join"), Work::Bytes(elements * 30.0), || {
        (0..chunks).try_for_each(|chunk| {
            let planes = [high.view_mut(), low.view_mut(), m.view_mut(), v.view_mut()].map(Memory::Write);
            let accesses = [Memory::Read(grad.view())].into_iter().chain(planes);
            it.execute(Operation::Update { unit: 1, chunk, into: Sink::Layer }, accesses)
        })
    })?;
    let head = 2;
    for chunk in 0..(tiles.elements(0) + config.hidden).div_ceil(CHUNK) {
        it.execute(Operation::Join { unit: head, chunk, into: Sink::Head }, [Memory::Read(hi.view())])?;
    }
    let tile = 2.0 * (TOKENS * tiles.elements(0)) as f64;
    println!("      {name} head: {} tiles of {} rows", tiles.count, tiles.rows);
    time(&queue, &title("head tile forward"), Work::Flops(tile), || {
        it.execute(Operation::TileForward { tile: 0, micro: 0 }, [Memory::Read(x.view())])
    })?;
    it.execute(Operation::Loss, [])?;
    time(&queue, &title("head tile backward"), Work::Flops(3.0 * tile), || {
        let accesses = [Memory::Read(x.view()), Memory::Write(dx.view_mut())];
        it.execute(Operation::TileBackward { tile: 0, micro: 0 }, accesses)
    })
}

/// Each kernel of a layer by itself.
fn kernels(rig: &Rig, config: &ModelConfig) -> Result<(), Error> {
    let queue = Queue::new(&rig.gpu)?;
    let q = &queue;
    let dims = Dims::new(config);
    let Dims { hidden, heads, kv_heads, head_dim, mlp, .. } = dims;
    let qkv = dims.query() + 2 * dims.key();
    let mut pool = random(q, TOKENS * 2 * mlp * 2 * 3 + hidden * 2 * mlp * 2)?;
    let mut memory = pool.view_mut();
    let mut take = |n: usize| -> ViewMut<'_, u16> { memory.take_front(n * 2).cast() };
    let (x, mut y, w) = (take(TOKENS * 2 * mlp), take(TOKENS * 2 * mlp), take(hidden * 2 * mlp).into_view());
    let both = take(TOKENS * 2 * mlp).into_view();
    let mut gradients = Buffer::<f32>::new(&rig.gpu, hidden * 2 * mlp)?;
    gradients.fill(q, 0)?;
    let mut floats = Buffer::<f32>::new(&rig.gpu, TOKENS * heads * 8 + TOKENS * 64)?;
    floats.fill(q, 0)?;
    let exact = linear::Precision::Fp32;
    let sizes = [("qkv", hidden, qkv), ("o", hidden, hidden), ("gate up", hidden, 2 * mlp), ("down", mlp, hidden)];
    for (what, inputs, outputs) in sizes {
        let size = linear::Size { tokens: TOKENS, inputs, outputs };
        let (i, o, wo) = (0..TOKENS * inputs, 0..TOKENS * outputs, w.slice(0..inputs * outputs));
        let work = Work::Flops(2.0 * (TOKENS * inputs * outputs) as f64);
        time(q, &format!("{what} forward"), work, || {
            linear::forward::<u16, u16>(q, exact, both.slice(i.clone()), wo, None, y.reborrow().slice(o.clone()), size)
        })?;
        if outputs == hidden {
            time(q, &format!("{what} forward onto"), work, || {
                let (input, onto) = (both.slice(i.clone()), x.view().slice(o.clone()));
                linear::forward_onto::<u16, u16>(q, exact, input, wo, None, onto, y.reborrow().slice(o.clone()), size)
            })?;
        }
        time(q, &format!("{what} to its input"), work, || {
            linear::backward_input(q, exact, both.slice(o.clone()), wo, y.reborrow().slice(i.clone()), false, size)
        })?;
        time(q, &format!("{what} to its weights"), work, || {
            let dw = gradients.view_mut().slice(0..inputs * outputs);
            linear::backward_weight(q, exact, both.slice(o.clone()), x.view().slice(i.clone()), dw, true, size)
        })?;
    }
    let n = (TOKENS * 2) as f64;
    let shape = attention::Shape {
        rows: ROWS,
        seq: SEQ,
        heads,
        kv_heads,
        head_dim,
        layout: attention::Layout::Beside,
        scale: dims.scale(),
        cap: None,
    };
    let first = Buffer::from_slice(q, &vec![0_u32; TOKENS])?;
    let scores = flops(&dims).1;
    let (lse_len, out_len) = (TOKENS * heads, TOKENS * dims.query());
    time(q, "attention forward", Work::Flops(scores), || {
        let (out, lse) = (y.reborrow().slice(0..out_len), floats.view_mut().slice(0..lse_len));
        attention::forward(q, &shape, both.slice(0..shape.qkv_len()), first.view(), out, lse)
    })?;
    let lse = Buffer::from_slice(q, &vec![7_f32; lse_len])?;
    time(q, "attention backward", Work::Flops(2.5 * scores), || {
        let (out, dout) = (both.slice(0..out_len), both.slice(out_len..2 * out_len));
        let (dqkv, scratch) = (y.reborrow().slice(0..shape.qkv_len()), floats.view_mut());
        attention::backward(
            q,
            &shape,
            x.view().slice(0..shape.qkv_len()),
            first.view(),
            out,
            lse.view(),
            dout,
            dqkv,
            scratch,
        )
    })?;
    let table = mt_kernels::rope::Table::new(10_000.0, head_dim, mt_kernels::rope::Scaling::Default, SEQ);
    let (cos, sin) = (Buffer::from_slice(q, &table.cos)?, Buffer::from_slice(q, &table.sin)?);
    let positions = Buffer::from_slice(q, &(0..TOKENS).map(|t| (t % SEQ) as u32).collect::<Vec<_>>())?;
    let table = rope::Table { cos: cos.view(), sin: sin.view(), half: head_dim / 2 };
    time(q, "rope", Work::Bytes(2.0 * n * (dims.query() + dims.key()) as f64), || {
        let part = y.reborrow().slice(0..TOKENS * qkv);
        rope::forward(q, table, positions.view(), part, heads + kv_heads, qkv)
    })?;
    let t = 0..TOKENS * hidden;
    time(q, "norm forward", Work::Bytes(2.0 * n * hidden as f64), || {
        let (to, rstd) = (y.reborrow().slice(t.clone()), floats.view_mut().slice(0..TOKENS));
        rmsnorm::forward(q, both.slice(t.clone()), w.slice(0..hidden), 1e-6, to, rstd)
    })?;
    let rstd = Buffer::from_slice(q, &vec![1_f32; TOKENS])?;
    let mut dw = Buffer::from_slice(q, &vec![0_f32; hidden])?;
    time(q, "norm backward, added", Work::Bytes(4.0 * n * hidden as f64), || {
        let (dy, input) = (both.slice(t.clone()), x.view().slice(t.clone()));
        let (dx, partial) = (y.reborrow().slice(t.clone()), floats.view_mut());
        rmsnorm::backward(q, dy, input, w.slice(0..hidden), rstd.view(), dx, true, dw.view_mut(), partial)
    })?;
    let layout = GateUp::beside(TOKENS, mlp);
    time(q, "swiglu forward", Work::Bytes(3.0 * n * mlp as f64), || {
        pointwise::swiglu_forward(q, layout, both, y.reborrow().slice(0..TOKENS * mlp))
    })?;
    time(q, "swiglu backward", Work::Bytes(5.0 * n * mlp as f64), || {
        pointwise::swiglu_backward(q, layout, x.view().slice(0..TOKENS * mlp), both, y.reborrow())
    })?;
    let mut bias = Buffer::<f32>::new(&rig.gpu, qkv)?;
    time(q, "bias of qkv", Work::Bytes(n * qkv as f64), || {
        linear::backward_bias(q, both.slice(0..TOKENS * qkv), bias.view_mut(), false, floats.view_mut())
    })
}

pub fn run(rig: &mut Rig) {
    for (name, text) in SHAPES {
        rig.case(&format!("times of {name}"), |rig| {
            let config = ModelConfig::parse(text, Path::new("config.json")).map_err(|e| e.to_string())?;
            whole(rig, name, &config).map_err(|e| e.to_string())?;
            if name == "7B" {
                kernels(rig, &config).map_err(|e| e.to_string())?;
            }
            Ok("see above".to_owned())
        });
    }
}
