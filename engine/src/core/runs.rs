//! The runs that sweeps use: where a placed run lives, what is live on it, whether its bytes there are newer than
//! disk.
//!
//! Invariant: two known runs are disjoint. A sweep that cuts the same pages otherwise must wait until nothing streamed
//! is live; then the old cuts are forgotten. Placed runs are never cut otherwise.

use crate::error::Error;
use crate::id::{Run, Tier};
use crate::plan::{DeviceResidency, Home as Lives, Placed, Residency};
use std::collections::{BTreeMap, VecDeque};

/// Index of a known run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct RunId(pub(crate) u32);

/// A placed run's part in RAM, or in the VRAM of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Home {
    pub(crate) tier: Tier,
    /// Byte offset in the arena, or in the device's allocation.
    pub(crate) offset: u64,
    /// The bytes are there.
    pub(crate) loaded: bool,
    /// They are being read; nobody else may read them from disk meanwhile.
    pub(crate) loading: bool,
    /// They are newer than those on disk.
    pub(crate) dirty: bool,
    /// Operations of a running commit that read them; whoever changes them in place waits.
    pub(crate) flushing: u32,
}

/// What is known of a run.
#[derive(Debug)]
pub(crate) struct RunState {
    pub(crate) run: Run,
    pub(crate) home: Option<Home>,
    /// Live intervals in schedule order: sequence number and whether it writes.
    pub(crate) live: VecDeque<(u64, bool)>,
}

impl RunState {
    /// Whether an interval may touch the bytes: a reader when no earlier writer is live, a writer when it is the
    /// oldest; not counting those that are `aside` for it.
    pub(crate) fn may_start(&self, seq: u64, writes: bool, aside: impl Fn(u64) -> bool) -> bool {
        let earlier = self.live.iter().take_while(|(other, _)| *other < seq);
        earlier.filter(|(other, _)| !aside(*other)).all(|(_, other_writes)| !writes && !other_writes)
    }
}

/// All known runs.
#[derive(Default)]
pub(crate) struct Runs {
    states: Vec<RunState>,
    index: BTreeMap<Run, RunId>,
}

/// Why a run cannot be known yet.
#[derive(Debug)]
pub(crate) enum Conflict {
    /// Known streamed runs overlap: forget them once nothing is live.
    Streamed,
    /// A placed run overlaps.
    Placed(Error),
}

impl Runs {
    pub(crate) fn get(&self, id: RunId) -> &RunState {
        &self.states[id.0 as usize]
    }

    /// The home of a placed run, which stays placed.
    pub(crate) fn home_mut(&mut self, id: RunId) -> &mut Home {
        self.get_mut(id).home.as_mut().expect("placed runs stay placed")
    }

    /// Where a run lives, in a plan's words.
    pub(crate) fn lives(&self, id: RunId) -> Lives {
        match self.get(id).home {
            Some(Home { tier: Tier::Device(device), offset, .. }) => Lives::Device { device, offset },
            Some(Home { offset, .. }) => Lives::Host { offset },
            None => Lives::Disk,
        }
    }

    pub(crate) fn get_mut(&mut self, id: RunId) -> &mut RunState {
        &mut self.states[id.0 as usize]
    }

    /// Ids in the order in which the runs became known.
    pub(crate) fn ids(&self) -> impl Iterator<Item = RunId> + use<> {
        (0..self.states.len() as u32).map(RunId)
    }

    /// Finds a run or makes it known.
    pub(crate) fn know(&mut self, run: Run) -> Result<RunId, Conflict> {
        if let Some(id) = self.index.get(&run) {
            return Ok(*id);
        }
        let before = self.index.range(..=run).next_back();
        let after = self.index.range(run..).next();
        for (other, id) in before.into_iter().chain(after) {
            if other.overlaps(&run) {
                let what = || format!("{run} overlaps {other}, which is placed, without being equal to it");
                return Err(match self.get(*id).home {
                    Some(_) => Conflict::Placed(Error::Misuse { what: what() }),
                    None => Conflict::Streamed,
                });
            }
        }
        let id = RunId(self.states.len() as u32);
        self.states.push(RunState { run, home: None, live: VecDeque::new() });
        self.index.insert(run, id);
        Ok(id)
    }

    /// The first placed run that shares a page with the run. Its id is good for ever: placed runs are never forgotten.
    pub(crate) fn placed_over(&self, run: Run) -> Option<RunId> {
        let before = self.index.range(..run).next_back();
        let after =
            self.index.range(run..).take_while(|(other, _)| other.region == run.region && other.first < run.end());
        let is_placed = |(other, id): &(&Run, &RunId)| other.overlaps(&run) && self.get(**id).home.is_some();
        before.into_iter().chain(after).find(is_placed).map(|(_, id)| *id)
    }

    /// Forgets everything but placed runs. Nothing may be live, and ids given out before are void.
    pub(crate) fn forget_streamed(&mut self) {
        assert!(self.states.iter().all(|s| s.live.is_empty()), "a run was forgotten while an interval was live");
        self.states.retain(|s| s.home.is_some());
        self.index = self.states.iter().enumerate().map(|(i, s)| (s.run, RunId(i as u32))).collect();
    }

    /// Makes exactly these runs placed. Nothing may be live or placed yet, unless it is the same placement.
    pub(crate) fn place(&mut self, residency: &Residency) -> Result<(), Error> {
        let of_devices =
            |d: &DeviceResidency| d.placed.iter().map(|p| (*p, Tier::Device(d.device))).collect::<Vec<_>>();
        let in_ram = residency.placed.iter().map(|p| (*p, Tier::Host));
        let placed: Vec<(Placed, Tier)> = in_ram.chain(residency.devices.iter().flat_map(of_devices)).collect();
        let same = |(p, tier): &(Placed, Tier)| {
            let home = self.index.get(&p.run).and_then(|id| self.get(*id).home);
            home.is_some_and(|home| home.offset == p.offset && home.tier == *tier)
        };
        let count = self.states.iter().filter(|s| s.home.is_some()).count();
        if count == placed.len() && placed.iter().all(same) {
            return Ok(());
        }
        if count > 0 {
            return Err(Error::Misuse { what: "runs are placed once per open; another placement was given".into() });
        }
        self.forget_streamed();
        for (p, tier) in placed {
            let id = match self.know(p.run) {
                Ok(id) => id,
                Err(Conflict::Placed(error)) => return Err(error),
                Err(Conflict::Streamed) => unreachable!("streamed runs were just forgotten"),
            };
            self.get_mut(id).home =
                Some(Home { tier, offset: p.offset, loaded: false, loading: false, dirty: false, flushing: 0 });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::RegionId;

    fn run(first: u32, count: u32) -> Run {
        Run { region: RegionId(0), first, count }
    }

    fn placed(first: u32, count: u32, offset: u64) -> Placed {
        Placed { run: run(first, count), offset, bytes: u64::from(count) * 4096 }
    }

    fn residency(placed: &[Placed]) -> Residency {
        Residency { placed: placed.to_vec(), ..Residency::default() }
    }

    #[test]
    fn known_runs_are_disjoint() {
        let mut runs = Runs::default();
        let id = runs.know(run(4, 4)).expect("the first run");
        assert_eq!(runs.know(run(4, 4)).expect("known"), id);
        for (first, count) in [(0, 5), (7, 1), (5, 2), (4, 3), (3, 6), (7, 9)] {
            assert!(matches!(runs.know(run(first, count)), Err(Conflict::Streamed)), "{first} {count}");
        }
        for (first, count) in [(0, 4), (8, 1)] {
            assert_ne!(runs.know(run(first, count)).expect("disjoint"), id);
        }
    }

    #[test]
    fn another_cut_waits_for_what_streams_and_never_cuts_what_is_placed() {
        let mut runs = Runs::default();
        runs.place(&residency(&[placed(0, 2, 0), placed(6, 2, 8192)])).expect("nothing is placed yet");
        let id = runs.know(run(6, 2)).expect("placed");
        runs.know(run(2, 4)).expect("disjoint");
        assert!(matches!(runs.know(run(1, 2)), Err(Conflict::Placed(_))));
        assert!(matches!(runs.know(run(3, 1)), Err(Conflict::Streamed)));
        runs.forget_streamed();
        runs.know(run(3, 1)).expect("the old cut is forgotten");
        // A flush that is in flight knows its run by this id.
        assert_eq!(runs.know(run(6, 2)).expect("placed"), id);
        assert_eq!(runs.get(id).home.map(|home| home.offset), Some(8192));
    }

    #[test]
    fn runs_are_placed_once() {
        let mut runs = Runs::default();
        let (a, b) = (placed(0, 2, 0), placed(2, 2, 8192));
        runs.place(&residency(&[a, b])).expect("nothing is placed yet");
        runs.place(&residency(&[b, a])).expect("the same placement");
        assert!(runs.place(&residency(&[a])).is_err());
        assert!(runs.place(&residency(&[a, placed(2, 2, 4096)])).is_err());
    }

    #[test]
    fn readers_wait_for_earlier_writers_and_writers_for_everybody() {
        let live = VecDeque::from([(3, false), (5, false), (7, true), (9, false)]);
        let state = RunState { run: run(0, 1), home: None, live };
        let may = |seq| [false, true].map(|writes| state.may_start(seq, writes, |_| false));
        assert_eq!([3, 5, 7, 9].map(may), [[true, true], [true, false], [true, false], [false, false]]);
        let beside_7 = |writes| state.may_start(9, writes, |other| other == 7);
        assert!(beside_7(false) && !beside_7(true));
    }
}
