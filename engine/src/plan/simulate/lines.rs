//! Lines: each way of each link with the transfers that wait for it, served in the order in which they came.

use super::super::outcome::Station;
use super::super::predict::SECOND;
use super::super::rates::{Pace, Rates};
use crate::id::DeviceId;
use std::collections::VecDeque;

/// What a transfer is for; intervals are numbered through all sweeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Job {
    /// Bytes come to an interval.
    Fetch(u32),
    /// Bytes leave an interval.
    Leave(u32),
    /// A commit writes the run of this number in its list, if it lives in VRAM through a span of the staging ring.
    Flush { item: u32, span: Option<u32> },
}

/// A transfer: bytes times `SECOND` still to move.
struct Waiting {
    left: u128,
    job: Job,
    bytes: u64,
    begin: Option<u128>,
}

/// A transfer that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ended {
    pub station: Station,
    pub job: Job,
    pub bytes: u64,
    pub begin: u128,
}

struct Line {
    station: Station,
    queue: VecDeque<Waiting>,
    rate: u64,
    busy_ns: u128,
}

/// All lines: disk reads, disk writes, then up and down of each device.
pub(super) struct Lines<'a> {
    rates: &'a Rates,
    devices: &'a [DeviceId],
    lines: Vec<Line>,
}

impl<'a> Lines<'a> {
    pub(super) fn new(rates: &'a Rates, devices: &'a [DeviceId]) -> Lines<'a> {
        let of_devices = devices.iter().flat_map(|&id| [Station::Upload(id), Station::Download(id)]);
        let stations = [Station::DiskRead, Station::DiskWrite].into_iter().chain(of_devices);
        let line = |station| Line { station, queue: VecDeque::new(), rate: 0, busy_ns: 0 };
        Lines { rates, devices, lines: stations.map(line).collect() }
    }

    fn at(&self, station: Station) -> usize {
        self.lines.iter().position(|line| line.station == station).expect("every way of every link has its line")
    }

    /// Adds a transfer behind the others.
    pub(super) fn push(&mut self, station: Station, job: Job, bytes: u64) {
        let counted = match station {
            Station::Upload(device) => self.rates.link(device).up_bytes(bytes),
            Station::Download(device) => self.rates.link(device).down_bytes(bytes),
            _ => bytes,
        };
        let at = self.at(station);
        self.lines[at].queue.push_back(Waiting { left: u128::from(counted) * SECOND, job, bytes, begin: None });
    }

    /// Sets every line's rate for what is under way, and returns the speed of the host's computation.
    pub(super) fn set_pace(&mut self, works: bool) -> u64 {
        let is_used = |lines: &[Line], line: usize| !lines[line].queue.is_empty();
        let (reads, writes) = (is_used(&self.lines, 0), is_used(&self.lines, 1));
        let Pace { read, write, speed } = self.rates.pace(works, reads, writes);
        (self.lines[0].rate, self.lines[1].rate) = (read, write);
        for (device, lines) in self.devices.iter().zip(self.lines[2..].chunks_exact_mut(2)) {
            (lines[0].rate, lines[1].rate) = self.rates.link(*device).pace(is_used(lines, 0), is_used(lines, 1), works);
        }
        speed
    }

    /// When the first transfer ends at these rates.
    pub(super) fn next_end(&self, now: u128) -> Option<u128> {
        let ends = self
            .lines
            .iter()
            .filter_map(|line| line.queue.front().map(|transfer| now + transfer.left.div_ceil(u128::from(line.rate))));
        ends.min()
    }

    /// Moves bytes for some time from `now` on.
    pub(super) fn pass(&mut self, now: u128, ns: u128) {
        for line in &mut self.lines {
            if let Some(head) = line.queue.front_mut() {
                head.begin.get_or_insert(now);
                head.left = head.left.saturating_sub(ns * u128::from(line.rate));
                line.busy_ns += ns;
            }
        }
    }

    /// Takes the transfer at the head of the n-th line, if it has moved all its bytes.
    pub(super) fn take_ended(&mut self, line: usize, now: u128) -> Option<Ended> {
        let Line { station, queue, .. } = &mut self.lines[line];
        if queue.front()?.left > 0 {
            return None;
        }
        let Waiting { job, bytes, begin, .. } = queue.pop_front()?;
        Some(Ended { station: *station, job, bytes, begin: begin.unwrap_or(now) })
    }

    /// How many lines there are.
    pub(super) fn len(&self) -> usize {
        self.lines.len()
    }

    /// The first line that moves something.
    pub(super) fn moving(&self) -> Option<Station> {
        self.lines.iter().find(|line| !line.queue.is_empty()).map(|line| line.station)
    }

    /// Nanoseconds for which each line has been in use.
    pub(super) fn busy(&self) -> impl Iterator<Item = (Station, u128)> + '_ {
        self.lines.iter().map(|line| (line.station, line.busy_ns))
    }

    /// Starts counting from 0 again.
    pub(super) fn reset_busy(&mut self) {
        self.lines.iter_mut().for_each(|line| line.busy_ns = 0);
    }
}
