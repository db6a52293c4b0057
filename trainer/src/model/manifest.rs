//! The list of a model's tensors, in *units* that are used together: the embedding, each layer, the head. Elements of a
//! unit lie one after the other, tensor by tensor, in this order, without gaps.

use super::ModelConfig;

/// What a unit is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UnitKind { /// The embedding table, which is also the head's matrix if tied.
    Embedding, /// Decoder layer.
    Layer(usize), /// Final norm and, unless tied, the head's matrix.
    Head }

/// One tensor as it is named in checkpoints.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tensor {
    /// Name in model.safetensors.
    pub name: String,
    /// Row-major shape.
    pub shape: Vec<usize>,
    /// Elements from the start of the unit.
    pub offset: usize,
    /// Number of elements.
    pub len: usize,
    /// Weight decay applies: two or more dimensions.
    pub decay: bool,
}

/// Tensors that are used together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unit { pub kind: UnitKind, pub tensors: Vec<Tensor>, pub elements: usize }

/// All units in the order of the forward computation: embedding, layers, head.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Manifest { pub units: Vec<Unit> }

impl Manifest {
    /// The tensors that a model of this configuration has.
    pub fn new(config: &ModelConfig) -> Manifest { let _ = config; todo!() }
    /// Elements of all units.
    pub fn elements(&self) -> u64 { self.units.iter().map(|u| u.elements as u64).sum() }
    /// Finds a tensor by name: (unit index, tensor).
    pub fn find(&self, name: &str) -> Option<(usize, &Tensor)> { let _ = name; todo!() }
}
