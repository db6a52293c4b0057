// Attention of f32 operands in tiles, without tensor cores: causal, grouped queries, any head dimension up to HEAD.
// Never an S x S matrix in memory; backward computes the probabilities again from the log-sum-exp.
//
// Which tokens a token sees is `first` alone: keys first[t]..=t of its own sequence. Within a sequence `first` never
// falls, so that the tiles which a tile sees are a run. Everything is summed in an order fixed by the shape: a block
// owns what it writes.
#include "attention.cuh"

#ifndef HEAD
#error HEAD: the greatest head dimension, a multiple of 32
#endif

constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;
// Queries and keys of a tile: four tiles of operands fit the shared memory of every processor.
constexpr int TILE = HEAD > 128 ? 16 : 32;
// One more than HEAD, so that a column of a tile lies in 32 banks.
constexpr int PITCH = HEAD + 1;
constexpr int HELD = TILE * HEAD / THREADS;

// A tile of operands [TILE, dim]; rows beyond the sequence and columns beyond dim are zeros.
__device__ __forceinline__ void load_tile(float* to, const float* from, u32 begin, u32 seq, u32 dim, u32 stride) {
    for (u32 i = threadIdx.x; i < TILE * HEAD; i += THREADS) {
        u32 row = i / HEAD, column = i % HEAD;
        bool inside = begin + row < seq && column < dim;
        to[row * PITCH + column] = inside ? from[(u64)(begin + row) * stride + column] : 0.0f;
    }
}

__device__ __forceinline__ float dot(const float* a, const float* b) {
    float sum = 0.0f;
#pragma unroll 8
    for (int i = 0; i < HEAD; i++) sum = fmaf(a[i], b[i], sum);
    return sum;
}

// The score of a scaled product.
__device__ __forceinline__ float capped(float x, float cap) { return cap > 0.0f ? cap * tanhf(x / cap) : x; }
// Its slope, from the score.
__device__ __forceinline__ float slope(float score, float cap) {
    float t = cap > 0.0f ? score / cap : 0.0f;
    return 1.0f - t * t;
}

// held[j] += sum over k of a[row, k] * b[k, column], for the elements (row, column) of this thread.
__device__ __forceinline__ void accumulate(float (&held)[HELD], const float* a, u32 row_step, u32 k_step,
                                           const float* b) {
#pragma unroll
    for (int j = 0; j < HELD; j++) {
        u32 i = threadIdx.x + j * THREADS, row = i / HEAD, column = i % HEAD;
#pragma unroll 4
        for (int k = 0; k < TILE; k++) held[j] = fmaf(a[row * row_step + k * k_step], b[k * PITCH + column], held[j]);
    }
}

__device__ __forceinline__ void store_tile(float* to, const float (&held)[HELD], float factor, u32 begin, u32 seq,
                                           u32 dim, u32 stride) {
#pragma unroll
    for (int j = 0; j < HELD; j++) {
        u32 i = threadIdx.x + j * THREADS, row = i / HEAD, column = i % HEAD;
        if (begin + row < seq && column < dim) to[(u64)(begin + row) * stride + column] = held[j] * factor;
    }
}

// blockIdx: tile of queries, query head, sequence.
KERNEL(THREADS, 2)
attention_forward_f32(Shape s, const float* q, const float* k, const float* v, const u32* first, float* out,
                      float* lse) {
    extern __shared__ float shared[];
    float* queries = shared;
    float* keys = queries + TILE * PITCH;
    float* values = keys + TILE * PITCH;
    float* scores = values + TILE * PITCH;
    __shared__ float row_max[TILE], row_sum[TILE], row_factor[TILE];
    u32 begin = blockIdx.x * TILE, head = blockIdx.y;
    u64 token = (u64)blockIdx.z * s.seq;
    q += token * s.q_stride + head * s.dim;
    k += token * s.kv_stride + head / s.group * s.dim;
    v += token * s.kv_stride + head / s.group * s.dim;
    first += token;
    load_tile(queries, q, begin, s.seq, s.dim, s.q_stride);
    if (threadIdx.x < TILE) {
        row_max[threadIdx.x] = -INFINITY_F;
        row_sum[threadIdx.x] = 0.0f;
    }
    float held[HELD] = {};
    u32 end = begin + TILE < s.seq ? begin + TILE : s.seq;
    for (u32 at = first[begin] / TILE * TILE; at < end; at += TILE) {
        __syncthreads();
        load_tile(keys, k, at, s.seq, s.dim, s.kv_stride);
        load_tile(values, v, at, s.seq, s.dim, s.kv_stride);
        __syncthreads();
        for (u32 i = threadIdx.x; i < TILE * TILE; i += THREADS) {
            u32 row = i / TILE, column = i % TILE, query = begin + row, key = at + column;
            bool seen = query < s.seq && key <= query && key >= first[query];
            float x = dot(queries + row * PITCH, keys + column * PITCH) * s.scale;
            scores[row * (TILE + 1) + column] = seen ? capped(x, s.cap) : -INFINITY_F;
        }
        __syncthreads();
        for (u32 row = threadIdx.x / 32; row < TILE; row += WARPS) {
            u32 lane = threadIdx.x % 32;
            float x = lane < TILE ? scores[row * (TILE + 1) + lane] : -INFINITY_F;
            float before = row_max[row];
            float max = fmaxf(before, warp_max(x));
            float p = x == -INFINITY_F ? 0.0f : expf(x - max);
            if (lane < TILE) scores[row * (TILE + 1) + lane] = p;
            float sum = warp_sum(p);
            float factor = max == -INFINITY_F ? 1.0f : expf(before - max);
            __syncwarp();
            if (lane == 0) {
                row_max[row] = max;
                row_sum[row] = fmaf(row_sum[row], factor, sum);
                row_factor[row] = factor;
            }
        }
        __syncthreads();
#pragma unroll
        for (int j = 0; j < HELD; j++) held[j] *= row_factor[(threadIdx.x + j * THREADS) / HEAD];
        accumulate(held, scores, TILE + 1, 1, values);
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < HELD; j++) held[j] /= row_sum[(threadIdx.x + j * THREADS) / HEAD];
    store_tile(out + token * s.out_stride + head * s.dim, held, 1.0f, begin, s.seq, s.dim, s.out_stride);
    if (threadIdx.x < TILE && begin + threadIdx.x < s.seq) {
        lse[(token + begin + threadIdx.x) * s.heads + head] = row_max[threadIdx.x] + logf(row_sum[threadIdx.x]);
    }
}

// delta [T,N] = sum of dout * out over a head. A warp takes a head of a token.
KERNEL(THREADS, 2)
attention_delta_f32(Shape s, u64 tokens, const float* out, const float* dout, float* to) {
    u64 i = global_thread() / 32;
    if (i >= tokens * s.heads) return;
    u64 at = i / s.heads * s.out_stride + i % s.heads * s.dim;
    float sum = 0.0f;
    for (u32 c = threadIdx.x % 32; c < s.dim; c += 32) sum = fmaf(out[at + c], dout[at + c], sum);
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) to[i] = sum;
}

// What the backward kernels have in shared memory: tiles of operands, the probabilities and their gradients.
struct Tiles {
    float *queries, *keys, *values, *douts, *p, *ds;
};

__device__ __forceinline__ Tiles tiles_of(float* shared) {
    float* scores = shared + 4 * TILE * PITCH;
    return {shared, shared + TILE * PITCH, shared + 2 * TILE * PITCH, shared + 3 * TILE * PITCH,
            scores, scores + TILE * (TILE + 1)};
}

// Probabilities and the gradients of the scaled products of a tile, from its operands.
__device__ __forceinline__ void scores_backward(Shape s, Tiles tiles, const u32* first, const float* lse,
                                                const float* delta, u32 head, u32 begin, u32 at) {
    for (u32 i = threadIdx.x; i < TILE * TILE; i += THREADS) {
        u32 row = i / TILE, column = i % TILE, query = begin + row, key = at + column;
        bool seen = query < s.seq && key <= query && key >= first[query];
        float probability = 0.0f, gradient = 0.0f;
        if (seen) {
            float x = capped(dot(tiles.queries + row * PITCH, tiles.keys + column * PITCH) * s.scale, s.cap);
            probability = expf(x - lse[query * s.heads + head]);
            float dp = dot(tiles.douts + row * PITCH, tiles.values + column * PITCH);
            gradient = probability * (dp - delta[query * s.heads + head]) * slope(x, s.cap);
        }
        tiles.p[row * (TILE + 1) + column] = probability;
        tiles.ds[row * (TILE + 1) + column] = gradient;
    }
}

// blockIdx: tile of queries, query head, sequence.
KERNEL(THREADS, 2)
attention_backward_q_f32(Shape s, const float* q, const float* k, const float* v, const u32* first,
                         const float* dout, const float* lse, const float* delta, float* dq) {
    extern __shared__ float shared[];
    Tiles tiles = tiles_of(shared);
    u32 begin = blockIdx.x * TILE, head = blockIdx.y;
    u64 token = (u64)blockIdx.z * s.seq;
    q += token * s.q_stride + head * s.dim;
    k += token * s.kv_stride + head / s.group * s.dim;
    v += token * s.kv_stride + head / s.group * s.dim;
    first += token;
    lse += token * s.heads;
    delta += token * s.heads;
    load_tile(tiles.queries, q, begin, s.seq, s.dim, s.q_stride);
    load_tile(tiles.douts, dout + token * s.out_stride + head * s.dim, begin, s.seq, s.dim, s.out_stride);
    float held[HELD] = {};
    u32 end = begin + TILE < s.seq ? begin + TILE : s.seq;
    for (u32 at = first[begin] / TILE * TILE; at < end; at += TILE) {
        __syncthreads();
        load_tile(tiles.keys, k, at, s.seq, s.dim, s.kv_stride);
        load_tile(tiles.values, v, at, s.seq, s.dim, s.kv_stride);
        __syncthreads();
        scores_backward(s, tiles, first, lse, delta, head, begin, at);
        __syncthreads();
        accumulate(held, tiles.ds, TILE + 1, 1, tiles.keys);
    }
    store_tile(dq + token * s.q_stride + head * s.dim, held, s.scale, begin, s.seq, s.dim, s.q_stride);
}

// blockIdx: tile of keys, key/value head, sequence. Query heads of the group in order, tiles of queries in order.
KERNEL(THREADS, 2)
attention_backward_kv_f32(Shape s, const float* q, const float* k, const float* v, const u32* first,
                          const float* dout, const float* lse, const float* delta, float* dk, float* dv) {
    extern __shared__ float shared[];
    Tiles tiles = tiles_of(shared);
    u32 at = blockIdx.x * TILE, kv_head = blockIdx.y;
    u64 token = (u64)blockIdx.z * s.seq;
    k += token * s.kv_stride + kv_head * s.dim;
    v += token * s.kv_stride + kv_head * s.dim;
    first += token;
    lse += token * s.heads;
    delta += token * s.heads;
    load_tile(tiles.keys, k, at, s.seq, s.dim, s.kv_stride);
    load_tile(tiles.values, v, at, s.seq, s.dim, s.kv_stride);
    float held_k[HELD] = {}, held_v[HELD] = {};
    for (u32 head = kv_head * s.group; head < (kv_head + 1) * s.group; head++) {
        const float* from_q = q + token * s.q_stride + head * s.dim;
        const float* from_dout = dout + token * s.out_stride + head * s.dim;
        // The first query of a tile sees the earliest keys: once it begins after this tile, so do all that follow.
        for (u32 begin = at; begin < s.seq && first[begin] < at + TILE; begin += TILE) {
            __syncthreads();
            load_tile(tiles.queries, from_q, begin, s.seq, s.dim, s.q_stride);
            load_tile(tiles.douts, from_dout, begin, s.seq, s.dim, s.out_stride);
            __syncthreads();
            scores_backward(s, tiles, first, lse, delta, head, begin, at);
            __syncthreads();
            accumulate(held_v, tiles.p, 1, TILE + 1, tiles.douts);
            accumulate(held_k, tiles.ds, 1, TILE + 1, tiles.queries);
        }
    }
    store_tile(dk + token * s.kv_stride + kv_head * s.dim, held_k, s.scale, at, s.seq, s.dim, s.kv_stride);
    store_tile(dv + token * s.kv_stride + kv_head * s.dim, held_v, 1.0f, at, s.seq, s.dim, s.kv_stride);
}
