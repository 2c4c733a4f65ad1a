// sigmoid_gate, silu_gate, gated_rms_norm, delta_gates.
#include "common.cuh"

static __device__ __forceinline__ float sigmoid_(float x) { return 1.0f / (exp_(-0.0f - x) + 1.0f); }

template <typename T>
static __device__ __forceinline__ void gate(const T* x, const T* by, T* out, u32 n, u32 is_silu) {
  u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float g = to_f32(by[i]);
  from_f32(to_f32(x[i]) * (is_silu ? silu_(g) : sigmoid_(g)), out + i);
}

extern "C" __global__ void gate_f32(const float* x, const float* by, float* out, u32 n, u32 is_silu) { gate(x, by, out, n, is_silu); }
extern "C" __global__ void gate_bf16(const bf16* x, const bf16* by, bf16* out, u32 n, u32 is_silu) { gate(x, by, out, n, is_silu); }

// A half warp a row, whose lanes hold the sixteen partial sums.
template <typename T>
static __device__ __forceinline__ void gated_norm(const T* x, const float* weight, const T* by, T* out, u32 rows, u32 cols, float eps) {
  u32 row = blockIdx.x * (blockDim.x / 16) + threadIdx.x / 16, lane = threadIdx.x % 16;
  bool there = row < rows;
  u64 at = (u64)(there ? row : 0) * cols;
  float sum = 0.0f;
  for (u32 i = lane; i < cols; i += 16) {
    float v = to_f32(x[at + i]);
    sum = fma_(v, v, sum);
  }
  float mean = lane0(fold16(sum)) / (float)cols;
  float inverse = 1.0f / sqrtf(mean + eps);
  if (!there) return;
  for (u32 i = lane; i < cols; i += 16)
    from_f32(to_f32(x[at + i]) * inverse * weight[i] * silu_(to_f32(by[at + i])), out + at + i);
}

extern "C" __global__ void gated_rms_norm_f32(const float* x, const float* weight, const float* by, float* out, u32 rows, u32 cols, float eps) {
  gated_norm(x, weight, by, out, rows, cols, eps);
}
extern "C" __global__ void gated_rms_norm_bf16(const bf16* x, const float* weight, const bf16* by, bf16* out, u32 rows, u32 cols, float eps) {
  gated_norm(x, weight, by, out, rows, cols, eps);
}

template <typename T>
static __device__ __forceinline__ void gates(const T* a, const T* b, const float* a_log, const float* dt_bias, float* g, float* beta, u32 n,
                                             u32 heads) {
  u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  u32 head = (u32)(i % heads);
  float x = to_f32(a[i]) + dt_bias[head];
  float softplus = x > 20.0f ? x : ln_(exp_(x) + 1.0f);
  g[i] = -exp_(a_log[head]) * softplus;
  beta[i] = sigmoid_(to_f32(b[i]));
}

extern "C" __global__ void delta_gates_f32(const float* a, const float* b, const float* a_log, const float* dt_bias, float* g, float* beta,
                                           u32 n, u32 heads) {
  gates(a, b, a_log, dt_bias, g, beta, n, heads);
}
extern "C" __global__ void delta_gates_bf16(const bf16* a, const bf16* b, const float* a_log, const float* dt_bias, float* g, float* beta,
                                            u32 n, u32 heads) {
  gates(a, b, a_log, dt_bias, g, beta, n, heads);
}
