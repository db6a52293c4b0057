//! Number formats of checkpoint files: exact widening to f32 and rounding back.
//!
//! What it is not: the state's own two planes, which are `mt_kernels::split`'s.
//!
//! Invariants: widening is exact for every bit pattern, subnormals, zeros of both signs and infinities included;
//! narrowing rounds to nearest, ties to even.

use half::slice::HalfFloatSliceExt;
use serde::{Deserialize, Serialize};

/// A format that weights are read from and written in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Dtype {
    /// 16 bits, 5 of exponent.
    F16,
    /// The upper half of an f32.
    #[serde(rename = "BF16")]
    Bf16,
    /// IEEE single precision.
    F32,
}

impl Dtype {
    /// The format of this name in a safetensors header; None for one that weights are not read from.
    pub fn from_name(name: &str) -> Option<Dtype> {
        match name {
            "F16" => Some(Dtype::F16),
            "BF16" => Some(Dtype::Bf16),
            "F32" => Some(Dtype::F32),
            _ => None,
        }
    }

    /// Name in a safetensors header.
    pub fn name(self) -> &'static str {
        match self {
            Dtype::F16 => "F16",
            Dtype::Bf16 => "BF16",
            Dtype::F32 => "F32",
        }
    }

    /// Name in `config.json`.
    pub fn config_name(self) -> &'static str {
        match self {
            Dtype::F16 => "float16",
            Dtype::Bf16 => "bfloat16",
            Dtype::F32 => "float32",
        }
    }

    /// Bytes of an element.
    pub fn bytes(self) -> usize {
        match self {
            Dtype::F16 | Dtype::Bf16 => 2,
            Dtype::F32 => 4,
        }
    }

    /// Widens little-endian `bytes` to `out`, exactly. `bytes` holds `out.len()` elements.
    pub(crate) fn widen(self, bytes: &[u8], out: &mut [f32]) {
        assert_eq!(bytes.len(), out.len() * self.bytes(), "as many bytes as elements");
        match self {
            Dtype::F32 => bytemuck::cast_slice_mut(out).copy_from_slice(bytes),
            Dtype::Bf16 => {
                for (value, pair) in out.iter_mut().zip(bytes.chunks_exact(2)) {
                    *value = f32::from_bits(u32::from(u16::from_le_bytes([pair[0], pair[1]])) << 16);
                }
            }
            Dtype::F16 => {
                let mut block = [half::f16::ZERO; BLOCK];
                for (out, bytes) in out.chunks_mut(BLOCK).zip(bytes.chunks(2 * BLOCK)) {
                    let halves = &mut block[..out.len()];
                    bytemuck::cast_slice_mut(halves).copy_from_slice(bytes);
                    halves.convert_to_f32_slice(out);
                }
            }
        }
    }

    /// Appends `values`, rounded to nearest even, little-endian.
    ///
    /// # Errors
    /// The index of the first value that has no finite neighbour in this format.
    pub(crate) fn narrow(self, values: &[f32], bytes: &mut Vec<u8>) -> Result<(), usize> {
        match self {
            Dtype::F32 => bytes.extend_from_slice(bytemuck::cast_slice(values)),
            Dtype::Bf16 => bytes.extend(values.iter().flat_map(|v| bf16_nearest_even(*v).to_le_bytes())),
            Dtype::F16 => {
                let mut block = [half::f16::ZERO; BLOCK];
                for (index, values) in values.chunks(BLOCK).enumerate() {
                    let halves = &mut block[..values.len()];
                    halves.convert_from_f32_slice(values);
                    if let Some(at) = halves.iter().position(|h| !h.is_finite()) {
                        return Err(index * BLOCK + at);
                    }
                    bytes.extend_from_slice(bytemuck::cast_slice(halves));
                }
            }
        }
        Ok(())
    }
}

/// Elements converted at a time where a conversion needs a buffer of its own.
const BLOCK: usize = 1_024;

// Files are little-endian, and whole slices are copied as they are.
const _: () = assert!(cfg!(target_endian = "little"), "checkpoints are read on little-endian machines");

/// The bf16 nearest to a weight. Weights are below 0x7F7F8000 in magnitude, so that none rounds to infinity.
fn bf16_nearest_even(value: f32) -> u16 {
    let bits = value.to_bits();
    ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) as u16
}

/// Bits of an element of a format that safetensors headers know, whether or not weights are read from it.
pub(crate) fn header_bits(name: &str) -> Option<u64> {
    match name {
        "F4" => Some(4),
        "F6_E2M3" | "F6_E3M2" => Some(6),
        "BOOL" | "U8" | "I8" | "F8_E5M2" | "F8_E4M3" | "F8_E8M0" | "F8_E4M3FNUZ" | "F8_E5M2FNUZ" => Some(8),
        "I16" | "U16" | "F16" | "BF16" => Some(16),
        "I32" | "U32" | "F32" => Some(32),
        "I64" | "U64" | "F64" | "C64" => Some(64),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widening_and_narrowing_give_back_every_finite_16_bit_pattern() {
        for dtype in [Dtype::F16, Dtype::Bf16] {
            let finite = |bits: &u16| match dtype {
                Dtype::F16 => bits & 0x7C00 != 0x7C00,
                _ => bits & 0x7F80 != 0x7F80,
            };
            let patterns: Vec<u8> = (0..=u16::MAX).filter(finite).flat_map(u16::to_le_bytes).collect();
            let mut wide = vec![0.0; patterns.len() / 2];
            dtype.widen(&patterns, &mut wide);
            let mut back = Vec::new();
            dtype.narrow(&wide, &mut back).unwrap();
            assert!(back == patterns, "{dtype:?}");
        }
    }

    #[test]
    fn widening_is_exact_for_subnormals_zeros_and_the_largest() {
        let mut out = [1.0; 5];
        let halves = [0x0001_u16, 0x8000, 0x7BFF, 0x03FF, 0xFBFF];
        Dtype::F16.widen(bytemuck::cast_slice(&halves), &mut out);
        assert_eq!(out, [2.0_f32.powi(-24), -0.0, 65_504.0, 1_023.0 * 2.0_f32.powi(-24), -65_504.0]);
        assert!(out[1].is_sign_negative());
    }

    #[test]
    fn bf16_rounds_ties_to_even() {
        let cases = [(0x3F80_8000, 0x3F80), (0x3F81_8000, 0x3F82), (0x3F80_8001, 0x3F81), (0x3F80_7FFF, 0x3F80)];
        for (bits, expected) in cases {
            let mut bytes = Vec::new();
            Dtype::Bf16.narrow(&[f32::from_bits(bits), f32::from_bits(bits | 1 << 31)], &mut bytes).unwrap();
            let halves: Vec<u16> = bytes.chunks(2).map(|b| u16::from_le_bytes([b[0], b[1]])).collect();
            assert_eq!(halves, [expected, expected | 1 << 15], "{bits:x}");
        }
    }

    #[test]
    fn f16_overflow_names_the_element() {
        let mut values = vec![1.0_f32; 3_000];
        values[2_100] = 65_519.0; // Rounds down to the largest, 65,504.
        assert_eq!(Dtype::F16.narrow(&values, &mut Vec::new()), Ok(()));
        values[2_500] = -65_520.0; // The tie goes to even, which is infinity.
        assert_eq!(Dtype::F16.narrow(&values, &mut Vec::new()), Err(2_500));
    }
}
