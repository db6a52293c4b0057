//! The engine under load: a store with one checkpointed region, and sweeps over all of it with everything streamed.
//!
//! The store is opened anew for each measurement, so that its page table refers to committed extents only, whatever
//! another program wrote to the spare ones in between. Checksums are computed and compared as in any use. The user's
//! side takes leases and gives them back; it reads and writes no bytes, as fio does not either.

use crate::Mode;
use mt_engine::bench::{Moved, cpu_seconds};
use mt_engine::plan::{Budget, Residency, Shape, plan};
use mt_engine::{
    Config, Engine, Error, Kind, Plan, Profile, RegionId, RegionSpec, Resource, Run, Schedule, record_bytes, remove,
};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Name of the region.
pub const REGION: &str = "pages";

/// Bytes of a page: 65,536 elements of four bytes.
const PAGE_BYTES: u32 = 256 << 10;

/// What a load uses.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Directories, one a volume.
    pub volumes: Vec<PathBuf>,
    /// Bytes of the region; its store is twice as large.
    pub bytes: u64,
    /// Bytes of a run, a multiple of 256 KiB.
    pub run_bytes: u64,
    /// Bytes of the window.
    pub window_bytes: u64,
    /// Largest transfer in bytes; `None`: the engine's default.
    pub transfer_bytes: Option<u32>,
    /// Operations in flight; `None`: the engine's default.
    pub queue_depth: Option<u32>,
    /// Threads for checksums; `None`: the engine's default.
    pub checksum_threads: Option<u32>,
}

impl Settings {
    fn run_pages(&self) -> u32 {
        (self.run_bytes / u64::from(PAGE_BYTES)) as u32
    }
}

/// A store that is measured, removed when dropped.
pub struct Store {
    settings: Settings,
    regions: Vec<RegionSpec>,
}

impl Store {
    /// Makes the store and writes every extent once: two commits, so that both extents of each page hold data.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn create(settings: Settings) -> Result<Store, Error> {
        let pages = (settings.bytes / settings.run_bytes) as u32 * settings.run_pages();
        let regions = vec![RegionSpec { name: REGION.into(), page_bytes: PAGE_BYTES, pages, kind: Kind::Checkpointed }];
        remove(&settings.volumes)?;
        let store = Store { settings, regions };
        let engine = Engine::create(store.config(), &store.regions)?;
        let plan = store.plan(mt_engine::Mode::Write);
        engine.place(&plan.exit, &plan.spilled)?;
        let mut number = 0;
        for commit in 0..2u8 {
            let sweep = engine.sweep(&plan, None)?;
            for interval in &plan.intervals {
                fill(&mut sweep.host_mut(interval.run)?, &mut number);
            }
            sweep.finish()?;
            engine.commit(&[commit])?;
        }
        engine.close()?;
        Ok(store)
    }

    /// The volumes' directories.
    pub fn volumes(&self) -> &[PathBuf] {
        &self.settings.volumes
    }

    /// Opens the store and moves bytes for this long.
    ///
    /// # Errors
    /// Those of the engine, above all `Corrupt` if a page that is read is not what was written.
    pub fn measure(&self, mode: Mode, length: Duration) -> Result<Moved, Error> {
        let plan = self.plan(match mode {
            Mode::Read => mt_engine::Mode::Read,
            Mode::Write => mt_engine::Mode::Write,
            Mode::Mixed => mt_engine::Mode::Update,
        });
        let engine = Engine::open(self.config())?;
        engine.place(&plan.exit, &plan.spilled)?;
        let moved = || {
            let stats = engine.stats();
            (stats.disk_read_bytes, stats.disk_write_bytes)
        };
        let (start, cpu_before, moved_before) = (Instant::now(), cpu_seconds(), moved());
        'sweeps: loop {
            let sweep = engine.sweep(&plan, Some(&plan))?;
            for interval in &plan.intervals {
                match mode {
                    Mode::Read => drop(sweep.host(interval.run)?),
                    Mode::Write | Mode::Mixed => drop(sweep.host_mut(interval.run)?),
                }
                if start.elapsed() >= length {
                    break 'sweeps;
                }
            }
            sweep.finish()?;
        }
        let moved_after = moved();
        Ok(Moved {
            read_bytes: moved_after.0 - moved_before.0,
            write_bytes: moved_after.1 - moved_before.1,
            seconds: start.elapsed().as_secs_f64(),
            cpu_seconds: cpu_seconds() - cpu_before,
        })
    }

    fn config(&self) -> Config {
        let host_bytes = self.settings.window_bytes + record_bytes(&self.regions);
        let mut config = Config::new(self.settings.volumes.clone(), host_bytes);
        config.transfer_bytes = self.settings.transfer_bytes.unwrap_or(config.transfer_bytes);
        config.queue_depth = self.settings.queue_depth.unwrap_or(config.queue_depth);
        config.checksum_threads = self.settings.checksum_threads.unwrap_or(config.checksum_threads);
        config
    }

    /// One access of each run, everything streamed.
    fn plan(&self, mode: mt_engine::Mode) -> Arc<Plan> {
        let mut schedule = Schedule { cyclic: true, ..Schedule::default() };
        for first in (0..self.regions[0].pages).step_by(self.settings.run_pages() as usize) {
            let access = schedule.access(Run { region: RegionId(0), first, count: self.settings.run_pages() }, mode, 0);
            schedule.work(Resource::HostCompute, 0, vec![access], 0);
        }
        let shape =
            Shape { regions: &self.regions, sweeps_per_commit: 0, prefetch_intervals_max: None, has_disk: true };
        let budget = Budget { host_bytes: self.settings.window_bytes, device_bytes: Vec::new(), disk_bytes: u64::MAX };
        let streamed = Residency { fixed: true, ..Residency::default() };
        let planned = plan(&Arc::new(schedule), &shape, &budget, &Profile::default(), &streamed);
        Arc::new(planned.expect("runs fit the smallest window that the arguments allow").0)
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // Who interrupts the benchmark has to remove the store anyway; the next one does it, too.
        let _ = remove(&self.settings.volumes);
    }
}

/// Fills the bytes with numbers that no drive can shrink.
fn fill(bytes: &mut [u8], number: &mut u64) {
    for word in bytes.as_chunks_mut::<8>().0 {
        *number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
        *word = (*number ^ (*number >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9).to_le_bytes();
    }
}
