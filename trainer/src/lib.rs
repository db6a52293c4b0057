//! Training on top of the page engine: models, data, optimizer, schedules.

pub mod batch;
pub mod block;
mod carve;
pub mod checkpoint;
pub mod data;
pub mod default_model;
pub mod digits;
pub mod error;
pub mod gpu;
pub mod head;
pub mod input;
pub mod layout;
pub mod lr;
pub mod measure;
pub mod memory;
pub mod model;
pub mod profile;
mod ram;
pub mod run;
pub mod schedule;
pub mod settings;
pub mod step;
pub mod target;
pub mod vram;
pub mod workspace;

pub use error::Error;
