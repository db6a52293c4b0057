// What the attention kernels for f32 and for bf16 share.
#pragma once
#include "common.cuh"

struct Shape {
    u32 seq, heads, group, dim;
    // Elements from a token to the next: of q and dq; of k, v, dk and dv; of out and dout.
    u32 q_stride, kv_stride, out_stride;
    float scale;
    // 0: none.
    float cap;
};
