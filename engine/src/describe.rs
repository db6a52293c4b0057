//! What a store says of itself: read and checked as at an open, without an arena or a reactor. For tools, and for
//! users who must know the last commit before they can plan.

use crate::config::{Config, RegionSpec};
use crate::engine::Identity;
use crate::error::Error;
use crate::id::CommitId;
use crate::io::file::VolumeFile;
use crate::lock::holder;
use crate::store::Store;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

/// A volume as the system sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Volume {
    /// The directory.
    pub path: PathBuf,
    /// Bytes that the store takes there.
    pub reserved_bytes: u64,
    /// Whether the file system takes direct I/O.
    pub is_direct: bool,
}

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
    /// The volumes in their order.
    pub volumes: Vec<Volume>,
}

/// How often a store whose owner is committing is read again, and after how long.
const ATTEMPTS: u32 = 10;
const PAUSE: Duration = Duration::from_millis(20);

/// Describes the store on these volumes. Takes no lock and changes nothing, so that it is in nobody's way, and works on
/// a store that its owner works on.
///
/// # Errors
/// As [`Engine::open`](crate::Engine::open), but for `Locked`: `NoStore`, `NoCommit`, `Damaged`, `Format`,
/// `ForeignVolume`, `Io`.
pub fn describe(volumes: &[PathBuf]) -> Result<Description, Error> {
    let config = Config { read_only: true, ..Config::new(volumes.to_vec(), 0) };
    let mut attempt = 1;
    let store = loop {
        match Store::peek(&config) {
            // Two commits of an owner within this reading replace what the first superblock led to.
            Err(Error::Damaged { .. }) if attempt < ATTEMPTS && volumes.iter().any(|dir| holder(dir).is_some()) => {
                attempt += 1;
                thread::sleep(PAUSE);
            }
            other => break other?,
        }
    };
    let identity = Identity::of(&store.superblock);
    let volume = |file: &VolumeFile| {
        let path = file.dir().to_path_buf();
        Ok(Volume { path, reserved_bytes: file.reserved_bytes()?, is_direct: file.is_direct() })
    };
    let volumes = store.files.iter().map(volume).collect::<Result<_, Error>>()?;
    let commit = CommitId(store.superblock.commit);
    Ok(Description { identity, regions: store.regions, commit, note: store.note, volumes })
}
