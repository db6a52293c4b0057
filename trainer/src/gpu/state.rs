//! Operations on the state: weights in, gradients out, updates.

use super::Computation;
use super::accesses::Accesses;
use super::real::{Number, Planes};
use super::workspace::Lasting;
use crate::layout::Chunk;
use crate::schedule::{Gradients, Sink};
use mt_kernels::cuda::pieces::{self, Piece};
use mt_kernels::cuda::{Error, View, ViewMut, adamw};
use mt_kernels::norm2::LEAF;

/// The four planes of a chunk, to be updated.
struct State<'a> {
    hi: ViewMut<'a, u16>,
    lo: ViewMut<'a, i16>,
    m: ViewMut<'a, f32>,
    v: ViewMut<'a, f32>,
}

impl<'a> State<'a> {
    /// The next four accesses.
    fn take(accesses: &mut Accesses<'_, 'a>, len: usize) -> State<'a> {
        State { hi: accesses.write(len), lo: accesses.write(len), m: accesses.write(len), v: accesses.write(len) }
    }
}

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
        let grad = accesses.read::<f32>(at.len);
        let mut state = State::take(&mut accesses, at.len);
        self.update_state(unit, at, Some(grad), &mut state)?;
        let lo = R::BOTH_PLANES.then(|| state.lo.into_view());
        self.join_planes::<R>(at, into, Planes { hi: state.hi.into_view(), lo })
    }

    /// See [`crate::schedule::Operation::Apply`]: with the update that the sweep began with.
    pub(super) fn apply<R: Number>(
        &mut self,
        unit: usize,
        chunk: usize,
        from: Gradients,
        mut accesses: Accesses<'_, '_>,
    ) -> Result<(), Error> {
        let at = self.model.chunks[unit][chunk];
        let mut state = State::take(&mut accesses, at.len);
        self.take_out::<R>((unit, at), from, false, None)?;
        self.update_state(unit, at, None, &mut state)
    }

    /// Updates a chunk's state with these gradients; None: with those that were taken out to be applied.
    fn update_state(
        &mut self,
        unit: usize,
        at: Chunk,
        grad: Option<View<'_, f32>>,
        state: &mut State<'_>,
    ) -> Result<(), Error> {
        let step = self.optimizer.expect("an update is executed in a sweep that begins with one");
        for segment in self.model.segments(unit, at) {
            let local = segment.range.start - at.start..segment.range.end - at.start;
            let Lasting { refused, applied, .. } = self.workspace.lasting(0);
            adamw::update(
                &self.work,
                &step,
                segment.tensor.decay,
                grad.unwrap_or(applied.into_view()).slice(local.clone()),
                state.hi.reborrow().slice(local.clone()),
                state.lo.reborrow().slice(local.clone()),
                state.m.reborrow().slice(local.clone()),
                state.v.reborrow().slice(local),
                segment.range.start as u64,
                refused.slice(unit..unit + 1),
            )?;
        }
        Ok(())
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
        self.take_out::<R>((unit, at), from, partial, Some(grad))
    }

    /// Takes a chunk's gradients out of where they came to be, with the sums of squares of their leaves if they are
    /// complete; None: to be applied.
    fn take_out<R: Number>(
        &mut self,
        (unit, at): (usize, Chunk),
        from: Gradients,
        partial: bool,
        to: Option<ViewMut<'_, f32>>,
    ) -> Result<(), Error> {
        // A chunk begins with a page, so with a leaf; and a chunk's room is whole pages.
        let first = self.leaves[unit] + at.start / LEAF;
        let leaves = first..first + at.len.div_ceil(LEAF);
        let applied = 0..at.len.next_multiple_of(LEAF);
        let work = &self.work;
        match from {
            Gradients::Layer => {
                let (lasting, buffers) = self.workspace.layer::<R>(0);
                let leaves = (!partial).then(|| lasting.leaves.slice(leaves));
                let to = to.unwrap_or_else(|| lasting.applied.slice(applied));
                pieces::keep(work, buffers.gradients.view(), self.tensors.pieces(at), to, at.len, leaves)
            }
            Gradients::Chunk => {
                let (lasting, gradients) = self.workspace.chunk::<f32>(0);
                let leaves = (!partial).then(|| lasting.leaves.slice(leaves));
                let to = to.unwrap_or_else(|| lasting.applied.slice(applied));
                pieces::keep(work, gradients.view(), whole(0, at.len), to, at.len, leaves)
            }
            Gradients::Tile => {
                let begin = self.gradients.begin();
                let (lasting, buffers) = self.workspace.head::<R>(0);
                let leaves = (!partial).then(|| lasting.leaves.slice(leaves));
                let to = to.unwrap_or_else(|| lasting.applied.slice(applied));
                pieces::keep(work, buffers.gradients.view(), whole(begin, at.len), to, at.len, leaves)?;
                self.gradients.drop_front(at.len);
                self.front += at.len;
                Ok(())
            }
            Gradients::Norm => {
                let (lasting, buffers) = self.workspace.head::<R>(0);
                let leaves = (!partial).then(|| lasting.leaves.slice(leaves));
                let to = to.unwrap_or_else(|| lasting.applied.slice(applied));
                pieces::keep(work, buffers.norm_chunks.view(), whole(at.start, at.len), to, at.len, leaves)
            }
        }
    }
}
