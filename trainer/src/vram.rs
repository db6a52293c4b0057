//! Bytes of VRAM that a step takes beside its pages, from shapes alone: what layers keep of a micro-batch, and the
//! workspace, which holds a unit's weights and gradients and what one micro-batch needs besides.
//!
//! Embedding, layers and head never compute at the same time, so the workspace is as large as the largest of them
//! needs. Buffers begin at multiples of 256 bytes.

use crate::block::{Dims, Level};
use crate::model::UnitKind;
use crate::schedule::Description;

/// What a process takes of VRAM before it has allocated anything: the CUDA context, the kernels' code and what
/// cuBLASLt keeps. Assumed.
pub const CONTEXT_BYTES: u64 = 600 << 20;

/// RAM that CUDA's libraries and its context take. Assumed.
pub const CONTEXT_RAM_BYTES: u64 = 512 << 20;

/// What cuBLASLt may use beside its matrices.
const PRODUCT_BYTES: usize = 64 << 20;

const ALIGN: usize = 256;
/// Norms' factors, log-sum-exps, logits, gradients.
const F32: usize = size_of::<f32>();

/// The sum of buffers of these bytes.
fn sum<const N: usize>(buffers: [usize; N]) -> usize {
    buffers.iter().map(|bytes| bytes.next_multiple_of(ALIGN)).sum()
}

/// Bytes of what a layer keeps of T tokens at a level; `wide` are the bytes of an activation's element.
pub fn kept_bytes(dims: &Dims, tokens: usize, level: Level, wide: usize) -> usize {
    let Dims { heads, kv_heads, mlp, hidden, .. } = *dims;
    let (query, key) = (tokens * dims.query() * wide, tokens * dims.key() * wide);
    let normed = usize::from(dims.qk_norm);
    let attention = sum([tokens * F32, query, key, key, query, tokens * heads * F32])
        + normed * sum([query, key, tokens * heads * F32, tokens * kv_heads * F32]);
    let middle = sum([tokens * hidden * wide, tokens * F32, tokens * mlp * wide, tokens * mlp * wide]);
    match level {
        Level::Input => 0,
        Level::Attention => attention,
        Level::All => attention + middle,
    }
}

/// Bytes of a layer's intermediates of T tokens that live within one call.
fn scratch_bytes(dims: &Dims, tokens: usize, wide: usize) -> usize {
    let (query, key) = (tokens * dims.query(), tokens * dims.key());
    // Gradients of attention's inputs are summed in f32.
    let attention = sum([query * wide, query * F32, key * F32, key * F32, tokens * dims.heads * F32, query * wide]);
    let mlp = sum([tokens * dims.mlp * wide; 3]);
    sum([tokens * dims.hidden * wide; 2]) + sum([tokens * F32]) + attention.max(mlp)
}

/// Bytes of the workspace in VRAM.
pub fn workspace_bytes(it: &Description<'_>) -> u64 {
    let dims = Dims::new(it.config);
    let (wide, hidden) = (it.target.wide_bytes(), it.config.hidden);
    let most = it.micro_rows.iter().copied().max().unwrap_or(0) * it.seq;
    let all: usize = it.micro_rows.iter().map(|rows| rows * it.seq).sum();
    let layers = it.manifest.units.iter().filter(|unit| matches!(unit.kind, UnitKind::Layer(_)));
    let layer = layers.map(|unit| unit.elements).max().unwrap_or(0);
    let chunk = it.layout.chunk_pages as usize * it.layout.page_elements;
    let rest = |level: &Level| kept_bytes(&dims, most, Level::All, wide) - kept_bytes(&dims, most, *level, wide);
    let again = it.kept.layers.iter().map(rest).max().unwrap_or(0);
    let layer = sum([layer * wide, layer * F32, again, scratch_bytes(&dims, most, wide)]);
    let tile = it.tiles.elements_max() + chunk;
    let logits = if it.kept.logits { 0 } else { most * it.tiles.rows * F32 };
    let head = sum([tile * wide, tile * F32, logits, most * it.tiles.rows * wide, most * hidden * wide]);
    let embedding = sum([chunk * wide, chunk * F32]);
    // Of every token: id, target, position, first token that it sees; the final norm's factor, maximum, sum and score.
    let tokens = sum([all * 4 * size_of::<u32>(), all * 4 * F32, hidden * F32]);
    (layer.max(head).max(embedding) + tokens + PRODUCT_BYTES) as u64
}

/// Bytes of RAM that a step on a GPU takes beside the arena: its tokens on their way there, and what comes back.
pub fn host_bytes(it: &Description<'_>) -> u64 {
    let tokens: usize = it.micro_rows.iter().map(|rows| rows * it.seq).sum();
    (sum([tokens * 4 * size_of::<u32>()]) + (1 << 20)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_keep_what_their_layers_are_made_of() {
        let dims = Dims { hidden: 512, heads: 8, kv_heads: 2, head_dim: 64, mlp: 1_024, eps: 1e-5, qk_norm: false };
        let kept = |level, wide| kept_bytes(&dims, 256, level, wide);
        // Queries and the attention's output 512, keys and values 128 each; a factor and 8 log-sum-exps in f32.
        let attention = |wide| 256 * (1_280 * wide + 9 * 4);
        assert_eq!((kept(Level::Input, 2), kept(Level::Attention, 2)), (0, attention(2)));
        assert_eq!(kept(Level::All, 4), attention(4) + 256 * ((512 + 2 * 1_024) * 4 + 4));
        let normed = Dims { qk_norm: true, ..dims };
        assert_eq!(kept_bytes(&normed, 256, Level::Attention, 2), attention(2) + 256 * (640 * 2 + 10 * 4));
    }
}
