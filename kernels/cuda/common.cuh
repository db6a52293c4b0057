// What all kernels share: names of types, bf16, packs of 16 bytes, reductions in a fixed order.
//
// No header of the CUDA toolkit is included: NVRTC compiles these files on machines that have none. Compiled with
// --fmad=false: a fused multiply-add happens where fmaf is written and nowhere else, so that the bits do not depend on
// the compiler's version.
#pragma once

typedef unsigned short u16;
typedef short i16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

// Threads of a block, and how many blocks a multiprocessor should have room for.
#define KERNEL(...) extern "C" __global__ void __launch_bounds__(__VA_ARGS__)
#define INFINITY_F __int_as_float(0x7f800000)

// A bf16 by its bits.
struct bf16 {
    u16 bits;
};

__device__ __forceinline__ float widen(float x) { return x; }
__device__ __forceinline__ float widen(bf16 x) { return __uint_as_float((u32)x.bits << 16); }

// To nearest, ties to even.
template <class T> __device__ __forceinline__ T narrow(float x);
template <> __device__ __forceinline__ float narrow<float>(float x) { return x; }
template <> __device__ __forceinline__ bf16 narrow<bf16>(float x) {
    bf16 y;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
}

// N elements that are loaded and stored at once, in parts of at most 16 bytes.
template <class T, int N> struct __align__(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Pack {
    T at[N];
};

// Elements of a pack of 16 bytes.
template <class T> struct Wide {
    static constexpr int N = 16 / sizeof(T);
};

template <int N, class T> __device__ __forceinline__ void load(float (&to)[N], const T* from) {
    Pack<T, N> pack = *reinterpret_cast<const Pack<T, N>*>(from);
#pragma unroll
    for (int i = 0; i < N; i++) to[i] = widen(pack.at[i]);
}

template <int N, class T> __device__ __forceinline__ void store(T* to, const float (&from)[N]) {
    Pack<T, N> pack;
#pragma unroll
    for (int i = 0; i < N; i++) pack.at[i] = narrow<T>(from[i]);
    *reinterpret_cast<Pack<T, N>*>(to) = pack;
}

// Whether all pointers are multiples of 16 bytes.
__device__ __forceinline__ bool aligned(const void* a) { return ((u64)a & 15) == 0; }
template <class... P> __device__ __forceinline__ bool aligned(const void* a, P... rest) {
    return aligned(a) && aligned(rest...);
}

__device__ __forceinline__ u64 global_thread() { return (u64)blockIdx.x * blockDim.x + threadIdx.x; }

// Sums and maxima over a warp, the same in all lanes.
__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
    for (int step = 16; step > 0; step >>= 1) x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}
__device__ __forceinline__ double warp_sum(double x) {
#pragma unroll
    for (int step = 16; step > 0; step >>= 1) x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}
__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
    for (int step = 16; step > 0; step >>= 1) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, step));
    return x;
}

// Over a block of WARPS warps, the same in all threads; all threads call it.
template <int WARPS, class T> __device__ __forceinline__ T block_sum(T x) {
    __shared__ T sums[WARPS];
    x = warp_sum(x);
    __syncthreads();
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = x;
    __syncthreads();
    T total = sums[0];
#pragma unroll
    for (int i = 1; i < WARPS; i++) total += sums[i];
    return total;
}
template <int WARPS> __device__ __forceinline__ float block_max(float x) {
    __shared__ float maxima[WARPS];
    x = warp_max(x);
    __syncthreads();
    if (threadIdx.x % 32 == 0) maxima[threadIdx.x / 32] = x;
    __syncthreads();
    float total = maxima[0];
#pragma unroll
    for (int i = 1; i < WARPS; i++) total = fmaxf(total, maxima[i]);
    return total;
}
