//! Operations that exist: what each is for, how far it came, which wait for their turn, and how pages become transfers.
//!
//! Invariant: in steady state nothing here allocates. Slots and queues grow to the largest number of operations that
//! existed at once, which the arena bounds, and lists of checksums are handed on from one operation to the next.

use crate::core::runs::RunId;
use crate::core::tickets::TicketId;
use crate::events::Doing;
use crate::format::Layout;
use crate::format::layout::Side;
use crate::id::Run;
use crate::io::{FrameMut, FrameRef, Op, OpId};
use std::collections::VecDeque;

/// Neighbouring pages that are neighbours on a volume too: one transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Piece {
    /// The pages; a zero count for records of the store's own.
    pub(crate) run: Run,
    pub(crate) volume: u16,
    /// Byte offset on the volume.
    pub(crate) disk: u64,
    /// Byte offset in the arena.
    pub(crate) arena: u64,
    pub(crate) bytes: u32,
}

/// Whom bytes that are read or written belong to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Owner {
    /// An interval: fetched, or released from the window.
    Interval(u64),
    /// A ticket.
    Ticket(TicketId),
    /// A placed run that a commit flushes.
    Flush(RunId),
}

/// What an operation is for. The order of the variants of one path is the order in which they follow each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// Disk to RAM.
    Fetch { owner: Owner },
    /// Checksums of fetched pages, compared with the table.
    Verify { owner: Owner },
    /// Checksums of pages about to be written.
    Digest { owner: Owner },
    /// RAM to disk.
    Store { owner: Owner },
    /// A part of the page table or of the note.
    Table,
    /// A superblock.
    Super,
    /// A sync of the running commit's phase.
    Sync,
}

impl Purpose {
    /// What a recording calls it; None for what no volume does.
    fn doing(self) -> Option<Doing> {
        match self {
            Purpose::Fetch { .. } => Some(Doing::Reading),
            Purpose::Store { .. } => Some(Doing::Writing),
            Purpose::Table | Purpose::Super => Some(Doing::Recording),
            Purpose::Sync => Some(Doing::Syncing),
            Purpose::Verify { .. } | Purpose::Digest { .. } => None,
        }
    }

    /// Whom the bytes belong to; None for the store's own.
    fn owner(self) -> Option<Owner> {
        match self {
            Purpose::Fetch { owner }
            | Purpose::Store { owner }
            | Purpose::Verify { owner }
            | Purpose::Digest { owner } => Some(owner),
            Purpose::Table | Purpose::Super | Purpose::Sync => None,
        }
    }
}

/// An operation on a volume or over a device's link that began or ended, for a recording.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Move {
    pub(crate) doing: Doing,
    pub(crate) owner: Option<Owner>,
    pub(crate) volume: u16,
    /// The pages; None for records of the store's own.
    pub(crate) run: Option<Run>,
    /// The schedule's label of the access that owns it.
    pub(crate) tag: Option<u64>,
    /// Bytes moved at its end; None: it began.
    pub(crate) moved: Option<u32>,
}

/// An operation known to the core.
#[derive(Debug)]
pub(crate) struct Transfer {
    pub(crate) purpose: Purpose,
    pub(crate) piece: Piece,
    /// Bytes moved so far; a short transfer goes on from here.
    pub(crate) done: u32,
    /// Retries without progress.
    pub(crate) stalls: u32,
    /// Checksums for `Verify` and `Digest`; those of `Digest` stay for the `Store` that follows.
    pub(crate) digests: Vec<u64>,
    pub(crate) page_bytes: u32,
}

impl Transfer {
    /// The beginning (`moved` None) or end of its operation, unless no volume does it. The owner's label is not known
    /// here.
    pub(crate) fn noted(&self, moved: Option<u32>) -> Option<Move> {
        let Piece { run, volume, .. } = self.piece;
        let (doing, owner) = (self.purpose.doing()?, self.purpose.owner());
        Some(Move { doing, owner, volume, run: (run.count > 0).then_some(run), tag: None, moved })
    }

    /// The operation for what is left to do.
    pub(crate) fn op(&mut self) -> Op {
        let offset = self.piece.arena + u64::from(self.done);
        let bytes = self.piece.bytes - self.done;
        let (volume, disk) = (self.piece.volume, self.piece.disk + u64::from(self.done));
        match self.purpose {
            Purpose::Fetch { .. } => Op::Read { volume, offset: disk, into: FrameMut::new(offset, bytes) },
            Purpose::Store { .. } | Purpose::Table | Purpose::Super => {
                Op::Write { volume, offset: disk, from: FrameRef::new(offset, bytes) }
            }
            Purpose::Sync => Op::Sync { volume },
            Purpose::Verify { .. } | Purpose::Digest { .. } => Op::Hash {
                from: FrameRef::new(offset, bytes),
                page_bytes: self.page_bytes,
                digests: std::mem::take(&mut self.digests),
            },
        }
    }
}

/// Bytes of operations that volumes and devices have and have not answered.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct InFlight {
    pub(crate) read_bytes: u64,
    pub(crate) write_bytes: u64,
    /// On their way to VRAM.
    pub(crate) upload_bytes: u64,
    /// On their way from VRAM.
    pub(crate) download_bytes: u64,
}

impl InFlight {
    pub(crate) fn of(op: &Op) -> InFlight {
        match op {
            Op::Read { into, .. } => InFlight { read_bytes: u64::from(into.bytes), ..InFlight::default() },
            Op::Write { from, .. } => InFlight { write_bytes: u64::from(from.bytes), ..InFlight::default() },
            Op::Sync { .. } | Op::Hash { .. } => InFlight::default(),
        }
    }

    pub(crate) fn add(&mut self, other: InFlight) {
        self.read_bytes += other.read_bytes;
        self.write_bytes += other.write_bytes;
        self.upload_bytes += other.upload_bytes;
        self.download_bytes += other.download_bytes;
    }

    pub(crate) fn remove(&mut self, other: InFlight) {
        self.read_bytes -= other.read_bytes;
        self.write_bytes -= other.write_bytes;
        self.upload_bytes -= other.upload_bytes;
        self.download_bytes -= other.download_bytes;
    }
}

/// Slots for operations; ids are reused only after the completion was taken.
pub(crate) struct Transfers {
    slots: Vec<Option<Transfer>>,
    free: Vec<u32>,
    /// Operations to submit: those of the volumes and those of the processor.
    queues: [VecDeque<OpId>; 2],
    /// Lists of checksums of operations that are done, each with room for the pages of the largest transfer.
    spare_digests: Vec<Vec<u64>>,
    /// Pages of the largest transfer.
    pages_max: usize,
}

impl Transfers {
    /// Room for transfers of at most `pages_max` pages.
    pub(crate) fn new(pages_max: usize) -> Transfers {
        let (slots, free, queues, spare_digests) = Default::default();
        Transfers { slots, free, queues, spare_digests, pages_max }
    }

    /// Makes an operation and queues it. `page_bytes` is of no meaning for a piece without pages.
    pub(crate) fn start(&mut self, purpose: Purpose, piece: Piece, page_bytes: u32) {
        assert!(piece.run.count as usize <= self.pages_max, "{} pages in one transfer", piece.run.count);
        let digests = match piece.run.count {
            0 => Vec::new(),
            _ => self.spare_digests.pop().unwrap_or_else(|| Vec::with_capacity(self.pages_max)),
        };
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() as u32 - 1
        });
        let place = &mut self.slots[slot as usize];
        assert!(place.is_none(), "operation slot {slot} is taken");
        *place = Some(Transfer { purpose, piece, done: 0, stalls: 0, digests, page_bytes });
        self.queue(OpId(u64::from(slot)));
    }

    /// Queues an operation that goes on: a next part of its transfer, or a next purpose.
    pub(crate) fn queue(&mut self, id: OpId) {
        let hashes = matches!(self.get_mut(id).purpose, Purpose::Verify { .. } | Purpose::Digest { .. });
        self.queues[usize::from(hashes)].push_back(id);
    }

    /// The two queues of operations to submit.
    pub(crate) fn queues_mut(&mut self) -> &mut [VecDeque<OpId>; 2] {
        &mut self.queues
    }

    pub(crate) fn get_mut(&mut self, id: OpId) -> &mut Transfer {
        self.slots[id.0 as usize].as_mut().expect("a completion for an operation that is not in flight")
    }

    pub(crate) fn remove(&mut self, id: OpId) -> Transfer {
        let transfer = self.slots[id.0 as usize].take().expect("a completion for an operation that is not in flight");
        self.free.push(id.0 as u32);
        transfer
    }

    /// Every operation, in no particular order.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Transfer> {
        self.slots.iter().flatten()
    }

    /// Takes back the list of checksums of an operation that was removed.
    pub(crate) fn recycle(&mut self, mut digests: Vec<u64>) {
        if digests.capacity() > 0 {
            digests.clear();
            self.spare_digests.push(digests);
        }
    }

    /// Operations that exist.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

/// Cuts a run into pieces of at most `bytes_max` (at least a page). `side` chooses each page's extent; `None` leaves
/// the page out.
pub(crate) fn pieces(
    layout: &Layout,
    run: Run,
    arena: u64,
    bytes_max: u32,
    mut side: impl FnMut(u32) -> Option<Side>,
    mut out: impl FnMut(Piece),
) {
    let page_bytes = layout.page_bytes(run.region);
    let mut open: Option<Piece> = None;
    for page in run.first..run.end() {
        let Some(side) = side(page) else {
            open.take().map(&mut out);
            continue;
        };
        let extent = layout.extent(run.region, page, side);
        if let Some(piece) = open.as_mut()
            && piece.volume == extent.volume
            && piece.disk + u64::from(piece.bytes) == extent.offset
            && piece.bytes + page_bytes <= bytes_max
        {
            piece.bytes += page_bytes;
            piece.run.count += 1;
            continue;
        }
        open.take().map(&mut out);
        open = Some(Piece {
            run: Run { region: run.region, first: page, count: 1 },
            volume: extent.volume,
            disk: extent.offset,
            arena: arena + u64::from(page - run.first) * u64::from(page_bytes),
            bytes: page_bytes,
        });
    }
    open.map(out);
}
