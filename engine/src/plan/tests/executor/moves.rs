//! Transfers, and what is left to do when one ends.

use super::Executor;
use crate::id::Tier;
use crate::plan::Home;

/// Where a transfer goes; numbers are intervals through all sweeps.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Move {
    DiskToRam(usize),
    RamToVram(usize),
    VramToRam(usize),
    /// Of an access in RAM to a run that lives in VRAM.
    HomeToRam(usize),
    RamToHome(usize),
    VramToStaging(usize),
    RamToDisk(usize),
    StagingToDisk(usize),
}

impl Executor<'_> {
    /// Any transfer ends.
    pub(super) fn transfer(&mut self) -> bool {
        if self.moves.is_empty() {
            return false;
        }
        let ended = self.moves.swap_remove(self.numbers.below(self.moves.len() as u64) as usize);
        let run = |number: usize| self.interval(number).run;
        match ended {
            Move::DiskToRam(number) => {
                let version = *self.homes.get(&run(number)).unwrap_or(&0);
                if self.interval(number).tier == Tier::Host {
                    self.states[number].version = Some(version);
                    return true;
                }
                self.states[number].transit = Some(version);
                if self.states[number].has_span {
                    self.moves.push(Move::RamToVram(number));
                }
            }
            Move::RamToVram(number) => {
                let relay = self.interval(number).relay.map(|source| self.beside(number, source));
                let version = match (relay, self.interval(number).home) {
                    (Some(source), _) => self.states[source].version,
                    (None, Home::Disk) => self.states[number].transit,
                    _ => Some(*self.homes.get(&run(number)).unwrap_or(&0)),
                };
                self.states[number].version = Some(version.expect("the bytes are in RAM"));
                if self.states[number].transit.is_some() {
                    self.states[number].host_span = false;
                    self.rings[0].give_back(number);
                }
                relay.into_iter().for_each(|source| self.settle(source));
            }
            Move::HomeToRam(number) => {
                self.states[number].version = Some(*self.homes.get(&run(number)).unwrap_or(&0));
            }
            Move::VramToStaging(number) => {
                self.leave_vram(number);
                self.moves.push(Move::StagingToDisk(number));
            }
            Move::VramToRam(number) | Move::RamToHome(number) | Move::RamToDisk(number) => {
                self.homes.insert(run(number), self.states[number].version.expect("it was changed"));
                self.over(number);
            }
            Move::StagingToDisk(number) => {
                self.homes.insert(run(number), self.states[number].version.expect("it was changed"));
                self.staging.give_back(number);
                self.stage();
                self.over(number);
            }
        }
        true
    }
}
