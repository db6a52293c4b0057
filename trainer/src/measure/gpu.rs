//! A GPU that is measured, and what it says of itself.

use crate::error::Result;
use mt_kernels::cuda::{self, Queue, Search, link};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Calls of one measurement, at least and at most.
const CALLS_MIN: usize = 2;
const CALLS_MAX: usize = 10_000;

/// An open GPU.
pub struct Gpu {
    inner: cuda::Gpu,
}

/// What a GPU says of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Facts {
    /// Its memory.
    pub memory_bytes: u64,
    /// Of it what nobody has taken yet.
    pub free_bytes: u64,
    /// Versions of driver, NVRTC and cuBLASLt, each with its name.
    pub versions: Vec<String>,
    /// Its address on the PCI bus, as /sys/bus/pci/devices names it, where the driver says.
    pub address: Option<String>,
}

impl Gpu {
    /// Opens GPU `index` with its libraries. What is compiled for it is kept in `cache`, if given.
    ///
    /// # Errors
    /// `Gpu`: what is missing or too old.
    pub fn open(index: usize, cache: Option<PathBuf>) -> Result<Gpu> {
        Ok(Gpu { inner: cuda::Gpu::open(index, &Search::from_env(), cache)? })
    }

    /// Name of GPU `index`, if there is such a one and its driver. It is not opened.
    pub fn name_of(index: usize) -> Option<String> {
        cuda::Gpu::name_of(index).ok()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.inner.name()
    }

    /// What it says of itself.
    ///
    /// # Errors
    /// `Gpu`: a call of the driver fails.
    pub fn facts(&self) -> Result<Facts> {
        let (free, all) = self.inner.memory()?;
        Ok(Facts {
            memory_bytes: all as u64,
            free_bytes: free as u64,
            versions: self.inner.versions()?.map(|(name, version)| format!("{name} {version}")).to_vec(),
            address: link::address(&self.inner).ok(),
        })
    }

    pub(super) fn inner(&self) -> &cuda::Gpu {
        &self.inner
    }
}

/// Seconds of one of many calls that are put on a queue one behind the other, for about this time; one before them
/// finds libraries and caches cold, a few more say how many that is.
pub(super) fn seconds_each(
    queue: &Queue,
    time: Duration,
    mut call: impl FnMut(&Queue) -> std::result::Result<(), cuda::Error>,
) -> Result<f64> {
    let mut each = |count: usize| -> Result<f64> {
        let start = Instant::now();
        for _ in 0..count {
            call(queue)?;
        }
        queue.synchronize()?;
        Ok(start.elapsed().as_secs_f64() / count as f64)
    };
    each(1)?;
    let count = (time.as_secs_f64() / each(CALLS_MIN)?).ceil() as usize;
    each(count.clamp(CALLS_MIN, CALLS_MAX))
}
