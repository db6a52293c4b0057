// Attention of bf16 operands on tensor cores, forward: a warp owns 32 or 16 queries. While their scores are computed,
// the values of the same keys are loaded; while those are summed, the next keys.
#include "attention_mma.cuh"

constexpr float LN_2 = 0.6931471805599453f;

using Forward = Tiles<HEAD <= 128 ? 2 : 1, 8, 1>;

// blockIdx: head of a sequence, tile of queries, from the last, which sees most.
KERNEL(Forward::THREADS, BLOCKS)
attention_forward_bf16(Shape s, const bf16* q, const bf16* k, const bf16* v, const u32* first, bf16* out, float* lse) {
    constexpr int M = Forward::M, N = Forward::N, THREADS = Forward::THREADS;
    constexpr int QUERIES = Forward::OWN, KEYS = Forward::PASS;
    u32 queries = shared_address(shared), keys = queries + QUERIES * PITCH, values = keys + KEYS * PITCH;
    u32 head = blockIdx.x % s.heads, begin = (gridDim.y - 1 - blockIdx.y) * QUERIES;
    u32 token = blockIdx.x / s.heads * s.seq;
    Rows q_rows = {rows_of(q, token, s.q_stride, head, s), s.q_stride};
    Rows k_rows = {rows_of(k, token, s.kv_stride, head / s.group, s), s.kv_stride};
    Rows v_rows = {rows_of(v, token, s.kv_stride, head / s.group, s), s.kv_stride};
    bool wide = aligned(q, k, v, out) && s.dim % 8 == 0 && s.q_stride % 8 == 0 && s.kv_stride % 8 == 0;
    first += token;
    u32 end = least(begin + QUERIES, s.seq), at = uniform(first[begin]) / KEYS * KEYS;
    load_rows<QUERIES, THREADS>(queries, q_rows, begin, s, wide);
    load_rows<KEYS, THREADS>(keys, k_rows, at, s, wide);

    u32 lane = threadIdx.x % 32, offset = uniform(threadIdx.x / 32) * (16 * M);
    // This warp's queries: the first and the last that is of the sequence, and the keys that they see.
    u32 from = begin + offset, to = least(from + 16 * M - 1, s.seq - 1);
    u32 low = uniform(from < s.seq ? first[from] : 0), low_of_last = uniform(from < s.seq ? first[to] : 0);
    queries += offset * PITCH;
    float held[M][HEAD / 8][4] = {};
    float greatest[M][2], sum[M][2] = {};
#pragma unroll
    for (int i = 0; i < M; i++) greatest[i][0] = greatest[i][1] = -INFINITY_F;
    // Scores times `factor` are exponents of 2.
    float factor = s.cap > 0.0f ? s.cap * LOG2_E : s.scale * LOG2_E;
    for (; at < end; at += KEYS) {
        bool sees = from < s.seq && at <= to && at + KEYS > low;
        float x[M][N][4] = {};
        copies_wait();
        __syncthreads();
        load_rows<KEYS, THREADS>(values, v_rows, at, s, wide);
        if (sees) multiply(x, queries, keys);
        copies_wait();
        __syncthreads();
        if (at + KEYS < end) load_rows<KEYS, THREADS>(keys, k_rows, at + KEYS, s, wide);
        if (!sees) continue;
        if (s.cap > 0.0f) {
            float inside = s.scale / s.cap;
#pragma unroll
            for (int i = 0; i < M * N * 4; i++) {
                float& score = x[i / (N * 4)][i / 4 % N][i % 4];
                score = tanh_near(score * inside);
            }
        }
        if (at + KEYS - 1 > from || at < low_of_last) {
#pragma unroll
            for (int i = 0; i < 2 * M; i++) {
                u32 query = from + 8 * i + lane / 4, begins = first[least(query, to)];
#pragma unroll
                for (int j = 0; j < 2 * N; j++) {
                    u32 key = at + j / 2 * 8 + lane % 4 * 2 + j % 2;
                    if (key > query || key < begins) x[i / 2][j / 2][i % 2 * 2 + j % 2] = -INFINITY_F;
                }
            }
        }
        float shrink[M][2];
        bool shrinks = false;
#pragma unroll
        for (int i = 0; i < 2 * M; i++) {
            float& shift = greatest[i / 2][i % 2];
            float top = shift;
#pragma unroll
            for (int n = 0; n < N; n++) top = fmaxf(top, fmaxf(x[i / 2][n][i % 2 * 2], x[i / 2][n][i % 2 * 2 + 1]));
            top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
            top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
            // A row's sums are scaled anew only where probabilities would exceed 2^8: f32 and bf16 are as exact there.
            bool exceeds = (top - shift) * factor > 8.0f;
            shrink[i / 2][i % 2] = exceeds ? exp2_near((shift - top) * factor) : 1.0f;
            shift = exceeds ? top : shift;
            shrinks |= exceeds;
        }
        if (__any_sync(0xffffffffu, shrinks)) {
#pragma unroll
            for (int i = 0; i < 2 * M; i++) {
                sum[i / 2][i % 2] *= shrink[i / 2][i % 2];
#pragma unroll
                for (int j = 0; j < HEAD / 4; j++) held[i / 2][j / 2][i % 2 * 2 + j % 2] *= shrink[i / 2][i % 2];
            }
        }
#pragma unroll
        for (int i = 0; i < 2 * M; i++) {
            // Of a row that has seen nothing yet all probabilities are 0.
            float shift = greatest[i / 2][i % 2] == -INFINITY_F ? 0.0f : greatest[i / 2][i % 2] * factor;
#pragma unroll
            for (int j = 0; j < 2 * N; j++) {
                float& score = x[i / 2][j / 2][i % 2 * 2 + j % 2];
                score = exp2_near(fmaf(score, factor, -shift));
                sum[i / 2][i % 2] += score;
            }
        }
        accumulate(held, x, values);
    }
#pragma unroll
    for (int i = 0; i < 2 * M; i++) {
        float total = sum[i / 2][i % 2];
        total += __shfl_xor_sync(0xffffffffu, total, 1);
        total += __shfl_xor_sync(0xffffffffu, total, 2);
        float share = 1.0f / total;
#pragma unroll
        for (int n = 0; n < HEAD / 8; n++) {
            held[i / 2][n][i % 2 * 2] *= share;
            held[i / 2][n][i % 2 * 2 + 1] *= share;
        }
        u32 query = from + 8 * i + lane / 4;
        if (lane % 4 == 0 && query < s.seq) {
            lse[(u64)(token + query) * s.heads + head] = fmaf(greatest[i / 2][i % 2] * factor, LN_2, logf(total));
        }
    }
    store_rows<M>(queries, held, rows_of(out, token, s.out_stride, head, s), s.out_stride, from, s, wide);
}
