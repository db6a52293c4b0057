//! Types of weights and activations, and how a master weight becomes one.

use mt_kernels::cuda::pieces::{self, Piece};
use mt_kernels::cuda::{Error, Queue, Real, View, ViewMut};
use std::ops::Range;

/// Planes of master weights; the low one where the type takes it.
#[derive(Clone, Copy)]
pub(super) struct Planes<'a> {
    pub(super) hi: View<'a, u16>,
    pub(super) lo: Option<View<'a, i16>>,
}

impl Planes<'_> {
    /// A part of them.
    pub(super) fn slice(&self, range: Range<usize>) -> Planes<'_> {
        Planes { hi: self.hi.slice(range.clone()), lo: self.lo.map(|lo| lo.slice(range)) }
    }
}

/// A type of weights and activations.
pub(super) trait Number: Real {
    /// Whether it takes both planes of a master weight.
    const BOTH_PLANES: bool;

    /// Weights of their planes, piece by piece into a buffer; without the low plane, which only some types take.
    fn join(
        work: &Queue,
        planes: Planes<'_>,
        pieces: impl Iterator<Item = Piece>,
        to: ViewMut<'_, Self>,
    ) -> Result<(), Error>;

    /// Its value.
    fn widen(self) -> f32;
}

impl Number for u16 {
    const BOTH_PLANES: bool = false;

    fn join(
        work: &Queue,
        planes: Planes<'_>,
        pieces: impl Iterator<Item = Piece>,
        to: ViewMut<'_, u16>,
    ) -> Result<(), Error> {
        pieces::join_high(work, planes.hi, pieces, to)
    }

    fn widen(self) -> f32 {
        f32::from_bits(u32::from(self) << 16)
    }
}

impl Number for f32 {
    const BOTH_PLANES: bool = true;

    fn join(
        work: &Queue,
        planes: Planes<'_>,
        pieces: impl Iterator<Item = Piece>,
        to: ViewMut<'_, f32>,
    ) -> Result<(), Error> {
        pieces::join(work, planes.hi, planes.lo.expect("an f32 weight has both planes"), pieces, to)
    }

    fn widen(self) -> f32 {
        self
    }
}
