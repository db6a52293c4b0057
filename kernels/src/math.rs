//! Scalar building blocks of vectorised loops: an exponential and folds of lanes. All are branch-free and written so
//! that a loop over them vectorises, with the same bits at every instruction set.

/// Lanes of a float reduction: one AVX-512 register, two AVX2 registers.
pub(crate) const LANES: usize = 16;

/// e^x within 2 units in the last place. Results below the least normal number are 0, above the greatest infinity;
/// NaN stays NaN.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    // Adding 1.5 * 2^23 rounds to an integer that then stands in the low bits.
    const ROUND: f32 = 12_582_912.0;
    // ln 2 in two parts; the first has few bits.
    const LN2_HI: f32 = 355.0 / 512.0;
    const LN2_LO: f32 = -2.121_944_4e-4;
    let shifted = x.mul_add(std::f32::consts::LOG2_E, ROUND);
    let n = shifted.to_bits().wrapping_sub(ROUND.to_bits()) as i32;
    let nf = shifted - ROUND;
    let r = nf.mul_add(-LN2_LO, nf.mul_add(-LN2_HI, x));
    // Taylor terms up to r^7: |r| <= ln(2)/2, so the remainder is below 1e-8 relative.
    let mut p = 1.0f32 / 5040.0;
    p = p.mul_add(r, 1.0 / 720.0);
    p = p.mul_add(r, 1.0 / 120.0);
    p = p.mul_add(r, 1.0 / 24.0);
    p = p.mul_add(r, 1.0 / 6.0);
    p = p.mul_add(r, 0.5);
    p = p.mul_add(r * r, r) + 1.0;
    // 2^n in two factors, since n = 128 has no single one.
    let half = n >> 1;
    let a = f32::from_bits((half.wrapping_add(127) as u32) << 23);
    let b = f32::from_bits((n.wrapping_sub(half).wrapping_add(127) as u32) << 23);
    let y = p * a * b;
    let y = if x < -87.336_54 { 0.0 } else { y };
    if x > 88.722_84 { f32::INFINITY } else { y }
}

/// Greater of two, as one instruction: the second if either is NaN.
#[inline(always)]
pub(crate) fn max(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}

/// Sum of the lanes: halves added pairwise.
#[inline(always)]
pub(crate) fn fold(mut lanes: [f32; LANES]) -> f32 {
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            lanes[i] += lanes[i + width];
        }
        width /= 2;
    }
    lanes[0]
}

/// As [`fold`], in f64.
#[inline(always)]
pub(crate) fn fold64(mut lanes: [f64; LANES]) -> f64 {
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            lanes[i] += lanes[i + width];
        }
        width /= 2;
    }
    lanes[0]
}

/// Greatest of the lanes.
#[inline(always)]
pub(crate) fn fold_max(lanes: [f32; LANES]) -> f32 {
    lanes.into_iter().fold(f32::NEG_INFINITY, max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_within_two_ulp() {
        let mut worst = 0f64;
        let mut x = -87.3f32;
        while x < 88.7 {
            let exact = f64::from(x).exp();
            let ulp = f64::from(f32::from_bits((exact as f32).to_bits() + 1)) - f64::from(exact as f32);
            worst = worst.max((f64::from(exp(x)) - exact).abs() / ulp);
            x += 0.000_137;
        }
        assert!(worst < 2.0, "{worst} ulp");
    }

    #[test]
    fn exp_at_the_edges() {
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(-1e30), 0.0);
        assert_eq!(exp(-88.0), 0.0);
        assert_eq!(exp(f32::INFINITY), f32::INFINITY);
        assert_eq!(exp(89.0), f32::INFINITY);
        assert!(exp(88.72).is_finite());
        assert!(exp(f32::NAN).is_nan());
    }

    #[test]
    fn folds_take_every_lane() {
        let lanes: [f32; LANES] = std::array::from_fn(|i| (1 << i) as f32);
        assert_eq!(fold(lanes), 65535.0);
        assert_eq!(fold64(lanes.map(f64::from)), 65535.0);
        assert_eq!(fold_max(lanes), 32768.0);
    }
}
