//! Configuration of an engine: what it may use, and which regions a new store has. Everything has a limit here.

use crate::events::Recorder;
use crate::id::DeviceId;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

/// How the pages of a region survive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Two extents a page, committed and working: the last commit is always intact.
    Checkpointed,
    /// No durable content: pages read as zeros after every open. Disk space only for pages that a plan spills.
    Scratch,
    /// One extent a page, written before the first commit, never after it.
    Frozen,
}

/// A region to create.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RegionSpec {
    /// Unique, at most 40 bytes of UTF-8.
    pub name: String,
    /// Bytes of a page: a multiple of 4,096, at most 64 MiB.
    pub page_bytes: u32,
    /// Number of pages, at least 1.
    pub pages: u32,
    /// How the pages survive.
    pub kind: Kind,
}

impl RegionSpec {
    /// Bytes of all pages (one copy).
    pub fn bytes(&self) -> u64 {
        u64::from(self.page_bytes) * u64::from(self.pages)
    }
}

/// What to do where the file system refuses O_DIRECT. As text: `required`, `preferred`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DirectIo {
    /// Refuse to open.
    Required,
    /// Use buffered I/O and say so once.
    #[default]
    Preferred,
}

/// Which I/O backend to use. As text: `auto`, `uring`, `pool`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Backend {
    /// io_uring, or the thread pool with one notice where io_uring is blocked.
    #[default]
    Auto,
    /// io_uring, or an error.
    Uring,
    /// A pool of threads with pread and pwrite.
    Pool,
}

impl fmt::Display for DirectIo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DirectIo::Required => "required",
            DirectIo::Preferred => "preferred",
        })
    }
}

impl FromStr for DirectIo {
    /// What was expected.
    type Err = &'static str;

    fn from_str(text: &str) -> Result<DirectIo, &'static str> {
        match text {
            "required" => Ok(DirectIo::Required),
            "preferred" => Ok(DirectIo::Preferred),
            _ => Err("preferred or required"),
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Backend::Auto => "auto",
            Backend::Uring => "uring",
            Backend::Pool => "pool",
        })
    }
}

impl FromStr for Backend {
    /// What was expected.
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Backend, &'static str> {
        match text {
            "auto" => Ok(Backend::Auto),
            "uring" => Ok(Backend::Uring),
            "pool" => Ok(Backend::Pool),
            _ => Err("auto, uring or pool"),
        }
    }
}

/// What stands behind a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DeviceBackend {
    /// A GPU, through CUDA's driver.
    #[default]
    Cuda,
    /// RAM of this process in place of VRAM, at the addresses that leases tell: for tests where there is no GPU.
    Memory,
}

/// A device that an engine may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceConfig {
    /// Which; with CUDA the device's number among those that are visible.
    pub id: DeviceId,
    /// Bytes of VRAM, a multiple of 4,096: one allocation, made at open. Plans get all of it. What the driver takes for
    /// itself comes on top.
    pub bytes: u64,
    /// What stands behind it.
    pub backend: DeviceBackend,
}

/// What an engine may use. All of it is taken at open; nothing grows later.
#[derive(Clone, Debug)]
pub struct Config {
    /// One directory per volume. Empty: no disk tier, then every page of every region must be placed in RAM.
    pub volumes: Vec<PathBuf>,
    /// Relative bandwidth of each volume, by which a new store's pages are dealt to them. Empty: measured when the
    /// store is created. Without meaning for a store that exists.
    pub volume_weights: Vec<f64>,
    /// Bytes of a new store's region that go to one volume before the next one gets some: a multiple of 4,096. Default
    /// 1 MiB.
    pub stripe_bytes: u32,
    /// Bytes of the pinned arena. A hard bound.
    pub host_bytes: u64,
    /// Bytes of the arena, of `host_bytes`, that are kept for unplanned use, a multiple of 4,096. Plans get the rest:
    /// the budget they are made for must be smaller by as much. A run is in one piece, so leases that are held at once
    /// need room and gaps: twice their number times the longest run is always enough. Default 0: tickets only on placed
    /// runs.
    pub unplanned_bytes: u64,
    /// Operations in flight per volume, 1 to 1,024. Default 64.
    pub queue_depth: u32,
    /// Largest single transfer in bytes, a multiple of 4,096. Default 1 MiB.
    pub transfer_bytes: u32,
    /// What to do where O_DIRECT is refused.
    pub direct_io: DirectIo,
    /// Which backend to use.
    pub backend: Backend,
    /// For reading alone: nothing on the volumes is changed, and where their directories cannot be written, no lock is
    /// taken. Writing to such an engine fails.
    pub read_only: bool,
    /// Threads that compute page checksums beside the reactor, which computes them alone up to about 10 GB/s. Default:
    /// one for every four processors, 1 to 4.
    pub checksum_threads: u32,
    /// Devices that plans may use. Where there is one, the arena is registered with its driver, and so takes its RAM at
    /// open. Default: none.
    pub devices: Vec<DeviceConfig>,
    /// Records what the engine does, while it is on. Default: none.
    pub recorder: Option<Arc<Recorder>>,
}

impl Config {
    /// Defaults for these volumes and a budget.
    pub fn new(volumes: Vec<PathBuf>, host_bytes: u64) -> Config {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Config {
            volumes,
            volume_weights: Vec::new(),
            stripe_bytes: 1 << 20,
            host_bytes,
            unplanned_bytes: 0,
            queue_depth: 64,
            transfer_bytes: 1 << 20,
            direct_io: DirectIo::default(),
            backend: Backend::default(),
            read_only: false,
            checksum_threads: (processors as u32 / 4).clamp(1, 4),
            devices: Vec::new(),
            recorder: None,
        }
    }
}
