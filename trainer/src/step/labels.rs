//! Names for what happens in a sweep: an instruction by the label that the schedule gave it, pages by the unit and the
//! plane that they hold. And what the plan expects to happen when. For timelines.

use super::Trainer;
use crate::model::UnitKind;
use crate::schedule::{LABEL_ONCE, Operation, Phase, Program};
use mt_engine::plan::Span;
use mt_engine::{Node, Run};

/// What the plan expects, in nanoseconds from the beginning of a step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Expected {
    /// When.
    pub span: Span,
    /// The instruction's label.
    pub tag: u64,
    /// The pages that are waited for; None: the instruction computes.
    pub run: Option<Run>,
}

impl Trainer {
    /// The instruction of a label, in words, and the phase that it belongs to. None for a label of another sweep.
    pub fn instruction(&self, tag: u64) -> Option<(String, Phase)> {
        let (program, phases): (&Program, _) = match tag & LABEL_ONCE {
            0 => (&self.prepared.steady_program, &self.steady_phases),
            _ => (&self.prepared.update_program, &self.update_phases),
        };
        let index = (tag & !LABEL_ONCE) as usize;
        Some((self.operation(program.instructions.get(index)?.operation), phases[index]))
    }

    /// What pages hold: plane and unit, like "m of layer 3", or the region alone where the unit does not follow from
    /// the pages.
    pub fn content(&self, run: Run) -> String {
        let region = &self.prepared.regions[run.region.0 as usize].name;
        if matches!(region.as_str(), "act" | "dact") {
            return region.clone();
        }
        let first_page = &self.prepared.layout.first_page;
        let unit = first_page.partition_point(|first| *first <= run.first).saturating_sub(1);
        format!("{region} of {}", self.unit(unit))
    }

    /// The course of a predicted step: every instruction that takes time, and every wait.
    pub fn expected(&self) -> Vec<Expected> {
        let nodes = &self.prepared.steady.schedule.nodes;
        let expected = |(node, span): (&Node, Span)| {
            let (tag, run) = match node {
                Node::Access(access) => (access.tag, Some(access.run)),
                Node::Work { tag, .. } => (*tag, None),
                Node::Commit => return None,
            };
            (span.end_ns > span.begin_ns).then_some(Expected { span, tag, run })
        };
        nodes.iter().zip(self.prepared.timeline().nodes).filter_map(expected).collect()
    }

    fn unit(&self, unit: usize) -> String {
        match self.model.manifest.units.get(unit).map(|unit| unit.kind) {
            Some(UnitKind::Embedding) => "the embedding".to_owned(),
            Some(UnitKind::Layer(layer)) => format!("layer {layer}"),
            Some(UnitKind::Head) | None => "the head".to_owned(),
        }
    }

    fn operation(&self, operation: Operation) -> String {
        let of = |what: &str, unit: usize, chunk: usize| match self.model.chunks[unit].len() {
            1 => format!("{what} {}", self.unit(unit)),
            chunks => format!("{what} {}, {} of {chunks}", self.unit(unit), chunk + 1),
        };
        match operation {
            Operation::Update { unit, chunk, .. } | Operation::Apply { unit, chunk, .. } => of("update", unit, chunk),
            Operation::Join { unit, chunk, .. } => of("join", unit, chunk),
            Operation::Keep { unit, chunk, .. } => of("keep gradients of", unit, chunk),
            Operation::ChunkBegin { chunk } => of("begin gradients of", 0, chunk),
            Operation::Gather { chunk, micro } => format!("{}, micro-batch {micro}", of("gather from", 0, chunk)),
            Operation::Scatter { chunk, micro } => format!("{}, micro-batch {micro}", of("scatter to", 0, chunk)),
            Operation::LayerForward { layer, micro, .. } => format!("layer {layer} forward, micro-batch {micro}"),
            Operation::LayerBackward { layer, micro, .. } => format!("layer {layer} backward, micro-batch {micro}"),
            Operation::LayerGradient { unit } => format!("norm of the gradients of {}", self.unit(unit)),
            Operation::FinalNorm { micro } => format!("final norm, micro-batch {micro}"),
            Operation::FinalNormBackward { micro } => format!("final norm backward, micro-batch {micro}"),
            Operation::NormGradient => "norm of the final norm's gradients".to_owned(),
            Operation::TileForward { tile, micro } => format!("logits {tile} forward, micro-batch {micro}"),
            Operation::TileBackward { tile, micro } => format!("logits {tile} backward, micro-batch {micro}"),
            Operation::TileGradient { tile } => format!("gradients of logits {tile}"),
            Operation::DropTile { tile } => format!("drop logits {tile}"),
            Operation::Loss => "loss".to_owned(),
            Operation::Commit => "commit mark".to_owned(),
        }
    }
}
