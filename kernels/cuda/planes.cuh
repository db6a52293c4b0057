// The two planes of a master weight: see kernels/src/split.rs.
#pragma once

__device__ __forceinline__ float join(u16 hi, i16 lo) { return __uint_as_float(((u32)hi << 16) + (u32)(int)lo); }

__device__ __forceinline__ void split(float w, u16& hi, i16& lo) {
    u32 bits = __float_as_uint(w);
    hi = (u16)((bits + 0x8000u) >> 16);
    lo = (i16)bits;
}

// NaN, infinite, or so large that hi would be infinite.
__device__ __forceinline__ bool unrepresentable(float w) { return (__float_as_uint(w) & 0x7fffffffu) >= 0x7f7f8000u; }

// Whether four elements of a segment of a plane can be loaded at once.
__device__ __forceinline__ bool planes_aligned(const void* f32, const void* hi, const void* lo) {
    return (((u64)f32 & 15) | ((u64)hi & 7) | ((u64)lo & 7)) == 0;
}
