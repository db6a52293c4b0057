//! A store's files: made, opened and recognised. Plain reads and writes before any backend runs.
//!
//! A creation that did not finish leaves a file without a committed superblock: it is no store yet, and a new creation
//! may replace it. Anything else that is there is never replaced.

use crate::config::{Config, RegionSpec};
use crate::error::Error;
use crate::format::checksum::page_checksum;
use crate::format::superblock::{Reject, State};
use crate::format::{BLOCK, Entry, FORMAT_VERSION, Layout, Superblock, block_round_up, catalogue, table};
use crate::io::file::VolumeFile;
use crate::lock::Lock;
use std::path::{Path, PathBuf};

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

/// What a directory holds.
enum Found {
    Nothing,
    /// A file of ours without a commit.
    Unfinished,
    Store(Box<Superblock>),
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
        let layout = &self.layout;
        file.reserve(0, layout.reserved_bytes)?;
        let mut bytes = catalogue::encode(&self.regions);
        bytes.resize(layout.catalogue_room as usize, 0);
        for copy in 0..2 {
            file.write_at(layout.catalogue_offset + copy * layout.catalogue_room, &bytes)?;
        }
        let mut block = vec![0; BLOCK as usize];
        for copy in 0..2 {
            file.write_at(Layout::superblock_offset(1, copy), &block)?;
        }
        file.sync()?;
        self.superblock.encode(&mut block);
        for copy in 0..2 {
            file.write_at(Layout::superblock_offset(0, copy), &block)?;
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
        let regions = read_catalogue(&file, &superblock)?;
        let layout = Layout::new(&regions);
        let (table, note) = read_table(&file, &layout, &superblock)?;
        // Scratch of an earlier process is void; its space goes back until a plan needs it.
        file.punch(layout.reserved_bytes, layout.total_bytes - layout.reserved_bytes)?;
        Ok(Store { locks: vec![lock], files: vec![file], superblock, regions, layout, table, note })
    }
}

/// Removes the store's own files from its directories, which go too if nothing else is in them. Returns the bytes freed.
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

fn blank(layout: &Layout, regions: &[RegionSpec], uuid: [u8; 16]) -> Superblock {
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
    let path = dir.join(FILE_NAME);
    let file = match VolumeFile::open(dir, FILE_NAME, crate::config::DirectIo::Preferred) {
        Ok(file) => file,
        Err(Error::NoStore { .. }) => return Ok(Found::Nothing),
        Err(error) => return Err(error),
    };
    if file.len()? < 4 * BLOCK {
        return Ok(Found::Unfinished);
    }
    let mut area = vec![0; 4 * BLOCK as usize];
    file.read_at(0, &mut area)?;
    let found: Vec<_> = area.chunks(BLOCK as usize).map(Superblock::decode).collect();
    if let Some(found) = found.iter().find_map(|f| match f {
        Err(Reject::Newer { found }) => Some(*found),
        _ => None,
    }) {
        return Err(Error::Format { path, found, supported: FORMAT_VERSION });
    }
    let best = found.iter().flatten().max_by_key(|s| (s.state == State::Committed, s.commit));
    match best {
        Some(s) if s.volume != 0 || s.volumes != 1 => Err(Error::ForeignVolume {
            path: dir.to_path_buf(),
            what: format!("expected volume 0 of 1, found volume {} of {}", s.volume, s.volumes),
        }),
        Some(s) if s.state == State::Committed => Ok(Found::Store(Box::new(s.clone()))),
        Some(_) => Ok(Found::Unfinished),
        None if found.iter().all(|f| *f == Err(Reject::NotOurs)) && area.iter().all(|b| *b == 0) => {
            Ok(Found::Unfinished)
        }
        None => Err(Error::Damaged { path, what: "no superblock checks: it is not a store, or all copies are lost".into() }),
    }
}

fn read_catalogue(file: &VolumeFile, superblock: &Superblock) -> Result<Vec<RegionSpec>, Error> {
    let damaged = |what: String| Error::Damaged { path: file.path().to_path_buf(), what };
    let room = block_round_up(u64::from(superblock.catalogue_bytes));
    let mut why = String::new();
    for copy in 0..2 {
        let mut bytes = vec![0; room as usize];
        file.read_at(4 * BLOCK + copy * room, &mut bytes)?;
        bytes.truncate(superblock.catalogue_bytes as usize);
        if page_checksum(&bytes) != superblock.catalogue_checksum {
            why = format!("catalogue copy {copy}: the checksum does not match");
            continue;
        }
        return catalogue::decode(&bytes).map_err(damaged);
    }
    Err(damaged(why))
}

fn read_table(file: &VolumeFile, layout: &Layout, s: &Superblock) -> Result<(Vec<Entry>, Vec<u8>), Error> {
    let damaged = |what: String| Error::Damaged { path: file.path().to_path_buf(), what };
    if s.table_bytes != layout.table_bytes || u64::from(s.note_bytes) > crate::format::NOTE_BYTES_MAX {
        return Err(damaged(format!(
            "page table bytes: expected {}, found {}; note bytes: {}",
            layout.table_bytes, s.table_bytes, s.note_bytes
        )));
    }
    let slot = Superblock::slot(s.commit);
    let read = |offset, bytes: u64, checksum, name: &str| {
        let mut buffer = vec![0; block_round_up(bytes) as usize];
        file.read_at(offset, &mut buffer)?;
        buffer.truncate(bytes as usize);
        let found = page_checksum(&buffer);
        if found != checksum {
            return Err(damaged(format!("{name} of commit {}: checksum expected {checksum:016x}, found {found:016x}", s.commit)));
        }
        Ok(buffer)
    };
    let entries = read(layout.table_offset(slot), s.table_bytes, s.table_checksum, "page table")?;
    let note = read(layout.note_offset(slot), u64::from(s.note_bytes), s.note_checksum, "note")?;
    let table = table::decode(&entries).ok_or_else(|| damaged("page table: unknown flags".into()))?;
    Ok((table, note))
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
