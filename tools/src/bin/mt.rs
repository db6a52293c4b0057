//! The command `mt`.

use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    mt_tools::main(Instant::now(), std::env::args_os())
}
