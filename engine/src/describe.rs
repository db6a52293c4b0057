//! What a store says of itself: read and checked as at an open, without an arena or a reactor. For tools, and for
//! users who must know the last commit before they can plan.

use crate::config::{Config, RegionSpec};
use crate::engine::Identity;
use crate::error::Error;
use crate::id::CommitId;
use crate::store::Store;
use std::path::PathBuf;

/// What a store says of itself.
#[derive(Clone, Debug)]
pub struct Description {
    /// What identifies it.
    pub identity: Identity,
    /// The regions in the order of their ids.
    pub regions: Vec<RegionSpec>,
    /// The last commit.
    pub commit: CommitId,
    /// The caller's note of the last commit.
    pub note: Vec<u8>,
}

/// Describes the store on these volumes.
///
/// # Errors
/// As [`Engine::open`](crate::Engine::open): `NoStore`, `NoCommit`, `Locked`, `Damaged`, `Format`, `ForeignVolume`,
/// `Io`.
pub fn describe(volumes: &[PathBuf]) -> Result<Description, Error> {
    let store = Store::open(&Config::new(volumes.to_vec(), 0))?;
    let identity = Identity::of(&store.superblock);
    Ok(Description { identity, regions: store.regions, commit: CommitId(store.superblock.commit), note: store.note })
}
