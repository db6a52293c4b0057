//! Reading a store's own records: newest superblock that checks, catalogue, page table, note.
//!
//! The newest commit counts, or an error: a store whose newest records are damaged is reported, never silently opened
//! at an older state.

use crate::config::RegionSpec;
use crate::error::Error;
use crate::format::checksum::page_checksum;
use crate::format::superblock::{Reject, State};
use crate::format::{
    BLOCK, Entry, FORMAT_VERSION, Layout, NOTE_BYTES_MAX, Stripes, Superblock, block_round_up, catalogue, table,
};
use crate::io::file::VolumeFile;
use std::path::Path;

/// Where records are read from: a volume's file, or an image of one in tests.
pub(crate) trait Source {
    /// For messages.
    fn path(&self) -> &Path;
    /// Size in bytes.
    fn len(&self) -> Result<u64, Error>;
    /// Fills `into`; offsets and lengths are whole blocks.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), Error>;
}

impl Source for VolumeFile {
    fn path(&self) -> &Path {
        VolumeFile::path(self)
    }

    fn len(&self) -> Result<u64, Error> {
        VolumeFile::len(self)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        VolumeFile::read_at(self, offset, into)
    }
}

/// What a directory holds.
pub(crate) enum Found {
    Nothing,
    /// A file of ours that no commit was written to: a creation that did not finish, or a volume other than the lead.
    /// With its superblock, if that was written.
    NoCommit(Option<Box<Superblock>>),
    /// The lead of a store.
    Store(Box<Superblock>),
}

/// What the records say.
pub(crate) struct Recovered {
    pub(crate) regions: Vec<RegionSpec>,
    pub(crate) layout: Layout,
    pub(crate) table: Vec<Entry>,
    pub(crate) note: Vec<u8>,
}

/// Reads everything that a superblock leads to.
pub(crate) fn recover(source: &dyn Source, superblock: &Superblock) -> Result<Recovered, Error> {
    let (regions, stripes) = read_catalogue(source, superblock)?;
    if stripes.volumes() != superblock.volumes {
        let what = format!("volumes: {} by the superblock, {} by the catalogue", superblock.volumes, stripes.volumes());
        return Err(Error::Damaged { path: source.path().to_path_buf(), what });
    }
    let layout = Layout::new(&regions, &stripes);
    let (table, note) = read_table(source, &layout, superblock)?;
    Ok(Recovered { regions, layout, table, note })
}

/// Finds the newest superblock that checks.
pub(crate) fn look(source: &dyn Source) -> Result<Found, Error> {
    let path = source.path().to_path_buf();
    if source.len()? < 4 * BLOCK {
        return Ok(Found::NoCommit(None));
    }
    let mut area = vec![0; 4 * BLOCK as usize];
    source.read_at(0, &mut area)?;
    let found: Vec<_> = area.chunks(BLOCK as usize).map(Superblock::decode).collect();
    if let Some(found) = found.iter().find_map(|f| match f {
        Err(Reject::Newer { found }) => Some(*found),
        _ => None,
    }) {
        return Err(Error::Format { path, found, supported: FORMAT_VERSION });
    }
    let best = found.iter().flatten().max_by_key(|s| (s.state == State::Committed, s.commit));
    match best {
        Some(s) if s.state == State::Committed => Ok(Found::Store(Box::new(s.clone()))),
        Some(s) => Ok(Found::NoCommit(Some(Box::new(s.clone())))),
        None if found.iter().all(|f| *f == Err(Reject::NotOurs)) && area.iter().all(|b| *b == 0) => {
            Ok(Found::NoCommit(None))
        }
        None => {
            Err(Error::Damaged { path, what: "no superblock checks: it is not a store, or all copies are lost".into() })
        }
    }
}

fn read_catalogue(source: &dyn Source, superblock: &Superblock) -> Result<(Vec<RegionSpec>, Stripes), Error> {
    let damaged = |what: String| Error::Damaged { path: source.path().to_path_buf(), what };
    let room = block_round_up(u64::from(superblock.catalogue_bytes));
    let mut why = String::new();
    for copy in 0..2 {
        let mut bytes = vec![0; room as usize];
        source.read_at(4 * BLOCK + copy * room, &mut bytes)?;
        bytes.truncate(superblock.catalogue_bytes as usize);
        if page_checksum(&bytes) != superblock.catalogue_checksum {
            why = format!("catalogue copy {copy}: the checksum does not match");
            continue;
        }
        return catalogue::decode(&bytes).map_err(damaged);
    }
    Err(damaged(why))
}

fn read_table(source: &dyn Source, layout: &Layout, s: &Superblock) -> Result<(Vec<Entry>, Vec<u8>), Error> {
    let damaged = |what: String| Error::Damaged { path: source.path().to_path_buf(), what };
    if s.table_bytes != layout.table_bytes || u64::from(s.note_bytes) > NOTE_BYTES_MAX {
        return Err(damaged(format!(
            "page table bytes: expected {}, found {}; note bytes: {}",
            layout.table_bytes, s.table_bytes, s.note_bytes
        )));
    }
    let slot = Superblock::slot(s.commit);
    let read = |offset, bytes: u64, checksum, name: &str| {
        let mut buffer = vec![0; block_round_up(bytes) as usize];
        source.read_at(offset, &mut buffer)?;
        buffer.truncate(bytes as usize);
        let found = page_checksum(&buffer);
        if found != checksum {
            return Err(damaged(format!(
                "{name} of commit {}: checksum expected {checksum:016x}, found {found:016x}",
                s.commit
            )));
        }
        Ok(buffer)
    };
    let entries = read(layout.table_offset(slot), s.table_bytes, s.table_checksum, "page table")?;
    let note = read(layout.note_offset(slot), u64::from(s.note_bytes), s.note_checksum, "note")?;
    let table = table::decode(&entries).ok_or_else(|| damaged("page table: unknown flags".into()))?;
    Ok((table, note))
}
