//! The generator behind every choice of the simulator: splitmix64, one number of state.

/// A seeded stream of numbers.
#[derive(Clone)]
pub(crate) struct SplitMix64(u64);

impl SplitMix64 {
    pub(crate) fn new(seed: u64) -> SplitMix64 {
        SplitMix64(seed)
    }

    /// A stream of its own for each name: what is drawn from one never shifts another.
    pub(crate) fn named(seed: u64, name: &str) -> SplitMix64 {
        let mut stream = SplitMix64(seed);
        for byte in name.bytes() {
            stream = SplitMix64(stream.draw() ^ u64::from(byte));
        }
        stream
    }

    pub(crate) fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is at least 1. The bias is far below what a test could see.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "nothing is below zero");
        ((u128::from(self.draw()) * u128::from(bound)) >> 64) as u64
    }

    /// True this often.
    pub(crate) fn thousandths(&mut self, thousandths: u32) -> bool {
        self.below(1000) < u64::from(thousandths)
    }

    /// One of them.
    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}
