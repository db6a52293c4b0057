//! Fits the volumes of a store together: which directory holds which volume, and whether they belong together.
//!
//! The lead (volume 0) alone knows the store's state; every volume carries the store's uuid, its own number and how
//! many there are. A volume that is missing, foreign or given twice is named, never worked around.

use super::recover::Found;
use crate::canary::{Canary, planted};
use crate::error::Error;
use crate::format::Superblock;
use std::path::{Path, PathBuf};

/// Refuses a directory that is given twice, also by another name.
pub(super) fn check_distinct(dirs: &[PathBuf]) -> Result<(), Error> {
    let real = |dir: &PathBuf| std::fs::canonicalize(dir).unwrap_or_else(|_| dir.clone());
    let real: Vec<PathBuf> = dirs.iter().map(real).collect();
    for (index, dir) in real.iter().enumerate() {
        if real[..index].contains(dir) {
            let what = format!("volumes: expected distinct directories, found {} twice", dir.display());
            return Err(Error::Config { what });
        }
    }
    Ok(())
}

/// The directories whose files are left over from a creation that did not finish.
///
/// # Errors
/// `Exists` where a directory holds a store; `ForeignVolume` where it holds a volume of a store that is not among these
/// directories: without its lead nobody can say whether that store has commits.
pub(crate) fn leftovers<'a>(dirs: &'a [PathBuf], found: &[Found]) -> Result<Vec<&'a Path>, Error> {
    let unfinished: Vec<[u8; 16]> = found
        .iter()
        .filter_map(|f| match f {
            Found::NoCommit(Some(s)) if s.volume == 0 => Some(s.uuid),
            _ => None,
        })
        .collect();
    let mut left = Vec::new();
    for (dir, found) in dirs.iter().zip(found) {
        match found {
            Found::Nothing => {}
            Found::Store(_) => return Err(Error::Exists { path: dir.clone() }),
            Found::NoCommit(Some(s)) if s.volume > 0 && !unfinished.contains(&s.uuid) => {
                let what = format!("expected none for a new store, found {}", name(s));
                return Err(Error::ForeignVolume { path: dir.clone(), what });
            }
            Found::NoCommit(_) => left.push(dir.as_path()),
        }
    }
    Ok(left)
}

/// For each volume in order the index of its directory, and the lead's superblock.
pub(crate) fn arrange(dirs: &[PathBuf], found: &[Found]) -> Result<(Vec<usize>, Superblock), Error> {
    let superblocks: Vec<Option<&Superblock>> = found
        .iter()
        .map(|f| match f {
            Found::Nothing | Found::NoCommit(None) => None,
            Found::NoCommit(Some(s)) | Found::Store(s) => Some(&**s),
        })
        .collect();
    let is_lead = |s: &Option<&Superblock>| s.is_some_and(|s| s.volume == 0);
    let Some(lead_at) = superblocks.iter().position(is_lead) else {
        return Err(no_lead(dirs, found, &superblocks));
    };
    let lead = superblocks[lead_at].expect("the lead has a superblock");
    if !matches!(found[lead_at], Found::Store(_)) {
        return Err(Error::NoCommit { path: dirs[lead_at].clone() });
    }
    let is_ours = |s: &Superblock| s.uuid == lead.uuid || planted(Canary::ForeignVolume);
    let mut order = vec![None; usize::from(lead.volumes)];
    for ((index, dir), superblock) in dirs.iter().enumerate().zip(&superblocks) {
        let Some(s) = superblock else {
            let what = format!("no volume is here; expected one of store {}", uuid(lead));
            return Err(Error::MissingVolume { path: dir.clone(), what });
        };
        let place = order.get_mut(usize::from(s.volume)).filter(|place| place.is_none() && is_ours(s));
        let Some(place) = place else {
            let what = format!("expected another volume of store {}, found {}", uuid(lead), name(s));
            return Err(Error::ForeignVolume { path: dir.clone(), what });
        };
        *place = Some(index);
    }
    if let Some(missing) = order.iter().position(Option::is_none) {
        let what = format!("volume {missing} of {} of store {} was not given", lead.volumes, uuid(lead));
        return Err(Error::MissingVolume { path: dirs[lead_at].clone(), what });
    }
    Ok((order.into_iter().flatten().collect(), lead.clone()))
}

fn no_lead(dirs: &[PathBuf], found: &[Found], superblocks: &[Option<&Superblock>]) -> Error {
    if let Some((dir, s)) = dirs.iter().zip(superblocks).find_map(|(dir, s)| s.map(|s| (dir, s))) {
        let what = format!("this is {}; its lead, volume 0, was not given", name(s));
        return Error::MissingVolume { path: dir.clone(), what };
    }
    match found.iter().position(|f| matches!(f, Found::NoCommit(_))) {
        Some(index) => Error::NoCommit { path: dirs[index].clone() },
        None => Error::NoStore { path: dirs[0].clone() },
    }
}

fn name(s: &Superblock) -> String {
    format!("volume {} of {} of store {}", s.volume, s.volumes, uuid(s))
}

fn uuid(s: &Superblock) -> uuid::Uuid {
    uuid::Uuid::from_bytes(s.uuid)
}
