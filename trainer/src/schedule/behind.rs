//! How far updates on the processor are behind a GPU's backward (fused-backward), and where their gradients wait.
//!
//! One thread walks the program. It waits for a unit's gradients until they have come down the link, so what the GPU
//! computes meanwhile stands in front of the unit's updates: the backward of the unit after it. No further, since the
//! rest is the engine's to overlap: the processor updates beside whatever the GPU was given.
//!
//! Few gradients wait at a time, so layers take *turns* with the pages of the first few, and those of no other layer
//! take RAM or disk; embedding and head have their own. A layer's gradients leave VRAM when those that had its turn
//! before were used: more turns let the GPU run further ahead where the processor takes longer for a layer than it, as
//! for layers of which everything is kept.

use super::{Description, UpdateOn};
use crate::layout::{Chunk, GRAD};
use mt_engine::Run;
use std::collections::VecDeque;

/// Updates on the processor whose gradients the GPU was told to compute and that have not been written into the program
/// yet, in the order of the backward.
#[derive(Default)]
pub(super) struct Behind {
    pending: VecDeque<(usize, usize)>,
}

impl Behind {
    /// A chunk of a unit whose gradients are on their way.
    pub(super) fn push(&mut self, unit: usize, chunk: usize) {
        self.pending.push_back((unit, chunk));
    }

    /// The next update, of a unit and chunk, if there is one that is not of the unit `newest`.
    pub(super) fn next_before(&mut self, newest: usize) -> Option<(usize, usize)> {
        self.pending.front().filter(|(unit, _)| *unit != newest)?;
        self.pending.pop_front()
    }

    /// The next update, whatever it is of.
    pub(super) fn next(&mut self) -> Option<(usize, usize)> {
        self.pending.pop_front()
    }
}

impl Description<'_> {
    /// The run in which a chunk's gradients wait for its update. Layers are alike; embedding and head are not.
    pub(super) fn gradients(&self, unit: usize, at: Chunk) -> Run {
        let own = at.run(GRAD);
        let is_layer = (1..=self.config.layers).contains(&unit);
        match self.gpu {
            Some(on) if self.fused_backward && is_layer => {
                let before = on.updates[1..unit].iter().filter(|on| **on == UpdateOn::Cpu).count();
                let first_page = &self.layout.first_page;
                Run { first: first_page[1 + before % on.turns] + at.first_page - first_page[unit], ..own }
            }
            _ => own,
        }
    }

    /// Whether a GPU updates in backward, with gradients that never leave it.
    pub(crate) fn applies_on_gpu(&self) -> bool {
        self.fused_backward && self.gpu.is_some_and(|on| on.updates.contains(&UpdateOn::Gpu))
    }
}
