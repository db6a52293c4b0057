//! One sweep over all chunks of a model's state: the way that import, export and verification pass over the store.
//!
//! What it is not: a training schedule. Every chunk is accessed once, in order, with nothing computed between.
//!
//! Invariant: RAM in use is what the engine's arena has, plus what the caller holds for one chunk.

use crate::error::{Error, Part, Result};
use crate::layout::{Chunk, Layout};
use crate::model::Manifest;
use mt_engine::plan::{Budget, Residency, Shape, plan};
use mt_engine::{Engine, LinkRates, Mode, PlanError, Profile, RegionId, Resource, Schedule, Sweep, record_bytes};
use std::sync::Arc;

/// A store that is open, and what lies where in it.
#[derive(Clone, Copy)]
pub struct State<'a> {
    /// The store.
    pub engine: &'a Engine,
    /// The tensors.
    pub manifest: &'a Manifest,
    /// Their pages.
    pub layout: &'a Layout,
    /// The placement that the engine has adopted; empty if none.
    pub residency: &'a Residency,
    /// Bytes of the engine's arena, the store's own records included.
    pub host_bytes: u64,
    /// Whether the engine has volumes.
    pub has_disk: bool,
}

/// All chunks with their units, in the order of the sweeps.
pub fn chunks(manifest: &Manifest, layout: &Layout) -> Vec<(usize, Chunk)> {
    let of_unit = |unit| layout.chunks(manifest, unit).into_iter().map(move |chunk| (unit, chunk));
    (0..manifest.units.len()).flat_map(of_unit).collect()
}

/// Begins a sweep that accesses each of [`chunks`] in order: its runs in `regions`, in this order, with `mode`. The
/// caller takes all leases of a chunk, gives them back, and at the end calls `finish`.
///
/// # Errors
/// `DoesNotFit` if the arena does not hold the runs of one chunk beside what is placed; the engine's.
pub fn begin<'a>(state: &State<'a>, regions: &[RegionId], mode: Mode) -> Result<Sweep<'a>> {
    let mut schedule = Schedule::default();
    for (index, (_, chunk)) in chunks(state.manifest, state.layout).iter().enumerate() {
        let accesses = regions.iter().map(|region| schedule.access(chunk.run(*region), mode, index as u64)).collect();
        schedule.work(Resource::HostCompute, 0, accesses, index as u64);
    }
    let shape = Shape {
        regions: state.engine.regions(),
        sweeps_per_commit: 0,
        prefetch_intervals_max: None,
        has_disk: state.has_disk,
    };
    let host_bytes = state.host_bytes.saturating_sub(record_bytes(shape.regions));
    // What lives in VRAM is reached from RAM, so that nothing streams there.
    let devices = &state.residency.devices;
    let device_bytes = devices.iter().map(|it| (it.device, it.placed_bytes)).collect();
    let budget = Budget { host_bytes, device_bytes, disk_bytes: u64::MAX };
    let links = devices.iter().map(|it| LinkRates::assumed(it.device)).collect();
    let profile = Profile { links, ..Profile::default() };
    // The engine keeps what it has adopted: a sweep for one purpose must not decide on another placement.
    let entry = Residency { fixed: true, ..state.residency.settled() };
    let planned = plan(&Arc::new(schedule), &shape, &budget, &profile, &entry);
    let (plan, _) = planned.map_err(|e| match e {
        PlanError::DoesNotFit { need, have, .. } => {
            let hint = Some("give more RAM, or create the store with smaller pages".into());
            let what = "one chunk of the model in RAM".into();
            Error::DoesNotFit { part: Part::Ram, what, need_bytes: need, have_bytes: have, hint }
        }
        broken => unreachable!("a sweep over a layout's chunks is in order and within its regions: {broken}"),
    })?;
    Ok(state.engine.sweep(&Arc::new(plan), None)?)
}
