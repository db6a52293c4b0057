//! Joining and splitting the planes of master weights, with the bits of [`crate::split`].

use super::device::blocks;
use super::sources::{Kernel, Source, source};
use super::{Error, Queue, View, ViewMut};

pub(super) static SOURCE: Source = source!("split.cu", None);

pub(super) static KERNELS: [Kernel; 2] =
    [Kernel::new(&SOURCE, "split_join", 256), Kernel::new(&SOURCE, "split_split", 256)];

/// Elements of a block.
const BLOCK: usize = 4 * 256;

/// `w[i]` = the weight of the pair `hi[i]`, `lo[i]`.
///
/// # Errors
/// A call fails; so does [`split`].
///
/// # Panics
/// If the views differ in length; so does [`split`].
pub fn join(queue: &Queue, hi: View<'_, u16>, lo: View<'_, i16>, w: ViewMut<'_, f32>) -> Result<(), Error> {
    assert!(hi.len() == w.len() && lo.len() == w.len(), "views of one length");
    let grid = (blocks(w.len(), BLOCK), 1, 1);
    queue.launch(&KERNELS[0], grid, 0, &[&hi.address(), &lo.address(), &w.address(), &(w.len() as u64)])
}

/// Inverse of `join`. `first_bad` (one element) becomes the least index of a weight that the planes cannot hold, if
/// that is less than what stands there.
///
/// # Errors
/// See [`join`].
pub fn split(
    queue: &Queue,
    w: View<'_, f32>,
    hi: ViewMut<'_, u16>,
    lo: ViewMut<'_, i16>,
    first_bad: ViewMut<'_, u64>,
) -> Result<(), Error> {
    assert!(hi.len() == w.len() && lo.len() == w.len(), "views of one length");
    assert_eq!(first_bad.len(), 1, "first_bad is one element");
    let (n, grid) = (w.len() as u64, (blocks(w.len(), BLOCK), 1, 1));
    let (w, hi, lo) = (w.address(), hi.address(), lo.address());
    queue.launch(&KERNELS[1], grid, 0, &[&w, &hi, &lo, &n, &first_bad.address()])
}
