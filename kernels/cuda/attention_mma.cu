// Attention of bf16 operands on tensor cores: causal, grouped queries, any head dimension up to HEAD; zeros fill up the
// rest. Never an S x S matrix in memory.
//
// Which tokens a token sees is `first` alone: keys first[t]..=t of its own sequence. Within a sequence `first` never
// falls, so that the tiles which a tile sees are a run. A warp owns 16 or 32 rows: of queries in forward and
// backward_q, of keys in backward_kv, where scores are held transposed. The sums of its rows stay in its registers, and
// there scores turn into the left operand of the next product; tiles on the right pass through shared memory, loaded
// while the ones before are worked on. A warp skips tiles that its rows do not see, and masks only those seen in part.
//
// Everything is summed in an order fixed by the shape: a block owns what it writes. For that the backward pass computes
// scores twice, 7 products instead of 5. Partial sums of the gradient of q would take seq / KEYS times its memory, and
// blocks that add to one sum in turn would wait for each other, since the causal triangle gives them unequal work.
#include "attention.cuh"
#include "mma.cuh"

#ifndef HEAD
#error HEAD: the greatest head dimension, a multiple of 16
#endif

constexpr float LOG2_E = 1.4426950408889634f;
constexpr float LN_2 = 0.6931471805599453f;

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
using Forward = Tiles<HEAD <= 128 ? 2 : 1, 8, 1>;
using ToQ = Tiles<HEAD <= 128 ? 2 : 1, 4, HEAD <= 128 ? 2 : 1>;
using ToKv = Tiles<1, HEAD <= 128 ? 8 : 4, HEAD <= 128 ? 2 : 1>;
// Blocks that a multiprocessor should have registers for.
constexpr int BLOCKS = 2, TO_Q_BLOCKS = HEAD <= 64 ? 3 : BLOCKS;

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
