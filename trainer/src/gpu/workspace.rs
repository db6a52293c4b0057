//! Memory on a GPU beside the leases: one allocation, of a size that is worked out from shapes alone, so that a planner
//! needs no GPU.
//!
//! Embedding, layers and head never compute at the same time, so they share one slab; each cuts it its own way. What
//! must last from a forward to its backward, or from a step's beginning to its end, lies before the slab.

use super::carve::{Carve, Count, Take};
use super::queue::SLACK;
use super::scratch::{Rows, Scratch};
use super::{Precision, Tensors, rest_bytes};
use crate::block::Dims;
use crate::head::norm_chunks;
use crate::model::UnitKind;
use crate::schedule::Description;
use mt_kernels::cuda::{Buffer, Element, Error, Gpu, Queue, ViewMut, rmsnorm};
use mt_kernels::norm2::LEAF;

/// Sizes of everything, in elements where nothing else is said.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sizes {
    precision: Precision,
    /// Rows of each micro-batch.
    micro: Vec<Rows>,
    /// Elements of a layer's buffers.
    layer: usize,
    /// Bytes of what a layer's forward saves and its level does not keep, of the layer with most of it.
    saved_bytes: usize,
    /// Bytes of a layer's scratch.
    scratch_bytes: usize,
    /// A tile and a chunk, and what the queue of the tiles' gradients wants beside them.
    tile: usize,
    chunk: usize,
    /// Chunks that hold elements of the final norm.
    norm_chunks: usize,
    /// Logits of a tile, unless they are kept elsewhere.
    logits: usize,
    hidden: usize,
    half_head: usize,
    /// Different sliding windows among the layers, none being one of them.
    windows: usize,
    /// Leaves of the sums of squares of all units.
    leaves: usize,
    units: usize,
    /// Of gradients that are applied here, of the largest chunk; 0 where none are.
    applied: usize,
}

/// What outlives an operation.
pub(super) struct Lasting<K: Take> {
    /// Sum over the targets of the step.
    pub(super) loss: K::Part<f64>,
    /// Sums of squares of every leaf of the gradients, unit by unit.
    pub(super) leaves: K::Part<f64>,
    /// Of each unit the first element that an update refuses, or `u64::MAX`.
    pub(super) refused: K::Part<u64>,
    /// Cosines and sines of the rotations \[T, D/2].
    pub(super) cos: K::Part<f32>,
    pub(super) sin: K::Part<f32>,
    /// Weights of the final norm \[H], in the step's precision.
    pub(super) norm: K::Part<u8>,
    /// What is uploaded when a step begins: see [`super::input`].
    pub(super) input: K::Part<u32>,
    /// Gradients of a chunk in the order of its planes, to be applied.
    pub(super) applied: K::Part<f32>,
    /// Of one micro-batch.
    pub(super) tokens: Tokens<K>,
}

/// A micro-batch's numbers, one a token \[T].
pub(super) struct Tokens<K: Take> {
    /// The final norm's 1 / root mean square.
    pub(super) rstd: K::Part<f32>,
    /// The running log-sum-exp: see [`mt_kernels::cuda::cross_entropy::State`].
    pub(super) max: K::Part<f32>,
    pub(super) sum: K::Part<f32>,
    pub(super) target: K::Part<f32>,
}

/// The slab, cut for a layer.
pub(super) struct LayerBuffers<K: Take, R: Element> {
    /// Weights, as [`Tensors`] places them.
    pub(super) weights: K::Part<R>,
    /// Gradients, in the same places.
    pub(super) gradients: K::Part<f32>,
    /// Room for what the forward saves and the layer's level does not keep.
    pub(super) saved: K::Part<u8>,
    /// For [`Scratch`].
    pub(super) scratch: K::Part<u8>,
}

/// The slab, cut for the head.
pub(super) struct HeadBuffers<K: Take, R: Element> {
    /// Weights that arrived, a tile at the front.
    pub(super) tile: K::Part<R>,
    /// Gradients that did not leave yet.
    pub(super) gradients: K::Part<f32>,
    /// Gradients of the chunks that hold elements of the final norm.
    pub(super) norm_chunks: K::Part<f32>,
    /// Logits of a tile, where they are not kept elsewhere.
    pub(super) logits: K::Part<R>,
    /// Partial sums of the final norm's gradient.
    pub(super) partial: K::Part<f32>,
}

impl Sizes {
    /// What a model, its shapes and its layout need.
    pub fn new(it: &Description<'_>, precision: Precision) -> Sizes {
        let dims = Dims::new(it.config);
        let micro: Vec<Rows> = it.micro_rows.iter().map(|&rows| Rows { rows, seq: it.seq }).collect();
        let most = Rows { rows: it.micro_rows.iter().copied().max().unwrap_or(0), seq: it.seq };
        let tokens = most.tokens();
        let units = &it.manifest.units;
        let layer = units.iter().find(|unit| matches!(unit.kind, UnitKind::Layer(_)));
        let chunk = it.layout.chunk_pages as usize * it.layout.page_elements;
        let head = it.layout.chunks(it.manifest, units.len() - 1);
        let with_norm = &head[..norm_chunks(&head, it.config.hidden)];
        let levels = it.kept.layers.iter();
        Sizes {
            precision,
            layer: layer.map_or(0, |unit| Tensors::new(it.config, unit).elements()),
            saved_bytes: levels.map(|level| rest_bytes(&dims, tokens, precision, *level)).max().unwrap_or(0),
            scratch_bytes: match precision {
                Precision::Bf16 => Scratch::bytes::<u16>(&dims, most),
                Precision::Tf32 | Precision::Fp32 => Scratch::bytes::<f32>(&dims, most),
            },
            tile: it.tiles.elements_max() + chunk + SLACK,
            chunk,
            norm_chunks: with_norm.iter().map(|chunk| chunk.len).sum(),
            logits: if it.kept.logits { 0 } else { tokens * it.tiles.rows },
            hidden: it.config.hidden,
            half_head: it.config.head_dim / 2,
            windows: distinct(&it.config.windows).len(),
            leaves: units.iter().map(|unit| unit.elements.div_ceil(LEAF)).sum(),
            units: units.len(),
            applied: if it.applies_on_gpu() { chunk } else { 0 },
            micro,
        }
    }

    /// How numbers are computed.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// Rows of each micro-batch.
    pub(super) fn micro(&self) -> &[Rows] {
        &self.micro
    }

    /// Tokens of the largest micro-batch.
    fn most(&self) -> usize {
        self.micro.iter().map(Rows::tokens).max().unwrap_or(0)
    }

    /// Elements of what is uploaded at the beginning of a step: of each token its id, target and position, the first
    /// token it sees for each window, and the order of the ids, for which the worst case is that all differ.
    fn input(&self) -> usize {
        let all: usize = self.micro.iter().map(Rows::tokens).sum();
        (3 + self.windows + 3) * all + self.micro.len()
    }

    /// With the numbers of one micro-batch.
    fn lasting<K: Take>(&self, micro: usize, from: &mut K) -> Lasting<K> {
        let (loss, leaves, refused) = (from.take(1), from.take(self.leaves), from.take(self.units));
        let rotations = self.most() * self.half_head;
        let (cos, sin) = (from.take(rotations), from.take(rotations));
        let (norm, input) = (from.take(self.hidden * self.precision.bytes()), from.take(self.input()));
        let applied = from.take(self.applied);
        let mut asked = None;
        for (index, rows) in self.micro.iter().enumerate() {
            let n = rows.tokens();
            let it = Tokens { rstd: from.take(n), max: from.take(n), sum: from.take(n), target: from.take(n) };
            if index == micro {
                asked = Some(it);
            }
        }
        let tokens = asked.expect("the micro-batch is one of the step's");
        Lasting { loss, leaves, refused, cos, sin, norm, input, applied, tokens }
    }

    fn layer<K: Take, R: Element>(&self, from: &mut K) -> LayerBuffers<K, R> {
        LayerBuffers {
            weights: from.take(self.layer),
            gradients: from.take(self.layer),
            saved: from.take(self.saved_bytes),
            scratch: from.take(self.scratch_bytes),
        }
    }

    fn head<K: Take, R: Element>(&self, from: &mut K) -> HeadBuffers<K, R> {
        let most = self.most();
        HeadBuffers {
            tile: from.take(self.tile),
            gradients: from.take(self.tile),
            norm_chunks: from.take(self.norm_chunks),
            logits: from.take(self.logits),
            partial: from.take(rmsnorm::scratch_len(most, self.hidden)),
        }
    }

    fn lasting_bytes(&self) -> usize {
        let mut count = Count::default();
        self.lasting(0, &mut count);
        count.bytes
    }

    fn slab_bytes(&self) -> usize {
        fn of<R: Element>(sizes: &Sizes) -> usize {
            let (mut layer, mut head, mut chunk) = (Count::default(), Count::default(), Count::default());
            sizes.layer::<Count, R>(&mut layer);
            sizes.head::<Count, R>(&mut head);
            // A chunk of weights in forward, of gradients, which are wider or as wide, in backward.
            chunk.take::<f32>(sizes.chunk);
            layer.bytes.max(head.bytes).max(chunk.bytes)
        }
        match self.precision {
            Precision::Bf16 => of::<u16>(self),
            Precision::Tf32 | Precision::Fp32 => of::<f32>(self),
        }
    }

    /// Bytes of the one allocation.
    pub fn bytes(&self) -> usize {
        self.lasting_bytes() + self.slab_bytes()
    }

    /// Bytes of device memory that the computation takes beside its leases: the workspace, and what a queue of work has
    /// for matrix products.
    pub fn device_bytes(&self) -> usize {
        self.bytes() + Queue::WORKSPACE_BYTES
    }
}

/// The different windows of a model, in the order of their first layers.
pub(super) fn distinct(windows: &[Option<usize>]) -> Vec<Option<usize>> {
    let mut found = Vec::new();
    for window in windows {
        if !found.contains(window) {
            found.push(*window);
        }
    }
    found
}

/// The memory.
pub(super) struct Workspace {
    memory: Buffer<u8>,
    sizes: Sizes,
    lasting_bytes: usize,
}

impl Workspace {
    pub(super) fn new(gpu: &Gpu, sizes: Sizes) -> Result<Workspace, Error> {
        let memory = Buffer::new(gpu, sizes.bytes())?;
        let lasting_bytes = sizes.lasting_bytes();
        Ok(Workspace { memory, sizes, lasting_bytes })
    }

    pub(super) fn sizes(&self) -> &Sizes {
        &self.sizes
    }

    /// What lasts, with the numbers of one micro-batch, the slab, and the sizes that cut it.
    fn split(&mut self, micro: usize) -> (Lasting<Carve<'_>>, Carve<'_>, &Sizes) {
        let Workspace { memory, sizes, lasting_bytes } = self;
        let mut slab = memory.view_mut();
        let lasting = slab.take_front(*lasting_bytes);
        (sizes.lasting(micro, &mut Carve::new(lasting)), Carve::new(slab), sizes)
    }

    /// What lasts, with the numbers of one micro-batch.
    pub(super) fn lasting(&mut self, micro: usize) -> Lasting<Carve<'_>> {
        self.split(micro).0
    }

    /// For a layer.
    pub(super) fn layer<R: Element>(&mut self, micro: usize) -> (Lasting<Carve<'_>>, LayerBuffers<Carve<'_>, R>) {
        let (lasting, mut slab, sizes) = self.split(micro);
        (lasting, sizes.layer(&mut slab))
    }

    /// For the head.
    pub(super) fn head<R: Element>(&mut self, micro: usize) -> (Lasting<Carve<'_>>, HeadBuffers<Carve<'_>, R>) {
        let (lasting, mut slab, sizes) = self.split(micro);
        (lasting, sizes.head(&mut slab))
    }

    /// The buffer of one chunk, of weights or gradients.
    pub(super) fn chunk<T: Element>(&mut self, micro: usize) -> (Lasting<Carve<'_>>, ViewMut<'_, T>) {
        let (lasting, mut slab, sizes) = self.split(micro);
        (lasting, slab.take(sizes.chunk))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::Level;
    use crate::head::Tiles;
    use crate::layout::Layout;
    use crate::model::{Manifest, ModelConfig};
    use crate::profile::Rates;
    use crate::schedule::{Activations, Kept};
    use std::path::Path;

    /// Bytes for a named shape in micro-batches of `rows` rows of 1,024 tokens.
    fn bytes(name: &str, rows: &[usize], precision: Precision, level: Level, logits: bool) -> usize {
        let shape = crate::model::shapes::find(name).unwrap();
        let config = ModelConfig::parse(&shape.config_json(), Path::new(name)).unwrap();
        let manifest = Manifest::new(&config);
        let layout = Layout::new(&manifest, Some(1 << 20), 2 << 20);
        let tiles = Tiles::on_gpu(config.vocab, config.hidden);
        let tokens: Vec<usize> = rows.iter().map(|rows| rows * 1_024).collect();
        let activations = Activations::new(5, &Dims::new(&config), config.layers, &tiles, &tokens);
        let kept = Kept::uniform(config.layers, level, logits);
        let description = Description {
            config: &config,
            manifest: &manifest,
            layout: &layout,
            activations: &activations,
            tiles: &tiles,
            micro_rows: rows,
            seq: 1_024,
            kept: &kept,
            fused_backward: false,
            gpu: None,
            rates: &Rates::default(),
        };
        Sizes::new(&description, precision).bytes()
    }

    /// 8 B parameters, 8 rows: 218 M elements a layer with f32 gradients beside bf16 weights (1.31 GB), what the
    /// forward saves (8,192 tokens of 41,216 numbers, 0.68 GB), scratch (normed twice, three times the MLP's width,
    /// 0.84 GB); little else lasts.
    #[test]
    fn a_layer_is_what_takes_memory() {
        let found = bytes("8b", &[8], Precision::Bf16, Level::Input, false);
        let (layer, saved, scratch) = (218_112_000_usize * 6, 8_192 * 43_136 * 2, 8_192 * (2 * 4_096 + 3 * 14_336) * 2);
        let stated = layer + saved + scratch;
        assert!(found > stated && (found - stated) as f64 / (stated as f64) < 0.05, "{found} instead of {stated}");
    }

    #[test]
    fn what_is_kept_elsewhere_takes_no_room() {
        let [input, all] = [Level::Input, Level::All].map(|level| bytes("8b", &[8], Precision::Bf16, level, false));
        assert_eq!(input - all, rest_bytes(&dims("8b"), 8_192, Precision::Bf16, Level::Input));
        let kept = bytes("8b", &[8], Precision::Bf16, Level::All, true);
        assert!(kept <= all, "{kept} {all}");
    }

    fn dims(name: &str) -> Dims {
        let shape = crate::model::shapes::find(name).unwrap();
        Dims::new(&ModelConfig::parse(&shape.config_json(), Path::new(name)).unwrap())
    }

    /// Another micro-batch adds what lasts for its tokens, and no intermediates.
    #[test]
    fn micro_batches_share_the_slab() {
        let one = bytes("8b", &[4], Precision::Bf16, Level::Input, false);
        let two = bytes("8b", &[4, 4], Precision::Bf16, Level::Input, false);
        assert!(two > one && two - one < 1 << 20, "{one} {two}");
        assert!(bytes("8b", &[4], Precision::Fp32, Level::Input, false) > one);
    }
}
