// Sums over rows of a matrix, column by column, in two stages whose shape depends on the number of rows alone: blocks
// of rows leave partial sums [blocks, columns], then each column adds its partial sums in a fixed order.
#pragma once

constexpr int COLUMN_LANES = 32;
constexpr int COLUMN_SLICES = 8;

// to[c] = (add ? to[c] : 0) + sum of partial[b, c]. A block of 256 threads takes 32 columns in eight slices of the
// partial sums.
template <class T>
__device__ __forceinline__ void finish_columns(const float* partial, u32 blocks, u32 columns, T* to, int add) {
    __shared__ double slices[COLUMN_SLICES][COLUMN_LANES];
    u32 lane = threadIdx.x % COLUMN_LANES, slice = threadIdx.x / COLUMN_LANES;
    u32 column = blockIdx.x * COLUMN_LANES + lane;
    double sum = 0.0;
    if (column < columns) {
        for (u32 b = slice; b < blocks; b += COLUMN_SLICES) sum += partial[(u64)b * columns + column];
    }
    slices[slice][lane] = sum;
    __syncthreads();
    if (slice == 0 && column < columns) {
        double total = add ? (double)to[column] : 0.0;
#pragma unroll
        for (int i = 0; i < COLUMN_SLICES; i++) total += slices[i][lane];
        to[column] = (T)total;
    }
}
