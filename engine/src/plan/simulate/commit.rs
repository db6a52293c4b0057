//! A commit that is being made: runs that live in memory are written in the order of its list, a few at a time so that
//! other writes come in between; then, when also the write-backs that were on their way have ended, records and syncs
//! take their time.
//!
//! Invariant: while one is being made nothing that it does not hold leaves a window for its home, so what is on its way
//! is what it waits for.

use super::super::outcome::Station;
use super::Course;
use super::lines::Job;
use crate::id::Tier;

/// Bytes of flushes on their way at a time: the engine has 128 operations of 1 MiB in flight.
const FLUSHES_BYTES: u64 = 128 << 20;

/// How far a commit is.
pub(super) struct Committing {
    is_running: bool,
    /// The next run of the list to be flushed.
    next: usize,
    /// Runs of the list that are flushed, and bytes of those on their way.
    is_flushed: Vec<bool>,
    flushing: u64,
    /// Changed intervals that have left their place in a window and are not at their home.
    pub leaving: u32,
    /// Intervals given back since it began, in order.
    kept_back: Vec<u32>,
    durable_at: Option<u128>,
}

impl Committing {
    pub(super) fn new(runs: usize) -> Committing {
        Committing {
            is_running: false,
            next: 0,
            is_flushed: vec![true; runs],
            flushing: 0,
            leaving: 0,
            kept_back: Vec::new(),
            durable_at: None,
        }
    }

    pub(super) fn is_running(&self) -> bool {
        self.is_running
    }

    /// When it will be durable, once that depends on nothing else.
    pub(super) fn durable_at(&self) -> Option<u128> {
        self.durable_at
    }

    /// A run of the list is on disk.
    pub(super) fn flushed(&mut self, item: u32, bytes: u64) {
        self.is_flushed[item as usize] = true;
        self.flushing -= bytes;
    }

    /// An interval leaves its place only when the commit is durable.
    pub(super) fn keep_back(&mut self, number: u32) {
        self.kept_back.push(number);
    }
}

impl Course<'_> {
    /// Whether an interval changes a run in place that a commit has not written yet.
    pub(super) fn is_in_flush(&self, number: u32) -> bool {
        let item = self.facts.flush_of[number as usize % self.facts.plan.intervals.len()];
        self.commit.is_flushed.get(item as usize) == Some(&false)
    }

    /// The commit of this sweep begins; none is being made.
    pub(super) fn begin_commit(&mut self) {
        self.commits = false;
        self.commit.is_running = true;
        self.commit.next = 0;
        self.commit.is_flushed.fill(false);
        self.go_on_committing();
    }

    /// Starts flushes, and ends the commit when its time has come.
    pub(super) fn go_on_committing(&mut self) {
        if !self.commit.is_running {
            return;
        }
        if let Some(time) = self.commit.durable_at {
            if time <= self.now {
                self.end_commit();
            }
            return;
        }
        let flushed = &self.facts.commits.flushed;
        while self.commit.flushing < FLUSHES_BYTES
            && let Some(next) = flushed.get(self.commit.next)
        {
            let job = Job::Flush { item: self.commit.next as u32, span: None };
            self.commit.next += 1;
            self.commit.flushing += next.bytes;
            match next.tier {
                Tier::Device(device) => {
                    self.held.push_back((device, job, next.bytes));
                    self.stage_held();
                }
                _ => self.lines.push(Station::DiskWrite, job, next.bytes),
            }
        }
        if self.commit.flushing == 0 && self.commit.leaving == 0 {
            self.commit.durable_at = Some(self.now + u128::from(self.rates.sync_ns));
            // Without syncs it is durable at once.
            self.go_on_committing();
        }
    }

    fn end_commit(&mut self) {
        (self.commit.is_running, self.commit.durable_at) = (false, None);
        for number in std::mem::take(&mut self.commit.kept_back) {
            self.depart(number);
        }
        self.reserve();
        self.pass_marks();
    }
}
