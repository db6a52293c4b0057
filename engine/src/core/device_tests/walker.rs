//! The one user, who walks the schedule: what he does with a lease, and when he commits.

use super::{Lease, PAGE, Stopped, World};
use crate::core::Command;
use crate::core::testing::stamps;
use crate::device::memory::MemoryStreams;
use crate::device::{After, Stream, Streams};
use crate::error::Error;
use crate::id::Tier;
use crate::io::{FrameMut, FrameRef};
use crate::plan::{Home, Interval};
use crate::schedule::Node;

impl World {
    /// One sweep: all nodes in their order.
    pub(super) fn sweep(&mut self, announce: bool) -> Result<(), Stopped> {
        let base = self.begin(announce)?;
        let plan = self.plan.clone();
        self.mark = None;
        for (node, what) in plan.schedule.nodes.iter().enumerate() {
            match what {
                Node::Access(_) => {
                    let index = plan.intervals.iter().position(|i| i.node as usize == node).expect("an interval each");
                    self.access(base, index)?;
                }
                Node::Commit => self.commit_at_mark(node)?,
                Node::Work { .. } => {}
            }
            for _ in 0..self.numbers.below(3) {
                self.step()?;
            }
            if self.course.tickets && self.numbers.below(2) == 0 {
                self.visit_by_ticket();
            }
            while let Some(at) = self.leases.iter().position(|l| plan.intervals[l.index].release as usize == node) {
                let lease = self.leases.remove(at);
                self.give_back(lease);
            }
        }
        assert!(self.leases.is_empty(), "every lease has its end in the schedule");
        self.core.command(Command::End);
        Ok(())
    }

    fn access(&mut self, base: u64, index: usize) -> Result<(), Stopped> {
        let (seq, interval) = (base + index as u64, self.plan.intervals[index]);
        if self.numbers.below(1000) < self.course.passed {
            self.core.command(Command::Release { seq, changed: false });
            self.ready.remove(&seq);
            return Ok(());
        }
        if !self.ready.contains_key(&seq) {
            self.core.command(Command::Reached { seq });
        }
        let answer = self.until(|world| world.ready.remove(&seq))?;
        let expected = self.expected(interval.run);
        match answer {
            Ok((offset, after)) => self.use_lease(seq, index, (offset, after), expected),
            Err(error) => {
                let is_undefined = interval.mode.reads() && expected.is_none();
                assert!(is_undefined && matches!(error, Error::Misuse { .. }), "{interval:?}: {error}");
                self.seen.undefined += 1;
                self.core.command(Command::Release { seq, changed: false });
            }
        }
        Ok(())
    }

    /// Checks and, at once or at its end, changes what a lease is for.
    fn use_lease(&mut self, seq: u64, index: usize, (offset, after): (u64, After), expected: Option<Vec<u64>>) {
        let interval = self.plan.intervals[index];
        let stream = Stream(1 + self.numbers.below(2));
        match interval.is_on_device() {
            true => self.streams(interval.tier).wait(stream, after).expect("a device in RAM"),
            false => assert_eq!(after, After::default(), "{interval:?}"),
        }
        self.seen.early += u64::from(after.upload > 0);
        self.seen.behind += u64::from(after.fences);
        let changed = interval.mode.writes() && self.numbers.below(1000) >= self.course.unchanged;
        let mut lease = Lease { seq, index, offset, stream, changed, is_written: false };
        if interval.mode.reads() {
            let expected = expected.unwrap_or_else(|| panic!("{interval:?} gives what was never written"));
            self.count_up(&interval);
            self.check(&lease, expected);
        }
        // Bytes that nobody has read count as read: a relay takes what is there.
        if changed && self.numbers.below(2) == 0 && !self.is_source(&interval) {
            self.write(&mut lease);
        }
        self.seen.on_device += u64::from(interval.is_on_device());
        self.seen.relayed += u64::from(interval.relay.is_some());
        self.seen.in_vram += u64::from(interval.is_on_device() && interval.home.tier() == interval.tier);
        self.seen.from_vram += u64::from(!interval.is_on_device() && matches!(interval.home, Home::Device { .. }));
        self.leases.push(lease);
    }

    /// Whether a relay takes bytes while the lease lasts: then they change after it.
    fn is_source(&self, interval: &Interval) -> bool {
        interval.kept_for.is_some_and(|relay| self.plan.intervals[relay as usize].node < interval.release)
    }

    fn streams(&self, tier: Tier) -> &MemoryStreams {
        let found = self.streams.iter().find(|(id, _)| Tier::Device(*id) == tier);
        &found.expect("a device of the test").1
    }

    fn check(&self, lease: &Lease, expected: Vec<u64>) {
        let interval = self.plan.intervals[lease.index];
        let what = format!("interval {} {interval:?}", lease.seq);
        let offset = lease.offset;
        let all = move |bytes: &[u8]| {
            for (page, stamp) in bytes.chunks_exact(PAGE as usize).zip(&expected) {
                stamps::check(page, *stamp, &what);
            }
        };
        if interval.is_on_device() {
            let work = move |vram: &mut [u8]| all(&vram[offset as usize..][..interval.bytes as usize]);
            self.streams(interval.tier).enqueue(lease.stream, Box::new(work));
        } else {
            all(self.arena.slice(&FrameRef::new(offset, interval.bytes as u32)));
        }
    }

    fn write(&mut self, lease: &mut Lease) {
        let interval = self.plan.intervals[lease.index];
        let stamps = self.restamp(interval.run);
        lease.is_written = true;
        let offset = lease.offset;
        let all = move |bytes: &mut [u8]| {
            for (page, stamp) in bytes.chunks_exact_mut(PAGE as usize).zip(&stamps) {
                stamps::fill(page, *stamp);
            }
        };
        if interval.is_on_device() {
            let work = move |vram: &mut [u8]| all(&mut vram[offset as usize..][..interval.bytes as usize]);
            self.streams(interval.tier).enqueue(lease.stream, Box::new(work));
        } else {
            all(self.arena.slice_mut(&mut FrameMut::new(offset, interval.bytes as u32)));
        }
    }

    fn give_back(&mut self, mut lease: Lease) {
        let interval = self.plan.intervals[lease.index];
        if lease.changed && !lease.is_written {
            self.write(&mut lease);
        }
        if lease.changed {
            self.count_down(&interval);
        }
        let Lease { seq, changed, stream, .. } = lease;
        if !interval.is_on_device() {
            return self.core.command(Command::Release { seq, changed });
        }
        let fence = self.streams(interval.tier).record(stream).expect("a device in RAM");
        self.core.command(Command::ReleaseBehind { seq, changed, fence });
    }

    fn commit_at_mark(&mut self, node: usize) -> Result<(), Stopped> {
        // Of marks without an access between them the first alone is one.
        let accesses = self.plan.intervals.iter().filter(|i| (i.node as usize) < node).count();
        if self.mark.replace(accesses) == Some(accesses) {
            return Ok(());
        }
        let writes = |l: &Lease| {
            let interval = self.plan.intervals[l.index];
            interval.mode.writes() && interval.run.region.0 != 1
        };
        let writes = self.leases.iter().any(writes) || self.visitor_writes();
        if !self.course.has_disk || writes || self.numbers.below(4) == 0 {
            return Ok(());
        }
        self.until(|world| (world.acknowledged == world.begun).then_some(()))?;
        self.commit();
        Ok(())
    }

    pub(super) fn commit(&mut self) {
        self.begun += 1;
        self.commits.push(self.stamps.clone());
        self.core.command(Command::Commit { note: (self.begun as u32).to_le_bytes().to_vec() });
    }
}
