// gelu_tanh, silu, geglu, axpy (residual_add, add_position), gated_residual, clamp, constant: in f32 a thread an element, in half
// precision a thread sixteen bytes.
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

// ---- half precision ----

// out = f(x, y) by packs; what is left behind the last whole pack, or everything on odd addresses, element by element.
template <typename T, typename F>
static __device__ __forceinline__ void map2(const T* x, const T* y, T* out, u32 n, u32 is_packed, F f) {
  const u32 SIZE = Pack<T>::SIZE;
  u64 first = ((u64)blockIdx.x * blockDim.x + threadIdx.x) * SIZE;
  if (first >= n) return;
  if (is_packed && first + SIZE <= n) {
    Pack<T> a = load_pack(x + first), b = y ? load_pack(y + first) : a;
    for (u32 e = 0; e < SIZE; e++) from_f32(f(to_f32(a.v[e]), to_f32(b.v[e])), &a.v[e]);
    store_pack(out + first, a);
    return;
  }
  for (u64 i = first; i < first + SIZE && i < n; i++) from_f32(f(to_f32(x[i]), y ? to_f32(y[i]) : 0.0f), out + i);
}

#define HALVES(T) \
  extern "C" __global__ void gelu_tanh_##T(const T* x, T* out, u32 n, u32 is_packed) { \
    map2(x, (const T*)0, out, n, is_packed, [](float a, float) { return fast_gelu_tanh(a); }); \
  } \
  extern "C" __global__ void silu_##T(const T* x, T* out, u32 n, u32 is_packed) { \
    map2(x, (const T*)0, out, n, is_packed, [](float a, float) { return fast_silu(a); }); \
  } \
  extern "C" __global__ void geglu_##T(const T* gate, const T* up, T* out, u32 n, u32 is_packed) { \
    map2(gate, up, out, n, is_packed, [](float a, float b) { return fast_gelu_tanh(a) * b; }); \
  } \
  extern "C" __global__ void residual_add_##T(const T* x, const T* y, T* out, u32 n, u32 is_packed) { \
    map2(x, y, out, n, is_packed, [](float a, float b) { return a + b; }); \
  }
HALVES(f16)
HALVES(bf16)
