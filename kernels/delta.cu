// The gated delta rule, per value head h with its key head: S = exp(g)·S; S += k ⊗ beta·(v - kᵀS); o = scale·qᵀS.
//
// `qkv` has a row a token: queries [HK, DK], keys [HK, DK], values [HV, DV]. Prefill is chunked (64 tokens, the WY form): with G the
// sum of g from the chunk's start, A = beta_i·exp(G_i - G_j)·k_i·k_j below the diagonal and T = (1 + A)⁻¹·beta,
//   N = T·(V - exp(G)·K·S),   O = exp(G)·Q·S + tril(exp(G_i - G_j)·q_i·k_j)·N,   S = exp(G_end)·S + (exp(G_end - G)·K)ᵀ·N.
// `delta_prepare` makes T and the triangle for every chunk at once; `delta_chunks` walks the chunks of a head for 32 columns of S,
// which stay in registers. Products run on tensor cores in bf16: q, k and v are exact there, norms and decays multiply rows
// afterwards, and whatever else is a sum of two bf16, so that results keep about 16 bits.
#include "common.cuh"

#define CHUNK 64
#define SLICE 32

struct Heads {
  u32 tokens, hk, hv, dv;  // tokens, key heads, value heads, value dimension
  u32 normalize;           // q and k are divided by √(Σx² + 1e-6)
  float scale;
};

static __device__ __forceinline__ u32 shared_address(const void* p) {
  return (u32)__cvta_generic_to_shared(p);
}

static __device__ __forceinline__ void matrices(u32 address, u32 (&r)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

static __device__ __forceinline__ void matrices_transposed(u32 address, u32 (&r)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

// c += a·b: 16 x 8 of f32, 16 deep.
static __device__ __forceinline__ void mma(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Two f32 as two pairs of bf16: the rounded values, and what rounding left.
static __device__ __forceinline__ void split(float x, float y, u32* high, u32* low) {
  u32 h, l;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(h) : "f"(y), "f"(x));
  float hx = __int_as_float((int)(h << 16)), hy = __int_as_float((int)(h & 0xffff0000u));
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(l) : "f"(y - hy), "f"(x - hx));
  *high = h;
  *low = l;
}

// Sixteen bytes to shared memory, zero unless `there`.
static __device__ __forceinline__ void copy16(u32 to, const void* from, bool there) {
  u32 bytes = there ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}

static __device__ __forceinline__ void copies_done() {
  asm volatile("cp.async.commit_group;\n cp.async.wait_group 0;" ::: "memory");
}

// Rows of a chunk's tile of keys or queries are this long in shared memory: eight of them fall on all banks.
#define ROW(DK) ((DK) + 8)

// `CHUNK` rows of DK elements from token `first` on.
template <u32 DK, u32 THREADS>
static __device__ __forceinline__ void load_tile(bf16* tile, const bf16* from, u32 stride, u32 first, u32 tokens) {
  const u32 packs = DK / 8;
  for (u32 i = threadIdx.x; i < CHUNK * packs; i += THREADS) {
    u32 row = i / packs, column = i % packs * 8;
    bool there = first + row < tokens;
    copy16(shared_address(tile + row * ROW(DK) + column), from + (u64)(there ? first + row : 0) * stride + column, there);
  }
}

// Pieces of one chunk of one head in scratch: T high, T low, triangle high, triangle low as operands of `mma` (uint4 of lane, step of
// 16 columns, tile of 16 rows), then four floats a token: exp(G)/|k|, scale·exp(G)/|q|, exp(G_end - G)/|k|, exp(G_end).
#define PIECE (4 * 4 * 32)
#define PIECES (4 * PIECE + CHUNK)

template <u32 DK>
static __device__ __forceinline__ void prepare(const bf16* qkv, const float* g, const float* beta, uint4* scratch, Heads n) {
  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const u32 head = blockIdx.y, first = blockIdx.x * CHUNK, stride = 2 * n.hk * DK + n.hv * n.dv;
  const u32 key_head = head / (n.hv / n.hk);
  uint4* out = scratch + (u64)(blockIdx.x * n.hv + head) * PIECES;
  __shared__ alignas(16) float memory[2 * CHUNK * 68];
  __shared__ float sum[CHUNK], strength[CHUNK], norm_q[CHUNK], norm_k[CHUNK];
  bf16* q = (bf16*)memory;
  bf16* k = q + CHUNK * ROW(DK);
  load_tile<DK, 128>(q, qkv + key_head * DK, stride, first, n.tokens);
  load_tile<DK, 128>(k, qkv + (n.hk + key_head) * DK, stride, first, n.tokens);
  if (threadIdx.x < CHUNK) {
    u32 token = first + threadIdx.x;
    float v = token < n.tokens ? g[token * n.hv + head] : 0.0f;
    strength[threadIdx.x] = token < n.tokens ? beta[token * n.hv + head] : 0.0f;
    for (u32 d = 1; d < 32; d *= 2) {
      float other = __shfl_up_sync(0xffffffffu, v, d);
      if (lane >= d) v += other;
    }
    sum[threadIdx.x] = v;
  }
  copies_done();
  __syncthreads();
  if (warp == 1) sum[threadIdx.x] += sum[31];
  {
    u32 row = threadIdx.x % CHUNK;
    const bf16* x = (threadIdx.x < CHUNK ? k : q) + row * ROW(DK);
    float squares = 0.0f;
    for (u32 at = 0; at < DK; at += 8) {
      Pack<bf16> p = load_pack(x + at);
      for (u32 i = 0; i < 8; i++) squares = fma_(to_f32(p.v[i]), to_f32(p.v[i]), squares);
    }
    (threadIdx.x < CHUNK ? norm_k : norm_q)[row] = n.normalize ? 1.0f / sqrtf(squares + 1e-6f) : 1.0f;
  }
  __syncthreads();
  if (threadIdx.x < CHUNK) {
    float at = sum[threadIdx.x], end = sum[CHUNK - 1], e = exp_(at);
    float4 s = {e * norm_k[threadIdx.x], e * norm_q[threadIdx.x] * n.scale, exp_(end - at) * norm_k[threadIdx.x], exp_(end)};
    ((float4*)(out + 4 * PIECE))[threadIdx.x] = s;
  }
  // Products with all keys up to the diagonal: a warp has sixteen rows.
  float kk[4][2][4] = {}, qk[4][2][4] = {};
  const u32 row8 = lane % 8, half = lane / 8 % 2, upper = lane / 16;
#pragma unroll
  for (u32 at = 0; at < DK; at += 16) {
    u32 a[4], b[4], c[4];
    u32 row = warp * 16 + half * 8 + row8;
    matrices(shared_address(k + row * ROW(DK) + at + upper * 8), a);
    matrices(shared_address(q + row * ROW(DK) + at + upper * 8), c);
#pragma unroll
    for (u32 p = 0; p < 4; p++) {
      if (p <= warp) {
        matrices(shared_address(k + (p * 16 + upper * 8 + row8) * ROW(DK) + at + half * 8), b);
        mma(kk[p][0], a, b[0], b[1]);
        mma(kk[p][1], a, b[2], b[3]);
        mma(qk[p][0], c, b[0], b[1]);
        mma(qk[p][1], c, b[2], b[3]);
      }
    }
  }
  __syncthreads();
  // The keys' place is taken by A, that of the queries by T.
  float* strict = memory;
  float* inverse = memory + CHUNK * 68;
  for (u32 i = threadIdx.x; i < CHUNK * 68; i += 128) strict[i] = 0.0f;
  __syncthreads();
  const u32 group = lane / 4, pair = lane % 4 * 2;
#pragma unroll
  for (u32 p = 0; p < 4; p++) {
    if (p > warp) continue;
    u32 high[4], low[4];
#pragma unroll
    for (u32 t = 0; t < 2; t++) {
#pragma unroll
      for (u32 r = 0; r < 2; r++) {
        u32 i = warp * 16 + r * 8 + group, j = p * 16 + t * 8 + pair;
        float v[2];
#pragma unroll
        for (u32 c = 0; c < 2; c++) {
          float decay = exp_(sum[i] - sum[j + c]) * norm_k[j + c];
          if (j + c < i) strict[i * 68 + j + c] = kk[p][t][2 * r + c] * decay * norm_k[i] * strength[i];
          v[c] = j + c <= i ? qk[p][t][2 * r + c] * decay * norm_q[i] * n.scale : 0.0f;
        }
        split(v[0], v[1], &high[2 * t + r], &low[2 * t + r]);
      }
    }
    u32 at = (warp * 4 + p) * 32 + lane;
    out[2 * PIECE + at] = make_uint4(high[0], high[1], high[2], high[3]);
    out[3 * PIECE + at] = make_uint4(low[0], low[1], low[2], low[3]);
  }
  __syncthreads();
  // (1 + A)·x = a column of the identity, by a thread a column.
  if (threadIdx.x < CHUNK) {
    float x[CHUNK];
#pragma unroll
    for (u32 i = 0; i < CHUNK; i++) {
      float part[4] = {i == threadIdx.x ? 1.0f : 0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
      for (u32 m = 0; m < i; m += 4) {
        float4 a = *(const float4*)(strict + i * 68 + m);
        part[0] = fma_(-a.x, x[m], part[0]);
        if (m + 1 < i) part[1] = fma_(-a.y, x[m + 1], part[1]);
        if (m + 2 < i) part[2] = fma_(-a.z, x[m + 2], part[2]);
        if (m + 3 < i) part[3] = fma_(-a.w, x[m + 3], part[3]);
      }
      x[i] = (part[0] + part[1]) + (part[2] + part[3]);
      inverse[i * 68 + threadIdx.x] = x[i] * strength[threadIdx.x];
    }
  }
  __syncthreads();
  for (u32 p = 0; p <= warp; p++) {
    u32 high[4], low[4];
#pragma unroll
    for (u32 t = 0; t < 2; t++) {
#pragma unroll
      for (u32 r = 0; r < 2; r++) {
        const float* v = inverse + (warp * 16 + r * 8 + group) * 68 + p * 16 + t * 8 + pair;
        split(v[0], v[1], &high[2 * t + r], &low[2 * t + r]);
      }
    }
    u32 at = (warp * 4 + p) * 32 + lane;
    out[at] = make_uint4(high[0], high[1], high[2], high[3]);
    out[PIECE + at] = make_uint4(low[0], low[1], low[2], low[3]);
  }
}

extern "C" __global__ void __launch_bounds__(128) delta_prepare_64_bf16(const bf16* qkv, const float* g, const float* beta, uint4* scratch, Heads n) {
  prepare<64>(qkv, g, beta, scratch, n);
}

extern "C" __global__ void __launch_bounds__(128) delta_prepare_128_bf16(const bf16* qkv, const float* g, const float* beta, uint4* scratch, Heads n) {
  prepare<128>(qkv, g, beta, scratch, n);
}

// Byte of element (row, column) of a tile with rows of 32 bf16: eight rows of one column fall on all banks.
static __device__ __forceinline__ u32 place(u32 row, u32 column) {
  return row * 64 + (((column / 8) ^ (row / 2 % 4)) * 16) + column % 8 * 2;
}

// A pair of columns into the high and the low tile.
static __device__ __forceinline__ void store_split(u8* high, u8* low, u32 row, u32 column, float x, float y) {
  u32 h, l;
  split(x, y, &h, &l);
  *(u32*)(high + place(row, column)) = h;
  *(u32*)(low + place(row, column)) = l;
}

static __device__ __forceinline__ void store_pair(float* to, float x, float y) { *(float2*)to = make_float2(x, y); }
static __device__ __forceinline__ void store_pair(bf16* to, float x, float y) {
  u32 h;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(h) : "f"(y), "f"(x));
  *(u32*)to = h;
}

static __device__ __forceinline__ void unpack(uint4 v, u32 (&r)[4]) {
  r[0] = v.x;
  r[1] = v.y;
  r[2] = v.z;
  r[3] = v.w;
}

// Eight warps: warp (r, c) has tokens 16r.. and columns 16c.. of every product with rows of tokens.
template <u32 DK, typename O>
static __device__ __forceinline__ void chunks(const bf16* qkv, const uint4* scratch, float* state, O* out, Heads n) {
  extern __shared__ uint4 dynamic[];
  bf16* q = (bf16*)dynamic;
  bf16* k = q + CHUNK * ROW(DK);  // two tiles
  u8* s_high = (u8*)(k + 2 * CHUNK * ROW(DK));
  u8* s_low = s_high + DK * 64;
  u8* d_high = s_low + DK * 64;
  u8* d_low = d_high + CHUNK * 64;
  u8* n_high = d_low + CHUNK * 64;
  u8* n_low = n_high + CHUNK * 64;
  u8* m_high = n_low + CHUNK * 64;
  u8* m_low = m_high + CHUNK * 64;
  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const u32 r = warp % 4, c = warp / 4;
  const u32 row8 = lane % 8, half = lane / 8 % 2, upper = lane / 16, group = lane / 4, pair = lane % 4 * 2;
  const u32 head = blockIdx.y, column = blockIdx.x * SLICE, stride = 2 * n.hk * DK + n.hv * n.dv;
  const u32 key_head = head / (n.hv / n.hk);
  const bf16* queries = qkv + key_head * DK;
  const bf16* keys = qkv + (n.hk + key_head) * DK;
  const bf16* values = qkv + 2 * n.hk * DK + head * n.dv + column + c * 16 + pair;
  // This warp's part of the state: sixteen rows and NT groups of eight columns.
  const u32 NT = DK / 32;
  const u32 s_row = DK == 128 ? warp * 16 : r * 16, s_column = DK == 128 ? 0 : c * 16;
  float s[NT][4];
  float* home = state + ((u64)head * DK + s_row + group) * n.dv + column + s_column + pair;
#pragma unroll
  for (u32 t = 0; t < NT; t++) {
#pragma unroll
    for (u32 h = 0; h < 2; h++) {
      float2 v = *(const float2*)(home + h * 8 * n.dv + t * 8);
      s[t][2 * h] = v.x;
      s[t][2 * h + 1] = v.y;
      store_split(s_high, s_low, s_row + h * 8 + group, s_column + t * 8 + pair, v.x, v.y);
    }
  }
  load_tile<DK, 256>(q, queries, stride, 0, n.tokens);
  load_tile<DK, 256>(k, keys, stride, 0, n.tokens);
  const u32 count = (n.tokens + CHUNK - 1) / CHUNK;
  for (u32 chunk = 0; chunk < count; chunk++) {
    const u32 first = chunk * CHUNK;
    const bf16* tile = k + chunk % 2 * CHUNK * ROW(DK);
    const uint4* piece = scratch + (u64)(chunk * n.hv + head) * PIECES;
    // What this phase and the next need of global memory.
    u32 t_high[4][4], t_low[4][4];
#pragma unroll
    for (u32 p = 0; p < 4; p++) {
      if (p <= r) {
        unpack(piece[(r * 4 + p) * 32 + lane], t_high[p]);
        unpack(piece[PIECE + (r * 4 + p) * 32 + lane], t_low[p]);
      }
    }
    float4 scales[2];
    u32 v[2][2];
#pragma unroll
    for (u32 h = 0; h < 2; h++) {
      u32 token = first + r * 16 + h * 8 + group;
      scales[h] = ((const float4*)(piece + 4 * PIECE))[r * 16 + h * 8 + group];
#pragma unroll
      for (u32 t = 0; t < 2; t++) v[h][t] = token < n.tokens ? *(const u32*)(values + (u64)token * stride + t * 8) : 0;
    }
    copies_done();
    __syncthreads();
    if (chunk + 1 < count) load_tile<DK, 256>(k + (chunk + 1) % 2 * CHUNK * ROW(DK), keys, stride, first + CHUNK, n.tokens);

    // D = V - exp(G)·K·S, and the part of the output that comes from S.
    float ks[2][4] = {}, o[2][4] = {};
#pragma unroll
    for (u32 at = 0; at < DK; at += 16) {
      u32 a[4], b[4], high[4], low[4];
      u32 row = (r * 16 + half * 8 + row8) * ROW(DK) + at + upper * 8;
      matrices(shared_address(tile + row), a);
      matrices(shared_address(q + row), b);
      u32 where = place(at + half * 8 + row8, c * 16 + upper * 8);
      matrices_transposed(shared_address(s_high + where), high);
      matrices_transposed(shared_address(s_low + where), low);
#pragma unroll
      for (u32 t = 0; t < 2; t++) {
        mma(ks[t], a, high[2 * t], high[2 * t + 1]);
        mma(o[t], b, high[2 * t], high[2 * t + 1]);
        mma(ks[t], a, low[2 * t], low[2 * t + 1]);
        mma(o[t], b, low[2 * t], low[2 * t + 1]);
      }
    }
#pragma unroll
    for (u32 t = 0; t < 2; t++) {
#pragma unroll
      for (u32 h = 0; h < 2; h++) {
        float x = __int_as_float((int)(v[h][t] << 16)), y = __int_as_float((int)(v[h][t] & 0xffff0000u));
        x = fma_(-scales[h].x, ks[t][2 * h], x);
        y = fma_(-scales[h].x, ks[t][2 * h + 1], y);
        store_split(d_high, d_low, r * 16 + h * 8 + group, c * 16 + t * 8 + pair, x, y);
        o[t][2 * h] *= scales[h].y;
        o[t][2 * h + 1] *= scales[h].y;
      }
    }
    __syncthreads();
    if (chunk + 1 < count) load_tile<DK, 256>(q, queries, stride, first + CHUNK, n.tokens);

    // N = T·D, as it is and with the decay to the chunk's end.
    float fresh[2][4] = {};
    u32 p_high[4][4], p_low[4][4];
#pragma unroll
    for (u32 p = 0; p < 4; p++) {
      if (p <= r) {
        unpack(piece[2 * PIECE + (r * 4 + p) * 32 + lane], p_high[p]);
        unpack(piece[3 * PIECE + (r * 4 + p) * 32 + lane], p_low[p]);
        u32 high[4], low[4];
        u32 where = place(p * 16 + half * 8 + row8, c * 16 + upper * 8);
        matrices_transposed(shared_address(d_high + where), high);
        matrices_transposed(shared_address(d_low + where), low);
#pragma unroll
        for (u32 t = 0; t < 2; t++) {
          mma(fresh[t], t_high[p], high[2 * t], high[2 * t + 1]);
          mma(fresh[t], t_high[p], low[2 * t], low[2 * t + 1]);
          mma(fresh[t], t_low[p], high[2 * t], high[2 * t + 1]);
        }
      }
    }
#pragma unroll
    for (u32 t = 0; t < 2; t++) {
#pragma unroll
      for (u32 h = 0; h < 2; h++) {
        u32 row = r * 16 + h * 8 + group, at = c * 16 + t * 8 + pair;
        float x = fresh[t][2 * h], y = fresh[t][2 * h + 1];
        store_split(n_high, n_low, row, at, x, y);
        store_split(m_high, m_low, row, at, x * scales[h].z, y * scales[h].z);
      }
    }
    __syncthreads();

    // S = exp(G_end)·S + Kᵀ·M
#pragma unroll
    for (u32 t = 0; t < NT; t++) {
#pragma unroll
      for (u32 i = 0; i < 4; i++) s[t][i] *= scales[0].w;
    }
#pragma unroll
    for (u32 p = 0; p < 4; p++) {
      u32 a[4];
      matrices_transposed(shared_address(tile + (p * 16 + upper * 8 + row8) * ROW(DK) + s_row + half * 8), a);
#pragma unroll
      for (u32 t = 0; t < NT; t += 2) {
        u32 high[4], low[4];
        u32 where = place(p * 16 + half * 8 + row8, s_column + t * 8 + upper * 8);
        matrices_transposed(shared_address(m_high + where), high);
        matrices_transposed(shared_address(m_low + where), low);
        mma(s[t], a, high[0], high[1]);
        mma(s[t + 1], a, high[2], high[3]);
        mma(s[t], a, low[0], low[1]);
        mma(s[t + 1], a, low[2], low[3]);
      }
    }
#pragma unroll
    for (u32 t = 0; t < NT; t++) {
#pragma unroll
      for (u32 h = 0; h < 2; h++)
        store_split(s_high, s_low, s_row + h * 8 + group, s_column + t * 8 + pair, s[t][2 * h], s[t][2 * h + 1]);
    }
    // O += triangle·N
#pragma unroll
    for (u32 p = 0; p < 4; p++) {
      if (p <= r) {
        u32 high[4], low[4];
        u32 where = place(p * 16 + half * 8 + row8, c * 16 + upper * 8);
        matrices_transposed(shared_address(n_high + where), high);
        matrices_transposed(shared_address(n_low + where), low);
#pragma unroll
        for (u32 t = 0; t < 2; t++) {
          mma(o[t], p_high[p], high[2 * t], high[2 * t + 1]);
          mma(o[t], p_high[p], low[2 * t], low[2 * t + 1]);
          mma(o[t], p_low[p], high[2 * t], high[2 * t + 1]);
        }
      }
    }
#pragma unroll
    for (u32 h = 0; h < 2; h++) {
      u32 token = first + r * 16 + h * 8 + group;
      if (token < n.tokens) {
        O* to = out + ((u64)token * n.hv + head) * n.dv + column + c * 16 + pair;
        store_pair(to, o[0][2 * h], o[0][2 * h + 1]);
        store_pair(to + 8, o[1][2 * h], o[1][2 * h + 1]);
      }
    }
  }
#pragma unroll
  for (u32 t = 0; t < NT; t++) {
#pragma unroll
    for (u32 h = 0; h < 2; h++) *(float2*)(home + h * 8 * n.dv + t * 8) = make_float2(s[t][2 * h], s[t][2 * h + 1]);
  }
}

#define CHUNKS(DK, NAME, O)                                                                                                    \
  extern "C" __global__ void __launch_bounds__(256, 1)                                                                         \
      delta_chunks_##DK##_##NAME(const bf16* qkv, const uint4* scratch, float* state, O* out, Heads n) {                       \
    chunks<DK, O>(qkv, scratch, state, out, n);                                                                                \
  }
CHUNKS(64, bf16, bf16)
CHUNKS(64, f32, float)
CHUNKS(128, bf16, bf16)
CHUNKS(128, f32, float)

// One token after another: 32 columns of a head's state a block, 8 warps that share out the rows, a lane a column.
template <u32 DK, typename O>
static __device__ __forceinline__ void steps(const bf16* qkv, const float* g, const float* beta, float* state, O* out, Heads n) {
  const u32 ROWS = DK / 8;
  __shared__ float q[DK], k[DK], part[2][8][32], norms[2];
  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const u32 head = blockIdx.y, column = blockIdx.x * SLICE + lane, stride = 2 * n.hk * DK + n.hv * n.dv;
  const u32 key_head = head / (n.hv / n.hk);
  float* home = state + ((u64)head * DK + warp * ROWS) * n.dv + column;
  float s[ROWS];
#pragma unroll
  for (u32 i = 0; i < ROWS; i++) s[i] = home[i * n.dv];
  for (u32 token = 0; token < n.tokens; token++) {
    const bf16* row = qkv + (u64)token * stride;
    if (threadIdx.x < DK) {
      q[threadIdx.x] = to_f32(row[key_head * DK + threadIdx.x]);
      k[threadIdx.x] = to_f32(row[(n.hk + key_head) * DK + threadIdx.x]);
    }
    float value = to_f32(row[2 * n.hk * DK + head * n.dv + column]);
    float decay = exp_(g[token * n.hv + head]), strength = beta[token * n.hv + head];
    __syncthreads();
    if (warp < 2) {
      const float* x = warp == 0 ? q : k;
      float squares = 0.0f;
      for (u32 i = lane; i < DK; i += 32) squares = fma_(x[i], x[i], squares);
      squares = warp_sum(squares);
      if (lane == 0) norms[warp] = n.normalize ? 1.0f / sqrtf(squares + 1e-6f) : 1.0f;
    }
    float seen = 0.0f;
#pragma unroll
    for (u32 i = 0; i < ROWS; i++) {
      s[i] *= decay;
      seen = fma_(s[i], k[warp * ROWS + i], seen);
    }
    part[0][warp][lane] = seen;
    __syncthreads();
    seen = 0.0f;
    for (u32 w = 0; w < 8; w++) seen += part[0][w][lane];
    float change = strength * (value - norms[1] * seen) * norms[1], o = 0.0f;
#pragma unroll
    for (u32 i = 0; i < ROWS; i++) {
      s[i] = fma_(k[warp * ROWS + i], change, s[i]);
      o = fma_(s[i], q[warp * ROWS + i], o);
    }
    part[1][warp][lane] = o;
    __syncthreads();
    if (warp == 0) {
      o = 0.0f;
      for (u32 w = 0; w < 8; w++) o += part[1][w][lane];
      from_f32(o * norms[0] * n.scale, out + ((u64)token * n.hv + head) * n.dv + column);
    }
    // The next token writes `q`, `k` and, behind its first barrier, `norms`, which warp 0 has read before it comes there.
    __syncthreads();
  }
#pragma unroll
  for (u32 i = 0; i < ROWS; i++) home[i * n.dv] = s[i];
}

#define STEPS(DK, NAME, O)                                                                                                     \
  extern "C" __global__ void __launch_bounds__(256)                                                                            \
      delta_steps_##DK##_##NAME(const bf16* qkv, const float* g, const float* beta, float* state, O* out, Heads n) {           \
    steps<DK, O>(qkv, g, beta, state, out, n);                                                                                 \
  }
STEPS(64, bf16, bf16)
STEPS(64, f32, float)
STEPS(128, bf16, bf16)
STEPS(128, f32, float)

// ---- f32, any dimensions: rounding by rounding as in src/ops/src/gated_delta.rs ----

static __device__ __forceinline__ float dot(const float* a, const float* b, u32 n) {
  float sum = 0.0f;
  for (u32 i = 0; i < n; i++) sum = fma_(a[i], b[i], sum);
  return sum;
}

static __device__ __forceinline__ float inverse_norm(const float* x, u32 dk, u32 normalize) {
  return normalize ? 1.0f / sqrtf(dot(x, x, dk) + 1e-6f) : 1.0f;
}

// A thread a column of a head's state.
extern "C" __global__ void delta_steps_f32(const float* qkv, const float* g, const float* beta, float* state, float* out, Heads n, u32 dk) {
  u32 column = blockIdx.x * blockDim.x + threadIdx.x, head = blockIdx.y;
  if (column >= n.dv) return;
  u32 stride = 2 * n.hk * dk + n.hv * n.dv, key_head = head / (n.hv / n.hk);
  float* home = state + (u64)head * dk * n.dv + column;
  for (u32 token = 0; token < n.tokens; token++) {
    const float* q = qkv + (u64)token * stride + key_head * dk;
    const float* k = q + n.hk * dk;
    float fq = inverse_norm(q, dk, n.normalize) * n.scale, fk = inverse_norm(k, dk, n.normalize);
    float decay = exp_(g[token * n.hv + head]), seen = 0.0f;
    for (u32 d = 0; d < dk; d++) {
      float s = home[d * n.dv] * decay;
      home[d * n.dv] = s;
      seen = fma_(s, k[d], seen);
    }
    float v = qkv[(u64)token * stride + 2 * n.hk * dk + head * n.dv + column];
    float change = fma_(seen, -fk, v) * beta[token * n.hv + head] * fk, o = 0.0f;
    for (u32 d = 0; d < dk; d++) {
      float s = fma_(change, k[d], home[d * n.dv]);
      home[d * n.dv] = s;
      o = fma_(s, q[d], o);
    }
    out[((u64)token * n.hv + head) * n.dv + column] = o * fq;
  }
}

// A block a head.
extern "C" __global__ void delta_chunks_f32(const float* qkv, const float* g, const float* beta, float* state, float* out, float* scratch,
                                            Heads n, u32 dk) {
  const u32 head = blockIdx.x, dv = n.dv, stride = 2 * n.hk * dk + n.hv * dv;
  const float* queries = qkv + head / (n.hv / n.hk) * dk;
  const float* keys = queries + n.hk * dk;
  const float* values = qkv + 2 * n.hk * dk + head * dv;
  float* home = state + (u64)head * dk * dv;
  float* a = scratch + (u64)head * (2 * CHUNK * CHUNK + 4 * CHUNK + CHUNK * dv);
  float* p = a + CHUNK * CHUNK;
  float* sum = p + CHUNK * CHUNK;
  float *fq = sum + CHUNK, *fk = sum + 2 * CHUNK, *end = sum + 3 * CHUNK, *fresh = sum + 4 * CHUNK;
  for (u32 first = 0; first < n.tokens; first += CHUNK) {
    const u32 count = min(CHUNK, n.tokens - first);
    if (threadIdx.x == 0) {
      float total = 0.0f;
      for (u32 i = 0; i < count; i++) {
        total += g[(first + i) * n.hv + head];
        sum[i] = total;
      }
    }
    for (u32 i = threadIdx.x; i < count; i += blockDim.x) {
      fq[i] = inverse_norm(queries + (u64)(first + i) * stride, dk, n.normalize) * n.scale;
      fk[i] = inverse_norm(keys + (u64)(first + i) * stride, dk, n.normalize);
    }
    __syncthreads();
    const float total = sum[count - 1];
    for (u32 i = threadIdx.x; i < count; i += blockDim.x) end[i] = exp_(total - sum[i]) * fk[i];
    for (u32 at = threadIdx.x; at < count * CHUNK; at += blockDim.x) {
      u32 i = at / CHUNK, j = at % CHUNK;
      if (j > i) continue;
      const float* q = queries + (u64)(first + i) * stride;
      const float* k = keys + (u64)(first + i) * stride;
      const float* other = keys + (u64)(first + j) * stride;
      float decay = exp_(sum[i] - sum[j]) * fk[j];
      a[at] = dot(k, other, dk) * decay * fk[i] * beta[(first + i) * n.hv + head];
      p[at] = dot(q, other, dk) * decay * fq[i];
    }
    __syncthreads();
    for (u32 c = threadIdx.x; c < dv; c += blockDim.x) {
      for (u32 i = 0; i < count; i++) {
        const float* q = queries + (u64)(first + i) * stride;
        const float* k = keys + (u64)(first + i) * stride;
        float since = exp_(sum[i]), seen = 0.0f, o = 0.0f;
        for (u32 d = 0; d < dk; d++) {
          seen = fma_(home[d * dv + c], k[d], seen);
          o = fma_(home[d * dv + c], q[d], o);
        }
        float x = fma_(seen, -(since * fk[i]), values[(u64)(first + i) * stride + c]) * beta[(first + i) * n.hv + head];
        for (u32 j = 0; j < i; j++) x = fma_(fresh[j * dv + c], -a[i * CHUNK + j], x);
        fresh[i * dv + c] = x;
        o = o * (since * fq[i]);
        for (u32 j = 0; j <= i; j++) o = fma_(fresh[j * dv + c], p[i * CHUNK + j], o);
        out[((u64)(first + i) * n.hv + head) * dv + c] = o;
      }
    }
    __syncthreads();
    const float decay = exp_(total);
    for (u32 at = threadIdx.x; at < dk * dv; at += blockDim.x) {
      u32 d = at / dv, c = at % dv;
      float s = home[at] * decay;
      for (u32 j = 0; j < count; j++) s = fma_(fresh[j * dv + c], keys[(u64)(first + j) * stride + d] * end[j], s);
      home[at] = s;
    }
    __syncthreads();
  }
}
