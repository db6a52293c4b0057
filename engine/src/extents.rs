//! Where a store's pages lie on its volumes, for tools that look at the same bytes: a benchmark that compares the
//! engine with another program on one file, or an inspection of the disk below it.

use crate::config::Config;
use crate::error::Error;
use crate::format::layout::{Extent, Side};
use crate::format::table::{SECOND, WRITTEN};
use crate::id::RegionId;
use crate::io::file::VolumeFile;
use crate::store::Store;
use std::path::PathBuf;

/// Consecutive bytes of a volume's file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileRange {
    /// The volume's file.
    pub path: PathBuf,
    /// Offset of the first byte, a multiple of 4,096.
    pub offset: u64,
    /// Number of bytes, a multiple of 4,096.
    pub bytes: u64,
}

/// The two halves of what a checkpointed region has on disk, each in the order of pages, neighbours joined.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Extents {
    /// Extents that the last commit refers to. Who changes a byte of them damages the store.
    pub committed: Vec<FileRange>,
    /// Extents that the next write-backs go to. Nothing that is committed refers to them.
    pub spare: Vec<FileRange>,
}

/// Finds the extents of a checkpointed region of a store that no process has open. They hold until the store's next
/// commit.
///
/// # Errors
/// As [`Engine::open`](crate::Engine::open); `Config` when the store has no checkpointed region of this name.
pub fn extents(volumes: &[PathBuf], region: &str) -> Result<Extents, Error> {
    let Store { claim: _claim, files, regions, layout, table, .. } = Store::open(&Config::new(volumes.to_vec(), 0))?;
    let checkpointed = |r: &crate::RegionSpec| r.name == region && r.kind == crate::Kind::Checkpointed;
    let Some(index) = regions.iter().position(checkpointed) else {
        return Err(Error::Config {
            what: format!("region: expected a checkpointed one of the store, found {region}"),
        });
    };
    let (id, page_bytes) = (RegionId(index as u32), u64::from(regions[index].page_bytes));
    let mut found = Extents::default();
    for page in 0..regions[index].pages {
        let entry = table[layout.global_page(id, page) as usize];
        let committed = if entry.flags & SECOND != 0 { Side::Second } else { Side::First };
        let spare = if entry.flags & WRITTEN != 0 {
            append(&mut found.committed, &files, layout.extent(id, page, committed), page_bytes);
            committed.other()
        } else {
            Side::First
        };
        append(&mut found.spare, &files, layout.extent(id, page, spare), page_bytes);
    }
    Ok(found)
}

fn append(ranges: &mut Vec<FileRange>, files: &[VolumeFile], extent: Extent, bytes: u64) {
    let path = files[usize::from(extent.volume)].path();
    match ranges.last_mut() {
        Some(last) if last.path == path && last.offset + last.bytes == extent.offset => last.bytes += bytes,
        _ => ranges.push(FileRange { path: path.to_path_buf(), offset: extent.offset, bytes }),
    }
}
