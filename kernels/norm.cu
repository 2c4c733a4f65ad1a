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

#define ROW_THREADS 256

enum Kind { LAYER, RMS, ADA };

// `a`: weight, or the style's scale; `b`: bias, or the style's shift; both f32 [cols]. Rows of whole packs on 16-byte addresses go by
// packs, others element by element.
template <typename T>
static __device__ __forceinline__ void norm_rows(
    const T* x, const float* a, const float* b, T* out, u32 cols, float eps, u32 is_packed, Kind kind) {
  __shared__ float scratch[ROW_THREADS / 32];
  const u32 SIZE = Pack<T>::SIZE;
  x += (u64)blockIdx.x * cols;
  out += (u64)blockIdx.x * cols;

  float sum = 0.0f, mean = 0.0f;
  if (kind == LAYER) {
    if (is_packed) {
      for (u32 i = threadIdx.x * SIZE; i < cols; i += ROW_THREADS * SIZE) {
        Pack<T> pack = load_pack(x + i);
        for (u32 e = 0; e < SIZE; e++) sum += to_f32(pack.v[e]);
      }
    } else {
      for (u32 i = threadIdx.x; i < cols; i += ROW_THREADS) sum += to_f32(x[i]);
    }
    mean = block_sum(sum, scratch) / (float)cols;
    sum = 0.0f;
  }
  if (is_packed) {
    for (u32 i = threadIdx.x * SIZE; i < cols; i += ROW_THREADS * SIZE) {
      Pack<T> pack = load_pack(x + i);
      for (u32 e = 0; e < SIZE; e++) {
        float v = to_f32(pack.v[e]) - mean;
        sum = fma_(v, v, sum);
      }
    }
  } else {
    for (u32 i = threadIdx.x; i < cols; i += ROW_THREADS) {
      float v = to_f32(x[i]) - mean;
      sum = fma_(v, v, sum);
    }
  }
  float inverse = 1.0f / __fsqrt_rn(block_sum(sum, scratch) / (float)cols + eps);

  // The second reading comes from the cache.
  if (is_packed) {
    for (u32 i = threadIdx.x * SIZE; i < cols; i += ROW_THREADS * SIZE) {
      Pack<T> pack = load_pack(x + i);
      for (u32 e = 0; e < SIZE; e++) {
        float v = (to_f32(pack.v[e]) - mean) * inverse, w = a[i + e];
        from_f32(kind == LAYER ? fma_(v, w, b[i + e]) : kind == RMS ? v * (w + 1.0f) : fma_(v, w + 1.0f, b[i + e]), &pack.v[e]);
      }
      store_pack(out + i, pack);
    }
  } else {
    for (u32 i = threadIdx.x; i < cols; i += ROW_THREADS) {
      float v = (to_f32(x[i]) - mean) * inverse, w = a[i];
      from_f32(kind == LAYER ? fma_(v, w, b[i]) : kind == RMS ? v * (w + 1.0f) : fma_(v, w + 1.0f, b[i]), out + i);
    }
  }
}

#define ROWS(T) \
  extern "C" __global__ void __launch_bounds__(ROW_THREADS) layer_norm_##T( \
      const T* x, const float* weight, const float* bias, T* out, u32 rows, u32 cols, float eps, u32 is_packed) { \
    norm_rows(x, weight, bias, out, cols, eps, is_packed, LAYER); \
  } \
  extern "C" __global__ void __launch_bounds__(ROW_THREADS) rms_norm_##T( \
      const T* x, const float* weight, T* out, u32 rows, u32 cols, float eps, u32 is_packed) { \
    norm_rows(x, weight, (const float*)0, out, cols, eps, is_packed, RMS); \
  } \
  extern "C" __global__ void __launch_bounds__(ROW_THREADS) ada_rms_norm_##T( \
      const T* x, const float* style, T* out, u32 rows, u32 cols, float eps, u32 is_packed) { \
    norm_rows(x, style, style + cols, out, cols, eps, is_packed, ADA); \
  }
ROWS(f16)
ROWS(bf16)
