//! Golden cases.
fn main() {}
