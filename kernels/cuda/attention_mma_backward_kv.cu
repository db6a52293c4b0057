// Attention of bf16 operands on tensor cores, backward to the keys and values: a warp owns 16 keys, whose scores are
// held transposed.
#include "attention_mma.cuh"

using ToKv = Tiles<1, HEAD <= 128 ? 8 : 4, HEAD <= 128 ? 2 : 1>;

// The last query that sees a key, by halving: `first` never falls. For keys beyond the sequence its last token.
__device__ __forceinline__ u32 last_query(u32 key, const u32* first, u32 seq) {
    u32 sees = least(key, seq - 1), not_yet = seq;
    if (first[seq - 1] <= key) return seq - 1;
    while (not_yet - sees > 1) {
        u32 middle = sees + (not_yet - sees) / 2;
        (first[middle] <= key ? sees : not_yet) = middle;
    }
    return sees;
}

// The gradients of k, of v, or of both.
template <bool K, bool V>
__device__ __forceinline__ void backward_kv(const Shape& s, u32 tile, const bf16* q, const bf16* k, const bf16* v,
                                            const u32* first, const bf16* dout, const float* lse, const float* delta,
                                            bf16* dk, bf16* dv) {
    constexpr int M = ToKv::M, N = ToKv::N, THREADS = ToKv::THREADS, KEYS = ToKv::OWN, QUERIES = ToKv::PASS;
    constexpr int STAGES = ToKv::STAGES;
    u32 keys = shared_address(shared), values = keys + KEYS * PITCH, queries = values + KEYS * PITCH;
    u32 douts = queries + STAGES * QUERIES * PITCH, stats = douts + STAGES * QUERIES * PITCH;
    u32 until = stats + STAGES * 2 * QUERIES * 4;
    u32 kv_heads = s.heads / s.group, kv_head = blockIdx.x % kv_heads, begin = tile * KEYS;
    u32 token = blockIdx.x / kv_heads * s.seq;
    Rows k_rows = {rows_of(k, token, s.kv_stride, kv_head, s), s.kv_stride};
    Rows v_rows = {rows_of(v, token, s.kv_stride, kv_head, s), s.kv_stride};
    bool wide = aligned(q, k, v, dout, dk, dv) && s.dim % 8 == 0 && s.q_stride % 8 == 0 && s.kv_stride % 8 == 0;
    first += token;
    load_rows<KEYS, THREADS>(keys, k_rows, begin, s, wide);
    if (K) load_rows<KEYS, THREADS>(values, v_rows, begin, s, wide);
    for (u32 i = threadIdx.x; i < KEYS; i += THREADS) {
        store_shared(until + i * 4, last_query(begin + i, first, s.seq));
    }
    __syncthreads();
    auto load_pass = [&](u32 stage, u32 head, u32 at) {
        Rows q_rows = {rows_of(q, token, s.q_stride, head, s), s.q_stride};
        Rows dout_rows = {rows_of(dout, token, s.out_stride, head, s), s.out_stride};
        load_rows<QUERIES, THREADS>(queries + stage * QUERIES * PITCH, q_rows, at, s, wide);
        load_rows<QUERIES, THREADS>(douts + stage * QUERIES * PITCH, dout_rows, at, s, wide);
        // Queries beyond the sequence have zeros: their probabilities are finite and multiply zeros.
        for (u32 i = threadIdx.x; i < 2 * QUERIES; i += THREADS) {
            u32 query = at + i % QUERIES;
            const float* from = (i < QUERIES ? lse : delta) + (u64)(token + query) * s.heads + head;
            copy_async<4>(stats + (stage * 2 * QUERIES + i) * 4, from, query < s.seq ? 4 : 0);
        }
    };
    u32 lane = threadIdx.x % 32, offset = uniform(threadIdx.x / 32) * (16 * M);
    // This warp's keys, and the last queries that see the first of them, any of them, and any of the block's.
    u32 from = begin + offset, to = from + 16 * M - 1;
    u32 until_from = uniform(load_shared(until + offset * 4));
    u32 until_to = uniform(load_shared(until + (offset + 16 * M - 1) * 4));
    u32 tiles = (uniform(load_shared(until + (KEYS - 1) * 4)) - begin) / QUERIES + 1;
    until += (offset + lane / 4) * 4;
    keys += offset * PITCH;
    values += offset * PITCH;
    Scores scores(s);
    float held_k[K ? M : 1][HEAD / 8][4] = {}, held_v[V ? M : 1][HEAD / 8][4] = {};
    // The pass that is loaded next.
    u32 head = kv_head * s.group, next = begin, end = begin + tiles * QUERIES;
    auto load_next = [&](u32 stage) {
        load_pass(stage, head, next);
        next += QUERIES;
        if (next == end) next = begin, head++;
    };
    load_next(0);
    for (u32 left = tiles * s.group, stage = 0; left > 0; left--, stage ^= STAGES - 1) {
        u32 at = (next == begin ? end : next) - QUERIES;
        bool sees = from < s.seq && at + QUERIES > from && at <= until_to;
        copies_wait();
        __syncthreads();
        if (STAGES == 2 && left > 1) load_next(stage ^ 1);
        u32 q_tile = queries + stage * QUERIES * PITCH, dout_tile = douts + stage * QUERIES * PITCH;
        if (sees) {
            float x[M][N][4] = {}, gradient[M][N][4];
            u32 stat = stats + (stage * 2 * QUERIES + lane % 4 * 2) * 4;
#pragma unroll
            for (int n = 0; n < N; n++) {
                float delta[2];
                load_shared(delta, stat + (QUERIES + 8 * n) * 4);
#pragma unroll
                for (int i = 0; i < 4 * M; i++) gradient[i / 4][n][i % 4] = -delta[i % 2];
            }
            multiply(x, keys, q_tile);
            if (K) multiply(gradient, values, dout_tile);
            if (scores.capped) {
#pragma unroll
                for (int i = 0; i < M * N * 4; i++) {
                    scores.cap(x[i / (4 * N)][i / 4 % N][i % 4], gradient[i / (4 * N)][i / 4 % N][i % 4]);
                }
            }
#pragma unroll
            for (int n = 0; n < N; n++) {
                float lse[2];
                load_shared(lse, stat + 8 * n * 4);
#pragma unroll
                for (int i = 0; i < 4 * M; i++) {
                    scores.backward(x[i / 4][n][i % 4], gradient[i / 4][n][i % 4], lse[i % 2] * LOG2_E);
                }
            }
            if (at < to || at + QUERIES - 1 > until_from) {
#pragma unroll
                for (int i = 0; i < 2 * M; i++) {
                    u32 key = from + 8 * i + lane / 4, last = load_shared(until + 8 * i * 4);
#pragma unroll
                    for (int j = 0; j < 2 * N; j++) {
                        u32 query = at + j / 2 * 8 + lane % 4 * 2 + j % 2;
                        int e = i % 2 * 2 + j % 2;
                        if (query < key || query > last) x[i / 2][j / 2][e] = gradient[i / 2][j / 2][e] = 0.0f;
                    }
                }
            }
            if constexpr (V) accumulate(held_v, x, dout_tile);
            if constexpr (K) accumulate(held_k, gradient, q_tile);
        }
        if (STAGES == 1) {
            __syncthreads();
            if (left > 1) load_next(0);
        }
    }
    if constexpr (K) {
#pragma unroll
        for (int i = 0; i < M * HEAD / 2; i++) held_k[i / (HEAD / 2)][i / 4 % (HEAD / 8)][i % 4] *= s.scale;
        store_rows<M>(values, held_k, rows_of(dk, token, s.kv_stride, kv_head, s), s.kv_stride, from, s, wide);
    }
    if constexpr (V) {
        store_rows<M>(keys, held_v, rows_of(dv, token, s.kv_stride, kv_head, s), s.kv_stride, from, s, wide);
    }
}

// blockIdx: key/value head of a sequence, tile of keys from the first, which most see. Query heads of the group in
// order, tiles of queries in order. Registers hold both gradients up to a head of 128; beyond, a block computes one.
KERNEL(ToKv::THREADS, BLOCKS)
attention_backward_kv_bf16(Shape s, const bf16* q, const bf16* k, const bf16* v, const u32* first, const bf16* dout,
                           const float* lse, const float* delta, bf16* dk, bf16* dv) {
    if constexpr (HEAD <= 128) {
        backward_kv<true, true>(s, blockIdx.y, q, k, v, first, dout, lse, delta, dk, dv);
    } else if (blockIdx.y % 2 == 0) {
        backward_kv<true, false>(s, blockIdx.y / 2, q, k, v, first, dout, lse, delta, dk, dv);
    } else {
        backward_kv<false, true>(s, blockIdx.y / 2, q, k, v, first, dout, lse, delta, dk, dv);
    }
}
