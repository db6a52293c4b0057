// RMSNorm over the last dimension. Sums of a row in f32: each thread adds its elements in order, then a tree over the
// threads. Narrow rows take a warp each, wide ones a block of eight warps. Rows lie in groups of `heads`, one after the
// other, and groups begin `stride` elements apart: the heads of a token's row, or, with one in a group, plain rows.
#include "common.cuh"
#include "columns.cuh"

constexpr int THREADS = 256;
// Rows whose parts of the weight's gradient a group of threads adds up.
constexpr int ROWS = 16;

__device__ __forceinline__ u64 place(u32 row, u32 columns, u32 heads, u32 stride) {
    return (u64)(row / heads) * stride + row % heads * columns;
}

// GROUP threads work on a row: a warp, or the block.
template <int GROUP> __device__ __forceinline__ float group_sum(float x) {
    return GROUP == 32 ? warp_sum(x) : block_sum<THREADS / 32>(x);
}

template <class T, int N, int GROUP>
__device__ __forceinline__ void forward_row(const T* x, const T* w, float eps, T* y, float* rstd, u32 columns) {
    u32 lane = threadIdx.x % GROUP;
    float sum = 0.0f;
    for (u32 c = lane * N; c < columns; c += GROUP * N) {
        float a[N];
        load(a, x + c);
#pragma unroll
        for (int j = 0; j < N; j++) sum = fmaf(a[j], a[j], sum);
    }
    float r = __frcp_rn(__fsqrt_rn(group_sum<GROUP>(sum) / (float)columns + eps));
    for (u32 c = lane * N; c < columns; c += GROUP * N) {
        float a[N], b[N];
        load(a, x + c);
        load(b, w + c);
#pragma unroll
        for (int j = 0; j < N; j++) a[j] = a[j] * r * b[j];
        store(y + c, a);
    }
    if (lane == 0) *rstd = r;
}

template <class T, int GROUP>
__device__ __forceinline__ void forward(const T* x, const T* w, float eps, T* y, float* rstd, u32 rows, u32 columns,
                                        u32 heads, u32 stride) {
    constexpr int N = Wide<T>::N;
    u32 row = blockIdx.x * (THREADS / GROUP) + threadIdx.x / GROUP;
    if (row >= rows) return;
    u64 at = place(row, columns, heads, stride);
    if (columns % N == 0 && stride % N == 0 && aligned(x, w, y)) {
        forward_row<T, N, GROUP>(x + at, w, eps, y + at, rstd + row, columns);
    } else {
        forward_row<T, 1, GROUP>(x + at, w, eps, y + at, rstd + row, columns);
    }
}

// y [R,C], rstd [R] of x [R,C], w [C]
#define FORWARD(name, T, GROUP)                                                                                       \
    KERNEL(THREADS)                                                                                                   \
    name(const T* x, const T* w, float eps, T* y, float* rstd, u32 rows, u32 columns, u32 heads, u32 stride) {        \
        forward<T, GROUP>(x, w, eps, y, rstd, rows, columns, heads, stride);                                          \
    }
FORWARD(rmsnorm_forward_narrow_f32, float, 32)
FORWARD(rmsnorm_forward_narrow_bf16, bf16, 32)
FORWARD(rmsnorm_forward_wide_f32, float, THREADS)
FORWARD(rmsnorm_forward_wide_bf16, bf16, THREADS)

// dx = rstd * (w dy - x * rstd^2 * mean(w dy x)); dw[c] += dy x rstd, in shared memory.
template <class T, int N, int GROUP>
__device__ __forceinline__ void backward_row(const T* dy, const T* x, const T* w, float rstd, T* dx, int add, float* dw,
                                             u32 columns) {
    u32 lane = threadIdx.x % GROUP;
    float sum = 0.0f;
    for (u32 c = lane * N; c < columns; c += GROUP * N) {
        float d[N], a[N], b[N];
        load(d, dy + c);
        load(a, x + c);
        load(b, w + c);
#pragma unroll
        for (int j = 0; j < N; j++) sum = fmaf(d[j] * b[j], a[j], sum);
    }
    float factor = group_sum<GROUP>(sum) / (float)columns * rstd * rstd;
    for (u32 c = lane * N; c < columns; c += GROUP * N) {
        float d[N], a[N], b[N], to[N], part[N];
        load(d, dy + c);
        load(a, x + c);
        load(b, w + c);
        load(part, dw + c);
        if (add) load(to, dx + c);
#pragma unroll
        for (int j = 0; j < N; j++) {
            float value = rstd * fmaf(-factor, a[j], b[j] * d[j]);
            to[j] = add ? to[j] + value : value;
            part[j] = fmaf(d[j], a[j] * rstd, part[j]);
        }
        store(dx + c, to);
        store(dw + c, part);
    }
}

// The dynamic shared memory holds [groups, columns] floats. A group's threads add to their own columns only.
template <class T, int GROUP>
__device__ __forceinline__ void backward(const T* dy, const T* x, const T* w, const float* rstd, T* dx, int add,
                                         float* partial, u32 rows, u32 columns, u32 heads, u32 stride) {
    extern __shared__ __align__(16) float dw[];
    constexpr int N = Wide<T>::N, GROUPS = THREADS / GROUP;
    for (u32 i = threadIdx.x; i < GROUPS * columns; i += THREADS) dw[i] = 0.0f;
    __syncthreads();
    u32 group = threadIdx.x / GROUP;
    u32 begin = (blockIdx.x * GROUPS + group) * ROWS;
    u32 end = begin + ROWS < rows ? begin + ROWS : rows;
    bool wide = columns % N == 0 && stride % N == 0 && aligned(dy, x, w, dx);
    for (u32 row = begin; row < end; row++) {
        u64 at = place(row, columns, heads, stride);
        if (wide) {
            backward_row<T, N, GROUP>(dy + at, x + at, w, rstd[row], dx + at, add, dw + group * columns, columns);
        } else {
            backward_row<T, 1, GROUP>(dy + at, x + at, w, rstd[row], dx + at, add, dw + group * columns, columns);
        }
    }
    __syncthreads();
    for (u32 c = threadIdx.x; c < columns; c += THREADS) {
        float sum = dw[c];
        for (u32 g = 1; g < GROUPS; g++) sum += dw[g * columns + c];
        partial[(u64)blockIdx.x * columns + c] = sum;
    }
}

// dx [R,C] (added to or overwritten; it may be dy) and partial [blocks, C] of dw.
#define BACKWARD(name, T, GROUP)                                                                                      \
    KERNEL(THREADS)                                                                                                   \
    name(const T* dy, const T* x, const T* w, const float* rstd, T* dx, int add, float* partial, u32 rows,            \
         u32 columns, u32 heads, u32 stride) {                                                                        \
        backward<T, GROUP>(dy, x, w, rstd, dx, add, partial, rows, columns, heads, stride);                           \
    }
BACKWARD(rmsnorm_backward_narrow_f32, float, 32)
BACKWARD(rmsnorm_backward_narrow_bf16, bf16, 32)
BACKWARD(rmsnorm_backward_wide_f32, float, THREADS)
BACKWARD(rmsnorm_backward_wide_bf16, bf16, THREADS)

KERNEL(256) rmsnorm_finish(const float* partial, u32 blocks, u32 columns, float* dw) {
    finish_columns(partial, blocks, columns, dw, 1);
}
