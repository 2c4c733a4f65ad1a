// layer_norm, rms_norm, ada_rms_norm. In f32 a half warp a row: element i is summed by lane i % 16, then the lanes as a fixed tree,
// as on the CPU. In half precision a block a row, sixteen bytes a load.
#include "common.cuh"

#define LANES 16

struct Row {
  const float* x;
  float* out;
  u32 lane;
};

// False for half warps beyond the last row; they stay for the shuffles with row 0.
static __device__ __forceinline__ bool row_of(const float* x, float* out, u32 rows, u32 cols, Row* row) {
  u32 index = blockIdx.x * (blockDim.x / LANES) + threadIdx.x / LANES;
  bool is_there = index < rows;
  u64 at = (u64)(is_there ? index : 0) * cols;
  row->x = x + at;
  row->out = out + at;
  row->lane = threadIdx.x % LANES;
  return is_there;
}

static __device__ __forceinline__ float inverse_rms(Row row, u32 cols, float eps) {
  float sum = 0.0f;
  for (u32 i = row.lane; i < cols; i += LANES) sum = fma_(row.x[i], row.x[i], sum);
  return 1.0f / __fsqrt_rn(lane0(fold16(sum)) / (float)cols + eps);
}

extern "C" __global__ void layer_norm_f32(
    const float* x, const float* weight, const float* bias, float* out, u32 rows, u32 cols, float eps) {
  Row row;
  bool is_there = row_of(x, out, rows, cols, &row);
  float sum = 0.0f;
  for (u32 i = row.lane; i < cols; i += LANES) sum = sum + row.x[i];
  float mean = lane0(fold16(sum)) / (float)cols;
  sum = 0.0f;
  for (u32 i = row.lane; i < cols; i += LANES) {
    float v = row.x[i] - mean;
    sum = fma_(v, v, sum);
  }
  float inverse = 1.0f / __fsqrt_rn(lane0(fold16(sum)) / (float)cols + eps);
  if (!is_there) return;
  for (u32 i = row.lane; i < cols; i += LANES) row.out[i] = fma_((row.x[i] - mean) * inverse, weight[i], bias[i]);
}

extern "C" __global__ void rms_norm_f32(const float* x, const float* weight, float* out, u32 rows, u32 cols, float eps) {
  Row row;
  bool is_there = row_of(x, out, rows, cols, &row);
  float inverse = inverse_rms(row, cols, eps);
  if (!is_there) return;
  for (u32 i = row.lane; i < cols; i += LANES) row.out[i] = row.x[i] * inverse * (weight[i] + 1.0f);
}

extern "C" __global__ void ada_rms_norm_f32(const float* x, const float* style, float* out, u32 rows, u32 cols, float eps) {
  Row row;
  bool is_there = row_of(x, out, rows, cols, &row);
  float inverse = inverse_rms(row, cols, eps);
  if (!is_there) return;
  for (u32 i = row.lane; i < cols; i += LANES) row.out[i] = fma_(row.x[i] * inverse, style[i] + 1.0f, style[cols + i]);
}

// ---- half precision ----

#define MOST_THREADS 512
#define HELD 4  // packs of a row that a thread keeps in registers; the launch has as many threads as that takes

enum Kind { LAYER, RMS, ADA };

// `w` and `b` of one element: weight or the style's scale, bias or the style's shift.
static __device__ __forceinline__ float scaled(Kind kind, float v, float w, float b) {
  return kind == LAYER ? fma_(v, w, b) : kind == RMS ? v * (w + 1.0f) : fma_(v, w + 1.0f, b);
}

// Rows of whole packs on 16-byte addresses, HELD packs a thread at most: read once.
template <typename T, Kind kind>
static __device__ __forceinline__ void held_rows(
    const T* x, const float* w, const float* b, T* out, u32 cols, float eps, float* scratch) {
  const u32 SIZE = Pack<T>::SIZE, STEP = blockDim.x * SIZE;
  u32 first = threadIdx.x * SIZE;
  Pack<T> held[HELD];
  float sum = 0.0f, mean = 0.0f;
#pragma unroll
  for (u32 p = 0; p < HELD; p++) {
    if (first + p * STEP < cols) held[p] = load_pack(x + first + p * STEP);
  }
  if (kind == LAYER) {
#pragma unroll
    for (u32 p = 0; p < HELD; p++) {
      if (first + p * STEP >= cols) break;
      for (u32 e = 0; e < SIZE; e++) sum += to_f32(held[p].v[e]);
    }
    mean = block_sum(sum, scratch) / (float)cols;
    sum = 0.0f;
  }
#pragma unroll
  for (u32 p = 0; p < HELD; p++) {
    if (first + p * STEP >= cols) break;
    for (u32 e = 0; e < SIZE; e++) {
      float v = to_f32(held[p].v[e]) - mean;
      sum = fma_(v, v, sum);
    }
  }
  float inverse = 1.0f / __fsqrt_rn(block_sum(sum, scratch) / (float)cols + eps);
#pragma unroll
  for (u32 p = 0; p < HELD; p++) {
    u32 i = first + p * STEP;
    if (i >= cols) break;
#pragma unroll
    for (u32 e = 0; e < SIZE; e += 4) {
      float4 ws = *(const float4*)(w + i + e), bs = ws;
      if (kind != RMS) bs = *(const float4*)(b + i + e);
      float we[4] = {ws.x, ws.y, ws.z, ws.w}, be[4] = {bs.x, bs.y, bs.z, bs.w};
#pragma unroll
      for (u32 f = 0; f < 4; f++) {
        float v = (to_f32(held[p].v[e + f]) - mean) * inverse;
        from_f32(scaled(kind, v, we[f], be[f]), &held[p].v[e + f]);
      }
    }
    store_pack(out + i, held[p]);
  }
}

// Any row, element by element; the second and third reading come from the cache.
template <typename T, Kind kind>
static __device__ __forceinline__ void plain_rows(
    const T* x, const float* w, const float* b, T* out, u32 cols, float eps, float* scratch) {
  float sum = 0.0f, mean = 0.0f;
  if (kind == LAYER) {
    for (u32 i = threadIdx.x; i < cols; i += blockDim.x) sum += to_f32(x[i]);
    mean = block_sum(sum, scratch) / (float)cols;
    sum = 0.0f;
  }
  for (u32 i = threadIdx.x; i < cols; i += blockDim.x) {
    float v = to_f32(x[i]) - mean;
    sum = fma_(v, v, sum);
  }
  float inverse = 1.0f / __fsqrt_rn(block_sum(sum, scratch) / (float)cols + eps);
  for (u32 i = threadIdx.x; i < cols; i += blockDim.x) {
    from_f32(scaled(kind, (to_f32(x[i]) - mean) * inverse, w[i], kind == RMS ? 0.0f : b[i]), out + i);
  }
}

template <typename T, Kind kind>
static __device__ __forceinline__ void norm_rows(
    const T* x, const float* w, const float* b, T* out, u32 cols, float eps, u32 is_packed) {
  __shared__ float scratch[MOST_THREADS / 32];
  x += (u64)blockIdx.x * cols;
  out += (u64)blockIdx.x * cols;
  if (is_packed && cols <= HELD * blockDim.x * Pack<T>::SIZE) held_rows<T, kind>(x, w, b, out, cols, eps, scratch);
  else plain_rows<T, kind>(x, w, b, out, cols, eps, scratch);
}

#define ROWS(T) \
  extern "C" __global__ void __launch_bounds__(MOST_THREADS, 2) layer_norm_##T( \
      const T* x, const float* weight, const float* bias, T* out, u32 rows, u32 cols, float eps, u32 is_packed) { \
    norm_rows<T, LAYER>(x, weight, bias, out, cols, eps, is_packed); \
  } \
  extern "C" __global__ void __launch_bounds__(MOST_THREADS, 2) rms_norm_##T( \
      const T* x, const float* weight, T* out, u32 rows, u32 cols, float eps, u32 is_packed) { \
    norm_rows<T, RMS>(x, weight, (const float*)0, out, cols, eps, is_packed); \
  } \
  extern "C" __global__ void __launch_bounds__(MOST_THREADS, 2) ada_rms_norm_##T( \
      const T* x, const float* style, T* out, u32 rows, u32 cols, float eps, u32 is_packed) { \
    norm_rows<T, ADA>(x, style, style + cols, out, cols, eps, is_packed); \
  }
ROWS(f16)
ROWS(bf16)
