//! A checked schedule, condensed: one use per access node, one row per distinct run. Every later stage works on the
//! draft and may rely on what is checked here.
//!
//! Invariants of a draft: uses stand in schedule order; every run exists; two runs are equal or share no page; a use of
//! a run begins after the release of the use of it before, or is relayed from it.

use super::types::Shape;
use super::validate::Work;
use crate::config::Kind;
use crate::error::PlanError;
use crate::id::{DeviceId, Mode, Run, Tier};
use crate::schedule::Access;

/// One access node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Use {
    /// The access node.
    pub node: u32,
    /// The last work node that uses it, or its own node.
    pub release: u32,
    /// Index in `Draft::runs`.
    pub run: u32,
    /// What is done with the bytes.
    pub mode: Mode,
    /// Where they must be.
    pub tier: Tier,
    /// Bytes of the run.
    pub bytes: u64,
    /// The last use whose access comes while this one is live; its own index if none does.
    pub last: u32,
    /// The node after which the run may move for this use: the release of the uses of it before; the last node that a
    /// relayed one comes after. None for the first use.
    pub clear: Option<u32>,
    /// The use that it is relayed from.
    pub relay: Option<u32>,
    /// The use that is relayed from it.
    pub kept_for: Option<u32>,
}

impl Use {
    /// A use whose run has no number yet.
    pub(super) fn new(node: u32, release: u32, access: &Access, bytes: u64) -> Use {
        let Access { mode, tier, .. } = *access;
        Use { node, release, run: 0, mode, tier, bytes, last: 0, clear: None, relay: None, kept_for: None }
    }
}

/// A distinct run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Usage {
    /// The pages.
    pub run: Run,
    /// Bytes of the run.
    pub bytes: u64,
    /// Bytes over the disk link that placing saves, per byte held, in n-ths per sweep; n = `Draft::parts`. Of a run
    /// that one device alone uses, as many over its link.
    pub gain: u64,
    /// The device on which every use of it is.
    pub device: Option<DeviceId>,
}

/// A checked schedule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Draft {
    /// One per access node, in schedule order.
    pub uses: Vec<Use>,
    /// Distinct runs in order of first use.
    pub runs: Vec<Usage>,
    /// What `Usage::gain` is counted in: sweeps per commit, or 1 where nothing commits.
    pub parts: u64,
    /// What work takes, and the devices.
    pub work: Work,
}

impl Draft {
    /// Numbers and links what was found.
    pub(super) fn new(
        found: Vec<(Use, Run)>,
        after: &[Vec<u32>],
        work: Work,
        shape: &Shape<'_>,
    ) -> Result<Draft, PlanError> {
        let mut draft = number_runs(found, work)?;
        link(&mut draft, after)?;
        weigh(&mut draft, shape);
        Ok(draft)
    }
}

/// Gives each distinct run a number by first use, and refuses runs that overlap.
fn number_runs(found: Vec<(Use, Run)>, work: Work) -> Result<Draft, PlanError> {
    let mut order: Vec<u32> = (0..found.len() as u32).collect();
    order.sort_unstable_by_key(|&index| (found[index as usize].1, index));
    // The first use of each distinct run, in the order of the runs.
    let mut firsts: Vec<u32> = Vec::new();
    let mut group = vec![0u32; found.len()];
    for &index in &order {
        let run = found[index as usize].1;
        match firsts.last().map(|&first| found[first as usize].1) {
            Some(known) if known == run => {}
            Some(known) if known.overlaps(&run) => {
                let (first, second) = if firsts.last() < Some(&index) { (known, run) } else { (run, known) };
                return Err(PlanError::Overlap { first, second });
            }
            _ => firsts.push(index),
        }
        group[index as usize] = firsts[firsts.len() - 1];
    }
    let mut number = vec![u32::MAX; found.len()];
    let (uses, runs) = (Vec::with_capacity(found.len()), Vec::with_capacity(firsts.len()));
    let mut draft = Draft { uses, runs, parts: 1, work };
    for (index, (mut use_, run)) in found.into_iter().enumerate() {
        let first = group[index] as usize;
        let device = match use_.tier {
            Tier::Device(device) => Some(device),
            _ => None,
        };
        if first == index {
            number[index] = draft.runs.len() as u32;
            draft.runs.push(Usage { run, bytes: use_.bytes, gain: 0, device });
        }
        use_.run = number[first];
        let usage = &mut draft.runs[use_.run as usize];
        usage.device = usage.device.filter(|_| usage.device == device);
        draft.uses.push(use_);
    }
    Ok(draft)
}

/// Fills in what uses are to each other, and refuses two live uses of one run unless the second is relayed: it could
/// only be served when the first is given back, which happens after it is needed.
fn link(draft: &mut Draft, after: &[Vec<u32>]) -> Result<(), PlanError> {
    // The last use of each run, and the node at which all uses of it so far are released.
    let mut before: Vec<Option<(u32, u32)>> = vec![None; draft.runs.len()];
    for index in 0..draft.uses.len() {
        let use_ = draft.uses[index];
        let Use { node, release, run, .. } = use_;
        let live = draft.uses[index..].partition_point(|later| later.node <= release);
        draft.uses[index].last = (index + live - 1) as u32;
        let Some((previous, released)) = before[run as usize].replace((index as u32, release)) else { continue };
        let source = draft.uses[previous as usize];
        let is_relayed = use_.mode == Mode::Read
            && matches!(use_.tier, Tier::Device(_))
            && source.tier == Tier::Host
            && after[node as usize].contains(&source.node);
        if is_relayed {
            let given_back = Some(source.release).filter(|&release| release < node);
            draft.uses[index].clear = after[node as usize].iter().copied().max().max(given_back);
            draft.uses[index].relay = Some(previous);
            draft.uses[previous as usize].kept_for = Some(index as u32);
            before[run as usize] = Some((index as u32, released.max(release)));
        } else if released > node {
            return Err(PlanError::LiveTwice { run: draft.runs[run as usize].run, node });
        } else {
            draft.uses[index].clear = Some(released);
        }
    }
    Ok(())
}

/// What placing each run saves: the reads and writes of its uses, less its write at each commit. A relayed use reads
/// nothing from disk.
fn weigh(draft: &mut Draft, shape: &Shape<'_>) {
    draft.parts = u64::from(shape.sweeps_per_commit.max(1));
    let mut written = vec![false; draft.runs.len()];
    for use_ in &draft.uses {
        let transfers = u64::from(use_.mode.reads() && use_.relay.is_none()) + u64::from(use_.mode.writes());
        draft.runs[use_.run as usize].gain += transfers * draft.parts;
        written[use_.run as usize] |= use_.mode.writes();
    }
    if shape.sweeps_per_commit == 0 {
        return;
    }
    for (usage, written) in draft.runs.iter_mut().zip(written) {
        if written && shape.regions[usage.run.region.0 as usize].kind == Kind::Checkpointed {
            usage.gain -= 1;
        }
    }
}
