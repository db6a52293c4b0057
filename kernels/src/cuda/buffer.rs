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

    /// Of nothing.
    pub fn empty() -> View<'a, T> {
        View { address: 0, len: 0, _memory: PhantomData }
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

    /// Copies the elements to the host, after what is on the queue, and waits for it.
    ///
    /// # Errors
    /// The copy or work before it fails.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn download(&self, queue: &Queue, to: &mut [T]) -> Result<(), Error> {
        assert_eq!(to.len(), self.len, "a view of one length with its target");
        queue.gpu().bind()?;
        // SAFETY: the target has as many elements, any bits of which are a value, and is borrowed until the copy has
        // ended, for which `synchronize` waits.
        let copied = unsafe { result::memcpy_dtoh_async(to, self.address, queue.stream().cu_stream()) };
        // The copy may run although a later call fails: the target is the caller's again only after the queue has
        // ended.
        let ended = queue.synchronize();
        driver("copying from the device", copied).and(ended)
    }
}

impl<'a> View<'a, u8> {
    /// The same bytes as elements.
    ///
    /// # Panics
    /// If they do not begin or end where an element does.
    pub fn cast<T: Element>(self) -> View<'a, T> {
        View { address: self.address, len: elements_of::<T>(self.address, self.len), _memory: PhantomData }
    }
}

impl<'a> ViewMut<'a, u8> {
    /// The same bytes as elements.
    ///
    /// # Panics
    /// If they do not begin or end where an element does.
    pub fn cast<T: Element>(self) -> ViewMut<'a, T> {
        ViewMut { address: self.address, len: elements_of::<T>(self.address, self.len), _memory: PhantomData }
    }
}

/// Elements of so many bytes at an address. Any bits are a value of an [`Element`], so nothing else is asked.
fn elements_of<T: Element>(address: u64, bytes: usize) -> usize {
    let size = size_of::<T>();
    let fits = bytes.is_multiple_of(size) && address.is_multiple_of(size as u64);
    assert!(fits || bytes == 0, "{bytes} bytes at {address:#x} as elements of {size}");
    bytes / size
}

impl<'a, T: Element> ViewMut<'a, T> {
    /// A view of memory that this crate does not own.
    ///
    /// # Safety
    /// As [`View::from_raw`]; the memory can be written too, and no other work reads or changes it meanwhile.
    pub unsafe fn from_raw(address: u64, len: usize) -> ViewMut<'a, T> {
        ViewMut { address, len, _memory: PhantomData }
    }

    /// Of nothing.
    pub fn empty() -> ViewMut<'a, T> {
        ViewMut { address: 0, len: 0, _memory: PhantomData }
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

    /// The same elements, to read from now on.
    pub fn into_view(self) -> View<'a, T> {
        View { address: self.address, len: self.len, _memory: PhantomData }
    }

    /// The first `n` elements; the others stay.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn take_front(&mut self, n: usize) -> ViewMut<'a, T> {
        assert!(n <= self.len, "{n} of {}", self.len);
        let front = ViewMut { address: self.address, len: n, _memory: PhantomData };
        self.address += (n * size_of::<T>()) as u64;
        self.len -= n;
        front
    }

    /// Copies the elements of a view here, on the device, in the order of the queue.
    ///
    /// # Errors
    /// The call fails.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn copy_from(&mut self, queue: &Queue, from: View<'_, T>) -> Result<(), Error> {
        assert_eq!(from.len, self.len, "views of one length");
        if self.len == 0 {
            return Ok(());
        }
        queue.gpu().bind()?;
        let stream = queue.stream().cu_stream();
        // SAFETY: both views are of memory with as many elements, which their makers keep valid until the work has
        // ended; they do not overlap, since one of them is exclusive.
        let copied = unsafe { result::memcpy_dtod_async(self.address, from.address, bytes::<T>(self.len), stream) };
        driver("copying on the device", copied)
    }

    /// Copies `from` here, after what is on the queue, and waits for it.
    ///
    /// # Errors
    /// The copy or work before it fails.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn upload(&mut self, queue: &Queue, from: &[T]) -> Result<(), Error> {
        assert_eq!(from.len(), self.len, "a view of one length with its source");
        queue.gpu().bind()?;
        // SAFETY: the view has as many elements; the source is borrowed until the copy has ended, for which
        // `synchronize` waits.
        let copied = unsafe { result::memcpy_htod_async(self.address, from, queue.stream().cu_stream()) };
        let ended = queue.synchronize();
        driver("copying to the device", copied).and(ended)
    }

    /// Sets every byte, in the order of the queue.
    ///
    /// # Errors
    /// The call fails.
    pub fn fill(&mut self, queue: &Queue, byte: u8) -> Result<(), Error> {
        if self.len == 0 {
            return Ok(());
        }
        queue.gpu().bind()?;
        let stream = queue.stream().cu_stream();
        // SAFETY: the view is of memory with as many bytes, any of which is part of a value, which its maker keeps
        // valid until the work has ended.
        let filled = unsafe { result::memset_d8_async(self.address, byte, bytes::<T>(self.len), stream) };
        driver("filling device memory", filled)
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

    /// Copies `from` here: see [`ViewMut::upload`].
    ///
    /// # Errors
    /// The copy or work before it fails.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn upload(&mut self, queue: &Queue, from: &[T]) -> Result<(), Error> {
        self.view_mut().upload(queue, from)
    }

    /// The elements, after what is on the queue.
    ///
    /// # Errors
    /// The copy or work before it fails.
    pub fn download(&self, queue: &Queue) -> Result<Vec<T>, Error> {
        let mut to = vec![T::default(); self.len];
        self.view().download(queue, &mut to)?;
        Ok(to)
    }

    /// Sets every byte, after what is on the queue.
    ///
    /// # Errors
    /// The call fails.
    pub fn fill(&mut self, queue: &Queue, byte: u8) -> Result<(), Error> {
        self.view_mut().fill(queue, byte)
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
