// Attention of bf16 operands on tensor cores, backward to the queries: a warp owns 32 or 16 queries, and the block has
// the rows of `out` and its gradient at hand from which delta comes.
#include "attention_mma.cuh"

using ToQ = Tiles<HEAD <= 128 ? 2 : 1, 4, HEAD <= 128 ? 2 : 1>;
// As BLOCKS, of this kernel.
constexpr int TO_Q_BLOCKS = HEAD <= 64 ? 3 : BLOCKS;

// The sum of products of 8 elements each.
__device__ __forceinline__ float dot(const u32 (&a)[4], const u32 (&b)[4]) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        sum = fmaf(__uint_as_float(a[i] << 16), __uint_as_float(b[i] << 16), sum);
        sum = fmaf(__uint_as_float(a[i] & 0xffff0000u), __uint_as_float(b[i] & 0xffff0000u), sum);
    }
    return sum;
}

// delta [T,N] = sum of dout * out over the head, of a block's queries, to memory and to `stats` in shared memory.
template <int COUNT, int THREADS>
__device__ __forceinline__ void delta_of(float* delta, u32 stats, Rows outs, Rows douts, u32 begin, u32 head,
                                         const Shape& s, bool wide) {
    constexpr int ROWS = THREADS / SPAN;
    u32 chunk = threadIdx.x % SPAN, column = chunk * 8;
    // Several rows' loads are under way at once.
#pragma unroll 4
    for (int i = 0; i < COUNT; i += ROWS) {
        u32 query = begin + i + threadIdx.x / SPAN;
        u64 at = (u64)query * outs.stride + column;
        u32 out[4] = {}, dout[4] = {};
        if (query < s.seq && column < s.dim) {
            load_chunk(out, outs.from + at, column, s.dim, wide);
            load_chunk(dout, douts.from + at, column, s.dim, wide);
        }
        float sum = dot(out, dout);
#pragma unroll
        for (int step = SPAN / 2; step > 0; step >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, step);
        if (chunk == 0) store_shared(stats + (query - begin) * 4, __float_as_uint(sum));
        if (chunk == 0 && query < s.seq) delta[(u64)query * s.heads + head] = sum;
    }
}

// delta and the gradient of q. blockIdx as in forward.
KERNEL(ToQ::THREADS, TO_Q_BLOCKS)
attention_backward_q_bf16(Shape s, const bf16* q, const bf16* k, const bf16* v, const u32* first, const bf16* out,
                          const bf16* dout, const float* lse, float* delta, bf16* dq) {
    constexpr int M = ToQ::M, N = ToQ::N, THREADS = ToQ::THREADS, QUERIES = ToQ::OWN, KEYS = ToQ::PASS;
    constexpr int STAGES = ToQ::STAGES;
    u32 queries = shared_address(shared), douts = queries + QUERIES * PITCH, keys = douts + QUERIES * PITCH;
    u32 values = keys + STAGES * KEYS * PITCH, stats = values + STAGES * KEYS * PITCH;
    u32 head = blockIdx.x % s.heads, begin = (gridDim.y - 1 - blockIdx.y) * QUERIES;
    u32 token = blockIdx.x / s.heads * s.seq;
    Rows q_rows = {rows_of(q, token, s.q_stride, head, s), s.q_stride};
    Rows k_rows = {rows_of(k, token, s.kv_stride, head / s.group, s), s.kv_stride};
    Rows v_rows = {rows_of(v, token, s.kv_stride, head / s.group, s), s.kv_stride};
    Rows dout_rows = {rows_of(dout, token, s.out_stride, head, s), s.out_stride};
    bool wide = aligned(q, k, v, out, dout, dq) && s.dim % 8 == 0 && s.q_stride % 8 == 0 && s.kv_stride % 8 == 0;
    first += token;
    lse += (u64)token * s.heads;
    delta += (u64)token * s.heads;
    u32 end = least(begin + QUERIES, s.seq), at = uniform(first[begin]) / KEYS * KEYS;
    load_rows<QUERIES, THREADS>(queries, q_rows, begin, s, wide);
    load_rows<QUERIES, THREADS>(douts, dout_rows, begin, s, wide);
    load_rows<KEYS, THREADS>(keys, k_rows, at, s, wide);
    load_rows<KEYS, THREADS>(values, v_rows, at, s, wide);
    Rows out_rows = {rows_of(out, token, s.out_stride, head, s), s.out_stride};
    for (u32 i = threadIdx.x; i < QUERIES; i += THREADS) {
        u64 at = (u64)least(begin + i, s.seq - 1) * s.heads + head;
        store_shared(stats + i * 4, __float_as_uint(lse[at] * LOG2_E));
    }
    delta_of<QUERIES, THREADS>(delta, stats + QUERIES * 4, out_rows, dout_rows, begin, head, s, wide);

    u32 lane = threadIdx.x % 32, offset = uniform(threadIdx.x / 32) * (16 * M);
    u32 from = begin + offset, to = least(from + 16 * M - 1, s.seq - 1);
    u32 low = uniform(first[least(from, to)]), low_of_last = uniform(first[to]);
    queries += offset * PITCH;
    douts += offset * PITCH;
    stats += (offset + lane / 4) * 4;
    Scores scores(s);
    float held[M][HEAD / 8][4] = {};
    for (u32 stage = 0; at < end; at += KEYS, stage ^= STAGES - 1) {
        copies_wait();
        __syncthreads();
        u32 k_tile = keys + stage * KEYS * PITCH, v_tile = values + stage * KEYS * PITCH;
        auto load_next = [&] {
            u32 to = (stage ^ (STAGES - 1)) * KEYS * PITCH;
            if (at + KEYS < end) {
                load_rows<KEYS, THREADS>(keys + to, k_rows, at + KEYS, s, wide);
                load_rows<KEYS, THREADS>(values + to, v_rows, at + KEYS, s, wide);
            }
        };
        if (STAGES == 2) load_next();
        if (from < s.seq && at <= to && at + KEYS > low) {
            float x[M][N][4] = {}, gradient[M][N][4];
#pragma unroll
            for (int i = 0; i < 2 * M; i++) {
                float delta = __uint_as_float(load_shared(stats + (QUERIES + 8 * i) * 4));
#pragma unroll
                for (int j = 0; j < 2 * N; j++) gradient[i / 2][j / 2][i % 2 * 2 + j % 2] = -delta;
            }
            multiply(x, queries, k_tile);
            multiply(gradient, douts, v_tile);
            if (scores.capped) {
#pragma unroll
                for (int i = 0; i < M * N * 4; i++) {
                    scores.cap(x[i / (4 * N)][i / 4 % N][i % 4], gradient[i / (4 * N)][i / 4 % N][i % 4]);
                }
            }
#pragma unroll
            for (int i = 0; i < 2 * M; i++) {
                float lse = __uint_as_float(load_shared(stats + 8 * i * 4));
#pragma unroll
                for (int j = 0; j < 2 * N; j++) {
                    int n = j / 2, e = i % 2 * 2 + j % 2;
                    scores.backward(x[i / 2][n][e], gradient[i / 2][n][e], lse);
                }
            }
            if (at + KEYS - 1 > from || at < low_of_last) {
#pragma unroll
                for (int i = 0; i < 2 * M; i++) {
                    u32 query = from + 8 * i + lane / 4, begins = first[least(query, to)];
#pragma unroll
                    for (int j = 0; j < 2 * N; j++) {
                        u32 key = at + j / 2 * 8 + lane % 4 * 2 + j % 2;
                        if (key > query || key < begins) gradient[i / 2][j / 2][i % 2 * 2 + j % 2] = 0.0f;
                    }
                }
            }
            accumulate(held, gradient, k_tile);
        }
        if (STAGES == 1) {
            __syncthreads();
            load_next();
        }
    }
#pragma unroll
    for (int i = 0; i < M * HEAD / 2; i++) held[i / (HEAD / 2)][i / 4 % (HEAD / 8)][i % 4] *= s.scale;
    store_rows<M>(queries, held, rows_of(dq, token, s.q_stride, head, s), s.q_stride, from, s, wide);
}
