//! The content of the simulated volumes and what may become of it.
//!
//! Terms: a write is *in flight* until it completes, then *volatile* until a sync that was submitted after its
//! completion succeeds, then *durable*. Reads see everything that completed. A power loss keeps what is durable and
//! any part of the rest, sector by sector; the order in which writes completed binds only writes to the same sector.

use super::rng::SplitMix64;

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
    /// Any of their sectors.
    Torn,
}

/// A write that is not durable.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unflushed<'a> {
    pub(super) volume: u16,
    pub(super) offset: u64,
    pub(super) bytes: &'a [u8],
}

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
pub(super) struct Disk {
    live: Vec<Vec<u8>>,
    durable: Vec<Vec<u8>>,
    /// In the order of completion.
    volatile: Vec<Volatile>,
    writes_completed: u64,
}

impl Disk {
    pub(super) fn new(volumes: Vec<Vec<u8>>) -> Disk {
        Disk { live: volumes.clone(), durable: volumes, volatile: Vec::new(), writes_completed: 0 }
    }

    /// What a reader sees.
    pub(super) fn live(&self, volume: u16) -> &[u8] {
        &self.live[usize::from(volume)]
    }

    /// Writes completed over the disk's life; a sync submitted now covers those.
    pub(super) fn writes_completed(&self) -> u64 {
        self.writes_completed
    }

    /// How many writes are volatile.
    pub(super) fn unflushed(&self) -> usize {
        self.volatile.len()
    }

    pub(super) fn write_durable(&mut self, volume: u16, offset: u64, bytes: &[u8]) {
        for image in [&mut self.live, &mut self.durable] {
            apply(&mut image[usize::from(volume)], offset, bytes);
        }
    }

    /// A write completes.
    pub(super) fn write(&mut self, volume: u16, offset: u64, bytes: &[u8]) {
        apply(&mut self.live[usize::from(volume)], offset, bytes);
        let number = self.writes_completed;
        self.writes_completed += 1;
        self.volatile.push(Volatile { volume, offset, bytes: bytes.to_vec(), number, given_up: false });
    }

    /// A write fails: any of its sectors may have been written.
    pub(super) fn tear(&mut self, volume: u16, offset: u64, bytes: &[u8], rng: &mut SplitMix64) {
        for (n, sector) in bytes.chunks(SECTOR_BYTES as usize).enumerate() {
            if rng.below(2) == 0 {
                self.write(volume, offset + n as u64 * SECTOR_BYTES, sector);
            }
        }
    }

    /// A sync completes that covers the first `covers` writes.
    pub(super) fn sync(&mut self, volume: u16, covers: u64, success: bool) {
        let covered = |w: &Volatile| w.volume == volume && w.number < covers && !w.given_up;
        if !success {
            self.volatile.iter_mut().filter(|w| covered(w)).for_each(|w| w.given_up = true);
            return;
        }
        let (flushed, rest): (Vec<Volatile>, _) = std::mem::take(&mut self.volatile).into_iter().partition(covered);
        self.volatile = rest;
        for write in flushed {
            apply(&mut self.durable[usize::from(volume)], write.offset, &write.bytes);
            // What was given up there before is overwritten, and must not come back over newer bytes.
            self.volatile.retain(|old| old.number > write.number || !old.meets(&write));
        }
    }

    /// See [`Crash`].
    pub(super) fn crash_image<'a>(
        &'a self,
        in_flight: impl Iterator<Item = Unflushed<'a>>,
        crash: Crash,
        rng: &mut SplitMix64,
    ) -> Vec<Vec<u8>> {
        let mut image = self.durable.clone();
        let volatile = self.volatile.iter().map(|w| Unflushed { volume: w.volume, offset: w.offset, bytes: &w.bytes });
        // From "hardly anything" to "nearly everything".
        let eighths = [1, 4, 7][rng.below(3) as usize];
        for (n, write) in volatile.chain(in_flight).enumerate() {
            let target = &mut image[usize::from(write.volume)];
            match crash {
                Crash::NoneSurvive => {}
                Crash::AllSurvive => apply(target, write.offset, write.bytes),
                Crash::OnlySurvivor(which) if which == n => apply(target, write.offset, write.bytes),
                Crash::OnlySurvivor(_) => {}
                Crash::OnlyLoss(which) if which == n => {}
                Crash::OnlyLoss(_) => apply(target, write.offset, write.bytes),
                Crash::Torn => apply_some(target, &write, eighths, rng),
            }
        }
        image
    }

    /// What has completed, and any sectors of what is in flight.
    pub(super) fn process_kill_image<'a>(
        &self,
        in_flight: impl Iterator<Item = Unflushed<'a>>,
        rng: &mut SplitMix64,
    ) -> Vec<Vec<u8>> {
        let mut image = self.live.clone();
        for write in in_flight {
            apply_some(&mut image[usize::from(write.volume)], &write, 4, rng);
        }
        image
    }
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
