// Joining and splitting the planes of master weights: kernels/src/split.rs, bit for bit.
#include "common.cuh"
#include "planes.cuh"

constexpr int N = 4;

template <int N> __device__ __forceinline__ void join_pack(const u16* hi, const i16* lo, float* w) {
    Pack<u16, N> h = *reinterpret_cast<const Pack<u16, N>*>(hi);
    Pack<i16, N> l = *reinterpret_cast<const Pack<i16, N>*>(lo);
    Pack<float, N> out;
#pragma unroll
    for (int i = 0; i < N; i++) out.at[i] = join(h.at[i], l.at[i]);
    *reinterpret_cast<Pack<float, N>*>(w) = out;
}

KERNEL(256) split_join(const u16* hi, const i16* lo, float* w, u64 n) {
    u64 i = global_thread() * N;
    if (i + N <= n && planes_aligned(w, hi, lo)) {
        join_pack<N>(hi + i, lo + i, w + i);
    } else {
        for (int j = 0; j < N && i + j < n; j++) join_pack<1>(hi + i + j, lo + i + j, w + i + j);
    }
}

template <int N> __device__ __forceinline__ void split_pack(const float* w, u16* hi, i16* lo, u64 at, u64* first_bad) {
    Pack<float, N> in = *reinterpret_cast<const Pack<float, N>*>(w);
    Pack<u16, N> h;
    Pack<i16, N> l;
#pragma unroll
    for (int i = 0; i < N; i++) {
        split(in.at[i], h.at[i], l.at[i]);
        if (unrepresentable(in.at[i])) atomicMin(first_bad, at + i);
    }
    *reinterpret_cast<Pack<u16, N>*>(hi) = h;
    *reinterpret_cast<Pack<i16, N>*>(lo) = l;
}

// first_bad: the least index of a weight that the planes cannot hold, if less than what stands there.
KERNEL(256) split_split(const float* w, u16* hi, i16* lo, u64 n, u64* first_bad) {
    u64 i = global_thread() * N;
    if (i + N <= n && planes_aligned(w, hi, lo)) {
        split_pack<N>(w + i, hi + i, lo + i, i, first_bad);
    } else {
        for (int j = 0; j < N && i + j < n; j++) split_pack<1>(w + i + j, hi + i + j, lo + i + j, i + j, first_bad);
    }
}
