//! The user of a process: places, sweeps, commits, and now and then does what users should not, or need not, do.

use super::life::{Going, Life};
use super::report::{Broken, Check, Mark};
use super::work::cuts_differ;
use crate::config::Kind;
use crate::error::Error;
use crate::plan::{Interval, Plan};
use crate::schedule::Node;
use std::sync::Arc;

impl Life<'_> {
    /// Some sweeps and commits; ends in order.
    pub(super) fn live(&mut self) -> Going {
        self.place()?;
        let mut announced: Option<usize> = None;
        let mut before: Option<usize> = None;
        for _ in 0..1 + self.world.streams.work.below(6) {
            let plans = self.work.plans.len() as u64;
            let swarm = self.world.swarm.clone();
            let rng = &mut self.world.streams.work;
            let drawn = rng.below(plans) as usize;
            let plan = if rng.thousandths(swarm.renege) { drawn } else { announced.unwrap_or(drawn) };
            let next = (rng.thousandths(swarm.announce)).then(|| rng.below(plans) as usize);
            if before.is_some_and(|before| cuts_differ(&self.work.plans[before], &self.work.plans[plan])) {
                self.world.report.mark(Mark::OtherCut);
            }
            if announced == Some(plan) {
                self.world.report.mark(Mark::AnnouncedSweep);
            }
            announced = if self.sweep(plan, next)? { next } else { None };
            before = Some(plan);
            self.turns()?;
            if self.world.streams.work.below(3) == 0 {
                self.commit(false)?;
                if self.world.streams.work.below(2) == 0 {
                    self.commit_awaited()?;
                }
            }
        }
        self.settle()?;
        self.commit_awaited()?;
        self.drained()
    }

    /// One sweep. Returns whether what it announced still stands.
    fn sweep(&mut self, plan: usize, next: Option<usize>) -> Going<bool> {
        let is_sealed = self.world.oracle.is_sealed();
        let answer = self.begin(plan, next)?;
        let plan = Arc::clone(&self.work.plans[plan]);
        let base = match answer {
            Ok(base) => base,
            Err(Error::Misuse { .. }) if self.world.oracle.is_sealed() && writes_frozen(self, &plan) => {
                self.world.report.mark(Mark::SealedRefused);
                return Ok(false);
            }
            Err(error) => return Err(Broken::new(Check::Errors, format!("a sweep was refused: {error}")).into()),
        };
        if is_sealed && writes_frozen(self, &plan) {
            return Err(Broken::new(Check::Kinds, "a sweep may write to a frozen region after the first commit").into());
        }
        self.world.report.mark(Mark::Sweep);
        let mut index = 0;
        let mut committed_at = None;
        for (node, what) in plan.schedule.nodes.iter().enumerate() {
            self.turns()?;
            match what {
                Node::Access(_) => {
                    self.access(base + index as u64, &plan.intervals[index])?;
                    index += 1;
                }
                Node::Commit => self.at_mark(index, &mut committed_at)?,
                Node::Work { .. } => {}
            }
            self.give_back_after(node as u32)?;
            let swarm = &self.world.swarm;
            let (stray, abort) = (swarm.stray_commit, swarm.abort);
            if self.world.streams.work.thousandths(stray) {
                self.commit(true)?;
                committed_at = Some(index);
            }
            if self.world.streams.work.thousandths(abort) {
                self.give_back_after(u32::MAX)?;
                self.end(false);
                self.world.report.mark(Mark::AbortedSweep);
                return Ok(false);
            }
        }
        self.give_back_after(u32::MAX)?;
        self.end(true);
        Ok(true)
    }

    fn access(&mut self, seq: u64, interval: &Interval) -> Going {
        let (run, mode) = (interval.run, interval.mode);
        let pass = self.world.swarm.pass;
        if self.world.streams.work.thousandths(pass) {
            self.pass(seq);
            return Ok(());
        }
        let is_barred = self.is_barred(run, mode);
        match self.take(seq, run, mode, interval.release)? {
            // Undefined to the end: others may have written it meanwhile.
            Ok(()) if is_barred || (mode.reads() && self.world.oracle.is_undefined(run)) => {
                Err(Broken::new(Check::Kinds, format!("an access to {run}, {mode:?}, does not fail")).into())
            }
            Ok(()) => Ok(()),
            Err(error) => {
                let mark = self.judge(run, mode, &error)?;
                self.world.report.mark(mark);
                Ok(())
            }
        }
    }

    /// At a commit mark, before the access of this index. With a writing lease held a commit would be refused, and a
    /// second one at the same place may be.
    fn at_mark(&mut self, index: usize, committed_at: &mut Option<usize>) -> Going {
        let commit = self.world.swarm.commit;
        if self.world.streams.work.thousandths(commit) && !self.holds_writing() {
            self.commit(*committed_at == Some(index))?;
            *committed_at = Some(index);
        }
        Ok(())
    }

    /// Gives back the leases whose last use is over, and some others early, in any order.
    fn give_back_after(&mut self, node: u32) -> Going {
        let early = self.world.swarm.early;
        let mut index = self.leases.len();
        while index > 0 {
            index -= 1;
            if self.leases[index].release <= node || self.world.streams.work.thousandths(early) {
                self.give_back(index)?;
                index = index.min(self.leases.len());
            }
        }
        Ok(())
    }

    /// Reads every page through the engine, and commits: faults are over.
    pub(super) fn read_all(&mut self) -> Going {
        let last = self.work.plans.len() - 1;
        self.place()?;
        let answer = self.begin(last, None)?;
        let base = answer.map_err(|error| Broken::new(Check::Errors, format!("a sweep was refused: {error}")))?;
        let plan = Arc::clone(&self.work.plans[last]);
        for (index, interval) in plan.intervals.iter().enumerate() {
            let seq = base + index as u64;
            match self.take(seq, interval.run, interval.mode, interval.release)? {
                Ok(()) => self.give_back(0)?,
                Err(error) => {
                    let mark = self.judge(interval.run, interval.mode, &error)?;
                    self.world.report.mark(mark);
                }
            }
        }
        self.end(true);
        self.settle()?;
        self.commit(false)?;
        self.commit_awaited()?;
        self.drained()
    }
}

fn writes_frozen(life: &Life<'_>, plan: &Plan) -> bool {
    let is_frozen = |i: &Interval| life.world.store.layout.kind(i.run.region) == Kind::Frozen;
    plan.intervals.iter().any(|i| i.mode.writes() && is_frozen(i))
}
