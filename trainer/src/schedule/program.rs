//! A program, and the engine's schedule that is read off it.

use super::Operation;
use mt_engine::{Mode, Resource, Run, Schedule};

/// In the labels of a sweep that is not part of the cycle of steps, so that they are no other sweep's too.
pub const LABEL_ONCE: u64 = 1 << 32;

/// One operation with its accesses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Instruction {
    /// What is computed.
    pub operation: Operation,
    /// Runs in the order in which their leases are taken.
    pub accesses: Vec<(Run, Mode)>,
    /// Estimated nanoseconds.
    pub ns: u64,
}

/// What a sweep does.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Program {
    /// In execution order.
    pub instructions: Vec<Instruction>,
}

impl Program {
    /// The accesses as the engine plans them: each is given back when its instruction ends. `cyclic`: the same sweep
    /// follows. The label of each node is its instruction's number.
    pub fn schedule(&self, cyclic: bool) -> Schedule {
        let mut schedule = Schedule { cyclic, ..Schedule::default() };
        for (index, instruction) in self.instructions.iter().enumerate() {
            if instruction.operation == Operation::Commit {
                schedule.commit(Vec::new());
                continue;
            }
            let tag = index as u64 | if cyclic { 0 } else { LABEL_ONCE };
            let accesses: Vec<u32> =
                instruction.accesses.iter().map(|&(run, mode)| schedule.access(run, mode, tag)).collect();
            schedule.work(Resource::HostCompute, instruction.ns, accesses, tag);
        }
        schedule
    }
}
