//! The content of the simulated volumes and what may become of it.
//!
//! Terms: a write is *in flight* until it completes, then *volatile* until a sync that was submitted after its
//! completion succeeds, then *durable*. Reads see everything that completed. A power loss keeps what is durable and
//! any part of the rest, sector by sector; the order in which writes completed binds only writes to the same sector.

use super::damage::Damage;
use super::rng::SplitMix64;
use std::ops::Range;

/// Bytes that a device writes as a whole or not at all.
pub const SECTOR_BYTES: u64 = 512;

/// Which of the unflushed writes a power loss keeps. They are numbered: volatile ones in the order of completion, then
/// those in flight in no particular, but fixed, order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Crash {
    /// None of them.
    NoneSurvive,
    /// All of them, whole.
    AllSurvive,
    /// The one with this number.
    OnlySurvivor(usize),
    /// All but the one with this number.
    OnlyLoss(usize),
    /// Those before the one with this number, and any sectors of it.
    Prefix(usize),
    /// Any of their sectors.
    Torn,
}

impl Crash {
    /// Does to the volume what the crash leaves of its write number `n`; of a torn one each sector with a probability
    /// of `eighths`.
    fn apply(self, n: usize, write: &Unflushed<'_>, eighths: u64, rng: &mut SplitMix64, target: &mut [u8]) {
        match self {
            Crash::NoneSurvive => {}
            Crash::AllSurvive => apply(target, write.offset, write.bytes),
            Crash::OnlySurvivor(which) if which == n => apply(target, write.offset, write.bytes),
            Crash::OnlySurvivor(_) => {}
            Crash::OnlyLoss(which) if which == n => {}
            Crash::OnlyLoss(_) => apply(target, write.offset, write.bytes),
            Crash::Prefix(which) if which == n => apply_some(target, write, 4, rng),
            Crash::Prefix(which) if which < n => {}
            Crash::Prefix(_) => apply(target, write.offset, write.bytes),
            Crash::Torn => apply_some(target, write, eighths, rng),
        }
    }
}

/// From "hardly anything" to "nearly everything".
fn draw_eighths(rng: &mut SplitMix64) -> u64 {
    rng.pick(&[1, 4, 7])
}

/// A write that is not durable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unflushed<'a> {
    pub(crate) volume: u16,
    pub(crate) offset: u64,
    pub(crate) bytes: &'a [u8],
}

#[derive(Clone)]
struct Volatile {
    volume: u16,
    offset: u64,
    bytes: Vec<u8>,
    /// Its place among all completed writes.
    number: u64,
    /// A sync that covered it failed: no later one makes it durable.
    given_up: bool,
}

impl Volatile {
    fn meets(&self, other: &Volatile) -> bool {
        let ends_after = |a: &Volatile, b: &Volatile| a.offset + a.bytes.len() as u64 > b.offset;
        self.volume == other.volume && ends_after(self, other) && ends_after(other, self)
    }
}

/// The volumes.
#[derive(Clone)]
pub(crate) struct Disk {
    live: Vec<Vec<u8>>,
    durable: Vec<Vec<u8>>,
    /// In the order of completion.
    volatile: Vec<Volatile>,
    writes_completed: u64,
    damage: Damage,
}

impl Disk {
    pub(crate) fn new(volumes: Vec<Vec<u8>>) -> Disk {
        let live = volumes.clone();
        Disk { live, durable: volumes, volatile: Vec::new(), writes_completed: 0, damage: Damage::default() }
    }

    /// The machine starts again after a power loss that left this; damage stays.
    pub(crate) fn restarted(&self, image: Vec<Vec<u8>>) -> Disk {
        Disk { writes_completed: self.writes_completed, damage: self.damage.clone(), ..Disk::new(image) }
    }

    /// What a reader sees.
    pub(crate) fn live(&self, volume: u16) -> &[u8] {
        &self.live[usize::from(volume)]
    }

    /// Writes completed over the disk's life; a sync submitted now covers those.
    pub(crate) fn writes_completed(&self) -> u64 {
        self.writes_completed
    }

    /// How many writes are volatile.
    pub(crate) fn unflushed(&self) -> usize {
        self.volatile.len()
    }

    /// How many of them are to this volume.
    pub(crate) fn unflushed_on(&self, volume: u16) -> usize {
        self.volatile.iter().filter(|write| write.volume == volume).count()
    }

    /// Number of volumes.
    pub(crate) fn volumes(&self) -> u16 {
        self.live.len() as u16
    }

    /// A volume comes back from a backup with this content; none of these volumes' bytes can be relied upon then.
    pub(crate) fn restored(mut self, volume: u16, content: &[u8], doubtful: Range<u16>) -> Disk {
        self.write_durable(volume, 0, content);
        for volume in doubtful {
            let whole = range(0, self.live(volume).len());
            self.damage.suspect(volume, &whole, self.writes_completed);
        }
        self.writes_completed += 1;
        self
    }

    pub(crate) fn write_durable(&mut self, volume: u16, offset: u64, bytes: &[u8]) {
        for image in [&mut self.live, &mut self.durable] {
            apply(&mut image[usize::from(volume)], offset, bytes);
        }
    }

    /// A write completes.
    pub(crate) fn write(&mut self, volume: u16, offset: u64, bytes: &[u8]) {
        self.damage.written(volume, &range(offset, bytes.len()));
        self.store(volume, offset, bytes.to_vec());
    }

    fn store(&mut self, volume: u16, offset: u64, bytes: Vec<u8>) {
        apply(&mut self.live[usize::from(volume)], offset, &bytes);
        let number = self.writes_completed;
        self.writes_completed += 1;
        self.volatile.push(Volatile { volume, offset, bytes, number, given_up: false });
    }

    /// A write fails, or the process dies during it: any of its sectors may have been written.
    pub(crate) fn tear(&mut self, volume: u16, offset: u64, bytes: &[u8], rng: &mut SplitMix64) {
        for (n, sector) in bytes.chunks(SECTOR_BYTES as usize).enumerate() {
            if rng.below(2) == 0 {
                self.write(volume, offset + n as u64 * SECTOR_BYTES, sector);
            }
        }
    }

    /// A write completes and one bit of it is stored wrong: always the same bit of the same bytes.
    pub(crate) fn write_flipped(&mut self, volume: u16, offset: u64, bytes: &[u8]) {
        let bit = crate::format::checksum::page_checksum(bytes) % (bytes.len() as u64 * 8);
        let at = offset + bit / 8;
        self.damage.suspect(volume, &(at..at + 1), self.writes_completed);
        let mut stored = bytes.to_vec();
        stored[(bit / 8) as usize] ^= 1 << (bit % 8);
        self.damage.written(volume, &range(offset, bytes.len()));
        self.store(volume, offset, stored);
    }

    /// A write completes and nothing is stored.
    pub(crate) fn write_nothing(&mut self, volume: u16, offset: u64, bytes: &[u8]) {
        self.damage.suspect(volume, &range(offset, bytes.len()), self.writes_completed);
        self.writes_completed += 1;
    }

    /// A write completes and is stored at `elsewhere`.
    pub(crate) fn write_elsewhere(&mut self, volume: u16, offset: u64, elsewhere: u64, bytes: &[u8]) {
        for at in [offset, elsewhere] {
            self.damage.suspect(volume, &range(at, bytes.len()), self.writes_completed);
        }
        self.store(volume, elsewhere, bytes.to_vec());
    }

    /// A bit of the byte rots.
    pub(crate) fn rot(&mut self, volume: u16, at: u64, bit: u32) {
        self.damage.suspect(volume, &(at..at + 1), self.writes_completed);
        self.writes_completed += 1;
        let byte = self.live(volume)[at as usize] ^ (1 << bit);
        self.write_durable(volume, at, &[byte]);
    }

    /// The sector that holds the byte does not read any more.
    pub(crate) fn spoil(&mut self, volume: u16, at: u64) {
        self.damage.spoil(volume, at);
    }

    /// What a reader sees and what is wrong with it.
    pub(crate) fn remains(&self) -> Remains<'_> {
        self.remains_of(&self.live)
    }

    /// The same, of an image that a crash left.
    pub(crate) fn remains_of<'a>(&'a self, volumes: &'a [Vec<u8>]) -> Remains<'a> {
        Remains { volumes, damage: &self.damage }
    }

    /// Sectors that did not read do again.
    pub(crate) fn heal_bad(&mut self) {
        self.damage.heal_bad();
    }

    /// These bytes are never damaged.
    pub(crate) fn spare(&mut self, volume: u16, offset: u64, bytes: usize) {
        self.damage.spare(volume, range(offset, bytes));
    }

    /// Whether these bytes are never damaged.
    pub(crate) fn is_spared(&self, volume: u16, offset: u64, bytes: usize) -> bool {
        self.damage.is_spared(volume, &range(offset, bytes))
    }

    /// A sync completes that covers the first `covers` writes.
    pub(crate) fn sync(&mut self, volume: u16, covers: u64) {
        let covered = |w: &Volatile| w.volume == volume && w.number < covers && !w.given_up;
        let (flushed, rest): (Vec<Volatile>, _) = std::mem::take(&mut self.volatile).into_iter().partition(covered);
        self.volatile = rest;
        for write in flushed {
            apply(&mut self.durable[usize::from(volume)], write.offset, &write.bytes);
            self.damage.durable(volume, &range(write.offset, write.bytes.len()), write.number);
            // What was given up there before is overwritten, and must not come back over newer bytes.
            self.volatile.retain(|old| old.number > write.number || !old.meets(&write));
        }
    }

    /// A sync fails: of the writes that it should have covered some are gone, and no later sync covers the others.
    pub(crate) fn sync_failed(&mut self, volume: u16, covers: u64, rng: &mut SplitMix64) {
        let covered = |w: &Volatile| w.volume == volume && w.number < covers && !w.given_up;
        self.volatile.retain(|w| !covered(w) || rng.below(2) == 0);
        self.volatile.iter_mut().filter(|w| covered(w)).for_each(|w| w.given_up = true);
        let live = &mut self.live[usize::from(volume)];
        live.copy_from_slice(&self.durable[usize::from(volume)]);
        for write in self.volatile.iter().filter(|w| w.volume == volume) {
            apply(live, write.offset, &write.bytes);
        }
    }

    /// What the volumes hold after a power loss; see [`Crash`]. `image` is replaced and its memory used again.
    pub(crate) fn crash_into<'a>(
        &'a self,
        in_flight: impl Iterator<Item = Unflushed<'a>>,
        crash: Crash,
        rng: &mut SplitMix64,
        image: &mut Vec<Vec<u8>>,
    ) {
        image.clone_from(&self.durable);
        let eighths = draw_eighths(rng);
        for (n, write) in self.volatile().chain(in_flight).enumerate() {
            crash.apply(n, &write, eighths, rng, &mut image[usize::from(write.volume)]);
        }
    }

    /// The same where each volume has a crash of its own, which numbers the writes to that volume.
    pub(crate) fn crash_apart_into<'a>(
        &'a self,
        in_flight: impl Iterator<Item = Unflushed<'a>>,
        crashes: &[Crash],
        rng: &mut SplitMix64,
        image: &mut Vec<Vec<u8>>,
    ) {
        image.clone_from(&self.durable);
        let mut apart: Vec<(Crash, u64, usize)> = crashes.iter().map(|crash| (*crash, draw_eighths(rng), 0)).collect();
        for write in self.volatile().chain(in_flight) {
            let volume = usize::from(write.volume);
            let (crash, eighths, n) = &mut apart[volume];
            crash.apply(*n, &write, *eighths, rng, &mut image[volume]);
            *n += 1;
        }
    }

    fn volatile(&self) -> impl Iterator<Item = Unflushed<'_>> {
        self.volatile.iter().map(|w| Unflushed { volume: w.volume, offset: w.offset, bytes: &w.bytes })
    }

    /// What has completed, and any sectors of what is in flight.
    pub(crate) fn process_kill_into<'a>(
        &self,
        in_flight: impl Iterator<Item = Unflushed<'a>>,
        rng: &mut SplitMix64,
        image: &mut Vec<Vec<u8>>,
    ) {
        image.clone_from(&self.live);
        for write in in_flight {
            apply_some(&mut image[usize::from(write.volume)], &write, 4, rng);
        }
    }
}

/// The volumes' content with its damage, for those who only look.
#[derive(Clone, Copy)]
pub(crate) struct Remains<'a> {
    volumes: &'a [Vec<u8>],
    damage: &'a Damage,
}

impl<'a> Remains<'a> {
    /// A volume's content.
    pub(crate) fn volume(&self, volume: u16) -> &'a [u8] {
        &self.volumes[usize::from(volume)]
    }

    /// Whether a sector of these bytes may hold others than the submitter believes.
    pub(crate) fn is_suspect(&self, volume: u16, offset: u64, bytes: usize) -> bool {
        self.damage.is_suspect(volume, &range(offset, bytes))
    }

    /// Whether a sector of these bytes does not read.
    pub(crate) fn is_bad(&self, volume: u16, offset: u64, bytes: usize) -> bool {
        self.damage.is_bad(volume, &range(offset, bytes))
    }
}

fn range(offset: u64, bytes: usize) -> Range<u64> {
    offset..offset + bytes as u64
}

fn apply(image: &mut [u8], offset: u64, bytes: &[u8]) {
    image[offset as usize..offset as usize + bytes.len()].copy_from_slice(bytes);
}

/// Each sector is applied with a probability of `eighths`.
fn apply_some(image: &mut [u8], write: &Unflushed<'_>, eighths: u64, rng: &mut SplitMix64) {
    for (n, sector) in write.bytes.chunks(SECTOR_BYTES as usize).enumerate() {
        if rng.below(8) < eighths {
            apply(image, write.offset + n as u64 * SECTOR_BYTES, sector);
        }
    }
}
