//! Kernels on rows of activations: RMSNorm, rotary positions, SwiGLU, additions, the embedding, cross-entropy, biases.

use crate::rig::{Rig, Value, Work, wide};
use mt_kernels::cross_entropy::NO_TARGET;
use mt_kernels::cuda::embedding::DeviceOrder;
use mt_kernels::cuda::pointwise::GateUp;
use mt_kernels::cuda::rmsnorm::Heads;
use mt_kernels::cuda::{Buffer, Error, cross_entropy, embedding, linear, pointwise, rmsnorm, rope};
use mt_kernels::reference;

pub fn run(rig: &mut Rig) {
    both::<f32>(rig);
    both::<u16>(rig);
}

/// Prints times and rates.
pub fn times(rig: &mut Rig) {
    rig.attempt("speed of the rows' kernels", speed::<u16>);
}

fn both<T: Value>(rig: &mut Rig) {
    for (rows, columns) in [(130, 3584), (1000, 128), (37, 100), (3, 24_000), (70, 513)] {
        rig.attempt("rmsnorm", |rig| norm::<T>(rig, rows, columns));
    }
    for (tokens, heads, dim, stride) in [(200, 7, 128, 7 * 128), (50, 3, 64, 500), (33, 2, 20, 43)] {
        rig.attempt("rope", |rig| rotary::<T>(rig, tokens, heads, dim, stride));
        rig.attempt("rmsnorm of heads", |rig| norm_of_heads::<T>(rig, Heads { tokens, heads, dim, stride }));
    }
    let odd = GateUp { rows: 17, columns: 101, stride: 203, up: 102 };
    for layout in [GateUp::beside(40, 18_944), GateUp::apart(33, 1_000), odd] {
        rig.attempt("swiglu", |rig| swiglu::<T>(rig, layout));
    }
    rig.attempt("add", add::<T>);
    rig.attempt("embedding", |rig| table::<T>(rig, 500, 300, 128));
    rig.attempt("embedding", |rig| table::<T>(rig, 70, 64, 37));
    rig.attempt("cross-entropy", |rig| loss::<T>(rig, 100, 5_003, &[2_048, 2_048, 907]));
    rig.attempt("cross-entropy", |rig| loss::<T>(rig, 33, 4_096, &[4_096]));
    rig.attempt("bias", |rig| bias::<T>(rig, 1_000, 130));
}

fn norm<T: Value>(rig: &mut Rig, rows: usize, columns: usize) -> Result<(), Error> {
    let name = |what: &str| format!("rmsnorm {what} {} [{rows}, {columns}]", T::NAME);
    let (x, w, dy): (Vec<T>, Vec<T>, Vec<T>) =
        (rig.rng.vec(rows * columns), rig.rng.vec(columns), rig.rng.vec(rows * columns));
    let before: Vec<f32> = rig.rng.vec(columns);
    let (x_d, w_d, dy_d) = (rig.upload(&x)?, rig.upload(&w)?, rig.upload(&dy)?);
    let mut results = Vec::new();
    for _ in 0..2 {
        let (mut y, mut rstd) = (rig.poisoned::<T>(rows * columns)?, rig.poisoned::<f32>(rows)?);
        let (mut dx, mut dw) = (rig.poisoned::<T>(rows * columns)?, rig.upload(&before)?);
        let mut scratch = rig.poisoned::<f32>(rmsnorm::scratch_len(rows, columns))?;
        rmsnorm::forward(&rig.queue, x_d.view(), w_d.view(), 1e-5, y.view_mut(), rstd.view_mut())?;
        let (r, s) = (rstd.view(), scratch.view_mut());
        rmsnorm::backward(&rig.queue, dy_d.view(), x_d.view(), w_d.view(), r, dx.view_mut(), false, dw.view_mut(), s)?;
        results.push((y.download(&rig.queue)?, dx.download(&rig.queue)?, dw.download(&rig.queue)?));
        if results.len() == 2 {
            // Once more, added to what is there.
            let (r, s) = (rstd.view(), scratch.view_mut());
            let (dx_v, dw_v) = (dx.view_mut(), dw.view_mut());
            rmsnorm::backward(&rig.queue, dy_d.view(), x_d.view(), w_d.view(), r, dx_v, true, dw_v, s)?;
            let want = reference::rmsnorm_backward(&wide(&dy), &wide(&x), &wide(&w), 1e-5);
            let twice: Vec<f64> = want.0.iter().map(|x| 2.0 * x).collect();
            let got = dx.download(&rig.queue)?;
            rig.close(&name("dx added"), &got, &twice, 3.0 * T::ROUNDING + 1e-5);
        }
    }
    let (want_y, _) = reference::rmsnorm_forward(&wide(&x), &wide(&w), 1e-5);
    let (want_dx, want_dw) = reference::rmsnorm_backward(&wide(&dy), &wide(&x), &wide(&w), 1e-5);
    let want_dw: Vec<f64> = want_dw.iter().zip(&before).map(|(a, b)| a + f64::from(*b)).collect();
    let (a, b) = (&results[0], &results[1]);
    rig.close(&name("y"), &a.0, &want_y, T::ROUNDING + 1e-6);
    rig.close(&name("dx"), &a.1, &want_dx, T::ROUNDING + 1e-5);
    rig.close(&name("dw"), &a.2, &want_dw, 1e-5);
    rig.same(&name("y"), &a.0, &b.0);
    rig.same(&name("dx"), &a.1, &b.1);
    rig.same(&name("dw"), &a.2, &b.2);
    Ok(())
}

/// Heads in a token's row against the same rows one after the other; what lies beside them stays.
fn norm_of_heads<T: Value>(rig: &mut Rig, heads: Heads) -> Result<(), Error> {
    let Heads { tokens, heads: count, dim, stride } = heads;
    let (rows, width) = (tokens * count, count * dim);
    let name = |what: &str| format!("rmsnorm of heads {what} {} [{tokens}, {count}, {dim}] of {stride}", T::NAME);
    let (x, d, w): (Vec<T>, Vec<T>, Vec<T>) =
        (rig.rng.vec(tokens * stride), rig.rng.vec(tokens * stride), rig.rng.vec(dim));
    let plain = |x: &[T]| -> Vec<T> { x.chunks(stride).flat_map(|row| row[..width].to_vec()).collect() };
    let spread = |rows: &[T], beside: &[T]| -> Vec<T> {
        let row = |(rows, beside): (&[T], &[T])| [rows, &beside[width..]].concat();
        rows.chunks(width).zip(beside.chunks(stride)).flat_map(row).collect()
    };
    let queue = &rig.queue;
    let (x_d, w_d, mut y_d, mut d_d) = (rig.upload(&x)?, rig.upload(&w)?, rig.upload(&d)?, rig.upload(&d)?);
    let (mut rstd, mut dw) = (rig.poisoned::<f32>(rows)?, rig.upload(&vec![1f32; dim])?);
    let mut scratch = rig.poisoned::<f32>(rmsnorm::scratch_len(rows, dim))?;
    rmsnorm::forward_heads(queue, heads, x_d.view(), w_d.view(), 1e-5, y_d.view_mut(), rstd.view_mut())?;
    let (r, dw_v, s) = (rstd.view(), dw.view_mut(), scratch.view_mut());
    rmsnorm::backward_heads(queue, heads, d_d.view_mut(), x_d.view(), w_d.view(), r, dw_v, s)?;
    let (x_p, d_p) = (rig.upload(&plain(&x))?, rig.upload(&plain(&d))?);
    let (mut y_p, mut dx_p) = (rig.poisoned::<T>(rows * dim)?, rig.poisoned::<T>(rows * dim)?);
    let (mut rstd_p, mut dw_p) = (rig.poisoned::<f32>(rows)?, rig.upload(&vec![1f32; dim])?);
    rmsnorm::forward(queue, x_p.view(), w_d.view(), 1e-5, y_p.view_mut(), rstd_p.view_mut())?;
    let (r, s) = (rstd_p.view(), scratch.view_mut());
    let (dx_v, dw_v) = (dx_p.view_mut(), dw_p.view_mut());
    rmsnorm::backward(queue, d_p.view(), x_p.view(), w_d.view(), r, dx_v, false, dw_v, s)?;
    let (y, dx, dw) = (y_d.download(queue)?, d_d.download(queue)?, dw.download(queue)?);
    let (rstd, rstd_p) = (rstd.download(queue)?, rstd_p.download(queue)?);
    let (y_p, dx_p, dw_p) = (y_p.download(queue)?, dx_p.download(queue)?, dw_p.download(queue)?);
    // Rows whose places differ may be loaded in packs of other sizes, which are added in another order.
    let same = stride % 8 == 0 && dim % 8 == 0;
    let allowed = if same { 0.0 } else { T::ROUNDING + 1e-5 };
    rig.close(&name("y"), &y, &wide(&spread(&y_p, &d)), allowed);
    rig.close(&name("rstd"), &rstd, &wide(&rstd_p), if same { 0.0 } else { 1e-5 });
    rig.close(&name("dx"), &dx, &wide(&spread(&dx_p, &d)), allowed);
    rig.close(&name("dw"), &dw, &wide(&dw_p), if same { 0.0 } else { 1e-5 });
    let mut copy = rig.upload(&d)?;
    pointwise::copy_rows(&rig.queue, tokens, width, stride, x_d.view(), copy.view_mut())?;
    let copied = copy.download(&rig.queue)?;
    rig.exact(&format!("rows copied {} [{tokens}, {width}] of {stride}", T::NAME), &copied, &spread(&plain(&x), &d));
    Ok(())
}

fn rotary<T: Value>(rig: &mut Rig, tokens: usize, heads: usize, dim: usize, stride: usize) -> Result<(), Error> {
    let table = mt_kernels::rope::Table::new(10_000.0, dim, mt_kernels::rope::Scaling::Default, 300);
    let positions: Vec<u32> = (0..tokens).map(|_| rig.rng.below(300) as u32).collect();
    let x: Vec<T> = rig.rng.vec(tokens * stride);
    let (cos, sin, positions_d) = (rig.upload(&table.cos)?, rig.upload(&table.sin)?, rig.upload(&positions)?);
    let on_device = rope::Table { cos: cos.view(), sin: sin.view(), half: dim / 2 };
    let mut x_d = rig.upload(&x)?;
    rope::forward(&rig.queue, on_device, positions_d.view(), x_d.view_mut(), heads, stride)?;
    let got = x_d.download(&rig.queue)?;
    // The CPU's arithmetic on the heads of each token; what lies between stays.
    let mut want = x.clone();
    for (token, want) in want.chunks_mut(stride).enumerate() {
        let mut row: Vec<f32> = want[..heads * dim].iter().map(|x| wide(&[*x])[0] as f32).collect();
        mt_kernels::rope::forward(&rig.cpu, &table, &positions[token..=token], &mut row, heads);
        want.iter_mut().zip(row).for_each(|(to, x)| *to = T::of(x));
    }
    rig.exact(&format!("rope {} [{tokens}, {heads}, {dim}] in rows of {stride}", T::NAME), &got, &want);
    rope::backward(&rig.queue, on_device, positions_d.view(), x_d.view_mut(), heads, stride)?;
    let back = x_d.download(&rig.queue)?;
    rig.close(&format!("rope back {} [{tokens}, {heads}, {dim}]", T::NAME), &back, &wide(&x), 3.0 * T::ROUNDING + 1e-6);
    Ok(())
}

fn swiglu<T: Value>(rig: &mut Rig, layout: GateUp) -> Result<(), Error> {
    let GateUp { rows, columns, stride, up } = layout;
    let name = |what: &str| format!("swiglu {what} {} [{rows}, {columns}] stride {stride}", T::NAME);
    let len = (rows - 1) * stride + up + columns;
    let (both, dout): (Vec<T>, Vec<T>) = (rig.rng.vec(len), rig.rng.vec(rows * columns));
    let (both_d, dout_d) = (rig.upload(&both)?, rig.upload(&dout)?);
    let (mut out, mut dboth) = (rig.poisoned::<T>(rows * columns)?, rig.poisoned::<T>(len)?);
    pointwise::swiglu_forward(&rig.queue, layout, both_d.view(), out.view_mut())?;
    pointwise::swiglu_backward(&rig.queue, layout, dout_d.view(), both_d.view(), dboth.view_mut())?;
    let (out, dboth) = (out.download(&rig.queue)?, dboth.download(&rig.queue)?);
    let pick = |from: &[T], begin: usize| -> Vec<T> {
        (0..rows).flat_map(|r| from[begin + r * stride..][..columns].iter().copied()).collect()
    };
    let (gate, value) = (wide(&pick(&both, 0)), wide(&pick(&both, up)));
    let (want_gate, want_up) = reference::swiglu_backward(&wide(&dout), &gate, &value);
    rig.close(&name("out"), &out, &reference::swiglu_forward(&gate, &value), T::ROUNDING + 1e-6);
    rig.close(&name("dgate"), &pick(&dboth, 0), &want_gate, T::ROUNDING + 1e-6);
    rig.close(&name("dup"), &pick(&dboth, up), &want_up, T::ROUNDING + 1e-6);
    Ok(())
}

fn add<T: Value>(rig: &mut Rig) -> Result<(), Error> {
    let n = 100_003;
    let (y, x): (Vec<T>, Vec<T>) = (rig.rng.vec(n), rig.rng.vec(n));
    let want: Vec<T> = wide(&y).iter().zip(wide(&x)).map(|(y, x)| T::of(*y as f32 + x as f32)).collect();
    let (mut y_d, x_d) = (rig.upload(&y)?, rig.upload(&x)?);
    pointwise::add(&rig.queue, y_d.view_mut(), x_d.view())?;
    let got = y_d.download(&rig.queue)?;
    rig.exact(&format!("add {}, {n} elements", T::NAME), &got, &want);
    Ok(())
}

/// Tokens by their ids on the device, and the number of different ids.
fn order(rig: &Rig, ids: &[u32]) -> Result<(Buffer<u32>, usize), Error> {
    let (order, mut packed) = (embedding::Order::new(ids), Vec::new());
    order.append(&mut packed);
    Ok((rig.upload(&packed)?, order.ids.len()))
}

/// Gather and scatter in pieces that cut rows.
fn table<T: Value>(rig: &mut Rig, tokens: usize, vocabulary: usize, hidden: usize) -> Result<(), Error> {
    let name = |what: &str| format!("embedding {what} {} [{tokens}, {hidden}] of {vocabulary}", T::NAME);
    // Few ids are frequent.
    let ids: Vec<u32> = (0..tokens).map(|i| (rig.rng.below(vocabulary) >> (i % 5 * 2)) as u32).collect();
    let (w, dx): (Vec<T>, Vec<T>) = (rig.rng.vec(vocabulary * hidden), rig.rng.vec(tokens * hidden));
    let before: Vec<f32> = rig.rng.vec(vocabulary * hidden);
    let (ids_d, w_d, dx_d) = (rig.upload(&ids)?, rig.upload(&w)?, rig.upload(&dx)?);
    let (packed, distinct) = order(rig, &ids)?;
    let (mut out, mut dw) = (rig.poisoned::<T>(tokens * hidden)?, rig.upload(&before)?);
    let mut want = before.clone();
    let dx_wide: Vec<f32> = wide(&dx).iter().map(|x| *x as f32).collect();
    mt_kernels::embedding::scatter_add_piece(&rig.cpu, &ids, hidden, 0, &dx_wide, &mut want);
    for piece in [0..hidden * 3 + 8, hidden * 3 + 8..w.len() - 1, w.len() - 1..w.len()] {
        let (first, queue) = (piece.start, &rig.queue);
        let part = w_d.view().slice(piece.clone());
        embedding::gather_piece(queue, ids_d.view(), hidden, first, part, out.view_mut())?;
        let order = DeviceOrder::new(packed.view(), distinct);
        embedding::scatter_add_piece(queue, order, hidden, first, dx_d.view(), dw.view_mut().slice(piece))?;
    }
    let rows: Vec<T> = ids.iter().flat_map(|id| w[*id as usize * hidden..][..hidden].iter().copied()).collect();
    let (out, dw) = (out.download(&rig.queue)?, dw.download(&rig.queue)?);
    rig.exact(&name("gather"), &out, &rows);
    rig.exact(&name("scatter"), &dw, &want);
    Ok(())
}

fn loss<T: Value>(rig: &mut Rig, tokens: usize, vocabulary: usize, tiles: &[usize]) -> Result<(), Error> {
    let name = |what: &str| format!("cross-entropy {what} {} [{tokens}, {vocabulary}] in {}", T::NAME, tiles.len());
    let logits: Vec<T> = rig.rng.vec::<f32>(tokens * vocabulary).iter().map(|x| T::of(x * 4.0)).collect();
    let label = |i| if i % 7 == 3 { NO_TARGET } else { rig.rng.below(vocabulary) as u32 };
    let labels: Vec<u32> = (0..tokens).map(label).collect();
    let (want_loss, want) = reference::cross_entropy(&wide(&logits), &labels, vocabulary, 0.01);
    let labels_d = rig.upload(&labels)?;
    let mut buffers = [rig.poisoned::<f32>(tokens)?, rig.poisoned::<f32>(tokens)?, rig.poisoned::<f32>(tokens)?];
    let mut total = rig.upload(&[0f64])?;
    let [max, sum, target] = &mut buffers;
    let mut state = cross_entropy::State { max: max.view_mut(), sum: sum.view_mut(), target: target.view_mut() };
    cross_entropy::begin(&rig.queue, &mut state)?;
    let mut firsts = Vec::new();
    let mut first = 0;
    for tile in tiles {
        let part: Vec<T> =
            (0..tokens).flat_map(|t| logits[t * vocabulary + first..][..*tile].iter().copied()).collect();
        let part = rig.upload(&part)?;
        cross_entropy::forward_tile(&rig.queue, &mut state, part.view(), labels_d.view(), first, *tile)?;
        firsts.push((first, *tile, part));
        first += tile;
    }
    cross_entropy::finish(&rig.queue, &mut state, labels_d.view(), total.view_mut())?;
    let mut got = vec![T::of(f32::NAN.abs()); tokens * vocabulary];
    for (first, tile, mut part) in firsts {
        let lse = state.max.view();
        cross_entropy::backward_tile(&rig.queue, lse, part.view_mut(), labels_d.view(), first, tile, 0.01)?;
        for (t, row) in part.download(&rig.queue)?.chunks(tile).enumerate() {
            got[t * vocabulary + first..][..tile].copy_from_slice(row);
        }
    }
    let total = total.download(&rig.queue)?[0];
    rig.close(&name("loss"), &[(total / want_loss) as f32], &[1.0], 1e-6);
    rig.close(&name("gradient"), &got, &want, T::ROUNDING + 1e-5);
    Ok(())
}

fn bias<T: Value>(rig: &mut Rig, tokens: usize, outputs: usize) -> Result<(), Error> {
    let dy: Vec<T> = rig.rng.vec(tokens * outputs);
    let want = reference::linear_backward_bias(&wide(&dy), outputs);
    let (dy_d, mut db) = (rig.upload(&dy)?, rig.poisoned::<f32>(outputs)?);
    let mut scratch = rig.poisoned::<f32>(linear::bias_scratch_len(tokens, outputs))?;
    linear::backward_bias(&rig.queue, dy_d.view(), db.view_mut(), false, scratch.view_mut())?;
    linear::backward_bias(&rig.queue, dy_d.view(), db.view_mut(), true, scratch.view_mut())?;
    let twice: Vec<f64> = want.iter().map(|x| 2.0 * x).collect();
    let got = db.download(&rig.queue)?;
    rig.close(&format!("bias gradient {} [{tokens}, {outputs}]", T::NAME), &got, &twice, 1e-5);
    Ok(())
}

/// Shapes of a 7B model, 8 sequences of 1,024.
fn speed<T: Value>(rig: &mut Rig) -> Result<(), Error> {
    let (tokens, hidden, mlp, vocabulary) = (8_192, 3_584, 18_944, 32_768);
    let size = size_of::<T>();
    let bytes = |elements: usize| Work::Bytes((elements * size) as f64);
    let x: Vec<T> = rig.rng.tiled(tokens * 2 * mlp);
    let (mut x, mut y) = (rig.upload(&x)?, rig.upload(&x)?);
    let w: Vec<T> = rig.rng.vec(hidden);
    let w = rig.upload(&w)?;
    let n = tokens * hidden;
    let (mut rstd, mut dw) = (rig.upload(&vec![1f32; tokens])?, rig.upload(&vec![0f32; hidden])?);
    let mut scratch = rig.poisoned::<f32>(rmsnorm::scratch_len(tokens, hidden))?;
    rig.time("rmsnorm forward [8192, 3584]", bytes(2 * n), |queue| {
        let (x, y) = (x.view().slice(0..n), y.view_mut().slice(0..n));
        rmsnorm::forward(queue, x, w.view(), 1e-5, y, rstd.view_mut())
    })?;
    let dy: Vec<T> = rig.rng.tiled(n);
    let dy = rig.upload(&dy)?;
    rig.time("rmsnorm backward, added [8192, 3584]", bytes(4 * n), |queue| {
        let (x, dx) = (x.view().slice(0..n), y.view_mut().slice(0..n));
        let (rstd, scratch) = (rstd.view(), scratch.view_mut());
        rmsnorm::backward(queue, dy.view(), x, w.view(), rstd, dx, true, dw.view_mut(), scratch)
    })?;
    rig.time("add [8192, 3584]", bytes(3 * n), |queue| {
        pointwise::add(queue, y.view_mut().slice(0..n), x.view().slice(0..n))
    })?;
    let layout = GateUp::beside(tokens, mlp);
    let mut out = rig.poisoned::<T>(tokens * mlp)?;
    rig.time("swiglu forward [8192, 18944]", bytes(3 * tokens * mlp), |queue| {
        pointwise::swiglu_forward(queue, layout, x.view(), out.view_mut())
    })?;
    rig.time("swiglu backward [8192, 18944]", bytes(5 * tokens * mlp), |queue| {
        pointwise::swiglu_backward(queue, layout, out.view(), x.view(), y.view_mut())
    })?;
    let labels: Vec<u32> = (0..tokens).map(|_| rig.rng.below(vocabulary) as u32).collect();
    let labels = rig.upload(&labels)?;
    let n = tokens * vocabulary;
    let (mut max, mut sum, mut target) =
        (rig.poisoned::<f32>(tokens)?, rig.poisoned::<f32>(tokens)?, rig.poisoned::<f32>(tokens)?);
    let mut state = cross_entropy::State { max: max.view_mut(), sum: sum.view_mut(), target: target.view_mut() };
    cross_entropy::begin(&rig.queue, &mut state)?;
    rig.time("cross-entropy forward [8192, 32768]", bytes(n), |queue| {
        let logits = x.view().slice(0..n);
        cross_entropy::forward_tile(queue, &mut state, logits, labels.view(), 0, vocabulary)
    })?;
    rig.time("cross-entropy backward [8192, 32768]", bytes(2 * n), |queue| {
        let logits = x.view_mut().slice(0..n);
        cross_entropy::backward_tile(queue, rstd.view(), logits, labels.view(), 0, vocabulary, 0.1)
    })?;
    let table = mt_kernels::rope::Table::new(10_000.0, 128, mt_kernels::rope::Scaling::Default, 1_024);
    let (cos, sin) = (rig.upload(&table.cos)?, rig.upload(&table.sin)?);
    let positions: Vec<u32> = (0..tokens).map(|t| t as u32 % 1_024).collect();
    let positions = rig.upload(&positions)?;
    let table = rope::Table { cos: cos.view(), sin: sin.view(), half: 64 };
    rig.time("rope [8192, 32, 128] in rows of 4608", bytes(2 * tokens * 32 * 128), |queue| {
        rope::forward(queue, table, positions.view(), x.view_mut(), 32, 4_608)
    })?;
    let ids: Vec<u32> = (0..tokens).map(|_| rig.rng.below(2 * mlp) as u32).collect();
    let ((packed, distinct), ids) = (order(rig, &ids)?, rig.upload(&ids)?);
    let n = tokens * hidden;
    rig.time("embedding gather [8192, 3584]", bytes(2 * n), |queue| {
        let out = y.view_mut().slice(0..n);
        embedding::gather_piece(queue, ids.view(), hidden, 0, x.view().slice(0..2 * mlp * hidden), out)
    })?;
    let mut dw = rig.upload(&vec![0f32; 2 * mlp * hidden])?;
    rig.time("embedding scatter [8192, 3584]", Work::Bytes((n * (size + 8)) as f64), |queue| {
        let order = DeviceOrder::new(packed.view(), distinct);
        embedding::scatter_add_piece(queue, order, hidden, 0, dy.view(), dw.view_mut())
    })
}
