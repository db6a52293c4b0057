//! The numbers of a report: what a run's history comes to.

use mt_trainer::measure::updates::ELEMENT_BYTES;
use mt_trainer::run::{History, Predicted, ProcessEnd, ProcessLine, ProcessStart, StepRecord};
use mt_trainer::step::{GpuTimes, StepTimes};

/// Steps of a process that say little of the others: the first has no update, the second may wait for the first.
const WARM_UP: u64 = 2;

/// A number of a step, if it recorded it.
pub type Value<'a> = &'a dyn Fn(&StepRecord) -> Option<f64>;

/// A cause of time: its name, the name of its colour, and how much of a step it takes.
pub struct Cause {
    pub name: &'static str,
    pub color: &'static str,
    pub seconds: fn(&StepRecord) -> Option<f64>,
}

/// Everything that a step's time goes to where the processor computes; together its wall time.
const CAUSES: [Cause; 9] = [
    cause("forward", "forward", |step| part(step, |times| times.forward_seconds)),
    cause("loss", "loss", |step| part(step, |times| times.loss_seconds)),
    cause("backward", "backward", |step| part(step, |times| times.backward_seconds)),
    cause("recompute", "recompute", |step| part(step, |times| times.recompute_seconds)),
    cause("optimizer", "update", |step| part(step, |times| times.update_seconds)),
    cause("waits for disk reads", "read", |step| part(step, |times| times.read_wait_seconds)),
    cause("waits for disk writes", "write", |step| part(step, |times| times.write_wait_seconds)),
    cause("waits for commits", "commit", |step| part(step, |times| times.commit_wait_seconds)),
    cause("everything else", "rest", |step| Some((step.seconds - step.times?.sum()).max(0.0))),
];

/// The same where a GPU computes, by the GPU's time.
const GPU_CAUSES: [Cause; 7] = [
    cause("forward", "forward", |step| gpu(step, |times| times.gpu_forward_seconds)),
    cause("loss", "loss", |step| gpu(step, |times| times.gpu_loss_seconds)),
    cause("backward and recompute", "backward", |step| gpu(step, |times| times.gpu_backward_seconds)),
    cause("optimizer on the GPU", "update", |step| gpu(step, |times| times.gpu_update_seconds)),
    cause("waits for the link", "read", |step| gpu(step, |times| times.gpu_link_wait_seconds)),
    cause("waits for the processor", "commit", |step| gpu(step, |times| times.gpu_processor_wait_seconds)),
    cause("everything else", "rest", |step| Some((step.seconds - step.gpu?.times.sum()).max(0.0))),
];

const fn cause(name: &'static str, color: &'static str, seconds: fn(&StepRecord) -> Option<f64>) -> Cause {
    Cause { name, color, seconds }
}

fn gpu(step: &StepRecord, part: fn(&GpuTimes) -> f64) -> Option<f64> {
    step.gpu.as_ref().map(|gpu| part(&gpu.times))
}

fn part(step: &StepRecord, part: fn(&StepTimes) -> f64) -> Option<f64> {
    step.times.as_ref().map(part)
}

/// A process with what is known of its end.
pub struct Process<'a> {
    pub start: &'a ProcessStart,
    pub end: Option<&'a ProcessEnd>,
}

/// A run in numbers.
pub struct Digest<'a> {
    pub steps: &'a [StepRecord],
    pub processes: Vec<Process<'a>>,
    /// Steps that are neither the first of the run nor of a process, if there are any; else all.
    pub steady: Vec<&'a StepRecord>,
}

impl<'a> Digest<'a> {
    pub fn new(history: &'a History) -> Digest<'a> {
        let mut processes: Vec<Process<'a>> = Vec::new();
        for line in &history.processes {
            match line {
                ProcessLine::Start(start) => processes.push(Process { start, end: None }),
                ProcessLine::End(end) => {
                    if let Some(process) = processes.last_mut() {
                        process.end = Some(end);
                    }
                }
            }
        }
        let first = history.steps.first().map_or(0, |step| step.step - 1);
        let starts: Vec<u64> = processes.iter().map(|process| process.start.first_step).chain([first]).collect();
        let is_steady = |step: &&StepRecord| {
            let since = starts.iter().filter(|start| **start < step.step).max();
            since.is_some_and(|start| step.step - start > WARM_UP)
        };
        let mut steady: Vec<&StepRecord> = history.steps.iter().filter(is_steady).collect();
        if steady.is_empty() {
            steady = history.steps.iter().collect();
        }
        Digest { steps: &history.steps, processes, steady }
    }

    /// What the time of its typical steps goes to: the GPU's, if one computed all of them.
    pub fn causes(&self) -> &'static [Cause] {
        match self.is_on_gpu() {
            true => &GPU_CAUSES,
            false => &CAUSES,
        }
    }

    /// Whether a GPU computed the typical steps.
    pub fn is_on_gpu(&self) -> bool {
        !self.steady.is_empty() && self.steady.iter().all(|step| step.gpu.is_some())
    }

    /// What the last process was planned to do.
    pub fn predicted(&self) -> Option<&'a Predicted> {
        self.processes.last().map(|process| &process.start.predicted)
    }

    /// Mean over the steady steps that recorded it.
    pub fn mean(&self, of: impl Fn(&StepRecord) -> Option<f64>) -> Option<f64> {
        let found: Vec<f64> = self.steady.iter().filter_map(|step| of(step)).collect();
        (!found.is_empty()).then(|| found.iter().sum::<f64>() / found.len() as f64)
    }

    /// Seconds of a step: the mean, so that the means of its parts add up to it.
    pub fn mean_seconds(&self) -> Option<f64> {
        self.mean(|step| Some(step.seconds))
    }

    /// Seconds of the step in the middle, by time: what single slow steps do not move.
    pub fn median_seconds(&self) -> Option<f64> {
        let mut seconds: Vec<f64> = self.steady.iter().map(|step| step.seconds).collect();
        seconds.sort_by(f64::total_cmp);
        seconds.get(seconds.len() / 2).copied()
    }

    /// Bytes a second of memory that the processor's update moved; and those that the plan had it move.
    pub fn update_bytes_per_s(&self) -> Option<(f64, Option<f64>)> {
        let start = self.processes.last()?.start;
        let bytes = start.parameters as f64 * ELEMENT_BYTES;
        let rate = |seconds: f64| (seconds > 0.0).then(|| bytes / seconds);
        let found = self.mean(|step| step.times.map(|times| times.update_seconds).filter(|seconds| *seconds > 0.0));
        let planned = start.predicted.phases.iter().find(|phase| phase.phase == "update");
        Some((found.and_then(rate)?, planned.and_then(|phase| rate(phase.compute_seconds))))
    }

    /// Bytes of all steps, and of each process's last update and commit.
    pub fn all_bytes(&self, of_step: fn(&StepRecord) -> u64, of_end: fn(&ProcessEnd) -> u64) -> u64 {
        let ends = self.processes.iter().filter_map(|process| process.end).map(of_end);
        self.steps.iter().map(of_step).sum::<u64>() + ends.sum::<u64>()
    }

    /// Steps after which another process went on.
    pub fn resumes(&self) -> Vec<u64> {
        self.processes.iter().skip(1).map(|process| process.start.first_step).collect()
    }

    /// Tokens a second of the steady steps.
    pub fn tokens_per_s(&self) -> Option<f64> {
        let seconds: f64 = self.steady.iter().map(|step| step.seconds).sum();
        let tokens: u64 = self.steady.iter().map(|step| step.tokens).sum();
        (seconds > 0.0).then(|| tokens as f64 / seconds)
    }
}

/// Neighbouring steps as one, so that no more than `most` are drawn: first and last step, and the mean of each value
/// over those that have it.
pub struct Bucket {
    pub first: u64,
    pub last: u64,
    pub values: Vec<Option<f64>>,
}

/// Cuts the steps into buckets.
pub fn buckets(steps: &[StepRecord], most: usize, values: &[Value<'_>]) -> Vec<Bucket> {
    let size = steps.len().div_ceil(most).max(1);
    let bucket = |part: &[StepRecord]| Bucket {
        first: part[0].step,
        last: part[part.len() - 1].step,
        values: values
            .iter()
            .map(|value| {
                let found: Vec<f64> = part.iter().filter_map(value).collect();
                (!found.is_empty()).then(|| found.iter().sum::<f64>() / found.len() as f64)
            })
            .collect(),
    };
    steps.chunks(size).map(bucket).collect()
}
