//! How far updates on the processor are ahead of a GPU in a program.
//!
//! One thread walks the program. It hands the processor's updates to another and enqueues the GPU's work, and waits
//! where that finds no room in VRAM. So that the processor has updates to compute meanwhile, they stand in front of the
//! work that runs beside them, by a *distance* in elements of such updates: those of units that the GPU updates lie
//! between them and count for nothing. Where the state streams from disk, what was updated stays in the window until
//! the GPU has it, and so does what the GPU is to update behind it; so the distance is short.

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
    /// Elements of these updates up to its end.
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
        for (unit, chunks) in chunks.iter().enumerate().filter(|(unit, _)| it.updates_on_host(*unit)) {
            for (chunk, at) in chunks.iter().enumerate() {
                end += at.len;
                pending.push(Pending { unit, chunk, end });
            }
        }
        Ahead { pending, next: 0, distance: it.gpu.map_or(0, |on| on.ahead) }
    }

    /// The updates that come before the weights of this chunk are taken up: its own, if it is one of them, and those
    /// ahead of it.
    pub(super) fn before(&mut self, unit: usize, chunk: usize) -> Vec<(usize, usize)> {
        let own = self.pending.partition_point(|update| (update.unit, update.chunk) <= (unit, chunk));
        let reach = own.checked_sub(1).map_or(0, |own| self.pending[own].end).saturating_add(self.distance);
        let ahead = self.pending[own..].partition_point(|update| update.end <= reach);
        let first = self.next;
        self.next = self.next.max(own + ahead);
        self.pending[first..self.next].iter().map(|update| (update.unit, update.chunk)).collect()
    }
}
