// Additions, SwiGLU and casts, elementwise. Each thread takes a pack of 16 bytes of its widest operand.
#include "common.cuh"

template <class T> __device__ __forceinline__ void add(T* y, const T* x, u64 n) {
    constexpr int N = Wide<T>::N;
    u64 i = global_thread() * N;
    if (i + N <= n && aligned(y, x)) {
        float a[N], b[N];
        load(a, y + i);
        load(b, x + i);
#pragma unroll
        for (int j = 0; j < N; j++) a[j] += b[j];
        store(y + i, a);
    } else {
        for (int j = 0; j < N && i + j < n; j++) y[i + j] = narrow<T>(widen(y[i + j]) + widen(x[i + j]));
    }
}

// y += x
KERNEL(256) pointwise_add_f32(float* y, const float* x, u64 n) { add(y, x, n); }
KERNEL(256) pointwise_add_bf16(bf16* y, const bf16* x, u64 n) { add(y, x, n); }

template <class To, class From> __device__ __forceinline__ void cast(To* to, const From* from, u64 n) {
    constexpr int N = 4;
    u64 i = global_thread() * N;
    if (i + N <= n && aligned(to, from)) {
        float x[N];
        load(x, from + i);
        store(to + i, x);
    } else {
        for (int j = 0; j < N && i + j < n; j++) to[i + j] = narrow<To>(widen(from[i + j]));
    }
}

KERNEL(256) pointwise_narrow(bf16* to, const float* from, u64 n) { cast(to, from, n); }
KERNEL(256) pointwise_widen(float* to, const bf16* from, u64 n) { cast(to, from, n); }

__device__ __forceinline__ float sigmoid(float x) { return __fdividef(1.0f, 1.0f + expf(-x)); }

// Which pack of a matrix with `columns` columns a thread takes. A block takes 256 packs of one row.
template <int N> struct Place {
    u64 row;
    u32 column;

    __device__ __forceinline__ Place(u32 columns) {
        u32 blocks = (columns + 256 * N - 1) / (256 * N);
        row = blockIdx.x / blocks;
        column = (blockIdx.x % blocks * 256 + threadIdx.x) * N;
    }
};

template <class T>
__device__ __forceinline__ void copy_rows(T* to, const T* from, u32 columns, u32 stride) {
    constexpr int N = Wide<T>::N;
    Place<N> at(columns);
    if (at.column >= columns) return;
    u64 i = at.row * stride + at.column;
    if (columns % N == 0 && stride % N == 0 && aligned(to, from)) {
        *reinterpret_cast<uint4*>(to + i) = *reinterpret_cast<const uint4*>(from + i);
    } else {
        for (u32 j = 0; j < N && at.column + j < columns; j++) to[i + j] = from[i + j];
    }
}

// Rows of both lie `stride` elements apart, of which `columns` are copied.
KERNEL(256) pointwise_copy_rows_f32(float* to, const float* from, u32 columns, u32 stride) {
    copy_rows(to, from, columns, stride);
}
KERNEL(256) pointwise_copy_rows_bf16(bf16* to, const bf16* from, u32 columns, u32 stride) {
    copy_rows(to, from, columns, stride);
}

template <class T, int N>
__device__ __forceinline__ void swiglu_forward_pack(const T* gate, const T* up, T* out) {
    float g[N], u[N];
    load(g, gate);
    load(u, up);
#pragma unroll
    for (int j = 0; j < N; j++) g[j] = g[j] * sigmoid(g[j]) * u[j];
    store(out, g);
}

template <class T>
__device__ __forceinline__ void swiglu_forward(const T* gate, const T* up, T* out, u32 columns, u32 stride) {
    constexpr int N = Wide<T>::N;
    Place<N> at(columns);
    if (at.column >= columns) return;
    u64 in = at.row * stride + at.column, to = at.row * columns + at.column;
    if (columns % N == 0 && stride % N == 0 && aligned(gate, up, out)) {
        swiglu_forward_pack<T, N>(gate + in, up + in, out + to);
    } else {
        for (u32 j = 0; j < N && at.column + j < columns; j++) {
            swiglu_forward_pack<T, 1>(gate + in + j, up + in + j, out + to + j);
        }
    }
}

// out [rows, columns] = silu(gate) * up; rows of gate and up lie `stride` apart.
KERNEL(256) pointwise_swiglu_f32(const float* gate, const float* up, float* out, u32 columns, u32 stride) {
    swiglu_forward(gate, up, out, columns, stride);
}
KERNEL(256) pointwise_swiglu_bf16(const bf16* gate, const bf16* up, bf16* out, u32 columns, u32 stride) {
    swiglu_forward(gate, up, out, columns, stride);
}

template <class T, int N>
__device__ __forceinline__ void swiglu_backward_pack(const T* dout, const T* gate, const T* up, T* dgate, T* dup) {
    float d[N], g[N], u[N];
    load(d, dout);
    load(g, gate);
    load(u, up);
#pragma unroll
    for (int j = 0; j < N; j++) {
        float s = sigmoid(g[j]);
        float slope = s * fmaf(g[j], 1.0f - s, 1.0f);
        u[j] = d[j] * u[j] * slope;
        d[j] = d[j] * (g[j] * s);
    }
    store(dgate, u);
    store(dup, d);
}

template <class T>
__device__ __forceinline__ void swiglu_backward(const T* dout, const T* gate, const T* up, T* dgate, T* dup,
                                                u32 columns, u32 stride) {
    constexpr int N = Wide<T>::N;
    Place<N> at(columns);
    if (at.column >= columns) return;
    u64 in = at.row * stride + at.column, from = at.row * columns + at.column;
    if (columns % N == 0 && stride % N == 0 && aligned(dout, gate, up, dgate, dup)) {
        swiglu_backward_pack<T, N>(dout + from, gate + in, up + in, dgate + in, dup + in);
    } else {
        for (u32 j = 0; j < N && at.column + j < columns; j++) {
            swiglu_backward_pack<T, 1>(dout + from + j, gate + in + j, up + in + j, dgate + in + j, dup + in + j);
        }
    }
}

// dgate and dup may be gate and up.
KERNEL(256) pointwise_swiglu_backward_f32(const float* dout, const float* gate, const float* up, float* dgate,
                                          float* dup, u32 columns, u32 stride) {
    swiglu_backward(dout, gate, up, dgate, dup, columns, stride);
}
KERNEL(256) pointwise_swiglu_backward_bf16(const bf16* dout, const bf16* gate, const bf16* up, bf16* dgate,
                                           bf16* dup, u32 columns, u32 stride) {
    swiglu_backward(dout, gate, up, dgate, dup, columns, stride);
}
