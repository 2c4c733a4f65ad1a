// Causal depthwise convolution over tokens, four taps, with the last three inputs of every channel kept in `state` [C, 3].
//
// A thread has one channel, or the channels of sixteen bytes, and TOKENS tokens. That of the first tokens also makes the new state,
// since nobody else reads the old one.
#include "common.cuh"

#define TAPS 4
#define TOKENS 16

template <typename T, u32 N>
struct Channels {
  float v[N];
};

template <typename T, u32 N>
static __device__ __forceinline__ Channels<T, N> load(const T* p) {
  Channels<T, N> c;
  if constexpr (N == 1) {
    c.v[0] = to_f32(*p);
  } else {
    Pack<T> pack = load_pack(p);
#pragma unroll
    for (u32 i = 0; i < N; i++) c.v[i] = to_f32(pack.v[i]);
  }
  return c;
}

template <typename T, u32 N>
static __device__ __forceinline__ void store(T* p, const Channels<T, N>& c) {
  if constexpr (N == 1) {
    from_f32(c.v[0], p);
  } else {
    Pack<T> pack;
#pragma unroll
    for (u32 i = 0; i < N; i++) from_f32(c.v[i], &pack.v[i]);
    store_pack(p, pack);
  }
}

// An input of `tokens` rows after the three of the state.
template <typename T, u32 N>
static __device__ __forceinline__ Channels<T, N> input(const T* x, const float* state, int token, u32 channel, u32 channels) {
  if (token >= 0) return load<T, N>(x + (u64)token * channels + channel);
  Channels<T, N> c;
#pragma unroll
  for (u32 i = 0; i < N; i++) c.v[i] = state[(channel + i) * (TAPS - 1) + (TAPS - 1) + token];
  return c;
}

template <typename T, u32 N>
static __device__ __forceinline__ void convolve(const T* x, const float* weight, const float* bias, float* state, T* out, u32 tokens,
                                                u32 channels, u32 activate) {
  u32 channel = (blockIdx.x * blockDim.x + threadIdx.x) * N;
  if (channel >= channels) return;
  int first = blockIdx.y * TOKENS;
  float w[TAPS][N], b[N];
#pragma unroll
  for (u32 i = 0; i < N; i++) {
    b[i] = bias ? bias[channel + i] : 0.0f;
#pragma unroll
    for (u32 j = 0; j < TAPS; j++) w[j][i] = weight[(channel + i) * TAPS + j];
  }
  Channels<T, N> window[TAPS];
#pragma unroll
  for (int j = 0; j < TAPS - 1; j++) window[j + 1] = input<T, N>(x, state, first + j - (TAPS - 1), channel, channels);
  if (first == 0) {
    Channels<T, N> last[TAPS - 1];
#pragma unroll
    for (int j = 0; j < TAPS - 1; j++) last[j] = input<T, N>(x, state, (int)tokens + j - (TAPS - 1), channel, channels);
#pragma unroll
    for (u32 j = 0; j < TAPS - 1; j++) {
#pragma unroll
      for (u32 i = 0; i < N; i++) state[(channel + i) * (TAPS - 1) + j] = last[j].v[i];
    }
  }
  for (u32 token = first; token < tokens && token < first + TOKENS; token++) {
#pragma unroll
    for (u32 j = 0; j < TAPS - 1; j++) window[j] = window[j + 1];
    window[TAPS - 1] = load<T, N>(x + (u64)token * channels + channel);
    Channels<T, N> y;
#pragma unroll
    for (u32 i = 0; i < N; i++) {
      y.v[i] = b[i];
#pragma unroll
      for (u32 j = 0; j < TAPS; j++) y.v[i] = fma_(window[j].v[i], w[j][i], y.v[i]);
      if (activate) y.v[i] = silu_(y.v[i]);
    }
    store<T, N>(out + (u64)token * channels + channel, y);
  }
}

#define CONVOLVE(NAME, T, N)                                                                                                   \
  extern "C" __global__ void conv1d_##NAME(const T* x, const float* weight, const float* bias, float* state, T* out,           \
                                           u32 tokens, u32 channels, u32 activate) {                                           \
    convolve<T, N>(x, weight, bias, state, out, tokens, channels, activate);                                                   \
  }
CONVOLVE(f32, float, 1)
CONVOLVE(bf16, bf16, 1)
CONVOLVE(packed_bf16, bf16, 8)
