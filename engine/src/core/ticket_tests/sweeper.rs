//! The user of the sweeps, who commits at their marks.

use super::{SCRATCH, World};
use crate::core::Command;
use crate::id::{Mode, Run};

/// A lease of the sweep.
pub(super) struct Lease {
    pub(super) seq: u64,
    pub(super) index: usize,
    pub(super) offset: u64,
}

/// How far he is.
#[derive(Default)]
pub(super) struct Sweeper {
    /// Number of the sweep's first access; none between sweeps.
    pub(super) base: Option<u64>,
    pub(super) begin_sent: bool,
    /// Index of the next access, and whether it was asked for.
    pub(super) next: usize,
    pub(super) reached: bool,
    pub(super) held: Vec<Lease>,
    pub(super) sweeps: u32,
}

impl World {
    /// One act of the sweep's user.
    pub(super) fn act_sweep(&mut self, quiet: bool) {
        let Some(base) = self.sweeper.base else {
            if !self.sweeper.begin_sent && !quiet {
                self.sweeper.begin_sent = true;
                self.core.command(Command::Begin { plan: self.plan.clone(), next: Some(self.plan.clone()) });
            }
            return;
        };
        let plan = self.plan.clone();
        let next = plan.intervals.get(self.sweeper.next);
        let over = |lease: &Lease| next.is_none_or(|next| plan.intervals[lease.index].release < next.node);
        if let Some(at) = self.sweeper.held.iter().position(over) {
            let Lease { seq, index, offset } = self.sweeper.held.remove(at);
            let interval = plan.intervals[index];
            self.pages.check(&self.arena, interval.run, offset);
            self.pages.leave(interval.run, interval.mode.writes());
            self.core.command(Command::Release { seq, changed: interval.mode.writes() });
            return;
        }
        let Some(interval) = next.copied() else {
            self.core.command(Command::End);
            self.sweeper = Sweeper { sweeps: self.sweeper.sweeps + 1, ..Sweeper::default() };
            return;
        };
        if self.sweeper.next == plan.intervals.len() / 2 && !self.sweeper.reached {
            // The commit mark.
            self.commit();
        }
        let seq = base + self.sweeper.next as u64;
        match self.ready.remove(&seq) {
            Some(published) => {
                self.sweeper.next += 1;
                let reached = std::mem::take(&mut self.sweeper.reached);
                if !reached && self.draw.below(20) == 0 {
                    self.core.command(Command::Release { seq, changed: false });
                    return;
                }
                let Some(offset) = published else {
                    self.core.command(Command::Release { seq, changed: false });
                    self.seen.undefined += 1;
                    return;
                };
                self.pages.enter(interval.run, interval.mode.writes());
                if interval.mode.reads() {
                    self.pages.check(&self.arena, interval.run, offset);
                }
                if interval.mode.writes() {
                    self.pages.write(&self.arena, interval.run, offset);
                }
                self.sweeper.held.push(Lease { seq, index: self.sweeper.next - 1, offset });
            }
            None if !self.sweeper.reached && self.draw.below(20) == 0 => {
                self.sweeper.next += 1;
                self.core.command(Command::Release { seq, changed: false });
            }
            None if !self.sweeper.reached => {
                self.sweeper.reached = true;
                self.core.command(Command::Reached { seq });
            }
            None => {}
        }
    }

    /// Whether somebody holds, or may get, the right to change what a commit covers.
    fn somebody_writes(&self) -> bool {
        let covered = |run: Run, mode: Mode| run.region != SCRATCH && mode.writes();
        self.users
            .iter()
            .flatten()
            .any(|u| covered(u.run, u.mode) && !matches!(self.tickets.get(&u.ticket), Some(Err(_))))
    }

    pub(super) fn commit(&mut self) {
        let holds = |lease: &Lease| self.plan.intervals[lease.index].mode.writes();
        if self.acknowledged < self.begun || self.begun > 250 || self.sweeper.held.iter().any(holds) {
            return;
        }
        assert!(self.listen().is_ok());
        let (must_refuse, before) = (self.somebody_writes(), self.seen.commits_refused);
        self.begun += 1;
        self.commits.push(self.pages.durable());
        self.core.command(Command::Commit { note: vec![self.begun as u8; 5] });
        assert!(self.listen().is_ok());
        let refused = self.seen.commits_refused > before;
        assert!(refused || !must_refuse, "a commit began while a writing ticket was held");
        let is_placed = |offset: &Option<u64>| offset.is_some_and(|offset| offset < self.plan.placed_bytes);
        let by_sweep = self.sweeper.reached || self.ready.values().any(is_placed);
        assert!(!refused || must_refuse || by_sweep, "a commit was refused for no reason");
    }
}
