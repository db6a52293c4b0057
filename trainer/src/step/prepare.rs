//! Everything that is decided before a run's first step. Pure.

use super::levels::{wear, written_bytes};
use super::prepared::{Prepared, Scheme, beside, page_bytes_on_disk, shape};
use super::refused::{self, Refused, does_not_fit, refusal};
use super::{Options, Shapes};
use crate::block::Dims;
use crate::error::{Error, Part, Result};
use crate::head::Tiles;
use crate::layout::Layout;
use crate::memory::workspace_bytes;
use crate::model::{Manifest, ModelConfig};
use crate::schedule::{Activations, Description, Kept, Program, UpdateOn, Writer};
use crate::settings::Recompute;
use crate::target::Target;
use mt_engine::plan::Planner;
use mt_engine::{Budget, Plan, PlanError, Prediction, RegionSpec, Residency, record_bytes, reserved_bytes};
use std::sync::Arc;

/// Elements of the largest chunk.
const CHUNK_ELEMENTS: usize = 1 << 20;
/// Half the chunk must be predicted to take at most this share of the time: the prediction leaves out what each
/// transfer costs the processor. SmolLM2-135M in 600 MiB took 1.27 times as long as in RAM with small chunks, 1.05 with
/// large ones.
const GAIN: f64 = 0.95;
/// A model is cut into about this many chunks at least, unless they would be smaller than [`CHUNK_ELEMENTS`]: the
/// schedule of a large model stays small, so that it is planned in tenths of a second. 120 G parameters in chunks of
/// 1 Mi elements are a million accesses.
const CHUNKS: u64 = 4_096;
/// Elements of the largest chunk of any model: 192 MiB of state, which a machine for such models has to spare.
const CHUNK_ELEMENTS_MAX: usize = 1 << 24;
/// Elements of a GPU's chunks, unless [`CHUNKS`] makes them larger: their planes are transfers of 8 and 16 MiB, at
/// which PCIe reaches its rate.
const GPU_CHUNK_ELEMENTS: usize = 1 << 22;
/// A placement that leaves this part of RAM to the window is planned too: where the disk binds in one phase and rests
/// in another, room to fetch ahead may be worth more time than what it would save bytes. So 120 G parameters on two
/// drives were slower in 224 GiB, which placement filled up, than in 112 GiB, which left the window 9 GiB by chance.
const ROOMY_SHARE: u64 = 8;
/// It moves more bytes, so it must take at most this share of the time.
const ROOMY_GAIN: f64 = 0.98;

/// Bytes of weights and moments a parameter.
pub(crate) const STATE_BYTES: usize = 12;

/// Chooses layout, levels and plan: chunk sizes from the largest (1 Mi elements, more for large models) down to a page,
/// as long as smaller ones are faster; then the levels that are fastest in chunks of that size.
///
/// # Errors
/// `DoesNotFit` with the bytes that the smallest way of working needs; `Input` for shapes or options that contradict
/// each other.
pub fn prepare(config: &ModelConfig, manifest: &Manifest, shapes: &Shapes, options: &Options) -> Result<Prepared> {
    Ok(prepare_or_refuse(config, manifest, shapes, options)?)
}

/// As [`prepare`], with a refusal that can be compared with another one's.
pub(crate) fn prepare_or_refuse(
    config: &ModelConfig,
    manifest: &Manifest,
    shapes: &Shapes,
    options: &Options,
) -> refused::Result<Prepared> {
    check(shapes, options)?;
    let inputs = Inputs { config, manifest, shapes, options };
    match options.recompute {
        Recompute::All => inputs.best(&inputs.nothing()).map(|prepared| inputs.with_updates(prepared)),
        Recompute::None => inputs.best(&inputs.everything()).map(|prepared| inputs.with_updates(prepared)),
        Recompute::Auto => Ok(inputs.with_levels(inputs.best(&inputs.nothing())?)),
    }
    .map(|prepared| inputs.with_finer_shares(prepared))
}

fn check(shapes: &Shapes, options: &Options) -> Result<()> {
    let sound = !shapes.micro_rows.is_empty()
        && shapes.micro_rows.iter().all(|rows| (1..=shapes.rows_per_micro).contains(rows))
        && shapes.seq >= 2;
    if !sound {
        let found = format!("rows {:?} of {} tokens", shapes.micro_rows, shapes.seq);
        return Err(Error::input("batch", "shapes", "micro-batches of at least one row of two tokens", found));
    }
    let page = options.page_elements.unwrap_or(crate::layout::PAGE_ELEMENTS_MIN);
    let range = crate::layout::PAGE_ELEMENTS_MIN..=crate::layout::PAGE_ELEMENTS_MAX;
    if !page.is_power_of_two() || !range.contains(&page) {
        return Err(Error::input("settings", "page", "a power of two from 2048 to 1048576", page.to_string()));
    }
    Ok(())
}

/// What is prepared for.
pub(super) struct Inputs<'a> {
    pub(super) config: &'a ModelConfig,
    pub(super) manifest: &'a Manifest,
    pub(super) shapes: &'a Shapes,
    pub(super) options: &'a Options,
}

impl Inputs<'_> {
    /// The best chunks where this is kept.
    ///
    /// What the processor updates lives in RAM or on disk, what the GPU updates may live in VRAM too: all updates are
    /// the GPU's where the processor's do not fit.
    pub(super) fn best(&self, kept: &Kept) -> refused::Result<Prepared> {
        let mut best: Option<Prepared> = None;
        let mut least: Option<Refused> = None;
        if let Target::Gpu(_) = self.options.target {
            let layout = Layout::new(self.manifest, self.options.page_elements, gpu_chunk(self.manifest));
            let with = |on| self.with_layout(layout.clone(), kept.clone(), vec![on; self.manifest.units.len()]);
            return with(UpdateOn::Cpu).or_else(|one| with(UpdateOn::Gpu).map_err(|other| one.nearer(other)));
        }
        let mut chunk = largest_chunk(self.manifest);
        loop {
            let layout = Layout::new(self.manifest, self.options.page_elements, chunk);
            let page = layout.page_elements;
            match self.with_layout(layout, kept.clone(), Vec::new()) {
                Ok(found) if best.as_ref().is_none_or(|b| found.prediction.seconds < GAIN * b.prediction.seconds) => {
                    best = Some(found);
                }
                Ok(_) => break,
                Err(refused) => {
                    least = Some(match least {
                        Some(known) => known.nearer(refused),
                        None => refused,
                    });
                }
            }
            let streams = best.as_ref().is_none_or(|b| b.steady.window_bytes > 0);
            if chunk <= page || !streams {
                break;
            }
            chunk /= 2;
        }
        best.ok_or_else(|| least.expect("without a plan there is a refusal"))
    }

    /// The plan with this layout that keeps this and updates there.
    pub(super) fn with_layout(&self, layout: Layout, kept: Kept, updates: Vec<UpdateOn>) -> refused::Result<Prepared> {
        let Inputs { config, manifest, shapes, options } = *self;
        let dims = Dims::new(config);
        let tiles = match options.target {
            Target::Cpu => Tiles::new(config.vocab, config.hidden),
            Target::Gpu(_) => Tiles::on_gpu(config.vocab, config.hidden),
        };
        let mut regions = layout.regions(options.durable);
        let tokens: Vec<usize> = shapes.micro_rows.iter().map(|rows| rows * shapes.seq).collect();
        let first = regions.len() as u32;
        if Activations::are_too_many(options.target, &dims, config.layers, &tiles, &tokens) {
            let found = format!("{} tokens", tokens.iter().sum::<usize>());
            return Err(Error::input("a step", "batch", "activations of fewer than 2^32 pages", found).into());
        }
        let activations = Activations::on(options.target, first, &dims, config.layers, &tiles, &tokens);
        regions.extend(activations.regions());
        let scheme = Scheme { activations, tiles, kept, updates, options: options.clone() };
        let description = scheme.describe(config, manifest, shapes, &layout);
        let steady_program = Writer::steady(description);
        let update_program = (!options.fused_backward).then(|| Writer::update_only(description));
        let workspace_bytes = workspace_bytes(&description, options.threads);
        let windows = Windows::beside_gpu(&description);
        let programs = (&steady_program, update_program.as_ref());
        let planned = planned(options, &regions, workspace_bytes, windows, programs)?;
        Ok(Prepared {
            layout,
            regions,
            steady: Arc::new(planned.steady),
            update_only: planned.update.map(Arc::new),
            prediction: planned.prediction,
            arena_bytes: planned.arena_bytes,
            is_roomy: planned.is_roomy,
            workspace_bytes,
            scheme,
            steady_program,
            update_program: update_program.unwrap_or_default(),
        })
    }
}

/// Elements of the largest chunk that is tried.
fn largest_chunk(manifest: &Manifest) -> usize {
    let wanted = usize::try_from(manifest.elements() / CHUNKS).unwrap_or(usize::MAX).max(1);
    (1 << wanted.ilog2()).clamp(CHUNK_ELEMENTS, CHUNK_ELEMENTS_MAX)
}

/// Elements of a chunk on a GPU: a function of the model alone.
fn gpu_chunk(manifest: &Manifest) -> usize {
    largest_chunk(manifest).max(GPU_CHUNK_ELEMENTS)
}

/// Bytes of windows that are wanted beyond what a step's plan asks for.
#[derive(Clone, Copy, Default)]
struct Windows {
    /// Of a GPU, with which the weights of a layer come while the one before is computed, and its gradients leave while
    /// the next is; or with which its state comes while it is computed itself, to be updated then.
    vram: u64,
    /// Of RAM, through which sweeps between steps (import, export) reach what lives in VRAM: two chunks of two planes.
    host: u64,
    /// Of RAM, with which a step's transfers from and to the disk run further ahead of the phase that needs them.
    streamed: u64,
}

impl Windows {
    fn beside_gpu(it: &Description<'_>) -> Windows {
        let Target::Gpu(gpu) = it.target() else { return Windows::default() };
        let largest = it.manifest.units.iter().map(|unit| unit.elements).max().unwrap_or(0);
        let layer = it.manifest.units.get(1).map_or(largest, |unit| unit.elements);
        let chunk = it.layout.chunk_pages as usize * it.layout.page_elements;
        // What comes and goes beside the weights: gradients, or the state that they are applied to.
        let beside = if it.applies_on_gpu() { STATE_BYTES } else { size_of::<f32>() };
        let vram = layer * (gpu.precision.bytes() + beside);
        Windows { vram: vram as u64, host: (4 * chunk * size_of::<f32>()) as u64, streamed: 0 }
    }
}

/// The budget of VRAM as the planner takes it.
fn device_bytes(options: &Options) -> Vec<(mt_engine::DeviceId, u64)> {
    options.target.gpu().map(|gpu| (gpu.device, options.vram_bytes)).into_iter().collect()
}

struct Planned {
    steady: Plan,
    update: Option<Plan>,
    prediction: Prediction,
    arena_bytes: u64,
    is_roomy: bool,
}

/// Plans both programs within the budget.
fn planned(
    options: &Options,
    regions: &[RegionSpec],
    workspace_bytes: u64,
    windows: Windows,
    (steady, update): (&Program, Option<&Program>),
) -> refused::Result<Planned> {
    let records = record_bytes(regions);
    // Without a budget, a fraction of all numbers: the planner adds to it.
    let budget_bytes = options.budget_bytes.unwrap_or(u64::MAX / 8);
    let in_ram = workspace_bytes + windows.host + records;
    let host_bytes = budget_bytes.saturating_sub(in_ram);
    // The planner counts pages; the store's records come on top.
    let records_on_disk = reserved_bytes(regions) - page_bytes_on_disk(regions);
    let disk_bytes = options.disk_bytes.saturating_sub(records_on_disk);
    let budget = Budget { host_bytes, device_bytes: device_bytes(options), disk_bytes };
    let shape = shape(regions, options);
    let profile = &options.rates.engine;
    let refused = |error: PlanError, budget: &Budget| {
        let Refused { error, missing_bytes } = refusal(&error, budget, in_ram, budget_bytes);
        let error = match *error {
            Error::DoesNotFit { part: Part::Disk, what, need_bytes, .. } => Error::DoesNotFit {
                part: Part::Disk,
                what,
                need_bytes: need_bytes + records_on_disk,
                have_bytes: options.disk_bytes,
                hint: None,
            },
            other => other,
        };
        Refused::new(error, missing_bytes)
    };
    let schedule = Arc::new(steady.schedule(true));
    let planner = Planner::new(&schedule, &shape, profile).map_err(|error| refused(error, &budget))?;
    let entry = with_window(&planner, &budget, windows).unwrap_or_default();
    let steady = planner.plan(&budget, &entry).or_else(|error| match entry.fixed {
        true => planner.plan(&budget, &Residency::default()),
        false => Err(error),
    });
    let mut steady = steady.map_err(|error| refused(error, &budget))?;
    let mut prediction = planner.predict(&steady);
    let mut is_roomy = false;
    if steady.window_bytes > 0 && (options.is_roomy || !options.is_rough) {
        let windows = Windows { streamed: host_bytes / ROOMY_SHARE, ..windows };
        let roomy = with_window(&planner, &budget, windows);
        let roomy = roomy.and_then(|entry| planner.plan(&budget, &entry).ok());
        let is_better = |roomy: &Prediction| {
            let unit = host_bytes / ROOMY_SHARE;
            let written = |it: &Prediction| written_bytes(it, options.sweeps_per_commit) + unit;
            roomy.seconds * wear(written(roomy), written(&prediction)) < ROOMY_GAIN * prediction.seconds
        };
        let roomy = roomy.map(|plan| (planner.predict(&plan), plan));
        if let Some(roomy) = roomy.filter(|(roomy, _)| is_better(roomy)) {
            (prediction, steady, is_roomy) = (roomy.0, roomy.1, true);
        }
    }
    let update = update.map(|program| {
        let schedule = Arc::new(program.schedule(false));
        let budget = Budget { device_bytes: beside(&steady, &schedule), ..budget.clone() };
        let planned = Planner::new(&schedule, &shape, profile);
        planned
            .and_then(|planner| planner.plan(&budget, &steady.exit.settled()))
            .map_err(|error| refused(error, &budget))
    });
    let update = update.transpose()?;
    // The engine wants room for its largest page, whatever the plans need.
    let page = regions.iter().map(|region| u64::from(region.page_bytes)).max().unwrap_or(0);
    let arena = [Some(&steady), update.as_ref()].into_iter().flatten().map(Plan::arena_bytes);
    let arena_bytes = arena.max().unwrap_or(0).max(page) + windows.host + records;
    if arena_bytes + workspace_bytes > budget_bytes {
        let need_bytes = arena_bytes + workspace_bytes;
        return Err(Refused::new(does_not_fit(need_bytes, budget_bytes), need_bytes - budget_bytes));
    }
    Ok(Planned { steady, update, prediction, arena_bytes, is_roomy })
}

/// A placement that leaves the windows these bytes beside what they need, if there is one: the planner fills VRAM and
/// RAM with what saves bytes, and knows nothing of what a window saves in time.
fn with_window(planner: &Planner<'_>, budget: &Budget, windows: Windows) -> Option<Residency> {
    let mut less = budget.clone();
    match budget.device_bytes.first() {
        Some(&(device, bytes)) => less = less.with_device(device, bytes.checked_sub(windows.vram)?),
        None if windows.streamed == 0 => return None,
        None => {}
    }
    less.host_bytes = less.host_bytes.checked_sub(windows.streamed)?;
    let roomy = planner.plan(&less, &Residency::default()).ok()?;
    Some(roomy.exit.settled())
}
