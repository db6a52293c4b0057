//! One decoder layer: forward and manual backward on slices.
//!
//! The layer is assembled from the options of the configuration: biases, norms over the heads of q and k, sliding
//! window, documents. It knows nothing of where its slices live. Weights are the unit's joined f32 elements, addressed
//! through the offsets of the manifest; gradients lie in a slice of the same shape.
//!
//! Terms: T tokens of a micro-batch, H hidden size, Q = query heads * head dimension, K = key heads * head dimension,
//! F MLP size. *Saved* is what the forward leaves behind for the backward, and a *level* says how much of it is kept;
//! computing the rest again gives the same bits, since the same kernels run on the same shapes. *Scratch* is
//! overwritten by every call.

mod backward;
mod forward;
mod linear;
mod saved;
mod scratch;
mod tensors;
#[cfg(test)]
mod tests;

pub use backward::{Gradients, Kept};
pub use saved::{Level, Saved};
pub use scratch::{Scratch, scratch_elements};
pub use tensors::Tensors;

use crate::model::{ModelConfig, Unit};
use mt_kernels::rope::Table;
use mt_kernels::{Cpu, attention};

/// Sizes that all layers of a model share.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Dims {
    /// Hidden size, H.
    pub hidden: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Head dimension.
    pub head_dim: usize,
    /// MLP size, F.
    pub mlp: usize,
    /// Epsilon of every norm.
    pub eps: f32,
    /// Norms over the heads of q and k.
    pub qk_norm: bool,
}

impl Dims {
    /// The sizes of a configuration.
    pub fn new(config: &ModelConfig) -> Dims {
        Dims {
            hidden: config.hidden,
            heads: config.heads,
            kv_heads: config.kv_heads,
            head_dim: config.head_dim,
            mlp: config.mlp,
            eps: config.norm_eps as f32,
            qk_norm: config.qk_norm,
        }
    }

    /// Q: elements of a token's query.
    pub fn query(&self) -> usize {
        self.heads * self.head_dim
    }

    /// K: elements of a token's key or value.
    pub fn key(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    /// Factor on the scores.
    pub fn scale(&self) -> f32 {
        (1.0 / (self.head_dim as f64).sqrt()) as f32
    }

    /// The attention kernel's view of a micro-batch.
    pub fn attention(&self, rows: usize, seq: usize) -> attention::Shape {
        attention::Shape { rows, seq, heads: self.heads, kv_heads: self.kv_heads, head_dim: self.head_dim }
    }
}

/// The tokens of a micro-batch as a layer sees them.
#[derive(Clone, Copy, Debug)]
pub struct Tokens<'a> {
    /// Rows.
    pub rows: usize,
    /// Tokens of a row.
    pub seq: usize,
    /// Position of each token within its document \[T].
    pub positions: &'a [u32],
    /// Index within its row of the first token that each token sees \[T].
    pub first: &'a [u32],
}

impl Tokens<'_> {
    /// T.
    pub fn count(&self) -> usize {
        self.rows * self.seq
    }
}

/// One layer with its weights.
#[derive(Clone, Copy)]
pub struct Block<'a> {
    /// Threads.
    pub cpu: &'a Cpu,
    /// Sizes.
    pub dims: Dims,
    /// Where its tensors lie within the unit.
    pub tensors: &'a Tensors,
    /// The unit's elements.
    pub weights: &'a [f32],
    /// Rotations for every position in use.
    pub rope: &'a Table,
}

/// For each token the index within its row of the first token it sees: the start of its document or the edge of the
/// window, whichever is later. `document` \[T] holds document starts; `first` \[T] is overwritten.
pub fn first_seen(document: &[u32], seq: usize, window: Option<usize>, first: &mut [u32]) {
    for (token, (first, &start)) in first.iter_mut().zip(document).enumerate() {
        let edge = window.map_or(0, |w| (token % seq + 1).saturating_sub(w));
        *first = start.max(edge as u32);
    }
}

/// The tensors of each layer of a model, in layer order.
pub fn layer_tensors(config: &ModelConfig, units: &[Unit]) -> Vec<Tensors> {
    units
        .iter()
        .filter(|u| matches!(u.kind, crate::model::UnitKind::Layer(_)))
        .map(|u| Tensors::new(config, u))
        .collect()
}
