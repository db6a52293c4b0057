//! The command `mt` as the tests of this package run it: cargo builds a package's own binaries for its tests, but not
//! those of its dependencies.

use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    mt_tools::main(Instant::now(), std::env::args_os())
}
