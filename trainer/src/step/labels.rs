//! Names for what happens in a sweep: an instruction by the label that the schedule gave it, pages by the unit and the
//! plane that they hold. And what the plan expects to happen when. For timelines.

use super::Trainer;
use crate::model::UnitKind;
use crate::schedule::{LABEL_ONCE, Operation, Phase, Program};
use mt_engine::events::{Doing, Event};
use mt_engine::plan::{Span, Station, Timeline, Transfer};
use mt_engine::{Node, Resource, Run};

impl Trainer {
    /// The instruction of a label, in words, the phase that it belongs to, and what computes it. None for a label of
    /// another sweep.
    pub fn instruction(&self, tag: u64) -> Option<(String, Phase, Resource)> {
        let (program, phases): (&Program, _) = match tag & LABEL_ONCE {
            0 => (&self.prepared.steady_program, &self.steady_phases),
            _ => (&self.prepared.update_program, &self.update_phases),
        };
        let index = (tag & !LABEL_ONCE) as usize;
        let instruction = program.instructions.get(index)?;
        Some((self.operation(instruction.operation), phases[index], instruction.on))
    }

    /// What pages hold: plane and unit, like "m of layer 3", or the region alone where the unit does not follow from
    /// the pages.
    pub fn content(&self, run: Run) -> String {
        let region = &self.prepared.regions[run.region.0 as usize].name;
        // Beside a GPU gradients that are used in backward take turns with some pages.
        let takes_turns = region == "grad" && self.gpu.is_some() && self.prepared.scheme.options.fused_backward;
        if takes_turns || matches!(region.as_str(), "act" | "dact") {
            return region.clone();
        }
        let first_page = &self.prepared.layout.first_page;
        let unit = first_page.partition_point(|first| *first <= run.first).saturating_sub(1);
        format!("{region} of {}", self.unit(unit))
    }

    /// The course of a predicted step, in nanoseconds from its beginning: every instruction that takes time, every wait
    /// for pages, and what the links do. What began in the step before begins at 0.
    pub fn expected(&self) -> Vec<Event> {
        let Timeline { nodes: spans, transfers } = self.prepared.timeline();
        let nodes = &self.prepared.steady.schedule.nodes;
        let users = nodes.iter().zip(spans).filter_map(|(node, span)| expected_of_user(node, span));
        users.chain(transfers.iter().filter_map(|transfer| self.expected_of_link(transfer))).collect()
    }

    fn expected_of_link(&self, transfer: &Transfer) -> Option<Event> {
        let plan = &self.prepared.steady;
        let interval = transfer.interval.map(|index| &plan.intervals[index as usize]);
        let doing = match transfer.station {
            Station::DiskRead => Doing::Reading,
            Station::DiskWrite if interval.is_some() => Doing::Writing,
            Station::DiskWrite => Doing::Recording,
            Station::Upload(device) => Doing::Uploading(device),
            Station::Download(device) => Doing::Downloading(device),
            Station::HostCompute | Station::Compute(_) | Station::Commit => return None,
        };
        let tag = interval.and_then(|interval| match plan.schedule.nodes[interval.node as usize] {
            Node::Access(access) => Some(access.tag),
            _ => None,
        });
        let begin_ns = u64::try_from(transfer.begin_ns).unwrap_or(0);
        let run = interval.map(|interval| interval.run);
        Some(Event {
            doing,
            begin_ns,
            end_ns: transfer.end_ns,
            volume: 0,
            run,
            bytes: transfer.bytes,
            operations: 0,
            tag,
        })
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

/// What whoever computes does at a node, if it takes time.
fn expected_of_user(node: &Node, span: Span) -> Option<Event> {
    let (doing, tag, run) = match node {
        Node::Access(access) => (Doing::Waiting, access.tag, Some(access.run)),
        Node::Work { tag, resource: Resource::Compute(device), .. } => (Doing::Computing(*device), *tag, None),
        Node::Work { tag, .. } => (Doing::Working, *tag, None),
        Node::Commit => return None,
    };
    let Span { begin_ns, end_ns, .. } = span;
    let event = Event { doing, begin_ns, end_ns, volume: 0, run, bytes: 0, operations: 0, tag: Some(tag) };
    (end_ns > begin_ns).then_some(event)
}
