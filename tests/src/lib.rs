//! What the tests of the whole share: reading golden cases, writing small models, an f64 reference of the optimizer,
//! driving the trainer and the command. Not a library for anyone else.

pub mod case;
pub mod command;
pub mod forward;
pub mod mounts;
pub mod numbers;
pub mod rig;
pub mod rust_text;
pub mod small;
pub mod tensors;
pub mod trace;
pub mod walk;

/// Says that a test cannot run here, past the test harness, which keeps what it captures to itself.
pub fn skipped(test: &str, why: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "skipped: {test}: {why}");
}
