//! How far updates on the processor are ahead of a GPU in a program.
//!
//! One thread walks the program. It computes the processor's updates itself and only enqueues the GPU's work, so that
//! both are busy at once if updates stand in front of the work that runs beside them: those of unit u + 1 before the
//! weights of unit u are taken up. Where the state streams from disk, what was updated stays in the window until the
//! GPU has it, so the distance is bounded.

use super::Description;
use crate::layout::Chunk;

/// Where a unit's update runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UpdateOn {
    /// On the processor.
    Cpu,
    /// On the GPU.
    Gpu,
}

/// An update that is to come.
#[derive(Clone, Copy, Debug)]
struct Pending {
    unit: usize,
    chunk: usize,
    /// Elements of the model up to its end.
    end: usize,
}

/// Updates on the processor that have not been written into the program yet, in the order of units and chunks.
pub(super) struct Ahead {
    pending: Vec<Pending>,
    next: usize,
    distance: usize,
}

impl Ahead {
    /// All updates that run on the processor beside a GPU.
    pub(super) fn new(chunks: &[Vec<Chunk>], it: &Description<'_>) -> Ahead {
        let (mut pending, mut end) = (Vec::new(), 0);
        for (unit, chunks) in chunks.iter().enumerate() {
            for (chunk, at) in chunks.iter().enumerate() {
                end += at.len;
                if it.updates_on_host(unit) {
                    pending.push(Pending { unit, chunk, end });
                }
            }
        }
        Ahead { pending, next: 0, distance: it.gpu.map_or(0, |on| on.ahead) }
    }

    /// The updates that come before the weights of this chunk are taken up: its own, and those ahead of it.
    pub(super) fn before(&mut self, unit: usize, chunk: usize) -> Vec<(usize, usize)> {
        let own = self.pending.partition_point(|update| (update.unit, update.chunk) <= (unit, chunk));
        let reach = own.checked_sub(1).map_or(0, |own| self.pending[own].end.saturating_add(self.distance));
        let is_before = |update: &Pending| update.unit <= unit + 1 && update.end <= reach;
        let ahead = self.pending[own..].iter().take_while(|update| is_before(update)).count();
        let first = self.next;
        self.next = self.next.max(own + ahead);
        self.pending[first..self.next].iter().map(|update| (update.unit, update.chunk)).collect()
    }
}
