//! Whether the steps take what the plan said, and if not, what is to blame. And what the steps tell of the machine's
//! rates.
//!
//! Steps count from the third of a process on: the first has no update, the second may wait for what the first left
//! behind. A single step says nothing; *typical* is the mean of the middle half of the steps that are kept, by their
//! time, with the means of its parts over the same steps: so that the parts never add up to more than the whole. Where
//! a GPU computes, the parts are those of its time, as the plan's are; they tell nothing of the processor's rates.

use super::processes::Predicted;
use super::size::human;
use crate::digits::digits;
use crate::profile::Measured;
use crate::step::{GpuTimes, StepTimes};
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
    kept: VecDeque<(f64, Parts)>,
    /// A GPU computes.
    on_gpu: bool,
    seen: u64,
    link: LinkTimes,
    is_told: bool,
}

/// What a step's time goes to, in seconds. Waits are for reads and for write-backs; on a GPU for bytes and for the
/// processor.
#[derive(Clone, Copy, Default)]
struct Parts {
    compute: f64,
    update: f64,
    waits: [f64; 2],
}

impl From<&StepTimes> for Parts {
    fn from(times: &StepTimes) -> Parts {
        let compute = times.compute() - times.update_seconds;
        let waits = [times.read_wait_seconds, times.write_wait_seconds];
        Parts { compute, update: times.update_seconds, waits }
    }
}

impl From<&GpuTimes> for Parts {
    fn from(times: &GpuTimes) -> Parts {
        let compute = times.busy() - times.gpu_update_seconds;
        let waits = [times.gpu_link_wait_seconds, times.gpu_processor_wait_seconds];
        Parts { compute, update: times.gpu_update_seconds, waits }
    }
}

impl Drift {
    pub fn new(predicted: Predicted, profile: Profile, is_assumed: bool) -> Drift {
        let (kept, link) = Default::default();
        Drift { predicted, profile, is_assumed, kept, on_gpu: false, seen: 0, link, is_told: false }
    }

    /// Takes a step in. Gives what to tell when it becomes clear that the plan is not kept: once.
    pub fn step(&mut self, seconds: f64, times: &StepTimes, gpu: Option<&GpuTimes>, link: LinkTimes) -> Option<String> {
        self.seen += 1;
        (self.link, self.on_gpu) = (link, gpu.is_some());
        if self.seen <= WARM_UP {
            return None;
        }
        if self.kept.len() == KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back((seconds, gpu.map_or_else(|| times.into(), Parts::from)));
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
        let (seconds, typical) = self.typical();
        let planned = self.predicted.seconds;
        let off = seconds / planned - 1.0;
        if !off.is_finite() || off.abs() <= TOLERANCE {
            return None;
        }
        let rates = if self.is_assumed { ", from rates that are assumed" } else { "" };
        Some(format!(
            "a step takes {} s, the plan said {} s{rates} ({:+.0}%): {}",
            digits(seconds),
            digits(planned),
            100.0 * off,
            self.cause(seconds, &typical, off.signum())
        ))
    }

    /// The part that differs most in the direction of the whole.
    fn cause(&self, seconds: f64, typical: &Parts, sign: f64) -> String {
        let (compute, update, wait) = self.predicted.parts();
        let [first, second] = typical.waits;
        let waited = first + second;
        let rest = seconds - typical.compute - typical.update - waited;
        let between = match self.on_gpu {
            false => "commits and what lies between steps",
            true => "commits, and a GPU that others use too or that has no work yet,",
        };
        let parts = [
            (typical.compute, compute, "computing"),
            (typical.update, update, "updating"),
            (waited, wait, "waiting for pages"),
            (rest, 0.0, between),
        ];
        let by = |part: &(f64, f64, &str)| sign * (part.0 - part.1);
        let (found, planned, what) =
            parts.into_iter().max_by(|a, b| by(a).total_cmp(&by(b))).expect("there are four parts");
        let numbers = format!("{what} takes {} s instead of {} s", digits(found), digits(planned));
        match what {
            "computing" | "updating" => {
                let who = if self.on_gpu { "GPU" } else { "processor" };
                format!("{numbers}: the {who} is {} times as fast as the profile says", digits(planned / found))
            }
            "waiting for pages" if sign > 0.0 && self.on_gpu => {
                let what = if second > first { "the processor's updates" } else { "the link" };
                format!("{numbers}, most of it for {what}")
            }
            "waiting for pages" if sign > 0.0 => {
                let what = if second > first { "write-backs" } else { "reads" };
                format!("{numbers}, most of it for {what}; {}", self.disk())
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

    /// The mean of the middle half of the steps, and the means of its parts.
    fn typical(&self) -> (f64, Parts) {
        let mut steps: Vec<&(f64, Parts)> = self.kept.iter().collect();
        steps.sort_by(|a, b| a.0.total_cmp(&b.0));
        let quarter = steps.len() / 4;
        let middle = &steps[quarter..steps.len() - quarter];
        let mean =
            |of: fn(&(f64, Parts)) -> f64| middle.iter().map(|step| of(step)).sum::<f64>() / middle.len().max(1) as f64;
        let parts = Parts {
            compute: mean(|(_, parts)| parts.compute),
            update: mean(|(_, parts)| parts.update),
            waits: [mean(|(_, parts)| parts.waits[0]), mean(|(_, parts)| parts.waits[1])],
        };
        (mean(|(seconds, _)| *seconds), parts)
    }

    /// What the steps measured of the machine, as far as there was enough of it.
    pub fn measured(&self) -> Measured {
        let (_, typical) = self.typical();
        let (compute, update, _) = self.predicted.parts();
        let enough =
            |part: f64| !self.on_gpu && self.kept.len() >= JUDGED_MIN && part * self.kept.len() as f64 >= COMPUTE_MIN;
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
        let lines = (0..10).filter_map(|_| drift.step(seconds, times, None, link)).collect();
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

    /// A few steps that another program slowed down change neither the step nor its parts.
    #[test]
    fn parts_are_those_of_the_steps_whose_time_is_told() {
        let mut drift = drift(false);
        for step in 0..22 {
            let busy = if step % 5 == 4 { 10.0 } else { 1.0 };
            drift.step(1.5 * busy, &times(1.1 * busy, 0.2 * busy, 0.2 * busy, 0.0), None, link(0));
        }
        let told = drift.at_end().expect("half as long again");
        assert!(told.contains("a step takes 1.50 s") && told.contains("computing takes 1.10 s"), "{told}");
    }

    /// What the thread did that gives a GPU work says nothing.
    #[test]
    fn where_a_gpu_computes_its_time_is_compared_and_the_processor_not_judged() {
        let told = |gpu: &GpuTimes| {
            let mut drift = drift(false);
            let lines: Vec<String> =
                (0..10).filter_map(|_| drift.step(1.5, &times(0.1, 0.9, 0.4, 0.0), Some(gpu), link(0))).collect();
            assert_eq!((lines.len(), drift.measured()), (1, Measured::default()), "{lines:?}");
            lines[0].clone()
        };
        let gpu = GpuTimes { gpu_backward_seconds: 0.6, gpu_update_seconds: 0.2, ..GpuTimes::default() };
        let slow = GpuTimes { gpu_forward_seconds: 0.5, ..gpu };
        assert!(told(&slow).ends_with(
            "computing takes 1.10 s instead of 0.600 s: the GPU is 0.545 times as fast as \
                                       the profile says"
        ));
        let shared = GpuTimes { gpu_link_wait_seconds: 0.2, ..gpu };
        assert!(
            told(&shared).ends_with("commits, and a GPU that others use too or that has no work yet, take 0.500 s")
        );
        let waits = GpuTimes { gpu_link_wait_seconds: 0.1, gpu_processor_wait_seconds: 0.6, ..gpu };
        assert!(told(&waits).ends_with(
            "waiting for pages takes 0.700 s instead of 0.200 s, most of it for the \
                                        processor's updates"
        ));
    }

    #[test]
    fn steps_that_are_few_or_the_first_do_not_count() {
        let mut drift = drift(false);
        let slow = times(9.0, 0.0, 0.0, 0.0);
        for _ in 0..WARM_UP {
            assert_eq!(drift.step(9.0, &slow, None, link(0)), None);
        }
        for _ in 0..8 {
            assert_eq!(drift.step(1.0, &times(0.6, 0.2, 0.2, 0.0), None, link(0)), None);
        }
        assert_eq!(drift.at_end(), None);
        assert_eq!(drift.measured(), Measured { compute: Some(1.0), ..Measured::default() });
    }
}
