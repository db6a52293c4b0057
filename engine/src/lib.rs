//! Engine of the MegaTrain project.
pub(crate) mod arena;
pub(crate) mod lock;
pub mod config;
pub mod error;
pub(crate) mod format;
pub mod id;
pub mod io;
pub mod plan;
pub mod profile;
pub mod schedule;
pub mod engine;
pub use config::*; pub use error::*; pub use id::*; pub use engine::*; pub use schedule::*; pub use profile::*;
