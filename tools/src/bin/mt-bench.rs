//! The command `mt-bench`.

use std::process::ExitCode;

fn main() -> ExitCode {
    mt_tools::bench_main(std::env::args_os())
}
