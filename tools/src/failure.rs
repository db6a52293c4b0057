//! Why a command ends without success: the text for stderr and the exit code.

use mt_trainer::Error;

/// A failed command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// One message for the user, without the name of the program.
    pub text: String,
    /// Exit code: 2 bad input, 3 does not fit, 4 I/O or corruption, 5 numeric stop, 130 stopped.
    pub code: u8,
    /// Whether stdout is for JSON lines though no flag says so.
    pub in_json: bool,
}

impl Failure {
    /// With an exit code.
    pub fn new(text: impl Into<String>, code: u8) -> Failure {
        Failure { text: text.into(), code, in_json: false }
    }

    /// Input that cannot be used (exit code 2).
    pub fn input(text: impl Into<String>) -> Failure {
        Failure::new(text, 2)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::new(error.to_string(), error.exit_code())
    }
}
