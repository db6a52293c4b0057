//! The arena: the one block of RAM that pages live in. An anonymous map whose start is 2 MiB aligned, with huge pages
//! advised before anything is touched (a page that was touched before the advice stays small, and small pages make
//! direct I/O several times slower, because a transfer then has hundreds of segments).
//!
//! It is not an allocator: who may use which bytes is the core's decision, expressed in tokens.
//!
//! Invariants:
//! 1. Memory is taken from the system only as it is touched, and never more than `bytes` of it: huge pages are
//!    advised only where they lie entirely inside.
//! 2. Access goes through tokens. A [`FrameMut`] is the only token for its bytes while it exists; [`FrameRef`]s for
//!    the same bytes exist only while no `FrameMut` does. The core keeps this rule when it makes tokens; the type
//!    system keeps the rest (tokens are not `Clone`, slices borrow their token). With it, no two slices alias unless
//!    both are shared.
//! 3. Fresh bytes are zeros, so every byte is initialised.
#![allow(unsafe_code)]

use crate::error::Error;
use crate::io::{FrameMut, FrameRef};
use memmap2::{Advice, MmapOptions, MmapRaw};
use std::path::PathBuf;
use std::slice;
use std::sync::Arc;

/// Bytes of a huge page, and the alignment of the arena's start.
pub const HUGE_PAGE_BYTES: u64 = 2 << 20;

/// The block of RAM. `Send` and `Sync`: it is plain memory, and tokens decide who uses which part.
pub struct Arena {
    map: MmapRaw,
    /// Distance in bytes from the start of the map to the first aligned byte.
    start: usize,
    bytes: u64,
}

impl Arena {
    /// Maps `bytes` bytes without touching them.
    ///
    /// # Errors
    /// `Error::Io` when the system refuses the map, `Error::Config` when `bytes` is not addressable.
    pub fn new(bytes: u64) -> Result<Arena, Error> {
        Arena::with_pages(bytes, true)
    }

    /// `new` with huge pages advised or forbidden; the latter to measure what they are worth.
    ///
    /// # Errors
    /// As [`Arena::new`].
    pub fn with_pages(bytes: u64, huge: bool) -> Result<Arena, Error> {
        let too_large = || Error::Config { what: format!("host_bytes: {bytes} bytes are not addressable") };
        let length = bytes.checked_add(HUGE_PAGE_BYTES).ok_or_else(too_large)?;
        let length = usize::try_from(length).ok().filter(|l| isize::try_from(*l).is_ok()).ok_or_else(too_large)?;
        let map = MmapOptions::new().len(length).map_anon().map_err(|source| Error::Io {
            doing: "mapping",
            path: PathBuf::from("the arena"),
            offset: 0,
            bytes,
            source: Arc::new(source),
        })?;
        let map = MmapRaw::from(map);
        let start = (map.as_mut_ptr() as usize).next_multiple_of(HUGE_PAGE_BYTES as usize) - map.as_mut_ptr() as usize;
        let whole_huge_pages = (bytes - bytes % HUGE_PAGE_BYTES) as usize;
        // Both are best effort: without huge pages transfers are slower; a child process has no business here.
        if whole_huge_pages > 0 {
            let advice = if huge { Advice::HugePage } else { Advice::NoHugePage };
            let _ = map.advise_range(advice, start, whole_huge_pages);
        }
        // Miri has no advice to give.
        if !cfg!(miri) {
            let _ = map.advise(Advice::DontFork);
        }
        Ok(Arena { map, start, bytes })
    }

    /// Size in bytes, as asked for.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// First byte; 2 MiB aligned. For registration with the kernel: everything else goes through tokens.
    pub fn base(&self) -> *mut u8 {
        // SAFETY: `start` is less than HUGE_PAGE_BYTES and the map has that many bytes more than `bytes`
        // (Arena::new), so the result lies in the map or at its end.
        unsafe { self.map.as_mut_ptr().add(self.start) }
    }

    /// Pointer to `len` bytes at `offset`.
    ///
    /// # Panics
    /// When they do not lie inside the arena: a token that the core did not make for this arena.
    pub fn pointer(&self, offset: u64, len: u64) -> *mut u8 {
        let end = offset.checked_add(len).expect("an arena offset does not overflow");
        assert!(end <= self.bytes, "bytes {offset}..{end} lie outside the arena of {} bytes", self.bytes);
        // SAFETY: `offset` is at most `bytes`, and the map holds `bytes` bytes from `base` on.
        unsafe { self.base().add(offset as usize) }
    }

    /// The frame's bytes for reading.
    pub fn slice<'a>(&'a self, frame: &'a FrameRef) -> &'a [u8] {
        // SAFETY: nobody writes these bytes while `frame` exists (invariant 2, kept by the core), and the slice
        // borrows it.
        unsafe { self.bytes_at(frame.offset, u64::from(frame.bytes)) }
    }

    /// The frame's bytes for reading and writing.
    pub fn slice_mut<'a>(&'a self, frame: &'a mut FrameMut) -> &'a mut [u8] {
        // SAFETY: `frame` is the only token for these bytes (invariant 2, kept by the core), and the slice borrows it
        // exclusively.
        unsafe { self.bytes_at_mut(frame.offset, u64::from(frame.bytes)) }
    }

    /// Fills the frame with zeros.
    pub fn zero(&self, frame: &mut FrameMut) {
        self.slice_mut(frame).fill(0);
    }

    /// Bytes without a token, for leases, whose right the core tracks by state instead.
    ///
    /// # Safety
    /// For `'a` the arena exists and nobody writes these bytes.
    pub unsafe fn bytes_at<'a>(&self, offset: u64, len: u64) -> &'a [u8] {
        // SAFETY: `pointer` checks the bounds; the bytes are initialised (invariant 3); the caller answers for
        // aliasing and lifetime.
        unsafe { slice::from_raw_parts(self.pointer(offset, len), len as usize) }
    }

    /// Bytes without a token, for leases.
    ///
    /// # Safety
    /// For `'a` the arena exists and nobody else reads or writes these bytes.
    pub unsafe fn bytes_at_mut<'a>(&self, offset: u64, len: u64) -> &'a mut [u8] {
        // SAFETY: as in `bytes_at`, and the caller answers for exclusiveness.
        unsafe { slice::from_raw_parts_mut(self.pointer(offset, len), len as usize) }
    }
}

#[cfg(test)]
mod tests;
