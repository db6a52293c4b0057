//! All buffers of a step beside the arena, allocated once.
//!
//! Embedding, layers and head never compute at the same time, so they share one slab; each cuts it its own way. What
//! must last from a forward to its backward lies beside the slab.

use crate::block::{Dims, Saved, scratch_elements};
use crate::carve::{Carve, padded};
use crate::head::{Queue, norm_chunks};
use crate::model::UnitKind;
use crate::schedule::Description;
use mt_kernels::cross_entropy::State;
use mt_kernels::rope::Table;

/// Elements of every buffer.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Sizes {
    /// Elements of the largest layer.
    layer: usize,
    /// What a layer's forward saves and its level does not keep, of the layer with most of it.
    saved: usize,
    scratch: usize,
    /// A tile and a chunk.
    tile: usize,
    chunk: usize,
    /// Chunks that hold elements of the final norm.
    norm_chunks: usize,
    /// Logits of a tile, unless they are kept elsewhere.
    logits: usize,
    /// \[T,H].
    boundary: usize,
    hidden: usize,
    half_head: usize,
    /// Tokens of each micro-batch.
    tokens: Vec<usize>,
}

impl Sizes {
    /// The buffers that a model, its shapes and its layout need.
    pub fn new(it: &Description<'_>) -> Sizes {
        let dims = Dims::new(it.config);
        let tokens: Vec<usize> = it.micro_rows.iter().map(|rows| rows * it.seq).collect();
        let most = tokens.iter().copied().max().unwrap_or(0);
        let units = &it.manifest.units;
        let layers = units.iter().filter(|unit| matches!(unit.kind, UnitKind::Layer(_)));
        let chunk = it.layout.chunk_pages as usize * it.layout.page_elements;
        let head = it.layout.chunks(it.manifest, units.len() - 1);
        let with_norm = &head[..norm_chunks(&head, it.config.hidden)];
        Sizes {
            layer: layers.map(|unit| unit.elements).max().unwrap_or(0),
            saved: it.kept.layers.iter().map(|level| Saved::rest(&dims, most, *level)).max().unwrap_or(0),
            scratch: scratch_elements(&dims, most),
            tile: it.tiles.elements_max() + chunk,
            chunk,
            norm_chunks: with_norm.iter().map(|chunk| chunk.len).sum(),
            logits: if it.kept.logits { 0 } else { most * it.tiles.rows },
            boundary: most * it.config.hidden,
            hidden: it.config.hidden,
            half_head: it.config.head_dim / 2,
            tokens,
        }
    }

    fn most(&self) -> usize {
        self.tokens.iter().copied().max().unwrap_or(0)
    }

    fn slab(&self) -> usize {
        let layer = [self.layer, self.layer, self.saved, self.scratch];
        let head = [self.tile, self.tile, self.norm_chunks, self.logits, self.boundary];
        let sum = |parts: &[usize]| parts.iter().map(|n| padded(*n)).sum::<usize>();
        sum(&layer).max(sum(&head)).max(padded(self.chunk))
    }

    /// Bytes of all buffers.
    pub(crate) fn bytes(&self) -> usize {
        let all: usize = self.tokens.iter().sum();
        // Per token: three numbers of the running log-sum-exp and the final norm's rstd.
        let lasting = 4 * all + self.hidden + self.most() + 2 * self.half_head * self.most();
        size_of::<f32>() * (self.slab() + padded(1) + lasting)
    }
}

/// The buffers.
pub struct Workspace {
    /// Shared by embedding, layers and head.
    pub(crate) slab: Slab,
    /// Weights of the final norm \[H].
    pub(crate) norm: Vec<f32>,
    /// The final norm's 1 / root mean square, per micro-batch \[T].
    pub(crate) rstd: Vec<Vec<f32>>,
    /// Running log-sum-exp per micro-batch.
    pub(crate) states: Vec<State>,
    /// First token that each token of the micro-batch at hand sees \[T].
    pub(crate) first: Vec<u32>,
    /// Rotations.
    pub(crate) rope: Table,
    /// Fill of the tile buffer.
    pub(crate) tile: Queue,
    /// Fill of the buffer of the tiles' gradients.
    pub(crate) gradients: Queue,
}

/// Memory that is cut up in three ways.
pub(crate) struct Slab {
    memory: Vec<f32>,
    /// Elements before the first cache line.
    skip: usize,
    sizes: Sizes,
}

/// Cut for a layer.
pub(crate) struct LayerBuffers<'a> {
    /// Joined weights of the unit.
    pub(crate) weights: &'a mut [f32],
    /// Gradients of the unit.
    pub(crate) gradients: &'a mut [f32],
    /// Room for what the forward saves and the layer's level does not keep.
    pub(crate) saved: &'a mut [f32],
    /// Scratch of the layer.
    pub(crate) scratch: &'a mut [f32],
}

/// Cut for the head.
pub(crate) struct HeadBuffers<'a> {
    /// Weights that arrived, a tile at the front.
    pub(crate) tile: &'a mut [f32],
    /// Gradients that did not leave yet.
    pub(crate) gradients: &'a mut [f32],
    /// Gradients of the chunks that hold elements of the final norm.
    pub(crate) norm_chunks: &'a mut [f32],
    /// Logits of a tile, where they are not kept elsewhere.
    pub(crate) logits: &'a mut [f32],
    /// \[T,H].
    pub(crate) boundary: &'a mut [f32],
}

impl Workspace {
    /// Allocates everything; zero pages cost nothing until they are touched. Beside a GPU the processor has only
    /// updates to compute, which need nothing.
    pub(crate) fn new(it: &Description<'_>) -> Workspace {
        let sizes = if it.gpu.is_some() { Sizes::default() } else { Sizes::new(it) };
        let most = sizes.most();
        let memory = vec![0.0; sizes.slab() + padded(1)];
        let skip = memory.as_ptr().align_offset(64).min(padded(1));
        Workspace {
            norm: vec![0.0; sizes.hidden],
            rstd: sizes.tokens.iter().map(|&t| vec![0.0; t]).collect(),
            states: sizes.tokens.iter().map(|&t| State::new(t)).collect(),
            first: vec![0; most],
            rope: Table::new(it.config.rope_theta, it.config.head_dim, it.config.rope_scaling, most),
            tile: Queue::default(),
            gradients: Queue::default(),
            slab: Slab { memory, skip, sizes },
        }
    }

    /// Forgets what an earlier sweep left.
    pub(crate) fn reset(&mut self) {
        (self.tile, self.gradients) = (Queue::default(), Queue::default());
        for state in &mut self.states {
            state.max.fill(f32::NEG_INFINITY);
            state.sum.fill(0.0);
            state.target.fill(0.0);
        }
    }
}

impl Slab {
    fn carve(&mut self) -> Carve<'_> {
        Carve::new(&mut self.memory[self.skip..])
    }

    pub(crate) fn layer(&mut self) -> LayerBuffers<'_> {
        let Sizes { layer, saved, scratch, .. } = self.sizes;
        let mut carve = self.carve();
        LayerBuffers {
            weights: carve.take(layer),
            gradients: carve.take(layer),
            saved: carve.take(saved),
            scratch: carve.take(scratch),
        }
    }

    pub(crate) fn head(&mut self) -> HeadBuffers<'_> {
        let Sizes { tile, norm_chunks, logits, boundary, .. } = self.sizes;
        let mut carve = self.carve();
        HeadBuffers {
            tile: carve.take(tile),
            gradients: carve.take(tile),
            norm_chunks: carve.take(norm_chunks),
            logits: carve.take(logits),
            boundary: carve.take(boundary),
        }
    }

    /// The buffer of one chunk.
    pub(crate) fn chunk(&mut self) -> &mut [f32] {
        let chunk = self.sizes.chunk;
        self.carve().take(chunk)
    }
}
