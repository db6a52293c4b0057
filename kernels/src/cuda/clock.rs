//! When work on a queue begins and ends, by the device's own clock: events that it stamps when it comes to them.
//!
//! Terms: a *lap* is a piece of work between two marks on a queue. Its begin is stamped when all that was put on the
//! queue before it is done, waits for events included, so that waiting is no part of it; put the mark directly before
//! the first kernel. Gaps within it, while the queue waits for its next kernel, are. Times count from the *start*, a
//! point that the host knows as well.
//!
//! Invariants: all events are made at once, nothing is allocated later; laps do not overlap, and are read in order.

use super::device::{Gpu, Queue, driver};
use super::error::Error;
use cudarc::driver::CudaEvent;
use cudarc::driver::sys::CUevent_flags;
use std::time::Instant;

/// Marks for a number of laps.
pub struct Clock {
    start: CudaEvent,
    laps: Vec<[CudaEvent; 2]>,
    /// Laps since the start, and of them those that were read.
    ended: usize,
    read: usize,
    /// When the last lap that was read ended.
    until_ns: u64,
}

impl Clock {
    /// With room for so many laps between one start and the next.
    ///
    /// # Errors
    /// A call of the driver fails.
    pub fn new(gpu: &Gpu, laps: usize) -> Result<Clock, Error> {
        let event = || {
            let flags = Some(CUevent_flags::CU_EVENT_DEFAULT);
            driver("making an event", gpu.context().new_event(flags))
        };
        let laps = (0..laps).map(|_| Ok([event()?, event()?])).collect::<Result<_, Error>>()?;
        Ok(Clock { start: event()?, laps, ended: 0, read: 0, until_ns: 0 })
    }

    /// Times count from now on; laps that were not read are forgotten. Waits for the queue, and gives the host's time
    /// of the start, at most some ten microseconds off.
    ///
    /// # Errors
    /// Work on the queue has failed.
    pub fn start(&mut self, queue: &Queue) -> Result<Instant, Error> {
        queue.synchronize()?;
        driver("recording an event", self.start.record(queue.stream()))?;
        // An idle device comes to it at once.
        let at = Instant::now();
        driver("waiting for an event", self.start.synchronize())?;
        (self.ended, self.read, self.until_ns) = (0, 0, 0);
        Ok(at)
    }

    /// A lap begins here.
    ///
    /// # Errors
    /// A call of the driver fails.
    ///
    /// # Panics
    /// If there is no room for another.
    pub fn begin(&self, queue: &Queue) -> Result<(), Error> {
        driver("recording an event", self.laps[self.ended][0].record(queue.stream()))
    }

    /// The lap that has begun ends here.
    ///
    /// # Errors
    /// A call of the driver fails.
    pub fn end(&mut self, queue: &Queue) -> Result<(), Error> {
        driver("recording an event", self.laps[self.ended][1].record(queue.stream()))?;
        self.ended += 1;
        Ok(())
    }

    /// Begin and end of the next lap in nanoseconds since the start; None if it has not ended, or there is none.
    ///
    /// # Errors
    /// Work on the queue has failed.
    pub fn read(&mut self) -> Result<Option<(u64, u64)>, Error> {
        if self.read == self.ended {
            return Ok(None);
        }
        let [begin, end] = &self.laps[self.read];
        if !driver("looking at an event", end.try_is_complete())? {
            return Ok(None);
        }
        let since = |event: &CudaEvent| driver("the time of an event", self.start.elapsed_ms(event)).map(nanoseconds);
        let begin = since(begin)?.max(self.until_ns);
        self.until_ns = since(end)?.max(begin);
        self.read += 1;
        Ok(Some((begin, self.until_ns)))
    }
}

/// The driver tells times as f32: half a microsecond at best, four in a minute.
fn nanoseconds(ms: f32) -> u64 {
    (f64::from(ms).max(0.0) * 1e6) as u64
}
