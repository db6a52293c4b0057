//! Printing where nobody may be reading any more: a pipe that was closed is no reason to end a command, and least of
//! all a run.

use std::fmt::Display;
use std::io::{Write, stderr, stdout};

/// A line on stdout.
pub fn out(line: impl Display) {
    _ = writeln!(stdout(), "{line}");
}

/// A line on stderr, from the program.
pub fn err(line: impl Display) {
    _ = writeln!(stderr(), "mt: {line}");
}
