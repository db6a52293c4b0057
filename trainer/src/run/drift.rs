//! Whether the steps take what the plan said, and if not, what is to blame. And what the steps tell of the machine's
//! rates.
//!
//! Steps count from the third of a process on: the first has no update, the second may wait for what the first left
//! behind. A single step says nothing; *typical* is the median step, with the means of its parts over the steps that
//! are kept.

use super::processes::Predicted;
use super::size::human;
use crate::profile::Measured;
use crate::step::StepTimes;
use mt_engine::stats::Moving;
use mt_engine::{LinkTimes, Profile};
use std::collections::VecDeque;

/// Share of the planned time by which steps may differ.
const TOLERANCE: f64 = 0.2;
/// Steps of a process that do not count.
const WARM_UP: u64 = 2;
/// Steps from which on a process is judged while it goes on, and at its end.
const JUDGED_MIN: usize = 5;
const ENDED_MIN: usize = 3;
/// Steps that are kept: the last.
const KEPT: usize = 64;
/// Share of a rate of the profile by which a rate may fall short without being to blame.
const SLOWER: f64 = 0.9;
/// What a full link must have moved before its rate counts.
const FULL_BYTES_MIN: u64 = 256 << 20;
const FULL_NS_MIN: u64 = 300_000_000;
/// Seconds of computation that must have been seen before it counts.
const COMPUTE_MIN: f64 = 2.0;

/// The steps of a process beside their plan.
pub(super) struct Drift {
    predicted: Predicted,
    profile: Profile,
    /// Nothing of the profile was measured: it is told at the end only.
    is_assumed: bool,
    kept: VecDeque<(f64, StepTimes)>,
    seen: u64,
    link: LinkTimes,
    is_told: bool,
}

/// What a typical step takes, in seconds.
struct Typical {
    seconds: f64,
    compute: f64,
    update: f64,
    read_wait: f64,
    write_wait: f64,
}

impl Drift {
    pub fn new(predicted: Predicted, profile: Profile, is_assumed: bool) -> Drift {
        let (kept, link) = Default::default();
        Drift { predicted, profile, is_assumed, kept, seen: 0, link, is_told: false }
    }

    /// Takes a step in. Gives what to tell when it becomes clear that the plan is not kept: once.
    pub fn step(&mut self, seconds: f64, times: &StepTimes, link: LinkTimes) -> Option<String> {
        self.seen += 1;
        self.link = link;
        if self.seen <= WARM_UP {
            return None;
        }
        if self.kept.len() == KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back((seconds, *times));
        if self.is_told || self.is_assumed || self.kept.len() < JUDGED_MIN {
            return None;
        }
        let line = self.line()?;
        self.is_told = true;
        Some(line)
    }

    /// What to say at the end, if the plan was not kept.
    pub fn at_end(&self) -> Option<String> {
        if self.kept.len() < ENDED_MIN { None } else { self.line() }
    }

    fn line(&self) -> Option<String> {
        let typical = self.typical();
        let planned = self.predicted.seconds;
        let off = typical.seconds / planned - 1.0;
        if !off.is_finite() || off.abs() <= TOLERANCE {
            return None;
        }
        let rates = if self.is_assumed { ", from rates that are assumed" } else { "" };
        Some(format!(
            "a step takes {} s, the plan said {} s{rates} ({:+.0}%): {}",
            digits(typical.seconds),
            digits(planned),
            100.0 * off,
            self.cause(&typical, off.signum())
        ))
    }

    /// The part that differs most in the direction of the whole.
    fn cause(&self, typical: &Typical, sign: f64) -> String {
        let (compute, update, wait) = self.predicted.parts();
        let waited = typical.read_wait + typical.write_wait;
        let rest = typical.seconds - typical.compute - typical.update - waited;
        let parts = [
            (typical.compute, compute, "computing"),
            (typical.update, update, "updating"),
            (waited, wait, "waiting for pages"),
            (rest, 0.0, "commits and what lies between steps"),
        ];
        let by = |part: &(f64, f64, &str)| sign * (part.0 - part.1);
        let (found, planned, what) =
            parts.into_iter().max_by(|a, b| by(a).total_cmp(&by(b))).expect("there are four parts");
        let numbers = format!("{what} takes {} s instead of {} s", digits(found), digits(planned));
        match what {
            "computing" | "updating" => {
                format!("{numbers}: the processor is {} times as fast as the profile says", digits(planned / found))
            }
            "waiting for pages" if sign > 0.0 => {
                let write = typical.write_wait > typical.read_wait;
                format!("{numbers}, most of it for {}; {}", if write { "write-backs" } else { "reads" }, self.disk())
            }
            "waiting for pages" => numbers,
            what => format!("{what} take {} s", digits(found)),
        }
    }

    /// What the disk has to do with it: its rate that falls shortest of the profile's.
    fn disk(&self) -> String {
        let Profile {
            disk_read_bytes_per_s: read, disk_write_bytes_per_s: write, disk_mixed_bytes_per_s: mixed, ..
        } = self.profile;
        let LinkTimes { full_read, full_write, full_mixed, .. } = self.link;
        let found = [("reads", full_read, read), ("writes", full_write, write), ("moves both ways", full_mixed, mixed)];
        let known = found.into_iter().filter_map(|(what, moving, said)| Some((what, rate(moving)?, said)));
        let Some((what, found, said)) = known.min_by(|a, b| (a.1 / a.2).total_cmp(&(b.1 / b.2))) else {
            return "the disk never had enough to do to show its rate".to_owned();
        };
        let per_s = |rate: f64| format!("{}/s", human(rate as u64));
        match found / said < SLOWER {
            true => format!("the disk {what} {} where the profile says {}", per_s(found), per_s(said)),
            false => format!("the disk is not slower than the profile says ({what} {})", per_s(found)),
        }
    }

    fn typical(&self) -> Typical {
        let mut seconds: Vec<f64> = self.kept.iter().map(|(seconds, _)| *seconds).collect();
        seconds.sort_by(f64::total_cmp);
        let mean = |part: fn(&StepTimes) -> f64| {
            self.kept.iter().map(|(_, times)| part(times)).sum::<f64>() / self.kept.len().max(1) as f64
        };
        Typical {
            seconds: seconds.get(seconds.len() / 2).copied().unwrap_or(0.0),
            compute: mean(|times| times.compute() - times.update_seconds),
            update: mean(|times| times.update_seconds),
            read_wait: mean(|times| times.read_wait_seconds),
            write_wait: mean(|times| times.write_wait_seconds),
        }
    }

    /// What the steps measured of the machine, as far as there was enough of it.
    pub fn measured(&self) -> Measured {
        let typical = self.typical();
        let (compute, update, _) = self.predicted.parts();
        let enough = |part: f64| self.kept.len() >= JUDGED_MIN && part * self.kept.len() as f64 >= COMPUTE_MIN;
        let LinkTimes { full_read, full_write, full_mixed, .. } = self.link;
        Measured {
            compute: enough(typical.compute).then(|| compute / typical.compute),
            update: enough(typical.update).then(|| update / typical.update),
            read: rate(full_read).map(|rate| rate / self.profile.disk_read_bytes_per_s),
            write: rate(full_write).map(|rate| rate / self.profile.disk_write_bytes_per_s),
            mixed: rate(full_mixed).map(|rate| rate / self.profile.disk_mixed_bytes_per_s),
        }
    }
}

/// Bytes a second, where enough was moved to tell.
fn rate(moving: Moving) -> Option<f64> {
    let is_enough = moving.bytes >= FULL_BYTES_MIN && moving.ns >= FULL_NS_MIN;
    is_enough.then(|| moving.bytes as f64 / (moving.ns as f64 * 1e-9))
}

/// A number with three digits.
fn digits(number: f64) -> String {
    match number {
        n if n >= 99.95 => format!("{n:.0}"),
        n if n >= 9.995 => format!("{n:.1}"),
        n if n >= 0.9995 => format!("{n:.2}"),
        n => format!("{n:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::processes::PredictedPhase;
    use super::*;

    /// A plan of 1 s: 0.6 computing, 0.2 updating, 0.2 waiting; a disk that reads 1 GB/s.
    fn drift(is_assumed: bool) -> Drift {
        let phase = |phase: &str, compute_seconds, wait_seconds| PredictedPhase {
            phase: phase.to_owned(),
            compute_seconds,
            wait_seconds,
        };
        let phases = vec![phase("forward", 0.6, 0.1), phase("update", 0.2, 0.1)];
        let predicted = Predicted { seconds: 1.0, phases, ..Predicted::default() };
        let profile = Profile { disk_read_bytes_per_s: 1e9, ..Profile::default() };
        Drift::new(predicted, profile, is_assumed)
    }

    fn times(compute: f64, update: f64, read: f64, write: f64) -> StepTimes {
        StepTimes {
            forward_seconds: compute,
            update_seconds: update,
            read_wait_seconds: read,
            write_wait_seconds: write,
            ..StepTimes::default()
        }
    }

    fn link(read_bytes_per_s: u64) -> LinkTimes {
        LinkTimes { full_read: Moving { bytes: read_bytes_per_s, ns: 1_000_000_000 }, ..LinkTimes::default() }
    }

    /// All that is said over ten steps, and at the end.
    fn said(mut drift: Drift, seconds: f64, times: &StepTimes, link: LinkTimes) -> (Vec<String>, Option<String>) {
        let lines = (0..10).filter_map(|_| drift.step(seconds, times, link)).collect();
        (lines, drift.at_end())
    }

    #[test]
    fn a_plan_that_is_kept_needs_no_words() {
        let (lines, end) = said(drift(false), 1.15, &times(0.7, 0.2, 0.2, 0.0), link(1_000_000_000));
        assert!(lines.is_empty() && end.is_none(), "{lines:?} {end:?}");
    }

    #[test]
    fn what_is_to_blame_is_said_once_when_it_begins_and_at_the_end() {
        for (seconds, times, link, parts) in [
            (
                1.6,
                times(1.2, 0.2, 0.2, 0.0),
                link(0),
                ["+60%", "computing takes 1.20 s instead of 0.600 s", "0.500 times"],
            ),
            (
                1.5,
                times(0.6, 0.7, 0.2, 0.0),
                link(0),
                ["+50%", "updating takes 0.700 s instead of 0.200 s", "0.286 times"],
            ),
            (
                1.9,
                times(0.6, 0.2, 1.1, 0.0),
                link(500_000_000),
                ["+90%", "for reads", "reads 477 MiB/s where the profile"],
            ),
            (1.9, times(0.6, 0.2, 0.1, 1.0), link(990_000_000), ["+90%", "for write-backs", "not slower"]),
            (1.9, times(0.6, 0.2, 0.2, 0.0), link(0), ["+90%", "commits and what lies between", "take 0.900 s"]),
            (0.5, times(0.1, 0.2, 0.2, 0.0), link(0), ["-50%", "computing takes 0.100 s", "6.00 times as fast"]),
        ] {
            let (lines, end) = said(drift(false), seconds, &times, link);
            assert_eq!(lines.len(), 1, "{lines:?}");
            assert_eq!(lines.last(), end.as_ref());
            for part in parts {
                assert!(lines[0].contains(part), "no {part:?} in {}", lines[0]);
            }
            let (lines, end) = said(drift(true), seconds, &times, link);
            assert!(lines.is_empty() && end.is_some_and(|line| line.contains("assumed")));
        }
    }

    #[test]
    fn steps_that_are_few_or_the_first_do_not_count() {
        let mut drift = drift(false);
        let slow = times(9.0, 0.0, 0.0, 0.0);
        for _ in 0..WARM_UP {
            assert_eq!(drift.step(9.0, &slow, link(0)), None);
        }
        for _ in 0..8 {
            assert_eq!(drift.step(1.0, &times(0.6, 0.2, 0.2, 0.0), link(0)), None);
        }
        assert_eq!(drift.at_end(), None);
        assert_eq!(drift.measured(), Measured { compute: Some(1.0), ..Measured::default() });
    }
}
