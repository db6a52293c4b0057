// Attention of bf16 operands on tensor cores: causal, grouped queries, any head dimension up to HEAD, which zeros fill up.
//
// Which tokens a token sees is `first` alone: keys first[t]..=t of its own sequence. Within a sequence `first` never
// falls, so that the tiles which a tile sees are a run. A warp owns 16 or 32 rows: of queries in forward and backward_q, of
// keys in backward_kv, where scores are held transposed. The sums of its rows stay in its registers, and scores turn there
// into the next product's left operand; the tiles on the right pass through shared memory, loaded while the one before is
// worked on.
//
// Everything is summed in an order fixed by the shape: a block owns what it writes. For that the backward pass computes
// scores twice, 7 products instead of 5: gradients of q kept in partial sums would take seq / KEYS times their memory, and
// blocks that add to one sum in turn wait for each other where the causal triangle gives them unequal work.
#include "attention.cuh"
#include "mma.cuh"

#ifndef HEAD
#error HEAD: the greatest head dimension, a multiple of 16
#endif

constexpr float LOG2_E = 1.4426950408889634f;
constexpr float LN_2 = 0.6931471805599453f;

// Rows of HEAD bf16 in shared memory, in chunks of 16 bytes, so that 8 chunks of 8 neighbouring rows lie in all 32 banks:
// exchanged within 128 bytes where a row is a multiple of that, else by a chunk between rows.
constexpr bool SWIZZLED = HEAD % 64 == 0;
constexpr u32 PITCH = (HEAD + (SWIZZLED ? 0 : 8)) * 2;

__device__ __forceinline__ u32 chunk_at(u32 row, u32 chunk) {
    return row * PITCH + (SWIZZLED ? chunk ^ (row & 7) : chunk) * 16;
}
// The address `rows` (a multiple of 8) and `chunks` (even) further than one whose chunk is 0 or 1.
__device__ __forceinline__ u32 further(u32 address, u32 rows, u32 chunks) {
    return (SWIZZLED ? (address ^ (chunks % 8 * 16)) + chunks / 8 * 128 : address + chunks * 16) + rows * PITCH;
}
// Where this lane reads matrices of a tile: row by row for left operands and, transposed, right ones [k, n].
__device__ __forceinline__ u32 by_rows(u32 tile) {
    u32 lane = threadIdx.x % 32;
    return tile + chunk_at(lane % 16, lane / 16);
}
// For right operands [n, k].
__device__ __forceinline__ u32 by_columns(u32 tile) {
    u32 lane = threadIdx.x % 32;
    return tile + chunk_at(lane % 8 + lane / 16 * 8, lane / 8 % 2);
}

// Lanes that share a row in copies: a power of two that is at least its chunks.
constexpr u32 SPAN = HEAD > 128 ? 32 : HEAD > 64 ? 16 : 8;

// Operands of a head: rows of a token each.
struct Rows {
    const bf16* from;
    // Elements.
    u32 stride;
};

// Elements column.. of a row, up to 8, zeros from dim; where 16 bytes cannot be read at once.
__device__ __forceinline__ void gather(u32 (&to)[4], const bf16* from, u32 column, u32 dim) {
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
            if (row < left) gather(eight, from, column, s.dim);
            store_shared(tile + chunk_at(row, chunk), eight);
            from += step;
        }
    }
}

// The rows of a warp, through its own rows of a tile.
template <int M>
__device__ __forceinline__ void store_rows(u32 tile, const float (&from)[M][HEAD / 8][4], bf16* to, u32 stride, u32 begin,
                                           const Shape& s, bool wide) {
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
template <int M, int N>
__device__ __forceinline__ void multiply(float (&x)[M][N][4], u32 left_tile, u32 right_tile) {
    u32 left_at = by_rows(left_tile), right_at = by_columns(right_tile);
#pragma unroll
    for (int k = 0; k < HEAD / 16; k++) {
        u32 left[M][4];
#pragma unroll
        for (int i = 0; i < M; i++) load_matrices(left[i], further(left_at, 16 * i, 2 * k));
#pragma unroll
        for (int n = 0; n < N; n += 2) {
            u32 right[4];
            load_matrices(right, further(right_at, 8 * n, 2 * k));
#pragma unroll
            for (int i = 0; i < M; i++) {
                multiply_add(x[i][n], left[i], right[0], right[1]);
                multiply_add(x[i][n + 1], left[i], right[2], right[3]);
            }
        }
    }
}

// held [16 M, HEAD] += x [16 M, 8 N], narrowed, * right [8 N, HEAD].
template <int M, int N>
__device__ __forceinline__ void accumulate(float (&held)[M][HEAD / 8][4], const float (&x)[M][N][4], u32 right_tile) {
    u32 right_at = by_rows(right_tile);
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
            load_transposed(right, further(right_at, 8 * k, n));
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

__device__ __forceinline__ u32 least(u32 a, u32 b) { return a < b ? a : b; }

template <int M_, int N_, int WARPS_> struct Tiles {
    // 16 rows each of a warp, and 8 rows each of a tile on the right.
    static constexpr int M = M_, N = N_, WARPS = WARPS_;
    static constexpr int THREADS = WARPS * 32, OWN = WARPS * M * 16, PASS = N * 8;
};

#ifndef FORWARD
#define FORWARD (HEAD > 128 ? 1 : 2), 8, 4
#define FORWARD_BLOCKS 2
#define TO_Q (HEAD > 128 ? 1 : 2), 4, 4
#define TO_Q_BLOCKS 2
#define TO_Q_STAGES (HEAD > 128 ? 1 : 2)
#define TO_KV (HEAD > 64 ? 1 : 2), (HEAD > 128 ? 4 : 8), 4
#define TO_KV_BLOCKS 2
#define TO_KV_STAGES (HEAD > 128 ? 1 : 2)
#endif

using Forward = Tiles<FORWARD>;
using ToQ = Tiles<TO_Q>;
using ToKv = Tiles<TO_KV>;

// blockIdx: head of a sequence, tile of queries, from the last, which sees most.
KERNEL(Forward::THREADS, FORWARD_BLOCKS)
attention_forward_bf16(Shape s, const bf16* q, const bf16* k, const bf16* v, const u32* first, bf16* out, float* lse) {
    constexpr int M = Forward::M, N = Forward::N, THREADS = Forward::THREADS, QUERIES = Forward::OWN, KEYS = Forward::PASS;
    u32 queries = shared_address(shared), keys = queries + QUERIES * PITCH, values = keys + KEYS * PITCH;
    u32 head = blockIdx.x % s.heads, begin = (gridDim.y - 1 - blockIdx.y) * QUERIES;
    u64 token = (u64)(blockIdx.x / s.heads) * s.seq;
    Rows q_rows = {q + token * s.q_stride + head * s.dim, s.q_stride};
    Rows k_rows = {k + token * s.kv_stride + head / s.group * s.dim, s.kv_stride};
    Rows v_rows = {v + token * s.kv_stride + head / s.group * s.dim, s.kv_stride};
    bool wide = aligned(q, k, v, out) && s.dim % 8 == 0 && s.q_stride % 8 == 0 && s.kv_stride % 8 == 0;
    first += token;
    u32 end = least(begin + QUERIES, s.seq), at = first[begin] / KEYS * KEYS;
    load_rows<QUERIES, THREADS>(queries, q_rows, begin, s, wide);
    load_rows<KEYS, THREADS>(keys, k_rows, at, s, wide);

    u32 lane = threadIdx.x % 32, offset = threadIdx.x / 32 * (16 * M);
    // This warp's queries: the first and the last that is of the sequence, and the keys that they see.
    u32 from = begin + offset, to = least(from + 16 * M, s.seq) - 1;
    bool idle = from >= s.seq;
    u32 low = idle ? 0 : first[from], low_of_last = idle ? 0 : first[to];
    queries += offset * PITCH;
    float held[M][HEAD / 8][4] = {};
    float greatest[M][2], sum[M][2] = {};
#pragma unroll
    for (int i = 0; i < M; i++) greatest[i][0] = greatest[i][1] = -INFINITY_F;
    // Scores times `factor` are exponents of 2.
    float factor = s.cap > 0.0f ? s.cap * LOG2_E : s.scale * LOG2_E;
    for (; at < end; at += KEYS) {
        bool sees = !idle && at <= to && at + KEYS > low;
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
#pragma unroll
        for (int i = 0; i < 2 * M; i++) {
            float& top = greatest[i / 2][i % 2];
            float before = top;
#pragma unroll
            for (int n = 0; n < N; n++) top = fmaxf(top, fmaxf(x[i / 2][n][i % 2 * 2], x[i / 2][n][i % 2 * 2 + 1]));
            top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
            top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
            // Of a row that has seen nothing yet all probabilities are 0.
            float shift = top == -INFINITY_F ? 0.0f : top * factor;
            float shrink = exp2_near(fmaf(before, factor, -shift));
            float& total = sum[i / 2][i % 2];
            total *= shrink;
#pragma unroll
            for (int j = 0; j < 2 * N; j++) {
                float& score = x[i / 2][j / 2][i % 2 * 2 + j % 2];
                score = exp2_near(fmaf(score, factor, -shift));
                total += score;
            }
#pragma unroll
            for (int n = 0; n < HEAD / 8; n++) {
                held[i / 2][n][i % 2 * 2] *= shrink;
                held[i / 2][n][i % 2 * 2 + 1] *= shrink;
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
            lse[(token + query) * s.heads + head] = fmaf(greatest[i / 2][i % 2] * factor, LN_2, logf(total));
        }
    }
    store_rows<M>(queries, held, out + token * s.out_stride + head * s.dim, s.out_stride, from, s, wide);
}

// How scores come from products, and gradients of products from those of scores.
struct Scores {
    float inside, factor;
    bool capped;
    __device__ __forceinline__ explicit Scores(const Shape& s)
        : inside(s.cap > 0.0f ? s.scale / s.cap : 1.0f), factor((s.cap > 0.0f ? s.cap : s.scale) * LOG2_E),
          capped(s.cap > 0.0f) {}

    // A product becomes a share of the cap, and the gradient of a probability such that `backward` meets the slope.
    __device__ __forceinline__ void cap(float& x, float& gradient, float delta) const {
        x = tanh_near(x * inside);
        gradient = fmaf(gradient - delta, fmaf(-x, x, 1.0f), delta);
    }
    // From the log-sum-exp (to base 2) and the delta of the query: the probability and the gradient of the scaled product.
    __device__ __forceinline__ void backward(float& x, float& gradient, float lse, float delta) const {
        x = exp2_near(fmaf(x, factor, -lse));
        gradient = x * (gradient - delta);
    }
};

// delta [T,N] = sum of dout * out over the head, of a block's queries.
template <int COUNT, int THREADS>
__device__ __forceinline__ void delta_of(float* delta, const bf16* out, const bf16* dout, u32 begin, u32 head,
                                         const Shape& s, bool wide) {
    u32 chunk = threadIdx.x % SPAN, column = chunk * 8;
    for (u32 row = threadIdx.x / SPAN; row < COUNT; row += THREADS / SPAN) {
        float sum = 0.0f;
        u64 at = (u64)(begin + row) * s.out_stride + column;
        if (begin + row < s.seq && column < s.dim) {
            u32 a[4], b[4];
            if (wide) {
                uint4 x = *reinterpret_cast<const uint4*>(out + at), y = *reinterpret_cast<const uint4*>(dout + at);
                a[0] = x.x, a[1] = x.y, a[2] = x.z, a[3] = x.w;
                b[0] = y.x, b[1] = y.y, b[2] = y.z, b[3] = y.w;
            } else {
                gather(a, out + at, column, s.dim);
                gather(b, dout + at, column, s.dim);
            }
#pragma unroll
            for (int i = 0; i < 4; i++) {
                sum = fmaf(__uint_as_float(a[i] << 16), __uint_as_float(b[i] << 16), sum);
                sum = fmaf(__uint_as_float(a[i] & 0xffff0000u), __uint_as_float(b[i] & 0xffff0000u), sum);
            }
        }
#pragma unroll
        for (int step = SPAN / 2; step > 0; step >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, step);
        if (chunk == 0 && begin + row < s.seq) delta[(u64)(begin + row) * s.heads + head] = sum;
    }
}

// delta and the gradient of q. blockIdx as in forward.
KERNEL(ToQ::THREADS, TO_Q_BLOCKS)
attention_backward_q_bf16(Shape s, const bf16* q, const bf16* k, const bf16* v, const u32* first, const bf16* out,
                          const bf16* dout, const float* lse, float* delta, bf16* dq) {
    constexpr int M = ToQ::M, N = ToQ::N, THREADS = ToQ::THREADS, QUERIES = ToQ::OWN, KEYS = ToQ::PASS;
    constexpr int STAGES = TO_Q_STAGES;
    u32 queries = shared_address(shared), douts = queries + QUERIES * PITCH, keys = douts + QUERIES * PITCH;
    u32 values = keys + STAGES * KEYS * PITCH;
    u32 head = blockIdx.x % s.heads, begin = (gridDim.y - 1 - blockIdx.y) * QUERIES;
    u64 token = (u64)(blockIdx.x / s.heads) * s.seq;
    Rows q_rows = {q + token * s.q_stride + head * s.dim, s.q_stride};
    Rows k_rows = {k + token * s.kv_stride + head / s.group * s.dim, s.kv_stride};
    Rows v_rows = {v + token * s.kv_stride + head / s.group * s.dim, s.kv_stride};
    Rows dout_rows = {dout + token * s.out_stride + head * s.dim, s.out_stride};
    bool wide = aligned(q, k, v, out, dout, dq) && s.dim % 8 == 0 && s.q_stride % 8 == 0 && s.kv_stride % 8 == 0;
    first += token;
    lse += token * s.heads;
    delta += token * s.heads;
    u32 end = least(begin + QUERIES, s.seq), at = first[begin] / KEYS * KEYS;
    load_rows<QUERIES, THREADS>(queries, q_rows, begin, s, wide);
    load_rows<QUERIES, THREADS>(douts, dout_rows, begin, s, wide);
    load_rows<KEYS, THREADS>(keys, k_rows, at, s, wide);
    load_rows<KEYS, THREADS>(values, v_rows, at, s, wide);
    delta_of<QUERIES, THREADS>(delta, out + token * s.out_stride + head * s.dim, dout_rows.from, begin, head, s, wide);
    __syncthreads();

    u32 lane = threadIdx.x % 32, offset = threadIdx.x / 32 * (16 * M);
    u32 from = begin + offset, to = least(from + 16 * M, s.seq) - 1;
    bool idle = from >= s.seq;
    u32 low = idle ? 0 : first[from], low_of_last = idle ? 0 : first[to];
    queries += offset * PITCH;
    douts += offset * PITCH;
    float lses[2 * M], deltas[2 * M];
#pragma unroll
    for (int i = 0; i < 2 * M; i++) {
        u64 at = (u64)least(from + 8 * i + lane / 4, s.seq - 1) * s.heads + head;
        lses[i] = lse[at] * LOG2_E;
        deltas[i] = delta[at];
    }
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
        if (!idle && at <= to && at + KEYS > low) {
            float x[M][N][4] = {}, gradient[M][N][4] = {};
            multiply(x, queries, k_tile);
            multiply(gradient, douts, v_tile);
            if (scores.capped) {
#pragma unroll
                for (int i = 0; i < M * N * 4; i++) {
                    int m = i / (4 * N), n = i / 4 % N, e = i % 4;
                    scores.cap(x[m][n][e], gradient[m][n][e], deltas[2 * m + e / 2]);
                }
            }
#pragma unroll
            for (int i = 0; i < M * N * 4; i++) {
                int m = i / (4 * N), n = i / 4 % N, e = i % 4;
                scores.backward(x[m][n][e], gradient[m][n][e], lses[2 * m + e / 2], deltas[2 * m + e / 2]);
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
    store_rows<M>(queries, held, dq + token * s.q_stride + head * s.dim, s.q_stride, from, s, wide);
}

// The gradients of k, of v, or of both.
template <bool K, bool V>
__device__ __forceinline__ void backward_kv(const Shape& s, u32 tile, const bf16* q, const bf16* k, const bf16* v,
                                            const u32* first, const bf16* dout, const float* lse, const float* delta,
                                            bf16* dk, bf16* dv) {
    constexpr int M = ToKv::M, N = ToKv::N, THREADS = ToKv::THREADS, KEYS = ToKv::OWN, QUERIES = ToKv::PASS;
    constexpr int STAGES = TO_KV_STAGES;
    u32 keys = shared_address(shared), values = keys + KEYS * PITCH, queries = values + KEYS * PITCH;
    u32 douts = queries + STAGES * QUERIES * PITCH, stats = douts + STAGES * QUERIES * PITCH;
    u32 kv_heads = s.heads / s.group, kv_head = blockIdx.x % kv_heads, begin = tile * KEYS;
    u64 token = (u64)(blockIdx.x / kv_heads) * s.seq;
    Rows k_rows = {k + token * s.kv_stride + kv_head * s.dim, s.kv_stride};
    Rows v_rows = {v + token * s.kv_stride + kv_head * s.dim, s.kv_stride};
    bool wide = aligned(q, k, v, dout, dk, dv) && s.dim % 8 == 0 && s.q_stride % 8 == 0 && s.kv_stride % 8 == 0;
    first += token;
    load_rows<KEYS, THREADS>(keys, k_rows, begin, s, wide);
    if (K) load_rows<KEYS, THREADS>(values, v_rows, begin, s, wide);
    // The first query of a tile sees the earliest keys: once it begins after this tile, so do all that follow.
    u32 tiles = 0;
    for (u32 i = begin; i < s.seq; i += THREADS * QUERIES) {
        u32 query = i + threadIdx.x * QUERIES;
        tiles += __syncthreads_count(query < s.seq && first[query] < begin + KEYS);
    }
    auto load_pass = [&](u32 stage, u32 head, u32 at) {
        Rows q_rows = {q + token * s.q_stride + head * s.dim, s.q_stride};
        Rows dout_rows = {dout + token * s.out_stride + head * s.dim, s.out_stride};
        load_rows<QUERIES, THREADS>(queries + stage * QUERIES * PITCH, q_rows, at, s, wide);
        load_rows<QUERIES, THREADS>(douts + stage * QUERIES * PITCH, dout_rows, at, s, wide);
        // Queries beyond the sequence have zeros: their probabilities are finite and multiply zeros.
        for (u32 i = threadIdx.x; i < 2 * QUERIES; i += THREADS) {
            u32 query = at + i % QUERIES;
            const float* from = (i < QUERIES ? lse : delta) + (token + query) * s.heads + head;
            copy_async<4>(stats + (stage * 2 * QUERIES + i) * 4, from, query < s.seq ? 4 : 0);
        }
    };
    u32 lane = threadIdx.x % 32, offset = threadIdx.x / 32 * (16 * M);
    u32 from = begin + offset, to = from + 16 * M - 1;
    bool idle = from >= s.seq;
    keys += offset * PITCH;
    values += offset * PITCH;
    Scores scores(s);
    float held_k[K ? M : 1][HEAD / 8][4] = {}, held_v[V ? M : 1][HEAD / 8][4] = {};
    u32 head = kv_head * s.group, at = begin, last = begin + (tiles - 1) * QUERIES;
    load_pass(0, head, at);
    for (u32 left = tiles * s.group, stage = 0; left > 0; left--, stage ^= STAGES - 1) {
        bool sees = !idle && at + QUERIES > from && first[at] <= to;
        bool edge = at < to || first[least(at + QUERIES, s.seq) - 1] > from;
        copies_wait();
        __syncthreads();
        u32 next_head = at == last ? head + 1 : head, next = at == last ? begin : at + QUERIES;
        if (STAGES == 2 && left > 1) load_pass(stage ^ 1, next_head, next);
        u32 q_tile = queries + stage * QUERIES * PITCH, dout_tile = douts + stage * QUERIES * PITCH;
        if (sees) {
            float x[M][N][4] = {}, gradient[M][N][4] = {};
            multiply(x, keys, q_tile);
            if (K) multiply(gradient, values, dout_tile);
            float lses[N][2], deltas[N][2];
#pragma unroll
            for (int n = 0; n < N; n++) {
                u32 stat = stats + (stage * 2 * QUERIES + 8 * n + lane % 4 * 2) * 4;
                load_shared(lses[n], stat);
                load_shared(deltas[n], stat + QUERIES * 4);
            }
            if (scores.capped) {
#pragma unroll
                for (int i = 0; i < M * N * 4; i++) {
                    int m = i / (4 * N), n = i / 4 % N, e = i % 4;
                    scores.cap(x[m][n][e], gradient[m][n][e], deltas[n][e % 2]);
                }
            }
#pragma unroll
            for (int n = 0; n < N; n++) {
                float lse[2] = {lses[n][0] * LOG2_E, lses[n][1] * LOG2_E};
#pragma unroll
                for (int i = 0; i < M * 4; i++) {
                    scores.backward(x[i / 4][n][i % 4], gradient[i / 4][n][i % 4], lse[i % 2], deltas[n][i % 2]);
                }
            }
            if (edge) {
#pragma unroll
                for (int j = 0; j < 2 * N; j++) {
                    u32 query = at + j / 2 * 8 + lane % 4 * 2 + j % 2, begins = first[least(query, s.seq - 1)];
#pragma unroll
                    for (int i = 0; i < 2 * M; i++) {
                        u32 key = from + 8 * i + lane / 4;
                        int e = i % 2 * 2 + j % 2;
                        if (key > query || key < begins) x[i / 2][j / 2][e] = gradient[i / 2][j / 2][e] = 0.0f;
                    }
                }
            }
            if constexpr (V) accumulate(held_v, x, dout_tile);
            if constexpr (K) accumulate(held_k, gradient, q_tile);
        }
        if (STAGES == 1) {
            __syncthreads();
            if (left > 1) load_pass(0, next_head, next);
        }
        head = next_head;
        at = next;
    }
    u64 to_at = token * s.kv_stride + kv_head * s.dim;
    if constexpr (K) {
#pragma unroll
        for (int i = 0; i < M * HEAD / 2; i++) held_k[i / (HEAD / 2)][i / 4 % (HEAD / 8)][i % 4] *= s.scale;
        store_rows<M>(values, held_k, dk + to_at, s.kv_stride, from, s, wide);
    }
    if constexpr (V) store_rows<M>(keys, held_v, dv + to_at, s.kv_stride, from, s, wide);
}

// blockIdx: key/value head of a sequence, tile of keys from the first, which most see. Query heads of the group in order,
// tiles of queries in order. Registers hold the sums of both gradients up to a head of 128; beyond, a block computes one.
KERNEL(ToKv::THREADS, TO_KV_BLOCKS)
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
