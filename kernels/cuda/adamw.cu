// Fused AdamW on split planes: kernels/src/adamw.rs, operation by operation, bit for bit.
#include "common.cuh"
#include "planes.cuh"

constexpr int N = 4;

// kernels/src/adamw.rs Step, after the choice of the decay factor.
struct Step {
    float grad_scale, beta1, one_minus_beta1, beta2, one_minus_beta2, step_size, inv_sqrt_correction2, eps,
        decay_factor;
};

__device__ __forceinline__ bool finite(float x) { return (__float_as_uint(x) & 0x7f800000u) != 0x7f800000u; }

template <int N>
__device__ __forceinline__ void update(const Step& s, const float* grad, u16* hi, i16* lo, float* m, float* v, u64 at,
                                       u64* first_bad) {
    Pack<float, N> pg = *reinterpret_cast<const Pack<float, N>*>(grad);
    Pack<u16, N> ph = *reinterpret_cast<Pack<u16, N>*>(hi);
    Pack<i16, N> pl = *reinterpret_cast<Pack<i16, N>*>(lo);
    Pack<float, N> pm = *reinterpret_cast<Pack<float, N>*>(m);
    Pack<float, N> pv = *reinterpret_cast<Pack<float, N>*>(v);
#pragma unroll
    for (int i = 0; i < N; i++) {
        float g = __fmul_rn(pg.at[i], s.grad_scale);
        float new_m = __fmaf_rn(s.beta1, pm.at[i], __fmul_rn(s.one_minus_beta1, g));
        float new_v = __fmaf_rn(s.beta2, pv.at[i], __fmul_rn(__fmul_rn(s.one_minus_beta2, g), g));
        float denominator = __fmaf_rn(__fsqrt_rn(new_v), s.inv_sqrt_correction2, s.eps);
        float decayed = __fmul_rn(join(ph.at[i], pl.at[i]), s.decay_factor);
        float new_w = __fmaf_rn(-s.step_size, __fdiv_rn(new_m, denominator), decayed);
        split(new_w, ph.at[i], pl.at[i]);
        pm.at[i] = new_m;
        pv.at[i] = new_v;
        if (unrepresentable(new_w) || !finite(new_m) || !finite(new_v)) atomicMin(first_bad, at + i);
    }
    *reinterpret_cast<Pack<u16, N>*>(hi) = ph;
    *reinterpret_cast<Pack<i16, N>*>(lo) = pl;
    *reinterpret_cast<Pack<float, N>*>(m) = pm;
    *reinterpret_cast<Pack<float, N>*>(v) = pv;
}

// first_bad: the least index of an element whose new weight, m or v is refused, if less than what stands there; the
// segment's first element has index `first`.
KERNEL(256) adamw_update(Step step, const float* grad, u16* hi, i16* lo, float* m, float* v, u64 n, u64 first,
                          u64* first_bad) {
    u64 i = global_thread() * N;
    if (i + N <= n && planes_aligned(grad, hi, lo) && aligned(m, v)) {
        update<N>(step, grad + i, hi + i, lo + i, m + i, v + i, first + i, first_bad);
    } else {
        for (int j = 0; j < N && i + j < n; j++) {
            update<1>(step, grad + i + j, hi + i + j, lo + i + j, m + i + j, v + i + j, first + i + j, first_bad);
        }
    }
}
