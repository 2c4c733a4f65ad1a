// matmul in f32: each output is one fused multiply-add chain over k from zero, as on the CPU; threads share out the outputs.
#include "common.cuh"

#define COLS 32   // of a block: two panels of the weight
#define STEP 32   // of k in shared memory at a time
#define THREADS 256

enum Finish { PLAIN, GELU_TANH, SILU, RESIDUAL, RESIDUAL_GATE, GEGLU_UP };

// a [m, k]; panels [ceil(n/16)][k][16], zero beyond n; other: residual or gate [m, n]; gate [n]. A block has ROWS rows and COLS
// columns; a thread one column of ROWS / 8 rows.
template <int ROWS>
static __device__ __forceinline__ void matmul(
    const float* a, const float* panels, const float* bias, float* out, u32 m, u32 n, u32 k, u32 finish, const float* other,
    const float* gate) {
  const int EACH = ROWS / (THREADS / COLS);
  __shared__ float left[ROWS][STEP + 1];
  __shared__ float right[STEP][COLS];
  u32 first_row = blockIdx.y * ROWS, first_col = blockIdx.x * COLS;
  u32 col = threadIdx.x % COLS, group = threadIdx.x / COLS;
  float sums[EACH];
  for (int e = 0; e < EACH; e++) sums[e] = 0.0f;

  for (u32 at = 0; at < k; at += STEP) {
    for (u32 i = threadIdx.x; i < ROWS * STEP; i += THREADS) {
      u32 row = first_row + i / STEP, p = at + i % STEP;
      left[i / STEP][i % STEP] = row < m && p < k ? a[(u64)row * k + p] : 0.0f;
    }
    for (u32 i = threadIdx.x; i < STEP * COLS; i += THREADS) {
      u32 p = at + i / COLS, c = first_col + i % COLS;
      right[i / COLS][i % COLS] = p < k && c < (n + 15) / 16 * 16 ? panels[((u64)(c / 16) * k + p) * 16 + c % 16] : 0.0f;
    }
    __syncthreads();
    u32 steps = min((u32)STEP, k - at);
    for (u32 p = 0; p < steps; p++) {
      float b = right[p][col];
      for (int e = 0; e < EACH; e++) sums[e] = fma_(left[group * EACH + e][p], b, sums[e]);
    }
    __syncthreads();
  }

  u32 c = first_col + col;
  if (c >= n) return;
  for (int e = 0; e < EACH; e++) {
    u32 row = first_row + group * EACH + e;
    if (row >= m) return;
    float y = sums[e];
    if (bias) y += bias[c];
    u64 i = (u64)row * n + c;
    switch (finish) {
      case GELU_TANH: y = gelu_tanh_(y); break;
      case SILU: y = silu_(y); break;
      case RESIDUAL: y = other[i] + y; break;
      case RESIDUAL_GATE: y = fma_(y, gate[c], other[i]); break;
      case GEGLU_UP: y = gelu_tanh_(other[i]) * y; break;
      default: break;
    }
    out[i] = y;
  }
}

extern "C" __global__ void __launch_bounds__(THREADS) matmul_8_f32(
    const float* a, const float* panels, const float* bias, float* out, u32 m, u32 n, u32 k, u32 finish, const float* other,
    const float* gate) {
  matmul<8>(a, panels, bias, out, m, n, k, finish, other, gate);
}

extern "C" __global__ void __launch_bounds__(THREADS) matmul_32_f32(
    const float* a, const float* panels, const float* bias, float* out, u32 m, u32 n, u32 k, u32 finish, const float* other,
    const float* gate) {
  matmul<32>(a, panels, bias, out, m, n, k, finish, other, gate);
}
