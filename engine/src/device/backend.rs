//! Opens the devices that the configuration names.

use super::cuda::{Cuda, Pinned};
use super::memory::{MemoryDevice, Settings};
use super::{Device, Streams};
use crate::arena::Arena;
use crate::config::{DeviceBackend, DeviceConfig};
use crate::error::Error;
use crate::id::DeviceId;
use crate::io::Waker;
use std::sync::Arc;

/// A device, ready for use.
pub(crate) struct Opened {
    pub(crate) id: DeviceId,
    /// Bytes of the allocation.
    pub(crate) bytes: u64,
    pub(crate) device: Box<dyn Device + Send>,
    pub(crate) streams: Arc<dyn Streams>,
}

/// Opens devices, with the arena at hand for their copies. `waker` wakes the reactor.
///
/// # Errors
/// `NoDevice`: a device, or what it needs, is not there; `Device`: one refuses; `Config`, `Io`.
pub(crate) fn open(configs: &[DeviceConfig], arena: &Arc<Arena>, waker: &Waker) -> Result<Vec<Opened>, Error> {
    let is_twice = |n: usize| configs[..n].iter().any(|other| other.id == configs[n].id);
    if let Some(n) = (0..configs.len()).find(|&n| is_twice(n)) {
        return Err(Error::Config { what: format!("devices: device {} is named twice", configs[n].id.0) });
    }
    if let Some(config) = configs.iter().find(|c| c.bytes == 0 || !c.bytes.is_multiple_of(4096)) {
        let what = format!("devices: bytes: expected a multiple of 4096, found {}", config.bytes);
        return Err(Error::Config { what });
    }
    let mut pinned: Option<Arc<Pinned>> = None;
    let one = |config: &DeviceConfig| {
        let DeviceConfig { id, bytes, backend } = *config;
        let (device, streams): (Box<dyn Device + Send>, Arc<dyn Streams>) = match backend {
            DeviceBackend::Cuda => {
                let cuda = Cuda::open(id, bytes, arena, &mut pinned, waker)?;
                let streams = cuda.streams();
                (Box::new(cuda), streams)
            }
            DeviceBackend::Memory => {
                let settings = Settings::new(u64::from(id.0));
                let memory = MemoryDevice::new(id, bytes, arena.clone(), settings, Some(waker.clone()))?;
                let streams = Arc::new(memory.streams());
                (Box::new(memory), streams)
            }
        };
        Ok(Opened { id, bytes, device, streams })
    };
    configs.iter().map(one).collect()
}
