// philox_normal: the mapping of src/ops/src/noise.rs, bit for bit.
#include "common.cuh"

// A thread a block of four values. The counter moves in `philox_advance`, when every thread has read it.
extern "C" __global__ void philox_normal_f32(const u64* rng, float* out, u32 n) {
  u64 block = (u64)blockIdx.x * blockDim.x + threadIdx.x;
  if (block * 4 >= n) return;
  u64 key = rng[0], counter = rng[1] + block;
  u32 c0 = (u32)counter, c1 = (u32)(counter >> 32), c2 = 0, c3 = 0;
  u32 k0 = (u32)key, k1 = (u32)(key >> 32);
  for (int round = 0; round < 10; round++) {
    u64 a = (u64)c0 * 0xD2511F53u, b = (u64)c2 * 0xCD9E8D57u;
    c0 = (u32)(b >> 32) ^ c1 ^ k0;
    c1 = (u32)b;
    c2 = (u32)(a >> 32) ^ c3 ^ k1;
    c3 = (u32)a;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  u32 words[4] = {c0, c1, c2, c3};
  for (u32 pair = 0; pair < 2; pair++) {
    float u = (float)((words[2 * pair] >> 8) + 1) * (1.0f / 16777216.0f);
    float radius = __fsqrt_rn(-2.0f * ln_(u));
    float sin, cos;
    sin_cos_turns(words[2 * pair + 1] >> 8, &sin, &cos);
    u64 at = block * 4 + 2 * pair;
    if (at < n) out[at] = radius * cos;
    if (at + 1 < n) out[at + 1] = radius * sin;
  }
}

extern "C" __global__ void philox_advance(u64* rng, u32 blocks) { rng[1] += blocks; }
