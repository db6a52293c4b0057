//! What the kernels and a GPU do on this machine, for benchmarks and for the probe of a GPU: each call measures once
//! and returns plain numbers. How often to measure, and what to say of it, is the caller's.
//!
//! It is not what plans are made from: see [`crate::profile`].

pub mod attention;
pub mod gpu;
pub mod libraries;
pub mod lift;
pub mod link;
pub mod passes;
pub mod products;
pub mod updates;
