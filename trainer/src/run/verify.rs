//! Verification: every page of a run's last commit is read and compared with its checksum.

use super::folder::RunFolder;
use super::store;
use crate::error::Result;
use std::path::Path;
use std::time::Instant;

/// What a verification found.
#[derive(Clone, PartialEq, Debug)]
pub struct Verified {
    /// Step of the commit.
    pub step: u64,
    /// Pages that are what was committed.
    pub pages: u64,
    /// Bytes read for that. Pages that were never written read as zeros without I/O.
    pub bytes: u64,
    /// Seconds that it took.
    pub seconds: f64,
    /// A line for each page that is not what was committed.
    pub corrupt: Vec<String>,
    /// One line per thing the user should know.
    pub notices: Vec<String>,
}

/// Reads every page of the state. `progress` gets the pages done and all pages.
///
/// # Errors
/// A run that has no commit or is in use; I/O. Corrupt pages are no error here: they are in the result.
pub fn verify(run: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<Verified> {
    let folder = RunFolder::open_to_read(run)?;
    let reader = store::open(folder.path(), &folder.settings()?)?;
    let begin = Instant::now();
    let found = reader.engine.verify(progress)?;
    let seconds = begin.elapsed().as_secs_f64();
    reader.engine.close()?;
    let line = |page: &mt_engine::BadPage| match &page.error {
        error @ mt_engine::Error::Corrupt { .. } => error.to_string(),
        error => format!("page {} of region {} does not read: {error}", page.page, page.region),
    };
    Ok(Verified {
        step: reader.note.step,
        pages: found.pages,
        bytes: found.read_bytes,
        seconds,
        corrupt: found.bad.iter().map(line).collect(),
        notices: reader.notices,
    })
}
