// What the attention kernels of bf16 operands on tensor cores share: causal, grouped queries, any head dimension up to
// HEAD; zeros fill up the rest. Never an S x S matrix in memory.
//
// Which tokens a token sees is `first` alone: keys first[t]..=t of its own sequence. Within a sequence `first` never
// falls, so that the tiles which a tile sees are a run. A warp owns 16 or 32 rows: of queries in forward and
// backward_q, of keys in backward_kv. The sums of its rows stay in its registers, and there scores turn into the left
// operand of the next product; tiles on the right pass through shared memory, loaded while the ones before are worked
// on. A warp skips tiles that its rows do not see, and masks only those seen in part.
//
// Everything is summed in an order fixed by the shape: a block owns what it writes. For that the backward pass computes
// scores twice, 7 products instead of 5. Partial sums of the gradient of q would take seq / KEYS times its memory, and
// blocks that add to one sum in turn would wait for each other, since the causal triangle gives them unequal work.
#pragma once
#include "attention.cuh"
#include "mma.cuh"

#ifndef HEAD
#error HEAD: the greatest head dimension, a multiple of 16
#endif

constexpr float LOG2_E = 1.4426950408889634f;

// Rows of HEAD bf16 in shared memory, in chunks of 16 bytes. The same chunk of 8 neighbouring rows must lie in all 32
// banks: chunks are exchanged within 128 bytes where a row is a multiple of that, else a chunk's room is between rows.
constexpr bool SWIZZLED = HEAD % 64 == 0;
constexpr u32 PITCH = (HEAD + (SWIZZLED ? 0 : 8)) * 2;

__device__ __forceinline__ u32 chunk_at(u32 row, u32 chunk) {
    return row * PITCH + (SWIZZLED ? chunk ^ (row & 7) : chunk) * 16;
}
// Where in a tile a lane reads the matrices at a row (a multiple of 8) and a chunk (even), from where it does at 0, 0.
__device__ __forceinline__ u32 further(u32 at, u32 row, u32 chunk) {
    return (SWIZZLED ? (at ^ (chunk % 8 * 16)) + chunk / 8 * 128 : at + chunk * 16) + row * PITCH;
}
// Of four matrices: [0-7, 0], [8-15, 0], [0-7, 1], [8-15, 1] of rows and chunks. They are a left operand; two right
// operands, one after the other, if rows are k and the matrices are transposed; two in turn, if rows are n.
__device__ __forceinline__ u32 lane_at() { return chunk_at(threadIdx.x % 16, threadIdx.x / 16 % 2); }

// Lanes that share a row in copies: a power of two that is at least its chunks.
constexpr u32 SPAN = HEAD > 128 ? 32 : HEAD > 64 ? 16 : 8;

// Operands of a head: rows of a token each.
struct Rows {
    const bf16* from;
    // Elements.
    u32 stride;
};

// The rows of a head from `token` on.
template <class T> __device__ __forceinline__ T* rows_of(T* of, u32 token, u32 stride, u32 head, const Shape& s) {
    return of + (u64)token * stride + head * s.dim;
}

// Elements column.. of a row, up to 8, zeros from dim; one by one where 16 bytes cannot be read at once.
__device__ __forceinline__ void load_chunk(u32 (&to)[4], const bf16* from, u32 column, u32 dim, bool wide) {
    if (wide) {
        uint4 x = *reinterpret_cast<const uint4*>(from);
        to[0] = x.x, to[1] = x.y, to[2] = x.z, to[3] = x.w;
        return;
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        u32 at = column + 2 * i;
        u32 low = at < dim ? from[2 * i].bits : 0, high = at + 1 < dim ? from[2 * i + 1].bits : 0;
        to[i] = high << 16 | low;
    }
}

// COUNT rows from `begin` to a tile; rows beyond the sequence and columns beyond dim are zeros.
template <int COUNT, int THREADS>
__device__ __forceinline__ void load_rows(u32 tile, Rows rows, u32 begin, const Shape& s, bool wide) {
    u32 chunk = threadIdx.x % SPAN, row = threadIdx.x / SPAN, column = chunk * 8;
    if (column >= HEAD) return;
    const bf16* from = rows.from + (u64)(begin + row) * rows.stride + column;
    u64 step = (u64)(THREADS / SPAN) * rows.stride;
    u32 left = begin < s.seq && column < s.dim ? s.seq - begin : 0;
    if (wide) {
#pragma unroll
        for (int i = 0; i < COUNT; i += THREADS / SPAN) {
            if (COUNT % (THREADS / SPAN) && row + i >= COUNT) break;
            copy_async<16>(tile + chunk_at(row + i, chunk), from, row + i < left ? 16 : 0);
            from += step;
        }
    } else {
        for (; row < COUNT; row += THREADS / SPAN) {
            u32 eight[4] = {};
            if (row < left) load_chunk(eight, from, column, s.dim, false);
            store_shared(tile + chunk_at(row, chunk), eight);
            from += step;
        }
    }
}

// The rows of a warp, through its own rows of a tile.
template <int M>
__device__ __forceinline__ void store_rows(u32 tile, const float (&from)[M][HEAD / 8][4], bf16* to, u32 stride,
                                           u32 begin, const Shape& s, bool wide) {
    u32 lane = threadIdx.x % 32;
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 2 * M; i++) {
#pragma unroll
        for (int n = 0; n < HEAD / 8; n++) {
            const float* pair = from[i / 2][n] + i % 2 * 2;
            store_shared(tile + chunk_at(8 * i + lane / 4, n) + lane % 4 * 4, narrow_pair(pair[0], pair[1]));
        }
    }
    __syncwarp();
    u32 chunk = lane % SPAN, column = chunk * 8;
    if (column >= s.dim) return;
    for (u32 row = lane / SPAN; row < 16 * M && begin + row < s.seq; row += 32 / SPAN) {
        u32 eight[4];
        load_shared(eight, tile + chunk_at(row, chunk));
        bf16* at = to + (u64)(begin + row) * stride + column;
        if (wide) {
            *reinterpret_cast<uint4*>(at) = make_uint4(eight[0], eight[1], eight[2], eight[3]);
        } else {
#pragma unroll
            for (int i = 0; i < 8; i++) {
                if (column + i < s.dim) at[i].bits = (u16)(eight[i / 2] >> i % 2 * 16);
            }
        }
    }
}

// x [16 M, 8 N] += left [16 M, HEAD] * transpose of right [8 N, HEAD].
template <int M, int N> __device__ __forceinline__ void multiply(float (&x)[M][N][4], u32 left_tile, u32 right_tile) {
#pragma unroll
    for (int k = 0; k < HEAD / 16; k++) {
        u32 left[M][4];
#pragma unroll
        for (int i = 0; i < M; i++) load_matrices(left[i], left_tile + further(lane_at(), 16 * i, 2 * k));
#pragma unroll
        for (int n = 0; n < N; n += 2) {
            u32 right[4];
            load_matrices(right, right_tile + further(lane_at(), 8 * n, 2 * k));
#pragma unroll
            for (int i = 0; i < M; i++) {
                multiply_add(x[i][n], left[i], right[0], right[2]);
                multiply_add(x[i][n + 1], left[i], right[1], right[3]);
            }
        }
    }
}

// held [16 M, HEAD] += x [16 M, 8 N], narrowed, * right [8 N, HEAD].
template <int M, int N>
__device__ __forceinline__ void accumulate(float (&held)[M][HEAD / 8][4], const float (&x)[M][N][4], u32 right_tile) {
#pragma unroll
    for (int k = 0; k < N; k += 2) {
        u32 left[M][4];
#pragma unroll
        for (int i = 0; i < M; i++) {
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const float* pair = x[i][k + j / 2] + j % 2 * 2;
                left[i][j] = narrow_pair(pair[0], pair[1]);
            }
        }
#pragma unroll
        for (int n = 0; n < HEAD / 8; n += 2) {
            u32 right[4];
            load_transposed(right, right_tile + further(lane_at(), 8 * k, n));
#pragma unroll
            for (int i = 0; i < M; i++) {
                multiply_add(held[i][n], left[i], right[0], right[1]);
                multiply_add(held[i][n + 1], left[i], right[2], right[3]);
            }
        }
    }
}

// tanh from exp2; its error is some 2e-7 of 1.
__device__ __forceinline__ float tanh_near(float x) {
    return fmaf(-2.0f, reciprocal_near(1.0f + exp2_near(x * (2.0f * LOG2_E))), 1.0f);
}

extern __shared__ __align__(128) unsigned char shared[];

// The same in all lanes, which the compiler cannot see and keeps in fewer registers once it does.
__device__ __forceinline__ u32 uniform(u32 x) { return __shfl_sync(0xffffffffu, x, 0); }

__device__ __forceinline__ u32 least(u32 a, u32 b) { return a < b ? a : b; }

// 16 M own rows of each warp and 8 N rows on the right, of which STAGES are in shared memory at once. The fastest of
// those tried on an H200 that take at most 99 KiB, which every architecture has; two blocks fit where there is more.
template <int M_, int N_, int STAGES_> struct Tiles {
    static constexpr int M = M_, N = N_, STAGES = STAGES_, WARPS = 4, THREADS = WARPS * 32;
    static constexpr int OWN = WARPS * M * 16, PASS = N * 8;
};
// Blocks that a multiprocessor should have registers for.
constexpr int BLOCKS = 2;

// How scores come from products, and gradients of products from those of scores.
struct Scores {
    float inside, factor;
    bool capped;
    __device__ __forceinline__ explicit Scores(const Shape& s)
        : inside(s.cap > 0.0f ? s.scale / s.cap : 1.0f), factor((s.cap > 0.0f ? s.cap : s.scale) * LOG2_E),
          capped(s.cap > 0.0f) {}

    // A product becomes a share of the cap, and a gradient meets the slope there.
    __device__ __forceinline__ void cap(float& x, float& gradient) const {
        x = tanh_near(x * inside);
        gradient *= fmaf(-x, x, 1.0f);
    }
    // x becomes the probability, from the query's log-sum-exp to base 2; `gradient`, the probability's less delta, that
    // of the scaled product.
    __device__ __forceinline__ void backward(float& x, float& gradient, float lse) const {
        x = exp2_near(fmaf(x, factor, -lse));
        gradient *= x;
    }
};
