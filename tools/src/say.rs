//! Printing where nobody may be reading any more: a pipe that was closed is no reason to end a command, and least of
//! all a run.

use std::fmt::Display;
use std::io::{Write, stderr, stdout};
use std::sync::OnceLock;

/// Name of the program; `mt` unless it was told.
static PROGRAM: OnceLock<&str> = OnceLock::new();

/// Lines on stderr are this program's from now on.
pub fn program(name: &'static str) {
    PROGRAM.get_or_init(|| name);
}

/// A line on stdout.
pub fn out(line: impl Display) {
    _ = writeln!(stdout(), "{line}");
}

/// A line on stderr, from the program.
pub fn err(line: impl Display) {
    _ = writeln!(stderr(), "{}: {line}", PROGRAM.get().unwrap_or(&"mt"));
}
