//! Operations on the state: weights in, gradients out, updates.

use super::executor::{Executor, Update};
use super::leases::{Leases, numbers, numbers_mut};
use super::model::Model;
use crate::error::{Error, Result};
use crate::layout::Chunk;
use crate::schedule::{Gradients, Sink};
use crate::workspace::Workspace;
use mt_engine::HostLeaseMut;
use mt_kernels::norm2::sum_squares;
use mt_kernels::{Cpu, adamw, split};
use std::ops::Range;

impl Executor<'_> {
    /// See [`crate::schedule::Operation::Update`].
    pub(super) fn update(&mut self, unit: usize, chunk: usize, into: Sink, mut leases: Leases<'_, '_>) -> Result<()> {
        let at = self.model.chunks[unit][chunk];
        let Some(update) = self.task.pending else {
            leases.pass()?;
            let (hi, lo) = (leases.write()?, leases.write()?);
            leases.pass()?;
            leases.pass()?;
            self.join_planes(unit, at, into, &hi, &lo);
            hi.discard();
            lo.discard();
            return Ok(());
        };
        let grad = leases.read()?;
        let mut planes = Planes::take(&mut leases)?;
        let grad = numbers::<f32>(&grad, at.len);
        for segment in self.model.segments(unit, at) {
            let local = segment.range.start - at.start..segment.range.end - at.start;
            let out = place(self.workspace, self.model.config.hidden, into, at, &segment.range);
            planes
                .update(self.cpu, &update, segment.tensor.decay, &grad[local.clone()], &local, out)
                .map_err(|index| not_representable(&update, segment.tensor, segment.range.start + index))?;
        }
        Ok(())
    }

    /// See [`crate::schedule::Operation::Join`].
    pub(super) fn join(&mut self, unit: usize, chunk: usize, into: Sink, mut leases: Leases<'_, '_>) -> Result<()> {
        let (hi, lo) = (leases.read()?, leases.read()?);
        self.join_planes(unit, self.model.chunks[unit][chunk], into, &hi, &lo);
        Ok(())
    }

    fn join_planes(&mut self, unit: usize, at: Chunk, into: Sink, hi: &[u8], lo: &[u8]) {
        let (hi, lo) = (numbers::<u16>(hi, at.len), numbers::<i16>(lo, at.len));
        for segment in self.model.segments(unit, at) {
            let local = segment.range.start - at.start..segment.range.end - at.start;
            if let Some(out) = place(self.workspace, self.model.config.hidden, into, at, &segment.range) {
                split::join(self.cpu, &hi[local.clone()], &lo[local], out);
            }
        }
    }

    /// See [`crate::schedule::Operation::Keep`].
    pub(super) fn keep(
        &mut self,
        unit: usize,
        chunk: usize,
        from: Gradients,
        partial: bool,
        mut leases: Leases<'_, '_>,
    ) -> Result<()> {
        let at = self.model.chunks[unit][chunk];
        let mut grad = leases.write()?;
        let complete = (!partial).then_some(&mut self.sums[unit]);
        let gradients = source(self.cpu, self.workspace, from, at, complete);
        let all: &mut [f32] = bytemuck::cast_slice_mut(&mut grad);
        all[..at.len].copy_from_slice(gradients);
        all[at.len..].fill(0.0);
        self.left(from, at);
        Ok(())
    }

    /// See [`crate::schedule::Operation::Apply`].
    pub(super) fn apply(
        &mut self,
        unit: usize,
        chunk: usize,
        from: Gradients,
        mut leases: Leases<'_, '_>,
    ) -> Result<()> {
        let at = self.model.chunks[unit][chunk];
        let update = self.task.own.expect("only a program with its own updates applies them");
        let mut planes = Planes::take(&mut leases)?;
        source(self.cpu, self.workspace, from, at, Some(&mut self.sums[unit]));
        self.check_sum(unit)?;
        let gradients = source(self.cpu, self.workspace, from, at, None);
        planes.update_chunk(self.cpu, self.model, &update, (unit, at), gradients)?;
        self.left(from, at);
        Ok(())
    }

    /// A chunk's gradients have left.
    fn left(&mut self, from: Gradients, at: Chunk) {
        if from == Gradients::Tile {
            let buffer = self.workspace.slab.head().gradients;
            self.workspace.gradients.drop_front(buffer, at.len);
            self.front += at.len;
        }
    }
}

/// The four planes of a chunk, leased to be updated.
pub(super) struct Planes<'s> {
    hi: HostLeaseMut<'s>,
    lo: HostLeaseMut<'s>,
    m: HostLeaseMut<'s>,
    v: HostLeaseMut<'s>,
}

impl<'s> Planes<'s> {
    pub(super) fn take(leases: &mut Leases<'s, '_>) -> Result<Planes<'s>> {
        Ok(Planes { hi: leases.write()?, lo: leases.write()?, m: leases.write()?, v: leases.write()? })
    }

    /// Updates a chunk of a unit, whose weights go nowhere else.
    pub(super) fn update_chunk(
        &mut self,
        cpu: &Cpu,
        model: &Model,
        update: &Update,
        (unit, at): (usize, Chunk),
        gradients: &[f32],
    ) -> Result<()> {
        for segment in model.segments(unit, at) {
            let local = segment.range.start - at.start..segment.range.end - at.start;
            self.update(cpu, update, segment.tensor.decay, &gradients[local.clone()], &local, None)
                .map_err(|index| not_representable(update, segment.tensor, segment.range.start + index))?;
        }
        Ok(())
    }

    /// Updates the elements `range` of the chunk.
    fn update(
        &mut self,
        cpu: &Cpu,
        update: &Update,
        decay: bool,
        gradients: &[f32],
        range: &Range<usize>,
        out: Option<&mut [f32]>,
    ) -> std::result::Result<(), usize> {
        let hi = &mut numbers_mut::<u16>(&mut self.hi, range.end)[range.start..];
        let lo = &mut numbers_mut::<i16>(&mut self.lo, range.end)[range.start..];
        let m = &mut numbers_mut::<f32>(&mut self.m, range.end)[range.start..];
        let v = &mut numbers_mut::<f32>(&mut self.v, range.end)[range.start..];
        adamw::update(cpu, &update.scalars, decay, gradients, hi, lo, m, v, out)
    }
}

/// Where the joined elements `range` of a unit go.
fn place<'w>(
    workspace: &'w mut Workspace,
    hidden: usize,
    into: Sink,
    at: Chunk,
    range: &Range<usize>,
) -> Option<&'w mut [f32]> {
    let is_norm = into == Sink::Head && range.end <= hidden;
    match into {
        Sink::Nowhere => None,
        Sink::Layer => Some(&mut workspace.slab.layer().weights[range.clone()]),
        Sink::Chunk => Some(&mut workspace.slab.chunk()[range.start - at.start..range.end - at.start]),
        Sink::Head if is_norm => Some(&mut workspace.norm[range.clone()]),
        Sink::Head | Sink::Tile => {
            let queue = &mut workspace.tile;
            let room = queue.room(workspace.slab.head().tile, range.len());
            queue.push(range.len());
            Some(room)
        }
    }
}

/// A chunk's complete gradients. With `sum`, their squares are added to it, unless its unit sums them elsewhere.
fn source<'w>(cpu: &Cpu, workspace: &'w mut Workspace, from: Gradients, at: Chunk, sum: Option<&mut f64>) -> &'w [f32] {
    let gradients: &[f32] = match from {
        Gradients::Layer => &workspace.slab.layer().gradients[at.start..at.start + at.len],
        Gradients::Chunk => &workspace.slab.chunk()[..at.len],
        Gradients::Tile => &workspace.slab.head().gradients[..at.len],
        Gradients::Norm => &workspace.slab.head().norm_chunks[at.start..at.start + at.len],
    };
    if let (Gradients::Chunk | Gradients::Tile, Some(sum)) = (from, sum) {
        *sum = sum_squares(cpu, *sum, gradients);
    }
    gradients
}

/// `element` counts from the unit's start.
pub(super) fn not_representable(update: &Update, tensor: &crate::model::Tensor, element: usize) -> Error {
    Error::Numeric {
        step: update.step,
        what: format!(
            "the update gives a number that is not finite or too large in element {} of {}",
            element - tensor.offset,
            tensor.name
        ),
    }
}

impl Model {
    /// Sum of squares over units, in unit order.
    pub(super) fn total(sums: &[f64]) -> f64 {
        sums.iter().fold(0.0, |total, sum| total + sum)
    }
}
