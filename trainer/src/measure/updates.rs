//! The update of optimizer state on the processor, over more bytes than caches hold.

use crate::error::{Error, Result};
use mt_kernels::{Cpu, adamw, split};
use std::time::{Duration, Instant};

/// Elements of an update: 640 MiB with gradients and weights, more than the caches of large servers hold.
const ELEMENTS: usize = 32 << 20;
/// Elements at least, whatever RAM there is.
const ELEMENTS_MIN: usize = 4 << 20;
/// Bytes of an element: gradient, both planes, both moments, the weight.
const HELD_BYTES: u64 = 20;

/// Bytes that the update of an element reads and writes: gradient, both planes, both moments; both planes, both
/// moments, the weight in f32.
pub const ELEMENT_BYTES: f64 = 32.0;

/// State that is updated again and again.
pub struct Updates {
    cpu: Cpu,
    gradient: Vec<f32>,
    hi: Vec<u16>,
    lo: Vec<i16>,
    m: Vec<f32>,
    v: Vec<f32>,
    weight: Vec<f32>,
}

impl Updates {
    /// On so many threads. The first update, which finds memory untouched, is made here.
    ///
    /// # Errors
    /// `System`: threads that do not start.
    pub fn new(threads: u32) -> Result<Updates> {
        Updates::within(threads, u64::MAX)
    }

    /// The same in about so many bytes of RAM, if that is less; 80 MiB are taken in any case.
    ///
    /// # Errors
    /// `System`: threads that do not start.
    pub fn within(threads: u32, bytes: u64) -> Result<Updates> {
        let cpu = Cpu::new(threads as usize).map_err(|error| Error::threads(threads.into(), error))?;
        let n = (bytes / HELD_BYTES).clamp(ELEMENTS_MIN as u64, ELEMENTS as u64) as usize;
        let gradient: Vec<f32> = (0..n).map(|i| (i % 1_000) as f32 / 1_000.0 - 0.5).collect();
        let (mut hi, mut lo) = (vec![0; n], vec![0; n]);
        split::split(&cpu, &gradient, &mut hi, &mut lo).expect("small numbers have planes");
        let mut updates = Updates { cpu, gradient, hi, lo, m: vec![0.0; n], v: vec![0.0; n], weight: vec![0.0; n] };
        updates.update();
        Ok(updates)
    }

    /// Measures once, for about this time: elements a second.
    pub fn elements_per_s(&mut self, time: Duration) -> f64 {
        let (start, mut elements) = (Instant::now(), 0);
        while elements == 0 || start.elapsed() < time {
            self.update();
            elements += self.gradient.len();
        }
        elements as f64 / start.elapsed().as_secs_f64()
    }

    fn update(&mut self) {
        let step = adamw::Step::new(1e-6, (0.9, 0.95), 1e-8, 0.1, 10, 1.0);
        let Updates { cpu, gradient, hi, lo, m, v, weight } = self;
        adamw::update(cpu, &step, true, gradient, hi, lo, m, v, Some(weight)).expect("small numbers stay small");
    }
}
