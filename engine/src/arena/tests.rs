//! The arena: alignment, zeros, laziness, bounds.

use super::{Arena, HUGE_PAGE_BYTES};
use crate::io::{FrameMut, FrameRef};

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("procfs");
    let line = status.lines().find(|l| l.starts_with("RssAnon:")).expect("RssAnon line");
    line.split_whitespace().nth(1).and_then(|n| n.parse::<u64>().ok()).expect("a number of kB") * 1024
}

#[test]
fn start_is_aligned_and_fresh_bytes_are_zeros() {
    let arena = Arena::new(3 * HUGE_PAGE_BYTES + 4096).expect("arena");
    assert_eq!(arena.base() as u64 % HUGE_PAGE_BYTES, 0);
    assert_eq!(arena.bytes(), 3 * HUGE_PAGE_BYTES + 4096);
    let tail = FrameRef::new(3 * HUGE_PAGE_BYTES, 4096);
    assert!(arena.slice(&tail).iter().all(|b| *b == 0));
}

#[test]
fn what_is_written_is_read() {
    let arena = Arena::new(1 << 20).expect("arena");
    arena.slice_mut(&mut FrameMut::new(4096, 8192)).fill(7);
    assert!(arena.slice(&FrameRef::new(4096, 8192)).iter().all(|b| *b == 7));
    assert!(arena.slice(&FrameRef::new(0, 4096)).iter().all(|b| *b == 0));
    arena.zero(&mut FrameMut::new(4096, 4096));
    assert_eq!(arena.slice(&FrameRef::new(4096, 8192)).iter().filter(|b| **b == 7).count(), 4096);
}

#[test]
fn memory_is_taken_only_as_it_is_touched() {
    let before = resident_bytes();
    let arena = Arena::new(8 << 30).expect("arena");
    let mut frame = FrameMut::new(5 << 30, 4096);
    arena.slice_mut(&mut frame).fill(1);
    // Other tests of the process may hold some tens of MiB at the same time.
    assert!(resident_bytes() < before + (1 << 30), "an untouched arena takes memory");
}

#[test]
#[should_panic(expected = "outside the arena")]
fn a_token_beyond_the_end_is_refused() {
    let arena = Arena::new(8192).expect("arena");
    arena.slice(&FrameRef::new(4096, 8192));
}

#[test]
fn sizes_that_cannot_be_are_errors() {
    assert!(Arena::new(u64::MAX).is_err());
    assert!(Arena::new(1 << 62).is_err());
    assert_eq!(Arena::new(0).expect("an empty arena").bytes(), 0);
}
