//! The link between host and device, measured: copies one way or both, in pieces, on one stream or several, from
//! memory of either kind.
//!
//! Terms: *piece*, the bytes of one copy; *pinned*, host memory that the driver allocated; *registered*, memory of
//! somebody else that the driver was told of. Both are copied without a stop in between; other memory the driver copies
//! to memory of its own first.
//!
//! Invariant: nothing returns while a copy may still use memory that it borrowed.
#![allow(unsafe_code)]

use super::buffer::Buffer;
use super::device::{Gpu, driver};
use super::error::Error;
use cudarc::driver::sys::{self, CUdevice_attribute};
use cudarc::driver::{CudaStream, result};
use std::ffi::c_void;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// For every context, not for the current one alone.
const PORTABLE: u32 = 1;

/// Host memory that the driver allocated.
pub struct Pinned {
    gpu: Gpu,
    start: *mut u8,
    len: usize,
}

impl Pinned {
    /// `len` bytes, all zero.
    ///
    /// # Errors
    /// The driver has none left.
    pub fn new(gpu: &Gpu, len: usize) -> Result<Pinned, Error> {
        gpu.bind()?;
        // SAFETY: the context is current; the driver refuses what it cannot give.
        let start = driver("allocating pinned memory", unsafe { result::malloc_host(len.max(1), PORTABLE) })?;
        let start = start.cast::<u8>();
        // SAFETY: the allocation has `len` bytes, and nobody else knows of it.
        unsafe { start.write_bytes(0, len) };
        Ok(Pinned { gpu: gpu.clone(), start, len })
    }

    /// Its bytes.
    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: `start` has `len` bytes, which `new` initialised; they are this value's, which is borrowed.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // Memory whose freeing fails is lost with the context.
        if self.gpu.synchronize().is_ok() {
            // SAFETY: it came from `malloc_host`, is freed once, and no copy is under way.
            let _ = unsafe { result::free_host(self.start.cast()) };
        }
    }
}

/// Host memory that the driver was told of, for as long as this lives. Telling touches no byte of it, and copies name
/// their bytes themselves, so this needs no hold on the memory: if that goes first, its registration is of no use.
pub struct Registered {
    gpu: Gpu,
    address: usize,
}

impl Registered {
    /// Registers `len` bytes from an address on.
    ///
    /// # Errors
    /// The driver refuses it, as it does what is not mapped.
    pub fn new(gpu: &Gpu, address: usize, len: usize) -> Result<Registered, Error> {
        gpu.bind()?;
        let start = std::ptr::with_exposed_provenance_mut::<c_void>(address);
        // SAFETY: the driver looks the pages up and refuses what is not mapped; it reads and writes none of them.
        let registered = unsafe { sys::cuMemHostRegister_v2(start, len, PORTABLE) };
        driver("registering memory", registered.result())?;
        Ok(Registered { gpu: gpu.clone(), address })
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // What cannot be taken back stays registered until the process ends, which harms nobody but the next attempt.
        if self.gpu.synchronize().is_ok() {
            let start = std::ptr::with_exposed_provenance_mut::<c_void>(self.address);
            // SAFETY: `new` registered it, and no copy is under way.
            let _ = unsafe { sys::cuMemHostUnregister(start) };
        }
    }
}

/// Pieces that go up and come down one at a time, as they come.
pub struct Lift {
    gpu: Gpu,
    stream: Arc<CudaStream>,
    device: Buffer<u8>,
}

impl Lift {
    /// For pieces of up to `piece` bytes.
    ///
    /// # Errors
    /// Memory is short.
    pub fn new(gpu: &Gpu, piece: usize) -> Result<Lift, Error> {
        gpu.bind()?;
        let stream = driver("making a stream", gpu.context().new_stream())?;
        Ok(Lift { gpu: gpu.clone(), stream, device: Buffer::new(gpu, piece)? })
    }

    /// Copies a piece up and waits for it.
    ///
    /// # Errors
    /// The copy fails.
    ///
    /// # Panics
    /// If it is larger than was said.
    pub fn up(&mut self, from: &[u8]) -> Result<(), Error> {
        assert!(from.len() <= self.device.len(), "a piece of {} bytes", from.len());
        self.gpu.bind()?;
        let to = self.device.view_mut().address();
        // SAFETY: the buffer has the bytes; source and target are borrowed until the copy was waited for below.
        let copied = unsafe { result::memcpy_htod_async(to, from, self.stream.cu_stream()) };
        let ended = driver("waiting for a stream", self.stream.synchronize());
        driver("copying to the device", copied).and(ended)
    }

    /// Copies a piece down and waits for it.
    ///
    /// # Errors
    /// The copy fails.
    ///
    /// # Panics
    /// If it is larger than was said.
    pub fn down(&mut self, to: &mut [u8]) -> Result<(), Error> {
        assert!(to.len() <= self.device.len(), "a piece of {} bytes", to.len());
        self.gpu.bind()?;
        let from = self.device.view().address();
        // SAFETY: as in `up`; any bits are a byte's value.
        let copied = unsafe { result::memcpy_dtoh_async(to, from, self.stream.cu_stream()) };
        let ended = driver("waiting for a stream", self.stream.synchronize());
        driver("copying from the device", copied).and(ended)
    }
}

/// Which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From host to device.
    Up,
    /// From device to host.
    Down,
    /// Both at once, each with half of the memory.
    Both,
}

/// Copies to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copies {
    /// Which way.
    pub way: Way,
    /// Bytes of a piece.
    pub piece: usize,
    /// Streams for each way.
    pub streams: usize,
    /// Bytes for each way.
    pub total: usize,
}

/// Makes copies between `host` and a buffer of at least its size; the time from the first call to the end of the last
/// copy.
///
/// # Errors
/// The driver refuses a copy or a stream.
///
/// # Panics
/// If there is no room for a piece each way, or no stream.
pub fn copy(gpu: &Gpu, host: &mut [u8], device: &mut Buffer<u8>, copies: Copies) -> Result<Duration, Error> {
    let Copies { way, piece, streams, total } = copies;
    assert!(device.len() >= host.len() && streams > 0 && piece > 0, "{copies:?} within {} bytes", host.len());
    gpu.bind()?;
    let half = if way == Way::Both { host.len() / 2 } else { host.len() };
    assert!(half >= piece, "{copies:?} within {} bytes", host.len());
    let stream = |_| driver("making a stream", gpu.context().new_stream());
    let count = if way == Way::Both { 2 * streams } else { streams };
    let all: Vec<Arc<CudaStream>> = (0..count).map(stream).collect::<Result<_, Error>>()?;
    let (up, down) = match way {
        Way::Up => (&all[..], &all[..0]),
        Way::Down => (&all[..0], &all[..]),
        Way::Both => all.split_at(streams),
    };
    let base = device.view_mut().address();
    let start = Instant::now();
    let mut submitted = Ok(());
    for number in 0..total.div_ceil(piece) {
        let offset = number % (half / piece) * piece;
        if let Some(stream) = up.get(number % streams) {
            // SAFETY: source and target have the bytes; both are borrowed until every stream was waited for below.
            let copied = unsafe {
                result::memcpy_htod_async(base + offset as u64, &host[offset..offset + piece], stream.cu_stream())
            };
            submitted = submitted.and(driver("copying to the device", copied));
        }
        if let Some(stream) = down.get(number % streams) {
            let offset = if way == Way::Both { half + offset } else { offset };
            let to = &mut host[offset..offset + piece];
            // SAFETY: as above; any bits are a byte's value; of two copies both ways neither touches the other's half.
            let copied = unsafe { result::memcpy_dtoh_async(to, base + offset as u64, stream.cu_stream()) };
            submitted = submitted.and(driver("copying from the device", copied));
        }
    }
    let ended = gpu.synchronize();
    let time = start.elapsed();
    submitted.and(ended).map(|()| time)
}

/// The device's address on the PCI bus, as /sys/bus/pci/devices names it.
///
/// # Errors
/// The driver does not say.
pub fn address(gpu: &Gpu) -> Result<String, Error> {
    let part = |attribute| gpu.attribute(attribute);
    let domain = part(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID)?;
    let bus = part(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)?;
    let device = part(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)?;
    Ok(format!("{domain:04x}:{bus:02x}:{device:02x}.0"))
}
