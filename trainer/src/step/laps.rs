//! Where a step's time goes on a GPU: what its stream computes, by phase, and what it waits for between instructions.
//!
//! The device stamps begin and end of every instruction's work. What lies between two instructions is told by what the
//! thread that gives it work did meanwhile. Before it put the next instruction on the stream: it worked on instructions
//! of the processor, or waited for the next one's pages. After that: the stream waited for its bytes. What is left is
//! neither, such as taking the batch and launching.
//!
//! What it is not: a measure of kernels. An instruction counts as computed from its first kernel to its last.
//!
//! Times are nanoseconds since the sweep's start, on the device and on the host.

use crate::schedule::Phase;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// A device that has nothing else to do takes up to this long to come to what it is given: it waits for nothing then.
const LAUNCH_NS: u64 = 10_000;

/// Where a step's time went on a GPU. What is missing to its wall time went to taking its data, beginning and ending
/// it, and launching.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct GpuTimes {
    /// Computing the embedding and the layers forward.
    pub gpu_forward_seconds: f64,
    /// Computing the head in both directions, and the loss.
    pub gpu_loss_seconds: f64,
    /// Computing backward, with what is computed again.
    pub gpu_backward_seconds: f64,
    /// Updating the state.
    pub gpu_update_seconds: f64,
    /// Waiting for bytes: for the link, and for the disk before it.
    pub gpu_link_wait_seconds: f64,
    /// Waiting for the processor's instructions: updates, most of it.
    pub gpu_processor_wait_seconds: f64,
}

impl GpuTimes {
    /// In which the stream had work.
    pub fn busy(&self) -> f64 {
        self.gpu_forward_seconds + self.gpu_loss_seconds + self.gpu_backward_seconds + self.gpu_update_seconds
    }

    /// All that is told.
    pub fn sum(&self) -> f64 {
        self.busy() + self.gpu_link_wait_seconds + self.gpu_processor_wait_seconds
    }

    /// Adds another step's.
    pub fn add(&mut self, other: &GpuTimes) {
        self.gpu_forward_seconds += other.gpu_forward_seconds;
        self.gpu_loss_seconds += other.gpu_loss_seconds;
        self.gpu_backward_seconds += other.gpu_backward_seconds;
        self.gpu_update_seconds += other.gpu_update_seconds;
        self.gpu_link_wait_seconds += other.gpu_link_wait_seconds;
        self.gpu_processor_wait_seconds += other.gpu_processor_wait_seconds;
    }
}

/// An instruction that was put on the stream, as the host has it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Put {
    /// Its number in the program.
    pub(super) index: usize,
    pub(super) phase: Phase,
    /// When the host had its leases and put it on the stream.
    pub(super) at_ns: u64,
    /// How long it had waited for these leases.
    pub(super) waited_ns: u64,
    /// From the first of the processor's instructions before it to the end of the last, if there were any.
    pub(super) beside: Option<(u64, u64)>,
}

/// Adds up a sweep's instructions on a GPU, in their order.
#[derive(Debug)]
pub(super) struct Laps {
    /// Put on the stream and not known to have ended.
    put: VecDeque<Put>,
    /// The processor's instructions since the last that was put.
    beside: Option<(u64, u64)>,
    /// When the last one that has ended did.
    until_ns: u64,
    times: GpuTimes,
}

impl Laps {
    /// With room for so many instructions.
    pub(super) fn new(room: usize) -> Laps {
        Laps { put: VecDeque::with_capacity(room), beside: None, until_ns: 0, times: GpuTimes::default() }
    }

    /// A sweep starts.
    pub(super) fn start(&mut self) {
        self.put.clear();
        (self.beside, self.until_ns, self.times) = (None, 0, GpuTimes::default());
    }

    /// The processor had an instruction.
    pub(super) fn beside(&mut self, (begin_ns, end_ns): (u64, u64)) {
        let begin_ns = self.beside.map_or(begin_ns, |(first, _)| first);
        self.beside = Some((begin_ns, end_ns));
    }

    /// An instruction was put on the stream.
    pub(super) fn put(&mut self, index: usize, phase: Phase, at_ns: u64, waited_ns: u64) {
        let beside = self.beside.take();
        self.put.push_back(Put { index, phase, at_ns, waited_ns, beside });
    }

    /// The oldest that was put computed from `begin_ns` to `end_ns`; its number.
    ///
    /// # Panics
    /// If there is none.
    pub(super) fn ended(&mut self, (begin_ns, end_ns): (u64, u64)) -> usize {
        let put = self.put.pop_front().expect("what has ended was put on the stream");
        let given_ns = put.at_ns.clamp(self.until_ns, begin_ns);
        let (beside_ns, waited_ns) = gap(self.until_ns, given_ns, put.beside, put.waited_ns);
        let in_stream_ns = if begin_ns - given_ns > LAUNCH_NS { begin_ns - given_ns } else { 0 };
        self.times.gpu_processor_wait_seconds += seconds(beside_ns);
        self.times.gpu_link_wait_seconds += seconds(waited_ns + in_stream_ns);
        *(match put.phase {
            Phase::Forward => &mut self.times.gpu_forward_seconds,
            Phase::Loss => &mut self.times.gpu_loss_seconds,
            Phase::Backward => &mut self.times.gpu_backward_seconds,
            Phase::Update => &mut self.times.gpu_update_seconds,
        }) += seconds(end_ns - begin_ns);
        self.until_ns = end_ns;
        put.index
    }

    /// The sweep is over, at `now_ns`: where its time went.
    pub(super) fn finish(&mut self, now_ns: u64) -> GpuTimes {
        let (beside_ns, _) = gap(self.until_ns, now_ns.max(self.until_ns), self.beside, 0);
        self.times.gpu_processor_wait_seconds += seconds(beside_ns);
        self.times
    }
}

/// Of the time from `begin` until the host gave the next work: that of the processor's instructions, and that in which
/// the host then waited for leases, at the end of it.
fn gap(begin: u64, given: u64, beside: Option<(u64, u64)>, waited_ns: u64) -> (u64, u64) {
    let beside_ns = beside.map_or(0, |(first, last)| last.min(given).saturating_sub(first.max(begin)));
    (beside_ns, waited_ns.min(given - begin - beside_ns))
}

fn seconds(ns: u64) -> f64 {
    ns as f64 * 1e-9
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1_000;

    /// What is told, in whole microseconds: forward, update, link, processor.
    fn told(times: GpuTimes) -> [u64; 4] {
        let us = |seconds: f64| (seconds * 1e6).round() as u64;
        [
            us(times.gpu_forward_seconds),
            us(times.gpu_update_seconds),
            us(times.gpu_link_wait_seconds),
            us(times.gpu_processor_wait_seconds),
        ]
    }

    #[test]
    fn a_stream_that_is_ahead_of_nothing_is_busy() {
        let mut laps = Laps::new(3);
        laps.start();
        // Given long before their turn; beside them the processor updates and the host waits for pages.
        laps.put(0, Phase::Forward, 10 * US, 0);
        laps.beside((20 * US, 90 * US));
        laps.put(1, Phase::Forward, 150 * US, 50 * US);
        laps.put(2, Phase::Update, 160 * US, 0);
        assert_eq!(laps.ended((12 * US, 200 * US)), 0);
        assert_eq!(laps.ended((201 * US, 300 * US)), 1);
        assert_eq!(laps.ended((302 * US, 350 * US)), 2);
        assert_eq!(told(laps.finish(360 * US)), [188 + 99, 48, 0, 0]);
    }

    #[test]
    fn gaps_are_told_by_what_the_host_did_and_by_what_the_stream_waited_for() {
        let mut laps = Laps::new(3);
        laps.start();
        laps.put(0, Phase::Forward, 0, 0);
        assert_eq!(laps.ended((0, 100 * US)), 0);
        // The processor has two instructions, of which the stream sees the end; then the host waits for 30 us, and
        // takes 5 us to put the next one on the stream, which waits another 40 us for its bytes.
        laps.beside((50 * US, 110 * US));
        laps.beside((112 * US, 165 * US));
        laps.put(1, Phase::Forward, 200 * US, 30 * US);
        assert_eq!(laps.ended((240 * US, 300 * US)), 1);
        // A wait that had mostly passed while the device still computed.
        laps.put(2, Phase::Update, 320 * US, 500 * US);
        assert_eq!(laps.ended((325 * US, 330 * US)), 2);
        // Updates at the end.
        laps.beside((310 * US, 400 * US));
        assert_eq!(told(laps.finish(420 * US)), [160, 5, 30 + 40 + 20, 65 + 70]);
    }

    #[test]
    fn everything_told_fits_the_sweep_whatever_the_clocks_say() {
        let mut numbers = 1u64;
        let mut below = |n: u64| {
            numbers = numbers.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (numbers >> 33) % n
        };
        for _ in 0..200 {
            let mut laps = Laps::new(8);
            laps.start();
            let (mut host, mut device) = (0, 0);
            for index in 0..8 {
                if below(2) == 0 {
                    let begin = host;
                    host += below(50_000);
                    laps.beside((begin, host));
                }
                let waited = below(40_000);
                host += waited + below(5_000);
                laps.put(index, Phase::Backward, host, waited);
                // The device's clock may be behind the host's.
                let begin = device + below(30_000);
                device = begin + below(60_000);
                assert_eq!(laps.ended((begin, device)), index);
            }
            let end = device.max(host);
            let times = laps.finish(end);
            assert!(times.sum() <= seconds(end) * (1.0 + 1e-9), "{times:?} in {end} ns");
            assert!(times.busy() > 0.0 && times.gpu_backward_seconds == times.busy());
        }
    }
}
