//! A store's files: made, opened and recognised. Plain reads and writes before any backend runs.
//!
//! `recover` reads what one volume holds, `volumes` fits several together, `share` decides how much each gets; this
//! file makes, opens and removes.
//!
//! A creation that did not finish leaves files without a committed superblock: empty, with the mark of an unfinished
//! creation, or with the superblock of one. It is no store yet, and a new creation may replace it. Anything else that
//! is there is never replaced.

use crate::config::{Config, DirectIo, RegionSpec};
use crate::error::Error;
use crate::format::checksum::page_checksum;
use crate::format::superblock::{SUPERBLOCK_AREA_BYTES, State};
use crate::format::unfinished::{MARK_OFFSET, mark};
use crate::format::{BLOCK, Entry, Layout, Stripes, Superblock, catalogue};
use crate::io::file::VolumeFile;
use crate::lock::Lock;
use claim::Claim;
use recover::Found;
use std::path::{Path, PathBuf};

mod claim;
pub(crate) mod recover;
pub(crate) mod renew;
mod share;
pub(crate) mod volumes;

/// Name of a volume's file.
const FILE_NAME: &str = "volume.mt";

/// An open store, before an engine runs on it.
pub(crate) struct Store {
    pub(crate) claim: Claim,
    /// In the order of the volumes, the lead first.
    pub(crate) files: Vec<VolumeFile>,
    /// The lead's.
    pub(crate) superblock: Superblock,
    pub(crate) regions: Vec<RegionSpec>,
    pub(crate) layout: Layout,
    pub(crate) table: Vec<Entry>,
    pub(crate) note: Vec<u8>,
}

impl Store {
    /// Makes a store: measures its volumes if there are several, reserves their space, writes catalogue and
    /// superblocks, syncs. The first directory becomes the lead. All of it goes again unless its claim is kept.
    pub(crate) fn create(config: &Config, regions: &[RegionSpec]) -> Result<Store, Error> {
        catalogue::check_all(regions).map_err(|what| Error::Config { what })?;
        let dirs = &config.volumes;
        let mut claim = Claim::default();
        for dir in dirs {
            claim.make(dir)?;
        }
        volumes::check_distinct(dirs)?;
        for dir in dirs {
            claim.lock(dir)?;
        }
        let found = dirs.iter().map(|dir| look(dir, false)).collect::<Result<Vec<_>, _>>()?;
        for dir in volumes::leftovers(dirs, &found)? {
            // A creation makes files, never links to some.
            let path = dir.join(FILE_NAME);
            check_file(&path, std::fs::symlink_metadata(&path))?;
            remove_file(dir)?;
        }
        let stripes = if dirs.len() < 2 { Stripes::single() } else { share::choose(config, regions)? };
        let layout = Layout::new(regions, &stripes);
        let superblock = blank(&layout, regions, uuid::Uuid::new_v4().into_bytes());
        let mut store = Store {
            claim,
            files: Vec::new(),
            superblock,
            regions: regions.to_vec(),
            layout,
            table: Vec::new(),
            note: Vec::new(),
        };
        for dir in dirs {
            store.claim.file(dir.join(FILE_NAME));
        }
        store.make_files(dirs, config.direct_io)?;
        Ok(store)
    }

    /// Marks and reserves everything, then writes: the lead's records before those of the others, so that a volume that
    /// names a store can be recognised by a lead that names it too.
    fn make_files(&mut self, dirs: &[PathBuf], direct: DirectIo) -> Result<(), Error> {
        for (dir, volume) in dirs.iter().zip(0..) {
            let file = VolumeFile::create(dir, FILE_NAME, direct)?;
            mark_unfinished(&file)?;
            file.reserve(0, self.layout.reserved_bytes(volume))?;
            self.files.push(file);
        }
        for (file, volume) in self.files.iter().zip(0..) {
            let superblock = Superblock { volume, ..self.superblock.clone() };
            write_first_records(file, &self.layout, &self.regions, &superblock)?;
        }
        Ok(())
    }

    /// Opens a store at its last commit. The directories may come in any order. Changes nothing.
    pub(crate) fn open(config: &Config) -> Result<Store, Error> {
        Store::check_dirs(config)?;
        let mut claim = Claim::default();
        for dir in &config.volumes {
            match config.read_only {
                true => claim.lock_to_read(dir)?,
                false => claim.lock(dir)?,
            }
        }
        Store::read(config, claim)
    }

    /// What a store holds now, without a lock: its owner may be at work. Records that are being replaced may not check.
    pub(crate) fn peek(config: &Config) -> Result<Store, Error> {
        Store::check_dirs(config)?;
        Store::read(config, Claim::default())
    }

    fn check_dirs(config: &Config) -> Result<(), Error> {
        let dirs = &config.volumes;
        if dirs.is_empty() {
            return Err(Error::Config { what: "volumes: expected at least one, found none".into() });
        }
        if let Some(dir) = dirs.iter().find(|dir| !dir.is_dir()) {
            return Err(Error::NoStore { path: dir.clone() });
        }
        volumes::check_distinct(dirs)
    }

    fn read(config: &Config, claim: Claim) -> Result<Store, Error> {
        let (dirs, is_read) = (&config.volumes, config.read_only);
        let found = dirs.iter().map(|dir| look(dir, is_read)).collect::<Result<Vec<_>, _>>()?;
        let (order, superblock) = volumes::arrange(dirs, &found)?;
        let open = |index: &usize| open_file(&dirs[*index], config.direct_io, is_read);
        let files = order.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        let recover::Recovered { regions, layout, table, note } = recover::recover(&files[0], &superblock)?;
        for (file, volume) in files.iter().zip(0..) {
            let (reserved, length) = (layout.reserved_bytes(volume), file.len()?);
            if length < reserved {
                let what = format!("the file is cut short: expected at least {reserved} bytes, found {length}");
                return Err(Error::Damaged { path: file.path().to_path_buf(), what });
            }
        }
        Ok(Store { claim, files, superblock, regions, layout, table, note })
    }

    /// What an open store needs before anything is changed in it: the commit it was opened at made durable once more,
    /// and the space of scratch given back until a plan needs it, since what an earlier process left there is void.
    pub(crate) fn take_over(&self) -> Result<(), Error> {
        renew::renew(&self.files[0], &self.superblock)?;
        for (file, volume) in self.files.iter().zip(0..) {
            let reserved = self.layout.reserved_bytes(volume);
            file.punch(reserved, self.layout.total_bytes(volume) - reserved)?;
        }
        Ok(())
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

/// Bytes on disk that a store of these regions reserves when it is created, over all its volumes.
pub fn reserved_bytes(regions: &[RegionSpec]) -> u64 {
    // Each volume beside the lead adds a few blocks that identify it.
    Layout::new(regions, &Stripes::single()).reserved_bytes(0)
}

/// Makes the file recognisable as one that a creation has begun, before it holds anything else.
pub(crate) fn mark_unfinished(target: &dyn recover::Target) -> Result<(), Error> {
    target.write_at(MARK_OFFSET, &mark())?;
    target.sync()
}

/// Writes the records of a volume of a store without a commit: catalogue, then superblocks, and the mark of the
/// unfinished creation goes only when these are durable.
pub(crate) fn write_first_records(
    target: &dyn recover::Target,
    layout: &Layout,
    regions: &[RegionSpec],
    superblock: &Superblock,
) -> Result<(), Error> {
    let records = first_records(layout, regions, superblock);
    let is_mark = |offset: u64| offset == MARK_OFFSET;
    let is_superblock = |offset: u64| offset < SUPERBLOCK_AREA_BYTES && !is_mark(offset);
    let is_other = |offset: u64| offset >= SUPERBLOCK_AREA_BYTES;
    let parts: [&dyn Fn(u64) -> bool; 3] = [&is_other, &is_superblock, &is_mark];
    for is_in in parts {
        for (offset, bytes) in records.iter().filter(|(offset, _)| is_in(*offset)) {
            target.write_at(*offset, bytes)?;
        }
        target.sync()?;
    }
    Ok(())
}

/// The records of a volume of a store without a commit: offset and bytes.
pub(crate) fn first_records(layout: &Layout, regions: &[RegionSpec], superblock: &Superblock) -> Vec<(u64, Vec<u8>)> {
    let mut block = vec![0; BLOCK as usize];
    superblock.encode(&mut block);
    let empty = vec![0; BLOCK as usize];
    let mut records = Vec::new();
    for copy in 0..2 {
        if superblock.volume == 0 {
            let mut catalogue = catalogue::encode(regions, layout.stripes());
            catalogue.resize(layout.catalogue_room as usize, 0);
            records.push((layout.catalogue_offset + copy * layout.catalogue_room, catalogue));
        }
        // Commit 0 goes to slot 0, so creation must not: a torn commit 0 leaves this one.
        records.push((Layout::superblock_offset(1, copy), block.clone()));
        records.push((Layout::superblock_offset(0, copy), empty.clone()));
    }
    records
}

/// The lead's superblock of a store without a commit.
pub(crate) fn blank(layout: &Layout, regions: &[RegionSpec], uuid: [u8; 16]) -> Superblock {
    let bytes = catalogue::encode(regions, layout.stripes());
    Superblock {
        uuid,
        volume: 0,
        volumes: layout.volumes(),
        state: State::Created,
        commit: 0,
        catalogue_bytes: layout.catalogue_bytes as u32,
        catalogue_checksum: page_checksum(&bytes),
        table_bytes: layout.table_bytes,
        table_checksum: 0,
        note_bytes: 0,
        note_checksum: 0,
        ledger: Default::default(),
    }
}

fn open_file(dir: &Path, direct: DirectIo, read_only: bool) -> Result<VolumeFile, Error> {
    let path = dir.join(FILE_NAME);
    check_file(&path, std::fs::metadata(&path))?;
    match read_only {
        true => VolumeFile::open_to_read(dir, FILE_NAME, direct),
        false => VolumeFile::open(dir, FILE_NAME, direct),
    }
}

fn look(dir: &Path, read_only: bool) -> Result<Found, Error> {
    match open_file(dir, DirectIo::Preferred, read_only) {
        Ok(file) => recover::look(&file),
        Err(Error::NoStore { .. }) => Ok(Found::Nothing),
        Err(error) => Err(error),
    }
}

/// Refuses what is not a file, where there is something: a pipe would be waited for, and a device looks empty.
fn check_file(path: &Path, data: std::io::Result<std::fs::Metadata>) -> Result<(), Error> {
    match data {
        Ok(data) if !data.is_file() => {
            let what = format!("expected a regular file, found something else ({:?})", data.file_type());
            Err(Error::Damaged { path: path.to_path_buf(), what })
        }
        _ => Ok(()),
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

#[cfg(test)]
mod tests;
