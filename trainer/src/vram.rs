//! What a run on a GPU takes beside its pages, in VRAM and in RAM, from shapes alone. The computation's own sizes are
//! [`crate::gpu`]'s.

use crate::gpu::Sizes;
use crate::schedule::Description;

/// What a process takes of VRAM before it has allocated anything: the CUDA context, the kernels' code and what
/// cuBLASLt keeps. Assumed.
pub const CONTEXT_BYTES: u64 = 600 << 20;

/// RAM that CUDA's libraries and its context take. Assumed.
pub const CONTEXT_RAM_BYTES: u64 = 512 << 20;

/// VRAM that comes to be in use later beside what is asked for: the driver's tables, of VRAM and of the RAM that it was
/// told of, and what cuBLASLt keeps. Measured on an H200: 20 MiB with budgets of 8 GiB of VRAM and 8 of RAM, 0.1 GiB
/// with 40 and 118, 0.15 to 0.2 GiB with 22 and 118.
pub fn growth_bytes(vram_bytes: u64, ram_bytes: u64) -> u64 {
    vram_bytes / 256 + ram_bytes / 1_024 + (64 << 20)
}

/// RAM that CUDA's libraries come to use later than when they were opened. Measured: 150 and 260 MiB.
pub const GROWTH_RAM_BYTES: u64 = 320 << 20;

/// Bytes of VRAM that a step takes beside its pages; 0 without a GPU.
pub fn workspace_bytes(it: &Description<'_>) -> u64 {
    it.gpu.map_or(0, |on| Sizes::new(it, on.gpu.precision).device_bytes() as u64)
}

/// Bytes of RAM that a step on a GPU takes beside the arena: of each token eight numbers on their way there (ids,
/// targets, positions, what is seen and in which order), and what comes back.
pub fn host_bytes(it: &Description<'_>) -> u64 {
    let tokens: usize = it.micro_rows.iter().map(|rows| rows * it.seq).sum();
    (tokens * 8 * size_of::<u32>() + (1 << 20)) as u64
}
