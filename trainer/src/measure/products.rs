//! Matrix products of a projection on a GPU: forward and the two of its backward, at one size in one precision.

use super::gpu::{Gpu, seconds_each};
use crate::error::Result;
use crate::profile::Product;
use crate::target::Precision;
use mt_kernels::cuda::{Buffer, Queue, Real, linear};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use std::time::Duration;

pub use mt_kernels::cuda::linear::Size;

/// Numbers after which they repeat: a prime, so that no two rows of a matrix are alike.
const BLOCK: usize = 1_000_003;

/// A projection's operands and results.
pub struct Products {
    queue: Queue,
    precision: Precision,
    size: Size,
    operands: Operands,
}

enum Operands {
    Bf16(Set<u16>),
    Fp32(Set<f32>),
}

struct Set<X> {
    x: Buffer<X>,
    w: Buffer<X>,
    y: Buffer<X>,
    dw: Buffer<f32>,
}

impl Products {
    /// Of this size.
    ///
    /// # Errors
    /// `Gpu`: memory is short.
    pub fn new(gpu: &Gpu, precision: Precision, size: Size) -> Result<Products> {
        let queue = Queue::new(gpu.inner())?;
        let operands = match precision {
            Precision::Bf16 => Operands::Bf16(Set::new(&queue, size, |x| (x.to_bits() >> 16) as u16)?),
            Precision::Tf32 | Precision::Fp32 => Operands::Fp32(Set::new(&queue, size, |x| x)?),
        };
        Ok(Products { queue, precision, size, operands })
    }

    /// Measures once, for about this time: multiplications and additions a second.
    ///
    /// # Errors
    /// `Gpu`: the product fails.
    pub fn operations_per_s(&mut self, product: Product, time: Duration) -> Result<f64> {
        let Size { tokens, inputs, outputs } = self.size;
        let operations = 2.0 * tokens as f64 * inputs as f64 * outputs as f64;
        let precision = self.precision.products();
        let seconds = match &mut self.operands {
            Operands::Bf16(set) => set.seconds(&self.queue, precision, product, self.size, time),
            Operands::Fp32(set) => set.seconds(&self.queue, precision, product, self.size, time),
        };
        Ok(operations / seconds?)
    }
}

impl<X: Real> Set<X> {
    /// Of pseudo-random numbers: with a pattern in its operands an H200 multiplied 1.2 times as fast as with a model's,
    /// since less of it switched.
    fn new(queue: &Queue, size: Size, value: impl Fn(f32) -> X) -> Result<Set<X>> {
        let Size { tokens, inputs, outputs } = size;
        let mut random = ChaCha8Rng::seed_from_u64(0);
        // From -1 to 1.
        let mut number = || (random.next_u32() >> 8) as f32 / (1 << 23) as f32 - 1.0;
        let block: Vec<X> = (0..BLOCK).map(|_| value(number())).collect();
        let filled = |len: usize| {
            let mut all = block.repeat(len.div_ceil(BLOCK));
            all.truncate(len);
            Buffer::from_slice(queue, &all)
        };
        Ok(Set {
            x: filled(tokens * inputs)?,
            w: filled(outputs * inputs)?,
            y: filled(tokens * outputs)?,
            dw: Buffer::new(queue.gpu(), outputs * inputs)?,
        })
    }

    fn seconds(
        &mut self,
        queue: &Queue,
        precision: linear::Precision,
        product: Product,
        size: Size,
        time: Duration,
    ) -> Result<f64> {
        let Set { x, w, y, dw } = self;
        seconds_each(queue, time, |queue| match product {
            Product::Forward => linear::forward(queue, precision, x.view(), w.view(), None, y.view_mut(), size),
            Product::BackwardInput => {
                linear::backward_input(queue, precision, y.view(), w.view(), x.view_mut(), false, size)
            }
            Product::BackwardWeight => {
                linear::backward_weight(queue, precision, y.view(), x.view(), dw.view_mut(), false, size)
            }
        })
    }
}
