//! The simulated disk's own rules: a checker that lets errors through is worse than none.

use super::disk::Crash;
use super::fault::Fault;
use super::{Faults, MemoryIo, POISON, Settings};
use crate::arena::Arena;
use crate::io::{Completion, FrameMut, FrameRef, Io, Op, OpId};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

const VOLUME_BYTES: u64 = 64 << 10;

fn simulated(settings: Settings) -> (MemoryIo, Arc<Arena>) {
    let arena = Arc::new(Arena::new(1 << 20).expect("arena"));
    (MemoryIo::new(Arc::clone(&arena), &[VOLUME_BYTES, VOLUME_BYTES], settings), arena)
}

fn read(volume: u16, offset: u64, frame: u64, bytes: u32) -> Op {
    Op::Read { volume, offset, into: FrameMut::new(frame, bytes) }
}

fn write(volume: u16, offset: u64, frame: u64, bytes: u32) -> Op {
    Op::Write { volume, offset, from: FrameRef::new(frame, bytes) }
}

fn fill(arena: &Arena, frame: u64, bytes: u32, value: u8) {
    arena.slice_mut(&mut FrameMut::new(frame, bytes)).fill(value);
}

/// Runs until nothing is in flight; completions in the order of their ids.
fn finish(io: &mut MemoryIo) -> Vec<Completion> {
    let mut out = Vec::new();
    while !io.in_flight.is_empty() {
        io.poll(&mut out, Some(Duration::ZERO)).expect("poll");
    }
    out.sort_by_key(|c| c.id);
    out
}

fn run(io: &mut MemoryIo, op: Op) -> Completion {
    io.submit(OpId(u64::MAX), op).expect("room");
    finish(io).pop().expect("one completion")
}

/// Writes `value` over one sector and waits for it.
fn put(io: &mut MemoryIo, arena: &Arena, volume: u16, offset: u64, value: u8) {
    fill(arena, 0, 512, value);
    assert_eq!(run(io, write(volume, offset, 0, 512)).result.expect("written"), 512);
}

#[test]
fn reads_are_poisoned_until_they_complete() {
    let (mut io, arena) = simulated(Settings::new(1));
    put(&mut io, &arena, 1, 4096, 9);
    fill(&arena, 8192, 1024, 3);
    io.submit(OpId(1), read(1, 4096, 8192, 1024)).expect("room");
    assert!(arena.slice(&FrameRef::new(8192, 1024)).iter().all(|b| *b == POISON));
    finish(&mut io);
    let frame = FrameRef::new(8192, 1024);
    assert!(arena.slice(&frame)[..512].iter().all(|b| *b == 9));
    assert!(arena.slice(&frame)[512..].iter().all(|b| *b == 0));
}

#[test]
#[should_panic(expected = "changed while the operation was in flight")]
fn changing_a_frame_during_its_write_is_caught() {
    let (mut io, arena) = simulated(Settings::new(1));
    io.submit(OpId(1), write(0, 0, 0, 512)).expect("room");
    fill(&arena, 100, 1, 1);
    finish(&mut io);
}

#[test]
#[should_panic(expected = "changed while the operation was in flight")]
fn changing_a_frame_during_its_read_is_caught() {
    let (mut io, arena) = simulated(Settings::new(1));
    io.submit(OpId(1), read(0, 0, 0, 512)).expect("room");
    fill(&arena, 100, 1, 1);
    finish(&mut io);
}

/// Submits two operations, the second of which breaks a rule.
fn submit_both(first: Op, second: Op) {
    let (mut io, _arena) = simulated(Settings::new(1));
    io.submit(OpId(1), first).expect("room");
    let _ = io.submit(OpId(2), second);
}

#[test]
#[should_panic(expected = "overlaps")]
fn writes_that_overlap_are_caught() {
    submit_both(write(0, 512, 0, 1024), write(0, 1024, 4096, 512));
}

#[test]
#[should_panic(expected = "overlaps")]
fn a_read_of_what_is_being_written_is_caught() {
    submit_both(write(0, 512, 0, 1024), read(0, 0, 4096, 1024));
}

#[test]
#[should_panic(expected = "uses the frame")]
fn two_operations_on_a_frame_being_filled_are_caught() {
    submit_both(read(0, 0, 0, 1024), write(1, 0, 512, 512));
}

#[test]
fn operations_that_do_not_meet_are_fine() {
    submit_both(write(0, 512, 0, 1024), write(1, 512, 0, 1024));
    submit_both(read(0, 0, 0, 1024), read(0, 0, 1024, 1024));
    submit_both(write(0, 512, 0, 1024), write(0, 1536, 0, 512));
}

#[test]
#[should_panic(expected = "misaligned")]
fn a_misaligned_offset_is_caught() {
    submit_both(Op::Sync { volume: 0 }, read(0, 100, 0, 512));
}

#[test]
#[should_panic(expected = "misaligned")]
fn a_misaligned_frame_is_caught() {
    submit_both(Op::Sync { volume: 0 }, read(0, 0, 8, 512));
}

#[test]
#[should_panic(expected = "out of bounds")]
fn a_transfer_beyond_the_end_is_caught() {
    submit_both(Op::Sync { volume: 0 }, read(0, VOLUME_BYTES - 512, 0, 1024));
}

#[test]
fn a_full_queue_gives_the_operation_back() {
    let (mut io, _arena) = simulated(Settings { queue_depth: 2, ..Settings::new(1) });
    io.submit(OpId(1), read(0, 0, 0, 512)).expect("room");
    io.submit(OpId(2), read(0, 0, 512, 512)).expect("room");
    assert_eq!(io.submit(OpId(3), read(0, 0, 1024, 512)), Err(read(0, 0, 1024, 512)));
    assert_eq!(finish(&mut io).len(), 2);
}

#[test]
fn hashes_run_too() {
    let (mut io, arena) = simulated(Settings::new(1));
    fill(&arena, 4096, 4096, 5);
    let op = Op::Hash { from: FrameRef::new(0, 8192), page_bytes: 4096, digests: vec![1, 2, 3] };
    let Op::Hash { digests, .. } = run(&mut io, op).op else { panic!("a hash comes back") };
    assert_eq!(digests, [&[0u8; 4096], &[5u8; 4096]].map(|page| crate::format::checksum::page_checksum(page)));
}

#[test]
fn a_sync_covers_what_had_completed_and_nothing_else() {
    let (mut io, arena) = simulated(Settings::new(7));
    put(&mut io, &arena, 0, 0, 1);
    io.submit(OpId(1), Op::Sync { volume: 0 }).expect("room");
    fill(&arena, 512, 512, 2);
    io.submit(OpId(2), write(0, 512, 512, 512)).expect("room");
    finish(&mut io);
    put(&mut io, &arena, 1, 0, 3);
    assert_eq!(io.unflushed(), 2);
    let image = io.crash_image(0, Crash::NoneSurvive);
    assert_eq!((image[0][0], image[0][512], image[1][0]), (1, 0, 0));
    let image = io.crash_image(0, Crash::AllSurvive);
    assert_eq!((image[0][0], image[0][512], image[1][0]), (1, 2, 3));
    let image = io.crash_image(0, Crash::OnlySurvivor(1));
    assert_eq!((image[0][0], image[0][512], image[1][0]), (1, 0, 3));
    let image = io.crash_image(0, Crash::OnlyLoss(1));
    assert_eq!((image[0][0], image[0][512], image[1][0]), (1, 2, 0));
    assert_eq!(io.process_kill_image(0), io.crash_image(0, Crash::AllSurvive));
}

#[test]
fn what_a_failed_sync_missed_no_later_sync_saves() {
    let faults = Faults { failed_sync: 1000, ..Faults::default() };
    let mut readable = 0;
    for seed in 0..20 {
        let (mut io, arena) = simulated(Settings { faults, ..Settings::new(seed) });
        put(&mut io, &arena, 0, 0, 1);
        assert!(run(&mut io, Op::Sync { volume: 0 }).result.is_err());
        io.settings.faults.failed_sync = 0;
        assert!(run(&mut io, Op::Sync { volume: 0 }).result.is_ok());
        assert_eq!(io.crash_image(0, Crash::NoneSurvive)[0][0], 0);
        // It may still be read, from a cache, and may still come to be stored; or it is gone at once.
        assert_eq!(io.crash_image(0, Crash::AllSurvive)[0][0], io.volume(0)[0]);
        readable += u32::from(io.volume(0)[0]);
        // Newer bytes that are durable stay.
        put(&mut io, &arena, 0, 0, 2);
        assert!(run(&mut io, Op::Sync { volume: 0 }).result.is_ok());
        assert_eq!(io.crash_image(0, Crash::AllSurvive)[0][0], 2);
    }
    assert!((1..20).contains(&readable), "{readable}");
}

#[test]
fn a_prefix_is_what_completed_first_and_the_last_of_it_torn() {
    let (mut io, arena) = simulated(Settings::new(5));
    for n in 0..3u8 {
        put(&mut io, &arena, 0, u64::from(n) * 4096, n + 1);
    }
    let mut torn = BTreeSet::new();
    for seed in 0..16 {
        let image = io.crash_image(seed, Crash::Prefix(1));
        assert_eq!((image[0][0], image[0][8192]), (1, 0));
        torn.insert(image[0][4096]);
    }
    assert_eq!(torn, BTreeSet::from([0, 2]));
}

/// A disk that always has this fault.
fn always(fault: Fault) -> (MemoryIo, Arc<Arena>) {
    let mut faults = Faults::default();
    *faults.rate_mut(fault) = 1000;
    simulated(Settings { faults, ..Settings::new(13) })
}

#[test]
fn a_flipped_bit_is_the_same_at_every_try_and_suspect() {
    let (mut io, arena) = always(Fault::Flip);
    let mut seen = BTreeSet::new();
    for _ in 0..3 {
        put(&mut io, &arena, 0, 512, 9);
        seen.insert(io.volume(0)[512..1024].to_vec());
    }
    assert_eq!(seen.len(), 1);
    let wrong: Vec<u8> = seen.first().expect("one").iter().copied().filter(|b| *b != 9).collect();
    assert!(wrong.len() == 1 && (wrong[0] ^ 9).count_ones() == 1);
    assert!(io.disk().remains().is_suspect(0, 512, 512) && !io.disk().remains().is_suspect(0, 0, 512));
}

#[test]
fn a_lost_write_is_suspect_until_a_later_one_is_durable() {
    let (mut io, arena) = always(Fault::LostWrite);
    put(&mut io, &arena, 0, 512, 9);
    assert_eq!(io.volume(0)[512], 0);
    io.settings.faults.lost_write = 0;
    put(&mut io, &arena, 0, 512, 8);
    assert!(io.disk().remains().is_suspect(0, 512, 1), "a power loss would bring the damage back");
    assert!(run(&mut io, Op::Sync { volume: 0 }).result.is_ok());
    assert!(!io.disk().remains().is_suspect(0, 512, 1));
}

#[test]
fn a_misdirected_write_lands_where_another_was() {
    let (mut io, arena) = simulated(Settings::new(13));
    for n in 0..64u8 {
        put(&mut io, &arena, 0, u64::from(n % 2) * 4096, 1 + n % 2);
    }
    io.settings.faults.misdirected = 1000;
    put(&mut io, &arena, 0, 8192, 7);
    let hit: Vec<u64> = [0, 4096, 8192].into_iter().filter(|at| io.volume(0)[*at as usize] == 7).collect();
    assert!(hit == [0] || hit == [4096], "{hit:?}");
    assert!(io.disk().remains().is_suspect(0, hit[0], 512) && io.disk().remains().is_suspect(0, 8192, 512));
}

#[test]
fn a_bad_sector_stays_bad_until_it_is_written() {
    let (mut io, arena) = always(Fault::BadSector);
    assert!(run(&mut io, read(0, 0, 0, 512)).result.is_err());
    io.settings.faults.bad_sector = 0;
    for _ in 0..3 {
        assert!(run(&mut io, read(0, 0, 0, 1024)).result.is_err());
        assert!(run(&mut io, read(0, 512, 0, 512)).result.is_ok());
    }
    put(&mut io, &arena, 0, 0, 3);
    assert!(run(&mut io, read(0, 0, 0, 1024)).result.is_ok());
}

#[test]
fn spared_bytes_are_never_damaged() {
    for fault in [Fault::Flip, Fault::LostWrite, Fault::BadSector] {
        let (mut io, arena) = always(fault);
        io.disk.spare(0, 0, 512);
        put(&mut io, &arena, 0, 0, 3);
        assert_eq!(io.volume(0)[..512], [3; 512]);
        assert!(run(&mut io, read(0, 0, 0, 512)).result.is_ok());
        assert_eq!(io.counts().of(fault), 0);
    }
}

#[test]
fn a_straggler_completes_after_many_polls() {
    let (mut io, _arena) = always(Fault::Straggler);
    io.submit(OpId(1), read(0, 0, 0, 512)).expect("room");
    let mut out = Vec::new();
    let mut polls = 0;
    while out.is_empty() {
        io.poll(&mut out, None).expect("poll");
        polls += 1;
        assert!(polls < 2000, "it completes in the end");
    }
    assert!(polls > 5, "{polls}");
}

#[test]
fn a_killed_process_leaves_volatile_bytes_volatile() {
    let (mut io, arena) = simulated(Settings::new(1));
    put(&mut io, &arena, 0, 0, 3);
    let disk = io.killed(1);
    assert_eq!((disk.live(0)[0], disk.unflushed()), (3, 1));
    let io = MemoryIo::on(arena, disk, Settings::new(1));
    assert_eq!(io.crash_image(0, Crash::NoneSurvive)[0][0], 0);
}

#[test]
fn a_torn_write_survives_sector_by_sector() {
    let (mut io, arena) = simulated(Settings::new(5));
    fill(&arena, 0, 32768, 6);
    io.submit(OpId(1), write(0, 0, 0, 32768)).expect("room");
    let mut counts = Vec::new();
    for seed in 0..16 {
        let image = io.crash_image(seed, Crash::Torn);
        let sectors: Vec<bool> = image[0][..32768].chunks(512).map(|s| s[0] == 6).collect();
        assert!(image[0][..32768].chunks(512).all(|s| s.iter().all(|b| *b == s[0])), "a sector is whole");
        counts.push(sectors.iter().filter(|s| **s).count());
    }
    assert!(counts.iter().any(|c| *c < 20) && counts.iter().any(|c| *c > 44), "{counts:?}");
    assert_eq!(io.crash_image(4, Crash::Torn), io.crash_image(4, Crash::Torn));
}

#[test]
fn every_fault_happens_and_says_what_it_did() {
    let faults = Faults {
        short_read: 100,
        short_write: 100,
        eio: 50,
        eintr: 50,
        eagain: 50,
        ecanceled: 50,
        enospc: 50,
        refusal: 100,
        failed_sync: 100,
        ..Faults::default()
    };
    let (mut io, arena) = simulated(Settings { faults, ..Settings::new(11) });
    let mut seen = BTreeSet::new();
    for n in 0..2000u64 {
        let op = match n % 3 {
            0 => read(0, 0, 0, 4096),
            1 => write(0, 0, 4096, 4096),
            _ => Op::Sync { volume: 0 },
        };
        let transfer = n % 3 != 2;
        if io.submit(OpId(n), op).is_err() {
            seen.insert("refusal".to_string());
            continue;
        }
        let done = finish(&mut io).pop().expect("one completion");
        match done.result {
            Ok(4096) if transfer => {}
            Ok(0) if !transfer => {}
            Ok(moved) => {
                assert!(moved > 0 && moved < 4096 && moved.is_multiple_of(512), "{moved}");
                if let Op::Read { into, .. } = &done.op {
                    let frame = FrameRef::new(into.offset, into.bytes);
                    assert!(arena.slice(&frame)[moved as usize..].iter().all(|b| *b == POISON));
                }
                seen.insert(format!("short {}", n % 3));
            }
            Err(e) => {
                seen.insert(format!("{:?} {}", e.raw_os_error(), n % 3));
            }
        }
    }
    // Short, EIO, EINTR, EAGAIN and ECANCELED of both transfers, ENOSPC of writes, EIO of syncs, refusals.
    assert_eq!(seen.len(), 13, "{seen:?}");
}

/// Completions with what they moved, the number of events, and the volumes after a crash.
type Story = (Vec<(u64, Option<u32>)>, u64, Vec<Vec<u8>>);

/// A fixed mixture of operations; returns everything observable.
fn story(seed: u64, stop_after: u64) -> Story {
    let faults = Faults { short_write: 200, eio: 50, ..Faults::default() };
    let (mut io, arena) = simulated(Settings { faults, ..Settings::new(seed) });
    io.stop_after(stop_after);
    let mut out = Vec::new();
    'story: for round in 0..8u64 {
        for n in 0..4u64 {
            fill(&arena, n * 4096, 4096, (round * 4 + n + 1) as u8);
            io.submit(OpId(round * 8 + n), write((n % 2) as u16, n * 4096, n * 4096, 4096)).expect("room");
        }
        io.submit(OpId(round * 8 + 4), Op::Sync { volume: 0 }).expect("room");
        while !io.in_flight.is_empty() {
            if io.poll(&mut out, Some(Duration::ZERO)).is_err() {
                break 'story;
            }
        }
    }
    let story = out.iter().map(|c| (c.id.0, c.result.as_ref().ok().copied())).collect();
    (story, io.events(), io.crash_image(1, Crash::Torn))
}

#[test]
fn the_same_seed_tells_the_same_story() {
    assert_eq!(story(1, u64::MAX), story(1, u64::MAX));
    assert_ne!(story(1, u64::MAX).0, story(2, u64::MAX).0);
}

#[test]
fn it_stops_after_the_event_asked_for() {
    let (whole, events, _) = story(1, u64::MAX);
    assert_eq!(events, 80);
    for stop in 1..events {
        let (part, stopped_at, _) = story(1, stop);
        assert_eq!(stopped_at, stop);
        assert!(part.len() <= whole.len() && part[..] == whole[..part.len()]);
    }
}

#[test]
fn a_machine_starts_again_from_an_image() {
    let (mut io, arena) = simulated(Settings::new(1));
    put(&mut io, &arena, 1, 512, 4);
    io.write_durable(0, 0, &[8; 16]);
    let image = io.crash_image(0, Crash::AllSurvive);
    let io = MemoryIo::from_image(arena, image, Settings::new(2));
    assert_eq!((io.volume(1)[512], io.volume(0)[0], io.unflushed()), (4, 8, 0));
}
