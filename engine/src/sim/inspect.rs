//! What a disk holds, judged without an engine: records as at an open, then every page against the oracle.

use super::oracle::{Oracle, Saved, compare};
use super::report::{Broken, Check};
use super::work::Store;
use crate::config::Kind;
use crate::error::Error;
use crate::format::checksum::page_checksum;
use crate::format::layout::Side;
use crate::format::superblock::SUPERBLOCK_AREA_BYTES;
use crate::format::table::{SECOND, WRITTEN};
use crate::format::{BLOCK, Entry, Layout, Superblock};
use crate::id::{RegionId, Run};
use crate::io::memory::disk::Remains;
use crate::store::recover::{Found, Recovered, Source, look, recover};
use crate::store::volumes::{arrange, leftovers};
use std::io::{Error as IoError, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The volume that holds the store's records.
pub(super) const LEAD: u16 = 0;

/// What a disk holds.
pub(super) enum Held {
    /// No store, or one without a commit.
    NoCommit,
    /// The state of a commit.
    At(Box<Superblock>, Vec<Entry>),
    /// Records that are damaged beyond their copies; the damage is real and the error says so.
    Damaged,
}

/// What the volumes are called.
pub(super) fn path(volume: u16) -> &'static Path {
    Path::new(["volume 0", "volume 1", "volume 2"][usize::from(volume)])
}

/// A volume of a disk as a source of records.
pub(super) struct View<'a> {
    disk: Remains<'a>,
    volume: u16,
}

impl<'a> View<'a> {
    pub(super) fn new(disk: Remains<'a>, volume: u16) -> View<'a> {
        View { disk, volume }
    }
}

impl Source for View<'_> {
    fn path(&self) -> &Path {
        path(self.volume)
    }

    /// Until the mark of an unfinished creation is there a file is empty: it does not grow before.
    fn len(&self) -> Result<u64, Error> {
        let bytes = self.disk.volume(self.volume);
        let is_empty = bytes[..SUPERBLOCK_AREA_BYTES as usize].iter().all(|byte| *byte == 0);
        Ok(if is_empty { 0 } else { bytes.len() as u64 })
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        let live = self.disk.volume(self.volume);
        let is_inside = offset + into.len() as u64 <= live.len() as u64;
        if !is_inside || self.disk.is_bad(self.volume, offset, into.len()) {
            let kind = if is_inside { ErrorKind::Other } else { ErrorKind::UnexpectedEof };
            let (path, source) = (self.path().into(), Arc::new(IoError::new(kind, "simulated")));
            return Err(Error::Io { doing: "reading", path, offset, bytes: into.len() as u64, source });
        }
        into.copy_from_slice(&live[offset as usize..][..into.len()]);
        Ok(())
    }
}

/// What each volume is found to be, or the first volume of which that cannot be said.
fn look_at_all(disk: Remains<'_>, volumes: &[u16]) -> Result<Vec<Found>, (u16, Error)> {
    let look_at = |volume: &u16| look(&View::new(disk, *volume)).map_err(|error| (*volume, error));
    volumes.iter().map(look_at).collect()
}

fn paths(volumes: &[u16]) -> Vec<PathBuf> {
    volumes.iter().map(|volume| path(*volume).to_path_buf()).collect()
}

/// Opens what the disk holds, and compares it with what may be there.
pub(super) fn inspect(store: &Store, oracle: &Oracle, disk: Remains<'_>) -> Result<Held, Broken> {
    let is_hit = |volume: u16, at: u64, bytes: u64| {
        disk.is_suspect(volume, at, bytes as usize) || disk.is_bad(volume, at, bytes as usize)
    };
    let broken = |what: String| Err(Broken::new(Check::Recovery, what));
    let count = store.layout.volumes();
    // Directories may be given in any order.
    let first = oracle.acknowledged.as_ref().map_or(0, |saved| (saved.commit % u64::from(count)) as u16);
    let given: Vec<u16> = (0..count).map(|n| (n + first) % count).collect();
    let found = match look_at_all(disk, &given) {
        Ok(found) => found,
        // What an unreadable sector holds beside a copy that a crash tore may be the newest commit: opening must
        // refuse.
        Err((LEAD, Error::Io { .. })) if (0..2).any(|slot| is_unknowable(disk, slot)) => return Ok(Held::Damaged),
        // Copies are spared, so otherwise only a store that never was can be beyond recognition.
        Err((volume, _)) if oracle.acknowledged.is_none() && is_hit(volume, 0, 4 * BLOCK) => return Ok(Held::Damaged),
        Err((_, error)) => return broken(format!("the superblocks do not read: {error}")),
    };
    let dirs = paths(&given);
    let superblock = match arrange(&dirs, &found) {
        Ok((order, superblock)) if order.iter().map(|index| given[*index]).eq(0..count) => superblock,
        Ok((order, _)) => return broken(format!("volumes {given:?} are taken in the order {order:?}")),
        Err(Error::NoCommit { .. } | Error::NoStore { .. }) if oracle.acknowledged.is_none() => {
            return match leftovers(&dirs, &found) {
                Ok(_) => Ok(Held::NoCommit),
                Err(error) => broken(format!("an unfinished creation is not recognised: {error}")),
            };
        }
        Err(Error::NoCommit { .. } | Error::NoStore { .. }) => {
            return broken("a commit was acknowledged, and the store has none".into());
        }
        Err(error) => return broken(format!("the volumes do not fit together: {error}")),
    };
    let Some(saved) = oracle.allowed(superblock.commit) else {
        let (last, next) = (&oracle.acknowledged, &oracle.begun);
        let [last, next] = [last, next].map(|saved| saved.as_ref().map(|saved| saved.commit));
        return broken(format!("found commit {}, acknowledged {last:?}, being made {next:?}", superblock.commit));
    };
    let slot = Superblock::slot(superblock.commit);
    let table_at = store.layout.table_offset(slot);
    let recovered = match recover(&View::new(disk, LEAD), &superblock) {
        Ok(recovered) => recovered,
        Err(Error::Damaged { .. } | Error::Io { .. }) if is_hit(LEAD, table_at, store.layout.table_room) => {
            return Ok(Held::Damaged);
        }
        Err(error) => return broken(format!("commit {}: {error}", superblock.commit)),
    };
    let Recovered { regions, table, note, .. } = recovered;
    if regions != store.regions || note != saved.note {
        return broken(format!("commit {}: another catalogue or note than was written", superblock.commit));
    }
    check_pages(store, oracle, saved, disk, &table)?;
    Ok(Held::At(Box::new(superblock), table))
}

/// A store that opens does not without one of its volumes, nor with one of another store in its place.
pub(super) fn check_fit(store: &Store, disk: Remains<'_>) -> Result<(), Broken> {
    let all: Vec<u16> = (0..store.layout.volumes()).collect();
    let Ok(found) = look_at_all(disk, &all) else { unreachable!("the store was opened") };
    let dirs = paths(&all);
    for volume in (0..all.len()).filter(|_| all.len() > 1) {
        let (mut fewer_dirs, mut fewer) = (dirs.clone(), found.clone());
        fewer_dirs.remove(volume);
        fewer.remove(volume);
        let mut absent = found.clone();
        absent[volume] = Found::Nothing;
        let mut foreign = found.clone();
        let (Found::NoCommit(Some(superblock)) | Found::Store(superblock)) = &mut foreign[volume] else {
            unreachable!("each volume of an open store has a superblock")
        };
        superblock.uuid[0] ^= 1;
        for (dirs, found) in [(&fewer_dirs, &fewer), (&dirs, &absent), (&dirs, &foreign)] {
            match arrange(dirs, found) {
                Err(Error::MissingVolume { .. } | Error::ForeignVolume { .. }) => {}
                Err(error) => return Err(Broken::new(Check::Errors, format!("without volume {volume}: {error}"))),
                Ok(_) => return Err(Broken::new(Check::Recovery, format!("opened without volume {volume}"))),
            }
        }
    }
    Ok(())
}

/// A slot does not read and its copy, which is spared, does not check.
fn is_unknowable(disk: Remains<'_>, slot: u64) -> bool {
    let [primary, copy] = [0, 1].map(|copy| Layout::superblock_offset(slot, copy));
    let copy = &disk.volume(LEAD)[copy as usize..][..BLOCK as usize];
    disk.is_bad(LEAD, primary, BLOCK as usize) && Superblock::decode(copy).is_err()
}

fn check_pages(
    store: &Store,
    oracle: &Oracle,
    saved: &Saved,
    disk: Remains<'_>,
    table: &[Entry],
) -> Result<(), Broken> {
    for (n, spec) in store.regions.iter().enumerate() {
        let region = RegionId(n as u32);
        for page in 0..spec.pages {
            let global = oracle.pages(Run { region, first: page, count: 1 }).start;
            check_page(&store.layout, saved, disk, table[global], (region, page, global))?;
        }
    }
    Ok(())
}

fn check_page(
    layout: &Layout,
    saved: &Saved,
    disk: Remains<'_>,
    entry: Entry,
    (region, page, global): (RegionId, u32, usize),
) -> Result<(), Broken> {
    let broken = |what: String| {
        let commit = saved.commit;
        Err(Broken::new(Check::Recovery, format!("commit {commit}, region {} page {page}: {what}", region.0)))
    };
    let version = saved.versions[global];
    if entry.flags & WRITTEN == 0 {
        return if version.is_none() { Ok(()) } else { broken("written, and the table says never".into()) };
    }
    // Zeros, where the others of its placed run were written.
    if version.is_none() && layout.kind(region) == Kind::Scratch {
        return broken("scratch, and the table says it was written".into());
    }
    let side = if entry.flags & SECOND != 0 { Side::Second } else { Side::First };
    let extent = layout.extent(region, page, side);
    let bytes = layout.page_bytes(region) as usize;
    let found = &disk.volume(extent.volume)[extent.offset as usize..][..bytes];
    let is_hit = disk.is_suspect(extent.volume, extent.offset, bytes);
    let is_as_written = page_checksum(found) == entry.checksum;
    match compare(global, version, found) {
        Ok(()) if is_as_written => Ok(()),
        Ok(()) => broken("the right bytes under a wrong checksum".into()),
        // Damage that the checksum tells.
        Err(_) if is_hit && !is_as_written => Ok(()),
        Err(what) => broken(what),
    }
}
