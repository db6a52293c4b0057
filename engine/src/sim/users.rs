//! Users of tickets, who live beside the one that sweeps: they ask for pages, announce some, drop tickets that wait,
//! read, write, spoil copies that they give back unchanged, and are in the sweep's way, and each other's.
//!
//! Each holds one lease at a time and asks for nothing while he does, so nobody waits in a circle and whatever was
//! asked for must be had. They act between the turns of the engine, also while the sweep's user waits.

use super::life::{Going, Lease, Life, Told, Use};
use super::report::{Broken, Check, Mark};
use super::work::Store;
use crate::config::Kind;
use crate::core::Command;
use crate::error::Error;
use crate::id::{Mode, RegionId, Run};
use crate::io::FrameMut;
use std::collections::VecDeque;

/// Pages of the longest run that is asked for.
const PAGES_MAX: u64 = 4;

/// Where a user's ticket stands.
enum Stage {
    Waits,
    /// Offset and bytes.
    Ready(u64, u64),
    Failed,
    Holds(Lease),
}

/// A ticket that was asked for.
struct Asked {
    ticket: u64,
    run: Run,
    mode: Mode,
    /// It must fail.
    is_barred: bool,
    stage: Stage,
}

/// All of them.
pub(super) struct Users {
    users: Vec<Option<Asked>>,
    next_ticket: u64,
    /// Nobody asks for more.
    is_quiet: bool,
    /// Accesses that the core wants back, and that were not answered for.
    recalls: VecDeque<u64>,
    /// Where copies begin in the arena, and their bytes.
    copies: (u64, u64),
}

impl Users {
    pub(super) fn new(count: usize, copies_at: u64, copies_bytes: u64) -> Users {
        Users {
            users: (0..count).map(|_| None).collect(),
            next_ticket: 0,
            is_quiet: false,
            recalls: VecDeque::new(),
            copies: (copies_at, copies_bytes),
        }
    }

    /// The leases that they hold.
    pub(super) fn leases(&self) -> impl Iterator<Item = &Lease> {
        self.users.iter().flatten().filter_map(|asked| match &asked.stage {
            Stage::Holds(lease) => Some(lease),
            _ => None,
        })
    }

    /// Whether somebody has, or may get at any moment, the right to change what a commit covers.
    pub(super) fn is_writing(&self, store: &Store) -> bool {
        let writes = |asked: &Asked| asked.mode.writes() && store.layout.kind(asked.run.region) != Kind::Scratch;
        self.users.iter().flatten().any(|asked| writes(asked) && !matches!(asked.stage, Stage::Failed))
    }

    /// The core wants an access back.
    pub(super) fn recalled(&mut self, seq: u64) {
        self.recalls.push_back(seq);
    }

    fn asked(&mut self, ticket: u64) -> Option<&mut Asked> {
        self.users.iter_mut().flatten().find(|asked| asked.ticket == ticket)
    }
}

impl Life<'_> {
    /// What happens beside the sweep between two turns of the engine.
    pub(super) fn act_beside(&mut self) -> Going {
        let count = self.users.users.len() as u64;
        if count == 0 {
            return Ok(());
        }
        if self.world.streams.users.below(2) == 0 {
            self.answer_recall();
        }
        let acts = self.world.swarm.acts;
        if self.world.streams.users.thousandths(acts) {
            let user = self.world.streams.users.below(count) as usize;
            self.act(user)?;
        }
        Ok(())
    }

    /// Nobody asks for more, and everything that was asked for is had and given back.
    pub(super) fn settle(&mut self) -> Going {
        self.users.is_quiet = true;
        self.until(|life| life.users.users.iter().all(Option::is_none) && life.users.recalls.is_empty())
    }

    /// What the reactor does under its lock: a lease that was not taken is taken back.
    fn answer_recall(&mut self) {
        let Some(seq) = self.users.recalls.pop_front() else { return };
        let taken = self.ready.remove(&seq).is_none();
        self.world.trace.row("recall", None, [seq as i64, i64::from(taken), 0, 0]);
        self.world.report.mark(if taken { Mark::TakenFirst } else { Mark::TakenBack });
        self.core.command(Command::Recalled { seq, taken });
    }

    fn act(&mut self, user: usize) -> Going {
        let Some(asked) = self.users.users[user].take() else {
            if !self.users.is_quiet {
                self.ask(user);
            }
            return Ok(());
        };
        let Asked { ticket, run, mode, .. } = asked;
        let rng = &mut self.world.streams.users;
        let stage = match asked.stage {
            Stage::Waits if rng.thousandths(self.world.swarm.drops) => {
                self.world.report.mark(Mark::TicketDropped);
                self.give_ticket_back(ticket, run, false);
                return Ok(());
            }
            Stage::Failed => {
                self.give_ticket_back(ticket, run, false);
                return Ok(());
            }
            Stage::Ready(offset, bytes) => Stage::Holds(self.take_ticket(&asked, offset, bytes)?),
            Stage::Holds(lease) if self.users.is_quiet || rng.below(3) == 0 => {
                self.world.report.mark(Mark::Ticket);
                let changed = self.returned(lease)?;
                self.give_ticket_back(ticket, run, changed);
                return Ok(());
            }
            other => other,
        };
        self.users.users[user] = Some(Asked { ticket, run, mode, is_barred: asked.is_barred, stage });
        Ok(())
    }

    fn ask(&mut self, user: usize) {
        let swarm = (self.world.swarm.prefetch, self.world.swarm.ticket_writes);
        if self.world.streams.users.thousandths(swarm.0) {
            let runs = (0..1 + self.world.streams.users.below(2)).map(|_| self.draw_run()).collect();
            self.world.report.mark(Mark::Prefetch);
            self.core.command(Command::Prefetch { runs });
        }
        let run = self.draw_run();
        let rng = &mut self.world.streams.users;
        let mode = match rng.thousandths(swarm.1) {
            true => rng.pick(&[Mode::Update, Mode::Write]),
            false => Mode::Read,
        };
        let ticket = self.users.next_ticket;
        self.users.next_ticket += 1;
        self.world.trace.row("fetch", Some(run), [ticket as i64, i64::from(mode.reads()), i64::from(mode.writes()), 0]);
        let is_barred = self.is_barred(run, mode);
        self.users.users[user] = Some(Asked { ticket, run, mode, is_barred, stage: Stage::Waits });
        self.core.command(Command::Fetch { ticket, run, mode });
    }

    /// Any run, or often one of the sweeps' or a part of it.
    fn draw_run(&mut self) -> Run {
        let rng = &mut self.world.streams.users;
        let within = match rng.below(3) {
            0 => {
                let region = rng.below(self.world.store.regions.len() as u64) as u32;
                let pages = self.world.store.regions[region as usize].pages;
                Run { region: RegionId(region), first: 0, count: pages }
            }
            _ => {
                let plan = &self.work.plans[rng.below(self.work.plans.len() as u64) as usize];
                plan.intervals[rng.below(plan.intervals.len() as u64) as usize].run
            }
        };
        let count = 1 + rng.below(u64::from(within.count).min(PAGES_MAX)) as u32;
        let first = within.first + rng.below(u64::from(within.count - count) + 1) as u32;
        Run { first, count, ..within }
    }

    fn take_ticket(&mut self, asked: &Asked, offset: u64, bytes: u64) -> Going<Lease> {
        let Asked { ticket, run, mode, .. } = *asked;
        self.world.trace.row("take ticket", Some(run), [ticket as i64, offset as i64, i64::from(mode.writes()), 0]);
        let mut lease = Lease { seq: ticket, run, mode, release: u32::MAX, used: Use::Looks, offset, bytes };
        self.admit(&lease)?;
        if mode.writes() {
            let discard = self.world.swarm.discard;
            let rng = &mut self.world.streams.users;
            if !rng.thousandths(discard) {
                lease.used = Use::WillFill;
                if rng.below(2) == 0 {
                    self.fill(&mut lease);
                }
            } else if offset >= self.users.copies.0 {
                // What is done to a copy that comes back unchanged nobody sees.
                self.arena.slice_mut(&mut FrameMut::new(offset, bytes as u32)).fill(0xab);
                lease.used = Use::Spoiled;
                self.world.report.mark(Mark::Spoiled);
            }
        }
        Ok(lease)
    }

    fn give_ticket_back(&mut self, ticket: u64, run: Run, changed: bool) {
        self.world.trace.row("give ticket back", Some(run), [ticket as i64, i64::from(changed), 0, 0]);
        self.core.command(Command::GiveBack { ticket, changed });
    }

    /// The core has a ticket's bytes.
    pub(super) fn ticket_ready(&mut self, ticket: u64, offset: u64, bytes: u64) -> Going {
        let Some(asked) = self.users.asked(ticket) else { return Ok(()) };
        asked.stage = Stage::Ready(offset, bytes);
        let (run, mode) = (asked.run, asked.mode);
        if asked.is_barred || (mode.reads() && self.world.oracle.is_undefined(run)) {
            return Err(Broken::new(Check::Kinds, format!("a ticket for {run}, {mode:?}, does not fail")).into());
        }
        Ok(())
    }

    /// The core cannot have a ticket's bytes.
    pub(super) fn ticket_failed(&mut self, ticket: u64, told: &Told) -> Going {
        let Some(asked) = self.users.asked(ticket) else { return Ok(()) };
        asked.stage = Stage::Failed;
        let (run, mode) = (asked.run, asked.mode);
        let mark = self.judge_ticket(run, mode, told)?;
        self.world.report.mark(mark);
        Ok(())
    }

    fn judge_ticket(&self, run: Run, mode: Mode, told: &Told) -> Result<Mark, Broken> {
        let placed = &self.work.plans[0].exit.placed;
        let over: Vec<Run> = placed.iter().map(|placed| placed.run).filter(|placed| placed.overlaps(&run)).collect();
        let home = over.iter().find(|placed| placed.contains(&run)).copied();
        let is_long = self.world.store.layout.run_bytes(run) > self.users.copies.1;
        match told.error() {
            Error::Misuse { .. } if home.is_none() && !over.is_empty() => Ok(Mark::TicketRefused),
            Error::Config { .. } if home.is_none() && is_long => Ok(Mark::TicketRefused),
            // Who does not replace a placed run as a whole loads it as a whole.
            _ => match home.filter(|home| *home != run) {
                Some(home) if mode == Mode::Write => {
                    self.judge(run, mode, told).or_else(|_| self.judge(home, Mode::Update, told))
                }
                Some(home) => self.judge(home, mode, told),
                None => self.judge(run, mode, told),
            },
        }
    }
}
