// Many copies as one launch. `tools/kernels/check.py` makes gather.ptx of it, which the driver compiles: exec needs no NVRTC.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define PIECES 224     // as in gather.rs; what 4 KiB of parameters hold
#define TILE 65536u    // bytes that a block copies at a time
#define THREADS 1024u
#define EACH (TILE / THREADS / 16)

// Addresses have 48 bits here: longer ones are copied another way.
struct Pieces {
  u32 dst_low[PIECES];
  u32 src_low[PIECES];
  u32 first[PIECES];  // tiles before this piece
  u16 dst_high[PIECES];
  u16 src_high[PIECES];
  u16 last[PIECES];  // bytes of the last tile, less one
  u32 count;
  u32 tiles;
};

struct alignas(16) Vector {
  u32 x, y, z, w;
};

template <typename T>
static __device__ __forceinline__ void copy_as(u8* dst, const u8* src, u32 bytes) {
  T* to = (T*)dst;
  const T* from = (const T*)src;
  for (u32 i = threadIdx.x; i < bytes / sizeof(T); i += THREADS) to[i] = from[i];
}

extern "C" __global__ void __launch_bounds__(1024) gather(const __grid_constant__ Pieces pieces) {
  for (u32 tile = blockIdx.x; tile < pieces.tiles; tile += gridDim.x) {
    // The last piece that starts at or before this tile.
    u32 low = 0, high = pieces.count;
    while (high - low > 1) {
      u32 middle = (low + high) / 2;
      if (pieces.first[middle] <= tile) low = middle;
      else high = middle;
    }
    u64 at = (u64)(tile - pieces.first[low]) * TILE;
    u32 end = low + 1 < pieces.count ? pieces.first[low + 1] : pieces.tiles;
    u32 bytes = tile + 1 < end ? TILE : pieces.last[low] + 1u;
    u8* dst = (u8*)(((u64)pieces.dst_high[low] << 32 | pieces.dst_low[low]) + at);
    const u8* src = (const u8*)(((u64)pieces.src_high[low] << 32 | pieces.src_low[low]) + at);
    u64 odd = (u64)dst | (u64)src;
    if (odd % 16 == 0 && bytes == TILE) {
      // All loads before the first store: as many bytes under way as there can be.
      Vector v[EACH];
      const Vector* from = (const Vector*)src + threadIdx.x;
      Vector* to = (Vector*)dst + threadIdx.x;
#pragma unroll
      for (u32 i = 0; i < EACH; i++) v[i] = from[i * THREADS];
#pragma unroll
      for (u32 i = 0; i < EACH; i++) to[i * THREADS] = v[i];
      continue;
    }
    u32 whole = odd % 16 == 0 ? bytes / 16 * 16 : odd % 4 == 0 ? bytes / 4 * 4 : 0;
    if (odd % 16 == 0) copy_as<Vector>(dst, src, whole);
    else if (odd % 4 == 0) copy_as<u32>(dst, src, whole);
    copy_as<u8>(dst + whole, src + whole, bytes - whole);
  }
}
