//! Where a step's time goes, measured instruction by instruction: computing by phase, computing again, waiting by
//! cause. Two looks at the clock an instruction; a recording, while one is made, gets them too.

use crate::schedule::Phase;
use mt_engine::{DeviceId, Recorder, Sweep, Waited};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// Where a step's time went. What is missing to its wall time went to taking its data, beginning and ending it.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct StepTimes {
    /// Computing the embedding and the layers forward.
    pub forward_seconds: f64,
    /// Computing the head in both directions, and the loss.
    pub loss_seconds: f64,
    /// Computing backward, less what is computed again.
    pub backward_seconds: f64,
    /// Computing again in backward what forward did not keep.
    pub recompute_seconds: f64,
    /// Updating the state.
    pub update_seconds: f64,
    /// Waiting for pages to be read.
    pub read_wait_seconds: f64,
    /// Waiting for write-backs that had to end first, for want of room or because the same pages were being written.
    pub write_wait_seconds: f64,
    /// Waiting for the commit before to become durable.
    pub commit_wait_seconds: f64,
}

impl StepTimes {
    /// All of it.
    pub fn sum(&self) -> f64 {
        self.compute() + self.read_wait_seconds + self.write_wait_seconds + self.commit_wait_seconds
    }

    /// What was computed, updates included.
    pub fn compute(&self) -> f64 {
        self.forward_seconds + self.loss_seconds + self.backward_seconds + self.recompute_seconds + self.update_seconds
    }
}

/// Watches one execution of a program.
pub(super) struct Watch<'w> {
    /// The phase of each instruction.
    phases: &'w [Phase],
    recorder: Option<&'w Recorder>,
    /// Added to an instruction's number in a recording.
    label: u64,
    pub(super) times: StepTimes,
}

/// An instruction that goes on.
pub(super) struct Begun {
    at: Instant,
    recorded_ns: u64,
    waited: Waited,
}

impl Begun {
    /// When it began.
    pub(super) fn at(&self) -> Instant {
        self.at
    }

    /// How long it has waited for pages so far.
    pub(super) fn waited_ns(&self, sweep: &Sweep<'_>) -> u64 {
        let (now, then) = (sweep.waited(), self.waited);
        now.for_reads_ns + now.for_writes_ns - then.for_reads_ns - then.for_writes_ns
    }
}

impl<'w> Watch<'w> {
    pub(super) fn new(phases: &'w [Phase], recorder: Option<&'w Recorder>, label: u64) -> Watch<'w> {
        Watch { phases, recorder, label, times: StepTimes::default() }
    }

    /// An instruction begins.
    pub(super) fn begin(&self, sweep: &Sweep<'_>) -> Begun {
        let recorded_ns = self.recorder.map_or(0, Recorder::now_ns);
        Begun { at: Instant::now(), recorded_ns, waited: sweep.waited() }
    }

    /// It is done. `again`: the part of it that computed what was computed before.
    pub(super) fn end(&mut self, index: usize, begun: &Begun, sweep: &Sweep<'_>, again: Duration) {
        let waited = sweep.waited();
        let seconds = |ns: u64| ns as f64 * 1e-9;
        let reads = seconds(waited.for_reads_ns - begun.waited.for_reads_ns);
        let writes = seconds(waited.for_writes_ns - begun.waited.for_writes_ns);
        let again = again.as_secs_f64();
        let computed = (begun.at.elapsed().as_secs_f64() - reads - writes - again).max(0.0);
        let times = &mut self.times;
        times.read_wait_seconds += reads;
        times.write_wait_seconds += writes;
        times.recompute_seconds += again;
        *(match self.phases[index] {
            Phase::Forward => &mut times.forward_seconds,
            Phase::Loss => &mut times.loss_seconds,
            Phase::Backward => &mut times.backward_seconds,
            Phase::Update => &mut times.update_seconds,
        }) += computed;
        if let Some(recorder) = self.recorder {
            recorder.worked(self.label(index), begun.recorded_ns);
        }
    }

    /// An instruction is handed to another thread, which computes it: what was waited for it counts here, what it takes
    /// with [`updated`](Watch::updated).
    pub(super) fn handed_over(&mut self, begun: &Begun, sweep: &Sweep<'_>) {
        let waited = sweep.waited();
        self.times.read_wait_seconds += (waited.for_reads_ns - begun.waited.for_reads_ns) as f64 * 1e-9;
        self.times.write_wait_seconds += (waited.for_writes_ns - begun.waited.for_writes_ns) as f64 * 1e-9;
    }

    /// Updates took so long on another thread.
    pub(super) fn updated(&mut self, took: Duration) {
        self.times.update_seconds += took.as_secs_f64();
    }

    /// What is recorded with, if something is.
    pub(super) fn recorder(&self) -> Option<&'w Recorder> {
        self.recorder
    }

    /// An instruction's label in a recording.
    pub(super) fn label(&self, index: usize) -> u64 {
        self.label | index as u64
    }

    /// The phase of an instruction.
    pub(super) fn phase(&self, index: usize) -> Phase {
        self.phases[index]
    }

    /// A device computed an instruction, from and to these nanoseconds since `started`.
    pub(super) fn computed(&self, device: DeviceId, index: usize, started: Instant, (begin_ns, end_ns): (u64, u64)) {
        if let Some(recorder) = self.recorder {
            let base_ns = recorder.ns(started);
            recorder.computed(device, self.label(index), (base_ns + begin_ns, base_ns + end_ns));
        }
    }

    /// The commit mark was passed, whose only work is to wait.
    pub(super) fn passed_mark(&mut self, begun: &Begun) {
        self.times.commit_wait_seconds += begun.at.elapsed().as_secs_f64();
    }
}
