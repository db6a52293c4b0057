//! Bytes of RAM that a step needs beside the arena, from shapes alone, and the micro-batch that keeps them small.

use crate::block::Dims;
use crate::schedule::Description;
use crate::target::Target;
use crate::vram;
use crate::workspace::Sizes;
use mt_kernels::{attention, linear};

/// Tokens of a micro-batch at most where the user does not say; one row may have more.
const MICRO_TOKENS: u64 = 1_024;
/// The same on a GPU, at least: its products want long sides.
const GPU_MICRO_TOKENS: u64 = 8_192;

/// Rows of a micro-batch where the user does not say: the most that stay within 1,024 tokens, at least one. A function
/// of batch and sequence length alone, since it is part of what a run computes.
pub fn micro_batch_auto(batch: u64, seq: u64) -> u64 {
    (MICRO_TOKENS / seq.max(1)).min(batch).max(1)
}

/// The same on a GPU: the smallest power of two with at least 8,192 tokens.
pub fn gpu_micro_batch_auto(batch: u64, seq: u64) -> u64 {
    GPU_MICRO_TOKENS.div_ceil(seq.max(1)).next_power_of_two().min(batch).max(1)
}

/// Bytes of all buffers and of what the kernels allocate.
pub fn workspace_bytes(it: &Description<'_>, threads: usize) -> u64 {
    match it.target() {
        Target::Cpu => (Sizes::new(it).bytes() + kernel_bytes(it, threads)) as u64,
        Target::Gpu(_) => vram::host_bytes(it),
    }
}

/// What the kernels allocate: attention's buffers stay with their threads, so they add to the largest product.
fn kernel_bytes(it: &Description<'_>, threads: usize) -> usize {
    let dims = Dims::new(it.config);
    let rows = it.micro_rows.iter().copied().max().unwrap_or(0);
    let tokens = rows * it.seq;
    let (query, key) = (dims.query(), dims.key());
    let shapes = [
        (dims.hidden, query),
        (dims.hidden, key),
        (dims.hidden, dims.mlp),
        (dims.mlp, dims.hidden),
        (query, dims.hidden),
        (dims.hidden, it.tiles.rows),
    ];
    let products = shapes.iter().flat_map(|&(inputs, outputs)| {
        [(tokens, outputs, inputs), (tokens, inputs, outputs), (outputs, inputs, tokens)]
            .map(|(m, n, k)| linear::scratch_bytes(threads, m, n, k))
    });
    let attention = attention::scratch_bytes(threads, dims.attention(rows, it.seq));
    products.max().unwrap_or(0) + attention
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn micro_batches_stay_within_their_tokens() {
        assert_eq!(micro_batch_auto(4, 256), 4);
        assert_eq!(micro_batch_auto(16, 256), 4);
        assert_eq!(micro_batch_auto(4, 128), 4);
        assert_eq!(micro_batch_auto(8, 1_000), 1);
        assert_eq!(micro_batch_auto(8, 4_096), 1);
        assert_eq!(gpu_micro_batch_auto(96, 1_024), 8);
        assert_eq!(gpu_micro_batch_auto(4, 1_024), 4);
        assert_eq!(gpu_micro_batch_auto(96, 1_000), 16);
        assert_eq!(gpu_micro_batch_auto(96, 16_384), 1);
    }
}
