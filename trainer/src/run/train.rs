//! A new run.

use super::folder::RunFolder;
use super::inputs::{self, Model};
use super::observer::{Event, Observer, Summary};
use super::start::{Process, Start};
use crate::checkpoint::Source;
use crate::error::{Error, Result};
use crate::settings::{Durability, Settings};
use std::cell::OnceCell;
use std::path::{Path, PathBuf};

/// Trains: makes the run folder, imports, runs all steps or stops, commits.
///
/// A run that ends before its first step, for whatever reason, leaves nothing behind; but one that was stopped then can
/// be resumed. A run that has begun is never removed.
///
/// # Errors
/// Input that cannot be used, budgets that do not hold the run, I/O, numbers that are not finite; a stop before the
/// first step.
pub fn train(
    settings: &Settings,
    run: Option<&Path>,
    process: &Process,
    observer: &mut dyn Observer,
) -> Result<Summary> {
    let model = inputs::read_model(settings, Some(&process.command))?;
    // Headers alone are read here: a checkpoint that does not fit is refused before anything is made.
    let source = inputs::first_weights(settings, &model)?;
    inputs::check_stores(&settings.store)?;
    let folder = RunFolder::create(run, &model.name)?;
    let mut made = Vec::new();
    let result = go(settings, &folder, (model, source), process, &mut made, observer);
    let is_durable = settings.durability == Durability::Full;
    match result {
        Err(Error::Stopped { .. }) if is_durable => {
            Err(Error::Stopped { hint: Some(format!("resume: {}", folder.resume_command())) })
        }
        Err(error) if !folder.has_begun() => {
            folder.remove_unbegun(&made);
            Err(error)
        }
        result if is_durable => result,
        // Nothing of the store could be read again.
        result => {
            let removed = mt_engine::remove(&made);
            result.and_then(|summary| removed.map(|_| summary).map_err(Into::into))
        }
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
    let inputs = inputs::gather_new(folder, settings, model, observer)?;
    for warning in &inputs.data.report().warnings {
        observer.event(&Event::Notice(warning));
    }
    Start { folder, settings, inputs: &inputs, process, committed: None, record: None, gpu: OnceCell::new() }
        .run(made, observer)
}
