//! Why a command ends without success: the text for stderr and the exit code.

use mt_trainer::Error;

/// A failed command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// One message for the user, without the name of the program.
    pub text: String,
    /// Exit code: 2 bad input, 3 does not fit, 4 I/O or corruption, 5 numeric stop.
    pub code: u8,
}

impl Failure {
    /// Input that cannot be used (exit code 2).
    pub fn input(text: impl Into<String>) -> Failure {
        Failure { text: text.into(), code: 2 }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure { text: error.to_string(), code: error.exit_code() }
    }
}
