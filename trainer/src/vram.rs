//! What CUDA takes of a process before a step has allocated anything, and what a step on a GPU takes in RAM. What it
//! takes in VRAM is the computation's to say: see [`crate::gpu::Sizes`].

use crate::schedule::Description;

/// What a process takes of VRAM before it has allocated anything: the CUDA context, the kernels' code and what
/// cuBLASLt keeps. Assumed.
pub const CONTEXT_BYTES: u64 = 600 << 20;

/// RAM that CUDA's libraries and its context take. Assumed.
pub const CONTEXT_RAM_BYTES: u64 = 512 << 20;

/// Bytes of RAM that a step on a GPU takes beside the arena: its tokens on their way there, and what comes back.
pub fn host_bytes(it: &Description<'_>) -> u64 {
    let tokens: usize = it.micro_rows.iter().map(|rows| rows * it.seq).sum();
    (tokens * 4 * size_of::<u32>() + (1 << 20)) as u64
}
