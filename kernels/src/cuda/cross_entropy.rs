//! Cross-entropy over vocabulary tiles with a running log-sum-exp, as [`crate::cross_entropy`].

use super::device::{Arg, blocks};
use super::sources::{Kernel, Source, source};
use super::{Error, Queue, Real, View, ViewMut};

pub(super) static SOURCE: Source = source!("cross_entropy.cu", None);

pub(super) static KERNELS: [Kernel; 6] = [
    Kernel::new(&SOURCE, "cross_entropy_begin", 256),
    Kernel::new(&SOURCE, "cross_entropy_finish", 1024),
    Kernel::new(&SOURCE, "cross_entropy_forward_f32", 512),
    Kernel::new(&SOURCE, "cross_entropy_forward_bf16", 512),
    Kernel::new(&SOURCE, "cross_entropy_backward_f32", 256),
    Kernel::new(&SOURCE, "cross_entropy_backward_bf16", 256),
];
const BEGIN: usize = 0;
const FINISH: usize = 1;
const FORWARD: usize = 2;
const BACKWARD: usize = 4;

/// Running state per token [T]: see [`crate::cross_entropy::State`].
pub struct State<'a> {
    /// Greatest logit so far; the log-sum-exp after [`finish`].
    pub max: ViewMut<'a, f32>,
    /// Sum of exp(logit - max) so far.
    pub sum: ViewMut<'a, f32>,
    /// The target's logit once its tile has been seen.
    pub target: ViewMut<'a, f32>,
}

impl State<'_> {
    fn check(&self, tokens: usize) {
        let all = self.max.len() == tokens && self.sum.len() == tokens && self.target.len() == tokens;
        assert!(all, "max, sum, target, labels [T]");
    }

    fn addresses(&self) -> (u64, u64, u64) {
        (self.max.address(), self.sum.address(), self.target.address())
    }
}

/// Before any tile.
///
/// # Errors
/// A call fails; so do the other functions.
pub fn begin(queue: &Queue, state: &mut State<'_>) -> Result<(), Error> {
    let tokens = state.max.len();
    state.check(tokens);
    let (max, sum, target) = state.addresses();
    queue.launch(&KERNELS[BEGIN], (blocks(tokens, 256), 1, 1), 0, &[&(tokens as u32), &max, &sum, &target])
}

/// Takes logits [T, tile] of vocabulary first..first+tile into the state. labels [T] are vocabulary ids or
/// [`crate::cross_entropy::NO_TARGET`]. Rows without a target are passed over.
///
/// # Errors
/// See [`begin`].
///
/// # Panics
/// If a view does not have the length of its shape; so do the other functions.
pub fn forward_tile<T: Real>(
    queue: &Queue,
    state: &mut State<'_>,
    logits: View<'_, T>,
    labels: View<'_, u32>,
    first: usize,
    tile: usize,
) -> Result<(), Error> {
    let tokens = labels.len();
    state.check(tokens);
    assert_eq!(logits.len(), tokens * tile, "logits [T, tile]");
    let (max, sum, target) = state.addresses();
    let (first, tile) = (first as u32, tile as u32);
    let args: [&dyn Arg; 7] = [&logits.address(), &labels.address(), &first, &tile, &max, &sum, &target];
    queue.launch(&KERNELS[FORWARD + T::INDEX], (blocks(tokens, 1), 1, 1), 0, &args)
}

/// After the last tile: adds the sum over targets of (lse - target logit) to `loss` (one element), in f64; max becomes
/// the lse.
///
/// # Errors
/// See [`begin`].
pub fn finish(
    queue: &Queue,
    state: &mut State<'_>,
    labels: View<'_, u32>,
    loss: ViewMut<'_, f64>,
) -> Result<(), Error> {
    let tokens = labels.len();
    state.check(tokens);
    assert_eq!(loss.len(), 1, "loss is one element");
    let (max, sum, target) = state.addresses();
    let args: [&dyn Arg; 6] = [&labels.address(), &(tokens as u32), &max, &sum, &target, &loss.address()];
    queue.launch(&KERNELS[FINISH], (1, 1, 1), 0, &args)
}

/// logits [T, tile] -> d logits in place: (softmax - onehot) * scale, zero rows for NO_TARGET. `lse` is the state's max
/// after finish.
///
/// # Errors
/// See [`begin`].
pub fn backward_tile<T: Real>(
    queue: &Queue,
    lse: View<'_, f32>,
    logits: ViewMut<'_, T>,
    labels: View<'_, u32>,
    first: usize,
    tile: usize,
    scale: f32,
) -> Result<(), Error> {
    let tokens = labels.len();
    assert!(logits.len() == tokens * tile && lse.len() == tokens, "logits [T, tile], labels, lse [T]");
    let grid = (blocks(tokens, 1), blocks(tile, 256 * (16 / size_of::<T>())), 1);
    let (logits, labels, lse) = (logits.address(), labels.address(), lse.address());
    let args: [&dyn Arg; 6] = [&logits, &labels, &lse, &(first as u32), &(tile as u32), &scale];
    queue.launch(&KERNELS[BACKWARD + T::INDEX], grid, 0, &args)
}
