//! A tiered store of pages: more bytes than RAM holds, on NVMe, in a pinned arena and in VRAM, moved by a plan that is
//! made before anything runs, and durable by commits. What no plan foresaw any thread may [`fetch`](Engine::fetch)
//! beside it.
//!
//! What it is: regions of fixed-size pages; schedules (the known future), a pure planner, sweeps that execute plans;
//! commits that survive kill -9, power loss and full disks; checksums on every page; one hard budget of RAM, and
//! one of VRAM for each device.
//!
//! What it is not: a cache that guesses, a file system, a database. It knows nothing of what the bytes mean.
//!
//! ```no_run
//! use mt_engine::{Config, Engine, Kind, Mode, RegionId, RegionSpec, Run, Schedule, Resource, plan};
//! use std::sync::Arc;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let regions = [RegionSpec { name: "state".into(), page_bytes: 1 << 20, pages: 64, kind: Kind::Checkpointed }];
//! let engine = Engine::create(Config::new(vec!["store".into()], 32 << 20), &regions)?;
//! let mut schedule = Schedule::default();
//! for first in 0..64 {
//!     let access = schedule.access(Run { region: RegionId(0), first, count: 1 }, Mode::Update, 0);
//!     schedule.work(Resource::HostCompute, 100_000, vec![access], 0);
//! }
//! let shape = plan::Shape { regions: &regions, sweeps_per_commit: 1, prefetch_intervals_max: None, has_disk: true };
//! let budget = plan::Budget { host_bytes: 30 << 20, device_bytes: vec![], disk_bytes: 1 << 30 };
//! let (profile, entry) = (Default::default(), Default::default());
//! let (plan, prediction) = plan::plan(&Arc::new(schedule), &shape, &budget, &profile, &entry)?;
//! println!("{:.3} s predicted", prediction.seconds);
//! engine.place(&plan.exit, &plan.spilled)?;
//! let plan = Arc::new(plan);
//! let sweep = engine.sweep(&plan, None)?;
//! for first in 0..64 {
//!     let mut page = sweep.host_mut(Run { region: RegionId(0), first, count: 1 })?;
//!     page[0] += 1;
//! }
//! sweep.finish()?;
//! engine.commit(b"one sweep done")?;
//! # Ok(())
//! # }
//! ```

pub(crate) mod arena;
pub mod bench;
pub(crate) mod canary;
pub mod config;
pub(crate) mod core;
pub mod describe;
pub mod device;
pub mod engine;
pub mod error;
pub mod events;
pub mod extents;
pub(crate) mod format;
pub mod id;
pub mod io;
pub mod lease;
pub(crate) mod lock;
pub mod plan;
pub mod probe;
pub mod profile;
pub(crate) mod reactor;
pub(crate) mod ready;
pub mod schedule;
pub mod sim;
pub mod space;
pub mod stats;
pub mod store;
pub mod verify;

pub use config::{Backend, Config, DeviceBackend, DeviceConfig, DirectIo, Kind, RegionSpec};
pub use describe::{Description, Volume, describe};
pub use device::{DeviceLease, Stream};
pub use engine::{Engine, Identity, Sweep, Ticket, VolumeLedger, Waited, record_bytes};
pub use error::{Error, PlanError};
pub use events::{Recorder, Recording};
pub use extents::{Extents, FileRange, extents};
pub use format::checksum::page_checksum;
pub use id::{CommitId, DeviceId, Mode, RegionId, Run, Tier};
pub use io::file::free_bytes;
pub use lease::{HostLease, HostLeaseMut};
pub use lock::holder;
pub use plan::{Budget, Plan, Prediction, Residency};
pub use profile::{LinkRates, Profile};
pub use schedule::{Access, Node, Resource, Schedule};
pub use stats::{LinkTimes, Stats};
pub use store::{remove, reserved_bytes};
pub use verify::{BadPage, Verified};
