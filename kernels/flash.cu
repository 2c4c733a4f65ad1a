// attention in f16 and bf16 on tensor cores: online softmax over blocks of keys, sums in f32.
//
// The query heads that share a key head are rows of one tile: row = token * group + head in group. A block of threads has RW * 16
// rows and KG groups of warps, which share out the keys of every block of BN keys and are merged at the end, in order. A split takes
// a share of the key blocks; flash_combine merges splits, in order. So the bytes do not depend on scheduling.
//
// The values of a block arrive while its scores are made, and the next keys while the values are used.
//
// Hidden keys are loaded as zeros and weigh nothing. Scores are kept in base 2.
#include "common.cuh"

#define NEG_INF (-__int_as_float(0x7f800000))

static __device__ __forceinline__ u32 shared_address(const void* p) {
  u32 a;
  asm("{ .reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t; }" : "=r"(a) : "l"(p));
  return a;
}

// Sixteen bytes to shared memory; zeros when `bytes` is 0, and then nothing is read.
static __device__ __forceinline__ void copy_async(u32 to, const void* from, u32 bytes) {
  asm volatile("{ .reg .u64 g; cvta.to.global.u64 g, %1; cp.async.cg.shared.global [%0], [g], 16, %2; }" ::"r"(to), "l"(from), "r"(bytes)
               : "memory");
}

static __device__ __forceinline__ void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

template <int N>
static __device__ __forceinline__ void copy_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

static __device__ __forceinline__ void load_matrices(u32 (&r)[4], u32 at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(at)
               : "memory");
}

static __device__ __forceinline__ void load_transposed(u32 (&r)[4], u32 at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(at)
               : "memory");
}

#define MULTIPLY(T, TYPE)                                                                                                  \
  static __device__ __forceinline__ void multiply(T, float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {                   \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." TYPE "." TYPE ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" \
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                                          \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));                                          \
  }
MULTIPLY(f16, "f16")
MULTIPLY(bf16, "bf16")

// Two values in 32 bits, `low` first.
static __device__ __forceinline__ u32 pack2(f16, float low, float high) {
  u32 r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
static __device__ __forceinline__ u32 pack2(bf16, float low, float high) {
  u32 r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}

static __device__ __forceinline__ float exp2_(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// 0 for the maximum of no key, so that differences with it are not NaN.
static __device__ __forceinline__ float finite_top(float top) { return top == NEG_INF ? 0.0f : top; }

// One of the two parts of keys: `count` rows exist, the first at `position`.
template <typename T>
struct Part {
  const T* k;
  const T* v;
  const u8* mask;
  u32 count;
  u32 position;
};

#define AHEAD 2

#define LAST 1  // causal: the queries are at the last positions
#define AT 2    // causal: the first query is at `offset`

#define FLASH_PARAMETERS(T)                                                                                             \
  const T *q, T *out, const T *k0, const T *v0, const u8 *mask0, u32 n0, const T *k1, const T *v1, const u8 *mask1, u32 n1, \
      const int *live, u32 causal, u32 offset, u32 m, u32 hq, u32 hkv, float scale, u32 splits, float *partial
#define FLASH_ARGUMENTS q, out, k0, v0, mask0, n0, k1, v1, mask1, n1, live, causal, offset, m, hq, hkv, scale, splits, partial

// Of the key of this lane, or of this lane and the one 32 further on, in the block at `first`: can it be seen? To be voted on later.
template <int BN, typename T>
static __device__ __forceinline__ void look(bool (&seen)[2], const Part<T>& part, u32 first) {
#pragma unroll
  for (int i = 0; i < BN / 32; i++) {
    u32 row = first + 32 * i + threadIdx.x % 32;
    seen[i] = row < part.count && (!part.mask || part.mask[row] != 0);
  }
}

// Bit i: key i of the block.
template <int BN>
static __device__ __forceinline__ u64 vote(const bool (&seen)[2]) {
  u64 keys = __ballot_sync(0xffffffffu, seen[0]);
  if (BN == 64) keys |= (u64)__ballot_sync(0xffffffffu, seen[1]) << 32;
  return keys;
}

template <typename T, int D, int RW, int KG, int BN>
static __device__ __forceinline__ void flash(FLASH_PARAMETERS(T)) {
  const int THREADS = RW * KG * 32, ROWS = RW * 16, MINE = BN / KG;
  const int DP = (D + 15) / 16 * 16;        // columns, up to whole steps
  const int PITCH = DP * 2 + 16;            // bytes of a row: an odd number of 16, so that matrices load without conflicts
  const int CHUNKS = D / 8, TILES = MINE / 8, COLUMNS = DP / 8;
  static_assert((BN == 32 || BN == 64) && TILES % 2 == 0 && D % 8 == 0, "tile");
  extern __shared__ uint4 memory[];
  u32 q_at = shared_address(memory), k_at = q_at + ROWS * PITCH, v_at = k_at + BN * PITCH;

  u32 t = threadIdx.x, lane = t % 32, warp = t / 32, rw = warp % RW, kg = warp / RW;
  u32 group = hq / hkv, rows = m * group, head = blockIdx.y % hkv, split = blockIdx.y / hkv;
  u32 row0 = (gridDim.x - 1 - blockIdx.x) * ROWS;  // under a causal mask the long ones first
  u32 row1 = min(row0 + ROWS, rows);
  u64 step = (u64)hkv * D;

  // What there is, and what this tile sees of it.
  u32 live0 = n0;
  if (live) live0 = (u32)min(max(*live, 0), (int)n0);
  int all = (int)(live0 + n1), seen_to = all, first_position = 0;
  if (causal) {
    first_position = causal == LAST ? all - (int)m : (int)offset;
    seen_to = min(max(first_position + (int)((row1 - 1) / group) + 1, 0), all);
  }
  Part<T> parts[2];
  parts[0].k = k0 + head * D, parts[0].v = v0 + head * D, parts[0].mask = mask0;
  parts[0].count = min(live0, (u32)seen_to), parts[0].position = 0;
  parts[1].k = k1 + head * D, parts[1].v = v1 + head * D, parts[1].mask = mask1;
  parts[1].count = (u32)seen_to - parts[0].count, parts[1].position = live0;
  u32 blocks0 = (parts[0].count + BN - 1) / BN, blocks = blocks0 + (parts[1].count + BN - 1) / BN;
  u32 b = (u32)((u64)blocks * split / splits), end = (u32)((u64)blocks * (split + 1) / splits);
  int diagonal = causal ? first_position + (int)(row0 / group) : 0x7fffffff;  // positions up to it are seen by all rows

  auto part_of = [&](u32 b) {
    bool own = b >= blocks0;  // chosen member by member: an index would put them into local memory
    Part<T> p;
    p.k = own ? parts[1].k : parts[0].k, p.v = own ? parts[1].v : parts[0].v, p.mask = own ? parts[1].mask : parts[0].mask;
    p.count = own ? parts[1].count : parts[0].count, p.position = own ? parts[1].position : parts[0].position;
    return p;
  };
  auto first_of = [&](u32 b) { return (b < blocks0 ? b : b - blocks0) * BN; };
  // What is not seen is not read: its address may lie outside.
  auto load = [&](u32 to, const T* from, u32 first, u64 keys) {
    const bool EVEN = THREADS % CHUNKS == 0;  // then a thread stays in its column
    const T* p = from + (first + t / CHUNKS) * step + t % CHUNKS * 8;
    u32 into = to + t / CHUNKS * PITCH + t % CHUNKS * 16;
#pragma unroll
    for (int i = 0; i < (BN * CHUNKS + THREADS - 1) / THREADS; i++) {
      u32 at = t + i * THREADS, row = EVEN ? t / CHUNKS + i * (THREADS / CHUNKS) : at / CHUNKS;
      if (BN * CHUNKS % THREADS != 0 && at >= BN * CHUNKS) break;
      u32 bytes = keys >> row & 1 ? 16 : 0;
      if (EVEN) {
        copy_async(into + i * (THREADS / CHUNKS) * PITCH, p, bytes);
        p += THREADS / CHUNKS * step;
      } else {
        copy_async(to + row * PITCH + at % CHUNKS * 16, from + (first + row) * step + at % CHUNKS * 8, bytes);
      }
    }
  };

  // Queries, and zeros where columns are padded.
  for (u32 at = t; at < ROWS * CHUNKS; at += THREADS) {
    u32 row = at / CHUNKS, chunk = at % CHUNKS, r = row0 + row;
    u64 place = ((u64)(r / group) * hq + head * group + r % group) * D;
    copy_async(q_at + row * PITCH + chunk * 16, q + (r < rows ? place + chunk * 8 : 0), r < rows ? 16 : 0);
  }
  if (DP > D) {
    for (u32 at = t; at < ROWS + 2 * BN; at += THREADS) memory[(at * PITCH + D * 2) / 16] = make_uint4(0, 0, 0, 0);
  }

  float o[COLUMNS][4], top[2] = {NEG_INF, NEG_INF}, sum[2] = {0.0f, 0.0f};
#pragma unroll
  for (int j = 0; j < COLUMNS; j++) {
#pragma unroll
    for (int e = 0; e < 4; e++) o[j][e] = 0.0f;
  }
  u32 row_of[2] = {row0 + rw * 16 + lane / 4, row0 + rw * 16 + lane / 4 + 8};
  u32 q_from = q_at + (rw * 16 + lane % 16) * PITCH + lane / 16 * 16;
  u32 k_from = k_at + (kg * MINE + lane / 16 * 8 + lane % 8) * PITCH + lane / 8 % 2 * 16;
  u32 v_from = v_at + (kg * MINE + lane % 16) * PITCH + lane / 16 * 16;

  u64 now = 0, next = 0;  // the keys of this block and of the next one that can be seen
  bool seen[2];
  if (b < end) {
    look<BN>(seen, part_of(b), first_of(b));
    now = vote<BN>(seen);
    load(k_at, part_of(b).k, first_of(b), now);
    copy_commit();
    look<BN>(seen, part_of(b + 1), first_of(b + 1));
    next = vote<BN>(seen);
  }
  for (; b < end; b++) {
    copy_wait<0>();
    __syncthreads();
    load(v_at, part_of(b).v, first_of(b), now);
    copy_commit();
    look<BN>(seen, part_of(b + 2), first_of(b + 2));

    float s[TILES][4];
#pragma unroll
    for (int j = 0; j < TILES; j++) {
#pragma unroll
      for (int e = 0; e < 4; e++) s[j][e] = 0.0f;
    }
    {
      // Fragments are loaded AHEAD steps before they are multiplied.
      const int PAIRS = TILES / 2, STEPS = DP / 16 * PAIRS;
      u32 a[2][4], w[AHEAD + 1][4];
      load_matrices(a[0], q_from);
#pragma unroll
      for (int n = -AHEAD; n < STEPS; n++) {
        int next = n + AHEAD;
        if (next < STEPS) load_matrices(w[next % (AHEAD + 1)], k_from + next % PAIRS * 16 * PITCH + next / PAIRS * 32);
        if (n < 0) continue;
        int i = n / PAIRS, j = n % PAIRS * 2;
        if (j == 0 && i + 1 < DP / 16) load_matrices(a[(i + 1) % 2], q_from + (i + 1) * 32);
        const u32(&k)[4] = w[n % (AHEAD + 1)];
        multiply(T(), s[j], a[i % 2], k[0], k[1]);
        multiply(T(), s[j + 1], a[i % 2], k[2], k[3]);
      }
    }
    copy_wait<0>();
    __syncthreads();
    if (b + 1 < end) load(k_at, part_of(b + 1).k, first_of(b + 1), next);
    copy_commit();

    // Scores, hidden ones out; the maximum of each row.
    int position = (int)(part_of(b).position + first_of(b));
    float best[2] = {top[0], top[1]};
    if (now != ~0ull >> (64 - BN) || position + BN - 1 > diagonal) {
      int last[2];
#pragma unroll
      for (int h = 0; h < 2; h++) last[h] = causal ? first_position + (int)(row_of[h] / group) - position : 0x7fffffff;
      int first = (int)(kg * MINE + lane % 4 * 2);
      u64 keys = now >> first;
#pragma unroll
      for (int j = 0; j < TILES; j++) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
          int key = j * 8 + e % 2;
          s[j][e] = (keys >> key & 1) && first + key <= last[e / 2] ? s[j][e] * scale : NEG_INF;
        }
      }
    } else {
#pragma unroll
      for (int j = 0; j < TILES; j++) {
#pragma unroll
        for (int e = 0; e < 4; e++) s[j][e] *= scale;
      }
    }
#pragma unroll
    for (int j = 0; j < TILES; j++) {
#pragma unroll
      for (int e = 0; e < 4; e++) best[e / 2] = fmaxf(best[e / 2], s[j][e]);
    }
    float shrink[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
      best[h] = fmaxf(best[h], __shfl_xor_sync(0xffffffffu, best[h], 1));
      best[h] = fmaxf(best[h], __shfl_xor_sync(0xffffffffu, best[h], 2));
      float zero = finite_top(best[h]);
      shrink[h] = exp2_(top[h] - zero);
      top[h] = best[h];
      best[h] = zero;
      sum[h] *= shrink[h];
    }
    if (__any_sync(0xffffffffu, shrink[0] != 1.0f || shrink[1] != 1.0f)) {
#pragma unroll
      for (int j = 0; j < COLUMNS; j++) {
#pragma unroll
        for (int e = 0; e < 4; e++) o[j][e] *= shrink[e / 2];
      }
    }
#pragma unroll
    for (int j = 0; j < TILES; j++) {
#pragma unroll
      for (int e = 0; e < 4; e++) {
        s[j][e] = exp2_(s[j][e] - best[e / 2]);
        sum[e / 2] += s[j][e];
      }
    }
    {
      const int PAIRS = COLUMNS / 2, STEPS = TILES / 2 * PAIRS;
      u32 a[4], w[AHEAD + 1][4];
#pragma unroll
      for (int n = -AHEAD; n < STEPS; n++) {
        int next = n + AHEAD;
        if (next < STEPS) load_transposed(w[next % (AHEAD + 1)], v_from + next / PAIRS * 16 * PITCH + next % PAIRS * 32);
        if (n < 0) continue;
        int i = n / PAIRS, j = n % PAIRS * 2;
        if (j == 0) {
#pragma unroll
          for (int e = 0; e < 4; e++) a[e] = pack2(T(), s[2 * i + e / 2][e % 2 * 2], s[2 * i + e / 2][e % 2 * 2 + 1]);
        }
        const u32(&v)[4] = w[n % (AHEAD + 1)];
        multiply(T(), o[j], a, v[0], v[1]);
        multiply(T(), o[j + 1], a, v[2], v[3]);
      }
    }
    now = next;
    next = vote<BN>(seen);
  }
  copy_wait<0>();

#pragma unroll
  for (int h = 0; h < 2; h++) {
    sum[h] += __shfl_xor_sync(0xffffffffu, sum[h], 1);
    sum[h] += __shfl_xor_sync(0xffffffffu, sum[h], 2);
  }
  if (KG > 1) {
    // The other groups of warps through shared memory, one value of every thread after another.
    const int VALUES = COLUMNS * 4 + 4, WIDTH = RW * 32;
    float* other = (float*)memory + rw * 32 + lane;
    __syncthreads();
    if (kg > 0) {
      float* mine = other + (kg - 1) * VALUES * WIDTH;
#pragma unroll
      for (int j = 0; j < COLUMNS * 4; j++) mine[j * WIDTH] = o[j / 4][j % 4];
#pragma unroll
      for (int h = 0; h < 2; h++) {
        mine[(COLUMNS * 4 + h) * WIDTH] = top[h];
        mine[(COLUMNS * 4 + 2 + h) * WIDTH] = sum[h];
      }
    }
    __syncthreads();
    if (kg > 0) return;
    for (int g = 1; g < KG; g++, other += VALUES * WIDTH) {
      float keep[2], add[2];
#pragma unroll
      for (int h = 0; h < 2; h++) {
        float their = other[(COLUMNS * 4 + h) * WIDTH], best = fmaxf(top[h], their), zero = finite_top(best);
        keep[h] = exp2_(top[h] - zero);
        add[h] = exp2_(their - zero);
        sum[h] = fma_(sum[h], keep[h], other[(COLUMNS * 4 + 2 + h) * WIDTH] * add[h]);
        top[h] = best;
      }
#pragma unroll
      for (int j = 0; j < COLUMNS * 4; j++) {
        int h = j % 4 / 2;
        o[j / 4][j % 4] = fma_(o[j / 4][j % 4], keep[h], other[j * WIDTH] * add[h]);
      }
    }
  }
#pragma unroll
  for (int h = 0; h < 2; h++) {
    u32 r = row_of[h];
    if (r >= rows) continue;
    u64 row = (u64)(r / group) * hq + head * group + r % group;
    if (partial) {
      u64 n = (u64)m * hq, place = split * n + row;
      float2* to = (float2*)(partial + place * D) + lane % 4;
#pragma unroll
      for (int j = 0; j < D / 8; j++) to[j * 4] = make_float2(o[j][2 * h], o[j][2 * h + 1]);
      if (lane % 4 == 0) *(float2*)(partial + splits * n * D + place * 2) = make_float2(top[h], sum[h]);
    } else {
      float inverse = sum[h] == 0.0f ? 0.0f : 1.0f / sum[h];
      u32* to = (u32*)(out + row * D) + lane % 4;
#pragma unroll
      for (int j = 0; j < D / 8; j++) to[j * 4] = pack2(T(), o[j][2 * h] * inverse, o[j][2 * h + 1] * inverse);
    }
  }
}

#define MAX_SPLITS 128
#define MERGERS 4  // warps of a block that merges

// The splits' values, weighted by their maxima. `partial` [splits, rows, d], then [splits, rows, 2]. A warp merges a row of few splits;
// of more, the warps of a block take every fourth and are added in order.
template <typename T>
static __device__ __forceinline__ void combine(const float* partial, T* out, u32 rows, u32 d, u32 splits) {
  __shared__ float weights[MERGERS][MAX_SPLITS];
  __shared__ float4 values[MERGERS][64];
  u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  bool alone = splits <= MERGERS;
  u64 row = alone ? (u64)blockIdx.x * MERGERS + warp : blockIdx.x;
  if (row >= rows) return;  // a whole warp, which then is alone
  const float2* of = (const float2*)(partial + (u64)splits * rows * d) + row;
  float tops[MAX_SPLITS / 32], top = NEG_INF, sum = 0.0f;
#pragma unroll
  for (u32 i = 0; i < MAX_SPLITS / 32; i++) {
    u32 s = lane + i * 32;
    float2 v = s < splits ? of[(u64)s * rows] : make_float2(NEG_INF, 0.0f);
    tops[i] = v.x;
    weights[warp][s] = v.y;
    top = fmaxf(top, v.x);
  }
  for (int half = 16; half > 0; half /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, half));
  top = finite_top(top);
#pragma unroll
  for (u32 i = 0; i < MAX_SPLITS / 32; i++) {
    u32 s = lane + i * 32;
    float weight = exp2_(tops[i] - top);
    sum = fma_(weights[warp][s], weight, sum);
    weights[warp][s] = weight;
  }
  sum = warp_sum(sum);
  float inverse = sum == 0.0f ? 0.0f : 1.0f / sum;
  __syncwarp();
  for (u32 c = lane; c < d / 4; c += 32) {
    float4 o = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    const float4* from = (const float4*)(partial + row * d) + c;
#pragma unroll 8
    for (u32 s = alone ? 0 : warp; s < splits; s += alone ? 1 : MERGERS) {
      float w = weights[warp][s];
      float4 v = from[(u64)s * rows * (d / 4)];
      o.x = fma_(v.x, w, o.x), o.y = fma_(v.y, w, o.y), o.z = fma_(v.z, w, o.z), o.w = fma_(v.w, w, o.w);
    }
    values[warp][c] = o;
  }
  if (!alone) __syncthreads();
  if (!alone && warp > 0) return;
  for (u32 c = lane; c < d / 4; c += 32) {
    float4 o = values[warp][c];
    for (u32 w = 1; w < (alone ? 1 : MERGERS); w++) {
      float4 v = values[w][c];
      o.x += v.x, o.y += v.y, o.z += v.z, o.w += v.w;
    }
    ((uint2*)(out + row * d))[c] = make_uint2(pack2(T(), o.x * inverse, o.y * inverse), pack2(T(), o.z * inverse, o.w * inverse));
  }
}

#define FLASH(T, D, NAME, RW, KG, BN)                                                                                      \
  extern "C" __global__ void __launch_bounds__(RW * KG * 32) flash_##NAME##_##D##_##T(FLASH_PARAMETERS(T)) {               \
    flash<T, D, RW, KG, BN>(FLASH_ARGUMENTS);                                                                              \
  }
#define COMBINE(T)                                                                                                         \
  extern "C" __global__ void __launch_bounds__(128) flash_combine_##T(const float* partial, T* out, u32 rows, u32 d,       \
                                                                           u32 splits) {                                   \
    combine<T>(partial, out, rows, d, splits);                                                                             \
  }

COMBINE(f16)
COMBINE(bf16)
// Few rows, many, and of the widest head some where there is the shared memory for it: as in src/ops/src/attention.rs.
#define DIM(T, D) FLASH(T, D, thin, 1, 4, 64) FLASH(T, D, wide, 4, 1, 64)
#define DIMS(T) DIM(T, 64) DIM(T, 72) DIM(T, 96) DIM(T, 128) DIM(T, 256) FLASH(T, 256, large, 6, 1, 64)
DIMS(f16)
DIMS(bf16)
