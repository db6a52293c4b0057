//! Measures a GPU and its link in a few seconds: copies alone and beside the processor's updates, products,
//! attention, passes over memory.
//!
//! Products are measured after a while of them: a GPU at its limit of power is slower than one that was idle (an H200
//! multiplied 795 to 813 T operations a second in bf16 at first, and 665 to 690 when it went on).

use crate::error::Result;
use crate::measure::gpu::Gpu;
use crate::measure::link::{self, Copies, Host, Way};
use crate::measure::products::{Products, Size};
use crate::measure::updates::Updates;
use crate::measure::{attention, passes};
use crate::profile::compute::Product;
use crate::profile::gpu::{GpuAttention, GpuProduct, GpuRates, Link};
use crate::target::Precision;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Bytes of host memory that is copied from and to: three times, and once on the GPU.
const HOST_BYTES: u32 = 64 << 20;
/// Bytes of a copy, as a run makes them, and bytes each way of a measurement: about 20 ms.
const PIECE: usize = 8 << 20;
const COPY_BYTES: usize = 1 << 30;
/// Bytes of a small copy, and how many.
const SMALL: usize = 64 << 10;
const SMALL_COPIES: usize = 2_000;
/// Time of one measurement, of warming up before products of a size, and of copies beside updates.
const TIME: Duration = Duration::from_millis(20);
const WARM_UP: Duration = Duration::from_millis(300);
const BESIDE: Duration = Duration::from_millis(300);
/// Part of VRAM that is left to whoever else uses the GPU.
const MARGIN_SHARE: u64 = 64;
/// Seconds that a small copy and a launch take, at least.
const SECONDS_MIN: f64 = 1e-7;

/// The products: those of small, middle and large models.
const SIZES: [Size; 3] = [size(1_024, 1_024, 1_024), size(4_096, 2_048, 4_096), size(8_192, 4_096, 4_096)];

const fn size(tokens: usize, inputs: usize, outputs: usize) -> Size {
    Size { tokens, inputs, outputs }
}

/// Measures a GPU, beside updates.
///
/// # Errors
/// `Gpu`: a kernel does not compile, or the driver refuses something. `Engine`: memory is short.
pub(super) fn rates(gpu: &Gpu, updates: &mut Updates) -> Result<GpuRates> {
    let attention = |precision| {
        let (forward_operations_per_s, backward_operations_per_s) = attention::operations_per_s(gpu, precision, TIME)?;
        Ok(GpuAttention { precision, forward_operations_per_s, backward_operations_per_s })
    };
    let memory_bytes = gpu.facts()?.memory_bytes;
    Ok(GpuRates {
        name: gpu.name().to_owned(),
        vram_bytes: memory_bytes - memory_bytes / MARGIN_SHARE,
        link: link(gpu, updates)?,
        launch_s: passes::launch_s(gpu, TIME)?.max(SECONDS_MIN),
        memory_bytes_per_s: passes::memory_bytes_per_s(gpu, TIME)?,
        products: products(gpu)?,
        attention: Precision::EACH.into_iter().map(attention).collect::<Result<_>>()?,
        assumed: Vec::new(),
    })
}

fn link(gpu: &Gpu, updates: &mut Updates) -> Result<Link> {
    let mut link = link::Link::new(gpu, HOST_BYTES)?;
    let copies = |way| Copies { way, piece: PIECE, streams: 1, total: COPY_BYTES };
    let mut rate = |copies| {
        // The first finds streams and pages cold.
        link.bytes_per_s(Host::Registered, copies)?;
        link.bytes_per_s(Host::Registered, copies)
    };
    let (up, down, both) = (rate(copies(Way::Up))?, rate(copies(Way::Down))?, rate(copies(Way::Both))?);
    let small = rate(Copies { way: Way::Up, piece: SMALL, streams: 1, total: SMALL * SMALL_COPIES })?;
    let busy = beside(updates, || rate(copies(Way::Both)))?;
    Ok(Link {
        upload_bytes_per_s: up,
        download_bytes_per_s: down,
        // Both ways are measured together; they share what there is as they do alone.
        upload_both_bytes_per_s: (both * up / (up + down)).min(up),
        download_both_bytes_per_s: (both * down / (up + down)).min(down),
        busy_share: (busy / both).clamp(0.01, 1.0),
        latency_s: (SMALL as f64 / small - SMALL as f64 / up).max(SECONDS_MIN),
    })
}

/// The mean of a rate that is measured again and again while the processor updates.
fn beside(updates: &mut Updates, mut rate: impl FnMut() -> Result<f64>) -> Result<f64> {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                updates.elements_per_s(Duration::ZERO);
            }
        });
        let _end = End(&is_over);
        let (start, mut sum, mut count) = (Instant::now(), 0.0, 0.0);
        while count == 0.0 || start.elapsed() < BESIDE {
            sum += rate()?;
            count += 1.0;
        }
        Ok(sum / count)
    })
}

/// Ends the updates, also where what runs beside them fails.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn products(gpu: &Gpu) -> Result<Vec<GpuProduct>> {
    let mut found = Vec::new();
    for precision in Precision::EACH {
        for size in SIZES {
            let mut products = Products::new(gpu, precision, size)?;
            products.operations_per_s(Product::Forward, WARM_UP)?;
            let Size { tokens, inputs, outputs } = size;
            for (product, rows, columns, depth) in [
                (Product::Forward, tokens, outputs, inputs),
                (Product::BackwardInput, tokens, inputs, outputs),
                (Product::BackwardWeight, outputs, inputs, tokens),
            ] {
                let operations_per_s = products.operations_per_s(product, TIME)?;
                found.push(GpuProduct { precision, product, rows, columns, depth, operations_per_s });
            }
        }
    }
    Ok(found)
}
