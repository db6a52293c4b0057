//! The command `mt-bench` as the tests of this package run it: cargo builds a package's own binaries for its tests, but
//! not those of its dependencies.

use std::process::ExitCode;

fn main() -> ExitCode {
    mt_tools::bench_main(std::env::args_os())
}
