//! Operations of the embedding: rows of tokens, chunk by chunk.

use super::Computation;
use super::accesses::Accesses;
use super::real::Number;
use mt_kernels::cuda::{Error, embedding};

impl Computation {
    /// See [`crate::schedule::Operation::Gather`].
    pub(super) fn gather<R: Number>(
        &mut self,
        chunk: usize,
        micro: usize,
        mut accesses: Accesses<'_, '_>,
    ) -> Result<(), Error> {
        let (at, hidden, tokens) = (self.model.chunks[0][chunk], self.model.config.hidden, self.tokens(micro));
        let x = accesses.write::<R>(tokens * hidden);
        let (lasting, weights) = self.workspace.chunk::<R>(micro);
        let ids = self.input.ids(lasting.input.into_view(), micro);
        embedding::gather_piece(&self.work, ids, hidden, at.start, weights.view().slice(0..at.len), x)
    }

    /// See [`crate::schedule::Operation::ChunkBegin`].
    pub(super) fn chunk_begin(&mut self, chunk: usize, mut accesses: Accesses<'_, '_>) -> Result<(), Error> {
        let at = self.model.chunks[0][chunk];
        let (_, gradients) = self.workspace.chunk::<f32>(0);
        let mut gradients = gradients.slice(0..at.len);
        match accesses.read_rest() {
            Some(grad) => gradients.copy_from(&self.work, grad.cast().slice(0..at.len)),
            None => gradients.fill(&self.work, 0),
        }
    }

    /// See [`crate::schedule::Operation::Scatter`].
    pub(super) fn scatter<R: Number>(
        &mut self,
        chunk: usize,
        micro: usize,
        mut accesses: Accesses<'_, '_>,
    ) -> Result<(), Error> {
        let (at, hidden, tokens) = (self.model.chunks[0][chunk], self.model.config.hidden, self.tokens(micro));
        let dx = accesses.read::<R>(tokens * hidden);
        let (lasting, gradients) = self.workspace.chunk::<f32>(micro);
        let order = self.input.order(lasting.input.into_view(), micro);
        embedding::scatter_add_piece(&self.work, order, hidden, at.start, dx, gradients.slice(0..at.len))
    }
}
