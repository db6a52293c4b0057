//! What a run writes to its store, predicted: import, steps, commits, the last update. `mt plan` says it and
//! `--max-writes` bounds it; a plan and a run both take it from here, so that a plan refuses what a run refuses.
//!
//! What it is not: a measurement. A run that goes on adds these to what its store's ledger says.
//!
//! The first step of a run has no update before it, and the last update comes when the steps are over: with updates in
//! forward there are as many updates as steps, and as many commits as were due, the one at the end included.

use super::budget::Fitted;
use super::command_line::CommandLine;
use super::size;
use crate::error::{Error, Part, Result};
use crate::layout::{HI, LO};
use mt_engine::{Prediction, record_bytes};

/// What the parts of a run write, in bytes; all 0 without a store.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Written {
    /// The import, and the commit of it if there are commits: weights alone, since pages never written read as zeros.
    pub import: u64,
    /// A step with an update, commits apart.
    pub step: u64,
    /// A commit: pages that stay in RAM or VRAM; page table, note and superblocks.
    pub commit: u64,
    /// The last update alone, commits apart; 0 with updates in backward.
    pub update: u64,
}

impl Written {
    /// Of a plan whose last update is predicted by `update`, and a model of so many elements.
    pub fn of(fitted: &Fitted, update: Option<&Prediction>, elements: u64) -> Written {
        if !fitted.has_disk {
            return Written::default();
        }
        let prepared = &fitted.prepared;
        let disk = &prepared.prediction.disk;
        let (records, import) = match fitted.checkpoint_every {
            Some(_) => (record_bytes(&prepared.regions), 4 * elements),
            // What stays in RAM or VRAM is not written at all.
            None => (0, [HI, LO].map(|region| prepared.residence()[region.0 as usize].streamed_bytes).iter().sum()),
        };
        Written {
            import: import + records,
            step: disk.write_bytes,
            commit: disk.commit_bytes + records,
            update: update.map_or(0, |update| update.disk.write_bytes),
        }
    }

    /// Of a whole run with so many commits. `not_in_first`: bytes of a step's update, which its first step has not.
    pub fn in_all(&self, steps: u64, commits: u64, not_in_first: u64) -> u64 {
        if steps == 0 {
            return self.import;
        }
        let steps = steps.saturating_mul(self.step).saturating_sub(not_in_first);
        (self.import + self.update).saturating_add(steps).saturating_add(commits.saturating_mul(self.commit))
    }

    /// Steps, about, after which a bound stops a new run that commits in every `every`th of them; never fewer than one.
    pub fn steps_within(&self, max: u64, every: Option<u64>, not_in_first: u64) -> u64 {
        // The commit of a step lies within the next one.
        let share = every.map_or(0, |every| self.commit / every);
        let each = self.step + share;
        let bound = Writes { max, before: 0, step: self.step + self.commit, last: self.update + self.commit };
        let room = max.saturating_add(not_in_first + share);
        let left = room.saturating_sub(self.import).saturating_sub(bound.step + bound.last);
        1 + left / each.max(1)
    }

    /// Refuses a bound that a new run would exceed with its import and its first step.
    ///
    /// # Errors
    /// `DoesNotFit` with the command that fits.
    pub fn require(&self, max: u64, command: &CommandLine) -> Result<()> {
        let need_bytes = self.import + self.step + self.update + 2 * self.commit;
        if need_bytes <= max {
            return Ok(());
        }
        Err(Error::DoesNotFit {
            part: Part::Disk,
            what: "--max-writes (import, a step and its commit)".to_owned(),
            need_bytes,
            have_bytes: max,
            hint: Some(format!("run: {}", command.with("max-writes", &size::flag(need_bytes)))),
        })
    }
}

/// A bound on what a store may write over its life, and what steps write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Writes {
    /// The bound.
    pub max: u64,
    /// Written before this process, by the store's ledger.
    pub before: u64,
    /// Predicted for a step, with a commit.
    pub step: u64,
    /// Predicted for the update and the commit at a stop.
    pub last: u64,
}

impl Writes {
    /// A bound on a store that has written `before`.
    pub fn new(max: u64, before: u64, written: &Written) -> Writes {
        Writes { max, before, step: written.step + written.commit, last: written.update + written.commit }
    }

    /// Bytes that the store has written once it stops after another step; `measured` are those of this process and of
    /// its last step.
    pub fn after_another(&self, measured: (u64, u64)) -> u64 {
        self.before + measured.0 + self.step.max(measured.1) + self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITTEN: Written = Written { import: 100, step: 50, commit: 6, update: 30 };

    #[test]
    fn a_run_has_as_many_updates_as_steps() {
        // 100 of the import; 20, 50, 50 of steps; 30 of the last update; two commits.
        assert_eq!(WRITTEN.in_all(3, 2, 30), 100 + 20 + 50 + 50 + 30 + 12);
        assert_eq!(WRITTEN.in_all(0, 0, 30), 100);
        assert_eq!(WRITTEN.in_all(u64::MAX, 1, 30), u64::MAX);
    }

    #[test]
    fn a_bound_that_holds_a_step_is_accepted_and_stops_a_run_where_it_says() {
        let command = CommandLine::new(vec!["mt".to_owned(), "plan".to_owned()]);
        let need = 100 + 50 + 30 + 12;
        let error = WRITTEN.require(need - 1, &command).unwrap_err();
        assert_eq!(error.exit_code(), 3);
        assert!(error.to_string().ends_with("run: mt plan --max-writes 1MiB"), "{error}");
        WRITTEN.require(need, &command).unwrap();
        for max in [need, 300, 1_000, 9_999] {
            // As a run does it, which commits in every step but the first.
            let bound = Writes::new(max, 0, &WRITTEN);
            let (mut written, mut steps, mut last) = (WRITTEN.import, 0, 0);
            while bound.after_another((written, last)) <= max {
                last = if steps == 0 { 20 } else { 56 };
                (written, steps) = (written + last, steps + 1);
            }
            assert!(written + bound.last <= max);
            assert_eq!(WRITTEN.steps_within(max, Some(1), 30), steps, "within {max}");
        }
    }
}
