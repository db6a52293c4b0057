//! The window: how large the ring must be so that it cannot deadlock, and how early each interval may be fetched.
//!
//! # What the executor does
//! Streamed intervals take spans of a ring of `W` bytes in schedule order. A span of `s` bytes at position `p` that
//! would pass the end (`p + s > W`) begins at 0 instead, and the `W - p < s` bytes skipped count as taken with it.
//! Intervals leave in the order of their accesses, each once it is released and written back, and a streamed one gives
//! its span back then. Placed intervals stand in the same queue: they take no span, but one that is held keeps those
//! behind it. The user takes accesses in schedule order and gives each lease back at its release node.
//!
//! # Why a window of the needed size cannot deadlock
//! Only a user who waits for an access can be stuck: while nobody waits, the schedule advances, and write-backs and
//! fetches of intervals that have their spans end by themselves. Let the user wait for access i. Let o be the oldest
//! interval with a release node >= i's node. Everything before o is released already (a release node before i's node
//! has been passed), so it is written back and leaves; nothing before o is in the ring. If i has its place, its fetch
//! ends: the one thing that it may wait for, an earlier interval of the same run, is released by then (`validate`
//! refuses two live uses of a run) and written back. If not, places are taken in order, so the ring holds streamed
//! intervals of o..i-1 at most, and we show that those of o..=i fit. Let S be the sum of their sizes and L the largest
//! size that streams; the needed window has W >= S + L. Count positions without wrapping them around, from the
//! beginning of what the first of them took. Skipped bytes lie before a multiple of W. After the first such multiple at
//! most S bytes are taken without skipping, and S <= W - L leaves room for one more span before the next multiple; so
//! at most one of the spans skips, it skips fewer than L bytes, and all of them take less than S + L <= W bytes. So i
//! gets its span. The argument never uses where in the ring the first span begins, so it holds in every sweep of a
//! cyclic schedule, with all intervals of the sweep before released; and a larger ring than planned is as good.
//!
//! Tickets take no part of the ring. One that is held keeps intervals off its pages, as its user decides; one that is
//! not held never does for long (see the core's `recall`).

use super::place::Placement;
use super::types::{Interval, Place, Shape};
use super::validate::Draft;
use crate::id::Run;

/// Bytes of window that the streamed runs need; 0 if none streams.
pub(super) fn need(draft: &Draft, is_placed: &[bool]) -> u64 {
    let (mut tail, mut sum, mut sum_max, mut largest) = (0usize, 0u64, 0u64, 0u64);
    for (index, use_) in draft.uses.iter().enumerate() {
        if is_placed[use_.run as usize] {
            continue;
        }
        sum += use_.bytes;
        // The oldest live use only ever moves forward: one that is over stays over.
        while (draft.uses[tail].last as usize) < index {
            if !is_placed[draft.uses[tail].run as usize] {
                sum -= draft.uses[tail].bytes;
            }
            tail += 1;
        }
        sum_max = sum_max.max(sum);
        largest = largest.max(use_.bytes);
    }
    sum_max + largest
}

/// Bytes of window beyond which more is of no use: everything that one sweep streams, and the wrap.
pub(super) fn useful(draft: &Draft, is_placed: &[bool]) -> u64 {
    let streamed = || draft.uses.iter().filter(|use_| !is_placed[use_.run as usize]).map(|use_| use_.bytes);
    streamed().sum::<u64>() + streamed().max().unwrap_or(0)
}

/// The intervals of a plan, with the earliest moment of each fetch.
pub(super) fn intervals(draft: &Draft, shape: &Shape<'_>, placement: &Placement) -> Vec<Interval> {
    let mut intervals: Vec<Interval> = draft
        .uses
        .iter()
        .enumerate()
        .map(|(index, use_)| {
            let run = use_.run as usize;
            let place =
                if placement.is_placed[run] { Place::Placed { offset: placement.offset[run] } } else { Place::Window };
            Interval {
                node: use_.node,
                release: use_.release,
                run: draft.runs[run].run,
                mode: use_.mode,
                bytes: use_.bytes,
                place,
                fetch_at: index as u32,
            }
        })
        .collect();
    let is_streamed = |interval: &Interval| interval.place == Place::Window;
    let largest = intervals.iter().filter(|i| is_streamed(i)).map(|interval| interval.bytes).max().unwrap_or(0);
    let mut streamed: Vec<u32> = Vec::new();
    // What streams of tail..=index fits the window with one wrap; everything before `tail` must have left.
    let (mut tail, mut sum, mut released_by) = (0usize, 0u64, None::<u32>);
    for index in 0..intervals.len() as u32 {
        if !is_streamed(&intervals[index as usize]) {
            continue;
        }
        sum += intervals[index as usize].bytes;
        while sum + largest > placement.window_bytes {
            let oldest = intervals[tail];
            sum -= if is_streamed(&oldest) { oldest.bytes } else { 0 };
            released_by = released_by.max(Some(oldest.release));
            tail += 1;
        }
        // The same run's earlier interval must be over as well: until then the bytes on disk are old.
        let previous = draft.uses[index as usize].previous.map(|previous| intervals[previous as usize].release);
        let by_release = match released_by.max(previous) {
            Some(release) => intervals.partition_point(|earlier| earlier.node <= release) as u32,
            None => 0,
        };
        let by_count = match shape.prefetch_intervals_max {
            None => 0,
            Some(0) => index,
            Some(ahead) => streamed.len().checked_sub(ahead as usize).map_or(0, |first| streamed[first]),
        };
        assert!(by_release <= index && tail <= index as usize, "the window is too small for interval {index}");
        intervals[index as usize].fetch_at = by_release.max(by_count);
        streamed.push(index);
    }
    intervals
}

/// The first streamed runs, as many as a successor may fetch before it begins.
pub(super) fn prefetchable(intervals: &[Interval], shape: &Shape<'_>, window_bytes: u64) -> Vec<Run> {
    let streamed = || intervals.iter().filter(|interval| interval.place == Place::Window);
    let largest = streamed().map(|interval| interval.bytes).max().unwrap_or(0);
    let count_max = shape.prefetch_intervals_max.map_or(usize::MAX, |count| count as usize);
    let mut sum = largest;
    streamed()
        .take(count_max)
        .take_while(|interval| {
            sum += interval.bytes;
            sum <= window_bytes && interval.fetch_at == 0
        })
        .map(|interval| interval.run)
        .collect()
}
