//! What a command must know of a run before it plans: where its pages would be, and the shapes that a profile of the
//! machine should have.

use super::{folder, inputs};
use crate::model::ModelConfig;
use crate::profile::probe::Wanted;
use crate::settings::{Device, Settings};
use std::path::{Path, PathBuf};

/// The shapes that a run with these settings computes on; None where its model does not read.
pub fn wanted(settings: &Settings) -> Option<Wanted> {
    Some(wanted_of(settings, &inputs::read_config(settings).ok()?))
}

/// What a run's folder says of the machine that it runs on; as much of it as reads.
pub struct WantedByRun {
    /// Folders of its store.
    pub stores: Vec<PathBuf>,
    /// CPU threads.
    pub threads: Option<u64>,
    /// As [`wanted`].
    pub wanted: Option<Wanted>,
    /// What computes.
    pub device: Device,
}

/// Looks it up.
pub fn wanted_by_run(run: &Path) -> WantedByRun {
    let Ok(settings) = folder::settings(run) else {
        return WantedByRun { stores: Vec::new(), threads: None, wanted: None, device: Device::Cpu };
    };
    let model = inputs::kept_model(run, &settings).ok().flatten();
    WantedByRun {
        stores: folder::stores(run, &settings),
        threads: Some(settings.threads),
        wanted: model.map(|model| wanted_of(&settings, &model.config)),
        device: settings.device,
    }
}

fn wanted_of(settings: &Settings, config: &ModelConfig) -> Wanted {
    let rows = inputs::micro_batch(settings).max(1);
    let micros = settings.batch.div_ceil(rows);
    Wanted::new(config, rows as usize, settings.seq_len as usize, micros as usize)
}

/// Where a run that is only planned would keep its pages.
pub fn planned_stores(settings: &Settings, run: Option<&Path>) -> Vec<PathBuf> {
    match settings.store.as_slice() {
        // Every run's folder of its own has the same file system above it.
        [] => vec![run.unwrap_or(Path::new("runs")).join("store")],
        stores => stores.to_vec(),
    }
}
