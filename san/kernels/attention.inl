// Attention of the graph Transformer: explicit pairs with one lane per head, implicit pairs with one lane per node.

constexpr float kScoreClamp = 5.0F;

// Vectors of W floats. Types by specialisation: the attribute is not for widths that depend on a template.
template <int W>
struct VecTypes;
#define SAN_VECTOR_TYPES(W)                                                         \
  template <>                                                                       \
  struct VecTypes<W> {                                                              \
    typedef float F __attribute__((vector_size(4 * W)));                            \
    typedef int32_t I __attribute__((vector_size(4 * W)));                          \
    typedef float Mem __attribute__((vector_size(4 * W), aligned(4), may_alias));   \
  };
SAN_VECTOR_TYPES(4)
SAN_VECTOR_TYPES(8)
SAN_VECTOR_TYPES(16)

template <int W>
struct Vec {
  using F = typename VecTypes<W>::F;
  using I = typename VecTypes<W>::I;
  using Mem = typename VecTypes<W>::Mem;
  SAN_INLINE F get(const float* p) { return *reinterpret_cast<const Mem*>(p); }
  SAN_INLINE void put(float* p, F v) { *reinterpret_cast<Mem*>(p) = v; }
  // exp(clamp(x)); the same polynomial as exponential().
  SAN_INLINE F clamped_exp(F x) {
    const F low = -kScoreClamp - F{}, high = kScoreClamp - F{};
    x = x > low ? x : low;
    x = x < high ? x : high;
    const F t = x * 1.44269504088896341F + 12582912.0F;
    const F n = t - 12582912.0F;
    const F r = x - n * 0.693359375F + n * 2.12194440e-4F;
    F p = 1.9875691500e-4F - F{};
    p = p * r + 1.3981999507e-3F;
    p = p * r + 8.3334519073e-3F;
    p = p * r + 4.1665795894e-2F;
    p = p * r + 1.6666665459e-1F;
    p = p * r + 5.0000001201e-1F;
    p = p * (r * r) + r + 1.0F;
    const I exponent = (I)t - 0x4B400000 + 127;
    return p * (F)(exponent << 23);
  }
  // All ones where the clamp lets the gradient through.
  SAN_INLINE I inside(F x) { return (x >= -kScoreClamp) & (x <= kScoreClamp); }
  SAN_INLINE I lanes_below(int count) {
    I mask{};
    for (int i = 0; i < W; ++i) mask[i] = i < count ? -1 : 0;
    return mask;
  }
};

constexpr int64_t kPairsAtOnce = 64;

SAN_INLINE const float* edge_row(const PairList& pairs, int64_t p, int d) {
  return pairs.e + static_cast<int64_t>(pairs.e_row == nullptr ? p : pairs.e_row[p]) * d;
}

template <int W>
static void pairs_forward_w(const PairsForward& f) {
  using T = Vec<W>;
  using F = typename T::F;
  using I = typename T::I;
  const AttentionShape& s = *f.shape;
  const int heads = s.heads, width = s.head_width();
  const float factor = f.real ? s.real_weight : s.added_weight;
  const float* q = f.projections + f.node * s.ld + (f.real ? s.q1 : s.q2);
  const int k_at = f.real ? s.k1 : s.k2;
  float weights[kPairsAtOnce * W];
  for (int h = 0; h < heads; h += W) {
    const I lanes = T::lanes_below(heads - h);
    for (int64_t first = 0; first < f.pairs.count; first += kPairsAtOnce) {
      const int64_t count = f.pairs.count - first < kPairsAtOnce ? f.pairs.count - first : kPairsAtOnce;
      F sum{};
      for (int64_t p = 0; p < count; ++p) {
        const float* k = f.projections + f.pairs.other[first + p] * s.ld + k_at + h;
        const float* e = edge_row(f.pairs, first + p, s.d) + h;
        F score{};
        for (int c = 0; c < width; ++c) score += T::get(q + c * heads + h) * T::get(k + c * heads) * T::get(e + c * heads);
        const F w = (F)((I)(T::clamped_exp(score) * factor) & lanes);
        sum += w;
        T::put(weights + p * W, w);
      }
      for (int i = 0; i < W && h + i < heads; ++i) f.z[h + i] += sum[i];
      for (int c = 0; c < width; ++c) {
        F acc{};
        for (int64_t p = 0; p < count; ++p) {
          acc += T::get(weights + p * W) * T::get(f.projections + f.pairs.other[first + p] * s.ld + s.v + c * heads + h);
        }
        float* to = f.num + c * heads + h;
        T::put(to, T::get(to) + acc);
      }
    }
  }
}

template <int W>
static void pairs_target_w(const PairsBackward& b) {
  using T = Vec<W>;
  using F = typename T::F;
  using I = typename T::I;
  const AttentionShape& s = *b.shape;
  const int heads = s.heads, width = s.head_width();
  const float factor = b.real ? s.real_weight : s.added_weight;
  const int q_at = b.real ? s.q1 : s.q2, k_at = b.real ? s.k1 : s.k2;
  const float *q = b.projections + b.node * s.ld + q_at, *d_out = b.d_out + b.node * s.d;
  float* dq = b.d_projections + b.node * s.ld + q_at;
  float ds[kPairsAtOnce * W];
  for (int h = 0; h < heads; h += W) {
    const I lanes = T::lanes_below(heads - h);
    const F share = (F)((I)T::get(b.share + b.node * heads + h) & lanes);
    const F dot = (F)((I)T::get(b.dot + b.node * heads + h) & lanes);
    for (int64_t first = 0; first < b.pairs.count; first += kPairsAtOnce) {
      const int64_t count = b.pairs.count - first < kPairsAtOnce ? b.pairs.count - first : kPairsAtOnce;
      for (int64_t p = 0; p < count; ++p) {
        const float* other = b.projections + b.pairs.other[first + p] * s.ld;
        const float *k = other + k_at + h, *v = other + s.v + h, *e = edge_row(b.pairs, first + p, s.d) + h;
        F score{}, dv{};
        for (int c = 0; c < width; ++c) {
          score += T::get(q + c * heads + h) * T::get(k + c * heads) * T::get(e + c * heads);
          dv += T::get(d_out + c * heads + h) * T::get(v + c * heads);
        }
        const F w = T::clamped_exp(score) * factor;
        T::put(ds + p * W, (F)((I)(w * share * (dv - dot)) & lanes & T::inside(score)));
      }
      for (int c = 0; c < width; ++c) {
        F acc{};
        const F qc = T::get(q + c * heads + h);
        for (int64_t p = 0; p < count; ++p) {
          const F g = T::get(ds + p * W) * T::get(b.projections + b.pairs.other[first + p] * s.ld + k_at + c * heads + h);
          acc += g * T::get(edge_row(b.pairs, first + p, s.d) + c * heads + h);
          if (b.d_e != nullptr) {
            const int64_t row = b.pairs.e_row == nullptr ? first + p : b.pairs.e_row[first + p];
            float* de = b.d_e + row * s.d + c * heads + h;
            T::put(de, T::get(de) + g * qc);
          }
        }
        T::put(dq + c * heads + h, T::get(dq + c * heads + h) + acc);
      }
    }
  }
}

template <int W>
static void pairs_source_w(const PairsBackward& b) {
  using T = Vec<W>;
  using F = typename T::F;
  using I = typename T::I;
  const AttentionShape& s = *b.shape;
  const int heads = s.heads, width = s.head_width();
  const float factor = b.real ? s.real_weight : s.added_weight;
  const int q_at = b.real ? s.q1 : s.q2, k_at = b.real ? s.k1 : s.k2;
  const float *k = b.projections + b.node * s.ld + k_at, *v = b.projections + b.node * s.ld + s.v;
  float *dk = b.d_projections + b.node * s.ld + k_at, *dv = b.d_projections + b.node * s.ld + s.v;
  float ds[kPairsAtOnce * W], weights[kPairsAtOnce * W];
  for (int h = 0; h < heads; h += W) {
    const I lanes = T::lanes_below(heads - h);
    for (int64_t first = 0; first < b.pairs.count; first += kPairsAtOnce) {
      const int64_t count = b.pairs.count - first < kPairsAtOnce ? b.pairs.count - first : kPairsAtOnce;
      for (int64_t p = 0; p < count; ++p) {
        const int64_t target = b.pairs.other[first + p];
        const float *q = b.projections + target * s.ld + q_at + h, *d_out = b.d_out + target * s.d + h;
        const float* e = edge_row(b.pairs, first + p, s.d) + h;
        F score{}, d{};
        for (int c = 0; c < width; ++c) {
          score += T::get(q + c * heads) * T::get(k + c * heads + h) * T::get(e + c * heads);
          d += T::get(d_out + c * heads) * T::get(v + c * heads + h);
        }
        const F share = (F)((I)T::get(b.share + target * heads + h) & lanes);
        const F dot = (F)((I)T::get(b.dot + target * heads + h) & lanes);
        const F w = (F)((I)(T::clamped_exp(score) * factor * share) & lanes);
        T::put(weights + p * W, w);
        T::put(ds + p * W, (F)((I)(w * (d - dot)) & lanes & T::inside(score)));
      }
      for (int c = 0; c < width; ++c) {
        F to_k{}, to_v{};
        for (int64_t p = 0; p < count; ++p) {
          const int64_t target = b.pairs.other[first + p];
          to_k += T::get(ds + p * W) * T::get(b.projections + target * s.ld + q_at + c * heads + h) *
                  T::get(edge_row(b.pairs, first + p, s.d) + c * heads + h);
          to_v += T::get(weights + p * W) * T::get(b.d_out + target * s.d + c * heads + h);
        }
        T::put(dk + c * heads + h, T::get(dk + c * heads + h) + to_k);
        T::put(dv + c * heads + h, T::get(dv + c * heads + h) + to_v);
      }
    }
  }
}

#if SAN_VL == 16
#define SAN_BY_HEADS(function, args)             \
  if ((args).shape->heads <= 4) {                \
    function<4>(args);                           \
  } else if ((args).shape->heads <= 8) {         \
    function<8>(args);                           \
  } else {                                       \
    function<16>(args);                          \
  }
#elif SAN_VL == 8
#define SAN_BY_HEADS(function, args)             \
  if ((args).shape->heads <= 4) {                \
    function<4>(args);                           \
  } else {                                       \
    function<8>(args);                           \
  }
#else
#define SAN_BY_HEADS(function, args) function<4>(args);
#endif

static void pairs_forward(const PairsForward& f) { SAN_BY_HEADS(pairs_forward_w, f) }
static void pairs_backward_target(const PairsBackward& b) { SAN_BY_HEADS(pairs_target_w, b) }
static void pairs_backward_source(const PairsBackward& b) { SAN_BY_HEADS(pairs_source_w, b) }

// --- dense tiles -----------------------------------------------------------------------------------------------------

// Scores of dense tiles are in units of log 2: exp(s) is then 2^s.
constexpr float kScoreLimit = kScoreClamp * kLog2E;

// to[c][16] = rows[first + lane][c * heads + h]; lanes beyond are zeros.
static void gather_head(const float* rows, int64_t ld, int64_t first, int64_t lanes, int heads, int h, int width, float* to) {
  for (int64_t lane = 0; lane < kLanes; ++lane) {
    const float* from = rows + (first + lane) * ld + h;
    for (int c = 0; c < width; ++c) to[c * kLanes + lane] = lane < lanes ? from[c * heads] : 0.0F;
  }
}

#if defined(__AVX512F__) && SAN_VL == 16
SAN_INLINE V minimum(V a, V b) { return (V)_mm512_min_ps((__m512)a, (__m512)b); }
#elif defined(__AVX2__) && SAN_VL == 8
SAN_INLINE V minimum(V a, V b) { return (V)_mm256_min_ps((__m256)a, (__m256)b); }
#else
SAN_INLINE V minimum(V a, V b) { return a < b ? a : b; }
#endif

// 2^x for |x| < 100, relative error 1e-7 (minimax of degree 5 on [-1/2, 1/2]).
SAN_INLINE V power_of_two(V x) {
  const V t = x + 12582912.0F;
  const V r = x - (t - 12582912.0F);
  V p = r * 1.3276472e-3F + 9.6755413e-3F;
  p = p * r + 5.5507133e-2F;
  p = p * r + 2.4022120e-1F;
  p = p * r + 6.9314697e-1F;
  p = p * r + 1.00000007F;
  return (V)((VI)p + ((VI)t << 23));
}

SAN_INLINE V clamp_score(V s) { return minimum(maximum(s, splat(-kScoreLimit)), splat(kScoreLimit)); }

SAN_INLINE VI tile_mask(uint32_t bits, VU lane_bits) { return (VI)((splat_u(bits) & lane_bits) != 0); }
SAN_INLINE V choose(VI mask, V a, V b) { return mask ? a : b; }

// Weight of each pair: added_weight, with kReal also real_weight, 0 for lanes that are no pair.
template <bool kReal>
SAN_INLINE V pair_weight(VI real, VI added, V real_weight, V added_weight) {
  const V w = select(added, added_weight);
  return kReal ? choose(real, real_weight, w) : w;
}

// Everything the loops over a head's rows need. DK = head width, H = heads; 0 = known only at run time. kReal: real edges,
// all of one type, are in the tile too.
template <int DK, int H, bool kReal>
struct DenseHead {
  const DenseTile& t;
  const AttentionShape& s;
  const int h;
  float* const at;  // scratch
  int width() const { return DK > 0 ? DK : s.head_width(); }
  int heads() const { return H > 0 ? H : s.heads; }

  float* tile(int number) const { return at + number * width() * kLanes; }

  template <int U>
  SAN_INLINE void forward_step(const DenseHead& me, const float* __restrict row, const uint32_t* mask,
                               const uint32_t* real_mask, int lane, VU lane_bits, V* acc, V& z) {
    const int width = me.width(), heads = me.heads();
    const int64_t ld = me.s.ld;
    const float *q1 = me.tile(0) + lane, *q2 = me.tile(1) + lane;
    const float *k1 = row + me.s.k1, *k2 = row + me.s.k2, *v = row + me.s.v;
    V s1[U], s2[U];
#pragma GCC unroll 4
    for (int u = 0; u < U; ++u) s1[u] = s2[u] = V{};
#pragma GCC unroll 16
    for (int c = 0; c < width; ++c) {
      const V b = load(q2 + c * kLanes);
      V a{};
      if (kReal) a = load(q1 + c * kLanes);
#pragma GCC unroll 4
      for (int u = 0; u < U; ++u) {
        s2[u] += b * k2[u * ld + c * heads];
        if (kReal) s1[u] += a * k1[u * ld + c * heads];
      }
    }
    const V rw = splat(me.s.real_weight), aw = splat(me.s.added_weight);
#pragma GCC unroll 4
    for (int u = 0; u < U; ++u) {
      VI real{};
      if (kReal) real = tile_mask(real_mask[u], lane_bits);
      const V score = kReal ? choose(real, s1[u], s2[u]) : s2[u];
      const V weight = pair_weight<kReal>(real, tile_mask(mask[u], lane_bits), rw, aw);
      s2[u] = power_of_two(clamp_score(score)) * weight;
      z += s2[u];
    }
    if constexpr (DK > 0) {
#pragma GCC unroll 16
      for (int c = 0; c < DK; ++c) {
#pragma GCC unroll 4
        for (int u = 0; u < U; ++u) acc[c] += s2[u] * v[u * ld + c * heads];
      }
    } else {
      float* num = me.tile(2) + lane;
      for (int c = 0; c < width; ++c) {
        V sum = load(num + c * kLanes);
#pragma GCC unroll 4
        for (int u = 0; u < U; ++u) sum += s2[u] * v[u * ld + c * heads];
        store(num + c * kLanes, sum);
      }
    }
  }

  static void forward(const DenseTile& t, int h) {
    const AttentionShape& s = *t.shape;
    const DenseHead me{t, s, h, t.scratch};
    const int width = me.width(), heads = me.heads();
    if (kReal) gather_head(t.scaled_q1, s.d, t.first, t.lanes, heads, h, width, me.tile(0));
    gather_head(t.scaled_q, s.d, t.first, t.lanes, heads, h, width, me.tile(1));
    float *num = me.tile(2), *z = me.tile(3);
    const float* row = t.projections + t.begin * s.ld + h;
    const int64_t nodes = t.end - t.begin;
    for (int lane = 0; lane < kLanes; lane += VL) {
      const VU lane_bits = splat_u(1U << lane) << lane_numbers();
      V acc[DK > 0 ? DK : 1], total{};
      if constexpr (DK > 0) {
#pragma GCC unroll 16
        for (int c = 0; c < DK; ++c) acc[c] = V{};
      } else {
        for (int c = 0; c < width; ++c) store(num + c * kLanes + lane, V{});
      }
      int64_t j = 0;
      for (; j + 4 <= nodes; j += 4) forward_step<4>(me, row + j * s.ld, t.mask + j, t.real_mask + j, lane, lane_bits, acc, total);
      for (; j < nodes; ++j) forward_step<1>(me, row + j * s.ld, t.mask + j, t.real_mask + j, lane, lane_bits, acc, total);
      if constexpr (DK > 0) {
#pragma GCC unroll 16
        for (int c = 0; c < DK; ++c) store(num + c * kLanes + lane, acc[c]);
      }
      store(z + lane, total);
    }
    for (int64_t lane = 0; lane < t.lanes; ++lane) {
      t.z[lane * heads + h] += z[lane];
      for (int c = 0; c < width; ++c) t.num[lane * s.d + c * heads + h] += num[c * kLanes + lane];
    }
  }

  // Lanes are targets: gradients of q1 and q2.
  template <int U>
  SAN_INLINE void target_step(const DenseHead& me, const float* __restrict row, const uint32_t* mask,
                              const uint32_t* real_mask, int lane, VU lane_bits, V share, V dot, V* acc1, V* acc2) {
    const int width = me.width(), heads = me.heads();
    const int64_t ld = me.s.ld;
    const float *q1 = me.tile(0) + lane, *q2 = me.tile(1) + lane, *o = me.tile(2) + lane;
    const float *k1 = row + me.s.k1, *k2 = row + me.s.k2, *v = row + me.s.v;
    V s1[U], s2[U], d[U];
#pragma GCC unroll 4
    for (int u = 0; u < U; ++u) s1[u] = s2[u] = d[u] = V{};
#pragma GCC unroll 16
    for (int c = 0; c < width; ++c) {
      const V b = load(q2 + c * kLanes), g = load(o + c * kLanes);
      V a{};
      if (kReal) a = load(q1 + c * kLanes);
#pragma GCC unroll 4
      for (int u = 0; u < U; ++u) {
        s2[u] += b * k2[u * ld + c * heads];
        d[u] += g * v[u * ld + c * heads];
        if (kReal) s1[u] += a * k1[u * ld + c * heads];
      }
    }
    const V rw = splat(me.s.real_weight), aw = splat(me.s.added_weight);
#pragma GCC unroll 4
    for (int u = 0; u < U; ++u) {
      VI real{};
      if (kReal) real = tile_mask(real_mask[u], lane_bits);
      const V score = kReal ? choose(real, s1[u], s2[u]) : s2[u];
      const V weight = pair_weight<kReal>(real, tile_mask(mask[u], lane_bits), rw, aw);
      const V clamped = clamp_score(score);
      const V ds = select(clamped == score, power_of_two(clamped) * weight * share * (d[u] - dot));
      if (kReal) {
        s1[u] = select(real, ds);
        s2[u] = ds - s1[u];  // the other kind's, exactly
      } else {
        s2[u] = ds;
      }
    }
    // The rows are read again: kept in registers from above they would end up on the stack.
    asm volatile("" ::: "memory");
    if constexpr (DK > 0) {
#pragma GCC unroll 16
      for (int c = 0; c < DK; ++c) {
#pragma GCC unroll 4
        for (int u = 0; u < U; ++u) {
          acc2[c] += s2[u] * k2[u * ld + c * heads];
          if (kReal) acc1[c] += s1[u] * k1[u * ld + c * heads];
        }
      }
    } else {
      float *dq1 = me.tile(3) + lane, *dq2 = me.tile(4) + lane;
      for (int c = 0; c < width; ++c) {
        V sum1 = load(dq1 + c * kLanes), sum2 = load(dq2 + c * kLanes);
#pragma GCC unroll 4
        for (int u = 0; u < U; ++u) {
          sum2 += s2[u] * k2[u * ld + c * heads];
          if (kReal) sum1 += s1[u] * k1[u * ld + c * heads];
        }
        if (kReal) store(dq1 + c * kLanes, sum1);
        store(dq2 + c * kLanes, sum2);
      }
    }
  }

  static void target(const DenseTile& t, int h) {
    const AttentionShape& s = *t.shape;
    const DenseHead me{t, s, h, t.scratch};
    const int width = me.width(), heads = me.heads();
    if (kReal) gather_head(t.scaled_q1, s.d, t.first, t.lanes, heads, h, width, me.tile(0));
    gather_head(t.scaled_q, s.d, t.first, t.lanes, heads, h, width, me.tile(1));
    gather_head(t.d_out, s.d, t.first, t.lanes, heads, h, width, me.tile(2));
    float *dq1 = me.tile(3), *dq2 = me.tile(4), *share = me.tile(5), *dot = share + kLanes;
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      share[lane] = lane < t.lanes ? t.share[(t.first + lane) * heads + h] : 0;
      dot[lane] = lane < t.lanes ? t.dot[(t.first + lane) * heads + h] : 0;
    }
    const float* row = t.projections + t.begin * s.ld + h;
    const int64_t nodes = t.end - t.begin;
    constexpr int U = kReal ? 2 : 4;
    for (int lane = 0; lane < kLanes; lane += VL) {
      const VU lane_bits = splat_u(1U << lane) << lane_numbers();
      V acc1[DK > 0 ? DK : 1], acc2[DK > 0 ? DK : 1];
      if constexpr (DK > 0) {
#pragma GCC unroll 16
        for (int c = 0; c < DK; ++c) acc1[c] = acc2[c] = V{};
      } else {
        for (int c = 0; c < 2 * width; ++c) store(dq1 + c * kLanes + lane, V{});
      }
      const V sh = load(share + lane), dt = load(dot + lane);
      int64_t j = 0;
      for (; j + U <= nodes; j += U) {
        target_step<U>(me, row + j * s.ld, t.mask + j, t.real_mask + j, lane, lane_bits, sh, dt, acc1, acc2);
      }
      for (; j < nodes; ++j) {
        target_step<1>(me, row + j * s.ld, t.mask + j, t.real_mask + j, lane, lane_bits, sh, dt, acc1, acc2);
      }
      if constexpr (DK > 0) {
#pragma GCC unroll 16
        for (int c = 0; c < DK; ++c) {
          store(dq1 + c * kLanes + lane, acc1[c]);
          store(dq2 + c * kLanes + lane, acc2[c]);
        }
      }
    }
    const auto add = [&](const float* d, const float* e, int q_at, float* d_e) {
      for (int64_t lane = 0; lane < t.lanes; ++lane) {
        const float* q = t.projections + (t.first + lane) * s.ld + q_at + h;
        float* to = t.d_projections + (t.first + lane) * s.ld + q_at + h;
        for (int c = 0; c < width; ++c) {
          const float g = d[c * kLanes + lane];
          to[c * heads] += g * e[c * heads + h];
          d_e[c * heads + h] += g * q[c * heads];
        }
      }
    };
    add(dq2, t.e, s.q2, t.d_e);
    if (kReal) add(dq1, t.e1, s.q1, t.d_e1);
  }

  // Lanes are sources: gradients of k1, k2 and v. Rows are those of the targets.
  template <int U>
  SAN_INLINE void source_step(const DenseHead& me, int64_t target, const uint32_t* mask, const uint32_t* real_mask, int lane,
                              VU lane_bits, V* acc1, V* acc2, V* acc_v) {
    const int width = me.width(), heads = me.heads(), d_ld = me.s.d;
    const float *k1 = me.tile(0) + lane, *k2 = me.tile(1) + lane, *v = me.tile(2) + lane;
    const float* __restrict q1 = kReal ? me.t.scaled_q1 + target * d_ld + me.h : nullptr;
    const float* __restrict q2 = me.t.scaled_q + target * d_ld + me.h;
    const float* __restrict o = me.t.d_out + target * d_ld + me.h;
    V s1[U], s2[U], d[U];
#pragma GCC unroll 4
    for (int u = 0; u < U; ++u) s1[u] = s2[u] = d[u] = V{};
#pragma GCC unroll 16
    for (int c = 0; c < width; ++c) {
      const V b = load(k2 + c * kLanes), g = load(v + c * kLanes);
      V a{};
      if (kReal) a = load(k1 + c * kLanes);
#pragma GCC unroll 4
      for (int u = 0; u < U; ++u) {
        s2[u] += b * q2[u * d_ld + c * heads];
        d[u] += g * o[u * d_ld + c * heads];
        if (kReal) s1[u] += a * q1[u * d_ld + c * heads];
      }
    }
    const V rw = splat(me.s.real_weight), aw = splat(me.s.added_weight);
    const float *share = me.t.share + target * heads + me.h, *dot = me.t.dot + target * heads + me.h;
#pragma GCC unroll 4
    for (int u = 0; u < U; ++u) {
      VI real{};
      if (kReal) real = tile_mask(real_mask[u], lane_bits);
      const V score = kReal ? choose(real, s1[u], s2[u]) : s2[u];
      const V weight = pair_weight<kReal>(real, tile_mask(mask[u], lane_bits), rw, aw);
      const V clamped = clamp_score(score);
      const V w = power_of_two(clamped) * weight * share[u * heads];
      const V ds = select(clamped == score, w * (d[u] - dot[u * heads]));
      d[u] = w;
      if (kReal) {
        s1[u] = select(real, ds);
        s2[u] = ds - s1[u];
      } else {
        s2[u] = ds;
      }
    }
    // The rows are read again: kept in registers from above they would end up on the stack.
    asm volatile("" ::: "memory");
    if constexpr (DK > 0) {
#pragma GCC unroll 16
      for (int c = 0; c < DK; ++c) {
#pragma GCC unroll 4
        for (int u = 0; u < U; ++u) {
          acc2[c] += s2[u] * q2[u * d_ld + c * heads];
          acc_v[c] += d[u] * o[u * d_ld + c * heads];
          if (kReal) acc1[c] += s1[u] * q1[u * d_ld + c * heads];
        }
      }
    } else {
      float *dk1 = me.tile(3) + lane, *dk2 = me.tile(4) + lane, *dv = me.tile(5) + lane;
      for (int c = 0; c < width; ++c) {
        V sum1 = load(dk1 + c * kLanes), sum2 = load(dk2 + c * kLanes), sum_v = load(dv + c * kLanes);
#pragma GCC unroll 4
        for (int u = 0; u < U; ++u) {
          sum2 += s2[u] * q2[u * d_ld + c * heads];
          sum_v += d[u] * o[u * d_ld + c * heads];
          if (kReal) sum1 += s1[u] * q1[u * d_ld + c * heads];
        }
        if (kReal) store(dk1 + c * kLanes, sum1);
        store(dk2 + c * kLanes, sum2);
        store(dv + c * kLanes, sum_v);
      }
    }
  }

  static void source(const DenseTile& t, int h) {
    const AttentionShape& s = *t.shape;
    const DenseHead me{t, s, h, t.scratch};
    const int width = me.width(), heads = me.heads();
    if (kReal) gather_head(t.projections + s.k1, s.ld, t.first, t.lanes, heads, h, width, me.tile(0));
    gather_head(t.projections + s.k2, s.ld, t.first, t.lanes, heads, h, width, me.tile(1));
    gather_head(t.projections + s.v, s.ld, t.first, t.lanes, heads, h, width, me.tile(2));
    float *dk1 = me.tile(3), *dk2 = me.tile(4), *dv = me.tile(5);
    const int64_t nodes = t.end - t.begin;
    for (int lane = 0; lane < kLanes; lane += VL) {
      const VU lane_bits = splat_u(1U << lane) << lane_numbers();
      V acc1[DK > 0 ? DK : 1], acc2[DK > 0 ? DK : 1], acc_v[DK > 0 ? DK : 1];
      if constexpr (DK > 0) {
#pragma GCC unroll 16
        for (int c = 0; c < DK; ++c) acc1[c] = acc2[c] = acc_v[c] = V{};
      } else {
        for (int c = 0; c < 3 * width; ++c) store(dk1 + c * kLanes + lane, V{});
      }
      int64_t i = 0;
      for (; i + 2 <= nodes; i += 2) {
        source_step<2>(me, t.begin + i, t.mask + i, t.real_mask + i, lane, lane_bits, acc1, acc2, acc_v);
      }
      for (; i < nodes; ++i) source_step<1>(me, t.begin + i, t.mask + i, t.real_mask + i, lane, lane_bits, acc1, acc2, acc_v);
      if constexpr (DK > 0) {
#pragma GCC unroll 16
        for (int c = 0; c < DK; ++c) {
          store(dk1 + c * kLanes + lane, acc1[c]);
          store(dk2 + c * kLanes + lane, acc2[c]);
          store(dv + c * kLanes + lane, acc_v[c]);
        }
      }
    }
    for (int64_t lane = 0; lane < t.lanes; ++lane) {
      float* row = t.d_projections + (t.first + lane) * s.ld + h;
      for (int c = 0; c < width; ++c) {
        // Queries were scaled for powers of two.
        if (kReal) row[s.k1 + c * heads] += dk1[c * kLanes + lane] / kLog2E;
        row[s.k2 + c * heads] += dk2[c * kLanes + lane] / kLog2E;
        row[s.v + c * heads] += dv[c * kLanes + lane];
      }
    }
  }
};

// The shapes of the published configurations are known to the compiler.
#define SAN_DENSE_CASE(width, count, pass)                        \
  if (t.shape->head_width() == (width) && heads == (count)) {     \
    for (int h = 0; h < heads; ++h) {                             \
      t.real_mask != nullptr ? DenseHead<width, count, true>::pass(t, h) : DenseHead<width, count, false>::pass(t, h); \
    }                                                             \
    return;                                                       \
  }
#define SAN_DENSE(pass)                                                                                        \
  const int heads = t.shape->heads;                                                                            \
  SAN_DENSE_CASE(6, 8, pass)                                                                                   \
  SAN_DENSE_CASE(7, 8, pass)                                                                                   \
  SAN_DENSE_CASE(8, 8, pass)                                                                                   \
  SAN_DENSE_CASE(8, 10, pass)                                                                                  \
  for (int h = 0; h < heads; ++h) {                                                                            \
    t.real_mask != nullptr ? DenseHead<0, 0, true>::pass(t, h) : DenseHead<0, 0, false>::pass(t, h);           \
  }

static void dense_forward(const DenseTile& t) { SAN_DENSE(forward) }
static void dense_backward_target(const DenseTile& t) { SAN_DENSE(target) }
static void dense_backward_source(const DenseTile& t) { SAN_DENSE(source) }
