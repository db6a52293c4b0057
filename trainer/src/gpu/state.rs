//! Operations on the state: weights in, gradients out.

use super::Computation;
use super::accesses::Accesses;
use super::real::Number;
use crate::schedule::{Gradients, Sink};
use mt_kernels::cuda::{Error, Queue, View, ViewMut, norm2};
use mt_kernels::norm2::LEAF;
use std::ops::Range;

/// The planes of a chunk.
#[derive(Clone, Copy)]
struct Planes<'a> {
    hi: View<'a, u16>,
    lo: Option<View<'a, i16>>,
}

impl Planes<'_> {
    /// Joins the elements `range` of the chunk.
    fn join<R: Number>(&self, work: &Queue, range: Range<usize>, to: ViewMut<'_, R>) -> Result<(), Error> {
        R::join(work, self.hi.slice(range.clone()), self.lo.map(|lo| lo.slice(range)), to)
    }
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
        let (at, hidden) = (self.model.chunks[unit][chunk], self.model.config.hidden);
        let hi = accesses.read(at.len);
        let planes = Planes { hi, lo: R::BOTH_PLANES.then(|| accesses.read(at.len)) };
        let work = &self.work;
        let before = match into {
            Sink::Nowhere => return Ok(()),
            Sink::Layer => {
                let (_, mut buffers) = self.workspace.layer::<R>(0);
                for piece in self.tensors.pieces(at) {
                    let to = buffers.weights.reborrow().slice(piece.to..piece.to + piece.len);
                    planes.join(work, piece.from..piece.from + piece.len, to)?;
                }
                return Ok(());
            }
            Sink::Chunk => {
                let (_, to) = self.workspace.chunk::<R>(0);
                return planes.join(work, 0..at.len, to.slice(0..at.len));
            }
            // Elements of the final norm lie before the matrix.
            Sink::Head => hidden.saturating_sub(at.start).min(at.len),
            Sink::Tile => 0,
        };
        let (lasting, mut buffers) = self.workspace.head::<R>(0);
        if before > 0 {
            planes.join(work, 0..before, lasting.norm.cast::<R>().slice(at.start..at.start + before))?;
        }
        let n = at.len - before;
        if n > 0 {
            let to = self.tile.make_room(work, buffers.tile.reborrow(), n, false)?;
            planes.join(work, before..at.len, buffers.tile.slice(to..to + n))?;
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
        let mut padding = accesses.write_rest().expect("a gradient is kept somewhere").cast::<f32>();
        let mut grad = padding.take_front(at.len);
        let work = &self.work;
        padding.fill(work, 0)?;
        match from {
            Gradients::Layer => {
                let (_, buffers) = self.workspace.layer::<R>(0);
                for piece in self.tensors.pieces(at) {
                    let from = buffers.gradients.view().slice(piece.to..piece.to + piece.len);
                    grad.reborrow().slice(piece.from..piece.from + piece.len).copy_from(work, from)?;
                }
            }
            Gradients::Chunk => {
                let (_, gradients) = self.workspace.chunk::<f32>(0);
                grad.copy_from(work, gradients.view().slice(0..at.len))?;
            }
            Gradients::Tile => {
                let (begin, (_, buffers)) = (self.gradients.begin(), self.workspace.head::<R>(0));
                grad.copy_from(work, buffers.gradients.view().slice(begin..begin + at.len))?;
                self.gradients.drop_front(at.len);
                self.front += at.len;
            }
            Gradients::Norm => {
                let (_, buffers) = self.workspace.head::<R>(0);
                grad.copy_from(work, buffers.norm_chunks.view().slice(at.start..at.start + at.len))?;
            }
        }
        if partial {
            return Ok(());
        }
        // A chunk begins with a page, so with a leaf.
        let first = self.leaves[unit] + at.start / LEAF;
        let leaves = self.workspace.lasting(0).leaves.slice(first..first + at.len.div_ceil(LEAF));
        norm2::leaf_sums(work, grad.view(), leaves)
    }
}
