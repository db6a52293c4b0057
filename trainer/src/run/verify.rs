//! Verification: every page of a run's last commit is read and compared with its checksum.

use super::folder::{self, RunFolder};
use super::store::{self, Reader};
use crate::checkpoint::stream;
use crate::error::Result;
use crate::layout::{Chunk, HI, LO, M, V};
use mt_engine::plan::{Budget, Residency, Shape, plan};
use mt_engine::{Mode, Profile, Resource, Schedule, record_bytes};
use std::path::Path;
use std::sync::Arc;

/// What a verification found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Verified {
    /// Step of the commit.
    pub step: u64,
    /// Pages compared.
    pub pages: u64,
    /// Bytes of these pages. Pages that were never written read as zeros without I/O.
    pub bytes: u64,
    /// A line for each part of the state that does not read, with the page.
    pub corrupt: Vec<String>,
}

/// Reads every page of the state. `progress` gets the pages done and all pages.
///
/// # Errors
/// A run that has no commit or is in use; I/O. Corrupt pages are no error here: they are in the result.
pub fn verify(run: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<Verified> {
    folder::require(run)?;
    let folder = RunFolder::open(run)?;
    let reader = store::open(folder.path(), &folder.settings()?)?;
    let chunks: Vec<Chunk> = stream::chunks(&reader.manifest, &reader.layout).into_iter().map(|(_, c)| c).collect();
    let all = 4 * chunks.iter().map(|chunk| u64::from(chunk.pages)).sum::<u64>();
    let page_elements = reader.layout.page_elements as u64;
    let mut found = Verified { step: reader.note.step, pages: 0, bytes: 0, corrupt: Vec::new() };
    let mut next = 0;
    while next < chunks.len() {
        // A sweep ends at a page that does not read; the next begins behind its chunk.
        next += sweep(&reader, &chunks[next..], &mut found, &mut |found| progress(found.pages, all))?;
    }
    found.bytes = found.pages / 4 * page_elements * 12;
    reader.engine.close()?;
    Ok(found)
}

/// Reads chunks until one is corrupt. Returns how many were looked at.
fn sweep(reader: &Reader, chunks: &[Chunk], found: &mut Verified, seen: &mut dyn FnMut(&Verified)) -> Result<usize> {
    let regions = [HI, LO, M, V];
    let mut schedule = Schedule::default();
    for chunk in chunks {
        for region in regions {
            let access = schedule.access(chunk.run(region), Mode::Read, 0);
            schedule.work(Resource::HostCompute, 0, vec![access], 0);
        }
    }
    let shape =
        Shape { regions: reader.engine.regions(), sweeps_per_commit: 0, prefetch_intervals_max: None, has_disk: true };
    let host_bytes = reader.arena - record_bytes(shape.regions);
    let budget = Budget { host_bytes, device_bytes: Vec::new(), disk_bytes: u64::MAX };
    let nothing_stays = Residency { fixed: true, ..Residency::default() };
    let planned = plan(&Arc::new(schedule), &shape, &budget, &Profile::default(), &nothing_stays);
    let (plan, _) = planned.expect("the arena of a reader holds chunks of its size");
    let sweep = reader.engine.sweep(&Arc::new(plan), None)?;
    for (index, chunk) in chunks.iter().enumerate() {
        for region in regions {
            match sweep.host(chunk.run(region)) {
                Ok(lease) => drop(lease),
                Err(error @ mt_engine::Error::Corrupt { .. }) => {
                    found.corrupt.push(error.to_string());
                    return Ok(index + 1);
                }
                Err(error) => return Err(error.into()),
            }
            found.pages += u64::from(chunk.pages);
        }
        seen(found);
    }
    sweep.finish()?;
    Ok(chunks.len())
}
