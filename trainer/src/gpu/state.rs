//! Operations on the state: weights in, gradients out, updates.

use super::Computation;
use super::accesses::Accesses;
use super::real::{Number, Planes};
use crate::layout::Chunk;
use crate::schedule::{Gradients, Sink};
use mt_kernels::cuda::pieces::{self, Piece};
use mt_kernels::cuda::{Error, adamw};
use mt_kernels::norm2::LEAF;

/// All of a chunk in one piece.
fn whole(to: usize, len: usize) -> std::iter::Once<Piece> {
    std::iter::once(Piece { from: 0, to, len })
}

impl Computation {
    /// See [`crate::schedule::Operation::Join`]; the low plane is an access where the precision takes it.
    pub(super) fn join<R: Number>(
        &mut self,
        unit: usize,
        chunk: usize,
        into: Sink,
        mut accesses: Accesses<'_, '_>,
    ) -> Result<(), Error> {
        let at = self.model.chunks[unit][chunk];
        let hi = accesses.read(at.len);
        let lo = R::BOTH_PLANES.then(|| accesses.read(at.len));
        self.join_planes::<R>(at, into, Planes { hi, lo })
    }

    /// See [`crate::schedule::Operation::Update`]: with the update that the sweep began with.
    pub(super) fn update<R: Number>(
        &mut self,
        unit: usize,
        chunk: usize,
        into: Sink,
        mut accesses: Accesses<'_, '_>,
    ) -> Result<(), Error> {
        let at = self.model.chunks[unit][chunk];
        let step = self.pending.expect("an update is executed in a sweep that begins with one");
        let grad = accesses.read::<f32>(at.len);
        let (mut hi, mut lo) = (accesses.write::<u16>(at.len), accesses.write::<i16>(at.len));
        let (mut m, mut v) = (accesses.write::<f32>(at.len), accesses.write::<f32>(at.len));
        for segment in self.model.segments(unit, at) {
            let local = segment.range.start - at.start..segment.range.end - at.start;
            let refused = self.workspace.lasting(0).refused;
            adamw::update(
                &self.work,
                &step,
                segment.tensor.decay,
                grad.slice(local.clone()),
                hi.reborrow().slice(local.clone()),
                lo.reborrow().slice(local.clone()),
                m.reborrow().slice(local.clone()),
                v.reborrow().slice(local),
                segment.range.start as u64,
                refused.slice(unit..unit + 1),
            )?;
        }
        let lo = R::BOTH_PLANES.then(|| lo.into_view());
        self.join_planes::<R>(at, into, Planes { hi: hi.into_view(), lo })
    }

    fn join_planes<R: Number>(&mut self, at: Chunk, into: Sink, planes: Planes<'_>) -> Result<(), Error> {
        let work = &self.work;
        let before = match into {
            Sink::Nowhere => return Ok(()),
            Sink::Layer => {
                let (_, buffers) = self.workspace.layer::<R>(0);
                return R::join(work, planes, self.tensors.pieces(at), buffers.weights);
            }
            Sink::Chunk => {
                let (_, to) = self.workspace.chunk::<R>(0);
                return R::join(work, planes, whole(0, at.len), to);
            }
            // Elements of the final norm lie before the matrix.
            Sink::Head => self.model.config.hidden.saturating_sub(at.start).min(at.len),
            Sink::Tile => 0,
        };
        let (lasting, mut buffers) = self.workspace.head::<R>(0);
        if before > 0 {
            R::join(work, planes.slice(0..before), whole(at.start, before), lasting.norm.cast())?;
        }
        let n = at.len - before;
        if n > 0 {
            let to = self.tile.make_room(work, buffers.tile.reborrow(), n, false)?;
            R::join(work, planes.slice(before..at.len), whole(to, n), buffers.tile)?;
            self.tile.push(n);
        }
        Ok(())
    }

    /// See [`crate::schedule::Operation::Keep`].
    pub(super) fn keep<R: Number>(
        &mut self,
        unit: usize,
        chunk: usize,
        from: Gradients,
        partial: bool,
        mut accesses: Accesses<'_, '_>,
    ) -> Result<(), Error> {
        let at = self.model.chunks[unit][chunk];
        let grad = accesses.write_rest().expect("a gradient is kept somewhere").cast::<f32>();
        // A chunk begins with a page, so with a leaf.
        let first = self.leaves[unit] + at.start / LEAF;
        let leaves = first..first + at.len.div_ceil(LEAF);
        let work = &self.work;
        match from {
            Gradients::Layer => {
                let (lasting, buffers) = self.workspace.layer::<R>(0);
                let leaves = (!partial).then(|| lasting.leaves.slice(leaves));
                pieces::keep(work, buffers.gradients.view(), self.tensors.pieces(at), grad, at.len, leaves)
            }
            Gradients::Chunk => {
                let (lasting, gradients) = self.workspace.chunk::<f32>(0);
                let leaves = (!partial).then(|| lasting.leaves.slice(leaves));
                pieces::keep(work, gradients.view(), whole(0, at.len), grad, at.len, leaves)
            }
            Gradients::Tile => {
                let begin = self.gradients.begin();
                let (lasting, buffers) = self.workspace.head::<R>(0);
                let leaves = (!partial).then(|| lasting.leaves.slice(leaves));
                pieces::keep(work, buffers.gradients.view(), whole(begin, at.len), grad, at.len, leaves)?;
                self.gradients.drop_front(at.len);
                self.front += at.len;
                Ok(())
            }
            Gradients::Norm => {
                let (lasting, buffers) = self.workspace.head::<R>(0);
                let leaves = (!partial).then(|| lasting.leaves.slice(leaves));
                pieces::keep(work, buffers.norm_chunks.view(), whole(at.start, at.len), grad, at.len, leaves)
            }
        }
    }
}
