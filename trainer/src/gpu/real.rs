//! Types of weights and activations, and how a master weight becomes one.

use mt_kernels::cuda::{Error, Queue, Real, View, ViewMut, split};

/// A type of weights and activations.
pub(super) trait Number: Real {
    /// Whether it takes both planes of a master weight.
    const BOTH_PLANES: bool;

    /// Weights of their planes; without the low one, which only some types take.
    fn join(work: &Queue, hi: View<'_, u16>, lo: Option<View<'_, i16>>, to: ViewMut<'_, Self>) -> Result<(), Error>;

    /// Its value.
    fn widen(self) -> f32;
}

impl Number for u16 {
    const BOTH_PLANES: bool = false;

    fn join(work: &Queue, hi: View<'_, u16>, _: Option<View<'_, i16>>, mut to: ViewMut<'_, u16>) -> Result<(), Error> {
        to.copy_from(work, hi)
    }

    fn widen(self) -> f32 {
        f32::from_bits(u32::from(self) << 16)
    }
}

impl Number for f32 {
    const BOTH_PLANES: bool = true;

    fn join(work: &Queue, hi: View<'_, u16>, lo: Option<View<'_, i16>>, to: ViewMut<'_, f32>) -> Result<(), Error> {
        split::join(work, hi, lo.expect("an f32 weight has both planes"), to)
    }

    fn widen(self) -> f32 {
        self
    }
}
