//! Looking at a model without training it: logits, gradients, weights.

use super::Shapes;
use super::executor::{Executor, Task};
use super::leases::numbers;
use super::trainer::{Trainer, check_micro};
use super::watch::Watch;
use crate::batch::{MicroBatch, NO_TARGET};
use crate::error::{Error, Result};
use crate::layout::{Chunk, GRAD, HI, LO};
use crate::schedule::Writer;
use mt_engine::{Mode, Resource, Schedule};
use mt_kernels::split;
use std::sync::Arc;

impl Trainer {
    /// Logits \[T,V] of a micro-batch with at most as many tokens as a step's first. Applies a pending update first.
    ///
    /// # Errors
    /// `Input` for a micro-batch that is too large; those of [`flush`](Trainer::flush).
    pub fn logits(&mut self, micro: &MicroBatch) -> Result<Vec<f32>> {
        self.flush(None)?;
        let vocab = self.model.config.vocab;
        check_micro(micro, micro.seq, vocab)?;
        let most = self.shapes.micro_rows[0] * self.shapes.seq;
        if micro.ids.is_empty() || micro.ids.len() > most {
            let found = micro.ids.len().to_string();
            return Err(Error::input("micro-batch", "tokens", format!("1 to {most}"), found));
        }
        if self.inference.is_none() {
            let (model, prepared) = (&self.model, &self.prepared);
            let description = prepared.scheme.describe(&model.config, &model.manifest, &self.shapes, &prepared.layout);
            let program = Writer::inference(description);
            let plan = prepared.plan_another(program.schedule(false))?;
            self.inference = Some((program, plan));
        }
        let (program, plan) = self.inference.as_ref().expect("it was just made");
        let padded = self.gpu.is_some().then(|| self.padded(micro)).transpose()?;
        let mut logits = vec![0.0; padded.as_ref().unwrap_or(micro).ids.len() * vocab];
        let task = Task {
            micro: std::slice::from_ref(padded.as_ref().unwrap_or(micro)),
            pending: None,
            own: None,
            targets: 0,
            note: None,
            logits: Some(&mut logits),
        };
        let sweep = self.engine.sweep(plan, None)?;
        let phases = program.phases();
        let mut watch = Watch::new(&phases, None, 0);
        Executor::new(&self.model, &self.cpu, self.gpu.as_mut(), &mut self.workspace, task)
            .run(program, &sweep, &mut watch)?;
        sweep.finish()?;
        logits.truncate(micro.ids.len() * vocab);
        Ok(logits)
    }

    /// The micro-batch in the step's first shape, which is the only one that a GPU computes: tokens that nobody asked
    /// for stand behind the others, each a document of its own.
    fn padded(&self, micro: &MicroBatch) -> Result<MicroBatch> {
        let Shapes { micro_rows, seq, .. } = &self.shapes;
        let (rows, seq, given) = (micro_rows[0], *seq, micro.ids.len());
        if micro.seq != seq && micro.rows > 1 || micro.seq > seq {
            let expected = format!("rows of {seq} tokens, or one that is shorter");
            return Err(Error::input("micro-batch", "tokens of a row", expected, micro.seq.to_string()));
        }
        let mut padded = MicroBatch { rows, seq, ..micro.clone() };
        padded.ids.resize(rows * seq, 0);
        padded.targets.resize(rows * seq, NO_TARGET);
        padded.positions.resize(rows * seq, 0);
        padded.document.extend((given..rows * seq).map(|token| (token % seq) as u32));
        Ok(padded)
    }

    /// Calls `f` with every unit, chunk and its gradients, which are those of the last step, before clipping.
    ///
    /// # Errors
    /// `Input` if no update is pending: the gradients are gone; the engine's.
    pub fn read_gradients(&mut self, mut f: impl FnMut(usize, Chunk, &[f32])) -> Result<()> {
        if !self.is_pending() {
            return Err(Error::input("trainer", "gradients", "a pending update", "none"));
        }
        self.read(&[GRAD], |_, unit, chunk, bytes| f(unit, chunk, numbers(bytes[0], chunk.len)))
    }

    /// Calls `f` with every unit, chunk and its master weights. Applies a pending update first.
    ///
    /// # Errors
    /// Those of [`flush`](Trainer::flush).
    pub fn read_weights(&mut self, mut f: impl FnMut(usize, Chunk, &[f32])) -> Result<()> {
        self.flush(None)?;
        let mut weights = Vec::new();
        self.read(&[HI, LO], |cpu, unit, chunk, bytes| {
            weights.resize(chunk.len, 0.0);
            split::join(cpu, numbers(bytes[0], chunk.len), numbers(bytes[1], chunk.len), &mut weights);
            f(unit, chunk, &weights);
        })
    }

    /// Reads the given state regions of every chunk.
    fn read(
        &mut self,
        regions: &[mt_engine::RegionId],
        mut f: impl FnMut(&mt_kernels::Cpu, usize, Chunk, &[&[u8]]),
    ) -> Result<()> {
        let chunks: Vec<(usize, Chunk)> =
            self.model.chunks.iter().enumerate().flat_map(|(unit, c)| c.iter().map(move |c| (unit, *c))).collect();
        let mut schedule = Schedule::default();
        for (_, chunk) in &chunks {
            let accesses = regions.iter().map(|region| schedule.access(chunk.run(*region), Mode::Read, 0)).collect();
            schedule.work(Resource::HostCompute, 0, accesses, 0);
        }
        let plan: Arc<_> = self.prepared.plan_another(schedule)?;
        let sweep = self.engine.sweep(&plan, None)?;
        for (unit, chunk) in chunks {
            let leases = regions.iter().map(|region| sweep.host(chunk.run(*region)));
            let leases = leases.collect::<std::result::Result<Vec<_>, _>>()?;
            let bytes: Vec<&[u8]> = leases.iter().map(|lease| &**lease).collect();
            f(&self.cpu, unit, chunk, &bytes);
        }
        Ok(sweep.finish()?)
    }
}
