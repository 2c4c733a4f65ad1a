// im2col, embed_gather.
#include "common.cuh"

// A thread an element of the output: patches row by row, columns in the order (channel, y, x).
extern "C" __global__ void im2col_f32(const float* images, float* out, u32 n, u32 height, u32 width, u32 channels, u32 patch) {
  u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  u32 across = width / patch, down = height / patch;
  u32 x = (u32)(i % patch);
  u64 rest = i / patch;
  u32 y = (u32)(rest % patch);
  rest /= patch;
  u32 channel = (u32)(rest % channels);
  rest /= channels;
  u32 px = (u32)(rest % across);
  rest /= across;
  u32 py = (u32)(rest % down);
  u64 view = rest / down;
  u64 pixel = (view * height + py * patch + y) * width + px * patch + x;
  out[i] = images[pixel * channels + channel];
}

// An id outside the table gives a row of NaN.
template <typename T>
static __device__ __forceinline__ void gather(const T* table, const int* ids, float* out, u32 n, u32 vocab, u32 d, float scale) {
  u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  u32 id = (u32)ids[i / d];
  out[i] = id < vocab ? to_f32(table[(u64)id * d + i % d]) * scale : __int_as_float(0x7fc00000);
}

extern "C" __global__ void embed_gather_f32(
    const float* table, const int* ids, float* out, u32 n, u32 vocab, u32 d, float scale) {
  gather(table, ids, out, n, vocab, d, scale);
}

extern "C" __global__ void embed_gather_f16(
    const f16* table, const int* ids, float* out, u32 n, u32 vocab, u32 d, float scale) {
  gather(table, ids, out, n, vocab, d, scale);
}

extern "C" __global__ void embed_gather_bf16(
    const bf16* table, const int* ids, float* out, u32 n, u32 vocab, u32 d, float scale) {
  gather(table, ids, out, n, vocab, d, scale);
}
