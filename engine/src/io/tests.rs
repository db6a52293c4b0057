//! What every backend must do, run on each of them, and compared with a *mirror* of the volumes: a `Vec<u8>` each.

use super::file::VolumeFile;
use super::hash::WithHashing;
use super::memory::{MemoryIo, Settings};
use super::pool::Pool;
use super::uring::{Polling, Tuning, Uring};
use super::{Completion, FrameMut, FrameRef, Io, Op, OpId, Waker};
use crate::arena::Arena;
use crate::config::{Backend, Config, DirectIo};
use crate::format::checksum::page_checksum;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// Longer than any test may take: a poll that sleeps through it has failed by hanging.
const FOREVER: Duration = Duration::from_secs(3600);
const BLOCK: u64 = 4096;
const VOLUME_BYTES: u64 = 1 << 20;
const ARENA_BYTES: u64 = 2 << 20;
/// Frames lie this far apart.
const FRAME_BYTES: u64 = 64 << 10;
const QUEUE_DEPTH: u32 = 8;

/// Two volumes in temporary directories, and what a backend needs.
struct Bed {
    _dirs: Vec<TempDir>,
    files: Vec<VolumeFile>,
    arena: Arc<Arena>,
    waker: Waker,
}

impl Bed {
    fn new() -> Bed {
        let dirs: Vec<TempDir> = (0..2).map(|_| tempfile::tempdir().expect("temp dir")).collect();
        let files = dirs
            .iter()
            .map(|dir| {
                let file = VolumeFile::create(dir.path(), "volume.mt", DirectIo::Preferred).expect("create");
                file.reserve(0, VOLUME_BYTES).expect("space for a MiB");
                file
            })
            .collect();
        let arena = Arc::new(Arena::new(ARENA_BYTES).expect("arena"));
        Bed { _dirs: dirs, files, arena, waker: Waker::new().expect("eventfd") }
    }

    fn uring(&self) -> Uring {
        Uring::new(&self.files, Arc::clone(&self.arena), QUEUE_DEPTH, self.waker.clone()).expect("io_uring").0
    }

    fn pool(&self) -> Pool {
        Pool::new(&self.files, Arc::clone(&self.arena), QUEUE_DEPTH, 3, self.waker.clone()).expect("pool")
    }

    /// With limits so low that the thread that polls and the others both get something to hash.
    fn hashing<I: Io>(&self, inner: I, threads: u32) -> WithHashing<I> {
        let limits = [BLOCK, FRAME_BYTES];
        WithHashing::with_limits(inner, Arc::clone(&self.arena), threads, self.waker.clone(), limits).expect("threads")
    }

    /// Runs the test on every backend that reaches files.
    fn on_each(test: impl Fn(&Bed, &mut dyn Io)) {
        let bed = Bed::new();
        test(&bed, &mut bed.uring());
        let bed = Bed::new();
        test(&bed, &mut bed.pool());
        let bed = Bed::new();
        test(&bed, &mut bed.hashing(bed.uring(), 2));
        let bed = Bed::new();
        test(&bed, &mut bed.hashing(bed.pool(), 0));
    }
}

/// A small generator for the tests' own choices.
struct Rng(u64);

impl Rng {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

fn wait_for(io: &mut dyn Io, count: usize) -> Vec<Completion> {
    let mut out = Vec::new();
    while out.len() < count {
        io.poll(&mut out, Some(FOREVER)).expect("poll");
    }
    out
}

/// What the differential test remembers of an operation in flight: volume, start and end on it, its frame.
struct Going {
    id: OpId,
    volume: usize,
    start: u64,
    end: u64,
    frame: u64,
}

/// Random aligned transfers, syncs and hashes, many at a time; contents must be those of the mirror.
fn differential(io: &mut dyn Io, arena: &Arena, hashes: bool, seed: u64) -> [Vec<u8>; 2] {
    let mut rng = Rng(seed);
    let mut mirror = [vec![0u8; VOLUME_BYTES as usize], vec![0u8; VOLUME_BYTES as usize]];
    let mut going: Vec<Going> = Vec::new();
    let mut frames: Vec<u64> = (0..ARENA_BYTES / FRAME_BYTES).map(|n| n * FRAME_BYTES).collect();
    let mut out = Vec::new();
    for n in 0..1500u64 {
        let bytes = (1 + rng.below(FRAME_BYTES / BLOCK)) * BLOCK;
        let start = rng.below((VOLUME_BYTES - bytes) / BLOCK + 1) * BLOCK;
        let volume = rng.below(2) as usize;
        let frame = frames.swap_remove(rng.below(frames.len() as u64) as usize);
        let met = going.iter().any(|g| g.volume == volume && g.start < start + bytes && start < g.end);
        let op = match rng.below(10) {
            0 => Op::Sync { volume: volume as u16 },
            1 if hashes => {
                let value = rng.below(256) as u8;
                arena.slice_mut(&mut FrameMut::new(frame, bytes as u32)).fill(value);
                Op::Hash { from: FrameRef::new(frame, bytes as u32), page_bytes: BLOCK as u32, digests: Vec::new() }
            }
            2..=5 if !met => {
                let mut target = FrameMut::new(frame, bytes as u32);
                arena.slice_mut(&mut target).iter_mut().for_each(|b| *b = rng.below(256) as u8);
                Op::Write { volume: volume as u16, offset: start, from: FrameRef::new(frame, bytes as u32) }
            }
            _ if !met => Op::Read { volume: volume as u16, offset: start, into: FrameMut::new(frame, bytes as u32) },
            _ => {
                frames.push(frame);
                continue;
            }
        };
        let moves = matches!(op, Op::Read { .. } | Op::Write { .. });
        let (start, end) = if moves { (start, start + bytes) } else { (0, 0) };
        match io.submit(OpId(n), op) {
            Ok(()) => going.push(Going { id: OpId(n), volume, start, end, frame }),
            Err(_) => frames.push(frame),
        }
        let wait = (going.len() >= QUEUE_DEPTH as usize).then_some(FOREVER);
        io.poll(&mut out, wait).expect("poll");
        for done in out.drain(..) {
            frames.push(settle(&mut mirror, &mut going, arena, &done));
        }
    }
    while !going.is_empty() {
        io.poll(&mut out, Some(FOREVER)).expect("poll");
        for done in out.drain(..) {
            settle(&mut mirror, &mut going, arena, &done);
        }
    }
    mirror
}

/// Checks a completion against the mirror, and gives its frame back.
fn settle(mirror: &mut [Vec<u8>; 2], going: &mut Vec<Going>, arena: &Arena, done: &Completion) -> u64 {
    let place = going.iter().position(|g| g.id == done.id).expect("a completion belongs to an operation");
    let going = going.swap_remove(place);
    let moved = *done.result.as_ref().expect("no faults here") as usize;
    let at = going.start as usize;
    match &done.op {
        Op::Read { into, .. } => {
            let frame = FrameRef::new(into.offset, into.bytes);
            assert!(moved > 0 && arena.slice(&frame)[..moved] == mirror[going.volume][at..at + moved], "{:?}", done.op);
        }
        Op::Write { from, .. } => {
            assert_eq!(moved, from.bytes as usize);
            mirror[going.volume][at..at + moved].copy_from_slice(&arena.slice(from)[..moved]);
        }
        Op::Sync { .. } => assert_eq!(moved, 0),
        Op::Hash { from, digests, .. } => {
            let expected: Vec<u64> = arena.slice(from).chunks(BLOCK as usize).map(page_checksum).collect();
            assert_eq!(*digests, expected);
        }
    }
    going.frame
}

/// The files hold what the mirror holds.
fn assert_files(bed: &Bed, mirror: &[Vec<u8>; 2]) {
    for (file, mirror) in bed.files.iter().zip(mirror) {
        let mut content = vec![1; VOLUME_BYTES as usize];
        file.read_at(0, &mut content).expect("read");
        assert!(content == *mirror, "{} differs from the mirror", file.path().display());
    }
}

#[test]
fn uring_agrees_with_the_mirror() {
    let bed = Bed::new();
    let mirror = differential(&mut bed.hashing(bed.uring(), 2), &bed.arena, true, 1);
    assert_files(&bed, &mirror);
}

#[test]
fn uring_without_hashing_agrees_with_the_mirror() {
    let bed = Bed::new();
    let mirror = differential(&mut bed.uring(), &bed.arena, false, 2);
    assert_files(&bed, &mirror);
}

#[test]
fn transfers_across_registered_buffers_agree_with_the_mirror() {
    let bed = Bed::new();
    // Smaller than a frame and no divisor of one, so that many transfers straddle.
    let tuning = Tuning { piece_bytes: Some(5 * BLOCK), ..Tuning::default() };
    let mut uring =
        Uring::tuned(&bed.files, Arc::clone(&bed.arena), QUEUE_DEPTH, bed.waker.clone(), tuning).expect("io_uring").0;
    let mirror = differential(&mut uring, &bed.arena, false, 3);
    assert_files(&bed, &mirror);
}

#[test]
fn a_ring_that_a_thread_of_the_kernel_looks_at_agrees_with_the_mirror() {
    let bed = Bed::new();
    let tuning = Tuning { polling: Polling::Submissions, ..Tuning::default() };
    let uring = Uring::tuned(&bed.files, Arc::clone(&bed.arena), QUEUE_DEPTH, bed.waker.clone(), tuning);
    let mirror = differential(&mut uring.expect("io_uring").0, &bed.arena, false, 5);
    assert_files(&bed, &mirror);
}

#[test]
fn the_pool_agrees_with_the_mirror() {
    let bed = Bed::new();
    let mirror = differential(&mut bed.hashing(bed.pool(), 2), &bed.arena, true, 4);
    assert_files(&bed, &mirror);
    let bed = Bed::new();
    let mirror = differential(&mut bed.hashing(bed.pool(), 0), &bed.arena, true, 5);
    assert_files(&bed, &mirror);
}

#[test]
fn memory_agrees_with_the_mirror() {
    for seed in 0..4 {
        let arena = Arc::new(Arena::new(ARENA_BYTES).expect("arena"));
        let settings = Settings { queue_depth: QUEUE_DEPTH, alignment: 4096, ..Settings::new(seed) };
        let mut io = MemoryIo::new(Arc::clone(&arena), &[VOLUME_BYTES; 2], settings);
        let mirror = differential(&mut io, &arena, true, seed);
        for (volume, mirror) in mirror.iter().enumerate() {
            assert!(io.volume(volume as u16) == mirror);
        }
    }
}

#[test]
fn short_transfers_and_errors_pass_through() {
    Bed::on_each(|_, io| {
        let read = |offset| Op::Read { volume: 0, offset, into: FrameMut::new(0, 4 * BLOCK as u32) };
        io.submit(OpId(1), read(VOLUME_BYTES - BLOCK)).expect("room");
        assert_eq!(wait_for(io, 1)[0].result.as_ref().expect("a short read is no error"), &(BLOCK as u32));
        io.submit(OpId(2), read(VOLUME_BYTES + BLOCK)).expect("room");
        assert_eq!(wait_for(io, 1)[0].result.as_ref().expect("the end of the file is no error"), &0);
        // An offset that no file has; the token comes back with the error.
        io.submit(OpId(3), read(1 << 63)).expect("room");
        let done = wait_for(io, 1).pop().expect("one completion");
        assert_eq!((done.id, &done.op), (OpId(3), &read(1 << 63)));
        assert_eq!(done.result.expect_err("refused").raw_os_error(), Some(rustix::io::Errno::INVAL.raw_os_error()));
    });
}

#[test]
fn a_full_queue_gives_the_operation_back() {
    Bed::on_each(|bed, io| {
        let read = |n: u64| Op::Read { volume: 1, offset: n * BLOCK, into: FrameMut::new(n * BLOCK, BLOCK as u32) };
        let depth = u64::from(io.limits().queue_depth);
        assert_eq!(depth, u64::from(QUEUE_DEPTH));
        (0..depth).for_each(|n| io.submit(OpId(n), read(n)).expect("room"));
        assert_eq!(io.submit(OpId(depth), read(depth)), Err(read(depth)));
        assert_eq!(wait_for(io, depth as usize).len(), depth as usize);
        io.submit(OpId(depth), read(depth)).expect("room again");
        wait_for(io, 1);
        assert!(bed.arena.slice(&FrameRef::new(0, ARENA_BYTES as u32)).iter().all(|b| *b == 0));
    });
}

#[test]
fn a_call_wakes_a_poll_that_sleeps() {
    Bed::on_each(|bed, io| {
        let mut out = Vec::new();
        bed.waker.wake();
        io.poll(&mut out, Some(FOREVER)).expect("a call before the poll ends it");
        io.poll(&mut out, Some(Duration::from_micros(100))).expect("and is used up: the limit ends this one");
        let (said, heard) = (std::sync::atomic::AtomicU32::new(0), std::sync::atomic::AtomicU32::new(0));
        std::thread::scope(|scope| {
            let waker = bed.waker.clone();
            scope.spawn(|| {
                let waker = waker;
                for n in 1..=300 {
                    said.store(n, std::sync::atomic::Ordering::SeqCst);
                    waker.wake();
                    while heard.load(std::sync::atomic::Ordering::SeqCst) < n {
                        std::thread::yield_now();
                    }
                }
            });
            while heard.load(std::sync::atomic::Ordering::SeqCst) < 300 {
                io.poll(&mut out, Some(FOREVER)).expect("poll");
                heard.store(said.load(std::sync::atomic::Ordering::SeqCst), std::sync::atomic::Ordering::SeqCst);
            }
        });
        assert!(out.is_empty());
    });
}

#[test]
fn dropping_a_backend_waits_for_what_is_in_flight() {
    let fill_queue = |io: &mut dyn Io| {
        for n in 0..u64::from(QUEUE_DEPTH) - 1 {
            let at = n * FRAME_BYTES;
            let op = match n % 2 {
                0 => Op::Read { volume: 0, offset: at, into: FrameMut::new(at, FRAME_BYTES as u32) },
                _ => Op::Write { volume: 1, offset: at, from: FrameRef::new(at, FRAME_BYTES as u32) },
            };
            io.submit(OpId(n), op).expect("room");
        }
        io.submit(OpId(99), Op::Sync { volume: 1 }).expect("room");
    };
    Bed::on_each(|_, io| {
        // In the kernel, then not even started.
        fill_queue(io);
        io.poll(&mut Vec::new(), None).expect("poll");
    });
    for started in [false, true] {
        let bed = Bed::new();
        let mut backends: Vec<Box<dyn Io>> =
            vec![Box::new(bed.uring()), Box::new(bed.pool()), Box::new(bed.hashing(bed.uring(), 1))];
        for mut io in backends.drain(..) {
            // The wake-up read is in the ring, too.
            io.poll(&mut Vec::new(), Some(Duration::from_micros(10))).expect("poll");
            fill_queue(io.as_mut());
            if started {
                io.poll(&mut Vec::new(), None).expect("poll");
            }
        }
        assert_eq!(Arc::strong_count(&bed.arena), 1, "nobody holds the arena");
    }
}

#[test]
fn open_picks_the_backend_that_was_asked_for() {
    let bed = Bed::new();
    let mut config = Config::new(Vec::new(), ARENA_BYTES);
    for backend in [Backend::Auto, Backend::Uring, Backend::Pool] {
        config.backend = backend;
        config.queue_depth = 4;
        let opened = super::open(&config, &bed.files, Arc::clone(&bed.arena), bed.waker.clone()).expect("a backend");
        let super::Opened { mut io, backend: found, notices } = opened;
        assert_eq!(found == Backend::Pool, backend == Backend::Pool);
        assert!(notices.iter().all(|n| !n.contains("pool")), "{notices:?}");
        assert_eq!(io.limits().queue_depth, 8, "the depth counts for each volume");
        let mirror = differential(io.as_mut(), &bed.arena, true, 6);
        assert_files(&bed, &mirror);
        bed.files.iter().for_each(|f| f.write_at(0, &vec![0; VOLUME_BYTES as usize]).expect("write"));
    }
}

#[test]
fn without_volumes_there_is_hashing() {
    let bed = Bed::new();
    for (backend, threads) in [(Backend::Auto, 1), (Backend::Uring, 0)] {
        let mut config = Config::new(Vec::new(), ARENA_BYTES);
        (config.backend, config.checksum_threads) = (backend, threads);
        let opened = super::open(&config, &[], Arc::clone(&bed.arena), bed.waker.clone()).expect("a backend");
        let super::Opened { mut io, notices, .. } = opened;
        assert!(notices.is_empty());
        let hash = Op::Hash { from: FrameRef::new(0, BLOCK as u32), page_bytes: BLOCK as u32, digests: Vec::new() };
        io.submit(OpId(1), hash).expect("room");
        let done = wait_for(io.as_mut(), 1).pop().expect("one completion");
        assert!(matches!(done.op, Op::Hash { digests, .. } if digests == [page_checksum(&[0; BLOCK as usize])]));
    }
}
