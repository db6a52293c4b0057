// Matrix instructions of a warp (sm_80 and later), asynchronous copies, and accesses to shared memory by its own 32-bit
// addresses.
//
// Fragments of a warp, lane l with g = l / 4 and t = l % 4: a left operand [16,16] lies in 4 registers, of rows g,
// g + 8, g, g + 8 and columns 2t, 2t, 2t + 8, 2t + 8 and the next; a right operand [16,8] in 2, of rows 2t and 2t + 8
// and the next, column g; a sum [16,8] in 4 floats, of rows g, g, g + 8, g + 8 and columns 2t and 2t + 1 in turn. So
// two neighbouring sums are, narrowed, a left operand.
#pragma once
#include "common.cuh"

__device__ __forceinline__ u32 shared_address(const void* at) { return (u32)__cvta_generic_to_shared(at); }

// Four matrices [8,8]: lane l gives the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void load_matrices(u32 (&to)[4], u32 from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(from));
}
__device__ __forceinline__ void load_transposed(u32 (&to)[4], u32 from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(from));
}

// sum += left * right.
__device__ __forceinline__ void multiply_add(float (&sum)[4], const u32 (&left)[4], u32 right0, u32 right1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right0), "r"(right1));
}

// Two bf16, the first in the lower half.
__device__ __forceinline__ u32 narrow_pair(float low, float high) {
    u32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

// Within 2 units in the last place; 0 below 2^-126.
__device__ __forceinline__ float exp2_near(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__device__ __forceinline__ float reciprocal_near(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// BYTES to shared memory, of which those beyond `bytes` are zeros and not read.
template <int BYTES> __device__ __forceinline__ void copy_async(u32 to, const void* from, u32 bytes) {
    if constexpr (BYTES == 16) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(BYTES), "r"(bytes)
                     : "memory");
    }
}
// Waits for this thread's copies.
__device__ __forceinline__ void copies_wait() { asm volatile("cp.async.wait_all;" ::: "memory"); }

__device__ __forceinline__ void store_shared(u32 to, u32 x) {
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(x) : "memory");
}
__device__ __forceinline__ void store_shared(u32 to, const u32 (&x)[4]) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3])
                 : "memory");
}
__device__ __forceinline__ u32 load_shared(u32 from) {
    u32 x;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(x) : "r"(from) : "memory");
    return x;
}
__device__ __forceinline__ void load_shared(u32 (&to)[4], u32 from) {
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(from)
                 : "memory");
}
__device__ __forceinline__ void load_shared(float (&to)[2], u32 from) {
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(to[0]), "=f"(to[1]) : "r"(from) : "memory");
}
