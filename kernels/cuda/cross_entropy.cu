// Cross-entropy over vocabulary tiles with a running log-sum-exp: kernels/src/cross_entropy.rs. A block takes a row;
// each thread keeps a running maximum and sum of its logits, then a tree over the threads.
#include "common.cuh"

constexpr int THREADS = 512;
constexpr u32 NO_TARGET = 0xffffffffu;

template <class T, int N> __device__ __forceinline__ void take_row(const T* row, u32 tile, float& max, float& sum) {
    for (u32 c = threadIdx.x * N; c < tile; c += THREADS * N) {
        float x[N];
        load(x, row + c);
        float greatest = x[0];
#pragma unroll
        for (int j = 1; j < N; j++) greatest = fmaxf(greatest, x[j]);
        if (greatest > max) {
            sum *= expf(max - greatest);
            max = greatest;
        }
#pragma unroll
        for (int j = 0; j < N; j++) sum += expf(x[j] - max);
    }
}

template <class T>
__device__ __forceinline__ void forward(const T* logits, const u32* labels, u32 first, u32 tile, float* running_max,
                                        float* running_sum, float* target) {
    constexpr int N = Wide<T>::N;
    u32 token = blockIdx.x, label = labels[token];
    if (label == NO_TARGET) return;
    const T* row = logits + (u64)token * tile;
    float max = -INFINITY_F, sum = 0.0f;
    if (tile % N == 0 && aligned(logits)) {
        take_row<T, N>(row, tile, max, sum);
    } else {
        take_row<T, 1>(row, tile, max, sum);
    }
    float before = running_max[token];
    float total = fmaxf(before, block_max<THREADS / 32>(max));
    // A thread without logits has sum 0 and max -Inf: exp(-Inf) is 0.
    sum = block_sum<THREADS / 32>(sum * expf(max - total));
    if (threadIdx.x == 0) {
        running_sum[token] = fmaf(running_sum[token], expf(before - total), sum);
        running_max[token] = total;
        if (label - first < tile) target[token] = widen(row[label - first]);
    }
}

// Takes logits [T, tile] of vocabulary first..first+tile into the state max, sum, target [T].
KERNEL(THREADS) cross_entropy_forward_f32(const float* logits, const u32* labels, u32 first, u32 tile, float* max,
                                          float* sum, float* target) {
    forward(logits, labels, first, tile, max, sum, target);
}
KERNEL(THREADS) cross_entropy_forward_bf16(const bf16* logits, const u32* labels, u32 first, u32 tile, float* max,
                                           float* sum, float* target) {
    forward(logits, labels, first, tile, max, sum, target);
}

// Before any tile.
KERNEL(256) cross_entropy_begin(u32 tokens, float* max, float* sum, float* target) {
    u64 i = global_thread();
    if (i >= tokens) return;
    max[i] = -INFINITY_F;
    sum[i] = 0.0f;
    target[i] = 0.0f;
}

// loss += sum over targets of (lse - target logit), in f64: each thread adds its tokens in order, then a tree over the
// threads. max becomes the log-sum-exp. One block.
KERNEL(1024) cross_entropy_finish(const u32* labels, u32 tokens, float* max, const float* sum, const float* target,
                                  double* loss) {
    double part = 0.0;
    for (u32 i = threadIdx.x; i < tokens; i += 1024) {
        if (labels[i] == NO_TARGET) continue;
        double lse = (double)max[i] + log((double)sum[i]);
        part += lse - (double)target[i];
        max[i] = (float)lse;
    }
    part = block_sum<32>(part);
    if (threadIdx.x == 0) *loss += part;
}

template <class T, int N>
__device__ __forceinline__ void gradient(T* row, u32 at, u32 target, float lse, float scale) {
    float x[N];
    load(x, row + at);
#pragma unroll
    for (int j = 0; j < N; j++) {
        float p = expf(x[j] - lse);
        x[j] = (at + j == target ? p - 1.0f : p) * scale;
    }
    store(row + at, x);
}

// Each thread a pack of a row's logits; blockIdx.y is the row.
template <class T>
__device__ __forceinline__ void backward(T* logits, const u32* labels, const float* lse, u32 first, u32 tile,
                                         float scale) {
    constexpr int N = Wide<T>::N;
    u32 token = blockIdx.x, label = labels[token];
    u32 at = (blockIdx.y * 256 + threadIdx.x) * N;
    if (at >= tile) return;
    T* row = logits + (u64)token * tile;
    // A label of another tile is no column of this one; nor is any column of a row without a target kept.
    u32 target = label - first;
    float factor = label == NO_TARGET ? 0.0f : scale;
    float sum = label == NO_TARGET ? INFINITY_F : lse[token];
    if (tile % N == 0 && aligned(logits)) {
        gradient<T, N>(row, at, label == NO_TARGET ? NO_TARGET : target, sum, factor);
    } else {
        for (u32 j = 0; j < N && at + j < tile; j++) {
            gradient<T, 1>(row, at + j, label == NO_TARGET ? NO_TARGET : target, sum, factor);
        }
    }
}

// logits [T, tile] become (softmax - onehot) * scale; rows without a target become zeros.
KERNEL(256) cross_entropy_backward_f32(float* logits, const u32* labels, const float* lse, u32 first, u32 tile,
                                       float scale) {
    backward(logits, labels, lse, first, tile, scale);
}
KERNEL(256) cross_entropy_backward_bf16(bf16* logits, const u32* labels, const float* lse, u32 first, u32 tile,
                                        float scale) {
    backward(logits, labels, lse, first, tile, scale);
}
