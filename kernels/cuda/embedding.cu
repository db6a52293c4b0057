// Rows of the embedding table, given piece by piece in element order: kernels/src/embedding.rs.
#include "common.cuh"

// Where row `id` and the piece first..first+len overlap: columns begin..end of the row.
__device__ __forceinline__ bool overlap(u32 id, u32 hidden, u64 first, u64 len, u32& begin, u32& end) {
    u64 row = (u64)id * hidden;
    u64 from = row > first ? row : first;
    u64 to = row + hidden < first + len ? row + hidden : first + len;
    if (from >= to) return false;
    begin = (u32)(from - row);
    end = (u32)(to - row);
    return true;
}

// A block copies what the piece w holds of one token's row.
template <class T>
__device__ __forceinline__ void gather(const u32* ids, u32 hidden, u64 first, const T* w, u64 len, T* out) {
    constexpr int N = Wide<T>::N;
    u32 id = ids[blockIdx.x], begin, end;
    if (!overlap(id, hidden, first, len, begin, end)) return;
    T* to = out + (u64)blockIdx.x * hidden;
    // The row's place in the piece; begins before the piece where the piece cuts the row.
    i64 row = (i64)((u64)id * hidden) - (i64)first;
    bool wide = hidden % N == 0 && first % N == 0 && begin % N == 0 && end % N == 0 && aligned(w, out);
    if (wide) {
        for (u32 c = begin + threadIdx.x * N; c < end; c += blockDim.x * N) {
            *reinterpret_cast<uint4*>(to + c) = *reinterpret_cast<const uint4*>(w + (row + c));
        }
    } else {
        for (u32 c = begin + threadIdx.x; c < end; c += blockDim.x) to[c] = w[row + c];
    }
}

KERNEL(128) embedding_gather_f32(const u32* ids, u32 hidden, u64 first, const float* w, u64 len, float* out) {
    gather(ids, hidden, first, w, len, out);
}
KERNEL(128) embedding_gather_bf16(const u32* ids, u32 hidden, u64 first, const bf16* w, u64 len, bf16* out) {
    gather(ids, hidden, first, w, len, out);
}

// Tokens in order of their id, equal ids in token order: ids[i] stands at places starts[i]..starts[i + 1] of `order`.
// A block adds the rows of one id for 128 columns, in token order, to the piece dw. `tokens` of them bound all indices.
template <class T>
__device__ __forceinline__ void scatter(const u32* ids, const u32* starts, const u32* order, u32 tokens, u32 hidden,
                                        u64 first, const T* dx, float* dw, u64 len) {
    u32 id = ids[blockIdx.x], begin, end;
    if (!overlap(id, hidden, first, len, begin, end)) return;
    u32 c = blockIdx.y * 128 + threadIdx.x;
    if (c < begin || c >= end) return;
    float* to = dw + ((i64)((u64)id * hidden) - (i64)first + c);
    float sum = *to;
    u32 last = min(starts[blockIdx.x + 1], tokens);
#pragma unroll 4
    for (u32 i = starts[blockIdx.x]; i < last; i++) sum += widen(dx[(u64)min(order[i], tokens - 1) * hidden + c]);
    *to = sum;
}

KERNEL(128) embedding_scatter_f32(const u32* ids, const u32* starts, const u32* order, u32 tokens, u32 hidden,
                                  u64 first, const float* dx, float* dw, u64 len) {
    scatter(ids, starts, order, tokens, hidden, first, dx, dw, len);
}
KERNEL(128) embedding_scatter_bf16(const u32* ids, const u32* starts, const u32* order, u32 tokens, u32 hidden,
                                   u64 first, const bf16* dx, float* dw, u64 len) {
    scatter(ids, starts, order, tokens, hidden, first, dx, dw, len);
}
