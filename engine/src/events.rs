//! A recording of what an engine does in time: transfers, copies to and from VRAM, syncs, waits, and the work that its
//! user tells of. For timelines; nothing in the engine looks at it.
//!
//! What it is not: a log of everything. It has room for a number of events that is fixed when it is made, and counts
//! what comes after. Transfers that belong together (neighbouring pages of one access, on one volume, in flight at
//! the same time) are one event, so that a sweep makes about as many events as its plan has accesses.
//!
//! While it is off, or where an engine has none, nothing is noted and nothing is allocated. While it is on, the reactor
//! stamps each turn's operations with the time of that turn: the core has no clock. Bytes are those that the counters
//! count, operation by operation.
//!
//! Copies of one way of a device's link follow each other, though many are given to it at once: so a copy begins when
//! it was given or when the one before it ended, whichever is later, and copies that ended in one turn share its time
//! by their bytes. Those that had not begun when the recording ended are no events.

use crate::core::{Move, Owner};
use crate::id::{DeviceId, Run};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

/// What takes the time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Doing {
    /// Pages come from a volume.
    Reading,
    /// Pages go to a volume.
    Writing,
    /// A commit's table, note or superblock goes to a volume.
    Recording,
    /// A volume makes durable what it was given.
    Syncing,
    /// Pages go to a device's memory.
    Uploading(DeviceId),
    /// Pages come from a device's memory.
    Downloading(DeviceId),
    /// The user waits for an access.
    Waiting,
    /// The user works, as he says.
    Working,
    /// A device works for the user, as he says.
    Computing(DeviceId),
}

impl Doing {
    /// Whether it is a copy over a device's link.
    fn is_copy(self) -> bool {
        matches!(self, Doing::Uploading(_) | Doing::Downloading(_))
    }
}

/// Something that took time. Times are nanoseconds since the recorder was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// What took the time.
    pub doing: Doing,
    /// Its beginning.
    pub begin_ns: u64,
    /// Its end.
    pub end_ns: u64,
    /// The volume's number; 0 where there is none.
    pub volume: u16,
    /// The pages, or those around them that lie on other volumes; None where it is not about pages.
    pub run: Option<Run>,
    /// Bytes that the volume or the link moved.
    pub bytes: u64,
    /// Operations.
    pub operations: u32,
    /// Label of the access in its schedule, or of the user's work.
    pub tag: Option<u64>,
}

/// Everything that was recorded.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// In the order in which they ended.
    pub events: Vec<Event>,
    /// Events for which there was no room.
    pub left_out: u64,
}

/// Records an engine's events, from [`start`](Recorder::start) to [`stop`](Recorder::stop). Shared by the engine and
/// its user.
#[derive(Debug)]
pub struct Recorder {
    made: Instant,
    is_on: AtomicBool,
    kept: Mutex<Kept>,
}

#[derive(Debug)]
struct Kept {
    recording: Recording,
    room: usize,
    /// When the recording was last started.
    since_ns: u64,
    /// Events that go on.
    open: Vec<Open>,
    /// When the last copy of each way of each link ended, by what it does.
    lanes: Vec<(Doing, u64)>,
    /// Copies that ended in the turn at hand.
    ended: Vec<Event>,
}

#[derive(Debug)]
struct Open {
    owner: Option<Owner>,
    /// Operations that have begun and not ended.
    left: u32,
    event: Event,
}

impl Recorder {
    /// A recorder with room for this many events, 72 bytes each, all of it taken (and touched) now. It is off.
    pub fn new(room: usize) -> Recorder {
        let blank = Event {
            doing: Doing::Working,
            begin_ns: 0,
            end_ns: 0,
            volume: 0,
            run: None,
            bytes: 0,
            operations: 0,
            tag: None,
        };
        let mut events = vec![blank; room];
        events.clear();
        let recording = Recording { events, left_out: 0 };
        let (open, lanes, ended) = Default::default();
        let kept = Kept { recording, room, since_ns: 0, open, lanes, ended };
        Recorder { made: Instant::now(), is_on: AtomicBool::new(false), kept: Mutex::new(kept) }
    }

    /// Bytes that a recorder with room for this many events takes.
    pub fn bytes(room: usize) -> u64 {
        (room * size_of::<Event>()) as u64
    }

    /// Nanoseconds since the recorder was made.
    pub fn now_ns(&self) -> u64 {
        self.ns(Instant::now())
    }

    /// The same for a time that was taken elsewhere.
    pub fn ns(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.made).as_nanos() as u64
    }

    /// Whether it records now.
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Records from now on. What is in flight counts from here.
    pub fn start(&self) {
        let now = self.now_ns();
        self.lock().since_ns = now;
        self.is_on.store(true, Ordering::Relaxed);
    }

    /// Records no more. What is in flight counts up to here.
    pub fn stop(&self) {
        self.is_on.store(false, Ordering::Relaxed);
        let now = self.now_ns();
        self.lock().cut(now);
    }

    /// Takes everything that was recorded so far.
    pub fn take(&self) -> Recording {
        std::mem::take(&mut self.lock().recording)
    }

    /// Notes work of the user's own, from `begin_ns` until now.
    pub fn worked(&self, tag: u64, begin_ns: u64) {
        let end_ns = self.now_ns();
        self.note(Event {
            doing: Doing::Working,
            begin_ns,
            end_ns,
            volume: 0,
            run: None,
            bytes: 0,
            operations: 0,
            tag: Some(tag),
        });
    }

    /// Notes work of a device for the user, in nanoseconds since the recorder was made.
    pub fn computed(&self, device: DeviceId, tag: u64, (begin_ns, end_ns): (u64, u64)) {
        let (doing, tag) = (Doing::Computing(device), Some(tag));
        self.note(Event { doing, begin_ns, end_ns, volume: 0, run: None, bytes: 0, operations: 0, tag });
    }

    /// Notes that the user waited for an access, from `begin` until now.
    pub(crate) fn waited(&self, run: Run, tag: u64, begin: Instant) {
        let (begin_ns, end_ns) = (self.ns(begin), self.now_ns());
        let (doing, run, tag) = (Doing::Waiting, Some(run), Some(tag));
        self.note(Event { doing, begin_ns, end_ns, volume: 0, run, bytes: 0, operations: 0, tag });
    }

    fn note(&self, event: Event) {
        if self.is_on() {
            let mut kept = self.lock();
            let begin_ns = event.begin_ns.max(kept.since_ns);
            let end_ns = event.end_ns.max(begin_ns);
            kept.keep(Event { begin_ns, end_ns, ..event });
        }
    }

    /// Takes in what the core's operations did by `at`.
    pub(crate) fn moved(&self, moves: impl Iterator<Item = Move>, at: Instant) {
        let now = self.ns(at);
        let mut kept = self.lock();
        for it in moves {
            // A turn may have begun before the recording ended.
            if self.is_on() {
                kept.moved(&it, now);
            }
        }
        kept.share(now);
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Kept {
    fn keep(&mut self, event: Event) {
        if self.recording.events.len() < self.room {
            self.recording.events.push(event);
        } else {
            self.recording.left_out += 1;
        }
    }

    fn moved(&mut self, it: &Move, now: u64) {
        let is_same = |open: &Open| {
            (open.owner, open.event.doing, open.event.volume) == (it.owner, it.doing, it.volume) && open.left > 0
        };
        let found = self.open.iter().position(is_same).unwrap_or_else(|| {
            // One that ends and never began was in flight when the recording started.
            let begin_ns = if it.moved.is_some() { self.since_ns } else { now };
            let event = Event {
                doing: it.doing,
                begin_ns,
                end_ns: begin_ns,
                volume: it.volume,
                run: it.run,
                bytes: 0,
                operations: 0,
                tag: it.tag,
            };
            self.open.push(Open { owner: it.owner, left: u32::from(it.moved.is_some()), event });
            self.open.len() - 1
        });
        let open = &mut self.open[found];
        open.event.run = open.event.run.zip(it.run).map(|(one, other)| around(one, other)).or(it.run);
        let Some(moved) = it.moved else {
            open.left += 1;
            return;
        };
        open.left -= 1;
        open.event.bytes += u64::from(moved);
        open.event.operations += 1;
        open.event.end_ns = now;
        if open.left == 0 {
            let event = self.open.swap_remove(found).event;
            match event.doing.is_copy() {
                true => self.ended.push(event),
                false => self.keep(event),
            }
        }
    }

    /// When the last copy of a way ended.
    fn lane(&mut self, doing: Doing) -> &mut u64 {
        let found = self.lanes.iter().position(|(lane, _)| *lane == doing).unwrap_or_else(|| {
            self.lanes.push((doing, 0));
            self.lanes.len() - 1
        });
        &mut self.lanes[found].1
    }

    /// Keeps the copies that ended in a turn, each with its share of the turn's time.
    fn share(&mut self, now: u64) {
        let mut ended = std::mem::take(&mut self.ended);
        for n in 0..ended.len() {
            let doing = ended[n].doing;
            // This one and those of its way that are left: what there is of time is theirs.
            let left: u64 = ended[n..].iter().filter(|other| other.doing == doing).map(|other| other.bytes).sum();
            let lane = self.lane(doing);
            let begin_ns = ended[n].begin_ns.max(*lane).min(now);
            let share = (now - begin_ns) as f64 * ended[n].bytes as f64 / left.max(1) as f64;
            let is_last = left == ended[n].bytes;
            let end_ns = if is_last { now } else { begin_ns + share as u64 };
            *lane = end_ns;
            self.keep(Event { begin_ns, end_ns, ..ended[n] });
        }
        ended.clear();
        self.ended = ended;
    }

    /// Keeps what is in flight when the recording ends, as far as it has begun.
    fn cut(&mut self, now: u64) {
        let mut open = std::mem::take(&mut self.open);
        open.sort_by_key(|open| open.event.begin_ns);
        for Open { event, .. } in open {
            match event.doing.is_copy() {
                // The first of its way is being copied, the others wait for it.
                true if !self.ended.iter().any(|other| other.doing == event.doing) => self.ended.push(event),
                true => {}
                false => self.keep(Event { end_ns: now, ..event }),
            }
        }
        self.share(now);
        self.lanes.clear();
    }
}

/// The shortest run that holds both.
fn around(one: Run, other: Run) -> Run {
    let (first, end) = (one.first.min(other.first), one.end().max(other.end()));
    Run { first, count: end - first, ..one }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::RegionId;

    fn step(doing: Doing, owner: u64, first: u32, moved: Option<u32>) -> Move {
        let run = Some(Run { region: RegionId(0), first, count: 2 });
        Move { doing, owner: Some(Owner::Interval(owner)), volume: 0, run, tag: Some(7), moved }
    }

    fn at(recorder: &Recorder, ns: u64, moves: &[Move]) {
        recorder.moved(moves.iter().copied(), recorder.made + std::time::Duration::from_nanos(ns));
    }

    #[test]
    fn operations_of_one_access_are_one_event() {
        let recorder = Recorder::new(8);
        recorder.start();
        let base = recorder.now_ns();
        let (read, write) = (Doing::Reading, Doing::Writing);
        at(&recorder, base + 10, &[step(read, 1, 0, None), step(read, 1, 2, None), step(write, 0, 8, None)]);
        at(&recorder, base + 20, &[step(read, 1, 2, Some(5)), step(read, 1, 4, None)]);
        at(&recorder, base + 30, &[step(read, 1, 4, Some(7)), step(read, 1, 0, Some(11)), step(read, 1, 6, None)]);
        at(&recorder, base + 40, &[step(read, 1, 6, Some(13)), step(write, 0, 8, Some(17))]);
        let events = recorder.take().events;
        let found: Vec<_> =
            events.iter().map(|e| (e.doing, e.begin_ns - base, e.end_ns - base, e.bytes, e.operations)).collect();
        assert_eq!(found, [(read, 10, 30, 23, 3), (read, 30, 40, 13, 1), (write, 10, 40, 17, 1)]);
        assert_eq!(events[0].run, Some(Run { region: RegionId(0), first: 0, count: 6 }));
    }

    #[test]
    fn what_is_in_flight_at_the_ends_of_a_recording_is_cut_there() {
        let recorder = Recorder::new(8);
        let begins = step(Doing::Reading, 1, 0, None);
        at(&recorder, 1, &[begins]);
        assert!(recorder.take().events.is_empty(), "it was off");
        recorder.start();
        let since = recorder.lock().since_ns;
        at(&recorder, since + 50, &[step(Doing::Reading, 1, 0, Some(4)), step(Doing::Reading, 2, 0, None)]);
        recorder.stop();
        let events = recorder.take().events;
        assert_eq!((events[0].begin_ns, events[0].end_ns, events[0].bytes), (since, since + 50, 4));
        assert_eq!((events[1].begin_ns, events[1].bytes, events.len()), (since + 50, 0, 2));
    }

    /// Three copies are given to a link at once, and one to the other way: they take their turns.
    #[test]
    fn copies_of_one_way_follow_each_other() {
        let recorder = Recorder::new(8);
        recorder.start();
        let base = recorder.now_ns();
        let (up, down) = (Doing::Uploading(DeviceId(0)), Doing::Downloading(DeviceId(0)));
        let begin = |doing, owner| step(doing, owner, 0, None);
        let end = |doing, owner, bytes| step(doing, owner, 0, Some(bytes));
        at(&recorder, base + 10, &[begin(up, 1), begin(up, 2), begin(up, 3), begin(down, 1), begin(up, 4)]);
        at(&recorder, base + 40, &[end(up, 1, 30), end(down, 1, 8)]);
        at(&recorder, base + 70, &[end(up, 2, 10), end(up, 3, 20)]);
        recorder.stop();
        let events = recorder.take().events;
        let found: Vec<_> =
            events.iter().map(|e| (e.doing, e.begin_ns - base, e.end_ns.min(base + 99) - base, e.bytes)).collect();
        let of_this_way = [(up, 10, 40, 30), (down, 10, 40, 8), (up, 40, 50, 10), (up, 50, 70, 20)];
        assert_eq!(found[..4], of_this_way);
        assert_eq!((found.len(), found[4].1, found[4].3), (5, 70, 0), "one was being copied at the end: {found:?}");
    }

    #[test]
    fn what_has_no_room_is_counted() {
        let recorder = Recorder::new(2);
        recorder.worked(1, 0);
        recorder.start();
        (0..5).for_each(|tag| recorder.worked(tag, recorder.now_ns()));
        let recording = recorder.take();
        assert_eq!((recording.events.len(), recording.left_out), (2, 3));
    }
}
