//! The engine's own data path under a load that is chosen freely: one pattern of transfers at a time, through the same
//! backends, arena and checksums that stores use, on files that have no name.
//!
//! What it is not: a store (no commits, no page table), a second implementation of I/O, or a judgement: it says what
//! moved and when.
//!
//! Terms: *ground*, the nameless files that are read and written, one a directory; *load*, a backend on them with
//! memory of its own; *cell*, one pattern: direction, order, bytes of a transfer, transfers in flight.
//!
//! Invariants: nothing is written outside of the ground, and of it never more than was reserved; it is gone when the
//! process ends, in whatever way. A frame has one token at a time.

mod ground;
mod host;
mod load;
mod moved;
mod order;
#[cfg(test)]
mod tests;

pub use crate::io::uring::Polling;
pub use ground::{Facts, Ground};
pub use host::{Memory, cpu_seconds, registers, ring_refusal};
pub use load::{Load, Setup};
pub use moved::{Done, Moved, Visit};
pub use order::{Cell, Order, Turn, UNIT_BYTES};
