//! The computation of a step on a GPU: what `step` and [`crate::block`] do on the processor, on device memory.
//!
//! The same program is walked. Its accesses on the device are leases of weights to read, gradients to write, and
//! activations; a [`Computation`] gets them as plain [`Memory`] and puts one operation after the other on its queue.
//!
//! Invariants: micro-batch, tiles and the shape of every sum are functions of model, sequence and batch alone; no sum
//! depends on the order in which blocks run; for given shapes on a given model of GPU all results have the same bits,
//! whatever is kept for the backward and wherever leases lie (as long as they begin at multiples of 256 bytes).
//!
//! Terms as in [`crate::block`]: T tokens of a micro-batch, H hidden size, Q, K, F; V rows of the embedding.

mod accesses;
mod block;
mod carve;
mod computation;
mod embedding;
mod head;
mod input;
mod layers;
mod precision;
mod queue;
mod real;
mod saved;
mod scratch;
mod state;
mod tensors;
mod workspace;

pub use accesses::Memory;
pub use computation::{Computation, Found, Refused};
pub use precision::Precision;
pub use saved::{boundary_bytes, kept_bytes, logits_bytes, rest_bytes};
pub use scratch::Rows;
pub use tensors::Tensors;
pub use workspace::Sizes;
