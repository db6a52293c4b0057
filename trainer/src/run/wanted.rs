//! What a command must know of a run before it plans: where its pages would be, and the shapes that a profile of the
//! machine should have.

use super::{folder, inputs};
use crate::model::ModelConfig;
use crate::profile::probe::Wanted;
use crate::settings::Settings;
use std::path::{Path, PathBuf};

/// The shapes that a run with these settings computes on; None where its model does not read.
pub fn wanted(settings: &Settings) -> Option<Wanted> {
    Some(wanted_of(settings, &inputs::read_config(settings).ok()?))
}

/// As [`wanted`], of a run's folder: its stores, threads and shapes; as much of it as reads.
pub fn wanted_by_run(run: &Path) -> (Vec<PathBuf>, Option<u64>, Option<Wanted>) {
    let Ok(settings) = folder::settings(run) else { return (Vec::new(), None, None) };
    let model = inputs::kept_model(run, &settings).ok().flatten();
    let wanted = model.map(|model| wanted_of(&settings, &model.config));
    (folder::stores(run, &settings), Some(settings.threads), wanted)
}

fn wanted_of(settings: &Settings, config: &ModelConfig) -> Wanted {
    Wanted::new(config, inputs::micro_batch(settings) as usize, settings.seq_len as usize)
}

/// Where a run that is only planned would keep its pages.
pub fn planned_stores(settings: &Settings, run: Option<&Path>) -> Vec<PathBuf> {
    match settings.store.as_slice() {
        // Every run's folder of its own has the same file system above it.
        [] => vec![run.unwrap_or(Path::new("runs")).join("store")],
        stores => stores.to_vec(),
    }
}
