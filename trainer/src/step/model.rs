//! A model as the executor addresses it: chunks, tensors and sizes, worked out once.

use crate::block::{Dims, Tensors, layer_tensors};
use crate::head::{Tiles, norm_chunks};
use crate::layout::Chunk;
use crate::model::{Manifest, ModelConfig, Tensor};
use mt_kernels::norm2::LEAF;
use std::ops::Range;

/// What the executor knows of the model.
pub(crate) struct Model {
    pub(crate) config: ModelConfig,
    pub(crate) manifest: Manifest,
    /// Chunks of each unit.
    pub(crate) chunks: Vec<Vec<Chunk>>,
    pub(crate) dims: Dims,
    /// Tensors of each layer.
    pub(crate) tensors: Vec<Tensors>,
    pub(crate) tiles: Tiles,
}

/// A tensor's part of a chunk, in elements of the unit.
pub(crate) struct Segment<'m> {
    pub(crate) tensor: &'m Tensor,
    pub(crate) range: Range<usize>,
}

impl Model {
    pub(crate) fn new(config: ModelConfig, manifest: Manifest, layout: &crate::layout::Layout, tiles: Tiles) -> Model {
        let chunks = (0..manifest.units.len()).map(|unit| layout.chunks(&manifest, unit)).collect();
        let tensors = layer_tensors(&config, &manifest.units);
        Model { dims: Dims::new(&config), chunks, tensors, tiles, config, manifest }
    }

    /// The head's unit.
    pub(crate) fn head(&self) -> usize {
        self.chunks.len() - 1
    }

    /// The tensors of a chunk, in element order.
    pub(crate) fn segments(&self, unit: usize, chunk: Chunk) -> impl Iterator<Item = Segment<'_>> {
        let end = chunk.start + chunk.len;
        self.manifest.units[unit].tensors.iter().filter_map(move |tensor| {
            let range = tensor.offset.max(chunk.start)..(tensor.offset + tensor.len).min(end);
            (!range.is_empty()).then_some(Segment { tensor, range })
        })
    }

    /// Elements of the head's unit in chunks that hold elements of the final norm.
    pub(crate) fn norm_end(&self) -> usize {
        let chunks = &self.chunks[self.head()];
        chunks[..norm_chunks(chunks, self.config.hidden)].iter().map(|chunk| chunk.len).sum()
    }

    /// Elements of the head's unit in leaves that hold elements of the final norm. Their squares are summed last, since
    /// the norm's gradient is complete last; leaves, not chunks, so that the sum does not depend on the layout.
    pub(crate) fn norm_leaves(&self) -> usize {
        self.config.hidden.next_multiple_of(LEAF).min(self.manifest.units[self.head()].elements)
    }
}
