//! Checks a schedule and condenses it into a `Draft`: one use per access node, one row per distinct run. Everything
//! after this stage works on the draft and may rely on what is checked here.
//!
//! Invariants of a draft: uses stand in schedule order; every run exists; two runs are equal or share no page; a use of
//! a run begins after the release of the use of it before.

use super::ALIGN;
use super::types::{Budget, Shape};
use crate::config::Kind;
use crate::error::PlanError;
use crate::id::{Mode, Run, Tier};
use crate::schedule::{Node, Schedule};

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
    /// Bytes of the run.
    pub bytes: u64,
    /// The last use whose access comes while this one is live; its own index if none does.
    pub last: u32,
    /// The use of the same run before this one.
    pub previous: Option<u32>,
}

/// A distinct run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Usage {
    /// The pages.
    pub run: Run,
    /// Bytes of the run.
    pub bytes: u64,
    /// Bytes over the disk link that placing saves, per byte held, in n-ths per sweep; n = `Draft::parts`.
    pub gain: u64,
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
}

/// Checks the schedule.
pub(super) fn draft(schedule: &Schedule, shape: &Shape<'_>, budget: &Budget) -> Result<Draft, PlanError> {
    check_order(schedule)?;
    let release = releases(schedule);
    let mut uses = Vec::new();
    for (node, access) in schedule.nodes.iter().enumerate() {
        let Node::Access(access) = access else { continue };
        let bytes = run_bytes(access.run, shape)?;
        if access.tier != Tier::Host {
            // Only the host tier takes leases so far; no budget would change that.
            return Err(PlanError::DoesNotFit { tier: access.tier, need: bytes, have: 0, nearest: budget.clone() });
        }
        let use_ = Use {
            node: node as u32,
            release: release[node],
            run: 0,
            mode: access.mode,
            bytes,
            last: 0,
            previous: None,
        };
        uses.push((use_, access.run));
    }
    let mut draft = number_runs(uses)?;
    link(&mut draft)?;
    weigh(&mut draft, shape);
    Ok(draft)
}

/// Dependencies point backwards.
fn check_order(schedule: &Schedule) -> Result<(), PlanError> {
    if schedule.after.len() != schedule.nodes.len() {
        return Err(PlanError::Unordered { node: schedule.after.len().min(schedule.nodes.len()) as u32 });
    }
    match schedule.after.iter().enumerate().find(|&(node, after)| after.iter().any(|&a| a as usize >= node)) {
        Some((node, _)) => Err(PlanError::Unordered { node: node as u32 }),
        None => Ok(()),
    }
}

/// For each node the last work node that depends on it, or the node itself.
fn releases(schedule: &Schedule) -> Vec<u32> {
    let mut release: Vec<u32> = (0..schedule.nodes.len() as u32).collect();
    for (node, after) in schedule.after.iter().enumerate() {
        if matches!(schedule.nodes[node], Node::Work { .. }) {
            for &access in after {
                release[access as usize] = node as u32;
            }
        }
    }
    release
}

fn run_bytes(run: Run, shape: &Shape<'_>) -> Result<u64, PlanError> {
    let region = shape.regions.get(run.region.0 as usize).ok_or(PlanError::NoSuchRun { run })?;
    if run.count == 0 || u64::from(run.first) + u64::from(run.count) > u64::from(region.pages) {
        return Err(PlanError::NoSuchRun { run });
    }
    let bytes = u64::from(region.page_bytes) * u64::from(run.count);
    assert!(bytes > 0 && bytes % ALIGN == 0, "pages of region {} are not a multiple of {ALIGN} bytes", region.name);
    Ok(bytes)
}

/// Gives each distinct run a number by first use, and refuses runs that overlap.
fn number_runs(found: Vec<(Use, Run)>) -> Result<Draft, PlanError> {
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
    let mut draft = Draft { uses: Vec::with_capacity(found.len()), runs: Vec::with_capacity(firsts.len()), parts: 1 };
    for (index, (mut use_, run)) in found.into_iter().enumerate() {
        let first = group[index] as usize;
        if first == index {
            number[index] = draft.runs.len() as u32;
            draft.runs.push(Usage { run, bytes: use_.bytes, gain: 0 });
        }
        use_.run = number[first];
        draft.uses.push(use_);
    }
    Ok(draft)
}

/// Fills in `last` and `previous`, and refuses two live uses of one run: the second could only be fetched when the
/// first is given back, which happens after the second is needed.
fn link(draft: &mut Draft) -> Result<(), PlanError> {
    let mut before: Vec<Option<u32>> = vec![None; draft.runs.len()];
    for index in 0..draft.uses.len() {
        let Use { node, release, run, .. } = draft.uses[index];
        let previous = before[run as usize].replace(index as u32);
        if previous.is_some_and(|p| draft.uses[p as usize].release > node) {
            return Err(PlanError::LiveTwice { run: draft.runs[run as usize].run, node });
        }
        let live = draft.uses[index..].partition_point(|later| later.node <= release);
        draft.uses[index].last = (index + live - 1) as u32;
        draft.uses[index].previous = previous;
    }
    Ok(())
}

/// What placing each run saves: the reads and writes of its uses, less its write at each commit.
fn weigh(draft: &mut Draft, shape: &Shape<'_>) {
    draft.parts = u64::from(shape.sweeps_per_commit.max(1));
    let mut written = vec![false; draft.runs.len()];
    for use_ in &draft.uses {
        let transfers = u64::from(use_.mode.reads()) + u64::from(use_.mode.writes());
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
