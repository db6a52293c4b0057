//! Sum of squares in f64 over leaves of 1,024 elements.
/// Elements of a leaf.
pub const LEAF: usize = 1024;
/// Sum of squares: leaf sums in element order (f64), then the leaves in order (f64). `x` begins at a leaf boundary of its tensor group.
/// `carry` is the sum so far; the result continues it, so a long array may be given in several calls cut at leaf boundaries: same bits.
pub fn sum_squares(cpu: &crate::Cpu, carry: f64, x: &[f32]) -> f64 { let _ = (cpu, carry, x); todo!() }
