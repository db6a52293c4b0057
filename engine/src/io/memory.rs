//! A simulated disk for tests: one or several volumes in memory, deterministic, with the freedoms that real ones
//! take. What a test passes here holds on a device that reorders, tears, shortens and fails.
//!
//! Operations complete in an order chosen by a seeded generator, one *event* (a submission or a completion) after the
//! other. A test may stop the disk after any event and ask what a power loss or the death of the process would have
//! left; see [`disk`].
//!
//! It panics where a submitter breaks the rules: transfers that are misaligned, out of bounds or overlap on a volume
//! while one of them writes; frames that overlap while one of them is being filled; a frame that changes while an
//! operation owns it.
//!
//! There is no time here: `poll` with `wait` completes at least one operation if there is one, and never sleeps.

pub mod disk;
mod rng;

use super::hash::hash;
use super::{Completion, Io, IoLimits, Op, OpId};
use crate::arena::Arena;
use crate::format::checksum::page_checksum;
use disk::{Crash, Disk, SECTOR_BYTES, Unflushed};
use rng::SplitMix64;
use rustix::io::Errno;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// What a frame holds between the submission of a read and its completion.
const POISON: u8 = 0xd5;

/// Most completions that one poll hands out.
const COMPLETIONS_MAX: u64 = 4;

/// How often things go wrong, in thousandths of the operations concerned.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Faults {
    /// Reads that move fewer bytes than asked, a whole number of sectors.
    pub short_read: u32,
    /// Writes that move fewer bytes than asked, a whole number of sectors.
    pub short_write: u32,
    /// Reads and writes that fail with EIO; such a write leaves any of its sectors changed.
    pub eio: u32,
    /// Reads and writes that fail with EINTR and move nothing.
    pub eintr: u32,
    /// Reads and writes that fail with EAGAIN and move nothing.
    pub eagain: u32,
    /// Writes that fail with ENOSPC and move nothing.
    pub enospc: u32,
    /// Submissions that are refused although there is room.
    pub refusal: u32,
    /// Syncs that fail with EIO. What they should have covered no later sync covers.
    pub failed_sync: u32,
}

/// How a simulated disk behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Decides order and faults.
    pub seed: u64,
    /// Operations in flight.
    pub queue_depth: u32,
    /// Alignment demanded of memory, offsets and lengths, a multiple of 512.
    pub alignment: u32,
    /// How often things go wrong.
    pub faults: Faults,
}

impl Settings {
    /// A disk without faults.
    pub fn new(seed: u64) -> Settings {
        Settings { seed, queue_depth: 32, alignment: 512, faults: Faults::default() }
    }
}

/// An operation that was submitted and has not completed.
struct InFlight {
    id: OpId,
    op: Op,
    /// Checksum of the frame when it was submitted.
    frame_checksum: u64,
    /// For a sync: how many completed writes it covers, counted over the disk's life.
    covers: u64,
}

/// The simulated disk.
pub struct MemoryIo {
    arena: Arc<Arena>,
    disk: Disk,
    settings: Settings,
    rng: SplitMix64,
    in_flight: Vec<InFlight>,
    events: u64,
    stop_after: u64,
}

impl MemoryIo {
    /// Volumes of these sizes in bytes, full of zeros.
    pub fn new(arena: Arc<Arena>, volume_bytes: &[u64], settings: Settings) -> MemoryIo {
        MemoryIo::from_image(arena, volume_bytes.iter().map(|b| vec![0; *b as usize]).collect(), settings)
    }

    /// Volumes with this content, all of it durable: the machine starts again.
    pub fn from_image(arena: Arc<Arena>, volumes: Vec<Vec<u8>>, settings: Settings) -> MemoryIo {
        assert!(settings.alignment > 0 && u64::from(settings.alignment).is_multiple_of(SECTOR_BYTES));
        let rng = SplitMix64::new(settings.seed);
        MemoryIo {
            arena,
            disk: Disk::new(volumes),
            settings,
            rng,
            in_flight: Vec::new(),
            events: 0,
            stop_after: u64::MAX,
        }
    }

    /// Submissions and completions so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// After this event nothing happens any more: operations are taken and never complete, and `poll` fails.
    pub fn stop_after(&mut self, event: u64) {
        self.stop_after = event;
    }

    /// Whether the event given to `stop_after` has happened.
    pub fn stopped(&self) -> bool {
        self.events >= self.stop_after
    }

    /// What a reader would see on the volume now.
    pub fn volume(&self, volume: u16) -> &[u8] {
        self.disk.live(volume)
    }

    /// Changes a volume behind the submitter's back, durably: the content before the test, or damage.
    pub fn write_durable(&mut self, volume: u16, offset: u64, bytes: &[u8]) {
        self.disk.write_durable(volume, offset, bytes);
    }

    /// How many writes a power loss now could lose, in whole or in part.
    pub fn unflushed(&self) -> usize {
        self.disk.unflushed() + self.writes_in_flight().count()
    }

    /// The volumes' content after a power loss now. `seed` decides what `crash` leaves open.
    pub fn crash_image(&self, seed: u64, crash: Crash) -> Vec<Vec<u8>> {
        self.disk.crash_image(self.writes_in_flight(), crash, &mut SplitMix64::new(seed))
    }

    /// The volumes' content after the process was killed now: what has completed stays, what was in flight may be
    /// there in part.
    pub fn process_kill_image(&self, seed: u64) -> Vec<Vec<u8>> {
        self.disk.process_kill_image(self.writes_in_flight(), &mut SplitMix64::new(seed))
    }

    fn writes_in_flight(&self) -> impl Iterator<Item = Unflushed<'_>> {
        self.in_flight.iter().filter_map(|f| match &f.op {
            Op::Write { volume, offset, from } => {
                Some(Unflushed { volume: *volume, offset: *offset, bytes: self.arena.slice(from) })
            }
            _ => None,
        })
    }

    fn chance(&mut self, thousandths: u32) -> bool {
        // Always drawn, so that changing one probability leaves the rest of a run as it was where it can.
        self.rng.below(1000) < u64::from(thousandths)
    }

    /// Panics unless the operation may be in flight beside those that are.
    fn check(&self, op: &Op) {
        if let Some((volume, range, _)) = transfer(op) {
            let alignment = u64::from(self.settings.alignment);
            let frame = frame(op).expect("a transfer has a frame");
            assert!(range.end > range.start, "an empty transfer: {op:?}");
            for number in [range.start, range.end, frame.start] {
                assert!(number.is_multiple_of(alignment), "misaligned: {op:?}, alignment {alignment}");
            }
            assert!(range.end <= self.disk.live(volume).len() as u64, "out of bounds: {op:?}");
        }
        for other in &self.in_flight {
            let both = (transfer(op), transfer(&other.op));
            if let (Some((v, range, writes)), Some((other_v, other_range, other_writes))) = both {
                let clash = v == other_v && overlap(&range, &other_range) && (writes || other_writes);
                assert!(!clash, "{op:?} overlaps {:?} on the volume", other.op);
            }
            if let (Some(bytes), Some(other_bytes)) = (frame(op), frame(&other.op)) {
                let fills = matches!(op, Op::Read { .. }) || matches!(other.op, Op::Read { .. });
                assert!(!(fills && overlap(&bytes, &other_bytes)), "{op:?} uses the frame of {:?}", other.op);
            }
        }
    }

    fn frame_checksum(&self, op: &Op) -> u64 {
        match op {
            // The shared view of a frame that is exclusively the operation's, which is here.
            Op::Read { into, .. } => page_checksum(self.arena.slice(&super::FrameRef::new(into.offset, into.bytes))),
            Op::Write { from, .. } | Op::Hash { from, .. } => page_checksum(self.arena.slice(from)),
            Op::Sync { .. } => 0,
        }
    }

    /// Completes one operation, chosen at random.
    fn complete_one(&mut self) -> Completion {
        let chosen = self.rng.below(self.in_flight.len() as u64) as usize;
        let InFlight { id, mut op, frame_checksum, covers } = self.in_flight.swap_remove(chosen);
        assert_eq!(
            self.frame_checksum(&op),
            frame_checksum,
            "the frame of {op:?} changed while the operation was in flight"
        );
        let faults = self.settings.faults;
        let result = match &mut op {
            Op::Read { volume, offset, into } => {
                let result = self.outcome(into.bytes, faults.short_read, 0);
                if let Ok(moved) = result {
                    let (at, moved) = (*offset as usize, moved as usize);
                    self.arena.slice_mut(into)[..moved].copy_from_slice(&self.disk.live(*volume)[at..at + moved]);
                }
                result
            }
            Op::Write { volume, offset, from } => {
                let result = self.outcome(from.bytes, faults.short_write, faults.enospc);
                let source = self.arena.slice(from);
                match &result {
                    Ok(moved) => self.disk.write(*volume, *offset, &source[..*moved as usize]),
                    Err(Errno::IO) => self.disk.tear(*volume, *offset, source, &mut self.rng),
                    Err(_) => {}
                }
                result
            }
            Op::Sync { volume } => {
                let fails = self.chance(faults.failed_sync);
                self.disk.sync(*volume, covers, !fails);
                if fails { Err(Errno::IO) } else { Ok(0) }
            }
            Op::Hash { .. } => Ok(0),
        };
        self.events += 1;
        Completion { id, op, result: result.map_err(io::Error::from) }
    }

    /// Bytes moved by a transfer of `bytes`, or its error.
    fn outcome(&mut self, bytes: u32, short: u32, no_space: u32) -> Result<u32, Errno> {
        let faults = self.settings.faults;
        for (thousandths, errno) in [
            (faults.eio, Errno::IO),
            (faults.eintr, Errno::INTR),
            (faults.eagain, Errno::AGAIN),
            (no_space, Errno::NOSPC),
        ] {
            if self.chance(thousandths) {
                return Err(errno);
            }
        }
        let sectors = u64::from(bytes) / SECTOR_BYTES;
        if self.chance(short) && sectors > 1 {
            return Ok(((1 + self.rng.below(sectors - 1)) * SECTOR_BYTES) as u32);
        }
        Ok(bytes)
    }
}

impl Io for MemoryIo {
    fn submit(&mut self, id: OpId, mut op: Op) -> Result<(), Op> {
        let refused = self.chance(self.settings.faults.refusal);
        if refused || self.in_flight.len() == self.settings.queue_depth as usize {
            return Err(op);
        }
        assert!(self.in_flight.iter().all(|f| f.id != id), "{id:?} is in flight already");
        self.check(&op);
        if self.stopped() {
            // Never starts: it has no part in any image.
            return Ok(());
        }
        self.events += 1;
        match &mut op {
            Op::Read { into, .. } => self.arena.slice_mut(into).fill(POISON),
            Op::Hash { .. } => hash(&self.arena, &mut op),
            Op::Write { .. } | Op::Sync { .. } => {}
        }
        let frame_checksum = self.frame_checksum(&op);
        self.in_flight.push(InFlight { id, op, frame_checksum, covers: self.disk.writes_completed() });
        Ok(())
    }

    fn poll(&mut self, out: &mut Vec<Completion>, wait: Option<Duration>) -> io::Result<()> {
        let least = u64::from(wait.is_some());
        let count = least + self.rng.below(COMPLETIONS_MAX + 1 - least);
        for _ in 0..count.min(self.in_flight.len() as u64) {
            if self.stopped() {
                break;
            }
            out.push(self.complete_one());
        }
        if self.stopped() { Err(io::Error::other("the simulated disk has stopped")) } else { Ok(()) }
    }

    fn limits(&self) -> IoLimits {
        IoLimits { queue_depth: self.settings.queue_depth, alignment: self.settings.alignment }
    }
}

/// Volume, bytes on it, and whether they are written.
fn transfer(op: &Op) -> Option<(u16, Range<u64>, bool)> {
    match op {
        Op::Read { volume, offset, into } => Some((*volume, *offset..*offset + u64::from(into.bytes), false)),
        Op::Write { volume, offset, from } => Some((*volume, *offset..*offset + u64::from(from.bytes), true)),
        Op::Sync { .. } | Op::Hash { .. } => None,
    }
}

/// Bytes of the arena.
fn frame(op: &Op) -> Option<Range<u64>> {
    match op {
        Op::Read { into, .. } => Some(into.offset..into.offset + u64::from(into.bytes)),
        Op::Write { from, .. } | Op::Hash { from, .. } => Some(from.offset..from.offset + u64::from(from.bytes)),
        Op::Sync { .. } => None,
    }
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

#[cfg(test)]
mod tests;
