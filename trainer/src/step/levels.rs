//! Which levels: the ways that are tried, and which of them wins. Pure.

use super::prepare::{Inputs, Prepared};
use super::price::Price;
use crate::block::{Dims, Level, Saved};
use crate::schedule::{Kept, Operation, Room, Side, candidates};
use crate::target::Target;
use mt_engine::{Node, Resource};

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
        // What beats the best so far, else that.
        let better = |best: Option<Prepared>, kept: &Kept| {
            let is_wanted = |price: &Price| best.as_ref().is_none_or(|best| price.beats(&best.price()));
            let updates = nothing.scheme.updates.clone();
            let found = self.with_layout(nothing.layout.clone(), kept.clone(), updates, &is_wanted);
            found.ok().flatten().or(best)
        };
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
        if options.target == Target::Cpu {
            let best = match all {
                Some(all) => faster(nothing.clone(), all),
                None => nothing.clone(),
            };
            return kept.iter().fold(Some(best), better).expect("there was one to begin with");
        }
        // What is kept and the state of what a GPU updates compete for VRAM: nothing kept, half of the room, all of it,
        // each with its best share of the updates.
        let half = Room { vram_bytes: room.vram_bytes / 2, ..room };
        let half = found(&half).into_iter().find(|half| !kept.contains(half) && !options.is_rough);
        let half = half.and_then(|half| better(None, &half)).map(|half| self.with_updates(half));
        let most = kept.iter().fold(all, better).map(|most| self.with_updates(most));
        half.into_iter().chain(most).fold(self.with_updates(nothing.clone()), faster)
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
    if found.price().beats(&best.price()) { found } else { best }
}
