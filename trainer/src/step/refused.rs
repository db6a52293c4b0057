//! Refusals that can be compared: of several ways of working that do not fit, the one that the nearest budgets hold is
//! what a user is told of.

use crate::error::{Error, Part};
use mt_engine::{Budget, PlanError};

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

/// A planner's refusal, with what is needed beside the arena's runs. Without a disk, RAM is what is missing.
pub(super) fn refusal(error: &PlanError, budget: &Budget, beside: u64, have_bytes: u64) -> Refused {
    let PlanError::DoesNotFit { need, have, nearest, .. } = error else {
        unreachable!("a program breaks the planner's rules: {error}")
    };
    // What is beside the arena's runs may be beyond all RAM alone.
    let beyond = (budget.host_bytes + beside).saturating_sub(have_bytes);
    let missing_bytes = budget.missing(nearest).saturating_add(beyond);
    if nearest.host_bytes > budget.host_bytes {
        return Refused::new(does_not_fit(nearest.host_bytes + beside, have_bytes), missing_bytes);
    }
    let more = nearest.device_bytes.iter().find(|(device, bytes)| *bytes > budget.device(*device));
    let (part, what, need_bytes, have_bytes) = match more {
        Some(&(device, bytes)) => (Part::Vram, "VRAM for pages and workspace", bytes, budget.device(device)),
        None => (Part::Disk, "disk", *need, *have),
    };
    let error = Error::DoesNotFit { part, what: what.to_owned(), need_bytes, have_bytes, hint: None };
    Refused::new(error, missing_bytes)
}

pub(super) fn does_not_fit(need_bytes: u64, have_bytes: u64) -> Error {
    let what = "RAM for state and workspace".to_owned();
    Error::DoesNotFit { part: Part::Ram, what, need_bytes, have_bytes, hint: None }
}
