//! Windows: how large the rings must be so that they cannot deadlock, and how early each stay may begin.
//!
//! # What the executor does
//! There is one ring in the arena and one in the VRAM of each device. The stays of a tier (see `queue`) that stream
//! take spans of its ring of `W` bytes in schedule order. A span of `s` bytes at position `p` that would pass the end
//! (`p + s > W`) begins at 0 instead, and the `W - p < s` bytes skipped count as taken with it. Stays leave in the
//! order of the queue: an access once it is released and written back, a transit once its bytes are in VRAM, which the
//! access waits for; an access in RAM that another on a device is relayed from not before that one has its bytes. A
//! streamed stay gives its span back then. Placed ones stand in the same queue: they take no span, but one that is held
//! keeps those behind it. Bytes that go from VRAM to disk are copied into a span of the staging ring and the span in
//! VRAM is free; staging spans are taken in the order of releases and free when they are written.
//!
//! Users go through their nodes in order, and take accesses and give leases back there (see `crate::schedule`).
//!
//! # Why windows of the needed size cannot deadlock
//! Let n be the first node of the sweep that is not done. All that it comes after is in front of it and so is done, as
//! are its user's earlier nodes, so its user is at n. Work ends by itself. So let n be an access, i.
//!
//! Transfers in flight end by themselves, and so does everything that only waits for transfers: write-backs to RAM or
//! to a home in VRAM; staging, whose spans are taken one behind the other and wait for nobody but a link and the disk,
//! and whose ring is twice its largest span (so, empty, it has room for any, wherever it begins).
//!
//! Take any ring that i needs, and let o be the oldest stay of its queue with a leaving node >= n. Everything before o
//! has its leaving node behind it: it is released, or taken up by its access on the device, so that it leaves by
//! itself; nothing before o is in the ring. If i has its span there, its bytes come: from disk, or from RAM, or from
//! VRAM, as soon as the run is free for it, and the earlier uses of the run are released by then (`draft` refuses two
//! live uses of a run) and written back by themselves. If i is relayed, that other access is in front of n, so it is
//! done and its bytes are in RAM, and they stay until i has them. An access on a device that reads from disk needs two
//! spans: one in the arena for its transit, and one in VRAM; neither ring waits for the other, since a transit before i
//! in the queue belongs to an access that is done.
//!
//! If i has no span, spans are taken in order, so the ring holds streamed stays of o..i-1 at most, and we show that
//! those of o..=i fit. Let S be the sum of their sizes and L the largest size that streams; the needed window has
//! W >= S + L. Count positions without wrapping them around, from the beginning of what the first of them took. Skipped
//! bytes lie before a multiple of W. After the first such multiple at most S bytes are taken without skipping, and
//! S <= W - L leaves room for one more span before the next multiple; so at most one of the spans skips, it skips fewer
//! than L bytes, and all of them take less than S + L <= W bytes. So i gets its span. The argument never uses where in
//! the ring the first span begins, so it holds in every sweep of a cyclic schedule, with all stays of the sweep before
//! released; and a larger ring than planned is as good.
//!
//! The plan's `fetch_at` and `upload_at` hold nobody up either: they name accesses that are not behind the stay's own.
//!
//! Tickets take no part of the ring. One that is held keeps intervals off its pages, as its user decides; one that is
//! not held never does for long (see the core's `recall`).

use super::draft::Draft;
use super::queue::{Entry, Queue};
use super::types::Shape;
use crate::id::{Run, Tier};

/// Bytes of window that the streamed stays need; 0 if none streams.
pub(super) fn need(queue: &Queue, homes: &[Tier]) -> u64 {
    let (mut tail, mut sum, mut sum_max, mut largest) = (0usize, 0u64, 0u64, 0u64);
    for entry in &queue.entries {
        if !queue.streams(entry, homes) {
            continue;
        }
        sum += entry.bytes;
        // The oldest live stay only ever moves forward: one that is over stays over.
        while queue.last(&queue.entries[tail], homes) < entry.use_ {
            if queue.streams(&queue.entries[tail], homes) {
                sum -= queue.entries[tail].bytes;
            }
            tail += 1;
        }
        sum_max = sum_max.max(sum);
        largest = largest.max(entry.bytes);
    }
    sum_max + largest
}

/// What [`need`] is where the first runs of an order have got homes in the queue's tier, for any number of them. A
/// placement asks for some hundred numbers of runs: all that does not depend on the number is looked up once.
///
/// Where a stay comes after everything before it has ended, whatever streams, a *stretch* of the queue ends. The need
/// is the largest of all stretches. Most are short (the accesses of one piece of work), and what those need is computed
/// here, for every number of placed runs at once; the long ones are gone through when somebody asks.
pub(super) struct Needs {
    /// Most bytes that stays of one short stretch have at once, by how many runs are placed.
    short: Vec<u64>,
    /// The largest stay that streams, by how many runs are placed.
    largest: Vec<u64>,
    long: Vec<Vec<Stay>>,
}

#[derive(Clone, Copy)]
struct Stay {
    bytes: u64,
    use_: u32,
    /// As in the queue's entry.
    last: u32,
    last_streaming: u32,
    /// It streams while fewer runs of the order are placed.
    placed_from: u32,
}

/// Stays of a stretch whose need is computed for all numbers at once, which takes the square of them.
const SHORT: usize = 8;

impl Needs {
    pub(super) fn new(queue: &Queue, homes: &[Tier], order: &[u32]) -> Needs {
        // More than there are: it streams whatever is placed.
        let always = order.len() as u32 + 1;
        let mut placed_from = vec![always; homes.len()];
        for (count, &run) in (1..).zip(order) {
            placed_from[run as usize] = count;
        }
        let stay = |entry: &Entry| {
            let home = homes[entry.run as usize];
            let placed_from = match queue.streams(entry, homes) {
                true if home == Tier::Disk => placed_from[entry.run as usize],
                true => always,
                false => 0,
            };
            let Entry { bytes, use_, last, last_streaming, .. } = *entry;
            Stay { bytes, use_, last, last_streaming, placed_from }
        };
        let none = vec![0; always as usize + 1];
        let mut needs = Needs { short: none.clone(), largest: none, long: Vec::new() };
        let (mut stretch, mut ends): (Vec<Stay>, u32) = (Vec::new(), 0);
        for entry in &queue.entries {
            if ends < entry.use_ {
                needs.add(&mut stretch);
            }
            let stay = stay(entry);
            ends = ends.max(stay.last).max(stay.last_streaming);
            stretch.push(stay);
        }
        needs.add(&mut stretch);
        // So far at the largest number with which a stay streams: it does with any smaller one, and there is no less in
        // the window then, since a stay that streams ends no earlier than one that is placed.
        for numbers in [&mut needs.short, &mut needs.largest] {
            for count in (0..always as usize).rev() {
                numbers[count] = numbers[count].max(numbers[count + 1]);
            }
        }
        needs
    }

    /// Takes a stretch in.
    fn add(&mut self, stretch: &mut Vec<Stay>) {
        for stay in stretch.iter().filter(|stay| stay.placed_from > 0) {
            let most = stay.placed_from as usize - 1;
            self.largest[most] = self.largest[most].max(stay.bytes);
            if stretch.len() <= SHORT {
                self.short[most] = self.short[most].max(most_at_once(stretch, most));
            }
        }
        if stretch.len() > SHORT {
            self.long.push(std::mem::take(stretch));
        }
        stretch.clear();
    }

    /// As [`need`], with so many runs placed.
    pub(super) fn at(&self, count: usize) -> u64 {
        let long = self.long.iter().map(|stretch| most_at_once(stretch, count));
        long.fold(self.short[count], u64::max) + self.largest[count]
    }
}

/// Most bytes that the stays of a stretch have at once in the window, with so many runs placed.
fn most_at_once(stretch: &[Stay], count: usize) -> u64 {
    let (mut tail, mut sum, mut most) = (0usize, 0u64, 0u64);
    for stay in stretch.iter().filter(|stay| count < stay.placed_from as usize) {
        sum += stay.bytes;
        // As in `need`.
        loop {
            let oldest = &stretch[tail];
            let streams = count < oldest.placed_from as usize;
            if (if streams { oldest.last_streaming } else { oldest.last }) >= stay.use_ {
                break;
            }
            sum -= if streams { oldest.bytes } else { 0 };
            tail += 1;
        }
        most = most.max(sum);
    }
    most
}

/// Bytes of window beyond which more is of no use: everything that one sweep streams, and the wrap.
pub(super) fn useful(queue: &Queue, homes: &[Tier]) -> u64 {
    let streamed = || queue.entries.iter().filter(|entry| queue.streams(entry, homes)).map(|entry| entry.bytes);
    streamed().sum::<u64>() + streamed().max().unwrap_or(0)
}

/// For each stay the use whose access must be reached before it may begin; its own if it does not stream.
pub(super) fn earliest(
    queue: &Queue,
    draft: &Draft,
    homes: &[Tier],
    window_bytes: u64,
    prefetch_intervals_max: Option<u32>,
) -> Vec<u32> {
    let entries = &queue.entries;
    let streamed_bytes = |entry| if queue.streams(entry, homes) { entry.bytes } else { 0 };
    let largest = entries.iter().map(streamed_bytes).max().unwrap_or(0);
    let mut at: Vec<u32> = entries.iter().map(|entry| entry.use_).collect();
    let mut streamed: Vec<u32> = Vec::new();
    // What streams of tail..=index fits the window with one wrap; everything before `tail` must have left.
    let (mut tail, mut sum, mut left_by) = (0usize, 0u64, None::<u32>);
    for (index, entry) in entries.iter().enumerate() {
        if !queue.streams(entry, homes) {
            continue;
        }
        sum += entry.bytes;
        while sum + largest > window_bytes {
            let oldest = &entries[tail];
            sum -= streamed_bytes(oldest);
            left_by = left_by.max(Some(queue.leave(oldest, homes)));
            tail += 1;
        }
        // The run must be free for it as well: until then the bytes at its home are old.
        let by_node = match left_by.max(draft.uses[entry.use_ as usize].clear) {
            Some(node) => {
                let behind = entries.partition_point(|other| draft.uses[other.use_ as usize].node <= node);
                assert!(behind <= index && tail <= index, "the window is too small for use {}", entry.use_);
                entries[behind].use_
            }
            None => 0,
        };
        let by_count = match prefetch_intervals_max {
            None => 0,
            Some(0) => entry.use_,
            Some(ahead) => streamed.len().checked_sub(ahead as usize).map_or(0, |first| streamed[first]),
        };
        at[index] = by_node.max(by_count);
        streamed.push(entry.use_);
    }
    at
}

/// The first streamed runs, as many as a successor may fetch before it begins.
pub(super) fn prefetchable(
    queue: &Queue,
    draft: &Draft,
    homes: &[Tier],
    at: &[u32],
    shape: &Shape<'_>,
    window_bytes: u64,
) -> Vec<Run> {
    let streamed = || queue.entries.iter().zip(at).filter(|(entry, _)| queue.streams(entry, homes));
    let largest = streamed().map(|(entry, _)| entry.bytes).max().unwrap_or(0);
    let count_max = shape.prefetch_intervals_max.map_or(usize::MAX, |count| count as usize);
    let mut sum = largest;
    streamed()
        .take(count_max)
        .take_while(|(entry, at)| {
            sum += entry.bytes;
            sum <= window_bytes && **at == 0
        })
        .map(|(entry, _)| draft.runs[entry.run as usize].run)
        .collect()
}
