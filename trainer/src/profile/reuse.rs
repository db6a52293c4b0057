//! Reuse distance of a product's weights: the bytes that a step touches between two uses of them, which decide whether
//! a cache still holds them.
//!
//! Micro-batches pass a layer one after the other, and a tile of the head too: each but the first meets weights that
//! the one before it used. Between lie the weights of the whole layer, in backward their gradients with them, and what
//! its products read and write. SmolLM2-135M (14 MB a layer) at 256 tokens on two cores of a server: a step's forward
//! at the rates of products whose operands lie 25 MB apart 6.3 s, 44 MB apart 6.8 s, 64 MB and more apart 7.4 s.

use super::compute::Product;
use crate::block::Dims;

/// The distance from which on no cache is taken to hold anything.
pub const FAR: usize = 64 << 20;

/// Distances of the weights of projections that micro-batches pass one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reuse {
    forward: usize,
    backward: usize,
}

impl Reuse {
    /// Of weights that are met for the first time.
    pub const NONE: Reuse = Reuse { forward: FAR, backward: FAR };

    /// Of a layer that micro-batches of so many tokens pass.
    pub fn of_layer(dims: &Dims, tokens: usize) -> Reuse {
        let (hidden, query, key, mlp) = (dims.hidden, dims.query(), dims.key(), dims.mlp);
        let attention = [(hidden, query), (hidden, key), (hidden, key), (query, hidden)];
        Reuse::of(&[&attention[..], &[(hidden, mlp), (hidden, mlp), (mlp, hidden)]].concat(), tokens)
    }

    /// Of a tile of `rows` rows of the head.
    pub fn of_tile(hidden: usize, rows: usize, tokens: usize) -> Reuse {
        Reuse::of(&[(hidden, rows)], tokens)
    }

    /// `projections`: inputs and outputs of each.
    fn of(projections: &[(usize, usize)], tokens: usize) -> Reuse {
        let weights: usize = projections.iter().map(|(inputs, outputs)| inputs * outputs).sum();
        let passed: usize = projections.iter().map(|(inputs, outputs)| tokens * (inputs + outputs)).sum();
        let bytes = |floats: usize| (floats * size_of::<f32>()).min(FAR);
        // Backward: weights and their gradients; what came in, what comes back, and what goes on.
        Reuse { forward: bytes(weights + passed), backward: bytes(2 * weights + passed * 3 / 2) }
    }

    /// Bytes between two uses by a product of this kind.
    pub fn bytes(self, product: Product) -> usize {
        match product {
            Product::Forward => self.forward,
            Product::BackwardInput | Product::BackwardWeight => self.backward,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_of_a_small_layer_are_near_and_those_of_a_large_one_far() {
        let dims = |hidden, heads, kv_heads, mlp| Dims {
            hidden,
            heads,
            kv_heads,
            head_dim: 64,
            mlp,
            eps: 1e-5,
            qk_norm: false,
        };
        let small = Reuse::of_layer(&dims(576, 9, 3, 1_536), 256);
        assert_eq!(small.bytes(Product::Forward), 4 * (3_538_944 + 256 * (1_152 + 2 * 768 + 1_152 + 3 * 2_112)));
        assert!(small.bytes(Product::BackwardWeight) > small.bytes(Product::Forward));
        assert_eq!(Reuse::of_layer(&dims(4_096, 64, 8, 14_336), 256), Reuse::NONE);
        assert!(Reuse::of_tile(576, 2_048, 256).bytes(Product::BackwardInput) < small.bytes(Product::Forward));
    }
}
