//! A schedule: the known future of a store's users, as data. It knows runs, resources and time, nothing of what is
//! computed.
//!
//! Nodes stand in execution order. There is one *user* a resource, the host's cores or a GPU's compute stream, and each
//! goes through its own nodes in their order: an access belongs to the resource of its tier, work to its own. Users run
//! beside each other; what one needs of another is said by `after`: a node begins once all nodes that it comes after
//! are done. An access is done when its bytes are where it wants them, work when it has ended. A commit mark is a cut
//! for all users: nothing behind it begins before everything in front of it is done; so is the end of the schedule.
//!
//! A `Work` node depends on the accesses it uses: an access is *live* from its own node to the last `Work` node that
//! depends on it (its own node if none does). The user takes a lease at the access and gives it back at that last node.
//! No two accesses of one run are live at once, with one exception, the *relay*: an access on a device that only reads,
//! comes after the access of the same run before it, and that one is in RAM. It takes its bytes from there, and the
//! disk is not read again; they are taken once all that it comes after is done (and the other access has been given
//! back, if that comes before it in the schedule). While both are live nobody may change the bytes before they are
//! taken.

use crate::id::{DeviceId, Mode, Run, Tier};

/// Use of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// The pages.
    pub run: Run,
    /// What is done with them.
    pub mode: Mode,
    /// Where they must be: Host or a Device.
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
        /// Estimated nanoseconds with the resource for itself.
        ns: u64,
        /// RAM in use beside the leases while it runs. A plan sets aside each resource's largest, for good.
        host_bytes: u64,
        /// VRAM of the resource in use beside the leases while it runs; 0 for work of the host. A plan sets aside the
        /// largest, for good.
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
    /// For each node the earlier nodes it comes after.
    pub after: Vec<Vec<u32>>,
    /// The same schedule follows when this one ends.
    pub cyclic: bool,
}

impl Schedule {
    /// Appends an access in RAM that comes after nothing; returns its node.
    pub fn access(&mut self, run: Run, mode: Mode, tag: u64) -> u32 {
        self.access_on(Tier::Host, run, mode, Vec::new(), tag)
    }

    /// Appends an access on a tier that comes after the given nodes; returns its node.
    pub fn access_on(&mut self, tier: Tier, run: Run, mode: Mode, after: Vec<u32>, tag: u64) -> u32 {
        self.push(Node::Access(Access { run, mode, tier, maybe: false, tag }), after)
    }

    /// Appends work that uses the given accesses (and follows the given nodes); returns its node.
    pub fn work(&mut self, resource: Resource, ns: u64, after: Vec<u32>, tag: u64) -> u32 {
        self.push(Node::Work { resource, ns, host_bytes: 0, device_bytes: 0, tag }, after)
    }

    /// Appends a commit mark; returns its node.
    pub fn commit(&mut self, after: Vec<u32>) -> u32 {
        self.push(Node::Commit, after)
    }

    /// Appends any node that comes after the given ones; returns it.
    pub fn push(&mut self, node: Node, after: Vec<u32>) -> u32 {
        let index = self.nodes.len() as u32;
        self.nodes.push(node);
        self.after.push(after);
        index
    }
}
