//! A schedule: the known future of a store's users, as data. It knows runs, resources and time, nothing of what is
//! computed.
//!
//! Nodes stand in execution order. A `Work` node depends on the accesses it uses: an access is *live* from its own node
//! to the last `Work` node that depends on it (its own node if none does). The user takes a lease at the access and
//! gives it back at that last node.

use crate::id::{DeviceId, Mode, Run, Tier};

/// Use of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// The pages.
    pub run: Run,
    /// What is done with them.
    pub mode: Mode,
    /// Where they must be.
    pub tier: Tier,
    /// The access may not happen; it is budgeted all the same.
    pub maybe: bool,
    /// The caller's own label, shown in plans and traces.
    pub tag: u64,
}

/// What does a piece of work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resource {
    /// A GPU.
    Compute(DeviceId),
    /// The CPU's cores.
    HostCompute,
}

/// A step of the schedule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Node {
    /// Use of a run.
    Access(Access),
    /// Computation.
    Work {
        /// What computes.
        resource: Resource,
        /// Estimated nanoseconds.
        ns: u64,
        /// RAM in use beside the leases while it runs.
        host_bytes: u64,
        /// VRAM in use beside the leases while it runs.
        device_bytes: u64,
        /// The caller's own label.
        tag: u64,
    },
    /// Everything written before this point is one state that may be committed.
    Commit,
}

/// A directed acyclic graph in execution order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Schedule {
    /// The nodes in execution order.
    pub nodes: Vec<Node>,
    /// For each node the earlier nodes it depends on.
    pub after: Vec<Vec<u32>>,
    /// The same schedule follows when this one ends.
    pub cyclic: bool,
}

impl Schedule {
    /// Appends an access that depends on nothing; returns its node.
    pub fn access(&mut self, run: Run, mode: Mode, tag: u64) -> u32 {
        self.push(Node::Access(Access { run, mode, tier: Tier::Host, maybe: false, tag }), Vec::new())
    }

    /// Appends work that uses the given accesses (and follows the given nodes); returns its node.
    pub fn work(&mut self, resource: Resource, ns: u64, after: Vec<u32>, tag: u64) -> u32 {
        self.push(Node::Work { resource, ns, host_bytes: 0, device_bytes: 0, tag }, after)
    }

    /// Appends a commit mark; returns its node.
    pub fn commit(&mut self, after: Vec<u32>) -> u32 {
        self.push(Node::Commit, after)
    }

    fn push(&mut self, node: Node, after: Vec<u32>) -> u32 {
        let index = self.nodes.len() as u32;
        self.nodes.push(node);
        self.after.push(after);
        index
    }
}
