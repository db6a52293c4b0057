//! The generator behind every choice of the simulator: splitmix64, one number of state.

/// A seeded stream of numbers.
pub(super) struct SplitMix64(u64);

impl SplitMix64 {
    pub(super) fn new(seed: u64) -> SplitMix64 {
        SplitMix64(seed)
    }

    pub(super) fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is at least 1. The bias is far below what a test could see.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "nothing is below zero");
        ((u128::from(self.draw()) * u128::from(bound)) >> 64) as u64
    }
}
