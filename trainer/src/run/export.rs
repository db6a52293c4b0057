//! Export of a run's last commit as a model folder.

use super::folder::RunFolder;
use super::inputs::{self, source_record};
use super::store;
use crate::checkpoint::{self, ExportDtype, ExportReport, ExportRequest, OutFolder, State};
use crate::error::Result;
use crate::settings::Settings;
use mt_engine::plan::Residency;
use std::path::{Path, PathBuf};

/// Largest file of an export where the user does not say.
pub const MAX_SHARD_BYTES: u64 = 5_000_000_000;

/// What to export, and how.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Export {
    /// Folder to make.
    pub out: PathBuf,
    /// Number format.
    pub dtype: ExportDtype,
    /// Largest file.
    pub max_shard_bytes: u64,
}

/// Writes a run's last commit as a model folder. Gives the commit's step and what was written. `progress` gets the
/// bytes done and all bytes.
///
/// # Errors
/// A run that has no commit or is in use; a folder that is in the way; I/O.
pub fn export(run: &Path, export: &Export, progress: &mut dyn FnMut(u64, u64)) -> Result<(u64, ExportReport)> {
    let folder = RunFolder::open_to_read(run)?;
    export_of(&folder, &folder.settings()?, export, progress)
}

/// As [`export`], of a run that this process works on already.
pub(super) fn export_of(
    folder: &RunFolder,
    settings: &Settings,
    export: &Export,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(u64, ExportReport)> {
    let out = OutFolder::create(&export.out)?;
    let reader = store::open(folder.path(), settings)?;
    let state = State {
        engine: &reader.engine,
        manifest: &reader.manifest,
        layout: &reader.layout,
        residency: &Residency::default(),
        host_bytes: reader.arena,
        has_disk: true,
    };
    let request = ExportRequest {
        dtype: export.dtype,
        max_shard_bytes: Some(export.max_shard_bytes),
        carry_from: folder.model(),
    };
    let cpu = inputs::cpu(settings)?;
    let record = source_record(folder.path())?;
    let mut report = checkpoint::export(out, &state, &reader.config, &record, &request, &cpu, progress)?;
    report.notices.splice(0..0, reader.notices);
    reader.engine.close()?;
    Ok((reader.note.step, report))
}
