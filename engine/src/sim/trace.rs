//! The trace of a run: a hash over everything that happened, and the last rows for people.

use crate::id::Run;
use crate::io::memory::Happened;
use std::collections::VecDeque;

/// One thing that happened.
#[derive(Clone, Copy)]
struct Row {
    turn: u64,
    what: &'static str,
    run: Option<Run>,
    numbers: [i64; 4],
}

impl Row {
    fn text(&self) -> String {
        let run = self.run.map_or(String::new(), |run| run.to_string());
        let [a, b, c, d] = self.numbers;
        format!("{:>7} {:<16} {run:<24} {a} {b} {c} {d}", self.turn, self.what)
    }
}

/// The trace.
#[derive(Clone)]
pub(super) struct Trace {
    turn: u64,
    hash: u64,
    rows: VecDeque<Row>,
    rows_max: usize,
}

impl Trace {
    /// A trace that keeps this many rows.
    pub(super) fn new(rows_max: usize) -> Trace {
        Trace { turn: 0, hash: 0, rows: VecDeque::new(), rows_max }
    }

    /// The next turn begins.
    pub(super) fn next_turn(&mut self) {
        self.turn += 1;
    }

    /// Adds a row. What the numbers mean depends on `what`.
    pub(super) fn row(&mut self, what: &'static str, run: Option<Run>, numbers: [i64; 4]) {
        let row = Row { turn: self.turn, what, run, numbers };
        self.mix(row.turn);
        what.bytes().for_each(|byte| self.mix(u64::from(byte)));
        let pages = run.map_or(0, |r| (u64::from(r.region.0) << 48) ^ (u64::from(r.first) << 24) ^ u64::from(r.count));
        self.mix(pages);
        numbers.into_iter().for_each(|number| self.mix(number as u64));
        if self.rows.len() == self.rows_max {
            self.rows.pop_front();
        }
        if self.rows_max > 0 {
            self.rows.push_back(row);
        }
    }

    /// Adds what happened on the disk: volume, offset, bytes, and what moved (-1: submitted).
    pub(super) fn disk(&mut self, happened: &Happened) {
        let what = match (happened.what, happened.moved.is_some()) {
            ("read", false) => "read",
            ("read", true) => "read done",
            ("write", false) => "write",
            ("write", true) => "write done",
            ("sync", false) => "sync",
            ("sync", true) => "sync done",
            (_, false) => "hash",
            (_, true) => "hash done",
        };
        let moved = happened.moved.unwrap_or(-1);
        let place = happened.offset as i64;
        self.row(what, None, [i64::from(happened.volume), place, i64::from(happened.bytes), moved]);
        if let Some(fault) = happened.fault {
            self.row(fault.name(), None, [happened.id.0 as i64, place, 0, 0]);
        }
    }

    /// The hash so far.
    pub(super) fn hash(&self) -> u64 {
        self.hash
    }

    /// The last rows in words.
    pub(super) fn rows(&self) -> Vec<String> {
        self.rows.iter().map(Row::text).collect()
    }

    fn mix(&mut self, number: u64) {
        self.hash = (self.hash.rotate_left(5) ^ number).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
}
