//! The checksum of pages and of the store's own records: XXH3-64 with seed 0. It finds torn, lost, misplaced and rotten
//! data; it is no defence against somebody who wants to deceive.

use twox_hash::XxHash3_64;

/// The checksum that the store keeps of a page: XXH3-64 of the whole slice with seed 0. The SIMD path is picked at run
/// time; the value does not depend on it.
pub fn page_checksum(bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot(bytes)
}

#[cfg(test)]
mod tests {
    use super::page_checksum;

    /// The value is part of the format on disk: reference values of the published algorithm.
    #[test]
    fn reference_values() {
        assert_eq!(page_checksum(b""), 0x2d06_8005_38d3_94c2);
        assert_eq!(page_checksum(b"a"), 0xe6c6_32b6_1e96_4e1f);
        assert_eq!(page_checksum(b"abc"), 0x78af_5f94_892f_3950);
    }

    #[test]
    fn every_bit_counts() {
        let mut page: Vec<u8> = (0..4096u32).map(|i| (i * 7) as u8).collect();
        let good = page_checksum(&page);
        for bit in (0..4096 * 8).step_by(if cfg!(miri) { 4_099 } else { 97 }) {
            page[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(page_checksum(&page), good, "bit {bit}");
            page[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
