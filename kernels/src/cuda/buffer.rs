//! Device memory: buffers that own it and views of it.
#![allow(unsafe_code)]

use super::device::{Gpu, Queue, driver};
use super::error::Error;
use cudarc::driver::result;
use std::marker::PhantomData;
use std::ops::Range;

mod sealed {
    pub trait Sealed {}
}

/// Types of elements: numbers, any bits of which are a value.
pub trait Element: Copy + Default + Send + Sync + sealed::Sealed + 'static {}

macro_rules! elements {
    ($($t:ty),*) => {
        $(impl sealed::Sealed for $t {}
        impl Element for $t {})*
    };
}
elements!(u8, u16, i16, u32, i32, u64, f32, f64);

/// `len` elements of device memory, readable. Work that was started with it may still run when the borrow ends.
#[derive(Clone, Copy)]
pub struct View<'a, T> {
    address: u64,
    len: usize,
    _memory: PhantomData<&'a [T]>,
}

/// As [`View`], readable and writable.
pub struct ViewMut<'a, T> {
    address: u64,
    len: usize,
    _memory: PhantomData<&'a mut [T]>,
}

impl<'a, T: Element> View<'a, T> {
    /// A view of memory that this crate does not own.
    ///
    /// # Safety
    /// `address` is a multiple of T's size and leads to `len` elements of memory that the device of the queues which
    /// it is used with can read, until all work that was given the view has ended; no other work changes them
    /// meanwhile.
    pub unsafe fn from_raw(address: u64, len: usize) -> View<'a, T> {
        View { address, len, _memory: PhantomData }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A part of it.
    ///
    /// # Panics
    /// If the range is not within the view.
    pub fn slice(&self, range: Range<usize>) -> View<'a, T> {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} of {}", self.len);
        let address = self.address + (range.start * size_of::<T>()) as u64;
        View { address, len: range.end - range.start, _memory: PhantomData }
    }

    /// The device address.
    pub fn address(&self) -> u64 {
        self.address
    }
}

impl<'a, T: Element> ViewMut<'a, T> {
    /// A view of memory that this crate does not own.
    ///
    /// # Safety
    /// As [`View::from_raw`]; the memory can be written too, and no other work reads or changes it meanwhile.
    pub unsafe fn from_raw(address: u64, len: usize) -> ViewMut<'a, T> {
        ViewMut { address, len, _memory: PhantomData }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The same elements for a while.
    pub fn reborrow(&mut self) -> ViewMut<'_, T> {
        ViewMut { address: self.address, len: self.len, _memory: PhantomData }
    }

    /// The same elements, to read.
    pub fn view(&self) -> View<'_, T> {
        View { address: self.address, len: self.len, _memory: PhantomData }
    }

    /// A part of it.
    ///
    /// # Panics
    /// If the range is not within the view.
    pub fn slice(self, range: Range<usize>) -> ViewMut<'a, T> {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} of {}", self.len);
        let address = self.address + (range.start * size_of::<T>()) as u64;
        ViewMut { address, len: range.end - range.start, _memory: PhantomData }
    }

    /// The device address.
    pub fn address(&self) -> u64 {
        self.address
    }
}

/// Device memory of its own. Dropping it waits for all work on the device.
pub struct Buffer<T> {
    gpu: Gpu,
    address: u64,
    len: usize,
    _elements: PhantomData<T>,
}

impl<T: Element> Buffer<T> {
    /// `len` elements of unspecified content, at a multiple of 256 bytes.
    ///
    /// # Errors
    /// Memory is short.
    pub fn new(gpu: &Gpu, len: usize) -> Result<Buffer<T>, Error> {
        gpu.bind()?;
        // SAFETY: the context is current; the driver refuses what it cannot give. It refuses 0 bytes too.
        let address = driver("allocating device memory", unsafe { result::malloc_sync(bytes::<T>(len).max(1)) })?;
        Ok(Buffer { gpu: gpu.clone(), address, len, _elements: PhantomData })
    }

    /// A copy of `from`.
    ///
    /// # Errors
    /// Memory is short; the copy fails.
    pub fn from_slice(queue: &Queue, from: &[T]) -> Result<Buffer<T>, Error> {
        let mut buffer = Buffer::new(queue.gpu(), from.len())?;
        buffer.upload(queue, from)?;
        Ok(buffer)
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// To read.
    pub fn view(&self) -> View<'_, T> {
        View { address: self.address, len: self.len, _memory: PhantomData }
    }

    /// To write.
    pub fn view_mut(&mut self) -> ViewMut<'_, T> {
        ViewMut { address: self.address, len: self.len, _memory: PhantomData }
    }

    /// Copies `from` here, after what is on the queue, and waits for it.
    ///
    /// # Errors
    /// The copy or work before it fails.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn upload(&mut self, queue: &Queue, from: &[T]) -> Result<(), Error> {
        assert_eq!(from.len(), self.len, "a buffer of one length with its source");
        self.gpu.bind()?;
        // SAFETY: the buffer has as many elements; the source is borrowed until the copy has ended, for which
        // `synchronize` waits.
        let copied = unsafe { result::memcpy_htod_async(self.address, from, queue.stream().cu_stream()) };
        driver("copying to the device", copied)?;
        queue.synchronize()
    }

    /// The elements, after what is on the queue.
    ///
    /// # Errors
    /// The copy or work before it fails.
    pub fn download(&self, queue: &Queue) -> Result<Vec<T>, Error> {
        let mut to = vec![T::default(); self.len];
        self.gpu.bind()?;
        // SAFETY: the target has as many elements, any bits of which are a value, and is ours until the copy has
        // ended, for which `synchronize` waits.
        let copied = unsafe { result::memcpy_dtoh_async(&mut to, self.address, queue.stream().cu_stream()) };
        // The copy may run although a later call fails: the target is freed only after the queue has ended.
        let ended = queue.synchronize();
        driver("copying from the device", copied).and(ended)?;
        Ok(to)
    }

    /// Sets every byte, after what is on the queue.
    ///
    /// # Errors
    /// The call fails.
    pub fn fill(&mut self, queue: &Queue, byte: u8) -> Result<(), Error> {
        self.gpu.bind()?;
        // SAFETY: the buffer has as many bytes, any of which is part of a value.
        let filled =
            unsafe { result::memset_d8_async(self.address, byte, bytes::<T>(self.len), queue.stream().cu_stream()) };
        driver("filling device memory", filled)
    }
}

fn bytes<T>(len: usize) -> usize {
    len.checked_mul(size_of::<T>()).expect("a size in bytes fits usize")
}

impl<T> Drop for Buffer<T> {
    fn drop(&mut self) {
        // Errors of work before show elsewhere; the memory is then lost with the context.
        if self.gpu.synchronize().is_ok() {
            // SAFETY: allocated by `new` and freed once; no work that could use it is left.
            let _ = unsafe { result::free_sync(self.address) };
        }
    }
}
