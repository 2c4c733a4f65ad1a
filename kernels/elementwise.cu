// gelu_tanh, silu, geglu, axpy (residual_add, add_position), gated_residual, clamp, constant: a thread an element.
#include "common.cuh"

#define FOR_EACH(i, n) \
  u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; \
  if (i >= (n)) return;

extern "C" __global__ void gelu_tanh_f32(const float* x, float* out, u32 n) {
  FOR_EACH(i, n)
  out[i] = gelu_tanh_(x[i]);
}

extern "C" __global__ void silu_f32(const float* x, float* out, u32 n) {
  FOR_EACH(i, n)
  out[i] = silu_(x[i]);
}

extern "C" __global__ void geglu_f32(const float* gate, const float* up, float* out, u32 n) {
  FOR_EACH(i, n)
  out[i] = gelu_tanh_(gate[i]) * up[i];
}

extern "C" __global__ void clamp_f32(const float* x, float* out, u32 n, float low, float high) {
  FOR_EACH(i, n)
  float v = x[i];
  v = v < low ? low : v;
  out[i] = high < v ? high : v;
}

// out = x + a * y; y repeats after `period` elements.
extern "C" __global__ void axpy_f32(const float* x, const float* y, float* out, u32 n, u32 period, float a) {
  FOR_EACH(i, n)
  out[i] = fma_(y[i % period], a, x[i]);
}

// out = x + y * gate; the gate has one row of `cols`.
extern "C" __global__ void gated_residual_f32(const float* x, const float* y, const float* gate, float* out, u32 n, u32 cols) {
  FOR_EACH(i, n)
  out[i] = fma_(y[i], gate[i % cols], x[i]);
}

#define CONSTANTS 512
struct Constants {
  float values[CONSTANTS];
};

// out[at + i] = values[i]: values that were known at record time lie in the graph.
extern "C" __global__ void constant_f32(float* out, u32 at, u32 n, Constants constants) {
  FOR_EACH(i, n)
  out[at + i] = constants.values[i];
}
