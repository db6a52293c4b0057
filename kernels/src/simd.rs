//! Which instruction set a kernel's inner loop is compiled for, chosen at run time.
//!
//! A kernel writes its inner loop once, as an `#[inline(always)]` function on slices, and calls it through
//! [`with_simd!`]; the loop is then compiled three times and vectorised by the compiler. It is not a vector library:
//! no kernel names a register.
//!
//! Invariant: all levels give the same bits. The compiler neither reassociates nor contracts float operations, a fused
//! multiply-add happens exactly where `mul_add` is written (and is correctly rounded everywhere), and loops that
//! reduce do so over a number of lanes written in the source.
#![allow(unsafe_code)]

/// Bytes of a cache line.
#[cfg(target_arch = "x86_64")]
const LINE: usize = 64;

/// Instruction sets, from least to most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// What the target guarantees.
    Plain,
    /// AVX2 and FMA.
    Avx2,
    /// AVX-512 F, VL, BW and DQ.
    Avx512,
}

impl Level {
    /// The best level of this processor.
    pub(crate) fn detect() -> Level {
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
            let avx512 = is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq");
            match (avx2, avx512) {
                (true, true) => return Level::Avx512,
                (true, false) => return Level::Avx2,
                _ => {}
            }
        }
        Level::Plain
    }

    /// All levels that this processor has, for tests.
    #[cfg(test)]
    pub(crate) fn all() -> Vec<Level> {
        [Level::Plain, Level::Avx2, Level::Avx512].into_iter().filter(|l| *l <= Level::detect()).collect()
    }
}

/// A [`Level`] that this processor is known to have. Only this file makes one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Detected(Level);

impl Detected {
    /// The best level of this processor.
    pub(crate) fn best() -> Detected {
        Detected(Level::detect())
    }

    /// `level`, or the best below it that the processor has.
    #[cfg(test)]
    pub(crate) fn at_most(level: Level) -> Detected {
        Detected(level.min(Level::detect()))
    }
}

/// Runs `body` compiled for `level`. `body` should be an `#[inline(always)]` closure: see [`with_simd!`].
#[inline]
pub(crate) fn run<R>(level: Detected, body: impl FnOnce() -> R) -> R {
    match level.0 {
        // SAFETY: a `Detected` holds a level only after `Level::detect` saw its features on this processor.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { run_avx512(body) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => unsafe { run_avx2(body) },
        _ => body(),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
fn run_avx512<R>(body: impl FnOnce() -> R) -> R {
    body()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn run_avx2<R>(body: impl FnOnce() -> R) -> R {
    body()
}

/// Asks for what will be read or written soon. A hint: it changes no bits.
#[inline(always)]
#[cfg_attr(not(target_arch = "x86_64"), allow(unused_variables))]
pub(crate) fn prefetch<T>(soon: &[T]) {
    #[cfg(target_arch = "x86_64")]
    for line in (0..size_of_val(soon)).step_by(LINE) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: every x86-64 processor has the instruction, which faults for no address; this one is in the slice.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(soon.as_ptr().cast::<i8>().wrapping_add(line)) }
    }
}

/// `with_simd!(level, f(args))`: evaluates the call with `f` compiled for `level`. `f` must be `#[inline(always)]`.
macro_rules! with_simd {
    ($level:expr, $body:expr) => {
        $crate::simd::run($level, {
            #[inline(always)]
            || $body
        })
    };
}
pub(crate) use with_simd;
