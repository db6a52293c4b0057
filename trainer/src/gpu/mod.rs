//! The computation of a step on a GPU.

mod carve;
mod precision;
mod queue;
mod saved;
mod scratch;
mod tensors;
mod workspace;

pub use precision::Precision;
pub use saved::{boundary_bytes, kept_bytes, logits_bytes, rest_bytes};
pub use scratch::Rows;
pub use tensors::Tensors;
pub use workspace::Sizes;
