//! What a model is: its configuration and its list of tensors. Shapes only; no numbers, no computation.

pub mod config;
mod fields;
pub mod manifest;
pub mod shapes;

pub use config::{Family, ModelConfig};
pub use manifest::{Manifest, Tensor, Unit, UnitKind};
