//! What was decided before a run's first step, and what follows from it: where everything lives, what it costs.
//!
//! Not how it is decided: that is [`super::prepare`].

use super::levels::written_bytes;
use super::phase::{self, PhaseTime};
use super::phase_gpu;
use super::refused::refusal;
use super::{Options, Shapes};
use crate::error::Result;
use crate::head::Tiles;
use crate::layout::Layout;
use crate::model::{Manifest, ModelConfig};
use crate::profile::Rates;
use crate::schedule::{Activations, Description, Kept, OnGpu, Program, UpdateOn};
use crate::target::Target;
use mt_engine::plan::{DeviceShare, Interval, Shape, Timeline, plan, predict, timeline, timelines};
use mt_engine::{
    Budget, DeviceBackend, DeviceConfig, DeviceId, Kind, Node, Plan, Prediction, RegionSpec, Residency, Run, Schedule,
    Tier, record_bytes, reserved_bytes,
};
use std::sync::Arc;

/// Elements by which updates on the processor are ahead of a GPU where state streams: 1 GiB of them in the arena's
/// window, and no more than a layer.
const AHEAD_STREAMED: usize = 1 << 26;
/// The same where all is in RAM: 0.1 s of updates on 16 cores of a server, four times as long as an H200 was waited for
/// at most. All updates in front would keep the GPU waiting for its first work until all are handed over.
const AHEAD: usize = 1 << 29;
/// Layers whose gradients wait at once where the processor updates in backward: few where they take RAM from state that
/// streams (8 B parameters in 48 GiB beside one assumed drive: 1,033 tokens/s predicted with 2, 1,008 with 4, 963 with
/// 8), more where all is in RAM (7 B, 32 sequences of 1,024, an H200: 2.78 s a step with 4, 2.75 with 8).
const TURNS_STREAMED: usize = 3;
const TURNS: usize = 8;

/// The decisions of a run.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// Pages and chunks of the state.
    pub layout: Layout,
    /// Regions of the store: the state, then the scratch regions.
    pub regions: Vec<RegionSpec>,
    /// Plan of a step.
    pub steady: Arc<Plan>,
    /// Plan of a pending update alone; None with the fused-backward update.
    pub update_only: Option<Arc<Plan>>,
    /// Expected cost of a step.
    pub prediction: Prediction,
    /// Bytes of the engine's arena.
    pub arena_bytes: u64,
    /// RAM leaves room to the window that it could fill with pages.
    pub is_roomy: bool,
    /// Bytes of everything that a step allocates in RAM beside the arena.
    pub workspace_bytes: u64,
    pub(super) scheme: Scheme,
    pub(super) steady_program: Program,
    pub(super) update_program: Program,
}

/// Where a region's pages live.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Residence {
    /// Name of the region.
    pub region: String,
    /// Bytes that stay in VRAM.
    pub vram_bytes: u64,
    /// Bytes that stay in RAM.
    pub placed_bytes: u64,
    /// Bytes that pass through RAM.
    pub streamed_bytes: u64,
    /// Bytes on the volumes, copies included.
    pub disk_bytes: u64,
}

/// What programs are written from, beside model, shapes and layout.
#[derive(Clone, Debug)]
pub(super) struct Scheme {
    pub(super) activations: Activations,
    pub(super) tiles: Tiles,
    pub(super) kept: Kept,
    /// Where each unit's update runs.
    pub(super) updates: Vec<UpdateOn>,
    pub(super) options: Options,
}

impl Scheme {
    pub(super) fn describe<'a>(
        &'a self,
        config: &'a ModelConfig,
        manifest: &'a Manifest,
        shapes: &'a Shapes,
        layout: &'a Layout,
    ) -> Description<'a> {
        let layer = manifest.units[1].elements;
        let (ahead, turns) = match self.options.has_disk {
            true => (AHEAD_STREAMED.min(layer), TURNS_STREAMED),
            false => (AHEAD, TURNS),
        };
        Description {
            config,
            manifest,
            layout,
            activations: &self.activations,
            tiles: &self.tiles,
            micro_rows: &shapes.micro_rows,
            seq: shapes.seq,
            kept: &self.kept,
            fused_backward: self.options.fused_backward,
            gpu: self.options.target.gpu().map(|gpu| OnGpu { gpu, updates: &self.updates, ahead, turns }),
            rates: &self.options.rates,
        }
    }
}

impl Prepared {
    /// Expected cost of a pending update alone. Simulated whenever somebody asks: no choice depends on it.
    pub fn update_prediction(&self) -> Option<Prediction> {
        let options = &self.scheme.options;
        let plan = self.update_only.as_ref()?;
        Some(predict(plan, &shape(&self.regions, options), &options.rates.engine))
    }

    /// Bytes that a step writes, with its share of a commit.
    pub(super) fn written_bytes(&self) -> u64 {
        written_bytes(&self.prediction, self.scheme.options.sweeps_per_commit)
    }

    /// Seconds of a step with this very plan where transfers have other rates. Computation takes the time that it does
    /// here.
    pub fn seconds_with_rates(&self, rates: &Rates) -> f64 {
        predict(&self.steady, &shape(&self.regions, &self.scheme.options), &rates.engine).seconds
    }

    /// What is kept between forward and backward.
    pub fn kept(&self) -> &Kept {
        &self.scheme.kept
    }

    /// The placement that every sweep over the store keeps.
    pub fn residency(&self) -> &Residency {
        &self.steady.exit
    }

    /// Scratch runs that need space on disk.
    pub fn spilled(&self) -> &[Run] {
        &self.steady.spilled
    }

    /// Bytes that the store takes on its volumes.
    pub fn store_bytes(&self) -> u64 {
        let of_run = |run: &Run| u64::from(self.regions[run.region.0 as usize].page_bytes) * u64::from(run.count);
        reserved_bytes(&self.regions) + self.spilled().iter().map(of_run).sum::<u64>()
    }

    /// Where the pages that a step touches live, region by region.
    pub fn residence(&self) -> Vec<Residence> {
        let mut parts: Vec<Residence> = self
            .regions
            .iter()
            .map(|region| Residence {
                region: region.name.clone(),
                vram_bytes: 0,
                placed_bytes: 0,
                streamed_bytes: 0,
                disk_bytes: page_bytes_on_disk(std::slice::from_ref(region)),
            })
            .collect();
        let mut runs: Vec<(Run, u64, Tier)> =
            self.steady.intervals.iter().map(|i| (i.run, i.bytes, i.home.tier())).collect();
        runs.sort_unstable();
        runs.dedup();
        for (run, bytes, home) in runs {
            let (index, part) = (run.region.0 as usize, &mut parts[run.region.0 as usize]);
            match home {
                Tier::Device(_) => part.vram_bytes += bytes,
                Tier::Host => part.placed_bytes += bytes,
                Tier::Disk => {
                    part.streamed_bytes += bytes;
                    part.disk_bytes += if self.regions[index].kind == Kind::Scratch { bytes } else { 0 };
                }
            }
        }
        parts
    }

    /// Bytes that activations which stream read and write in a step.
    pub fn activation_traffic(&self) -> (u64, u64) {
        let first = self.regions.iter().position(|region| region.name == "act").unwrap_or(self.regions.len());
        let of_activations = |i: &&Interval| i.run.region.0 as usize >= first;
        let (mut read, mut written) = (0, 0);
        for interval in self.steady.intervals.iter().filter(of_activations) {
            read += if interval.reads_disk() { interval.bytes } else { 0 };
            written += if interval.writes_disk() { interval.bytes } else { 0 };
        }
        (read, written)
    }

    /// When each node of a step's schedule and each transfer begins and ends, predicted.
    pub(super) fn timeline(&self) -> Timeline {
        let options = &self.scheme.options;
        timeline(&self.steady, &shape(&self.regions, options), &options.rates.engine)
    }

    /// The GPU's part of the plan.
    pub fn device(&self) -> Option<&DeviceShare> {
        self.steady.devices.first()
    }

    /// What the engine must have of each GPU.
    pub fn devices(&self) -> Vec<DeviceConfig> {
        let config = |share: &DeviceShare| DeviceConfig {
            id: share.device,
            bytes: share.allocation().next_multiple_of(4_096),
            backend: DeviceBackend::Cuda,
        };
        self.steady.devices.iter().map(config).collect()
    }

    /// Elements of the units whose update runs on the GPU.
    pub fn updated_on_gpu(&self, manifest: &Manifest) -> u64 {
        let units = manifest.units.iter().zip(&self.scheme.updates);
        units.filter(|(_, on)| **on == UpdateOn::Gpu).map(|(unit, _)| unit.elements as u64).sum()
    }

    /// Seconds of a step by phase, predicted.
    pub fn phases(&self) -> Vec<PhaseTime> {
        let (options, program, plan) = (&self.scheme.options, &self.steady_program, &self.steady);
        let profile = &options.rates.engine;
        let times = |timeline: &Timeline| match options.target {
            Target::Cpu => phase::times(program, plan, timeline, profile),
            Target::Gpu(gpu) => phase_gpu::times(program, plan, timeline, &self.prediction, gpu.device),
        };
        let sweeps = timelines(plan, &shape(&self.regions, options), profile);
        let sweeps: Vec<_> = sweeps.iter().map(|(like_it, timeline)| (*like_it, times(timeline))).collect();
        let mut phases = phase::mean(&sweeps);
        phase::scale(&mut phases, &self.prediction);
        phases
    }

    /// Seconds of a step where a commit begins in every `every`th of them; 0: without commits. With the placement that
    /// this plan has.
    pub fn seconds_with_commits(&self, every: u32) -> f64 {
        let options = &self.scheme.options;
        let shape = Shape { sweeps_per_commit: every, ..shape(&self.regions, options) };
        predict(&self.steady, &shape, &options.rates.engine).seconds
    }

    /// Seconds that a commit adds to a run whose commits lie far apart, where a step without any takes `plain` seconds.
    pub fn commit_seconds(&self, plain: f64) -> f64 {
        const FAR_APART: u32 = 1_000;
        let more = self.seconds_with_commits(FAR_APART) - plain;
        f64::from(FAR_APART) * more.max(0.0)
    }

    /// A plan for another sweep over the same store, within the arena and with the placement of the steps.
    pub(super) fn plan_another(&self, schedule: Schedule) -> Result<Arc<Plan>> {
        let options = &self.scheme.options;
        let shape = shape(&self.regions, options);
        let host_bytes = self.arena_bytes - record_bytes(&self.regions);
        // The store's space was judged when the steps were planned.
        let budget = Budget { host_bytes, device_bytes: beside(&self.steady, &schedule), disk_bytes: u64::MAX };
        let entry = self.steady.exit.settled();
        let planned = plan(&Arc::new(schedule), &shape, &budget, &options.rates.engine, &entry);
        let (plan, _) = planned.map_err(|error| refusal(&error, &budget, 0, host_bytes))?;
        Ok(Arc::new(plan))
    }
}

/// The VRAM for another sweep over the store of a plan: its pages have the same allocation, and its work comes on top.
pub(super) fn beside(steady: &Plan, schedule: &Schedule) -> Vec<(DeviceId, u64)> {
    let work = schedule.nodes.iter().map(|node| match node {
        Node::Work { device_bytes, .. } => *device_bytes,
        _ => 0,
    });
    let work = work.max().unwrap_or(0);
    steady.devices.iter().map(|share| (share.device, share.allocation() + work)).collect()
}

/// Bytes of all pages that a store keeps from its creation on.
pub(super) fn page_bytes_on_disk(regions: &[RegionSpec]) -> u64 {
    regions.iter().filter(|region| region.kind == Kind::Checkpointed).map(|region| 2 * region.bytes()).sum()
}

/// What the engine is told of a run's regions.
pub(super) fn shape<'a>(regions: &'a [RegionSpec], options: &Options) -> Shape<'a> {
    Shape {
        regions,
        sweeps_per_commit: options.sweeps_per_commit,
        prefetch_intervals_max: options.prefetch_intervals_max,
        has_disk: options.has_disk,
    }
}
