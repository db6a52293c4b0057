//! What a GPU and its link can do.
//!
//! Products are measured at several shapes, like the processor's. Every other kernel passes over VRAM and takes the
//! bytes that it reads and writes over one rate, beside a launch. A kind of number that nobody measured is in the list
//! `assumed` by its field's name; plans say so.

use super::compute::{Kernel, Product, distance, interpolate};
use crate::target::Precision;
use mt_engine::{DeviceId, LinkRates};
use serde::{Deserialize, Serialize};

/// A product's rate at one shape: `rows` x `columns` of the result, sums of `depth` terms.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GpuProduct {
    /// What it computes in.
    pub precision: Precision,
    /// Which product.
    pub product: Product,
    /// Rows of the result.
    pub rows: usize,
    /// Columns of the result.
    pub columns: usize,
    /// Terms of a sum.
    pub depth: usize,
    /// Multiplications and additions a second.
    pub operations_per_s: f64,
}

/// Attention's rates, causal half alone.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GpuAttention {
    /// What it computes in.
    pub precision: Precision,
    /// Multiplications and additions a second of the forward.
    pub forward_operations_per_s: f64,
    /// The same of the backward.
    pub backward_operations_per_s: f64,
}

/// The link between RAM and VRAM.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// RAM to VRAM alone.
    pub upload_bytes_per_s: f64,
    /// VRAM to RAM alone.
    pub download_bytes_per_s: f64,
    /// RAM to VRAM while the other way is in use too.
    pub upload_both_bytes_per_s: f64,
    /// VRAM to RAM while the other way is in use too.
    pub download_both_bytes_per_s: f64,
    /// Share of these rates that is left while the processor updates state, which takes of RAM's bandwidth.
    #[serde(default = "whole")]
    pub busy_share: f64,
    /// Seconds that a transfer takes beside its bytes.
    pub latency_s: f64,
}

/// Where nobody measured what the processor takes.
fn whole() -> f64 {
    1.0
}

/// A GPU of a machine.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GpuRates {
    /// Its name, as its driver gives it.
    pub name: String,
    /// Bytes of VRAM that a process may have, its context included.
    pub vram_bytes: u64,
    /// The link.
    pub link: Link,
    /// Products: at least one of each kind in each precision.
    pub products: Vec<GpuProduct>,
    /// Attention in each precision.
    pub attention: Vec<GpuAttention>,
    /// Bytes a second that a kernel reads and writes in VRAM.
    pub memory_bytes_per_s: f64,
    /// Seconds of a launch.
    pub launch_s: f64,
    /// Names of the fields above that nobody measured.
    #[serde(default)]
    pub assumed: Vec<String>,
}

/// Rows, columns and depth beyond which a product's rate is taken not to change any more.
const SIDE_MAX: usize = 8_192;

/// Precisions, each with what a good workstation card does of products, and of attention, in 10^12 operations a second.
const ASSUMED: [(Precision, f64, f64); 3] =
    [(Precision::Bf16, 140.0, 70.0), (Precision::Tf32, 70.0, 20.0), (Precision::Fp32, 50.0, 20.0)];

const PRODUCTS: [Product; 3] = [Product::Forward, Product::BackwardInput, Product::BackwardWeight];

impl GpuRates {
    /// What is assumed where no profile has a GPU: a card with 22 GiB of usable memory on PCIe 4 x16, whose products
    /// reach 0.85 of 165 T operations a second in bf16.
    pub fn assumed() -> GpuRates {
        let point = |(precision, tera, _): (Precision, f64, f64)| {
            PRODUCTS.map(|product| GpuProduct {
                precision,
                product,
                rows: 4_096,
                columns: 4_096,
                depth: 4_096,
                operations_per_s: tera * 1e12,
            })
        };
        let attention = |(precision, _, tera): (Precision, f64, f64)| GpuAttention {
            precision,
            forward_operations_per_s: tera * 1e12,
            backward_operations_per_s: tera * 1e12,
        };
        let names = ["vram_bytes", "link", "products", "attention", "memory_bytes_per_s", "launch_s"];
        GpuRates {
            name: "a 24 GB card".to_owned(),
            vram_bytes: 22 << 30,
            link: Link {
                upload_bytes_per_s: 25e9,
                download_bytes_per_s: 25e9,
                upload_both_bytes_per_s: 21e9,
                download_both_bytes_per_s: 21e9,
                busy_share: whole(),
                latency_s: 5e-6,
            },
            products: ASSUMED.into_iter().flat_map(point).collect(),
            attention: ASSUMED.map(attention).to_vec(),
            memory_bytes_per_s: 0.9e12,
            launch_s: 3e-6,
            assumed: names.map(str::to_owned).to_vec(),
        }
    }

    /// What a transfer and a launch take, in seconds.
    pub(super) fn seconds(&self) -> [f64; 2] {
        [self.link.latency_s, self.launch_s]
    }

    /// All rates a second, and the VRAM; not a number where a kind of product or an attention is missing.
    pub(super) fn rates(&self) -> Vec<f64> {
        let Link {
            upload_bytes_per_s,
            download_bytes_per_s,
            upload_both_bytes_per_s,
            download_both_bytes_per_s,
            busy_share: _,
            latency_s: _,
        } = self.link;
        let mut rates = vec![
            upload_bytes_per_s,
            download_bytes_per_s,
            upload_both_bytes_per_s,
            download_both_bytes_per_s,
            self.memory_bytes_per_s,
            self.vram_bytes as f64,
        ];
        let has = |precision| {
            let product = |kind| self.products.iter().any(|p| p.precision == precision && p.product == kind);
            PRODUCTS.into_iter().all(product) && self.attention.iter().any(|point| point.precision == precision)
        };
        rates.extend((!ASSUMED.iter().all(|(precision, ..)| has(*precision))).then_some(f64::NAN));
        rates.extend(self.products.iter().map(|point| point.operations_per_s));
        rates.extend(
            self.attention.iter().flat_map(|point| [point.forward_operations_per_s, point.backward_operations_per_s]),
        );
        rates
    }

    /// The rates that matter most, in words.
    pub(super) fn in_words(&self) -> String {
        let products = self.products.iter().filter(|point| point.precision == Precision::Bf16);
        let fastest = products.map(|point| point.operations_per_s).fold(0.0, f64::max);
        let Link { upload_bytes_per_s: up, download_bytes_per_s: down, busy_share, .. } = self.link;
        format!(
            "{}: products up to {:.0} T operations/s in bf16, link {:.1} GB/s up and {:.1} down, {:.0}% of it while \
             the processor updates",
            self.name,
            fastest * 1e-12,
            up * 1e-9,
            down * 1e-9,
            100.0 * busy_share
        )
    }

    /// The link as the engine's planner takes it.
    pub fn link(&self, device: DeviceId) -> LinkRates {
        let link = self.link;
        LinkRates {
            device,
            upload_bytes_per_s: link.upload_bytes_per_s,
            download_bytes_per_s: link.download_bytes_per_s,
            upload_both_bytes_per_s: link.upload_both_bytes_per_s,
            download_both_bytes_per_s: link.download_both_bytes_per_s,
            busy_share: link.busy_share,
            latency_s: link.latency_s,
        }
    }

    /// Multiplications and additions a second of a product of this shape.
    pub fn product(&self, precision: Precision, product: Product, rows: usize, columns: usize, depth: usize) -> f64 {
        let wanted = [rows, columns, depth].map(|side| side.min(SIDE_MAX));
        let points = self.products.iter().filter(|point| point.precision == precision && point.product == product);
        interpolate(points.map(|p| (distance(&wanted, &[p.rows, p.columns, p.depth]), p.operations_per_s)))
    }

    /// Multiplications and additions a second of attention: forward and backward.
    pub fn attention(&self, precision: Precision) -> (f64, f64) {
        let found = self.attention.iter().find(|point| point.precision == precision);
        let point = found.expect("a profile has attention in each precision");
        (point.forward_operations_per_s, point.backward_operations_per_s)
    }

    /// Seconds of a pass over memory.
    pub fn pass_s(&self, elements: usize, kernel: Kernel, precision: Precision) -> f64 {
        self.launch_s + (elements * bytes(kernel, precision)) as f64 / self.memory_bytes_per_s
    }
}

/// Bytes of VRAM that a kernel reads and writes for an element.
fn bytes(kernel: Kernel, precision: Precision) -> usize {
    // Of an activation.
    let wide = if precision == Precision::Bf16 { 2 } else { 4 };
    match kernel {
        // The gradient; both halves of a weight, and both moments, read and written.
        Kernel::Adamw => 4 + 2 * 12,
        // What is read is what is written: `hi` in bf16, both halves otherwise.
        Kernel::Join => 2 * wide,
        Kernel::SumSquares | Kernel::LossForward => 4,
        Kernel::NormForward | Kernel::Rope => 2 * wide,
        // Input, gradient, and what it is added to, read and written.
        Kernel::NormBackward => 4 * wide,
        Kernel::SwigluForward | Kernel::Add => 3 * wide,
        // Gate, up and the gradient read, two gradients written.
        Kernel::SwigluBackward => 5 * wide,
        Kernel::LossBackward => 4 + wide,
        Kernel::Copy => 8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_take_their_bytes_and_a_launch_and_products_the_rate_of_their_precision() {
        let gpu = GpuRates { memory_bytes_per_s: 1e9, launch_s: 0.5, ..GpuRates::assumed() };
        assert_eq!(gpu.pass_s(1_000_000_000, Kernel::Adamw, Precision::Bf16), 28.5);
        assert_eq!(gpu.pass_s(1_000_000_000, Kernel::Join, Precision::Bf16), 4.5);
        assert_eq!(gpu.pass_s(1_000_000_000, Kernel::Join, Precision::Tf32), 8.5);
        let rate = |precision| gpu.product(precision, Product::Forward, 64, 4_096, 1 << 20);
        assert_eq!((rate(Precision::Bf16), rate(Precision::Fp32)), (140e12, 50e12));
        assert!(gpu.rates().iter().all(|rate| *rate > 0.0));
        let less = GpuRates { attention: gpu.attention[..2].to_vec(), ..gpu };
        assert!(less.rates().iter().any(|rate| rate.is_nan()), "attention in fp32 is missing");
    }
}
