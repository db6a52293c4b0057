//! Checkpoints as other programs know them: folders with `config.json` and safetensors files. Import streams one into a
//! store, export streams the weights out again.
//!
//! What it is not: the store's own durability (commits), which is the engine's.
//!
//! The parts, from the files inwards: [`dtype`] number formats; `header` and `folder` what a folder's files hold, with
//! nothing taken on trust; [`source`] a model's first weights, from files or from the seeded `init`; [`stream`] one
//! sweep over the state; [`import`](mod@import); and outwards: `writer` the files to be written and their bytes,
//! `async_files` how they are written, `carry` what goes along with the weights, [`export`](mod@export).

mod async_files;
mod carry;
pub mod dtype;
pub mod export;
mod folder;
mod header;
pub mod import;
mod init;
pub mod source;
pub mod stream;
mod writer;

pub use carry::{copy_files, names_of_files};
pub use dtype::Dtype;
pub use export::{ExportDtype, ExportReport, ExportRequest, OutFolder, export};
pub use import::{ImportReport, import};
pub use source::{Source, SourceRecord};
pub use stream::State;

#[cfg(test)]
mod tests;
