//! Operations of the embedding: rows of tokens, chunk by chunk.

use super::executor::Executor;
use super::leases::{Leases, numbers, numbers_mut};
use crate::error::Result;
use mt_kernels::embedding;

impl Executor<'_> {
    /// See [`crate::schedule::Operation::Gather`].
    pub(super) fn gather(&mut self, chunk: usize, micro: usize, mut leases: Leases<'_, '_>) -> Result<()> {
        let mut x = leases.write()?;
        let (at, hidden) = (self.model.chunks[0][chunk], self.model.config.hidden);
        let ids = &self.task.micro[micro].ids;
        let out = numbers_mut::<f32>(&mut x, ids.len() * hidden);
        embedding::gather_piece(self.cpu, ids, hidden, at.start, &self.workspace.slab.chunk()[..at.len], out);
        Ok(())
    }

    /// See [`crate::schedule::Operation::ChunkBegin`].
    pub(super) fn chunk_begin(&mut self, chunk: usize, mut leases: Leases<'_, '_>) -> Result<()> {
        let at = self.model.chunks[0][chunk];
        let buffer = &mut self.workspace.slab.chunk()[..at.len];
        match leases.read_rest()? {
            Some(grad) => buffer.copy_from_slice(numbers(&grad, at.len)),
            None => buffer.fill(0.0),
        }
        Ok(())
    }

    /// See [`crate::schedule::Operation::Scatter`].
    pub(super) fn scatter(&mut self, chunk: usize, micro: usize, mut leases: Leases<'_, '_>) -> Result<()> {
        let dx = leases.read()?;
        let (at, hidden) = (self.model.chunks[0][chunk], self.model.config.hidden);
        let ids = &self.task.micro[micro].ids;
        let dx = numbers::<f32>(&dx, ids.len() * hidden);
        let buffer = &mut self.workspace.slab.chunk()[..at.len];
        embedding::scatter_add_piece(self.cpu, ids, hidden, at.start, dx, buffer);
        Ok(())
    }
}
