// positions_from_mask, suffix_positions, rope_table, rope.
#include "common.cuh"

#define THREADS 256

// One block. Each thread counts a run of tokens, then all runs before its own.
extern "C" __global__ void positions(const u8* mask, u32 n, int* out, u32 m, u32 is_after) {
  __shared__ int counts[THREADS];
  u32 run = (n + THREADS - 1) / THREADS;
  u32 first = min(threadIdx.x * run, n), end = min(first + run, n);
  int count = 0;
  for (u32 i = first; i < end; i++) count += mask[i] != 0;
  counts[threadIdx.x] = count;
  __syncthreads();
  int before = 0, all = 0;
  for (u32 t = 0; t < THREADS; t++) {
    if (t == threadIdx.x) before = all;
    all += counts[t];
  }
  if (is_after) {
    for (u32 j = threadIdx.x; j < m; j += THREADS) out[j] = all + (int)j;
    return;
  }
  for (u32 i = first; i < end; i++) {
    before += mask[i] != 0;
    out[i] = before - 1;
  }
}

#define FREQUENCIES 512
struct Frequencies {
  float values[FREQUENCIES];
};

// Column j of a row is the cosine, column half + j the sine of position * frequency j.
extern "C" __global__ void rope_table_f32(const int* positions, float* table, u32 rows, u32 half, Frequencies frequencies) {
  u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= (u64)rows * half) return;
  u32 row = (u32)(i / half), j = (u32)(i % half);
  float sin, cos;
  sin_cos((float)positions[row] * frequencies.values[j], &sin, &cos);
  float* out = table + (u64)row * 2 * half;
  out[j] = cos;
  out[half + j] = sin;
}

// Rotates pairs (j, half + j) of each head of `dim` elements.
extern "C" __global__ void rope_f32(const float* x, const float* table, float* out, u32 rows, u32 heads, u32 half, u32 dim) {
  u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= (u64)rows * heads * half) return;
  u32 j = (u32)(i % half);
  u64 head = i / half;
  const float* angles = table + head / heads * 2 * half;
  float cos = angles[j], sin = angles[half + j];
  u64 at = head * dim + j;
  float a = x[at], b = x[at + half];
  out[at] = fma_(-b, sin, a * cos);
  out[at + half] = fma_(a, sin, b * cos);
}

// ---- half precision; the table stays f32 ----

// A thread a pack of pairs, when half a head is whole packs on 16-byte addresses, otherwise a pair.
template <typename T>
static __device__ __forceinline__ void rotate(
    const T* x, const float* table, T* out, u32 rows, u32 heads, u32 half, u32 dim, u32 is_packed) {
  const u32 SIZE = Pack<T>::SIZE;
  u32 each = is_packed ? SIZE : 1;
  u64 i = ((u64)blockIdx.x * blockDim.x + threadIdx.x) * each;
  if (i >= (u64)rows * heads * half) return;
  u32 j = (u32)(i % half);
  u64 head = i / half;
  const float* angles = table + head / heads * 2 * half + j;
  u64 at = head * dim + j;
  if (!is_packed) {
    float a = to_f32(x[at]), b = to_f32(x[at + half]), cos = angles[0], sin = angles[half];
    from_f32(fma_(-b, sin, a * cos), out + at);
    from_f32(fma_(a, sin, b * cos), out + at + half);
    return;
  }
  Pack<T> first = load_pack(x + at), second = load_pack(x + at + half);
  for (u32 e = 0; e < SIZE; e++) {
    float a = to_f32(first.v[e]), b = to_f32(second.v[e]), cos = angles[e], sin = angles[half + e];
    from_f32(fma_(-b, sin, a * cos), &first.v[e]);
    from_f32(fma_(a, sin, b * cos), &second.v[e]);
  }
  store_pack(out + at, first);
  store_pack(out + at + half, second);
}

extern "C" __global__ void rope_f16(const f16* x, const float* table, f16* out, u32 rows, u32 heads, u32 half, u32 dim, u32 is_packed) {
  rotate(x, table, out, rows, heads, half, dim, is_packed);
}

extern "C" __global__ void rope_bf16(const bf16* x, const float* table, bf16* out, u32 rows, u32 heads, u32 half, u32 dim, u32 is_packed) {
  rotate(x, table, out, rows, heads, half, dim, is_packed);
}
