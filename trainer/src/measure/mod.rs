//! What the kernels and a GPU do on this machine, for benchmarks: each call measures once and returns plain numbers.
//! How often to measure, and what to say of it, is the caller's.
//!
//! It is not what plans are made from: see [`crate::profile`].

pub mod gpu;
pub mod libraries;
pub mod lift;
pub mod link;
pub mod products;
pub mod updates;
