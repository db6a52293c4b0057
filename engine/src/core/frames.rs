//! Copies of runs that tickets use: found by their pages, shared by everybody who reads them, kept after use as long as
//! there is room.
//!
//! Terms: a frame is *held* while a ticket uses it; *loaded* when its bytes are those of the pages; *stale* when some
//! of its pages were written elsewhere: it is never found again, and goes with its last holder.
//!
//! Invariants:
//! - of a run there is at most one frame that is not stale, though frames of other cuts may overlap it;
//! - only frames that nobody holds are evicted, the one that was given back first before all others;
//! - a frame that nobody holds is loaded and not stale: others are dropped when their last holder goes.

use super::pool::Pool;
use crate::canary::{Canary, planted};
use crate::id::Run;
use std::collections::BTreeMap;

/// Index of a frame; reused after the frame is dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FrameId(u32);

/// One copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    pub(crate) run: Run,
    /// Byte offset in the arena.
    pub(crate) offset: u64,
    bytes: u64,
    pub(crate) loaded: bool,
    stale: bool,
    holders: u32,
    /// When its last holder gave it back; meaningless while it is held.
    unused_since: u64,
}

/// All copies, and the room they are in.
pub(crate) struct Frames {
    pool: Pool,
    slots: Vec<Option<Frame>>,
    free: Vec<u32>,
    /// Frames that are not stale.
    index: BTreeMap<Run, FrameId>,
    /// Pages of the longest run that ever had a frame: bounds the search for frames that overlap a run.
    longest: u32,
    /// Frames that nobody holds, oldest first.
    unused: BTreeMap<u64, FrameId>,
    /// Bytes that cannot be evicted: offset and length of every held frame.
    held: BTreeMap<u64, u64>,
    /// Times that a frame was given back.
    clock: u64,
}

impl Frames {
    /// No frames, with this room for them.
    pub(crate) fn new(pool: Pool) -> Frames {
        Frames {
            pool,
            slots: Vec::new(),
            free: Vec::new(),
            index: BTreeMap::new(),
            longest: 0,
            unused: BTreeMap::new(),
            held: BTreeMap::new(),
            clock: 0,
        }
    }

    /// First byte of the arena that is theirs.
    pub(crate) fn start(&self) -> u64 {
        self.pool.start()
    }

    /// Bytes of all room there is.
    pub(crate) fn bytes(&self) -> u64 {
        self.pool.bytes()
    }

    pub(crate) fn get(&self, id: FrameId) -> &Frame {
        self.slots[id.0 as usize].as_ref().expect("a frame that was dropped")
    }

    fn get_mut(&mut self, id: FrameId) -> &mut Frame {
        self.slots[id.0 as usize].as_mut().expect("a frame that was dropped")
    }

    /// Frames that are not stale and share a page with the run.
    fn overlapping(&self, run: Run) -> impl Iterator<Item = (Run, FrameId)> + '_ {
        let bound = |first| Run { region: run.region, first, count: 0 };
        self.index
            .range(bound(run.first.saturating_sub(self.longest))..bound(run.end()))
            .map(|(other, id)| (*other, *id))
            .filter(move |(other, _)| other.overlaps(&run))
    }

    /// A frame that holds, or will hold, all pages of the run.
    pub(crate) fn find(&self, run: Run) -> Option<FrameId> {
        self.overlapping(run).find(|(other, _)| other.contains(&run)).map(|(_, id)| id)
    }

    /// Whether a new frame of so many bytes could be had now, by evicting if need be.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        let mut at = self.pool.start();
        for (offset, length) in &self.held {
            if offset - at >= bytes {
                return true;
            }
            at = offset + length;
        }
        self.pool.start() + self.pool.bytes() - at >= bytes
    }

    /// Makes a frame, held once and not loaded. There must be room.
    pub(crate) fn make(&mut self, run: Run, bytes: u64) -> FrameId {
        let offset = loop {
            if let Some(offset) = self.pool.take(bytes) {
                break offset;
            }
            let (_, oldest) = self.unused.pop_first().expect("there is room once all that is unused is evicted");
            self.drop_frame(oldest);
        };
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() as u32 - 1
        });
        let frame = Frame { run, offset, bytes, loaded: false, stale: false, holders: 1, unused_since: 0 };
        self.slots[slot as usize] = Some(frame);
        let id = FrameId(slot);
        assert!(self.index.insert(run, id).is_none(), "{run} has two frames");
        self.held.insert(offset, bytes);
        self.longest = self.longest.max(run.count);
        id
    }

    /// One more ticket uses the frame.
    pub(crate) fn hold(&mut self, id: FrameId) {
        let frame = self.get_mut(id);
        frame.holders += 1;
        let (holders, unused_since, offset, bytes) = (frame.holders, frame.unused_since, frame.offset, frame.bytes);
        if holders == 1 {
            self.unused.remove(&unused_since).expect("a frame that nobody holds is unused");
            self.held.insert(offset, bytes);
        }
    }

    /// One ticket fewer uses the frame.
    pub(crate) fn let_go(&mut self, id: FrameId) {
        self.clock += 1;
        let clock = self.clock;
        let frame = self.get_mut(id);
        frame.holders -= 1;
        if frame.holders > 0 {
            return;
        }
        frame.unused_since = clock;
        let (offset, keep) = (frame.offset, frame.loaded && !frame.stale);
        self.held.remove(&offset);
        if keep {
            self.unused.insert(clock, id);
        } else {
            self.drop_frame(id);
        }
    }

    /// The frame's bytes are those of its pages.
    pub(crate) fn set_loaded(&mut self, id: FrameId) {
        self.get_mut(id).loaded = true;
    }

    /// The frame's bytes are no longer to be trusted.
    pub(crate) fn spoil(&mut self, id: FrameId) {
        let frame = self.get_mut(id);
        if frame.stale {
            return;
        }
        frame.stale = true;
        let (run, holders, unused_since) = (frame.run, frame.holders, frame.unused_since);
        self.index.remove(&run);
        if holders == 0 {
            self.unused.remove(&unused_since);
            self.drop_frame(id);
        }
    }

    /// Pages of the run were written: frames that hold any of them are spoilt, but the one they were written in.
    pub(crate) fn written(&mut self, run: Run, but: Option<FrameId>) {
        while !planted(Canary::StaleCopy) {
            let found = self.overlapping(run).map(|(_, id)| id).find(|id| Some(*id) != but);
            let Some(id) = found else { return };
            let before = self.index.len();
            self.spoil(id);
            assert!(self.index.len() < before, "a copy of {run} that was spoiled is found again");
        }
    }

    /// Panics where the books of copies do not agree; `holders`: how many tickets use each.
    pub(crate) fn audit(&self, holders: impl Fn(FrameId) -> u32) {
        let frames = || self.slots.iter().enumerate().filter_map(|(n, slot)| Some((FrameId(n as u32), slot.as_ref()?)));
        for (id, frame) in frames() {
            let run = frame.run;
            assert_eq!(frame.holders, holders(id), "{run}: holders counted and there");
            assert_eq!(self.index.get(&run) == Some(&id), !frame.stale, "{run}: found unless it is stale");
            assert_eq!(self.held.get(&frame.offset) == Some(&frame.bytes), frame.holders > 0, "{run}: held");
            let is_unused = self.unused.get(&frame.unused_since) == Some(&id);
            assert_eq!(is_unused, frame.holders == 0, "{run}: unused");
            assert!(frame.holders > 0 || (frame.loaded && !frame.stale), "{run}: kept without being of use");
        }
        let bytes: u64 = frames().map(|(_, frame)| frame.bytes).sum();
        assert_eq!(bytes + self.pool.free_bytes(), self.pool.bytes(), "bytes of copies and holes");
        let count = frames().count();
        assert!(self.index.len() <= count && self.held.len() + self.unused.len() == count, "copies that are gone");
    }

    fn drop_frame(&mut self, id: FrameId) {
        let frame = self.slots[id.0 as usize].take().expect("a frame that was dropped");
        assert_eq!(frame.holders, 0, "the frame of {} is dropped while it is held", frame.run);
        if !frame.stale {
            self.index.remove(&frame.run);
        }
        self.pool.give_back(frame.offset, frame.bytes);
        self.free.push(id.0);
    }
}
