//! Reading a store's own records: newest superblock that checks, catalogue, page table, note.
//!
//! The newest commit counts, or an error: a store whose newest records are damaged is reported, never silently opened
//! at an older state.

use crate::config::RegionSpec;
use crate::error::Error;
use crate::format::checksum::page_checksum;
use crate::format::superblock::{Reject, SUPERBLOCK_AREA_BYTES, State};
use crate::format::unfinished::{MARK_OFFSET, is_mark};
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

/// A source that is written to while a store is made or opened.
pub(crate) trait Target: Source {
    /// Writes `from`; offsets and lengths are whole blocks.
    fn write_at(&self, offset: u64, from: &[u8]) -> Result<(), Error>;
    /// Makes everything written durable.
    fn sync(&self) -> Result<(), Error>;
}

impl Target for VolumeFile {
    fn write_at(&self, offset: u64, from: &[u8]) -> Result<(), Error> {
        VolumeFile::write_at(self, offset, from)
    }

    fn sync(&self) -> Result<(), Error> {
        VolumeFile::sync(self)
    }
}

/// What a directory holds.
#[derive(Clone)]
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

/// Reads everything that a superblock leads to. Nothing is allocated that the size of the source does not justify.
pub(crate) fn recover(source: &dyn Source, superblock: &Superblock) -> Result<Recovered, Error> {
    let bytes = source.len()?;
    let (regions, stripes) = read_catalogue(source, superblock, bytes)?;
    if stripes.volumes() != superblock.volumes {
        let what = format!("volumes: {} by the superblock, {} by the catalogue", superblock.volumes, stripes.volumes());
        return Err(damaged(source, what));
    }
    let layout = Layout::new(&regions, &stripes);
    if layout.table_offset(2) > bytes {
        return Err(damaged(
            source,
            format!("{bytes} bytes are too few for the page tables of the catalogue's regions"),
        ));
    }
    let (table, note) = read_table(source, &layout, superblock)?;
    Ok(Recovered { regions, layout, table, note })
}

/// Finds the newest superblock that checks.
pub(crate) fn look(source: &dyn Source) -> Result<Found, Error> {
    let length = source.len()?;
    if length < SUPERBLOCK_AREA_BYTES {
        return match length == 0 || is_marked(source, length)? {
            true => Ok(Found::NoCommit(None)),
            false => {
                Err(damaged(source, format!("{length} bytes are too few for a store: it is none, or was cut off")))
            }
        };
    }
    let slots = [read_slot(source, 0), read_slot(source, 1)];
    let newest = slots.iter().flatten().flatten().max_by_key(|s| rank(s)).cloned();
    if let Some(s) = newest.as_ref().filter(|s| s.volume > 0) {
        // Only the lead's superblocks change: that of another volume counts, whatever the other slot is.
        return Ok(Found::NoCommit(Some(Box::new(s.clone()))));
    }
    // A slot of the lead that is not known may hold the newest of all.
    slots.into_iter().collect::<Result<Vec<_>, _>>()?;
    match newest {
        Some(s) if s.state == State::Committed => Ok(Found::Store(Box::new(s))),
        Some(s) => Ok(Found::NoCommit(Some(Box::new(s)))),
        None if is_marked(source, length)? => Ok(Found::NoCommit(None)),
        None => Err(damaged(source, "no superblock checks: it is not a store, or all copies are lost".to_string())),
    }
}

/// Whether the source begins with the mark of a creation that has not finished.
fn is_marked(source: &dyn Source, length: u64) -> Result<bool, Error> {
    let mut block = vec![0; BLOCK as usize];
    if length < MARK_OFFSET + BLOCK {
        return Ok(false);
    }
    source.read_at(MARK_OFFSET, &mut block)?;
    Ok(is_mark(&block))
}

fn rank(superblock: &Superblock) -> (bool, u64) {
    (superblock.state == State::Committed, superblock.commit)
}

fn damaged(source: &dyn Source, what: String) -> Error {
    Error::Damaged { path: source.path().to_path_buf(), what }
}

/// Reads a slot and its copy: one that checks is enough. If none does, but one does not read or was written by a newer
/// version, that is an error: it may be the newest of all.
fn read_slot(source: &dyn Source, slot: u64) -> Result<Option<Superblock>, Error> {
    let mut newest = None;
    let mut trouble = None;
    for copy in 0..2 {
        let mut block = vec![0; BLOCK as usize];
        if let Err(error) = source.read_at(Layout::superblock_offset(slot, copy), &mut block) {
            trouble.get_or_insert(error);
            continue;
        }
        match Superblock::decode(&block) {
            Ok(superblock) => newest = newest.into_iter().chain([superblock]).max_by_key(rank),
            Err(Reject::Newer { found }) => {
                trouble = Some(Error::Format { path: source.path().to_path_buf(), found, supported: FORMAT_VERSION });
            }
            Err(Reject::NotOurs | Reject::Damaged) => {}
        }
    }
    match trouble {
        Some(error) if newest.is_none() => Err(error),
        _ => Ok(newest),
    }
}

fn read_catalogue(
    source: &dyn Source,
    superblock: &Superblock,
    bytes: u64,
) -> Result<(Vec<RegionSpec>, Stripes), Error> {
    let room = block_round_up(u64::from(superblock.catalogue_bytes));
    if SUPERBLOCK_AREA_BYTES + 2 * room > bytes {
        return Err(damaged(source, format!("{bytes} bytes are too few for a catalogue of {room}")));
    }
    let mut trouble = None;
    for copy in 0..2 {
        let mut bytes = vec![0; room as usize];
        if let Err(error) = source.read_at(SUPERBLOCK_AREA_BYTES + copy * room, &mut bytes) {
            trouble.get_or_insert(error);
            continue;
        }
        bytes.truncate(superblock.catalogue_bytes as usize);
        if page_checksum(&bytes) == superblock.catalogue_checksum {
            return catalogue::decode(&bytes).map_err(|what| damaged(source, what));
        }
        trouble.get_or_insert(damaged(source, format!("catalogue copy {copy}: the checksum does not match")));
    }
    Err(trouble.expect("two copies were tried"))
}

fn read_table(source: &dyn Source, layout: &Layout, s: &Superblock) -> Result<(Vec<Entry>, Vec<u8>), Error> {
    let damaged = |what: String| damaged(source, what);
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

#[cfg(test)]
mod tests;
