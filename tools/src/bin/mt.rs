//! mt.
fn main() {}
