//! Updates that the processor computes beside a GPU. One thread walks the program and takes all leases in its order;
//! these updates it hands to a second one. So they go on while the walking thread waits for room in VRAM or gives the
//! GPU work, and the GPU gets work while the processor updates.
//!
//! Invariants: updates are computed in the order in which they are handed over, each by all threads of the pool, so
//! bits do not depend on who waits for whom; whoever computes them waits for nobody, so leases that are held for them
//! come back; what is relayed to the GPU from an update waits in the engine until its lease is back. After a failure
//! what is still handed over is only given back.

use super::executor::Update;
use super::leases::{Leases, numbers};
use super::model::Model;
use super::state::Planes;
use crate::error::{Error, Result};
use crossbeam::channel::{Receiver, Sender, bounded};
use mt_engine::{HostLease, Mode, Recorder, Run, Sweep};
use mt_kernels::Cpu;
use std::collections::VecDeque;
use std::thread::{Builder, Scope};
use std::time::{Duration, Instant};

/// A chunk to be updated.
pub(super) struct Job<'s> {
    /// The instruction's label in a recording.
    pub(super) label: u64,
    unit: usize,
    chunk: usize,
    /// The runs of its gradient and its high plane, which others wait for.
    runs: [Run; 2],
    grad: HostLease<'s>,
    planes: Planes<'s>,
}

impl<'s> Job<'s> {
    /// Takes the leases of an update: the accesses of its instruction.
    pub(super) fn take(
        label: u64,
        (unit, chunk): (usize, usize),
        accesses: &[(Run, Mode)],
        sweep: &'s Sweep<'s>,
    ) -> Result<Job<'s>> {
        let mut leases = Leases::new(sweep, accesses);
        let runs = [accesses[0].0, accesses[1].0];
        Ok(Job { label, unit, chunk, runs, grad: leases.read()?, planes: Planes::take(&mut leases)? })
    }
}

/// A job that is over, its leases given back.
struct Ended {
    took: Duration,
    result: Result<()>,
}

/// What computes the updates.
#[derive(Clone, Copy)]
pub(super) struct Means<'e> {
    pub(super) model: &'e Model,
    pub(super) cpu: &'e Cpu,
    pub(super) update: Update,
    pub(super) recorder: Option<&'e Recorder>,
}

impl Means<'_> {
    fn update(&self, job: &mut Job<'_>) -> Result<()> {
        let at = self.model.chunks[job.unit][job.chunk];
        let grad = numbers::<f32>(&job.grad, at.len);
        job.planes.update_chunk(self.cpu, self.model, &self.update, (job.unit, at), grad)
    }

    /// Computes what comes until nobody hands over any more.
    fn work(&self, jobs: &Receiver<Job<'_>>, ended: &Sender<Ended>) {
        let mut has_failed = false;
        for mut job in jobs {
            let (begin, begin_ns) = (Instant::now(), self.recorder.map_or(0, Recorder::now_ns));
            let result = if has_failed { Ok(()) } else { self.update(&mut job) };
            has_failed |= result.is_err();
            if let Some(recorder) = self.recorder {
                recorder.worked(job.label, begin_ns);
            }
            drop(job);
            // Nobody listens any more where the walk ended with an error.
            _ = ended.send(Ended { took: begin.elapsed(), result });
        }
    }
}

/// The walking thread's side.
pub(super) struct Beside<'s> {
    jobs: Sender<Job<'s>>,
    ended: Receiver<Ended>,
    /// Runs of the updates that are handed over and not over, in their order.
    open: VecDeque<[Run; 2]>,
    took: Duration,
}

impl<'s> Beside<'s> {
    /// Starts the thread, for at most so many updates.
    ///
    /// # Errors
    /// `System`: it does not start.
    pub(super) fn start<'scope>(
        scope: &'scope Scope<'scope, '_>,
        means: Means<'scope>,
        most: usize,
    ) -> Result<Beside<'s>>
    where
        's: 'scope,
    {
        let ((jobs, taken), (told, ended)) = (bounded(most), bounded(most));
        Builder::new()
            .name("updates".to_owned())
            .spawn_scoped(scope, move || means.work(&taken, &told))
            .map_err(|error| Error::threads(1, error))?;
        Ok(Beside { jobs, ended, open: VecDeque::with_capacity(most), took: Duration::ZERO })
    }

    /// Hands an update over.
    ///
    /// # Errors
    /// `Numeric`: an earlier one gave a number that cannot be kept.
    pub(super) fn hand(&mut self, job: Job<'s>) -> Result<()> {
        self.open.push_back(job.runs);
        self.jobs.send(job).expect("the thread takes jobs as long as there is somebody who hands them over");
        self.listen()
    }

    /// Whether an update that is still to come has this gradient or high plane.
    pub(super) fn uses(&self, run: Run) -> bool {
        self.open.iter().any(|runs| runs.contains(&run))
    }

    /// Takes in what is over.
    ///
    /// # Errors
    /// As [`hand`](Beside::hand).
    pub(super) fn listen(&mut self) -> Result<()> {
        while let Ok(ended) = self.ended.try_recv() {
            self.note(ended)?;
        }
        Ok(())
    }

    /// Waits until all that was handed over is over.
    ///
    /// # Errors
    /// As [`hand`](Beside::hand).
    pub(super) fn drain(&mut self) -> Result<()> {
        while !self.open.is_empty() {
            let ended = self.ended.recv().expect("the thread tells of every job");
            self.note(ended)?;
        }
        Ok(())
    }

    /// What updating took since this was last asked for.
    pub(super) fn took(&mut self) -> Duration {
        std::mem::take(&mut self.took)
    }

    fn note(&mut self, ended: Ended) -> Result<()> {
        self.open.pop_front();
        self.took += ended.took;
        ended.result
    }
}
