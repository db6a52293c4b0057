//! A run's GPU, open: what of its VRAM this process can have, and what it has. The driver tells what is free of a
//! device and not whose the rest is, so what others take meanwhile counts as ours.

use super::observer::{Event, Observer, VramUse};
use super::size;
use crate::error::Result;
use crate::settings::Settings;
use crate::vram::CONTEXT_BYTES;
use mt_engine::DeviceId;
use mt_kernels::cuda::{Gpu, Search, sources};
use std::path::PathBuf;

/// VRAM that `--vram auto` leaves to others.
const MARGIN: u64 = 256 << 20;

/// A GPU with its context, and with all kernels loaded.
pub(super) struct OpenGpu {
    pub gpu: Gpu,
    /// Bytes of VRAM that this process can have, with what the context has taken.
    pub vram_bytes: u64,
    /// Bytes that context, libraries and kernels have taken.
    pub context_bytes: u64,
    /// Bytes that were free then.
    free_bytes: u64,
}

impl OpenGpu {
    /// Opens it and says what it is. `cache`: the folder that keeps what is compiled.
    ///
    /// # Errors
    /// The device, its driver or a library is missing; a call fails.
    pub fn open(device: DeviceId, cache: Option<PathBuf>, observer: &mut dyn Observer) -> Result<OpenGpu> {
        let gpu = Gpu::open(usize::from(device.0), &Search::from_env(), cache)?;
        let versions = gpu.versions()?.map(|(name, version)| format!("{name} {version}")).join(", ");
        observer.event(&Event::Notice(&format!("GPU {}: {}, {versions}", device.0, gpu.name())));
        gpu.prepare(&sources())?;
        let (free, total) = gpu.memory()?;
        let (free_bytes, used) = (free as u64, (total - free) as u64);
        // What is in use is ours if nobody else is there. Who is takes more than a context; then ours is assumed.
        let (context_bytes, how) = match used <= CONTEXT_BYTES {
            true => (used, "measured"),
            false => (CONTEXT_BYTES, "assumed, since more than that is in use"),
        };
        let context = size::human(context_bytes);
        observer.event(&Event::Notice(&format!("VRAM: context and libraries take {context} ({how})")));
        let vram_bytes = (free_bytes + context_bytes).saturating_sub(MARGIN);
        Ok(OpenGpu { gpu, vram_bytes, context_bytes, free_bytes })
    }

    /// What is in use now, of what the settings allow.
    ///
    /// # Errors
    /// The driver does not answer.
    pub fn in_use(&self, settings: &Settings) -> Result<VramUse> {
        let taken = self.free_bytes.saturating_sub(self.gpu.memory()?.0 as u64);
        let budget = settings.vram.value().unwrap_or(self.vram_bytes);
        Ok(VramUse { budget, used: self.context_bytes + taken })
    }
}
