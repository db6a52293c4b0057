//! Matrix products against f64, in every precision and with every kind of result, and their rates.

use crate::rig::{Bits, Rig, Value, Work, wide};
use mt_kernels::cuda::linear::{Precision, Size};
use mt_kernels::cuda::{Error, linear};
use mt_kernels::reference;

pub fn run(rig: &mut Rig) {
    for (tokens, inputs, outputs) in [(96, 160, 224), (33, 72, 20), (7, 50, 13), (512, 1024, 256)] {
        let size = Size { tokens, inputs, outputs };
        rig.attempt("product", |rig| products::<f32, f32>(rig, Precision::Fp32, size, 1e-5));
        // 10 bits of mantissa: 2^-11 an operand, which partly cancels in the sum.
        rig.attempt("product", |rig| products::<f32, f32>(rig, Precision::Tf32, size, 3e-3));
        rig.attempt("product", |rig| products::<u16, f32>(rig, Precision::Fp32, size, 1e-5));
        rig.attempt("product", |rig| products::<u16, u16>(rig, Precision::Fp32, size, u16::ROUNDING + 1e-5));
    }
}

/// Prints times and rates.
pub fn times(rig: &mut Rig) {
    rig.attempt("speed of products", speed);
}

fn products<X: Value, Y: Value>(rig: &mut Rig, precision: Precision, size: Size, allowed: f64) -> Result<(), Error> {
    let Size { tokens, inputs, outputs } = size;
    let kind = if precision == Precision::Tf32 { "tf32" } else { X::NAME };
    let name = |what: &str| format!("product {what} {kind} to {} [{tokens}, {inputs}, {outputs}]", Y::NAME);
    let (x, w): (Vec<X>, Vec<X>) = (rig.rng.vec(tokens * inputs), rig.rng.vec(outputs * inputs));
    let (dy, bias): (Vec<X>, Vec<Y>) = (rig.rng.vec(tokens * outputs), rig.rng.vec(outputs));
    let (x_d, w_d, dy_d, bias_d) = (rig.upload(&x)?, rig.upload(&w)?, rig.upload(&dy)?, rig.upload(&bias)?);
    let (x, w, dy) = (wide(&x), wide(&w), wide(&dy));
    let want_y = reference::linear_forward(&x, &w, None, inputs, outputs);
    let want_biased = reference::linear_forward(&x, &w, Some(&wide(&bias)), inputs, outputs);
    let want_dx = reference::linear_backward_input(&dy, &w, inputs, outputs);
    let want_dw = reference::linear_backward_weight(&dy, &x, inputs, outputs);
    let doubled = |x: &[f64]| -> Vec<f64> { x.iter().map(|x| 2.0 * x).collect() };
    let queue = &rig.queue;
    let (mut y, mut biased) = (rig.poisoned::<Y>(tokens * outputs)?, rig.poisoned::<Y>(tokens * outputs)?);
    let (mut dx, mut dw) = (rig.poisoned::<Y>(tokens * inputs)?, rig.poisoned::<f32>(outputs * inputs)?);
    linear::forward(queue, precision, x_d.view(), w_d.view(), None, y.view_mut(), size)?;
    let again = y.download(queue)?;
    y.fill(queue, 0xFF)?;
    linear::forward(queue, precision, x_d.view(), w_d.view(), None, y.view_mut(), size)?;
    linear::forward(queue, precision, x_d.view(), w_d.view(), Some(bias_d.view()), biased.view_mut(), size)?;
    linear::backward_input(queue, precision, dy_d.view(), w_d.view(), dx.view_mut(), false, size)?;
    linear::backward_weight(queue, precision, dy_d.view(), x_d.view(), dw.view_mut(), false, size)?;
    let (once_dx, once_dw) = (dx.download(queue)?, dw.download(queue)?);
    linear::backward_input(queue, precision, dy_d.view(), w_d.view(), dx.view_mut(), true, size)?;
    linear::backward_weight(queue, precision, dy_d.view(), x_d.view(), dw.view_mut(), true, size)?;
    let mut onto = rig.poisoned::<Y>(tokens * outputs)?;
    let (w_v, bias_v) = (w_d.view(), Some(bias_d.view()));
    linear::forward_onto(queue, precision, x_d.view(), w_v, bias_v, y.view(), onto.view_mut(), size)?;
    let (y, biased, onto) = (y.download(queue)?, biased.download(queue)?, onto.download(queue)?);
    let want_onto: Vec<f64> = want_biased.iter().zip(wide(&y)).map(|(a, b)| a + b).collect();
    let (dx, dw) = (dx.download(queue)?, dw.download(queue)?);
    // A sum that is rounded may be rounded again when the bias is added.
    rig.close(&name("y onto another"), &onto, &want_onto, 2.0 * allowed);
    rig.close(&name("y"), &y, &want_y, allowed);
    rig.close(&name("y biased"), &biased, &want_biased, allowed);
    rig.close(&name("dx"), &once_dx, &want_dx, allowed);
    rig.close(&name("dx added"), &dx, &doubled(&want_dx), 2.0 * allowed);
    let allowed = if precision == Precision::Tf32 { allowed } else { 1e-5 };
    rig.close(&name("dw"), &once_dw, &want_dw, allowed);
    rig.close(&name("dw added"), &dw, &doubled(&want_dw), allowed);
    rig.same(&name("y"), &y, &again);
    Ok(())
}

fn speed(rig: &mut Rig) -> Result<(), Error> {
    let (tokens, hidden, mlp) = (8_192, 3_584, 18_944);
    let sizes = [
        ("qkv", hidden, 4_608),
        ("attention out", hidden, hidden),
        ("gate up", hidden, 2 * mlp),
        ("down", mlp, hidden),
    ];
    for (what, inputs, outputs) in sizes {
        each::<u16>(rig, what, Precision::Fp32, Size { tokens, inputs, outputs })?;
    }
    let size = Size { tokens, inputs: hidden, outputs: hidden };
    each::<f32>(rig, "tf32", Precision::Tf32, size)?;
    each::<f32>(rig, "fp32", Precision::Fp32, size)
}

fn each<X: Value + Bits>(rig: &mut Rig, what: &str, precision: Precision, size: Size) -> Result<(), Error> {
    let Size { tokens, inputs, outputs } = size;
    let name = |part: &str| format!("product {what} {part} {} [{tokens}, {inputs}, {outputs}]", X::NAME);
    let flops = Work::Flops(2.0 * tokens as f64 * inputs as f64 * outputs as f64);
    let (x, w): (Vec<X>, Vec<X>) = (rig.rng.tiled(tokens * inputs), rig.rng.tiled(outputs * inputs));
    let dy: Vec<X> = rig.rng.tiled(tokens * outputs);
    let (mut x, w, mut dy) = (rig.upload(&x)?, rig.upload(&w)?, rig.upload(&dy)?);
    let mut dw = rig.upload(&vec![0f32; outputs * inputs])?;
    rig.time(&name("forward"), flops, |queue| {
        linear::forward(queue, precision, x.view(), w.view(), None, dy.view_mut(), size)
    })?;
    rig.time(&name("dw, added in f32"), flops, |queue| {
        linear::backward_weight(queue, precision, dy.view(), x.view(), dw.view_mut(), true, size)
    })?;
    rig.time(&name("dx"), flops, |queue| {
        linear::backward_input(queue, precision, dy.view(), w.view(), x.view_mut(), false, size)
    })
}
