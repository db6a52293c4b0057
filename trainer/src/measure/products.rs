//! Products of square matrices on a GPU.

use super::gpu::Gpu;
use crate::error::Result;
use crate::target::Precision;
use mt_kernels::cuda::{Buffer, Queue, Real, linear};
use std::time::Instant;

/// Seconds of one measurement, about.
const SECONDS: f64 = 0.1;
/// Products of one measurement, at least.
const COUNT_MIN: usize = 2;

/// Operands of a product.
pub struct Products {
    queue: Queue,
    precision: Precision,
    matrices: Matrices,
    side: usize,
    count: usize,
}

enum Matrices {
    Bf16([Buffer<u16>; 3]),
    Fp32([Buffer<f32>; 3]),
}

impl Products {
    /// `side`: rows, columns and terms.
    ///
    /// # Errors
    /// `Gpu`: memory is short; the product fails.
    pub fn new(gpu: &Gpu, precision: Precision, side: usize) -> Result<Products> {
        let queue = Queue::new(gpu.inner())?;
        let matrices = match precision {
            // From 0.008 to 0.12.
            Precision::Bf16 => Matrices::Bf16(matrices(&queue, side, |n| 0x3c00 | (n % 509) as u16)?),
            Precision::Tf32 | Precision::Fp32 => {
                Matrices::Fp32(matrices(&queue, side, |n| (n % 509) as f32 * 1e-3 - 0.25)?)
            }
        };
        let mut products = Products { queue, precision, matrices, side, count: COUNT_MIN };
        // The first finds the library cold.
        products.operations_per_s()?;
        let rate = products.operations_per_s()?;
        products.count = ((SECONDS * rate / products.operations()).ceil() as usize).max(COUNT_MIN);
        Ok(products)
    }

    /// Measures once, about a tenth of a second: multiplications and additions a second.
    ///
    /// # Errors
    /// `Gpu`: the product fails.
    pub fn operations_per_s(&mut self) -> Result<f64> {
        let size = linear::Size { tokens: self.side, inputs: self.side, outputs: self.side };
        let precision = self.precision.products();
        let start = Instant::now();
        for _ in 0..self.count {
            match &mut self.matrices {
                Matrices::Bf16([x, w, y]) => {
                    linear::forward(&self.queue, precision, x.view(), w.view(), None, y.view_mut(), size)?;
                }
                Matrices::Fp32([x, w, y]) => {
                    linear::forward(&self.queue, precision, x.view(), w.view(), None, y.view_mut(), size)?;
                }
            }
        }
        self.queue.synchronize()?;
        Ok(self.operations() * self.count as f64 / start.elapsed().as_secs_f64())
    }

    /// Multiplications and additions of one product.
    fn operations(&self) -> f64 {
        2.0 * (self.side as f64).powi(3)
    }
}

/// Two operands and the result.
fn matrices<X: Real>(queue: &Queue, side: usize, value: impl Fn(usize) -> X) -> Result<[Buffer<X>; 3]> {
    let from: Vec<X> = (0..side * side).map(value).collect();
    let operand = || Buffer::from_slice(queue, &from);
    Ok([operand()?, operand()?, Buffer::new(queue.gpu(), from.len())?])
}
