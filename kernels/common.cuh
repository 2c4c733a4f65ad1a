// What every kernel file may use: types without CUDA's headers, and elementary functions that give the CPU's bits.
//
// Sources include nothing else: a robot has NVRTC, but seldom its headers. They are compiled with --fmad=false, so that a product
// and a sum are two roundings unless `fma_` is written.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

// ---- as in src/ops/src/math.rs, rounding by rounding ----

static __device__ __forceinline__ float fma_(float a, float b, float c) { return __fmaf_rn(a, b, c); }

// 1.5 * 2^23: adding it rounds to the nearest integer, which then sits in the low mantissa bits.
#define MAGIC 12582912.0f
#define LN2_HI 0.69314718055994530942f
#define LN2_LO (-1.9046543e-9f)

// e^x; 0 below -87.33, +inf above 88.37, NaN stays NaN.
static __device__ __forceinline__ float exp_(float x) {
  float t = fma_(x, 1.44269504088896340736f, MAGIC);
  float n = t - MAGIC;
  float r = fma_(n, -LN2_HI, x);
  r = fma_(n, -LN2_LO, r);
  float p = 1.0f / 5040.0f;
  p = fma_(p, r, 1.0f / 720.0f);
  p = fma_(p, r, 1.0f / 120.0f);
  p = fma_(p, r, 1.0f / 24.0f);
  p = fma_(p, r, 1.0f / 6.0f);
  p = fma_(p, r, 0.5f);
  p = fma_(p * r, r, r) + 1.0f;
  float y = p * __int_as_float((int)(((u32)__float_as_int(t) << 23) + 0x3f800000u));
  y = x < -87.33f ? 0.0f : y;
  return 88.37f < x ? __int_as_float(0x7f800000) : y;
}

static __device__ __forceinline__ float silu_(float x) { return x / (exp_(-0.0f - x) + 1.0f); }

static __device__ __forceinline__ float gelu_tanh_(float x) {
  float minus_2u = fma_(x * x, -0.071354814f, -1.5957692f) * x;
  return x / (exp_(minus_2u) + 1.0f);
}

// Sine and cosine of q * pi/2 + r.
static __device__ __forceinline__ void quadrant(u32 q, float r, float* sin, float* cos) {
  float z = r * r;
  float s = fma_(z, 1.0f / 362880.0f, -1.0f / 5040.0f);
  s = fma_(s, z, 1.0f / 120.0f);
  s = fma_(s, z, -1.0f / 6.0f);
  s = fma_(s * z, r, r);
  float c = fma_(z, -1.0f / 3628800.0f, 1.0f / 40320.0f);
  c = fma_(c, z, -1.0f / 720.0f);
  c = fma_(c, z, 1.0f / 24.0f);
  c = fma_(c, z, -0.5f);
  c = fma_(c, z, 1.0f);
  switch (q & 3) {
    case 0: *sin = s; *cos = c; break;
    case 1: *sin = c; *cos = -s; break;
    case 2: *sin = -s; *cos = -c; break;
    default: *sin = -c; *cos = s; break;
  }
}

// Of an angle in radians, |x| <= 1e5.
static __device__ __forceinline__ void sin_cos(float x, float* sin, float* cos) {
  float t = fma_(x, 0.63661977236758134308f, MAGIC);
  float n = t - MAGIC;
  float r = fma_(n, -1.57079632679489661923f, x);
  r = fma_(n, 4.371139e-8f, r);
  r = fma_(n, 1.7151245e-15f, r);
  quadrant((u32)__float_as_int(t), r, sin, cos);
}

// Of 2 pi n / 2^24.
static __device__ __forceinline__ void sin_cos_turns(u32 n, float* sin, float* cos) {
  u32 q = (n + (1u << 21)) >> 22;
  int r = (int)n - (int)(q << 22);
  quadrant(q, ((float)r * (1.0f / 16777216.0f)) * 6.28318530717958647693f, sin, cos);
}

// Of a normal positive x.
static __device__ __forceinline__ float ln_(float x) {
  u32 d = (u32)__float_as_int(x) - 0x3f3504f3u;
  float e = (float)((int)d >> 23);
  float m = __int_as_float((int)((d & 0x007fffffu) + 0x3f3504f3u));
  float f = m - 1.0f;
  float s = f / (2.0f + f);
  float z = s * s;
  float p = fma_(z, 2.0f / 11.0f, 2.0f / 9.0f);
  p = fma_(p, z, 2.0f / 7.0f);
  p = fma_(p, z, 2.0f / 5.0f);
  p = fma_(p, z, 2.0f / 3.0f);
  float l = fma_(s * z, p, fma_(-s, f, f));
  return fma_(e, LN2_HI, fma_(e, LN2_LO, l));
}

// Sum over the sixteen lanes of a half warp, as the CPU folds its lanes: lane i takes lane i + 8, then 4, 2, 1. In lane 0.
static __device__ __forceinline__ float fold16(float v) {
  for (int half = 8; half > 0; half /= 2) v += __shfl_down_sync(0xffffffffu, v, half, 16);
  return v;
}

// The value of lane 0 of each half warp.
static __device__ __forceinline__ float lane0(float v) { return __shfl_sync(0xffffffffu, v, 0, 16); }

// ---- half precision: stored in 16 bits, computed in f32 ----

struct f16 { u16 bits; };
struct bf16 { u16 bits; };

static __device__ __forceinline__ float to_f32(float v) { return v; }

static __device__ __forceinline__ float to_f32(f16 v) {
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(v.bits));
  return f;
}

static __device__ __forceinline__ float to_f32(bf16 v) { return __int_as_float((int)((u32)v.bits << 16)); }

static __device__ __forceinline__ void from_f32(float f, float* v) { *v = f; }

static __device__ __forceinline__ void from_f32(float f, f16* v) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(v->bits) : "f"(f)); }

static __device__ __forceinline__ void from_f32(float f, bf16* v) { asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(v->bits) : "f"(f)); }

// 1 / (1 + 2^x) within a few units of f32's last place: enough below a rounding to 16 bits, and fast.
static __device__ __forceinline__ float fast_sigmoid2(float x) {
  float e, r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(x));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(e + 1.0f));
  return r;
}

#define LOG2_E 1.44269504088896340736f

static __device__ __forceinline__ float fast_silu(float x) { return x * fast_sigmoid2(-LOG2_E * x); }

static __device__ __forceinline__ float fast_gelu_tanh(float x) {
  return x * fast_sigmoid2(fma_(x * x, -0.071354814f * LOG2_E, -1.5957692f * LOG2_E) * x);
}

// Sixteen bytes of elements, moved as one.
template <typename T>
union alignas(16) Pack {
  static const u32 SIZE = 16 / sizeof(T);
  uint4 raw;
  T v[SIZE];
};

template <typename T>
static __device__ __forceinline__ Pack<T> load_pack(const T* p) {
  Pack<T> pack;
  pack.raw = *(const uint4*)p;
  return pack;
}

template <typename T>
static __device__ __forceinline__ void store_pack(T* p, const Pack<T>& pack) {
  *(uint4*)p = pack.raw;
}

// Sum over a warp, in every lane; the same tree for each of them.
static __device__ __forceinline__ float warp_sum(float v) {
  for (int lane = 16; lane > 0; lane /= 2) v += __shfl_xor_sync(0xffffffffu, v, lane);
  return v;
}

// Sum over a block of whole warps, in every thread. `scratch` has a float a warp.
static __device__ __forceinline__ float block_sum(float v, float* scratch) {
  v = warp_sum(v);
  __syncthreads();
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = v;
  __syncthreads();
  float sum = 0.0f;
  for (u32 w = 0; w < blockDim.x / 32; w++) sum += scratch[w];
  return sum;
}
