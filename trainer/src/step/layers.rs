//! Operations of the layers.

use super::executor::Executor;
use super::leases::{Leases, numbers, numbers_mut};
use crate::block::{Block, Gradients, Kept, Level, Saved, Scratch, Tokens, first_seen};
use crate::error::Result;
use mt_kernels::norm2::sum_squares;

impl Executor<'_> {
    /// See [`crate::schedule::Operation::LayerForward`].
    pub(super) fn layer_forward(
        &mut self,
        layer: usize,
        micro: usize,
        level: Level,
        mut leases: Leases<'_, '_>,
    ) -> Result<()> {
        let (x, mut y, mut kept) = (leases.read()?, leases.write()?, leases.write_rest()?);
        let it = &self.task.micro[micro];
        let (count, dims) = (it.ids.len(), self.model.dims);
        let first = &mut self.workspace.first[..count];
        first_seen(&it.document, it.seq, self.model.config.windows[layer], first);
        let tokens = Tokens { rows: it.rows, seq: it.seq, positions: &it.positions, first };
        let buffers = self.workspace.slab.layer();
        let kept: &mut [f32] = kept.as_mut().map_or(&mut [], |lease| bytemuck::cast_slice_mut(lease));
        let block = Block {
            cpu: self.cpu,
            dims,
            tensors: &self.model.tensors[layer],
            weights: buffers.weights,
            rope: &self.workspace.rope,
        };
        let elements = count * dims.hidden;
        block.forward(
            &tokens,
            numbers(&x, elements),
            &mut Saved::split_mut(&dims, count, level, kept, buffers.saved),
            &mut Scratch::new(&dims, count, buffers.scratch),
            numbers_mut(&mut y, elements),
        );
        Ok(())
    }

    /// See [`crate::schedule::Operation::LayerBackward`].
    pub(super) fn layer_backward(
        &mut self,
        layer: usize,
        micro: usize,
        level: Level,
        mut leases: Leases<'_, '_>,
    ) -> Result<()> {
        let (x, mut dx, kept) = (leases.read()?, leases.write()?, leases.read_rest()?);
        let it = &self.task.micro[micro];
        let (count, dims) = (it.ids.len(), self.model.dims);
        let first = &mut self.workspace.first[..count];
        first_seen(&it.document, it.seq, self.model.config.windows[layer], first);
        let tokens = Tokens { rows: it.rows, seq: it.seq, positions: &it.positions, first };
        let buffers = self.workspace.slab.layer();
        let block = Block {
            cpu: self.cpu,
            dims,
            tensors: &self.model.tensors[layer],
            weights: buffers.weights,
            rope: &self.workspace.rope,
        };
        let elements = count * dims.hidden;
        let (x, dx) = (numbers(&x, elements), numbers_mut(&mut dx, elements));
        let kept = Kept { level, elements: kept.as_ref().map_or(&[], |lease| bytemuck::cast_slice(lease)) };
        let mut scratch = Scratch::new(&dims, count, buffers.scratch);
        let mut gradients = Gradients { elements: buffers.gradients, add: micro > 0 };
        self.again += block.backward(&tokens, x, kept, buffers.saved, &mut scratch, &mut gradients, dx);
        Ok(())
    }

    /// See [`crate::schedule::Operation::LayerGradient`].
    pub(super) fn layer_gradient(&mut self, unit: usize) -> Result<()> {
        let elements = self.model.manifest.units[unit].elements;
        let gradients = &self.workspace.slab.layer().gradients[..elements];
        self.sums[unit] = sum_squares(self.cpu, 0.0, gradients);
        self.check_sum(unit)
    }
}
