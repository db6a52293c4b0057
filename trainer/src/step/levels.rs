//! Which levels: the ways that are tried, and which of them wins. Pure.

use super::prepare::Inputs;
use super::prepared::Prepared;
use crate::block::{Dims, Level, Saved};
use crate::schedule::{Kept, Operation, Room, Side, candidates};
use crate::target::Target;
use mt_engine::{Node, Prediction, Resource};

/// What moves more bytes must be predicted to take at most this share of the time.
const WORTH: f64 = 0.98;

/// Drives wear: every doubling of the bytes written must make the step this many times as fast.
const WORTH_OF_DOUBLING: f64 = 1.1;

/// Written bytes of a step are compared in units of this share of the weights and moments, so that the first bytes
/// that are written count as a few doublings and not as infinitely many.
const WEAR_UNIT_SHARE: u64 = 16;

impl Inputs<'_> {
    /// Only the layers' inputs are kept.
    pub(super) fn nothing(&self) -> Kept {
        Kept::uniform(self.config.layers, Level::Input, false)
    }

    /// Everything is kept; logits where they are no larger than what all layers keep.
    pub(super) fn everything(&self) -> Kept {
        let most = self.shapes.micro_rows.iter().copied().max().unwrap_or(0) * self.shapes.seq;
        let saved = self.config.layers * Saved::elements(&Dims::new(self.config), most);
        Kept::uniform(self.config.layers, Level::All, most * self.config.vocab <= saved)
    }

    /// The fastest of the plan that keeps nothing, the one that keeps everything, and those with the first one's layout
    /// that keep what dynamic programming finds.
    pub(super) fn with_levels(&self, nothing: Prepared) -> Prepared {
        let everything = self.everything();
        let with =
            |kept: &Kept| self.with_layout(nothing.layout.clone(), kept.clone(), nothing.scheme.updates.clone()).ok();
        let all = self.best(&everything).ok();
        let (room, options) = (self.room(&nothing), self.options);
        let found = |room: &Room| {
            let mut kept =
                candidates(&nothing.scheme.describe(self.config, self.manifest, self.shapes, &nothing.layout), room);
            kept.retain(|kept| kept != nothing.kept() && *kept != everything);
            kept.truncate(if options.is_rough && options.target != Target::Cpu { 1 } else { kept.len() });
            kept
        };
        let kept = match &all {
            // Where everything fits RAM, there is nothing to be weighed.
            Some(all) if all.steady.window_bytes == 0 && options.target == Target::Cpu => Vec::new(),
            _ => found(&room),
        };
        let tried: Vec<Prepared> = all.into_iter().chain(kept.iter().filter_map(with)).collect();
        if options.target == Target::Cpu {
            return tried.into_iter().fold(nothing, faster);
        }
        // What is kept and the state of what a GPU updates compete for VRAM: nothing kept, half of the room, all of it,
        // each with its best share of the updates.
        let half = Room { vram_bytes: room.vram_bytes / 2, ..room };
        let half = found(&half).into_iter().find(|half| !kept.contains(half) && !options.is_rough);
        let half = half.as_ref().and_then(with).map(|half| self.with_updates(half));
        let most = tried.into_iter().reduce(faster).map(|most| self.with_updates(most));
        half.into_iter().chain(most).fold(self.with_updates(nothing), faster)
    }

    /// What a plan that keeps nothing leaves room for.
    fn room(&self, nothing: &Prepared) -> Room {
        let options = self.options;
        let taken = nothing.arena_bytes + nothing.workspace_bytes;
        let streams = nothing.steady.window_bytes > 0;
        // What streams would take any byte that is left, and would stream more for any byte that is taken.
        let ram_bytes = if streams { 0 } else { options.budget_bytes.map_or(u64::MAX, |bytes| bytes - taken) };
        let [forward, backward] = sides(nothing);
        // A GPU's window is as large as VRAM leaves it; what it has beyond twice a layer may go to what is kept.
        let layer = self.manifest.units.get(1).map_or(0, |unit| unit.elements as u64);
        let window = 2 * layer * (options.target.element_bytes() + size_of::<f32>()) as u64;
        let vram_bytes = nothing.device().map_or(0, |share| share.window_bytes.saturating_sub(window));
        let link = options.has_disk.then(|| options.rates.engine.clone());
        let device = options.rates.engine.links.first().copied();
        Room { vram_bytes, ram_bytes, forward, backward, link, device }
    }
}

/// Computation and traffic of a step, up to the loss and from there.
fn sides(prepared: &Prepared) -> [Side; 2] {
    let instructions = &prepared.steady_program.instructions;
    let loss = instructions.iter().position(|i| i.operation == Operation::Loss).unwrap_or(instructions.len());
    let mut sides = [Side::default(); 2];
    for (index, instruction) in instructions.iter().enumerate() {
        let (side, seconds) = (&mut sides[usize::from(index > loss)], instruction.ns as f64 * 1e-9);
        let is_beside = !prepared.steady.devices.is_empty() && instruction.on == Resource::HostCompute;
        *(if is_beside { &mut side.beside_s } else { &mut side.compute_s }) += seconds;
    }
    let plan = &prepared.steady;
    for interval in &plan.intervals {
        let Node::Access(access) = &plan.schedule.nodes[interval.node as usize] else {
            unreachable!("an interval is an access")
        };
        let side = &mut sides[usize::from(access.tag as usize > loss)];
        side.read_bytes += if interval.reads_disk() { interval.bytes } else { 0 };
        side.write_bytes += if interval.writes_disk() { interval.bytes } else { 0 };
        let (up, down) = interval.link_bytes();
        (side.up_bytes, side.down_bytes) = (side.up_bytes + up, side.down_bytes + down);
    }
    sides
}

/// The better of two plans; the first where they are alike.
pub(super) fn faster(best: Prepared, found: Prepared) -> Prepared {
    let traffic = |p: &Prepared| p.prediction.disk.read_bytes + p.written_bytes();
    let share = if traffic(&found) > traffic(&best) { WORTH } else { 1.0 };
    if found.prediction.seconds * wear_of(&found, &best) < share * best.prediction.seconds { found } else { best }
}

/// How many times as fast `found` has to be for what it writes beyond `best`; 1 where it writes no more.
fn wear_of(found: &Prepared, best: &Prepared) -> f64 {
    let state = 12 * u64::from(found.layout.pages()) * found.layout.page_elements as u64;
    let unit = state / WEAR_UNIT_SHARE;
    let written = |p: &Prepared| p.written_bytes() + unit;
    wear(written(found), written(best))
}

/// Bytes that a step writes, with its share of a commit: a page that is placed moves its bytes from one to the other.
pub(super) fn written_bytes(prediction: &Prediction, sweeps_per_commit: u32) -> u64 {
    let commit = prediction.disk.commit_bytes.checked_div(u64::from(sweeps_per_commit));
    prediction.disk.write_bytes + commit.unwrap_or(0)
}

/// How many times as fast something has to be that writes `found` bytes where `best` would do.
pub(super) fn wear(found: u64, best: u64) -> f64 {
    WORTH_OF_DOUBLING.powf((found as f64 / best as f64).log2().max(0.0))
}
