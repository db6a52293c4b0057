//! Which rows a step takes.
//!
//! The rows of all epochs form one endless sequence: epoch 0's rows, epoch 1's rows, ... Step t (from 1) takes the
//! `batch` rows from (t - 1) * batch on, across epoch ends where it comes to that. So what a step trains on is a
//! function of seed, number of rows, batch and step, and a resumed run needs nothing but the step's number.
//!
//! Shuffled, an epoch is a permutation of the rows that is computed row by row in constant memory: the row numbers are
//! laid out in a grid of about sqrt(n) by sqrt(n) cells; each round turns every column by an amount drawn for
//! it, then every row. Cells beyond the last row are walked through until the walk ends on a row.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// Rounds of turning columns and rows. Four of each already pass the tests; the rest is margin, and costs nothing that
/// could be seen beside a training step.
const ROUNDS: usize = 8;

/// The order of rows in each epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowOrder {
    rows: u64,
    seed: u64,
    shuffle: bool,
}

impl RowOrder {
    /// Order of `rows` rows (at least one). Without `shuffle` every epoch takes them as they lie and `seed` plays no
    /// part.
    pub fn new(rows: u64, seed: u64, shuffle: bool) -> RowOrder {
        assert!(rows > 0, "no rows");
        RowOrder { rows, seed, shuffle }
    }

    /// Rows of an epoch.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// The rows of step `step` (counted from 1), as (epoch, row), both counted from 0.
    pub fn rows_of_step(&self, step: u64, batch: u64) -> Vec<(u64, u64)> {
        assert!(step > 0, "steps count from 1");
        let first = (step - 1).checked_mul(batch).expect("fewer than 2^64 rows in all");
        let mut out = Vec::with_capacity(batch as usize);
        let mut permutation: Option<(u64, Permutation)> = None;
        for index in first..first + batch {
            let (epoch, place) = (index / self.rows, index % self.rows);
            if !self.shuffle {
                out.push((epoch, place));
                continue;
            }
            if permutation.as_ref().is_none_or(|(e, _)| *e != epoch) {
                permutation = Some((epoch, Permutation::new(self.rows, self.seed, epoch)));
            }
            let (_, p) = permutation.as_ref().expect("set above");
            out.push((epoch, p.at(place)));
        }
        out
    }

    /// Steps of `batch` rows that take every row at least `epochs` times. The last step is filled up with
    /// rows of the epoch after.
    pub fn steps_for_epochs(&self, epochs: u64, batch: u64) -> u128 {
        (u128::from(epochs) * u128::from(self.rows)).div_ceil(u128::from(batch))
    }
}

/// A permutation of 0..n, a function of seed and epoch.
struct Permutation {
    n: u64,
    /// Cells of a grid row; the grid has `high` rows of `low` cells, at least n in all.
    low: u64,
    high: u64,
    keys: [(u64, u64); ROUNDS],
}

impl Permutation {
    fn new(n: u64, seed: u64, epoch: u64) -> Permutation {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        bytes[8..16].copy_from_slice(&epoch.to_le_bytes());
        bytes[16..24].copy_from_slice(b"rows\0\0\0\0");
        let mut rng = ChaCha8Rng::from_seed(bytes);
        let keys = std::array::from_fn(|_| (rng.next_u64(), rng.next_u64()));
        let root = n.isqrt();
        let high = if root * root == n { root } else { root + 1 };
        Permutation { n, low: n.div_ceil(high), high, keys }
    }

    /// Where `place` goes. Terminates: turning is a bijection of the grid's cells, so the walk from a row comes back to
    /// a row.
    fn at(&self, place: u64) -> u64 {
        let mut cell = place;
        loop {
            cell = self.turn(cell);
            if cell < self.n {
                return cell;
            }
        }
    }

    fn turn(&self, cell: u64) -> u64 {
        let (mut y, mut x) = (cell / self.low, cell % self.low);
        for (down, across) in self.keys {
            y = (y + mix(down ^ mix(x)) % self.high) % self.high;
            x = (x + mix(across ^ mix(y)) % self.low) % self.low;
        }
        y * self.low + x
    }
}

/// Spreads every bit of `x` over all bits (multiplications and shifts, a bijection of 64-bit words).
fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests;
