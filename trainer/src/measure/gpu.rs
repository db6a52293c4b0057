//! A GPU that is measured, and what it says of itself.

use crate::error::Result;
use mt_kernels::cuda::{self, Search, link};

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
    /// Opens GPU `index` with its libraries.
    ///
    /// # Errors
    /// `Gpu`: what is missing or too old.
    pub fn open(index: usize) -> Result<Gpu> {
        Ok(Gpu { inner: cuda::Gpu::open(index, &Search::from_env(), None)? })
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
