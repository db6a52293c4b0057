//! Refusals that can be compared: of several ways of working that do not fit, the one that the nearest budgets hold is
//! what a user is told of.

use crate::error::Error;

/// Result of a way of working.
pub(super) type Result<T> = std::result::Result<T, Refused>;

/// A way of working that the budgets do not hold.
#[derive(Debug)]
pub(crate) struct Refused {
    /// What is missing first.
    pub(super) error: Box<Error>,
    /// Bytes between the budgets and the nearest ones that hold it, over all memories: a byte of VRAM or RAM counts as
    /// much as one of the disk, since which of them there is more of is the user's to know.
    pub(super) missing_bytes: u64,
}

impl Refused {
    pub(super) fn new(error: Error, missing_bytes: u64) -> Refused {
        Refused { error: Box::new(error), missing_bytes }
    }

    /// The one of two ways that more of the budgets hold.
    pub(crate) fn nearer(self, other: Refused) -> Refused {
        if other.missing_bytes < self.missing_bytes { other } else { self }
    }
}

impl From<Refused> for Error {
    fn from(refused: Refused) -> Error {
        *refused.error
    }
}

/// What no budget changes is farther than any.
impl From<Error> for Refused {
    fn from(error: Error) -> Refused {
        Refused::new(error, u64::MAX)
    }
}
