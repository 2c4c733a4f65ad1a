// action_unnormalize.
#include "common.cuh"

// A thread an element of out [h, a]. A step of 0 repeats one row of std or mean; state and mask may be null.
extern "C" __global__ void action_unnormalize_f32(
    const float* raw, u32 raw_cols, const float* std, u32 std_step, const float* mean, u32 mean_step, const float* state,
    const u8* mask, u32 state_len, float* out, u32 n, u32 a) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  u32 row = i / a, d = i % a;
  float v = fma_(raw[(u64)row * raw_cols + d], std[row * std_step + d], mean[row * mean_step + d]);
  if (d < state_len && mask[d] != 0) v += state[d];
  out[i] = v;
}
