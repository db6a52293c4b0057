// What matrix products do not do: gradients of biases.
#include "common.cuh"
#include "columns.cuh"

constexpr int ROWS = 256;
constexpr int LANES = 64;
constexpr int SLICES = 4;

// partial[b, c] = sum of dy over rows 256 b.. and column c. Four threads a column, each adds every fourth row in order.
template <class T> __device__ __forceinline__ void bias_partial(const T* dy, u32 rows, u32 columns, float* partial) {
    __shared__ float slices[SLICES][LANES];
    u32 lane = threadIdx.x % LANES, slice = threadIdx.x / LANES;
    u32 column = blockIdx.x * LANES + lane, begin = blockIdx.y * ROWS;
    u32 end = begin + ROWS < rows ? begin + ROWS : rows;
    float sum = 0.0f;
    if (column < columns) {
        for (u32 r = begin + slice; r < end; r += SLICES) sum += widen(dy[(u64)r * columns + column]);
    }
    slices[slice][lane] = sum;
    __syncthreads();
    if (slice == 0 && column < columns) {
        partial[(u64)blockIdx.y * columns + column] =
            (slices[0][lane] + slices[1][lane]) + (slices[2][lane] + slices[3][lane]);
    }
}

KERNEL(256) linear_bias_partial_f32(const float* dy, u32 rows, u32 columns, float* partial) {
    bias_partial(dy, rows, columns, partial);
}
KERNEL(256) linear_bias_partial_bf16(const bf16* dy, u32 rows, u32 columns, float* partial) {
    bias_partial(dy, rows, columns, partial);
}

KERNEL(256) linear_bias_finish(const float* partial, u32 blocks, u32 columns, float* db, int add) {
    finish_columns(partial, blocks, columns, db, add);
}
