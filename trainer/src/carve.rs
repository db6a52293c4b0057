//! Cutting one allocation into slices that begin on cache lines.

/// Elements of a cache line.
const LINE: usize = 16;

/// Elements that a part of `n` elements occupies: whole cache lines.
pub(crate) fn padded(n: usize) -> usize {
    n.next_multiple_of(LINE)
}

/// What is left of a slice.
pub(crate) struct Carve<'a> {
    rest: &'a mut [f32],
}

impl<'a> Carve<'a> {
    /// Cuts from the start of `slice`.
    pub(crate) fn new(slice: &'a mut [f32]) -> Carve<'a> {
        Carve { rest: slice }
    }

    /// The next `n` elements. Panics if fewer are left.
    pub(crate) fn take(&mut self, n: usize) -> &'a mut [f32] {
        let rest = std::mem::take(&mut self.rest);
        let (part, rest) = rest.split_at_mut(padded(n));
        self.rest = rest;
        &mut part[..n]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_disjoint_and_begin_on_lines() {
        let mut slice = [0.0; 64];
        let mut carve = Carve::new(&mut slice);
        let (a, b, c) = (carve.take(3), carve.take(16), carve.take(17));
        a.fill(1.0);
        b.fill(2.0);
        c.fill(3.0);
        assert_eq!(
            (slice[2], slice[3], slice[16], slice[31], slice[32], slice[48], slice[49]),
            (1., 0., 2., 2., 3., 3., 0.)
        );
    }
}
