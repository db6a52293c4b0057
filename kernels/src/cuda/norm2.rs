//! Sums of squares of leaves, with the bits of [`crate::norm2`].

use super::device::blocks;
use super::sources::{Kernel, Source, source};
use super::{Error, Queue, View, ViewMut};
use crate::norm2::LEAF;

pub(super) static SOURCE: Source = source!("norm2.cu", None);

pub(super) static KERNELS: [Kernel; 1] = [Kernel::new(&SOURCE, "norm2_leaves", 256)];

/// Leaves of a block of 256 threads.
const LEAVES: usize = 16;

/// `leaves[i]` = sum of squares of leaf i of `x`, which begins at a leaf boundary of its tensor group. The sum of all
/// is [`crate::norm2::add_leaves`].
///
/// # Errors
/// A call fails.
///
/// # Panics
/// If there is not one element in `leaves` for each leaf.
pub fn leaf_sums(queue: &Queue, x: View<'_, f32>, leaves: ViewMut<'_, f64>) -> Result<(), Error> {
    assert_eq!(leaves.len(), x.len().div_ceil(LEAF), "a sum for each leaf");
    let grid = (blocks(leaves.len(), LEAVES), 1, 1);
    queue.launch(&KERNELS[0], grid, 0, &[&x.address(), &(x.len() as u64), &leaves.address()])
}
