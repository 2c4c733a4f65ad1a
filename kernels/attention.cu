// attention in f32 over one or two parts of keys, in the CPU's order: scores are chains over d, the softmax sum and the weighted
// values chains over the visible keys, rescaled after every KEYS of them.
#include "common.cuh"

#define KEYS 512
#define THREADS 128
#define MAX_DIM 256

// A block is one query of one head. q, out [m, hq, d]; k, v [n, hkv, d]; a mask [n] may be null: all visible. Keys are numbered
// through both parts.
extern "C" __global__ void __launch_bounds__(THREADS) attention_f32(
    const float* q, float* out, const float* k0, const float* v0, const u8* mask0, u32 n0, const float* k1, const float* v1,
    const u8* mask1, u32 n1, u32 hq, u32 hkv, u32 d, float scale) {
  __shared__ float query[MAX_DIM];
  __shared__ float scores[KEYS];
  __shared__ u32 keys[KEYS];  // visible ones of this chunk
  __shared__ u32 warps[THREADS / 32];
  __shared__ float tops[THREADS / 32];
  __shared__ u32 next;
  __shared__ float total;
  u32 t = threadIdx.x, lane = t % 32, warp = t / 32;
  u64 place = (u64)blockIdx.x * d, step = (u64)hkv * d, head = (u64)(blockIdx.x % hq / (hq / hkv)) * d;
  for (u32 i = t; i < d; i += THREADS) query[i] = q[place + i] * scale;

  const int EACH = MAX_DIM / THREADS;
  float o[EACH];
  for (int e = 0; e < EACH; e++) o[e] = 0.0f;
  float top = -__int_as_float(0x7f800000), sum = 0.0f;
  bool seen = false;
  u32 at = 0, all = n0 + n1;
  while (true) {
    // Up to KEYS visible keys, in order.
    u32 count = 0;
    while (at < all && count < KEYS) {
      u32 key = at + t;
      const u8* mask = key < n0 ? mask0 : mask1;
      bool visible = key < all && (!mask || mask[key < n0 ? key : key - n0] != 0);
      u32 votes = __ballot_sync(0xffffffffu, visible);
      if (lane == 0) warps[warp] = __popc(votes);
      if (t == 0) next = at + THREADS;
      __syncthreads();
      u32 rank = count + __popc(votes & ((1u << lane) - 1)), found = 0;
      for (u32 w = 0; w < THREADS / 32; w++) {
        if (w < warp) rank += warps[w];
        found += warps[w];
      }
      if (visible && rank < KEYS) keys[rank] = key;
      if (visible && rank == KEYS) next = key;  // the first that does not fit starts the next chunk
      __syncthreads();
      count = min(count + found, (u32)KEYS);
      at = next;
      __syncthreads();
    }
    if (count == 0) break;

    float best = -__int_as_float(0x7f800000);
    for (u32 i = t; i < count; i += THREADS) {
      u32 key = keys[i];
      const float* row = (key < n0 ? k0 + key * step : k1 + (key - n0) * step) + head;
      float s = 0.0f;
      for (u32 j = 0; j < d; j++) s = fma_(row[j], query[j], s);
      scores[i] = s;
      best = s > best ? s : best;
    }
    for (int half = 16; half > 0; half /= 2) {
      float other = __shfl_xor_sync(0xffffffffu, best, half);
      best = other > best ? other : best;
    }
    if (lane == 0) tops[warp] = best;
    __syncthreads();
    float new_top = top;
    for (u32 w = 0; w < THREADS / 32; w++) new_top = tops[w] > new_top ? tops[w] : new_top;
    if (seen) {
      float shrink = exp_(top - new_top);
      sum = sum * shrink;
      for (int e = 0; e < EACH; e++) o[e] = o[e] * shrink;
    }
    top = new_top;
    seen = true;
    for (u32 i = t; i < count; i += THREADS) scores[i] = exp_(scores[i] - top);
    __syncthreads();
    // The sum is one chain, so one thread has it; the values are a chain an element.
    if (t == THREADS - 1) {
      for (u32 i = 0; i < count; i++) sum = sum + scores[i];
    }
    for (int e = 0; e < EACH; e++) {
      u32 j = t + e * THREADS;
      if (j >= d) break;
      for (u32 i = 0; i < count; i++) {
        u32 key = keys[i];
        const float* row = (key < n0 ? v0 + key * step : v1 + (key - n0) * step) + head;
        o[e] = fma_(row[j], scores[i], o[e]);
      }
    }
    __syncthreads();
  }
  if (t == THREADS - 1) total = seen ? 1.0f / sum : 0.0f;
  __syncthreads();
  for (int e = 0; e < EACH; e++) {
    u32 j = t + e * THREADS;
    if (j < d) out[place + j] = o[e] * total;
  }
}
