//! The users' end of tickets: their numbers, and what the core answered to those that were not taken yet.

use super::Handle;
use crate::core::Command;
use crate::error::Error;
use crate::id::{Mode, Run};
use std::collections::BTreeMap;

/// Arena offset and length of a ticket's bytes, or why they cannot be had.
type Answer = Result<(u64, u64), Error>;

/// Tickets that users hold and whose lease they have not taken.
#[derive(Default)]
pub(super) struct Asked {
    next: u64,
    answers: BTreeMap<u64, Option<Answer>>,
}

impl Asked {
    /// The core's answer. Nobody wants it if the ticket was dropped meanwhile; the core learns of that by itself.
    pub(super) fn answer(&mut self, ticket: u64, answer: Answer) {
        if let Some(place) = self.answers.get_mut(&ticket) {
            *place = Some(answer);
        }
    }
}

impl Handle {
    /// Asks for pages; the ticket's number.
    pub(crate) fn ticket_fetch(&self, run: Run, mode: Mode) -> Result<u64, Error> {
        let ticket = {
            let mut state = self.lock();
            state.alive()?;
            let ticket = state.tickets.next;
            state.tickets.next += 1;
            state.tickets.answers.insert(ticket, None);
            ticket
        };
        self.send(Command::Fetch { ticket, run, mode });
        Ok(ticket)
    }

    /// Says that pages will be asked for.
    pub(crate) fn prefetch(&self, runs: Vec<Run>) -> Result<(), Error> {
        self.lock().alive()?;
        self.send(Command::Prefetch { runs });
        Ok(())
    }

    /// Whether the ticket was answered, or never will be.
    pub(crate) fn ticket_is_ready(&self, ticket: u64) -> bool {
        let state = self.lock();
        state.alive().is_err() || state.tickets.answers.get(&ticket).is_some_and(Option::is_some)
    }

    /// The bytes of a ticket, as soon as they are there.
    pub(crate) fn ticket_take(&self, ticket: u64) -> Answer {
        self.wait(|state| {
            if let Err(error) = state.alive() {
                return Some(Err(error));
            }
            state.tickets.answers.get_mut(&ticket)?.take()
        })?
    }

    /// Gives a ticket or its lease back.
    pub(crate) fn ticket_release(&self, ticket: u64, changed: bool) {
        self.lock().tickets.answers.remove(&ticket);
        self.send(Command::GiveBack { ticket, changed });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::Event;
    use crate::id::RegionId;
    use crate::io::Waker;

    const RUN: Run = Run { region: RegionId(0), first: 0, count: 1 };

    #[test]
    fn a_poisoned_engine_fails_tickets_that_wait_that_are_ready_and_that_are_new() {
        let (handle, _commands) = Handle::new(Waker::new().expect("waker"), None);
        let [waits, ready] = [0, 1].map(|_| handle.ticket_fetch(RUN, Mode::Read).expect("alive"));
        handle.lock().take_in(Event::TicketReady { ticket: ready, offset: 0, bytes: 4096 });
        assert!(handle.ticket_is_ready(ready) && !handle.ticket_is_ready(waits));
        let waiting = std::thread::spawn({
            let handle = handle.clone();
            move || handle.ticket_take(waits)
        });
        handle.lock().take_in(Event::Poisoned { first: "a write".into() });
        handle.changed.notify_all();
        assert!(matches!(waiting.join().expect("no panic"), Err(Error::Poisoned { .. })));
        assert!(matches!(handle.ticket_take(ready), Err(Error::Poisoned { .. })));
        assert!(matches!(handle.ticket_fetch(RUN, Mode::Read), Err(Error::Poisoned { .. })));
        assert!(matches!(handle.prefetch(vec![RUN]), Err(Error::Poisoned { .. })));
    }

    #[test]
    fn an_answer_to_a_ticket_that_was_dropped_is_forgotten() {
        let (handle, commands) = Handle::new(Waker::new().expect("waker"), None);
        let ticket = handle.ticket_fetch(RUN, Mode::Read).expect("alive");
        handle.ticket_release(ticket, false);
        handle.lock().take_in(Event::TicketReady { ticket, offset: 0, bytes: 4096 });
        assert!(handle.lock().tickets.answers.is_empty());
        let sent: Vec<_> = commands.try_iter().flatten().collect();
        assert!(matches!(sent[..], [Command::Fetch { .. }, Command::GiveBack { changed: false, .. }]), "{sent:?}");
    }
}
