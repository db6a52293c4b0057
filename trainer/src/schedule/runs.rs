//! Runs of what passes between layers: the regions `act` and `dact`.
//!
//! `act` holds for each micro-batch: the input of every layer, the output of the last, and its norm (*boundaries*);
//! behind them what a layer's forward can keep for its backward, and the logits that the head can keep. The regions
//! have room for what is kept whether it is kept or not, so that a store does not depend on that choice; runs that no
//! schedule touches cost nothing. `dact` holds the gradient that passes down, one run a micro-batch.

use crate::block::{Dims, Level, Saved};
use crate::gpu::kept_bytes;
use crate::head::Tiles;
use crate::target::Target;
use mt_engine::{Kind, RegionId, RegionSpec, Run};

const PAGE_BYTES_MIN: usize = 4 << 10;
const PAGE_BYTES_MAX: usize = 1 << 20;

/// One kind of run for each micro-batch, `times` over.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Rows {
    /// First page of the first run.
    base: u32,
    /// Pages of each micro-batch's run, and the sum of those before it.
    pages: Vec<(u32, u32)>,
    /// Pages of all micro-batches.
    sum: u32,
    times: u32,
}

impl Rows {
    fn new(base: u32, page_bytes: usize, bytes: impl Iterator<Item = usize>, times: usize) -> Rows {
        let mut sum = 0;
        let pages = bytes
            .map(|bytes| {
                let pages = u32::try_from(bytes.div_ceil(page_bytes)).expect("a run has fewer than 2^32 pages");
                sum += pages;
                (pages, sum - pages)
            })
            .collect();
        Rows { base, pages, sum, times: u32::try_from(times).expect("fewer than 2^32 runs") }
    }

    fn end(&self) -> u32 {
        self.base + self.sum * self.times
    }

    fn run(&self, region: RegionId, index: usize, micro: usize) -> Run {
        let (count, before) = self.pages[micro];
        Run { region, first: self.base + self.sum * index as u32 + before, count }
    }
}

/// The runs of the regions `act` and `dact`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Activations {
    act: RegionId,
    dact: RegionId,
    page_bytes: u32,
    boundaries: Rows,
    saved: Rows,
    /// Pages of each micro-batch's run at each level.
    kept: Vec<[u32; Level::EACH.len()]>,
    logits: Rows,
    gradients: Rows,
    layers: usize,
}

impl Activations {
    /// Runs for micro-batches of the given tokens; `first_region` is the id of `act`.
    pub fn new(first_region: u32, dims: &Dims, layers: usize, tiles: &Tiles, tokens: &[usize]) -> Activations {
        Activations::on(Target::Cpu, first_region, dims, layers, tiles, tokens)
    }

    /// Whether they would be more pages than a region can have.
    pub fn are_too_many(target: Target, dims: &Dims, layers: usize, tiles: &Tiles, tokens: &[usize]) -> bool {
        let kept = |t: usize| match target {
            Target::Cpu => Saved::kept(dims, t, Level::All) * size_of::<f32>(),
            Target::Gpu(gpu) => kept_bytes(dims, t, gpu.precision, Level::All),
        };
        let element = target.element_bytes();
        let bytes = |t: &usize| {
            let (boundary, logits) = (t * dims.hidden * element, t * tiles.rows * element);
            (boundary * (layers + 2) + kept(*t) * layers + logits * tiles.count) as u64
        };
        // A run's last page may be nearly empty.
        let runs = (tokens.len() * (2 * layers + 2 + tiles.count)) as u64;
        let pages = tokens.iter().map(bytes).sum::<u64>() / page_bytes(target, dims, tokens) as u64 + runs;
        pages > u64::from(u32::MAX)
    }

    /// The same for what computes on them. They are not [too many](Activations::are_too_many).
    pub fn on(
        target: Target,
        first_region: u32,
        dims: &Dims,
        layers: usize,
        tiles: &Tiles,
        tokens: &[usize],
    ) -> Activations {
        let element = target.element_bytes();
        let boundary = |t: &usize| t * dims.hidden * element;
        let page_bytes = page_bytes(target, dims, tokens);
        let kept = |t: usize, level| match target {
            Target::Cpu => Saved::kept(dims, t, level) * size_of::<f32>(),
            Target::Gpu(gpu) => kept_bytes(dims, t, gpu.precision, level),
        };
        let pages = |bytes: usize| u32::try_from(bytes.div_ceil(page_bytes)).expect("a run has fewer than 2^32 pages");
        let saved = |t: &usize| kept(*t, Level::All);
        let kept = tokens.iter().map(|&t| Level::EACH.map(|level| pages(kept(t, level)))).collect();
        let logits = |t: &usize| t * tiles.rows * element;
        let boundaries = Rows::new(0, page_bytes, tokens.iter().map(boundary), layers + 2);
        let saved = Rows::new(boundaries.end(), page_bytes, tokens.iter().map(saved), layers);
        let logits = Rows::new(saved.end(), page_bytes, tokens.iter().map(logits), tiles.count);
        let gradients = Rows::new(0, page_bytes, tokens.iter().map(boundary), 1);
        let (act, dact) = (RegionId(first_region), RegionId(first_region + 1));
        Activations { act, dact, page_bytes: page_bytes as u32, boundaries, saved, kept, logits, gradients, layers }
    }

    /// Input of a layer; output of the last layer for `layer` = number of layers.
    pub fn boundary(&self, layer: usize, micro: usize) -> Run {
        self.boundaries.run(self.act, layer, micro)
    }

    /// Output of the final norm.
    pub fn normed(&self, micro: usize) -> Run {
        self.boundaries.run(self.act, self.layers + 1, micro)
    }

    /// What a layer's forward keeps at a level, if that is anything: the beginning of the room that there is for it.
    pub fn saved(&self, layer: usize, micro: usize, level: Level) -> Option<Run> {
        let count = self.kept[micro][level as usize];
        (count > 0).then(|| Run { count, ..self.saved.run(self.act, layer, micro) })
    }

    /// Bytes of a run.
    pub fn bytes(&self, run: Run) -> u64 {
        u64::from(self.page_bytes) * u64::from(run.count)
    }

    /// Logits of a vocabulary tile.
    pub fn logits(&self, tile: usize, micro: usize) -> Run {
        self.logits.run(self.act, tile, micro)
    }

    /// The gradient that passes down.
    pub fn gradient(&self, micro: usize) -> Run {
        self.gradients.run(self.dact, 0, micro)
    }

    /// The two regions, in the order of their ids.
    pub fn regions(&self) -> [RegionSpec; 2] {
        let region = |name: &str, pages| RegionSpec {
            name: name.to_owned(),
            page_bytes: self.page_bytes,
            pages,
            kind: Kind::Scratch,
        };
        [region("act", self.logits.end()), region("dact", self.gradients.end())]
    }
}

/// Small enough that a boundary wastes little, large enough that a run has few pages.
fn page_bytes(target: Target, dims: &Dims, tokens: &[usize]) -> usize {
    let largest = tokens.iter().max().unwrap_or(&0) * dims.hidden * target.element_bytes();
    ((largest / 8 + 1).next_power_of_two() / 2).clamp(PAGE_BYTES_MIN, PAGE_BYTES_MAX)
}
