//! Plain references: no tiles, no SIMD, in f64 where the kernel is f32.
