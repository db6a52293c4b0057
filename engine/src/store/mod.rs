//! A store's files: made, opened and recognised. Plain reads and writes before any backend runs.
//!
//! `recover` reads what is there; this file makes, opens and removes.
//!
//! A creation that did not finish leaves a file without a committed superblock: it is no store yet, and a new creation
//! may replace it. Anything else that is there is never replaced.

use crate::config::{Config, RegionSpec};
use crate::error::Error;
use crate::format::checksum::page_checksum;
use crate::format::superblock::State;
use crate::format::{BLOCK, Entry, Layout, Superblock, catalogue};
use crate::io::file::VolumeFile;
use crate::lock::Lock;
use recover::Found;
use std::path::{Path, PathBuf};

pub(crate) mod recover;

/// Name of a volume's file.
const FILE_NAME: &str = "volume.mt";

/// An open store, before an engine runs on it.
pub(crate) struct Store {
    pub(crate) locks: Vec<Lock>,
    pub(crate) files: Vec<VolumeFile>,
    pub(crate) superblock: Superblock,
    pub(crate) regions: Vec<RegionSpec>,
    pub(crate) layout: Layout,
    pub(crate) table: Vec<Entry>,
    pub(crate) note: Vec<u8>,
}

impl Store {
    /// Makes a store: reserves its space, writes catalogue and superblock, syncs.
    pub(crate) fn create(config: &Config, regions: &[RegionSpec]) -> Result<Store, Error> {
        check_regions(regions)?;
        let layout = Layout::new(regions);
        let mut store = Store {
            locks: Vec::new(),
            files: Vec::new(),
            superblock: blank(&layout, regions, uuid::Uuid::new_v4().into_bytes()),
            regions: regions.to_vec(),
            layout,
            table: Vec::new(),
            note: Vec::new(),
        };
        let Some(dir) = lead(config)? else {
            return Ok(store);
        };
        std::fs::create_dir_all(dir).map_err(|e| io_error("creating the directory", dir, e))?;
        store.locks.push(Lock::take(dir)?);
        match look(dir)? {
            Found::Nothing => {}
            Found::Unfinished => remove_file(dir)?,
            Found::Store(_) => return Err(Error::Exists { path: dir.to_path_buf() }),
        }
        match store.write_first_records(config, dir) {
            Ok(file) => store.files.push(file),
            Err(error) => {
                // The directory is as before; the reason is worth more than a failure to clean up.
                let _ = remove_file(dir);
                return Err(error);
            }
        }
        Ok(store)
    }

    fn write_first_records(&self, config: &Config, dir: &Path) -> Result<VolumeFile, Error> {
        let file = VolumeFile::create(dir, FILE_NAME, config.direct_io)?;
        file.reserve(0, self.layout.reserved_bytes)?;
        let records = first_records(&self.layout, &self.regions, &self.superblock);
        let (superblocks, others): (Vec<_>, Vec<_>) = records.into_iter().partition(|(offset, _)| *offset < 4 * BLOCK);
        // The superblocks last: until they are there the file is an unfinished creation.
        for (offset, bytes) in others {
            file.write_at(offset, &bytes)?;
        }
        file.sync()?;
        for (offset, bytes) in superblocks {
            file.write_at(offset, &bytes)?;
        }
        file.sync()?;
        Ok(file)
    }

    /// Opens a store at its last commit.
    pub(crate) fn open(config: &Config) -> Result<Store, Error> {
        let dir = lead(config)?.ok_or_else(|| Error::Config { what: "volumes: expected one, found none".into() })?;
        if !dir.is_dir() {
            return Err(Error::NoStore { path: dir.to_path_buf() });
        }
        let lock = Lock::take(dir)?;
        let superblock = match look(dir)? {
            Found::Nothing => return Err(Error::NoStore { path: dir.to_path_buf() }),
            Found::Unfinished => return Err(Error::NoCommit { path: dir.to_path_buf() }),
            Found::Store(superblock) => *superblock,
        };
        let file = VolumeFile::open(dir, FILE_NAME, config.direct_io)?;
        let recover::Recovered { regions, layout, table, note } = recover::recover(&file, &superblock)?;
        // Scratch of an earlier process is void; its space goes back until a plan needs it.
        file.punch(layout.reserved_bytes, layout.total_bytes - layout.reserved_bytes)?;
        Ok(Store { locks: vec![lock], files: vec![file], superblock, regions, layout, table, note })
    }
}

/// Removes the store's own files from its directories, which go too if nothing else is in them. Returns the bytes
/// freed.
///
/// # Errors
/// `Locked` while a process uses the store; `Io`.
pub fn remove(volumes: &[PathBuf]) -> Result<u64, Error> {
    let mut freed = 0;
    for dir in volumes.iter().filter(|dir| dir.is_dir()) {
        let lock = Lock::take(dir)?;
        let path = dir.join(FILE_NAME);
        if let Ok(data) = std::fs::metadata(&path) {
            freed += std::os::unix::fs::MetadataExt::blocks(&data) * 512;
            remove_file(dir)?;
        }
        drop(lock);
        // A directory that holds other files stays.
        let _ = std::fs::remove_dir(dir);
    }
    Ok(freed)
}

/// Bytes on disk that a store of these regions reserves when it is created.
pub fn reserved_bytes(regions: &[RegionSpec]) -> u64 {
    Layout::new(regions).reserved_bytes
}

fn lead(config: &Config) -> Result<Option<&Path>, Error> {
    match config.volumes.as_slice() {
        [] => Ok(None),
        [dir] => Ok(Some(dir)),
        more => Err(Error::Config { what: format!("volumes: expected at most one for now, found {}", more.len()) }),
    }
}

fn check_regions(regions: &[RegionSpec]) -> Result<(), Error> {
    let fail = |what: String| Err(Error::Config { what });
    if regions.is_empty() || regions.len() > catalogue::REGIONS_MAX {
        return fail(format!("regions: expected 1 to {}, found {}", catalogue::REGIONS_MAX, regions.len()));
    }
    for (index, region) in regions.iter().enumerate() {
        if let Err(what) = catalogue::check(region) {
            return fail(what);
        }
        if regions[..index].iter().any(|other| other.name == region.name) {
            return fail(format!("region names: expected to be unique, found {} twice", region.name));
        }
    }
    let pages: u64 = regions.iter().map(|r| u64::from(r.pages)).sum();
    if pages > u64::from(u32::MAX) / 16 {
        return fail(format!("pages of all regions: expected at most {}, found {pages}", u32::MAX / 16));
    }
    Ok(())
}

/// The records of a store without a commit: offset and bytes.
pub(crate) fn first_records(layout: &Layout, regions: &[RegionSpec], superblock: &Superblock) -> Vec<(u64, Vec<u8>)> {
    let mut catalogue = catalogue::encode(regions);
    catalogue.resize(layout.catalogue_room as usize, 0);
    let mut block = vec![0; BLOCK as usize];
    superblock.encode(&mut block);
    let empty = vec![0; BLOCK as usize];
    let mut records = Vec::new();
    for copy in 0..2 {
        records.push((layout.catalogue_offset + copy * layout.catalogue_room, catalogue.clone()));
        // Commit 0 goes to slot 0, so creation must not: a torn commit 0 leaves this one.
        records.push((Layout::superblock_offset(1, copy), block.clone()));
        records.push((Layout::superblock_offset(0, copy), empty.clone()));
    }
    records
}

pub(crate) fn blank(layout: &Layout, regions: &[RegionSpec], uuid: [u8; 16]) -> Superblock {
    let bytes = catalogue::encode(regions);
    Superblock {
        uuid,
        volume: 0,
        volumes: 1,
        state: State::Created,
        commit: 0,
        catalogue_bytes: layout.catalogue_bytes as u32,
        catalogue_checksum: page_checksum(&bytes),
        table_bytes: layout.table_bytes,
        table_checksum: 0,
        note_bytes: 0,
        note_checksum: 0,
        ledger_read_bytes: 0,
        ledger_write_bytes: 0,
    }
}

fn look(dir: &Path) -> Result<Found, Error> {
    match VolumeFile::open(dir, FILE_NAME, crate::config::DirectIo::Preferred) {
        Ok(file) => recover::look(&file),
        Err(Error::NoStore { .. }) => Ok(Found::Nothing),
        Err(error) => Err(error),
    }
}

fn remove_file(dir: &Path) -> Result<(), Error> {
    let path = dir.join(FILE_NAME);
    match std::fs::remove_file(&path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(io_error("removing", &path, e)),
        _ => Ok(()),
    }
}

fn io_error(doing: &'static str, path: &Path, e: std::io::Error) -> Error {
    Error::Io { doing, path: path.to_path_buf(), offset: 0, bytes: 0, source: std::sync::Arc::new(e) }
}
