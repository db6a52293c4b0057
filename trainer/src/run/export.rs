//! Export of a run's last commit as a model folder.

use super::folder::{self, RunFolder};
use super::inputs::source_record;
use super::store;
use crate::checkpoint::{self, ExportDtype, ExportReport, ExportRequest, State};
use crate::error::{Error, Result};
use mt_engine::plan::Residency;
use mt_kernels::Cpu;
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
    folder::require(run)?;
    require_new(&export.out)?;
    let folder = RunFolder::open(run)?;
    let settings = folder.settings()?;
    let reader = store::open(folder.path(), &settings)?;
    let state = State {
        engine: &reader.engine,
        manifest: &reader.manifest,
        layout: &reader.layout,
        residency: &Residency::default(),
        host_bytes: reader.arena,
        has_disk: true,
    };
    let request = ExportRequest {
        out: export.out.clone(),
        dtype: export.dtype,
        max_shard_bytes: Some(export.max_shard_bytes),
        carry_from: folder.model(),
    };
    let cpu = Cpu::new(settings.threads as usize);
    let record = source_record(folder.path())?;
    let mut report = checkpoint::export(&state, &reader.config, &record, &request, &cpu, progress)?;
    report.notices.splice(0..0, reader.notices);
    reader.engine.close()?;
    Ok((reader.note.step, report))
}

/// Refuses a folder for an export that has files in it.
pub(super) fn require_new(out: &Path) -> Result<()> {
    let free = match std::fs::read_dir(out) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    };
    match free {
        true => Ok(()),
        false => Err(Error::Input {
            place: out.display().to_string(),
            field: "export folder".to_owned(),
            expected: "a new folder, or an empty one".to_owned(),
            found: "something else".to_owned(),
            hint: Some("name a new folder".to_owned()),
        }),
    }
}
