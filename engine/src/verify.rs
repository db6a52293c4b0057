//! Verification: every page that survives an open is read and compared with its checksum.
//!
//! What it is not: a repair. The store has one copy, so all that can be done about a page is to name it.
//!
//! Terms. A *stretch* is the run that is read at a time: as many neighbouring pages as make one transfer. One that does
//! not read as a whole is read again page by page, so that each bad page is named and each good one counted.

use crate::config::Kind;
use crate::engine::{Engine, record_bytes};
use crate::error::Error;
use crate::id::{Mode, RegionId, Run};
use crate::plan::{Budget, Residency, Shape, plan};
use crate::profile::Profile;
use crate::schedule::{Resource, Schedule};
use std::sync::Arc;

/// Bytes read at a time, unless a page is larger.
const STRETCH_BYTES: u32 = 1 << 20;

/// Stretches of one sweep; bounds what the plan of a large store takes. Between sweeps the volumes are idle for a
/// moment, less than a hundredth of the time that so many transfers take.
const STRETCHES_MAX: usize = 16_384;

/// A page that does not read.
#[derive(Clone, Debug)]
pub struct BadPage {
    /// The region's name.
    pub region: String,
    /// Page index within the region.
    pub page: u32,
    /// `Corrupt`, or `Io` where the volume does not give the bytes.
    pub error: Error,
}

/// What a verification found.
#[derive(Clone, Debug, Default)]
pub struct Verified {
    /// Pages that are what was committed. Pages that were never written are among them.
    pub pages: u64,
    /// Bytes read from the volumes. Pages that were never written read as zeros without I/O.
    pub read_bytes: u64,
    /// Pages that are not.
    pub bad: Vec<BadPage>,
}

impl Engine {
    /// Reads every page of every region but scratch, as many transfers at a time as the arena holds. `progress` gets
    /// the pages done and all pages. For an engine that was just opened: nothing is placed.
    ///
    /// # Errors
    /// `Misuse` or `Config` where runs are placed or a sweep goes on. Pages that do not read are no error here.
    pub fn verify(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<Verified, Error> {
        let before = self.stats().disk_read_bytes;
        let all = self.regions().iter().filter(|r| r.kind != Kind::Scratch).map(|r| u64::from(r.pages)).sum();
        let mut found = Verified::default();
        let (mut done, mut suspects) = (0, Vec::new());
        for stretches in stretches(self).chunks(STRETCHES_MAX) {
            self.read_all(stretches, &mut |run, error| {
                match error {
                    None => found.pages += u64::from(run.count),
                    Some(_) => suspects.extend((run.first..run.end()).map(|first| Run { first, count: 1, ..run })),
                }
                done += u64::from(run.count);
                progress(done, all);
            })?;
        }
        self.read_all(&suspects, &mut |run, error| match error {
            None => found.pages += 1,
            Some(error) => {
                let region = self.regions()[run.region.0 as usize].name.clone();
                found.bad.push(BadPage { region, page: run.first, error });
            }
        })?;
        found.read_bytes = self.stats().disk_read_bytes - before;
        Ok(found)
    }

    /// Reads runs in order in one sweep. `seen` gets each with what was wrong with it.
    fn read_all(&self, runs: &[Run], seen: &mut dyn FnMut(Run, Option<Error>)) -> Result<(), Error> {
        if runs.is_empty() {
            return Ok(());
        }
        let mut schedule = Schedule::default();
        for run in runs {
            let access = schedule.access(*run, Mode::Read, 0);
            schedule.work(Resource::HostCompute, 0, vec![access], 0);
        }
        let shape =
            Shape { regions: self.regions(), sweeps_per_commit: 0, prefetch_intervals_max: None, has_disk: true };
        let host_bytes = self.host_bytes() - record_bytes(self.regions());
        let budget = Budget { host_bytes, device_bytes: Vec::new(), disk_bytes: u64::MAX };
        let nothing_stays = Residency { fixed: true, ..Residency::default() };
        let planned = plan(&Arc::new(schedule), &shape, &budget, &Profile::default(), &nothing_stays);
        let (plan, _) = planned.map_err(|e| Error::Config { what: format!("verification: {e}") })?;
        let sweep = self.sweep(&Arc::new(plan), None)?;
        for run in runs {
            match sweep.host(*run) {
                Ok(_) => seen(*run, None),
                Err(error @ (Error::Corrupt { .. } | Error::Io { .. })) => seen(*run, Some(error)),
                Err(error) => return Err(error),
            }
        }
        sweep.finish()
    }
}

/// All pages that survive an open, in the order in which they lie on the volumes.
fn stretches(engine: &Engine) -> Vec<Run> {
    let of_region = |(index, spec): (usize, &crate::config::RegionSpec)| {
        let (pages, step) = (spec.pages, (STRETCH_BYTES / spec.page_bytes).max(1));
        let region = RegionId(index as u32);
        (0..pages).step_by(step as usize).map(move |first| Run { region, first, count: step.min(pages - first) })
    };
    let durable = |(_, spec): &(usize, &crate::config::RegionSpec)| spec.kind != Kind::Scratch;
    engine.regions().iter().enumerate().filter(durable).flat_map(of_region).collect()
}
