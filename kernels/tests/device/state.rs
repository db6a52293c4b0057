//! AdamW, the planes, sums of squares and casts: bit for bit the CPU's.

use crate::rig::{Rig, Value, Work};
use mt_kernels::adamw::Step;
use mt_kernels::cuda::pieces::{self, Piece};
use mt_kernels::cuda::{Error, adamw, pointwise, split};
use mt_kernels::norm2::LEAF;

pub fn run(rig: &mut Rig) {
    for (n, offset) in [(1 << 20, 0), (100_003, 0), (4_097, 1), (1, 3)] {
        rig.attempt("adamw", |rig| update(rig, n, offset));
    }
    rig.attempt("adamw refusals", refused);
    rig.attempt("planes", planes);
    rig.attempt("chunks", chunks);
    rig.attempt("casts", casts);
}

/// Prints times and rates.
pub fn times(rig: &mut Rig) {
    rig.attempt("speed of the state's kernels", speed);
}

/// Weights that the planes can hold, of all magnitudes.
fn weights(rig: &mut Rig, n: usize) -> Vec<f32> {
    (0..n).map(|_| f32::from_bits(rig.rng.next() as u32)).map(|w| if w.abs() < 3e38 { w } else { 1.5 }).collect()
}

/// Some steps of random segments that begin `offset` elements after an aligned address.
fn update(rig: &mut Rig, n: usize, offset: usize) -> Result<(), Error> {
    let all = n + offset;
    let w: Vec<f32> = rig.rng.vec(all);
    let (mut hi, mut lo) = (vec![0; all], vec![0; all]);
    mt_kernels::split::split(&rig.cpu, &w, &mut hi, &mut lo).expect("normal weights");
    let (mut m, mut v) = (vec![0f32; all], vec![0f32; all]);
    let (mut hi_d, mut lo_d) = (rig.upload(&hi)?, rig.upload(&lo)?);
    let (mut m_d, mut v_d) = (rig.upload(&m)?, rig.upload(&v)?);
    let mut bad = rig.upload(&[u64::MAX])?;
    for t in 1..=3 {
        // Gradients from the least to large ones.
        let scale = [1.0, 1e-30, 1e12][t as usize - 1];
        let grad: Vec<f32> = rig.rng.vec::<f32>(all).iter().map(|g| g * scale).collect();
        let step = Step::new(1e-3, (0.9, 0.95), 1e-8, 0.1, t, 0.37);
        let part = offset..all;
        let (h, l) = (&mut hi[part.clone()], &mut lo[part.clone()]);
        let (cm, cv) = (&mut m[part.clone()], &mut v[part.clone()]);
        let decay = t != 2;
        mt_kernels::adamw::update(&rig.cpu, &step, decay, &grad[part.clone()], h, l, cm, cv, None).expect("finite");
        let grad_d = rig.upload(&grad)?;
        adamw::update(
            &rig.queue,
            &step,
            decay,
            grad_d.view().slice(part.clone()),
            hi_d.view_mut().slice(part.clone()),
            lo_d.view_mut().slice(part.clone()),
            m_d.view_mut().slice(part.clone()),
            v_d.view_mut().slice(part.clone()),
            0,
            bad.view_mut(),
        )?;
    }
    let name = |what: &str| format!("adamw {what}, {n} elements at +{offset}, 3 steps");
    let (got_hi, got_lo) = (hi_d.download(&rig.queue)?, lo_d.download(&rig.queue)?);
    let (got_m, got_v) = (m_d.download(&rig.queue)?, v_d.download(&rig.queue)?);
    rig.exact(&name("hi"), &got_hi, &hi);
    rig.exact(&name("lo"), &got_lo, &lo);
    rig.exact(&name("m"), &got_m, &m);
    rig.exact(&name("v"), &got_v, &v);
    let bad = bad.download(&rig.queue)?;
    rig.exact(&name("refusals"), &bad, &[u64::MAX]);
    Ok(())
}

/// The first refused element, as on the CPU.
fn refused(rig: &mut Rig) -> Result<(), Error> {
    let n = 70_000;
    let mut grad: Vec<f32> = rig.rng.vec(n);
    (grad[50_001], grad[50_000], grad[66_000]) = (f32::NAN, f32::INFINITY, f32::NAN);
    let (mut hi, mut lo) = (vec![0x3F80u16; n], vec![0i16; n]);
    let (mut m, mut v) = (vec![0f32; n], vec![0f32; n]);
    let step = Step::new(1e-3, (0.9, 0.95), 1e-8, 0.1, 1, 1.0);
    let (mut hi_d, mut lo_d) = (rig.upload(&hi)?, rig.upload(&lo)?);
    let (mut m_d, mut v_d) = (rig.upload(&m)?, rig.upload(&v)?);
    let (grad_d, mut bad) = (rig.upload(&grad)?, rig.upload(&[u64::MAX])?);
    let want = mt_kernels::adamw::update(&rig.cpu, &step, true, &grad, &mut hi, &mut lo, &mut m, &mut v, None);
    adamw::update(
        &rig.queue,
        &step,
        true,
        grad_d.view(),
        hi_d.view_mut(),
        lo_d.view_mut(),
        m_d.view_mut(),
        v_d.view_mut(),
        7,
        bad.view_mut(),
    )?;
    let got = bad.download(&rig.queue)?;
    rig.exact("adamw first refused element", &got, &[7 + want.expect_err("NaN is refused") as u64]);
    Ok(())
}

fn planes(rig: &mut Rig) -> Result<(), Error> {
    for n in [1 << 20, 1_003] {
        let w = weights(rig, n);
        let (mut hi, mut lo) = (vec![0; n], vec![0; n]);
        mt_kernels::split::split(&rig.cpu, &w, &mut hi, &mut lo).expect("representable weights");
        let w_d = rig.upload(&w)?;
        let (mut hi_d, mut lo_d) = (rig.poisoned::<u16>(n)?, rig.poisoned::<i16>(n)?);
        let (mut back, mut bad) = (rig.poisoned::<f32>(n)?, rig.upload(&[u64::MAX])?);
        split::split(&rig.queue, w_d.view(), hi_d.view_mut(), lo_d.view_mut(), bad.view_mut())?;
        split::join(&rig.queue, hi_d.view(), lo_d.view(), back.view_mut())?;
        let (got_hi, got_lo) = (hi_d.download(&rig.queue)?, lo_d.download(&rig.queue)?);
        let (got_w, got_bad) = (back.download(&rig.queue)?, bad.download(&rig.queue)?);
        rig.exact(&format!("split hi, {n} elements"), &got_hi, &hi);
        rig.exact(&format!("split lo, {n} elements"), &got_lo, &lo);
        rig.exact(&format!("join, {n} elements"), &got_w, &w);
        rig.exact(&format!("split refusals, {n} elements"), &got_bad, &[u64::MAX]);
    }
    let mut w = vec![1f32; 5_000];
    (w[3_001], w[4_000]) = (f32::from_bits(0xFF7F_8000), f32::NAN);
    let (mut hi, mut lo, mut bad) = (rig.poisoned(5_000)?, rig.poisoned(5_000)?, rig.upload(&[u64::MAX])?);
    let w = rig.upload(&w)?;
    split::split(&rig.queue, w.view(), hi.view_mut(), lo.view_mut(), bad.view_mut())?;
    let got = bad.download(&rig.queue)?;
    rig.exact("split first refused element", &got, &[3_001]);
    Ok(())
}

/// Pieces of a chunk of `n` elements, of lengths that no block lines up with, in another order and with gaps: the first
/// `count` pieces have an odd length.
fn cut(n: usize, count: usize) -> (Vec<Piece>, usize) {
    let len = if count > 1 { (n / count) | 1 } else { n };
    let lens: Vec<usize> = (0..count).map(|i| if i + 1 < count { len } else { n - i * len }).collect();
    let mut to = 0;
    let mut places = vec![0; count];
    for i in (0..count).rev() {
        places[i] = to;
        to += lens[i] + i;
    }
    let piece = |i: usize| Piece { from: i * len, to: places[i], len: lens[i] };
    ((0..count).map(piece).collect(), to)
}

/// Weights into pieces of a buffer, and gradients out of them.
fn chunks(rig: &mut Rig) -> Result<(), Error> {
    for (n, count) in [(1 << 20, 1), (1 << 20, 3), (70_001, 5), (5, 1), (9_000, pieces::MOST)] {
        let (all, len) = cut(n, count);
        let name = |what: &str| format!("chunk {what}, {n} elements in {count}");
        let w = weights(rig, n);
        let (mut hi, mut lo) = (vec![0; n], vec![0; n]);
        mt_kernels::split::split(&rig.cpu, &w, &mut hi, &mut lo).expect("representable weights");
        let (hi_d, lo_d) = (rig.upload(&hi)?, rig.upload(&lo)?);
        let (mut high, mut joined) = (rig.upload(&vec![7_u16; len])?, rig.upload(&vec![7_f32; len])?);
        pieces::join_high(&rig.queue, hi_d.view(), all.clone(), high.view_mut())?;
        pieces::join(&rig.queue, hi_d.view(), lo_d.view(), all.clone(), joined.view_mut())?;
        let (mut want_high, mut want_joined) = (vec![7_u16; len], vec![7_f32; len]);
        for piece in &all {
            want_high[piece.to..][..piece.len].copy_from_slice(&hi[piece.from..][..piece.len]);
            want_joined[piece.to..][..piece.len].copy_from_slice(&w[piece.from..][..piece.len]);
        }
        let (high, joined) = (high.download(&rig.queue)?, joined.download(&rig.queue)?);
        rig.exact(&name("joined in bf16"), &high, &want_high);
        rig.exact(&name("joined in f32"), &joined, &want_joined);

        let x: Vec<f32> =
            rig.rng.vec::<f32>(len).iter().enumerate().map(|(i, x)| x * 2f32.powi(i as i32 % 60)).collect();
        let total = n.next_multiple_of(2_048);
        let mut want = vec![0_f32; total];
        for piece in &all {
            want[piece.from..][..piece.len].copy_from_slice(&x[piece.to..][..piece.len]);
        }
        let leaf = |leaf: &[f32]| mt_kernels::norm2::sum_squares(&rig.cpu, 0.0, leaf);
        let sums: Vec<f64> = want[..n].chunks(LEAF).map(leaf).collect();
        let (x_d, mut kept, mut leaves) =
            (rig.upload(&x)?, rig.poisoned::<f32>(total)?, rig.poisoned::<f64>(sums.len())?);
        pieces::keep(&rig.queue, x_d.view(), all.clone(), kept.view_mut(), n, Some(leaves.view_mut()))?;
        let (got, got_sums) = (kept.download(&rig.queue)?, leaves.download(&rig.queue)?);
        kept.fill(&rig.queue, 0xFF)?;
        pieces::keep(&rig.queue, x_d.view(), all, kept.view_mut(), n, None)?;
        let again = kept.download(&rig.queue)?;
        rig.exact(&name("kept"), &got, &want);
        rig.exact(&name("kept without sums"), &again, &want);
        rig.exact(&name("sums of leaves"), &got_sums, &sums);
        let sum = mt_kernels::norm2::sum_squares(&rig.cpu, 0.5, &want[..n]);
        rig.exact(&name("sum of all"), &[mt_kernels::norm2::add_leaves(0.5, &got_sums)], &[sum]);
    }
    Ok(())
}

fn casts(rig: &mut Rig) -> Result<(), Error> {
    let n = (1 << 20) + 3;
    let x = weights(rig, n);
    let x_d = rig.upload(&x)?;
    let (mut narrow, mut wide) = (rig.poisoned::<u16>(n)?, rig.poisoned::<f32>(n)?);
    pointwise::narrow(&rig.queue, x_d.view(), narrow.view_mut())?;
    pointwise::widen(&rig.queue, narrow.view(), wide.view_mut())?;
    let want: Vec<u16> = x.iter().map(|x| u16::of(*x)).collect();
    let back: Vec<f32> = want.iter().map(|x| f32::from_bits(u32::from(*x) << 16)).collect();
    let (narrow, wide) = (narrow.download(&rig.queue)?, wide.download(&rig.queue)?);
    rig.exact("cast f32 to bf16", &narrow, &want);
    rig.exact("cast bf16 to f32", &wide, &back);
    Ok(())
}

fn speed(rig: &mut Rig) -> Result<(), Error> {
    let n = 64 << 20;
    let grad: Vec<f32> = rig.rng.tiled(n);
    let (grad, mut w) = (rig.upload(&grad)?, rig.poisoned::<f32>(n)?);
    let (mut hi, mut lo) = (rig.upload(&vec![0x3F80u16; n])?, rig.upload(&vec![0i16; n])?);
    let (mut m, mut v) = (rig.upload(&vec![0f32; n])?, rig.upload(&vec![0f32; n])?);
    let mut bad = rig.upload(&[u64::MAX])?;
    let mut sums = rig.poisoned::<f64>(n / LEAF)?;
    let step = Step::new(1e-3, (0.9, 0.95), 1e-8, 0.1, 10, 1.0);
    let bytes = |each: usize| Work::Bytes((n * each) as f64);
    rig.time("adamw, 64 Mi elements", bytes(28), |queue| {
        let (hi, lo) = (hi.view_mut(), lo.view_mut());
        adamw::update(queue, &step, true, grad.view(), hi, lo, m.view_mut(), v.view_mut(), 0, bad.view_mut())
    })?;
    rig.time("join, 64 Mi elements", bytes(8), |queue| split::join(queue, hi.view(), lo.view(), w.view_mut()))?;
    let whole = [Piece { from: 0, to: 0, len: n }];
    rig.time("keep with sums, 64 Mi elements", bytes(8), |queue| {
        pieces::keep(queue, grad.view(), whole, w.view_mut(), n, Some(sums.view_mut()))
    })?;
    rig.time("cast f32 to bf16, 64 Mi elements", bytes(6), |queue| pointwise::narrow(queue, grad.view(), hi.view_mut()))
}
