//! A new run.

use super::folder::RunFolder;
use super::inputs::{self, Model};
use super::observer::{Event, Observer, Summary};
use super::start::{Process, Start};
use crate::checkpoint::Source;
use crate::error::{Error, Result};
use crate::settings::{Durability, Settings};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Trains: makes the run folder, imports, runs all steps or stops, commits.
///
/// A run that ends before its first step because it is refused (exit codes 2 and 3), or because the disk is full,
/// leaves nothing behind.
///
/// # Errors
/// Input that cannot be used, budgets that do not hold the run, I/O, numbers that are not finite.
pub fn train(
    settings: &Settings,
    run: Option<&Path>,
    process: &Process,
    observer: &mut dyn Observer,
) -> Result<Summary> {
    let model = inputs::read_model(settings)?;
    // Headers alone are read here: a checkpoint that does not fit is refused before anything is made.
    let source = inputs::first_weights(settings, &model)?;
    let folder = RunFolder::create(run, &model.name)?;
    let mut made = Vec::new();
    let result = go(settings, &folder, (model, source), process, &mut made, observer);
    match &result {
        Err(error) if !folder.metrics().exists() && is_refusal(error) => folder.remove_refused(&made),
        // Nothing of the store could be read again.
        _ if settings.durability == Durability::None => {
            let removed = mt_engine::remove(&made);
            return result.and_then(|summary| removed.map(|_| summary).map_err(Into::into));
        }
        _ => {}
    }
    result
}

/// Whether there is nothing that a resume could go on with. Only for runs without a step: metrics are begun after the
/// import, and whatever fails from then on must leave the run alone.
fn is_refusal(error: &Error) -> bool {
    match error {
        Error::Io { source, .. } => matches!(source.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded),
        refusal => matches!(refusal.exit_code(), 2 | 3),
    }
}

fn go(
    settings: &Settings,
    folder: &RunFolder,
    (model, source): (Model, Source),
    process: &Process,
    made: &mut Vec<PathBuf>,
    observer: &mut dyn Observer,
) -> Result<Summary> {
    folder.write_settings(settings)?;
    inputs::keep_model(folder, settings, &model, &source)?;
    drop(source);
    let inputs = inputs::gather(folder, settings, model)?;
    for warning in &inputs.data.report().warnings {
        observer.event(&Event::Notice(warning));
    }
    Start { folder, settings, inputs: &inputs, process, committed: None }.run(made, observer)
}
