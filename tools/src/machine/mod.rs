//! What this machine is, as far as moving pages depends on it, and what about it could be better. Only reads; needs no
//! rights.

pub mod checks;
pub mod host;
pub mod link;
mod mount;
pub mod place;
pub mod sys;
