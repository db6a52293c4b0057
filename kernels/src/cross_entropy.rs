//! Cross-entropy tiled over tokens and vocabulary with a running log-sum-exp.
use crate::Cpu;
/// Label of a token that is no target.
pub const NO_TARGET: u32 = u32::MAX;
/// Running state per token: max [T], sum [T] of exp(logit - max), and the target's logit [T].
pub struct State { pub max: Vec<f32>, pub sum: Vec<f32>, pub target: Vec<f32> }
impl State { /// For T tokens, before any tile.
    pub fn new(tokens: usize) -> State { let _ = tokens; todo!() } }
/// Takes logits [T, tile] of vocabulary first..first+tile into the state. labels [T] are vocabulary ids or NO_TARGET.
pub fn forward_tile(cpu: &Cpu, state: &mut State, logits: &[f32], labels: &[u32], first: usize, tile: usize) { let _ = (cpu, state, logits, labels, first, tile); todo!() }
/// After the last tile: sum over targets of (lse - target logit) in f64, in token order; max becomes the lse.
pub fn finish(state: &mut State, labels: &[u32]) -> f64 { let _ = (state, labels); todo!() }
/// logits [T, tile] -> d logits in place: (softmax - onehot) * scale, zero rows for NO_TARGET. `state` after finish.
pub fn backward_tile(cpu: &Cpu, state: &State, logits: &mut [f32], labels: &[u32], first: usize, tile: usize, scale: f32) { let _ = (cpu, state, logits, labels, first, tile, scale); todo!() }
