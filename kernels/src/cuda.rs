//! The same computation on an NVIDIA GPU: CUDA C++ sources in this binary, compiled at run time by NVRTC for the device
//! that is found, and matrix products through cuBLASLt. Nothing of CUDA is needed to build or to start: libraries are
//! looked for when a [`Gpu`] is opened, and what is missing is an [`Error`] that names what was found and what is
//! needed.
//!
//! What it is not: it moves nothing between host and device except what a [`Buffer`] is told to, and it owns no memory
//! but its buffers and a workspace for each [`Queue`]. Kernels run on views of memory that the caller keeps valid.
//!
//! Terms: *queue*, a stream of the device with the workspace of its matrix products; work on one queue runs in order;
//! *view*, a typed piece of device memory; *source*, a CUDA file with its definitions, which becomes one cubin;
//! *kernel*, an entry of a source with its launch limits.
//!
//! Numbers: a bf16 is passed by its bits, as `u16`; everything is added in f32 or wider. AdamW, the planes of master
//! weights and sums of squares have the bits of the CPU's kernels. All else has, for given shapes on a given model of
//! GPU, the same bits in every run: no sum depends on the order in which blocks run.

mod blaslt;
mod buffer;
mod cache;
mod clock;
mod cubin;
mod device;
mod error;
mod library;
mod nvrtc;
mod sources;

pub mod adamw;
pub mod attention;
pub mod cross_entropy;
pub mod embedding;
pub mod linear;
pub mod link;
pub mod pieces;
pub mod pointwise;
pub mod rmsnorm;
pub mod rope;
pub mod split;

pub use buffer::{Buffer, Element, View, ViewMut};
pub use clock::Clock;
pub use cubin::parameter_sizes;
pub use device::{Gpu, Queue};
pub use error::Error;
pub use library::{LIBRARIES, Search};
pub use nvrtc::{Compiled, Compiler};
pub use sources::{Arch, KERNELS, Kernel, Source, sources};

/// Element types of activations and compute weights: f32, or bf16 by its bits.
pub trait Real: Element {
    /// Index of the kernel for this type in a pair (f32, bf16).
    const INDEX: usize;
}

impl Real for f32 {
    const INDEX: usize = 0;
}

impl Real for u16 {
    const INDEX: usize = 1;
}
