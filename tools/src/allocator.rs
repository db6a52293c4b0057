//! The allocator of the command: the system's, but for large aligned memory, of which each thread keeps one block.
//!
//! The gemm crate allocates what it packs anew in every call, aligned to 128 bytes. The C library cuts such memory out
//! of a larger piece; the cuttings pin the heap, and holes of nearly the right size pile up: up to 10 MiB a thread
//! where 2 are in use, so that no budget held. Giving each back to the system at once holds too, but costs a quarter of
//! the processor's time in page faults.
//!
//! Terms: *large*: of [`LARGE`] bytes or more, aligned to more than the C library does by itself, and no larger than a
//! block. Invariant: all large memory is a block, allocated with the layout [`BLOCK`], whatever part of it was asked
//! for. Of a block only what was touched is resident, so a thread keeps as much as its largest call took.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr;

/// Smaller memory leaves cuttings that small allocations use up.
const LARGE: usize = 64 << 10;
/// The C library aligns to this by itself.
const ALIGNED: usize = 16;
/// More than a call of the gemm crate packs with vectors (5.2 MiB at most: `packed_bytes` of `kernels/src/product.rs`).
const BLOCK: Layout = match Layout::from_size_align(8 << 20, 4096) {
    Ok(layout) => layout,
    Err(_) => panic!("a power of two"),
};

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

struct Allocator;

thread_local! {
    static KEPT: Kept = const { Kept(Cell::new(ptr::null_mut())) };
}

/// A block that is free, or null.
struct Kept(Cell<*mut u8>);

impl Drop for Kept {
    fn drop(&mut self) {
        release(self.0.get());
    }
}

fn is_large(layout: Layout) -> bool {
    layout.align() > ALIGNED && (LARGE..=BLOCK.size()).contains(&layout.size()) && layout.align() <= BLOCK.align()
}

fn block() -> *mut u8 {
    // A thread that is ending keeps none any more.
    match KEPT.try_with(|kept| kept.0.replace(ptr::null_mut())) {
        Ok(kept) if !kept.is_null() => kept,
        // SAFETY: the layout's size is not 0.
        _ => unsafe { System.alloc(BLOCK) },
    }
}

/// Takes back a block, or null.
fn keep(block: *mut u8) {
    release(KEPT.try_with(|kept| kept.0.replace(block)).unwrap_or(block));
}

fn release(block: *mut u8) {
    if !block.is_null() {
        // SAFETY: what is kept or passed to `keep` came from `block`, which allocates with this layout, and is in no
        // other hands: it was taken out of its cell, or its owner gave it back.
        unsafe { System.dealloc(block, BLOCK) };
    }
}

// SAFETY: memory comes from the system's allocator with the layout that was asked for or, where that is large, with one
// of at least its size and alignment; which of the two follows from the layout alone, so that it goes back the same
// way. No call unwinds: access to a thread's cell can fail but not panic, and allocates nothing large.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise is passed on.
        if is_large(layout) { block() } else { unsafe { System.alloc(layout) } }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above.
        if is_large(layout) { keep(memory) } else { unsafe { System.dealloc(memory, layout) } }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if !is_large(layout) {
            // SAFETY: as above. The system knows which of its pages are zeros already.
            return unsafe { System.alloc_zeroed(layout) };
        }
        let block = block();
        if !block.is_null() {
            // SAFETY: a block has at least the layout's size.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller promises that the size is not 0 and does not overflow with this alignment.
        let new = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        match (is_large(layout), is_large(new)) {
            (true, true) => memory,
            // SAFETY: the caller's promise is passed on.
            (false, false) => unsafe { System.realloc(memory, layout, size) },
            _ => {
                // SAFETY: the new memory is another than the old, each has at least its layout's size, and the old one
                // goes back with the layout that it came with.
                unsafe {
                    let moved = self.alloc(new);
                    if !moved.is_null() {
                        moved.copy_from_nonoverlapping(memory, layout.size().min(size));
                        self.dealloc(memory, layout);
                    }
                    moved
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_gets_its_block_again_and_other_memory_keeps_its_content() {
        let layout = |bytes| Layout::from_size_align(bytes, 128).unwrap();
        // SAFETY: no layout is empty, each memory goes back once with the layout that it has, and is read where
        // written.
        unsafe {
            let first = ALLOCATOR.alloc(layout(LARGE));
            ALLOCATOR.dealloc(first, layout(LARGE));
            let zeroed = ALLOCATOR.alloc_zeroed(layout(3 << 20));
            assert_eq!((zeroed, zeroed.add(5).read()), (first, 0));
            zeroed.write(7);
            let other = ALLOCATOR.alloc(layout(1 << 20));
            assert!(other != zeroed && other.aligned_to_128());
            let mut size = 3 << 20;
            let mut memory = zeroed;
            for next in [4 << 20, 100, 16 << 20, 5 << 20, 200] {
                memory = ALLOCATOR.realloc(memory, layout(size), next);
                size = next;
                assert!(memory.read() == 7 && memory.aligned_to_128(), "{next}");
            }
            ALLOCATOR.dealloc(memory, layout(size));
            ALLOCATOR.dealloc(other, layout(1 << 20));
        }
    }

    trait Aligned {
        fn aligned_to_128(self) -> bool;
    }

    impl Aligned for *mut u8 {
        fn aligned_to_128(self) -> bool {
            (self as usize).is_multiple_of(128)
        }
    }
}
