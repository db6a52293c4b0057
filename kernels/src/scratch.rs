//! Working memory of a kernel: one buffer a thread, kept between calls so that hot kernels allocate nothing.
//!
//! Invariants: a thread's buffer is used by one kernel at a time (a kernel that holds it starts no parallel work), and
//! it never grows beyond what the kernel's `scratch_bytes` tells its caller.

use std::cell::RefCell;

thread_local! {
    static BUFFER: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// Calls `f` with `len` floats of unspecified content.
pub(crate) fn with<R>(len: usize, f: impl FnOnce(&mut [f32]) -> R) -> R {
    BUFFER.with_borrow_mut(|buffer| {
        if buffer.len() < len {
            // Exactly `len`, freed first: the bound that callers budget with has no room for growth by doubling.
            *buffer = Vec::new();
            *buffer = vec![0.0; len];
        }
        f(&mut buffer[..len])
    })
}

/// Cuts the first `len` floats off `rest`.
pub(crate) fn take<'a>(rest: &mut &'a mut [f32], len: usize) -> &'a mut [f32] {
    let (head, tail) = std::mem::take(rest).split_at_mut(len);
    *rest = tail;
    head
}
