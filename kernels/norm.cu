// layer_norm, rms_norm, ada_rms_norm: a half warp a row; element i is summed by lane i % 16, then the lanes as a fixed tree.
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
