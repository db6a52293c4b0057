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

mod damage;
pub mod disk;
pub mod fault;
pub(crate) mod rng;

use super::hash::hash;
use super::{Completion, Io, IoLimits, Op, OpId};
use crate::arena::Arena;
use crate::format::checksum::page_checksum;
use disk::{Crash, Disk, SECTOR_BYTES, Unflushed};
use fault::{Counts, Fault};
use rng::SplitMix64;
use rustix::io::Errno;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

pub use fault::Faults;

/// What a frame holds between the submission of a read and its completion.
const POISON: u8 = 0xd5;

/// Most completions that one poll hands out.
const COMPLETIONS_MAX: u64 = 4;

/// Most polls that a straggler sits out.
const STRAGGLE_MAX: u64 = 200;

/// Writes remembered as places that a misdirected write may hit.
const PLACES_MAX: usize = 64;

/// How a simulated disk behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Decides the order of completions.
    pub seed: u64,
    /// Decides when faults strike and what they do.
    pub fault_seed: u64,
    /// Operations in flight.
    pub queue_depth: u32,
    /// Alignment demanded of memory, offsets and lengths, a multiple of 512.
    pub alignment: u32,
    /// How often things go wrong.
    pub faults: Faults,
    /// The volumes on which they do, a bit for each.
    pub faulty: u16,
}

impl Settings {
    /// A disk without faults.
    pub fn new(seed: u64) -> Settings {
        let faults = Faults::default();
        Settings { seed, fault_seed: seed, queue_depth: 32, alignment: 512, faults, faulty: u16::MAX }
    }
}

/// A submission or a completion, for traces.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Happened {
    pub(crate) id: OpId,
    /// The operation: `read`, `write`, `sync` or `hash`.
    pub(crate) what: &'static str,
    pub(crate) volume: u16,
    pub(crate) offset: u64,
    pub(crate) bytes: u32,
    /// `None`: submitted. Else bytes moved, or an error number as a negative one.
    pub(crate) moved: Option<i64>,
    /// What struck.
    pub(crate) fault: Option<Fault>,
}

/// An operation that was submitted and has not completed.
struct InFlight {
    id: OpId,
    op: Op,
    /// Checksum of the frame when it was submitted.
    frame_checksum: u64,
    /// For a sync: how many completed writes it covers, counted over the disk's life.
    covers: u64,
    /// Polls that it still sits out.
    stuck: u64,
}

/// The simulated disk.
pub struct MemoryIo {
    arena: Arc<Arena>,
    disk: Disk,
    settings: Settings,
    /// Draws the order.
    rng: SplitMix64,
    /// Draws the faults.
    luck: SplitMix64,
    counts: Counts,
    in_flight: Vec<InFlight>,
    /// Where writes went, the oldest first.
    places: Vec<(u16, u64)>,
    events: u64,
    stop_after: u64,
    /// Syncs until one is submitted after whose submission nothing happens.
    stop_at_sync: Option<u64>,
    /// What happened since it was asked last; `None`: nobody asks.
    record: Option<Vec<Happened>>,
}

impl MemoryIo {
    /// Volumes of these sizes in bytes, full of zeros.
    pub fn new(arena: Arc<Arena>, volume_bytes: &[u64], settings: Settings) -> MemoryIo {
        MemoryIo::from_image(arena, volume_bytes.iter().map(|b| vec![0; *b as usize]).collect(), settings)
    }

    /// Volumes with this content, all of it durable: the machine starts again.
    pub fn from_image(arena: Arc<Arena>, volumes: Vec<Vec<u8>>, settings: Settings) -> MemoryIo {
        MemoryIo::on(arena, Disk::new(volumes), settings)
    }

    /// A process starts on a disk that another left: what is volatile there is volatile still.
    pub(crate) fn on(arena: Arc<Arena>, disk: Disk, settings: Settings) -> MemoryIo {
        assert!(settings.alignment > 0 && u64::from(settings.alignment).is_multiple_of(SECTOR_BYTES));
        MemoryIo {
            arena,
            disk,
            settings,
            rng: SplitMix64::named(settings.seed, "order"),
            luck: SplitMix64::named(settings.fault_seed, "faults"),
            counts: Counts::default(),
            in_flight: Vec::new(),
            places: Vec::new(),
            events: 0,
            stop_after: u64::MAX,
            stop_at_sync: None,
            record: None,
        }
    }

    /// The process dies: what was in flight is on the disk in part or whole, and volatile.
    pub(crate) fn killed(mut self, seed: u64) -> Disk {
        let mut rng = SplitMix64::new(seed);
        for InFlight { op, .. } in &self.in_flight {
            if let Op::Write { volume, offset, from } = op {
                match rng.below(3) {
                    0 => {}
                    1 => self.disk.write(*volume, *offset, self.arena.slice(from)),
                    _ => self.disk.tear(*volume, *offset, self.arena.slice(from), &mut rng),
                }
            }
        }
        self.disk
    }

    /// The volumes.
    pub(crate) fn disk(&self) -> &Disk {
        &self.disk
    }

    /// How often each fault struck.
    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    /// Keeps a record of what happens, for `happened`.
    pub(crate) fn keep_record(&mut self) {
        self.record = Some(Vec::new());
    }

    /// What happened since the last call.
    pub(crate) fn happened(&mut self) -> Vec<Happened> {
        self.record.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Submissions and completions so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// After this event nothing happens any more: operations are taken and never complete, and `poll` fails.
    pub fn stop_after(&mut self, event: u64) {
        self.stop_after = event;
    }

    /// After the submission of the sync that comes after this many nothing happens any more, as with `stop_after`.
    pub(crate) fn stop_at_sync(&mut self, syncs_before: u64) {
        self.stop_at_sync = Some(syncs_before);
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

    /// How many of them are to this volume.
    pub(crate) fn unflushed_on(&self, volume: u16) -> usize {
        self.disk.unflushed_on(volume) + self.writes_in_flight().filter(|write| write.volume == volume).count()
    }

    /// The volumes' content after a power loss now. `seed` decides what `crash` leaves open.
    pub fn crash_image(&self, seed: u64, crash: Crash) -> Vec<Vec<u8>> {
        let mut image = Vec::new();
        self.crash_into(seed, crash, &mut image);
        image
    }

    /// The volumes' content after the process was killed now: what has completed stays, what was in flight may be
    /// there in part.
    pub fn process_kill_image(&self, seed: u64) -> Vec<Vec<u8>> {
        let mut image = Vec::new();
        self.disk.process_kill_into(self.writes_in_flight(), &mut SplitMix64::new(seed), &mut image);
        image
    }

    /// As `crash_image`, into memory that is there.
    pub(crate) fn crash_into(&self, seed: u64, crash: Crash, image: &mut Vec<Vec<u8>>) {
        self.disk.crash_into(self.writes_in_flight(), crash, &mut SplitMix64::new(seed), image);
    }

    /// The same where each volume has a crash of its own.
    pub(crate) fn crash_apart_into(&self, seed: u64, crashes: &[Crash], image: &mut Vec<Vec<u8>>) {
        self.disk.crash_apart_into(self.writes_in_flight(), crashes, &mut SplitMix64::new(seed), image);
    }

    fn writes_in_flight(&self) -> impl Iterator<Item = Unflushed<'_>> {
        self.in_flight.iter().filter_map(|f| match &f.op {
            Op::Write { volume, offset, from } => {
                Some(Unflushed { volume: *volume, offset: *offset, bytes: self.arena.slice(from) })
            }
            _ => None,
        })
    }

    /// Whether a fault strikes an operation on the volume. Always drawn, so that changing one rate leaves the rest of a
    /// run as it was where it can.
    fn strikes(&mut self, fault: Fault, volume: u16) -> bool {
        let is_faulty = self.settings.faulty >> volume & 1 == 1;
        let strikes = self.luck.thousandths(self.settings.faults.rate(fault)) && is_faulty;
        if strikes {
            self.counts.count(fault);
        }
        strikes
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

    /// Completes one operation, chosen at random among those that are not stuck; `force`: or are, if all are.
    fn complete_one(&mut self, force: bool) -> Option<Completion> {
        let ready: Vec<usize> = (0..self.in_flight.len()).filter(|&n| force || self.in_flight[n].stuck == 0).collect();
        if ready.is_empty() {
            return None;
        }
        let chosen = self.rng.pick(&ready);
        let InFlight { id, mut op, frame_checksum, covers, .. } = self.in_flight.swap_remove(chosen);
        assert_eq!(
            self.frame_checksum(&op),
            frame_checksum,
            "the frame of {op:?} changed while the operation was in flight"
        );
        let (result, fault) = match &mut op {
            Op::Read { volume, offset, into } => self.complete_read(*volume, *offset, into),
            Op::Write { volume, offset, from } => self.complete_write(*volume, *offset, from),
            Op::Sync { volume } => self.complete_sync(*volume, covers),
            Op::Hash { .. } => (Ok(0), None),
        };
        self.events += 1;
        let moved = result.map_or_else(|e| -i64::from(e.raw_os_error()), i64::from);
        self.note(id, &op, Some(moved), fault);
        Some(Completion { id, op, result: result.map_err(io::Error::from) })
    }

    fn complete_read(&mut self, volume: u16, offset: u64, into: &mut super::FrameMut) -> Outcome {
        let bytes = into.bytes;
        let spoiled = self.luck.below(u64::from(bytes)) / SECTOR_BYTES * SECTOR_BYTES;
        if !self.disk.is_spared(volume, offset + spoiled, 1) && self.strikes(Fault::BadSector, volume) {
            self.disk.spoil(volume, offset + spoiled);
        }
        let (result, fault) = self.outcome(volume, bytes, Fault::ShortRead);
        match result {
            Ok(moved) if self.disk.remains().is_bad(volume, offset, moved as usize) => {
                (Err(Errno::IO), Some(Fault::BadSector))
            }
            Ok(moved) => {
                let (at, moved) = (offset as usize, moved as usize);
                self.arena.slice_mut(into)[..moved].copy_from_slice(&self.disk.live(volume)[at..at + moved]);
                (result, fault)
            }
            Err(_) => (result, fault),
        }
    }

    fn complete_write(&mut self, volume: u16, offset: u64, from: &super::FrameRef) -> Outcome {
        let (result, fault) = match self.outcome(volume, from.bytes, Fault::ShortWrite) {
            (Ok(_), _) if self.strikes(Fault::Enospc, volume) => (Err(Errno::NOSPC), Some(Fault::Enospc)),
            other => other,
        };
        let arena = Arc::clone(&self.arena);
        let source = arena.slice(from);
        match result {
            Ok(moved) => {
                let struck = self.store(volume, offset, &source[..moved as usize]);
                (result, struck.or(fault))
            }
            Err(Errno::IO) => {
                self.disk.tear(volume, offset, source, &mut self.luck);
                (result, fault)
            }
            Err(_) => (result, fault),
        }
    }

    /// Stores what a write moved, unless that goes wrong in silence.
    fn store(&mut self, volume: u16, offset: u64, bytes: &[u8]) -> Option<Fault> {
        if bytes.is_empty() {
            return None;
        }
        let place = self.luck.below(PLACES_MAX as u64) as usize;
        let elsewhere = self.places.get(place).filter(|(v, at)| {
            let end = at + bytes.len() as u64;
            let inside = end <= self.disk.live(volume).len() as u64;
            *v == volume && *at != offset && inside && !self.disk.is_spared(volume, *at, bytes.len())
        });
        let elsewhere = elsewhere.map(|(_, at)| *at);
        let may = !self.disk.is_spared(volume, offset, bytes.len());
        let fault = match () {
            () if may && self.strikes(Fault::Flip, volume) => Some(Fault::Flip),
            () if may && self.strikes(Fault::LostWrite, volume) => Some(Fault::LostWrite),
            () if may && elsewhere.is_some() && self.strikes(Fault::Misdirected, volume) => Some(Fault::Misdirected),
            () => None,
        };
        match (fault, elsewhere) {
            (Some(Fault::Flip), _) => self.disk.write_flipped(volume, offset, bytes),
            (Some(Fault::LostWrite), _) => self.disk.write_nothing(volume, offset, bytes),
            (Some(_), Some(elsewhere)) => self.disk.write_elsewhere(volume, offset, elsewhere, bytes),
            _ => self.disk.write(volume, offset, bytes),
        }
        if self.places.len() == PLACES_MAX {
            self.places.remove(0);
        }
        self.places.push((volume, offset));
        fault
    }

    fn complete_sync(&mut self, volume: u16, covers: u64) -> Outcome {
        if self.strikes(Fault::FailedSync, volume) {
            self.disk.sync_failed(volume, covers, &mut self.luck);
            return (Err(Errno::IO), Some(Fault::FailedSync));
        }
        self.disk.sync(volume, covers);
        (Ok(0), None)
    }

    /// Bytes moved by a transfer of `bytes`, or its error.
    fn outcome(&mut self, volume: u16, bytes: u32, short: Fault) -> Outcome {
        for (fault, errno) in [
            (Fault::Eio, Errno::IO),
            (Fault::Eintr, Errno::INTR),
            (Fault::Eagain, Errno::AGAIN),
            (Fault::Ecanceled, Errno::CANCELED),
        ] {
            if self.strikes(fault, volume) {
                return (Err(errno), Some(fault));
            }
        }
        let sectors = u64::from(bytes) / SECTOR_BYTES;
        if sectors > 1 && self.strikes(short, volume) {
            return (Ok(((1 + self.luck.below(sectors - 1)) * SECTOR_BYTES) as u32), Some(short));
        }
        if self.strikes(Fault::Ragged, volume) {
            return (Ok(self.luck.below(u64::from(bytes)) as u32), Some(Fault::Ragged));
        }
        (Ok(bytes), None)
    }

    fn note(&mut self, id: OpId, op: &Op, moved: Option<i64>, fault: Option<Fault>) {
        if let Some(record) = &mut self.record {
            let (what, volume, offset, bytes) = match op {
                Op::Read { volume, offset, into } => ("read", *volume, *offset, into.bytes),
                Op::Write { volume, offset, from } => ("write", *volume, *offset, from.bytes),
                Op::Sync { volume } => ("sync", *volume, 0, 0),
                Op::Hash { from, .. } => ("hash", 0, from.offset, from.bytes),
            };
            record.push(Happened { id, what, volume, offset, bytes, moved, fault });
        }
    }
}

/// The result of an operation and the fault that struck it.
type Outcome = (Result<u32, Errno>, Option<Fault>);

impl Io for MemoryIo {
    fn submit(&mut self, id: OpId, mut op: Op) -> Result<(), Op> {
        let volume = volume(&op);
        let refused = self.strikes(Fault::Refusal, volume);
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
            Op::Sync { .. } => match self.stop_at_sync {
                Some(0) => self.stop_after = self.events,
                Some(left) => self.stop_at_sync = Some(left - 1),
                None => {}
            },
            Op::Write { .. } => {}
        }
        let frame_checksum = self.frame_checksum(&op);
        let stuck = if self.strikes(Fault::Straggler, volume) { 1 + self.luck.below(STRAGGLE_MAX) } else { 0 };
        self.note(id, &op, None, (stuck > 0).then_some(Fault::Straggler));
        self.in_flight.push(InFlight { id, op, frame_checksum, covers: self.disk.writes_completed(), stuck });
        Ok(())
    }

    fn poll(&mut self, out: &mut Vec<Completion>, wait: Option<Duration>) -> io::Result<()> {
        let least = u64::from(wait.is_some());
        let count = least + self.rng.below(COMPLETIONS_MAX + 1 - least);
        self.in_flight.iter_mut().for_each(|f| f.stuck = f.stuck.saturating_sub(1));
        for n in 0..count.min(self.in_flight.len() as u64) {
            if self.stopped() {
                break;
            }
            out.extend(self.complete_one(wait.is_some() && n == 0));
        }
        if self.stopped() { Err(io::Error::other("the simulated disk has stopped")) } else { Ok(()) }
    }

    fn limits(&self) -> IoLimits {
        IoLimits { queue_depth: self.settings.queue_depth, alignment: self.settings.alignment }
    }
}

/// The volume that an operation concerns; what concerns none counts as the first's.
fn volume(op: &Op) -> u16 {
    match op {
        Op::Read { volume, .. } | Op::Write { volume, .. } | Op::Sync { volume } => *volume,
        Op::Hash { .. } => 0,
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
