//! Rates of the kernels on all threads of a machine.
//!
//! Products and attention are measured at several shapes (*points*): their rates differ by shape, products' also by
//! their reuse distance, and between measured points they are interpolated. The other kernels pass over memory once and
//! have one rate each.

use super::reuse::FAR;
use serde::{Deserialize, Serialize};

/// Which of a projection's products.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Product {
    /// y = x w^T: tokens x outputs, over inputs.
    Forward,
    /// dx = dy w: tokens x inputs, over outputs.
    BackwardInput,
    /// dw = dy^T x: outputs x inputs, over tokens.
    BackwardWeight,
}

/// A kernel that passes over memory once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kernel {
    /// AdamW on split weights.
    Adamw,
    /// Joining split weights.
    Join,
    /// Sum of squares.
    SumSquares,
    /// RMSNorm forward.
    NormForward,
    /// RMSNorm backward.
    NormBackward,
    /// SwiGLU forward.
    SwigluForward,
    /// SwiGLU backward.
    SwigluBackward,
    /// Rotation of queries and keys.
    Rope,
    /// Addition in place.
    Add,
    /// Log-sum-exp over logits.
    LossForward,
    /// Gradient of logits in place.
    LossBackward,
    /// A copy of f32 elements.
    Copy,
}

/// A product: `rows` x `columns` of the result, sums of `depth` terms, with operands that were used before so many
/// other bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct ProductShape {
    /// Which product.
    pub product: Product,
    /// Rows of the result.
    pub rows: usize,
    /// Columns of the result.
    pub columns: usize,
    /// Terms of a sum.
    pub depth: usize,
    /// Reuse distance, at most [`FAR`].
    pub reuse_bytes: usize,
}

/// A product's measured rate.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProductPoint {
    /// Which product.
    pub product: Product,
    /// Rows of the result.
    pub rows: usize,
    /// Columns of the result.
    pub columns: usize,
    /// Terms of a sum.
    pub depth: usize,
    /// Reuse distance of the operands.
    #[serde(default = "far", skip_serializing_if = "is_far")]
    pub reuse_bytes: usize,
    /// Multiplications and additions a second.
    pub operations_per_s: f64,
}

/// Attention's measured rates.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttentionPoint {
    /// Rows.
    pub rows: usize,
    /// Tokens of a row.
    pub seq: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Multiplications and additions a second of the forward, causal half alone.
    pub forward_operations_per_s: f64,
    /// The same of the backward.
    pub backward_operations_per_s: f64,
}

/// The rates. Elements are those of the kernel's output.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compute {
    /// Threads that were used.
    pub threads: u32,
    /// Matrix products; at least one of each kind.
    pub products: Vec<ProductPoint>,
    /// Attention; at least one.
    pub attention: Vec<AttentionPoint>,
    /// AdamW on split weights.
    pub adamw_elements_per_s: f64,
    /// Joining split weights.
    pub join_elements_per_s: f64,
    /// Sum of squares.
    pub sum_squares_elements_per_s: f64,
    /// RMSNorm forward.
    pub norm_forward_elements_per_s: f64,
    /// RMSNorm backward.
    pub norm_backward_elements_per_s: f64,
    /// SwiGLU forward.
    pub swiglu_forward_elements_per_s: f64,
    /// SwiGLU backward.
    pub swiglu_backward_elements_per_s: f64,
    /// Rotation of queries and keys.
    pub rope_elements_per_s: f64,
    /// Addition in place.
    pub add_elements_per_s: f64,
    /// Log-sum-exp over logits.
    pub loss_forward_elements_per_s: f64,
    /// Gradient of logits in place.
    pub loss_backward_elements_per_s: f64,
    /// Copying by one thread, bytes copied.
    pub copy_bytes_per_s: f64,
}

/// Rows, columns and depth beyond which a product's rate is taken not to change any more, and which no measurement
/// exceeds: its tiles are far smaller.
pub const SIDE_MAX: usize = 2_048;

/// Multiplications and additions a second and thread that are assumed.
const OPERATIONS_PER_S: f64 = 50e9;

impl Compute {
    /// What is assumed of one thread: 50 thousand million operations a second, and about 4 GB/s through memory.
    pub fn assumed() -> Compute {
        let kinds = [Product::Forward, Product::BackwardInput, Product::BackwardWeight];
        let point = |product| ProductPoint {
            product,
            rows: 1_024,
            columns: 1_024,
            depth: 1_024,
            reuse_bytes: FAR,
            operations_per_s: OPERATIONS_PER_S,
        };
        let attention = AttentionPoint {
            rows: 1,
            seq: 1_024,
            heads: 32,
            kv_heads: 8,
            head_dim: 128,
            forward_operations_per_s: OPERATIONS_PER_S / 2.0,
            backward_operations_per_s: OPERATIONS_PER_S / 2.0,
        };
        Compute {
            threads: 1,
            products: kinds.map(point).to_vec(),
            attention: vec![attention],
            adamw_elements_per_s: 0.15e9,
            join_elements_per_s: 0.5e9,
            sum_squares_elements_per_s: 1e9,
            norm_forward_elements_per_s: 0.5e9,
            norm_backward_elements_per_s: 0.25e9,
            swiglu_forward_elements_per_s: 0.3e9,
            swiglu_backward_elements_per_s: 0.2e9,
            rope_elements_per_s: 0.5e9,
            add_elements_per_s: 0.4e9,
            loss_forward_elements_per_s: 0.5e9,
            loss_backward_elements_per_s: 0.5e9,
            copy_bytes_per_s: 4e9,
        }
    }

    /// All numbers, which are above 0; not a number where a kind of point is missing.
    pub(super) fn rates(&self) -> Vec<f64> {
        let mut rates = vec![
            self.adamw_elements_per_s,
            self.join_elements_per_s,
            self.sum_squares_elements_per_s,
            self.norm_forward_elements_per_s,
            self.norm_backward_elements_per_s,
            self.swiglu_forward_elements_per_s,
            self.swiglu_backward_elements_per_s,
            self.rope_elements_per_s,
            self.add_elements_per_s,
            self.loss_forward_elements_per_s,
            self.loss_backward_elements_per_s,
            self.copy_bytes_per_s,
        ];
        let kinds = [Product::Forward, Product::BackwardInput, Product::BackwardWeight];
        let is_whole = kinds.iter().all(|kind| self.products.iter().any(|point| point.product == *kind));
        rates.extend((!is_whole || self.attention.is_empty()).then_some(f64::NAN));
        rates.extend(self.products.iter().map(|point| point.operations_per_s));
        rates.extend(
            self.attention.iter().flat_map(|point| [point.forward_operations_per_s, point.backward_operations_per_s]),
        );
        rates
    }

    /// Multiplies every rate by a factor, the update's by one of its own.
    pub(super) fn scale(&mut self, kernels: f64, update: f64) {
        self.adamw_elements_per_s *= update;
        for rate in [
            &mut self.join_elements_per_s,
            &mut self.sum_squares_elements_per_s,
            &mut self.norm_forward_elements_per_s,
            &mut self.norm_backward_elements_per_s,
            &mut self.swiglu_forward_elements_per_s,
            &mut self.swiglu_backward_elements_per_s,
            &mut self.rope_elements_per_s,
            &mut self.add_elements_per_s,
            &mut self.loss_forward_elements_per_s,
            &mut self.loss_backward_elements_per_s,
            &mut self.copy_bytes_per_s,
        ] {
            *rate *= kernels;
        }
        self.products.iter_mut().for_each(|point| point.operations_per_s *= kernels);
        for point in &mut self.attention {
            point.forward_operations_per_s *= kernels;
            point.backward_operations_per_s *= kernels;
        }
    }

    /// Elements a second of a kernel.
    pub fn rate(&self, kernel: Kernel) -> f64 {
        match kernel {
            Kernel::Adamw => self.adamw_elements_per_s,
            Kernel::Join => self.join_elements_per_s,
            Kernel::SumSquares => self.sum_squares_elements_per_s,
            Kernel::NormForward => self.norm_forward_elements_per_s,
            Kernel::NormBackward => self.norm_backward_elements_per_s,
            Kernel::SwigluForward => self.swiglu_forward_elements_per_s,
            Kernel::SwigluBackward => self.swiglu_backward_elements_per_s,
            Kernel::Rope => self.rope_elements_per_s,
            Kernel::Add => self.add_elements_per_s,
            Kernel::LossForward => self.loss_forward_elements_per_s,
            Kernel::LossBackward => self.loss_backward_elements_per_s,
            Kernel::Copy => self.copy_bytes_per_s / size_of::<f32>() as f64,
        }
    }

    /// Multiplications and additions a second of a product.
    pub fn product(&self, shape: ProductShape) -> f64 {
        let wanted = shape.measured();
        let of_kind = || self.products.iter().filter(|point| point.product == shape.product);
        if let Some(point) = of_kind().find(|point| point.shape() == wanted) {
            return point.operations_per_s;
        }
        // Other sides differ by more than any distance.
        let is_known = of_kind().any(|point| point.shape().sides() == wanted.sides());
        let points = of_kind().filter(|point| !is_known || point.shape().sides() == wanted.sides());
        interpolate(points.map(|point| {
            let sides = distance(&wanted.sides(), &point.shape().sides());
            (sides + distance(&[wanted.reuse_bytes], &[point.reuse_bytes]), point.operations_per_s)
        }))
    }

    /// Multiplications and additions a second of attention over rows of `seq` tokens: forward and backward.
    pub fn attention(&self, rows: usize, seq: usize, heads: usize, kv_heads: usize, head_dim: usize) -> (f64, f64) {
        let wanted = measured_attention([rows, seq, heads, kv_heads, head_dim]);
        let away = |p: &AttentionPoint| distance(&wanted, &p.shape());
        (
            interpolate(self.attention.iter().map(|p| (away(p), p.forward_operations_per_s))),
            interpolate(self.attention.iter().map(|p| (away(p), p.backward_operations_per_s))),
        )
    }
}

impl ProductShape {
    /// The shape that is measured in its place.
    pub fn measured(self) -> ProductShape {
        let [rows, columns, depth] = self.sides().map(|side| side.min(SIDE_MAX));
        ProductShape { rows, columns, depth, ..self }
    }

    fn sides(self) -> [usize; 3] {
        [self.rows, self.columns, self.depth]
    }
}

impl ProductPoint {
    /// Where it was measured.
    pub fn shape(&self) -> ProductShape {
        let ProductPoint { product, rows, columns, depth, reuse_bytes, .. } = *self;
        ProductShape { product, rows, columns, depth, reuse_bytes }
    }
}

fn far() -> usize {
    FAR
}

fn is_far(reuse_bytes: &usize) -> bool {
    *reuse_bytes == FAR
}

impl AttentionPoint {
    /// Rows, tokens of a row, query heads, key and value heads, elements of a head.
    pub fn shape(&self) -> [usize; 5] {
        [self.rows, self.seq, self.heads, self.kv_heads, self.head_dim]
    }
}

/// The attention shape that stands for one like it: as many rows, tokens and heads as keep a measurement short.
pub fn measured_attention([rows, seq, heads, kv_heads, head_dim]: [usize; 5]) -> [usize; 5] {
    let (seq, group, kv_heads) = (seq.min(1_024), heads / kv_heads, kv_heads.min(8));
    [rows.min((4_096 / seq).max(1)), seq, kv_heads * group, kv_heads, head_dim]
}

/// Sum of the squared logarithms of the ratios.
pub(super) fn distance<const N: usize>(a: &[usize; N], b: &[usize; N]) -> f64 {
    a.iter().zip(b).map(|(a, b)| ((*a as f64).ln() - (*b as f64).ln()).powi(2)).sum()
}

/// The mean time an operation, weighted by the inverse of the squared distance; a point that is hit decides alone.
pub(super) fn interpolate(points: impl Iterator<Item = (f64, f64)>) -> f64 {
    let (mut weights, mut times) = (0.0, 0.0);
    for (distance, rate) in points {
        if distance < 1e-9 {
            return rate;
        }
        let weight = 1.0 / (distance * distance);
        weights += weight;
        times += weight / rate;
    }
    weights / times
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measured_points_are_exact_and_between_them_rates_lie_between() {
        let shape = |columns, reuse_bytes| ProductShape {
            product: Product::Forward,
            rows: 1_024,
            columns,
            depth: 1_024,
            reuse_bytes,
        };
        let point = |columns, reuse_bytes, operations_per_s| {
            let ProductShape { product, rows, depth, .. } = shape(columns, reuse_bytes);
            ProductPoint { product, rows, columns, depth, reuse_bytes, operations_per_s }
        };
        let mut products = vec![point(256, FAR, 10.0), point(2_048, FAR, 40.0)];
        let compute = Compute { products: products.clone(), ..Compute::assumed() };
        let rate = |columns| compute.product(shape(columns, FAR));
        assert_eq!((rate(256), rate(2_048), rate(1 << 20)), (10.0, 40.0, 40.0));
        assert!(rate(512) > 10.0 && rate(512) < rate(1_024) && rate(1_024) < 40.0);
        assert!(compute.rates().iter().any(|rate| rate.is_nan()), "backward products are missing");
        // Whatever the distance, a side that was measured stands for itself.
        assert_eq!(compute.product(shape(256, FAR / 4)), 10.0);
        products.push(point(256, FAR / 4, 15.0));
        let compute = Compute { products, ..compute };
        let rate = |reuse_bytes| compute.product(shape(256, reuse_bytes));
        assert_eq!((rate(FAR), rate(FAR / 4)), (10.0, 15.0));
        assert!(rate(FAR / 2) > 10.0 && rate(FAR / 2) < 15.0);
    }
}
