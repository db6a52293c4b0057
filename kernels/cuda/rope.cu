// Rotary positions, half-split layout, in place: pairs are i and i + D/2 of a head.
#include "common.cuh"

template <class T, int N>
__device__ __forceinline__ void rotate_pack(T* a, T* b, const float* cos, const float* sin, float sign) {
    float x[N], y[N], c[N], s[N];
    load(x, a);
    load(y, b);
    load(c, cos);
    load(s, sin);
#pragma unroll
    for (int j = 0; j < N; j++) {
        float sine = sign * s[j];
        float first = x[j] * c[j] - y[j] * sine;
        y[j] = y[j] * c[j] + x[j] * sine;
        x[j] = first;
    }
    store(a, x);
    store(b, y);
}

// A block takes a token.
template <class T>
__device__ __forceinline__ void rotate(T* x, const u32* positions, const float* cos, const float* sin, u32 heads,
                                       u32 half, u32 stride, u32 table, float sign) {
    constexpr int N = Wide<T>::N;
    u32 position = positions[blockIdx.x];
    if (position >= table) return;
    x += (u64)blockIdx.x * stride;
    cos += (u64)position * half;
    sin += (u64)position * half;
    if (half % N == 0 && aligned(x, cos, sin)) {
        u32 packs = half / N;
        for (u32 i = threadIdx.x; i < heads * packs; i += blockDim.x) {
            u32 at = i % packs * N;
            T* a = x + i / packs * 2 * half + at;
            rotate_pack<T, N>(a, a + half, cos + at, sin + at, sign);
        }
    } else {
        for (u32 i = threadIdx.x; i < heads * half; i += blockDim.x) {
            u32 at = i % half;
            T* a = x + i / half * 2 * half + at;
            rotate_pack<T, 1>(a, a + half, cos + at, sin + at, sign);
        }
    }
}

// x: tokens whose heads [heads, 2 half] begin `stride` elements apart. cos, sin [table, half]. sign -1 rotates back.
KERNEL(256) rope_f32(float* x, const u32* positions, const float* cos, const float* sin, u32 heads, u32 half,
                     u32 stride, u32 table, float sign) {
    rotate(x, positions, cos, sin, heads, half, stride, table, sign);
}
KERNEL(256) rope_bf16(bf16* x, const u32* positions, const float* cos, const float* sin, u32 heads, u32 half,
                      u32 stride, u32 table, float sign) {
    rotate(x, positions, cos, sin, heads, half, stride, table, sign);
}
