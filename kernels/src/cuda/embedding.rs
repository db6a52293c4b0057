//! Rows of the embedding table, given piece by piece in element order, as [`crate::embedding`].

use super::device::{Arg, blocks};
use super::sources::{Kernel, Source, source};
use super::{Error, Queue, Real, View, ViewMut};

pub(super) static SOURCE: Source = source!("embedding.cu", None);

pub(super) static KERNELS: [Kernel; 4] = [
    Kernel::new(&SOURCE, "embedding_gather_f32", COLUMNS),
    Kernel::new(&SOURCE, "embedding_gather_bf16", COLUMNS),
    Kernel::new(&SOURCE, "embedding_scatter_f32", COLUMNS),
    Kernel::new(&SOURCE, "embedding_scatter_bf16", COLUMNS),
];
const GATHER: usize = 0;
const SCATTER: usize = 2;

/// Threads of a block, and columns of a block of a scatter.
const COLUMNS: u32 = 128;

/// Copies what the piece `w` = elements first..first+w.len() of the table [V,H] holds of each token's row into out
/// [T,H]. Pieces may cut rows.
///
/// # Errors
/// A call fails; so does [`scatter_add_piece`].
///
/// # Panics
/// If `out` is not [T,H].
pub fn gather_piece<T: Real>(
    queue: &Queue,
    ids: View<'_, u32>,
    hidden: usize,
    first: usize,
    w: View<'_, T>,
    out: ViewMut<'_, T>,
) -> Result<(), Error> {
    assert_eq!(out.len(), ids.len() * hidden, "out [T,H]");
    let grid = (blocks(ids.len(), 1), 1, 1);
    let (hidden, first, len) = (hidden as u32, first as u64, w.len() as u64);
    let (ids, w, out) = (ids.address(), w.address(), out.address());
    let args: [&dyn Arg; 6] = [&ids, &hidden, &first, &w, &len, &out];
    queue.launch(&KERNELS[GATHER + T::INDEX], grid, 0, &args)
}

/// Tokens by their ids: which ids there are, in order, and the tokens of each, in order. With it each row of the
/// table's gradient is added to by one block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Order {
    /// Distinct ids, ascending.
    pub ids: Vec<u32>,
    /// Tokens of `ids[i]` stand at starts[i]..starts[i + 1] of `tokens`.
    pub starts: Vec<u32>,
    /// All tokens.
    pub tokens: Vec<u32>,
}

impl Order {
    /// Of the ids of a micro-batch.
    ///
    /// # Panics
    /// If there are 2^32 tokens or more.
    pub fn new(ids: &[u32]) -> Order {
        let mut tokens: Vec<u32> = (0..u32::try_from(ids.len()).expect("fewer than 2^32 tokens")).collect();
        tokens.sort_by_key(|token| ids[*token as usize]);
        let mut order = Order { ids: Vec::new(), starts: Vec::new(), tokens };
        for (place, token) in order.tokens.iter().enumerate() {
            let id = ids[*token as usize];
            if order.ids.last() != Some(&id) {
                order.ids.push(id);
                order.starts.push(place as u32);
            }
        }
        order.starts.push(order.tokens.len() as u32);
        order
    }

    /// Appends ids, starts and tokens to what is uploaded: 2 T' + T + 1 numbers for T' distinct ids.
    pub fn append(&self, to: &mut Vec<u32>) {
        to.extend(self.ids.iter().chain(&self.starts).chain(&self.tokens));
    }
}

/// An [`Order`] on the device. A wrong one gives a wrong sum, never an access out of bounds: the kernel compares.
#[derive(Clone, Copy)]
pub struct DeviceOrder<'a> {
    ids: View<'a, u32>,
    starts: View<'a, u32>,
    tokens: View<'a, u32>,
}

impl<'a> DeviceOrder<'a> {
    /// Of `distinct` ids, as [`Order::append`] laid it out.
    ///
    /// # Panics
    /// If the view is too short for that.
    pub fn new(numbers: View<'a, u32>, distinct: usize) -> DeviceOrder<'a> {
        let (starts, tokens) = (distinct, 2 * distinct + 1);
        DeviceOrder {
            ids: numbers.slice(0..starts),
            starts: numbers.slice(starts..tokens),
            tokens: numbers.slice(tokens..numbers.len()),
        }
    }
}

/// Adds each token's dx row [T,H] to the piece of the table gradient `dw` = elements first..first+dw.len(), in token
/// order.
///
/// # Errors
/// See [`gather_piece`].
///
/// # Panics
/// If `dx` is not [T,H].
pub fn scatter_add_piece<T: Real>(
    queue: &Queue,
    order: DeviceOrder<'_>,
    hidden: usize,
    first: usize,
    dx: View<'_, T>,
    dw: ViewMut<'_, f32>,
) -> Result<(), Error> {
    assert_eq!(dx.len(), order.tokens.len() * hidden, "dx [T,H]");
    let grid = (blocks(order.ids.len(), 1), blocks(hidden, COLUMNS as usize), 1);
    let (ids, starts, tokens) = (order.ids.address(), order.starts.address(), order.tokens.address());
    let (count, hidden, first, len) = (order.tokens.len() as u32, hidden as u32, first as u64, dw.len() as u64);
    let args: [&dyn Arg; 9] = [&ids, &starts, &tokens, &count, &hidden, &first, &dx.address(), &dw.address(), &len];
    queue.launch(&KERNELS[SCATTER + T::INDEX], grid, 0, &args)
}

#[cfg(test)]
mod tests {
    use super::Order;

    #[test]
    fn tokens_of_an_id_stay_in_order() {
        let order = Order::new(&[7, 2, 7, 9, 2, 7]);
        assert_eq!(order.ids, [2, 7, 9]);
        assert_eq!(order.starts, [0, 2, 5, 6]);
        assert_eq!(order.tokens, [1, 4, 0, 2, 5, 3]);
        assert_eq!(Order::new(&[]), Order { starts: vec![0], ..Order::default() });
    }
}
