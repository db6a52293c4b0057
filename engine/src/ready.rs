//! Published accesses that were not taken yet: a ring indexed by sequence number, so that publishing and taking neither
//! search nor allocate.
//!
//! Terms: an access is *published* when its bytes may be used or its failure is known, and *wanted* until the user took
//! it or passed over it.
//!
//! Invariant: what is published and wanted lies less than `SLOTS` numbers apart. The user takes and passes over
//! accesses in their order, so those before its next one are not wanted; and the core reserves, hence publishes, no
//! access further than `AHEAD_MAX` ahead of the newest that the user asked for. An entry that nobody wants (of a sweep
//! that was given up) stays until a later access takes its slot.

use crate::core::AHEAD_MAX;
use crate::device::After;
use crate::error::Error;

/// A power of two above `AHEAD_MAX`, so that a slot is found by masking.
const SLOTS: usize = (AHEAD_MAX as usize + 1).next_power_of_two();

/// Where an access's bytes are, in the arena or in a device's allocation, how many, and what they still wait for there.
pub(crate) type Published = (u64, u64, After);

/// An access's bytes, or why they cannot be had.
type Outcome = Result<Published, Box<Error>>;

/// The ring.
pub(crate) struct Ready {
    slots: Box<[Option<(u64, Outcome)>]>,
}

impl Ready {
    /// An empty ring.
    pub(crate) fn new() -> Ready {
        Ready { slots: (0..SLOTS).map(|_| None).collect() }
    }

    /// Makes an access's outcome known.
    pub(crate) fn publish(&mut self, seq: u64, outcome: Result<Published, Error>) {
        self.slots[slot(seq)] = Some((seq, outcome.map_err(Box::new)));
    }

    /// Takes an access's outcome, if it is published.
    pub(crate) fn take(&mut self, seq: u64) -> Option<Result<Published, Error>> {
        let (_, outcome) = self.slots[slot(seq)].take_if(|(found, _)| *found == seq)?;
        Some(outcome.map_err(|error| *error))
    }
}

fn slot(seq: u64) -> usize {
    seq as usize % SLOTS
}

#[cfg(test)]
mod tests {
    use super::{Ready, SLOTS};
    use crate::device::After;
    use crate::error::Error;

    const NOTHING: After = After { upload: 0, fences: false };

    #[test]
    fn what_is_published_is_taken_once() {
        let mut ready = Ready::new();
        assert!(ready.take(7).is_none());
        ready.publish(7, Ok((4096, 8192, NOTHING)));
        ready.publish(8, Err(Error::Closed));
        assert!(matches!(ready.take(7), Some(Ok((4096, 8192, NOTHING)))));
        assert!(matches!(ready.take(8), Some(Err(Error::Closed))));
        assert!(ready.take(7).is_none() && ready.take(8).is_none());
    }

    #[test]
    fn an_entry_that_nobody_wanted_is_not_taken_for_another() {
        let mut ready = Ready::new();
        let later = 3 + SLOTS as u64;
        ready.publish(3, Ok((0, 1, NOTHING)));
        assert!(ready.take(later).is_none(), "the slot is another's");
        ready.publish(later, Ok((0, 2, NOTHING)));
        assert!(ready.take(3).is_none());
        assert!(matches!(ready.take(later), Some(Ok((0, 2, NOTHING)))));
    }

    #[test]
    fn everything_that_may_be_wanted_at_once_fits() {
        let mut ready = Ready::new();
        let first = 12_345;
        let wanted = first..=first + crate::core::AHEAD_MAX;
        wanted.clone().for_each(|seq| ready.publish(seq, Ok((seq, 1, NOTHING))));
        for seq in wanted {
            assert!(matches!(ready.take(seq), Some(Ok((offset, 1, NOTHING))) if offset == seq));
        }
    }
}
