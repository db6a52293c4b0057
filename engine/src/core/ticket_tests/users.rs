//! Users with tickets: what they ask for, check, change and give back.

use super::{FROZEN, LONGEST, PAGE_BYTES, PAGES, SCRATCH, STATE, World, run};
use crate::core::Command;
use crate::error::Error;
use crate::id::{Mode, RegionId, Run};
use crate::io::FrameMut;

/// One use of a run by a user.
#[derive(Clone, Copy, Debug)]
pub(super) struct Use {
    pub(super) ticket: u64,
    pub(super) run: Run,
    pub(super) mode: Mode,
    /// Where the bytes are, once the user took them.
    pub(super) offset: Option<u64>,
    pub(super) wrote: bool,
}

impl World {
    pub(super) fn fetch(&mut self, run: Run, mode: Mode) -> Use {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.seen.fetches += 1;
        self.core.command(Command::Fetch { ticket, run, mode });
        Use { ticket, run, mode, offset: None, wrote: false }
    }

    fn draw_run(&mut self, region: RegionId) -> Run {
        let count = 1 + self.draw.below(u64::from(LONGEST)) as u32;
        run(region, self.draw.below(u64::from(PAGES - count + 1)) as u32, count)
    }

    fn draw_fetch(&mut self, region: RegionId) -> Use {
        let run = self.draw_run(region);
        let frozen = region == FROZEN && self.begun > 0;
        let mode = match self.draw.below(if frozen { 2 } else { 4 }) {
            0 | 1 => Mode::Read,
            2 => Mode::Update,
            _ => Mode::Write,
        };
        self.fetch(run, mode)
    }

    /// One act of a user. `quiet`: he asks for nothing new.
    pub(super) fn act(&mut self, user: usize, leases: usize, quiet: bool) {
        let Some(last) = self.users[user].last().copied() else {
            if !quiet {
                if self.draw.below(4) == 0 {
                    let runs = (0..2).map(|_| self.draw_run(STATE)).collect();
                    self.core.command(Command::Prefetch { runs });
                }
                let region = [STATE, STATE, SCRATCH, FROZEN][self.draw.below(4) as usize];
                let asked = self.draw_fetch(region);
                self.users[user].push(asked);
            }
            return;
        };
        match last.offset {
            None => self.act_asked(user, last),
            Some(offset) => {
                let writes = last.mode.writes();
                if !quiet && last.run.region == STATE && self.users[user].len() < leases && self.draw.below(4) == 0 {
                    // The next in the order that the sweep has too, so that nobody waits in a circle.
                    let asked = self.draw_fetch(SCRATCH);
                    self.users[user].push(asked);
                } else if quiet || self.draw.below(4) == 0 {
                    self.users[user].pop();
                    // While one has pages nobody else changes them.
                    if last.wrote || !writes {
                        self.pages.check(&self.arena, last.run, offset);
                    }
                    self.pages.leave(last.run, writes);
                    self.core.command(Command::GiveBack { ticket: last.ticket, changed: last.wrote });
                    self.seen.uses += 1;
                    self.seen.discarded += u64::from(writes && !last.wrote);
                }
            }
        }
    }

    fn act_asked(&mut self, user: usize, asked: Use) {
        if self.draw.below(30) == 0 {
            self.users[user].pop();
            self.tickets.remove(&asked.ticket);
            self.core.command(Command::GiveBack { ticket: asked.ticket, changed: false });
            self.seen.dropped += 1;
            return;
        }
        match self.tickets.remove(&asked.ticket) {
            None => {}
            Some(Err(error)) => {
                self.users[user].pop();
                self.check_failure(asked, &error);
            }
            Some(Ok(offset)) => {
                self.pages.enter(asked.run, asked.mode.writes());
                if asked.mode.reads() {
                    self.pages.check(&self.arena, asked.run, offset);
                }
                let wrote = asked.mode.writes() && self.draw.below(5) > 0;
                if wrote {
                    self.pages.write(&self.arena, asked.run, offset);
                } else if asked.mode.writes() && offset >= self.plan.placed_bytes {
                    // What is scribbled into a copy and then discarded nobody sees.
                    let mut frame = FrameMut::new(offset, asked.run.count * PAGE_BYTES);
                    self.arena.slice_mut(&mut frame).fill(0xab);
                }
                let used = self.users[user].last_mut().expect("just looked at");
                (used.offset, used.wrote) = (Some(offset), wrote);
            }
        }
    }

    fn check_failure(&mut self, asked: Use, error: &Error) {
        let Error::Misuse { what } = error else { panic!("{asked:?}: {error}") };
        if !what.contains("placed in RAM") {
            assert!(what.contains("was not written") && asked.run.region == SCRATCH, "{asked:?}: {what}");
            self.seen.undefined += 1;
        }
    }
}
