//! What goes into a plan and the plan itself. Data only.

use crate::config::RegionSpec;
use crate::id::{DeviceId, Mode, Run, Tier};
use crate::schedule::Schedule;
use std::sync::Arc;

/// What a plan may use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Budget {
    /// Bytes of the arena, and of what work takes beside it.
    pub host_bytes: u64,
    /// Bytes of VRAM per GPU, and of what work takes there. A GPU that is not listed has none.
    pub device_bytes: Vec<(DeviceId, u64)>,
    /// Bytes on all volumes.
    pub disk_bytes: u64,
}

impl Budget {
    /// Bytes of VRAM of a GPU.
    pub fn device(&self, device: DeviceId) -> u64 {
        self.device_bytes.iter().find(|&&(id, _)| id == device).map_or(0, |&(_, bytes)| bytes)
    }

    /// Bytes that it is short of another one, over all memories.
    pub fn missing(&self, other: &Budget) -> u64 {
        let of_device = |&(device, bytes): &(DeviceId, u64)| bytes.saturating_sub(self.device(device));
        let of_devices = other.device_bytes.iter().map(of_device);
        let others =
            [other.host_bytes.saturating_sub(self.host_bytes), other.disk_bytes.saturating_sub(self.disk_bytes)];
        // Sums beyond all memory stay beyond it.
        of_devices.chain(others).fold(0, u64::saturating_add)
    }

    /// The same budget with other bytes for one GPU.
    #[must_use]
    pub fn with_device(mut self, device: DeviceId, bytes: u64) -> Budget {
        match self.device_bytes.iter_mut().find(|(id, _)| *id == device) {
            Some(known) => known.1 = bytes,
            None => self.device_bytes.push((device, bytes)),
        }
        self
    }
}

/// What the planner must know of the store beside the schedule.
#[derive(Clone, PartialEq, Debug)]
pub struct Shape<'a> {
    /// The regions, in the order of their ids.
    pub regions: &'a [RegionSpec],
    /// Sweeps between two commits: 0 for never. Placed pages cost a write at each commit.
    pub sweeps_per_commit: u32,
    /// Largest number of intervals fetched ahead of their access, in each window; None: as far as the window allows. 0
    /// disables prefetching.
    pub prefetch_intervals_max: Option<u32>,
    /// Whether there is a disk tier at all.
    pub has_disk: bool,
}

/// A run that permanently lives in RAM or in VRAM.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placed {
    /// The pages.
    pub run: Run,
    /// Byte offset in the arena, or in the GPU's allocation; a multiple of 4,096.
    pub offset: u64,
    /// Bytes of the run.
    pub bytes: u64,
}

/// What is resident where when a plan begins or ends.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Residency {
    /// Runs placed in RAM, by arena offset. A plan made with a non-empty entry keeps exactly this placement.
    pub placed: Vec<Placed>,
    /// Bytes at the start of the arena that hold placed runs; the window follows.
    pub placed_bytes: u64,
    /// The placement is decided: a plan entered from here keeps it even where nothing is placed. A plan's exit has it
    /// set; the default, before the first plan, has not.
    pub fixed: bool,
    /// Runs already on their way into the window, in order: a prefix of what streams through it.
    pub prefetched: Vec<Run>,
    /// The same of each GPU, by its number.
    pub devices: Vec<DeviceResidency>,
}

impl Residency {
    /// The same placement with nothing on its way into a window: what the engine is in after a sweep that none follows.
    #[must_use]
    pub fn settled(&self) -> Residency {
        let mut settled = Residency { prefetched: Vec::new(), ..self.clone() };
        settled.devices.iter_mut().for_each(|device| device.prefetched.clear());
        settled
    }
}

/// What is resident in a GPU's VRAM.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceResidency {
    /// The GPU.
    pub device: DeviceId,
    /// Runs placed there, by offset.
    pub placed: Vec<Placed>,
    /// Bytes at the start of the allocation that hold placed runs; the window follows.
    pub placed_bytes: u64,
    /// Runs already on their way into its window, in order.
    pub prefetched: Vec<Run>,
}

/// Where an interval's bytes are, in the memory of its tier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// In the run's own span, from this offset on: its home is the interval's tier.
    Placed {
        /// Byte offset in the arena or in the GPU's allocation.
        offset: u64,
    },
    /// In the window.
    Window,
}

/// Where a run permanently lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Home {
    /// On the volumes alone.
    Disk,
    /// In RAM.
    Host {
        /// Byte offset in the arena.
        offset: u64,
    },
    /// In VRAM.
    Device {
        /// The GPU.
        device: DeviceId,
        /// Byte offset in the GPU's allocation.
        offset: u64,
    },
}

impl Home {
    /// The tier.
    pub fn tier(self) -> Tier {
        match self {
            Home::Disk => Tier::Disk,
            Home::Host { .. } => Tier::Host,
            Home::Device { device, .. } => Tier::Device(device),
        }
    }
}

/// One access as the engine executes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interval {
    /// The access node.
    pub node: u32,
    /// The last node that uses the access; the lease is given back there.
    pub release: u32,
    /// The pages.
    pub run: Run,
    /// What is done with them.
    pub mode: Mode,
    /// Bytes of the run.
    pub bytes: u64,
    /// Where the access wants them: Host or a Device.
    pub tier: Tier,
    /// Where the run lives.
    pub home: Home,
    /// Where the bytes are while the interval is live.
    pub place: Place,
    /// The interval may be fetched into the arena's window, by an access in RAM or on its way from disk to VRAM, once
    /// the access of this interval index has been reached; equal to its own index: no prefetch. Meaningless for what
    /// does not pass through that window. Intervals of the sweep before count as reached.
    pub fetch_at: u32,
    /// The same for the window in VRAM.
    pub upload_at: u32,
    /// The interval in RAM, an earlier one of the same run, that this one on a device takes its bytes from: once all
    /// nodes that the access comes after are done, and that interval has been given back if its release comes before.
    pub relay: Option<u32>,
    /// The interval on a device that takes its bytes from this one in RAM. If this one is in the window, it keeps its
    /// span until then.
    pub kept_for: Option<u32>,
}

impl Interval {
    /// Whether its bytes are read from disk into the arena's window before the access.
    pub fn reads_disk(&self) -> bool {
        self.home == Home::Disk && self.mode.reads() && self.relay.is_none()
    }

    /// Whether its bytes are written to disk after the access.
    pub fn writes_disk(&self) -> bool {
        self.home == Home::Disk && self.mode.writes()
    }

    /// The GPU whose link they cross before a reading access and after a writing one.
    pub fn link(&self) -> Option<DeviceId> {
        match (self.tier, self.home.tier()) {
            (tier, home) if tier == home => None,
            (Tier::Device(device), _) | (_, Tier::Device(device)) => Some(device),
            _ => None,
        }
    }

    /// Whether it is an access in VRAM.
    pub fn is_on_device(&self) -> bool {
        matches!(self.tier, Tier::Device(_))
    }

    /// Bytes that cross that link up to VRAM and down from it.
    pub fn link_bytes(&self) -> (u64, u64) {
        if self.link().is_none() {
            return (0, 0);
        }
        let before = if self.mode.reads() { self.bytes } else { 0 };
        let after = if self.mode.writes() { self.bytes } else { 0 };
        if self.is_on_device() { (before, after) } else { (after, before) }
    }

    /// Whether it takes a span of the arena's window: an access in RAM of a run that lives elsewhere, or a read from
    /// disk on its way to VRAM.
    pub fn takes_host_window(&self) -> bool {
        if self.is_on_device() { self.reads_disk() } else { self.place == Place::Window }
    }
}

/// A plan's part of a GPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceShare {
    /// The GPU.
    pub device: DeviceId,
    /// Bytes of placed runs, at the start of the allocation.
    pub placed_bytes: u64,
    /// Bytes of the window behind them; 0 if nothing streams.
    pub window_bytes: u64,
    /// Bytes set aside for work.
    pub work_bytes: u64,
}

impl DeviceShare {
    /// Bytes of VRAM that the plan's pages need: what an engine must have there.
    pub fn allocation(&self) -> u64 {
        self.placed_bytes + self.window_bytes
    }
}

/// What moves before each access.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    /// What was planned.
    pub schedule: Arc<Schedule>,
    /// One per access node, in schedule order.
    pub intervals: Vec<Interval>,
    /// Arena bytes of placed runs.
    pub placed_bytes: u64,
    /// Arena bytes of the window; 0 if nothing streams.
    pub window_bytes: u64,
    /// Arena bytes behind the window through which bytes go from VRAM to disk, and from disk to their home in VRAM: a
    /// ring too, whose spans never wait for a user.
    pub staging_bytes: u64,
    /// RAM set aside for work, outside the arena.
    pub host_work_bytes: u64,
    /// The GPUs that the schedule uses, by number.
    pub devices: Vec<DeviceShare>,
    /// Runs that need space on disk beyond what their regions always have: scratch runs that stream.
    pub spilled: Vec<Run>,
    /// What is resident when the sweep ends: entry of the next plan.
    pub exit: Residency,
}

impl Plan {
    /// Bytes of the arena that it needs.
    pub fn arena_bytes(&self) -> u64 {
        self.placed_bytes + self.window_bytes + self.staging_bytes
    }
}
