// linear for few rows: weights [n, k] in half precision are read once, at the speed of the memory.
#include "common.cuh"

#define WARPS 8
#define AHEAD 4  // loads of a lane that are under way at once

enum Finish { PLAIN, GELU_TANH, SILU, RESIDUAL, GEGLU };

// A warp C output columns of every row: x [M, k], w [n, k], out [M, n]. A lane sums every 32nd pack of a row, then the lanes as a
// fixed tree. k is a multiple of a pack; everything starts on 16 bytes. With GEGLU, `other` is the weight of the gate, otherwise the
// residual [M, n]. Columns beyond the last one repeat it.
template <typename T, int M, int C>
static __device__ __forceinline__ void dot(const T* x, const T* w, u32 first_column, u32 n, u32 k, float sums[C][M]) {
  const u32 SIZE = Pack<T>::SIZE;
  u32 lane = threadIdx.x % 32, step = 32 * SIZE;
  const T* rows[C];
  for (int c = 0; c < C; c++) {
    rows[c] = w + (u64)min(first_column + c, n - 1) * k;
    for (int m = 0; m < M; m++) sums[c][m] = 0.0f;
  }
  for (u32 first = lane * SIZE; first < k; first += step * AHEAD) {
    Pack<T> packs[AHEAD][C];
#pragma unroll
    for (int a = 0; a < AHEAD; a++) {
#pragma unroll
      for (int c = 0; c < C; c++) {
        if (first + a * step < k) packs[a][c] = load_pack(rows[c] + first + a * step);
      }
    }
#pragma unroll
    for (int a = 0; a < AHEAD; a++) {
      u32 at = first + a * step;
      if (at >= k) break;
#pragma unroll
      for (int m = 0; m < M; m++) {
        Pack<T> row = load_pack(x + (u64)m * k + at);
#pragma unroll
        for (int c = 0; c < C; c++) {
          for (u32 e = 0; e < SIZE; e++) sums[c][m] = fma_(to_f32(packs[a][c].v[e]), to_f32(row.v[e]), sums[c][m]);
        }
      }
    }
  }
  for (int c = 0; c < C; c++) {
    for (int m = 0; m < M; m++) sums[c][m] = warp_sum(sums[c][m]);
  }
}

template <typename T, int M>
static __device__ __forceinline__ void gemv(
    const T* x, const T* w, const float* bias, T* out, u32 n, u32 k, u32 finish, const T* other) {
  const int C = M == 1 ? 2 : 1;
  u32 first = (blockIdx.x * WARPS + threadIdx.x / 32) * C;
  if (first >= n) return;
  float sums[C][M], gates[C][M];
  if (finish == GEGLU) dot<T, M, C>(x, other, first, n, k, gates);
  dot<T, M, C>(x, w, first, n, k, sums);
  if (threadIdx.x % 32 != 0) return;
  for (int c = 0; c < C; c++) {
    u32 column = first + c;
    if (column >= n) return;
    for (int m = 0; m < M; m++) {
      float y = sums[c][m] + (bias ? bias[column] : 0.0f);
      u64 at = (u64)m * n + column;
      switch (finish) {
        case GELU_TANH: y = gelu_tanh_(y); break;
        case SILU: y = silu_(y); break;
        case RESIDUAL: y = to_f32(other[at]) + y; break;
        case GEGLU: y = gelu_tanh_(gates[c][m]) * y; break;
        default: break;
      }
      from_f32(y, out + at);
    }
  }
}

#define GEMV(T, M) \
  extern "C" __global__ void __launch_bounds__(WARPS * 32) gemv_##M##_##T( \
      const T* x, const T* w, const float* bias, T* out, u32 n, u32 k, u32 finish, const T* other) { \
    gemv<T, M>(x, w, bias, out, n, k, finish, other); \
  }
GEMV(f16, 1) GEMV(f16, 2) GEMV(f16, 3) GEMV(f16, 4)
GEMV(bf16, 1) GEMV(bf16, 2) GEMV(bf16, 3) GEMV(bf16, 4)
