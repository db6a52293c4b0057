//! The temper of a run: which faults exist in it and how often they strike, and what its users are like. Drawn once a
//! seed, with most things switched off in most seeds, since a world in which everything happens all the time never
//! gets far.

use crate::io::memory::fault::{Effect, Fault, Faults};
use crate::io::memory::rng::SplitMix64;

/// Rates are in thousandths.
#[derive(Clone, Debug)]
pub(super) struct Swarm {
    pub(super) faults: Faults,
    /// The volumes on which faults strike, a bit for each.
    pub(super) faulty: u16,
    /// A byte rots, or a sector becomes unreadable, between two processes.
    pub(super) rot: u32,
    pub(super) queue_depth: u32,
    pub(super) alignment: u32,
    /// A process ends by a crash.
    pub(super) crash: u32,
    /// A crash strikes while a store is made or opened.
    pub(super) crash_early: u32,
    /// Of the crashes, those that are power losses.
    pub(super) power_loss: u32,
    /// An access is passed over.
    pub(super) pass: u32,
    /// A writing lease comes back unchanged.
    pub(super) discard: u32,
    /// A lease comes back before the schedule's last use.
    pub(super) early: u32,
    /// A sweep is given up, at each node.
    pub(super) abort: u32,
    /// A commit begins at a mark.
    pub(super) commit: u32,
    /// A commit is asked for elsewhere, at each node.
    pub(super) stray_commit: u32,
    /// The sweep that follows is announced.
    pub(super) announce: u32,
    /// Another sweep follows than was announced.
    pub(super) renege: u32,
    /// Most turns of the engine between two acts of a user.
    pub(super) turns_max: u64,
    /// Users of tickets, beside the one that sweeps.
    pub(super) users: usize,
    /// One of them acts, at each turn.
    pub(super) acts: u32,
    /// A ticket is asked for to write.
    pub(super) ticket_writes: u32,
    /// A ticket that waits is dropped, at each act.
    pub(super) drops: u32,
    /// Pages will be asked for, at each ticket.
    pub(super) prefetch: u32,
    /// Blocks of the arena for copies.
    pub(super) unplanned_blocks: u64,
}

impl Swarm {
    pub(super) fn draw(rng: &mut SplitMix64, volumes: u16) -> Swarm {
        let is_told = rng.below(3) == 0;
        let is_damaging = rng.below(3) == 0;
        let mut faults = Faults::default();
        for fault in Fault::ALL {
            let (is_on, rates): (bool, &[u32]) = match fault.effect() {
                Effect::Masked => (rng.below(2) == 0, &[5, 30, 100, 200]),
                // Syncs and first reads are few.
                Effect::Told if matches!(fault, Fault::FailedSync | Fault::BadSector) => {
                    (is_told && rng.below(2) == 0, &[10, 40, 150])
                }
                Effect::Told => (is_told && rng.below(2) == 0, &[1, 3, 10]),
                Effect::Damage => (is_damaging && rng.below(2) == 0, &[2, 10, 40]),
            };
            let rate = rng.pick(rates);
            if is_on {
                *faults.rate_mut(fault) = rate;
            }
        }
        Swarm {
            faults,
            rot: if is_damaging { rng.pick(&[0, 300, 900]) } else { 0 },
            queue_depth: rng.pick(&[1, 2, 4, 32]),
            alignment: rng.pick(&[512, 4096]),
            crash: rng.pick(&[300, 700, 1000]),
            crash_early: rng.pick(&[0, 0, 150, 400]),
            power_loss: rng.pick(&[100, 500, 900]),
            pass: rng.pick(&[0, 0, 30, 200]),
            discard: rng.pick(&[0, 50, 400]),
            early: rng.pick(&[0, 100, 600]),
            abort: rng.pick(&[0, 0, 0, 5, 40]),
            commit: rng.pick(&[200, 700, 1000]),
            stray_commit: rng.pick(&[0, 0, 30]),
            announce: rng.pick(&[0, 800, 1000]),
            renege: rng.pick(&[0, 0, 200]),
            turns_max: rng.pick(&[0, 1, 3, 12]),
            // In half of the seeds one volume fails and the others do not.
            faulty: if rng.below(2) == 0 { u16::MAX } else { 1 << rng.below(u64::from(volumes)) },
            users: rng.pick(&[0, 0, 1, 2, 4]),
            acts: rng.pick(&[50, 300, 800]),
            ticket_writes: rng.pick(&[0, 200, 600]),
            drops: rng.pick(&[0, 30, 200]),
            prefetch: rng.pick(&[0, 200, 600]),
            unplanned_blocks: rng.pick(&[0, 4, 8, 16, 40]),
        }
    }
}
