//! Another program on the same file, measured in turns with the engine: fio, huge pages for its buffers, and what may
//! be said of two that alternate.

pub mod fio;
mod huge_pages;
mod ratio;

pub use huge_pages::HugePages;
pub use ratio::{Ratio, median};
