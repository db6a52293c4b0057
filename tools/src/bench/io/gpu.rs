//! The GPU: its link both ways by size, streams and kind of memory, and matrix products in three precisions. Where
//! there is none, one line says why.

use super::disk::usual;
use super::options::{Effort, USUAL_BLOCK, USUAL_DEPTH, repeated};
use super::summary::Summary;
use super::watch::Watch;
use crate::failure::Failure;
use crate::machine::checks::{Check, Level};
use crate::machine::link::Link;
use mt_engine::bench::{Cell, Ground, Setup};
use mt_trainer::measure::gpu::Gpu;
use mt_trainer::measure::lift::lift;
use mt_trainer::measure::link::{self, Copies, Host, Way};
use mt_trainer::measure::products::{Products, Size};
use mt_trainer::profile::Product as Kind;
use mt_trainer::target::Precision;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::Duration;

/// Bytes of host memory that is copied from and to.
const HOST_BYTES: u32 = 256 << 20;
/// Bytes of one measurement, each way.
const COPY_BYTES: usize = 2 << 30;
/// Bytes of one measurement from memory that the driver stages.
const STAGED_BYTES: usize = 256 << 20;
/// Pieces that the link is measured with.
const PIECES: [usize; 5] = [64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20];
/// Piece of all other measurements.
const PIECE: usize = 4 << 20;
/// Side of the products' matrices, and the time of one measurement.
const SIDE: usize = 8_192;
const SIZE: Size = Size { tokens: SIDE, inputs: SIDE, outputs: SIDE };
const PRODUCTS: Duration = Duration::from_millis(100);

/// What was found of a GPU.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct GpuReport {
    /// Why nothing was measured.
    pub absent: Option<String>,
    /// What was measured.
    pub found: Option<Found>,
}

/// A GPU.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Found {
    /// Name.
    pub name: String,
    /// Its memory.
    pub memory_bytes: u64,
    /// Versions of driver, NVRTC and cuBLASLt.
    pub versions: Vec<String>,
    /// Its link, where the system says.
    pub link: Option<Link>,
    /// Copies.
    pub copies: Vec<Copied>,
    /// Products.
    pub products: Vec<Product>,
    /// From the first path's drive through RAM to the GPU's memory, bytes a second.
    pub drive_to_gpu_bytes_per_s: Option<Summary>,
    /// The way back.
    pub gpu_to_drive_bytes_per_s: Option<Summary>,
    /// Whether drives could write to the GPU's memory themselves, in words.
    pub direct_storage: String,
}

/// Copies of one kind.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Copied {
    /// up, down or both: bytes both ways are then added.
    pub way: String,
    /// pinned (the driver's), registered (the arena's) or pageable.
    pub memory: String,
    /// Bytes of a copy.
    pub piece_bytes: usize,
    /// Streams for each way.
    pub streams: usize,
    /// Bytes a second.
    pub bytes_per_s: Summary,
}

/// Products of one precision.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Product {
    /// bf16, tf32 or fp32.
    pub precision: String,
    /// Rows, columns and terms.
    pub side: usize,
    /// Multiplications and additions a second.
    pub operations_per_s: Summary,
}

impl GpuReport {
    /// Nothing, for a reason.
    pub fn absent(why: impl Into<String>) -> GpuReport {
        GpuReport { absent: Some(why.into()), found: None }
    }

    /// What is in the way.
    pub fn checks(&self) -> Vec<Check> {
        let Some(found) = &self.found else { return Vec::new() };
        let Some(link) = found.link.as_ref().filter(|link| link.is_narrow()) else { return Vec::new() };
        let remedy = format!("sudo lspci -vv -s {}; seat the card anew or use another slot", link.address);
        vec![Check::not(Level::Note, "GPU", format!("{}: {}", found.name, link.in_words()), remedy)]
    }

    /// The rate of bf16 products.
    pub fn bf16_operations_per_s(&self) -> Option<f64> {
        let products = &self.found.as_ref()?.products;
        products.iter().find(|product| product.precision == "bf16").map(|product| product.operations_per_s.median)
    }
}

/// Measures GPU `index`.
///
/// # Errors
/// A stop. What the GPU refuses is in the report.
pub fn measure(index: usize, ground: &Ground, effort: &Effort, watch: &Watch) -> Result<GpuReport, Failure> {
    let gpu = match Gpu::open(index, None) {
        Ok(gpu) => gpu,
        Err(why) => return Ok(GpuReport::absent(why.to_string())),
    };
    match found(&gpu, ground, effort, watch) {
        Ok(found) => Ok(GpuReport { absent: None, found: Some(found) }),
        Err(Ended::Stopped(failure)) => Err(failure),
        Err(Ended::Gpu(why)) => Ok(GpuReport::absent(format!("{}: {why}", gpu.name()))),
    }
}

/// Why it ended early.
enum Ended {
    Stopped(Failure),
    Gpu(String),
}

impl From<mt_trainer::Error> for Ended {
    fn from(error: mt_trainer::Error) -> Ended {
        Ended::Gpu(error.to_string())
    }
}

impl From<Failure> for Ended {
    fn from(failure: Failure) -> Ended {
        Ended::Stopped(failure)
    }
}

fn found(gpu: &Gpu, ground: &Ground, effort: &Effort, watch: &Watch) -> Result<Found, Ended> {
    let facts = gpu.facts()?;
    let link = facts.address.and_then(|address| Link::of(&Path::new("/sys/bus/pci/devices").join(address)));
    let copies = copies(gpu, effort, watch)?;
    let mut products = Vec::new();
    for precision in Precision::EACH {
        watch.part(format!("GPU: products in {}", precision.name()));
        watch.go_on()?;
        let mut measured = Products::new(gpu, precision, SIZE)?;
        // The first finds the library cold.
        measured.operations_per_s(Kind::Forward, PRODUCTS)?;
        let operations_per_s = repeated(|| measured.operations_per_s(Kind::Forward, PRODUCTS))?;
        products.push(Product { precision: precision.name().to_owned(), side: SIDE, operations_per_s });
    }
    let through = |reads| {
        watch.part("GPU: from and to the drive");
        let rates = repeated(|| pipeline(gpu, ground, reads, effort, watch))?;
        Ok::<Summary, Ended>(rates)
    };
    Ok(Found {
        name: gpu.name().to_owned(),
        memory_bytes: facts.memory_bytes,
        versions: facts.versions,
        link,
        copies,
        products,
        drive_to_gpu_bytes_per_s: Some(through(100)?),
        gpu_to_drive_bytes_per_s: Some(through(0)?),
        direct_storage: direct_storage(),
    })
}

/// Bytes a second between drive and GPU, checksums included.
fn pipeline(gpu: &Gpu, ground: &Ground, reads: u32, effort: &Effort, watch: &Watch) -> Result<f64, Ended> {
    let memory_bytes = u64::from(USUAL_BLOCK * USUAL_DEPTH);
    let setup = Setup { depth_max: USUAL_DEPTH, memory_bytes, ..Setup::default() };
    let cell = Cell { has_checksums: true, ..usual(reads) };
    let moved = lift(gpu, ground, &setup, &cell, |_, elapsed| elapsed >= effort.pattern || watch.is_stopped())?;
    watch.wrote(moved.write_bytes);
    watch.go_on()?;
    Ok(moved.rate())
}

fn copies(gpu: &Gpu, effort: &Effort, watch: &Watch) -> Result<Vec<Copied>, Ended> {
    let mut link = link::Link::new(gpu, HOST_BYTES)?;
    let total = if effort.shapes.len() > 1 { 2 * COPY_BYTES } else { COPY_BYTES };
    let mut out = Vec::new();
    for way in [Way::Up, Way::Down, Way::Both] {
        let of = |piece, streams, total| Copies { way, piece, streams, total };
        let mut cases = vec![
            (Host::Pinned, of(PIECE, 1, total)),
            (Host::Registered, of(PIECE, 1, total)),
            (Host::Registered, of(PIECE, 4, total)),
            (Host::Pageable, of(PIECE, 1, STAGED_BYTES)),
        ];
        for piece in PIECES.into_iter().filter(|piece| *piece != PIECE) {
            cases.push((Host::Registered, of(piece, 1, total.min(piece * 4_096))));
            cases.push((Host::Pageable, of(piece, 1, STAGED_BYTES)));
        }
        for (host, copies) in cases {
            watch.part(format!("GPU: copies {}", name(way)));
            watch.go_on()?;
            // The first finds streams and pages cold.
            link.bytes_per_s(host, copies)?;
            out.push(Copied {
                way: name(way).to_owned(),
                memory: kind(host).to_owned(),
                piece_bytes: copies.piece,
                streams: copies.streams,
                bytes_per_s: repeated(|| link.bytes_per_s(host, copies))?,
            });
        }
    }
    Ok(out)
}

fn name(way: Way) -> &'static str {
    match way {
        Way::Up => "up",
        Way::Down => "down",
        Way::Both => "both",
    }
}

fn kind(host: Host) -> &'static str {
    match host {
        Host::Pinned => "pinned",
        Host::Registered => "registered",
        Host::Pageable => "pageable",
    }
}

/// Whether GPUDirect Storage would work, by what it needs.
fn direct_storage() -> String {
    let has_module = Path::new("/proc/driver/nvidia-fs").exists() || Path::new("/sys/module/nvidia_fs").exists();
    let has_drive = !crate::machine::sys::children(Path::new("/sys/class/nvme")).is_empty();
    match (has_module, has_drive) {
        (true, true) => {
            "possible: nvidia-fs is loaded and there is an NVMe drive; MegaTrain does not use it".to_owned()
        }
        (false, _) => "not possible: the kernel's module nvidia-fs is not loaded".to_owned(),
        (true, false) => "not possible: no NVMe drive is seen".to_owned(),
    }
}
