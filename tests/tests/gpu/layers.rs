//! A layer on the GPU against the processor's on random inputs, for every option of the block and every level: output,
//! gradient of the input and of the weights, over two micro-batches. Levels change no bit on the GPU.

use crate::Rig;
use crate::whole::device;
use mt_kernels::cuda::{Buffer, Error};
use mt_kernels::rope::Table;
use mt_kernels::split;
use mt_tests::numbers::relative_l2;
use mt_trainer::batch::{MicroBatch, NO_TARGET};
use mt_trainer::block::{
    self, Block, Dims, Kept, Level, Saved, Scratch, Tensors, Tokens, first_seen, scratch_elements,
};
use mt_trainer::gpu::{Computation, Memory, kept_bytes};
use mt_trainer::head::Tiles;
use mt_trainer::layout::{Chunk, Layout};
use mt_trainer::model::{Manifest, ModelConfig};
use mt_trainer::profile::Rates;
use mt_trainer::schedule::{Activations, Description, Gradients, OnGpu, Operation, Sink, UpdateOn};
use mt_trainer::target::{Precision, Target};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use std::path::Path;

const PAGE: usize = 2_048;
const MICRO: usize = 2;

/// Sizes and options of a layer, and the shape of its input.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    hidden: usize,
    heads: (usize, usize),
    head_dim: usize,
    mlp: usize,
    rows: usize,
    seq: usize,
    biases: bool,
    qk_norm: bool,
    window: Option<usize>,
    documents: bool,
}

const SMALL: Case = Case {
    name: "plain",
    hidden: 64,
    heads: (4, 2),
    head_dim: 16,
    mlp: 96,
    rows: 2,
    seq: 33,
    biases: false,
    qk_norm: false,
    window: None,
    documents: false,
};

const CASES: [Case; 6] = [
    SMALL,
    Case { name: "biases", biases: true, ..SMALL },
    Case { name: "head norms", qk_norm: true, ..SMALL },
    Case { name: "window and documents", window: Some(7), documents: true, ..SMALL },
    Case {
        name: "all, odd sizes",
        hidden: 52,
        head_dim: 20,
        mlp: 100,
        biases: true,
        qk_norm: true,
        window: Some(9),
        ..SMALL
    },
    Case { name: "larger", hidden: 512, heads: (8, 2), head_dim: 64, mlp: 1_024, rows: 3, seq: 160, ..SMALL },
];

/// Everything of a case, rounded to what the precision holds.
struct Input {
    config: ModelConfig,
    manifest: Manifest,
    hi: Vec<u16>,
    lo: Vec<i16>,
    weights: Vec<f32>,
    micro: Vec<MicroBatch>,
    x: Vec<Vec<f32>>,
    dy: Vec<Vec<f32>>,
}

/// What a layer gives, in f32.
struct Output {
    y: Vec<Vec<f32>>,
    dx: Vec<Vec<f32>>,
    gradients: Vec<f32>,
}

fn round(precision: Precision, x: f32) -> f32 {
    if precision == Precision::Bf16 { half::bf16::from_f32(x).to_f32() } else { x }
}

fn bytes_of(precision: Precision, values: &[f32]) -> Vec<u8> {
    match precision {
        Precision::Bf16 => values.iter().flat_map(|x| half::bf16::from_f32(*x).to_le_bytes()).collect(),
        _ => values.iter().flat_map(|x| x.to_le_bytes()).collect(),
    }
}

fn values_of(precision: Precision, bytes: &[u8]) -> Vec<f32> {
    match precision {
        Precision::Bf16 => bytes.as_chunks::<2>().0.iter().map(|b| half::bf16::from_le_bytes(*b).to_f32()).collect(),
        _ => bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect(),
    }
}

impl Input {
    fn new(rig: &Rig, case: &Case, precision: Precision) -> Input {
        let text = format!(
            r#"{{"model_type": "llama", "vocab_size": 256, "hidden_size": {}, "num_hidden_layers": 1,
            "num_attention_heads": {}, "num_key_value_heads": {}, "head_dim": {}, "intermediate_size": {},
            "rope_theta": 100, "rms_norm_eps": 1e-5, "attention_bias": {}, "mlp_bias": {}}}"#,
            case.hidden, case.heads.0, case.heads.1, case.head_dim, case.mlp, case.biases, case.biases
        );
        let mut config = ModelConfig::parse(&text, Path::new("config.json")).expect("a sound configuration");
        config.qk_norm = case.qk_norm;
        config.windows = vec![case.window];
        let manifest = Manifest::new(&config);
        let unit = &manifest.units[1];
        let mut rng = ChaCha8Rng::seed_from_u64(case.hidden as u64 + u64::from(case.qk_norm));
        let mut uniform = |len: usize, center: f32, width: f32| -> Vec<f32> {
            (0..len).map(|_| center + width * (rng.next_u32() as f32 / u32::MAX as f32 * 2.0 - 1.0)).collect()
        };
        let width = 1.5 / (case.hidden as f32).sqrt();
        let of = |t: &mt_trainer::model::Tensor, uniform: &mut dyn FnMut(usize, f32, f32) -> Vec<f32>| {
            if t.name.contains("norm") { uniform(t.len, 1.0, 0.5) } else { uniform(t.len, 0.0, width) }
        };
        let masters: Vec<f32> = unit.tensors.iter().flat_map(|t| of(t, &mut uniform)).collect();
        let padded = unit.elements.next_multiple_of(PAGE);
        let (mut hi, mut lo) = (vec![0; padded], vec![0; padded]);
        split::split(&rig.cpu, &masters, &mut hi[..masters.len()], &mut lo[..masters.len()]).expect("small weights");
        let high = |x: &u16| f32::from_bits(u32::from(*x) << 16);
        let weights = match precision {
            Precision::Bf16 => hi[..masters.len()].iter().map(high).collect(),
            _ => masters,
        };
        let count = case.rows * case.seq;
        let mut document = vec![0; count];
        if case.documents {
            document[5..case.seq].fill(5);
            document[case.seq + 1..2 * case.seq].fill(1);
            document[case.seq + 20..2 * case.seq].fill(20);
        }
        let micro = MicroBatch {
            rows: case.rows,
            seq: case.seq,
            ids: vec![0; count],
            targets: vec![NO_TARGET; count],
            positions: (0..count).map(|t| (t % case.seq) as u32 - document[t]).collect(),
            document,
        };
        let mut rounded = |n| uniform(n, 0.0, 1.0).into_iter().map(|x| round(precision, x)).collect::<Vec<f32>>();
        let (x, dy) = (0..MICRO).map(|_| (rounded(count * case.hidden), rounded(count * case.hidden))).unzip();
        Input { config, manifest, hi, lo, weights, micro: vec![micro; MICRO], x, dy }
    }

    fn on_cpu(&self, rig: &Rig) -> Output {
        let (dims, unit, micro) = (Dims::new(&self.config), &self.manifest.units[1], &self.micro[0]);
        let (count, level) = (micro.ids.len(), Level::All);
        let tensors = Tensors::new(&self.config, unit);
        let rope = Table::new(self.config.rope_theta, dims.head_dim, self.config.rope_scaling, count);
        let mut first = vec![0; count];
        first_seen(&micro.document, micro.seq, self.config.windows[0], &mut first);
        let tokens = Tokens { rows: micro.rows, seq: micro.seq, positions: &micro.positions, first: &first };
        let block = Block { cpu: &rig.cpu, dims, tensors: &tensors, weights: &self.weights, rope: &rope };
        let mut kept = vec![f32::NAN; Saved::kept(&dims, count, level)];
        let mut scratch = vec![f32::NAN; scratch_elements(&dims, count)];
        let mut gradients = vec![f32::NAN; unit.elements];
        let (mut ys, mut dxs) = (Vec::new(), Vec::new());
        for micro in 0..MICRO {
            let mut scratch = Scratch::new(&dims, count, &mut scratch);
            let mut saved = Saved::split_mut(&dims, count, level, &mut kept, &mut []);
            let (mut y, mut dx) = (vec![f32::NAN; self.x[micro].len()], self.dy[micro].clone());
            block.forward(&tokens, &self.x[micro], &mut saved, &mut scratch, &mut y);
            let mut elements = block::Gradients { elements: &mut gradients, add: micro > 0 };
            let kept = Kept { level, elements: &kept };
            block.backward(&tokens, &self.x[micro], kept, &mut [], &mut scratch, &mut elements, &mut dx);
            ys.push(y);
            dxs.push(dx);
        }
        Output { y: ys, dx: dxs, gradients }
    }

    fn on_gpu(&self, rig: &Rig, precision: Precision, level: Level) -> Result<Output, Error> {
        let (config, manifest, micro) = (&self.config, &self.manifest, &self.micro[0]);
        let (dims, tokens) = (Dims::new(config), micro.ids.len());
        let layout = Layout::new(manifest, Some(PAGE), PAGE);
        let tiles = Tiles::on_gpu(config.vocab, config.hidden);
        let activations = Activations::on(Target::Gpu(device(precision)), 5, &dims, 1, &tiles, &[tokens; MICRO]);
        let kept = mt_trainer::schedule::Kept::uniform(1, level, false);
        let description = Description {
            config,
            manifest,
            layout: &layout,
            activations: &activations,
            tiles: &tiles,
            micro_rows: &[micro.rows; MICRO],
            seq: micro.seq,
            kept: &kept,
            fused_backward: false,
            gpu: Some(OnGpu { gpu: device(precision), updates: &[UpdateOn::Cpu; 3], ahead: 0, turns: 2 }),
            rates: &Rates::default(),
        };
        let mut computation = Computation::new(&rig.gpu, &description, precision)?;
        computation.begin(&self.micro, 1, None)?;
        let chunks = layout.chunks(manifest, 1);
        for (chunk, at) in chunks.iter().enumerate() {
            self.join(&mut computation, precision, chunk, *at)?;
        }
        let run = |bytes: usize| -> Result<Buffer<u8>, Error> {
            let mut buffer = Buffer::new(&rig.gpu, bytes)?;
            buffer.fill(computation.queue(), 0xFF)?;
            Ok(buffer)
        };
        let upload = |values: &[f32]| Buffer::from_slice(computation.queue(), &bytes_of(precision, values));
        let xs = self.x.iter().map(|x| upload(x)).collect::<Result<Vec<_>, _>>()?;
        let mut dxs = self.dy.iter().map(|dy| upload(dy)).collect::<Result<Vec<_>, _>>()?;
        let mut ys = xs.iter().map(|x| run(x.len())).collect::<Result<Vec<_>, _>>()?;
        let bytes = kept_bytes(&dims, tokens, precision, level);
        let mut saved = (0..MICRO).map(|_| run(bytes)).collect::<Result<Vec<_>, _>>()?;
        let mut grads = chunks.iter().map(|at| run(at.pages as usize * PAGE * 4)).collect::<Result<Vec<_>, _>>()?;
        for micro in 0..MICRO {
            let mut accesses = vec![Memory::Read(xs[micro].view()), Memory::Write(ys[micro].view_mut())];
            accesses.extend((bytes > 0).then(|| Memory::Write(saved[micro].view_mut())));
            computation.execute(Operation::LayerForward { layer: 0, micro, level }, accesses)?;
        }
        for micro in 0..MICRO {
            let mut accesses = vec![Memory::Read(xs[micro].view()), Memory::Write(dxs[micro].view_mut())];
            accesses.extend((bytes > 0).then(|| Memory::Read(saved[micro].view())));
            computation.execute(Operation::LayerBackward { layer: 0, micro, level }, accesses)?;
        }
        for (chunk, grad) in grads.iter_mut().enumerate() {
            let keep = Operation::Keep { unit: 1, chunk, from: Gradients::Layer, partial: false };
            computation.execute(keep, [Memory::Write(grad.view_mut())])?;
        }
        let found = computation.finish()?;
        let queue = computation.queue();
        let values = |buffers: &[Buffer<u8>]| -> Result<Vec<Vec<f32>>, Error> {
            buffers.iter().map(|buffer| Ok(values_of(precision, &buffer.download(queue)?))).collect()
        };
        let mut gradients = Vec::new();
        for (at, grad) in chunks.iter().zip(&grads) {
            let values = values_of(Precision::Fp32, &grad.download(queue)?);
            assert!(values[at.len..].iter().all(|x| *x == 0.0), "padding is zero");
            gradients.extend_from_slice(&values[..at.len]);
        }
        let squares = mt_kernels::norm2::sum_squares(&rig.cpu, 0.0, &gradients);
        assert_eq!(found.squares[1].to_bits(), squares.to_bits(), "sums of squares have the processor's bits");
        Ok(Output { y: values(&ys)?, dx: values(&dxs)?, gradients })
    }

    fn join(&self, computation: &mut Computation, precision: Precision, chunk: usize, at: Chunk) -> Result<(), Error> {
        let range = at.start..at.start + at.pages as usize * PAGE;
        let hi: Vec<u8> = self.hi[range.clone()].iter().flat_map(|x| x.to_le_bytes()).collect();
        let lo: Vec<u8> = self.lo[range].iter().flat_map(|x| x.to_le_bytes()).collect();
        let queue = computation.queue();
        let (hi, lo) = (Buffer::from_slice(queue, &hi)?, Buffer::from_slice(queue, &lo)?);
        let mut accesses = vec![Memory::Read(hi.view())];
        accesses.extend((precision != Precision::Bf16).then(|| Memory::Read(lo.view())));
        computation.execute(Operation::Join { unit: 1, chunk, into: Sink::Layer }, accesses)?;
        computation.queue().synchronize()
    }
}

/// Greatest relative error of y, dx and each gradient.
fn tolerance(precision: Precision) -> [f64; 3] {
    match precision {
        Precision::Fp32 => [2e-6, 5e-6, 2e-5],
        Precision::Tf32 => [2e-3, 5e-3, 1e-2],
        Precision::Bf16 => [1e-2, 2e-2, 3e-2],
    }
}

fn compare(rig: &Rig, case: &Case, precision: Precision) -> Result<String, String> {
    let input = Input::new(rig, case, precision);
    let want = input.on_cpu(rig);
    let found = Level::EACH.map(|level| input.on_gpu(rig, precision, level));
    let found = found.into_iter().collect::<Result<Vec<_>, Error>>().map_err(|e| e.to_string())?;
    let mut worst = [0.0_f64; 3];
    let mut note =
        |kind: usize, error: f64| worst[kind] = if error > worst[kind] || error.is_nan() { error } else { worst[kind] };
    for micro in 0..MICRO {
        note(0, relative_l2(&found[0].y[micro], &want.y[micro]));
        note(1, relative_l2(&found[0].dx[micro], &want.dx[micro]));
    }
    let whole = want.gradients.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
    for tensor in &input.manifest.units[1].tensors {
        let range = tensor.offset..tensor.offset + tensor.len;
        let (got, want) = (&found[0].gradients[range.clone()], &want.gradients[range]);
        // A gradient that is zero but for rounding (the bias of k) counts by the gradient of all.
        let size = want.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
        note(2, relative_l2(got, want) * (size / whole.max(1e-30) * 100.0).min(1.0));
    }
    for (other, level) in found[1..].iter().zip(&Level::EACH[1..]) {
        let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        let same = (0..MICRO)
            .all(|m| bits(&other.y[m]) == bits(&found[0].y[m]) && bits(&other.dx[m]) == bits(&found[0].dx[m]));
        if !same || bits(&other.gradients) != bits(&found[0].gradients) {
            return Err(format!("level {level:?} changes bits"));
        }
    }
    let allowed = tolerance(precision);
    let text = format!("y {:.1e}, dx {:.1e}, gradients {:.1e}", worst[0], worst[1], worst[2]);
    if worst.iter().zip(allowed).all(|(worst, allowed)| *worst <= allowed) { Ok(text) } else { Err(text) }
}

pub fn run(rig: &mut Rig) {
    for case in &CASES {
        for precision in Precision::EACH {
            rig.case(&format!("layer {}, {precision:?}", case.name), |rig| compare(rig, case, precision));
        }
    }
}
