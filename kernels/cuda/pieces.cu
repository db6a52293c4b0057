// A chunk of elements that lie one after the other, and a buffer in which they lie in pieces: chunks are put there, and
// taken from there with the sums of squares of kernels/src/norm2.rs, bit for bit.
#include "common.cuh"
#include "planes.cuh"

constexpr int MOST = 24;
constexpr int LEAF = 1024;
constexpr int LANES = 16;
// Elements that a lane holds at a time.
constexpr int HELD = 32;

// Piece k is elements first[k]..first[k + 1] of the chunk (the last one's end is the chunk's), which begin at place[k]
// of the buffer.
struct Pieces {
    u64 count;
    u64 first[MOST];
    u64 place[MOST];
};

__device__ __forceinline__ u32 find(const Pieces& pieces, u64 i) {
    u32 k = 0;
    while (k + 1 < pieces.count && pieces.first[k + 1] <= i) k++;
    return k;
}

__device__ __forceinline__ u64 place(const Pieces& pieces, u32 k, u64 i) {
    return pieces.place[k] + (i - pieces.first[k]);
}

__device__ __forceinline__ u64 end(const Pieces& pieces, u32 k, u64 n) {
    return k + 1 < pieces.count ? pieces.first[k + 1] : n;
}

// The high plane alone: a bf16. Each thread takes 16 bytes.
KERNEL(256) pieces_join_bf16(const u16* hi, u64 n, const __grid_constant__ Pieces pieces, u16* to) {
    constexpr int N = 8;
    u64 i = global_thread() * N;
    if (i >= n) return;
    u32 k = find(pieces, i);
    u16* target = to + place(pieces, k, i);
    if (i + N <= end(pieces, k, n) && aligned(hi + i, target)) {
        *reinterpret_cast<uint4*>(target) = *reinterpret_cast<const uint4*>(hi + i);
    } else {
        for (u64 j = i; j < i + N && j < n; j++) to[place(pieces, find(pieces, j), j)] = hi[j];
    }
}

// Both planes: an f32.
KERNEL(256) pieces_join_f32(const u16* hi, const i16* lo, u64 n, const __grid_constant__ Pieces pieces, float* to) {
    constexpr int N = 4;
    u64 i = global_thread() * N;
    if (i >= n) return;
    u32 k = find(pieces, i);
    float* target = to + place(pieces, k, i);
    if (i + N <= end(pieces, k, n) && planes_aligned(target, hi + i, lo + i)) {
        Pack<u16, N> h = *reinterpret_cast<const Pack<u16, N>*>(hi + i);
        Pack<i16, N> l = *reinterpret_cast<const Pack<i16, N>*>(lo + i);
        Pack<float, N> out;
#pragma unroll
        for (int j = 0; j < N; j++) out.at[j] = join(h.at[j], l.at[j]);
        *reinterpret_cast<Pack<float, N>*>(target) = out;
    } else {
        for (u64 j = i; j < i + N && j < n; j++) to[place(pieces, find(pieces, j), j)] = join(hi[j], lo[j]);
    }
}

// to[0..n] = the elements of the buffer `from`, to[n..total] = 0; leaves[i], if there is such, = sum of squares of leaf
// i. Sixteen threads a leaf, each one of its lanes; the lanes are folded in halves. The square of an f32 is exact in
// f64, so the fused multiply-add rounds as the separate addition does.
KERNEL(256) pieces_keep(const float* from, u64 n, const __grid_constant__ Pieces pieces, float* to, u64 total,
                        double* leaves) {
    u64 leaf = global_thread() / LANES;
    u32 lane = threadIdx.x % LANES;
    u64 begin = leaf * LEAF, last = begin + LEAF;
    u32 k = find(pieces, begin);
    double sum = 0.0;
    if (last <= n && last <= end(pieces, k, n)) {
        const float* source = from + place(pieces, k, begin) + lane;
        float* target = to + begin + lane;
        for (int part = 0; part < LEAF / LANES; part += HELD) {
            float x[HELD];
#pragma unroll
            for (int j = 0; j < HELD; j++) x[j] = source[(part + j) * LANES];
#pragma unroll
            for (int j = 0; j < HELD; j++) {
                target[(part + j) * LANES] = x[j];
                double value = x[j];
                sum = fma(value, value, sum);
            }
        }
    } else {
        for (u64 i = begin + lane; i < last && i < total; i += LANES) {
            float x = i < n ? from[place(pieces, find(pieces, i), i)] : 0.0f;
            to[i] = x;
            double value = x;
            sum = fma(value, value, sum);
        }
    }
#pragma unroll
    for (int step = LANES / 2; step > 0; step >>= 1) sum += __shfl_down_sync(0xffffffffu, sum, step, LANES);
    if (lane == 0 && begin < n && leaves) leaves[leaf] = sum;
}
