//! A program, and the engine's schedule that is read off it.

use super::Operation;
use crate::target::tier;
use mt_engine::{Mode, Node, Resource, Run, Schedule};
use std::collections::HashMap;

/// In the labels of a sweep that is not part of the cycle of steps, so that they are no other sweep's too.
pub const LABEL_ONCE: u64 = 1 << 32;

/// One operation with its accesses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Instruction {
    /// What is computed.
    pub operation: Operation,
    /// Runs in the order in which their leases are taken.
    pub accesses: Vec<(Run, Mode)>,
    /// What computes it, and where its accesses are.
    pub on: Resource,
    /// Estimated nanoseconds.
    pub ns: u64,
    /// VRAM in use beside the accesses; 0 on the processor.
    pub device_bytes: u64,
}

/// What a sweep does.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Program {
    /// In execution order.
    pub instructions: Vec<Instruction>,
}

impl Program {
    /// Instructions that are a GPU's.
    pub fn on_gpu(&self) -> usize {
        self.instructions.iter().filter(|instruction| instruction.on != Resource::HostCompute).count()
    }

    /// The accesses as the engine plans them: each is given back when its instruction ends. `cyclic`: the same sweep
    /// follows. The label of each node is its instruction's number.
    ///
    /// What a GPU reads of a run that the processor used last comes after that use: a relay. Any other order between
    /// processor and GPU follows from the runs that both use.
    pub fn schedule(&self, cyclic: bool) -> Schedule {
        let mut schedule = Schedule { cyclic, ..Schedule::default() };
        let mut on_host: HashMap<Run, u32> = HashMap::new();
        let has_device = self.instructions.iter().any(|instruction| instruction.on != Resource::HostCompute);
        for (index, instruction) in self.instructions.iter().enumerate() {
            if instruction.operation == Operation::Commit {
                schedule.commit(Vec::new());
                continue;
            }
            let tag = index as u64 | if cyclic { 0 } else { LABEL_ONCE };
            let Instruction { on, ns, device_bytes, .. } = *instruction;
            let accesses = instruction.accesses.iter().map(|&(run, mode)| {
                let before = if has_device { on_host.remove(&run) } else { None };
                let is_relayed = on != Resource::HostCompute && mode.reads();
                let after = before.filter(|_| is_relayed).into_iter().collect();
                let node = schedule.access_on(tier(on), run, mode, after, tag);
                if has_device && on == Resource::HostCompute {
                    on_host.insert(run, node);
                }
                node
            });
            let accesses: Vec<u32> = accesses.collect();
            schedule.push(Node::Work { resource: on, ns, host_bytes: 0, device_bytes, tag }, accesses);
        }
        schedule
    }
}
