// Sums of squares of leaves of 1,024 elements: kernels/src/norm2.rs, bit for bit.
#include "common.cuh"

constexpr int LEAF = 1024;
constexpr int LANES = 16;

// leaves[i] = sum of squares of x[1024 i ..]. Sixteen threads a leaf, each one of its lanes; the lanes are folded in
// halves. The square of an f32 is exact in f64, so the fused multiply-add rounds as the separate addition does.
KERNEL(256) norm2_leaves(const float* x, u64 n, double* leaves) {
    u64 leaf = global_thread() / LANES;
    u32 lane = threadIdx.x % LANES;
    u64 begin = leaf * LEAF;
    u64 end = begin + LEAF < n ? begin + LEAF : n;
    double sum = 0.0;
#pragma unroll 16
    for (u64 i = begin + lane; i < end; i += LANES) {
        double value = x[i];
        sum = fma(value, value, sum);
    }
#pragma unroll
    for (int step = LANES / 2; step > 0; step >>= 1) sum += __shfl_down_sync(0xffffffffu, sum, step, LANES);
    if (lane == 0 && begin < n) leaves[leaf] = sum;
}
