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
    x = x < low ? low : x;  // NaN stays
    x = x > high ? high : x;
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
  // These lanes; the others may be another thread's, just being written, and are not read.
  SAN_INLINE F get_some(const float* p, I lanes) {
#if defined(__AVX512F__)
    if constexpr (W == 16) return (F)_mm512_maskz_loadu_ps(_mm512_movepi32_mask((__m512i)lanes), p);
#endif
#if defined(__AVX2__)
    if constexpr (W == 8) return (F)_mm256_maskload_ps(p, (__m256i)lanes);
    if constexpr (W == 4) return (F)_mm_maskload_ps(p, (__m128i)lanes);
#endif
    F v{};
    for (int i = 0; i < W; ++i) {
      if (lanes[i] != 0) v[i] = p[i];
    }
    return v;
  }
  // p += v in these lanes. Lanes beyond the heads belong to other numbers, perhaps of another thread: they may not even be
  // written back unchanged.
  SAN_INLINE void add(float* p, F v, I lanes, bool all) {
    if (all) {
      put(p, get(p) + v);
      return;
    }
#if defined(__AVX512F__)
    if constexpr (W == 16) {
      const __mmask16 some = _mm512_movepi32_mask((__m512i)lanes);
      _mm512_mask_storeu_ps(p, some, (__m512)((F)_mm512_maskz_loadu_ps(some, p) + v));
      return;
    }
#endif
#if defined(__AVX2__)
    if constexpr (W == 8) {
      _mm256_maskstore_ps(p, (__m256i)lanes, (__m256)((F)_mm256_maskload_ps(p, (__m256i)lanes) + v));
      return;
    }
    if constexpr (W == 4) {
      _mm_maskstore_ps(p, (__m128i)lanes, (__m128)((F)_mm_maskload_ps(p, (__m128i)lanes) + v));
      return;
    }
#endif
    for (int i = 0; i < W; ++i) {
      if (lanes[i] != 0) p[i] += v[i];
    }
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
    const bool all = heads - h >= W;
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
        T::add(f.num + c * heads + h, acc, lanes, all);
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
    const bool all = heads - h >= W;
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
            T::add(b.d_e + row * s.d + c * heads + h, g * qc, lanes, all);
          }
        }
        T::add(dq + c * heads + h, acc, lanes, all);
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
    const bool all = heads - h >= W;
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
        T::add(dk + c * heads + h, to_k, lanes, all);
        T::add(dv + c * heads + h, to_v, lanes, all);
      }
    }
  }
}

struct HeadDots {
  const AttentionShape* shape;
  const float *a, *b;
  int64_t rows;
  float* out;
};
template <int W>
static void head_dots_w(const HeadDots& x) {
  using T = Vec<W>;
  const int heads = x.shape->heads, d = x.shape->d;
  for (int h = 0; h < heads; h += W) {
    const int count = heads - h < W ? heads - h : W;
    const auto lanes = T::lanes_below(count);
    for (int64_t r = 0; r < x.rows; ++r) {
      const float *a = x.a + r * d + h, *b = x.b + r * d + h;
      float* out = x.out + r * heads + h;
      typename T::F sum{};
      if (count == W) {
        for (int f = 0; f < d; f += heads) sum += T::get(a + f) * T::get(b + f);
        T::put(out, sum);
        continue;
      }
      for (int f = 0; f < d; f += heads) sum += T::get_some(a + f, lanes) * T::get_some(b + f, lanes);
      for (int i = 0; i < count; ++i) out[i] = sum[i];
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

static void head_dots(const float* a, const float* b, int64_t rows, int d, int heads, float* out) {
  AttentionShape shape;
  shape.d = d;
  shape.heads = heads;
  const HeadDots x{&shape, a, b, rows, out};
  SAN_BY_HEADS(head_dots_w, x)
}
static void pairs_forward(const PairsForward& f) { SAN_BY_HEADS(pairs_forward_w, f) }
static void pairs_backward_target(const PairsBackward& b) { SAN_BY_HEADS(pairs_target_w, b) }
static void pairs_backward_source(const PairsBackward& b) { SAN_BY_HEADS(pairs_source_w, b) }

// --- all pairs of a graph --------------------------------------------------------------------------------------------

// Scores are in units of log 2: exp(s) is then 2^s.
constexpr float kScoreLimit = kScoreClamp * kLog2E;

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

// Makes a number of everything: lanes beyond the graph hold what was there before, and are multiplied by 0 afterwards.
SAN_INLINE V clamp_score(V s) { return minimum(maximum(s, splat(-kScoreLimit)), splat(kScoreLimit)); }

SAN_INLINE V absolute(V x) { return (V)((VI)x & 0x7fffffff); }

#ifndef __clang__
// VL vectors as a matrix, transposed.
SAN_INLINE void transpose(V* x) {
#pragma GCC unroll 4
  for (int w = VL / 2; w >= 1; w /= 2) {
    VI low{}, high{};
#pragma GCC unroll 16
    for (int l = 0; l < VL; ++l) {
      low[l] = (l & w) == 0 ? l : VL + l - w;
      high[l] = (l & w) == 0 ? l + w : VL + l;
    }
#pragma GCC unroll 16
    for (int i = 0; i < VL; ++i) {
      if ((i & w) != 0) continue;
      const V a = x[i], b = x[i + w];
      x[i] = __builtin_shuffle(a, b, low);
      x[i + w] = __builtin_shuffle(a, b, high);
    }
  }
}
#else
SAN_INLINE void transpose(V* x) {
  for (int i = 0; i < VL; ++i) {
    for (int j = 0; j < i; ++j) {
      const float a = x[i][j];
      x[i][j] = x[j][i];
      x[j][i] = a;
    }
  }
}
#endif

// Where feature f stands in arrays of one head after the other: steps from one feature to the next without a division.
struct FeaturePlace {
  int heads;
  int64_t size;  // floats per head
  int head = 0;
  int64_t feature = 0;
  int64_t next() {
    const int64_t at = head * size + feature * kLanes;
    if (++head == heads) {
      head = 0;
      ++feature;
    }
    return at;
  }
};

// to[h][tile][c][16] = rows[tile * 16 + lane][c * heads + h] for the graph's heads; lanes beyond are zeros.
static void pack_heads(const DenseGraph& g, const float* rows, int64_t ld, float* to) {
  const int heads = g.shape->heads, width = g.shape->head_width(), d = g.shape->d;
  const int64_t nodes = g.end - g.begin, size = g.padded() * width;
  rows += g.begin * ld;
  if (g.head_end - g.head_begin == heads) {
    for (int64_t t = 0; t < g.padded(); t += VL) {
      float* tile = to + token_at(width, t);
      FeaturePlace place{heads, size};
      for (int f = 0; f < d; f += VL) {
        V x[VL];
#pragma GCC unroll 16
        for (int lane = 0; lane < VL; ++lane) x[lane] = t + lane < nodes ? load(rows + (t + lane) * ld + f) : V{};
        transpose(x);
        // The last features are followed by others that are not meant.
#pragma GCC unroll 16
        for (int i = 0; i < VL; ++i) {
          if (f + i < d) store(tile + place.next(), x[i]);
        }
      }
    }
    return;
  }
  for (int64_t t = 0; t < nodes; t += kLanes) {
    for (int h = g.head_begin; h < g.head_end; ++h) {
      for (int64_t lane = 0; lane < kLanes; ++lane) {
        const float* from = rows + (t + lane) * ld + h;
        float* at = to + t * width + (h - g.head_begin) * size + lane;
        for (int c = 0; c < width; ++c) at[c * kLanes] = t + lane < nodes ? from[c * heads] : 0.0F;
      }
    }
  }
}

// The way back: rows[..][c * heads + h] = scale * from.
static void unpack_heads(const DenseGraph& g, const float* from, float scale, float* rows, int64_t ld) {
  const int heads = g.shape->heads, width = g.shape->head_width(), d = g.shape->d;
  const int64_t nodes = g.end - g.begin, size = g.padded() * width;
  rows += g.begin * ld;
  if (g.head_end - g.head_begin == heads) {
    for (int64_t t = 0; t < nodes; t += VL) {
      const int64_t lanes = nodes - t < VL ? nodes - t : VL;
      const float* tile = from + token_at(width, t);
      FeaturePlace place{heads, size};
      for (int f = 0; f < d; f += VL) {
        V x[VL];
#pragma GCC unroll 16
        for (int i = 0; i < VL; ++i) x[i] = f + i < d ? load(tile + place.next()) * scale : V{};
        transpose(x);
        const int64_t left = d - f;
#pragma GCC unroll 16
        for (int lane = 0; lane < VL; ++lane) {
          if (lane >= lanes) break;
          float* at = rows + (t + lane) * ld + f;
          if (left >= VL) {
            store(at, x[lane]);
          } else {
            store_some(at, x[lane], left);
          }
        }
      }
    }
    return;
  }
  for (int64_t t = 0; t < nodes; t += kLanes) {
    const int64_t lanes = nodes - t < kLanes ? nodes - t : kLanes;
    for (int h = g.head_begin; h < g.head_end; ++h) {
      for (int c = 0; c < width; ++c) {
        const float* at = from + t * width + (h - g.head_begin) * size + c * kLanes;
        for (int64_t lane = 0; lane < lanes; ++lane) {
          rows[(t + lane) * ld + c * heads + h] = scale * at[lane];
        }
      }
    }
  }
}

// What exp(score) of node `row + q` and node first + t is multiplied by, factor[q][t] in rows of kTokenPiece, t < count: 0 for no
// pair (the node itself, nodes beyond the graph), the added pairs' weight, and for real edges 0 or, if kReal, their weight; those
// of added pairs are then negative, so that the sign tells the kinds apart. The same for all heads.
template <bool kReal>
static void pair_factors(const DenseGraph& g, int64_t row, int rows, int64_t first, int64_t count, float* factors) {
  const int64_t nodes = g.end - g.begin;
  const float added = kReal ? -g.shape->added_weight : g.shape->added_weight, real = kReal ? g.shape->real_weight : 0.0F;
  const int64_t whole = nodes - first < count ? (nodes - first) / VL * VL : count;  // the graph may end in a vector
  const V last = select((VI)(lane_numbers() + static_cast<uint32_t>(first + whole)) < static_cast<int32_t>(nodes), splat(added));
  for (int q = 0; q < rows; ++q, factors += kTokenPiece) {
    for (int64_t t = 0; t < whole; t += VL) store(factors + t, splat(added));
    for (int64_t t = whole; t < count; t += VL) store(factors + t, last);
    const auto set = [&](int64_t node, float factor) {
      if (node >= first && node < first + count) factors[node - first] = factor;
    };
    set(row + q, 0);
    for (int64_t p = g.pair_begin[g.begin + row + q]; p < g.pair_begin[g.begin + row + q + 1]; ++p) {
      set(g.other[p] - g.begin, real);
    }
  }
  for (int64_t i = 0; i < (kDenseRows - rows) * kTokenPiece; i += VL) store(factors + i, V{});
}

template <int K, int TV>
SAN_ALONE void scores(const RowMatrix w, int rows, int width, const float* __restrict x, float* __restrict out) {
  products<K, TV>(
      w, rows, width, x, [](int) { return V{}; },
      [&](int row, V(*a)[TV]) {
#pragma GCC unroll 4
        for (int q = 0; q < 4; ++q) {
#pragma GCC unroll 8
          for (int v = 0; v < TV; ++v) store(out + (row + q) * kTokenPiece + v * VL, a[q][v]);
        }
      });
}

// Of one piece of the rows: factors, scores of real edges s1 (kReal) and of added pairs.
struct PairRows {
  const float* factors;
  float *s1, *s2;
};

template <bool kReal>
SAN_INLINE V score_of(V added, const PairRows& p, int64_t at, V factor) {
  return kReal ? ((VI)factor < 0 ? added : load(p.s1 + at)) : added;
}

// s2: scores of added pairs -> the pairs' weights, for TV vectors of lanes; z[t] += their sum over the rows.
template <int TV, bool kReal>
SAN_ALONE void pair_weights(const PairRows p, int rows, float* __restrict z) {
  V sum[TV];
#pragma GCC unroll 8
  for (int v = 0; v < TV; ++v) sum[v] = load(z + v * VL);
#pragma GCC unroll 1
  for (int q = 0; q < rows; ++q) {
    const float* factors = p.factors + q * kTokenPiece;
#pragma GCC unroll 8
    for (int v = 0; v < TV; ++v) {
      const int64_t at = q * kTokenPiece + v * VL;
      const V factor = load(factors + v * VL);
      const V weight = power_of_two(clamp_score(score_of<kReal>(load(p.s2 + at), p, at, factor))) * absolute(factor);
      sum[v] += weight;
      store(p.s2 + at, weight);
    }
  }
#pragma GCC unroll 8
  for (int v = 0; v < TV; ++v) store(z + v * VL, sum[v]);
}

// d: gradients of the weights -> the weights times share; s2 = gradients of added pairs' scores, s1 = of real edges'. share,
// dot: per row.
template <int TV, bool kReal>
SAN_ALONE void pair_gradients(const PairRows p, int rows, const float* share, const float* dot, float* __restrict d) {
#pragma GCC unroll 1
  for (int q = 0; q < rows; ++q) {
    const float* factors = p.factors + q * kTokenPiece;
    const V row_share = splat(share[q]), row_dot = splat(dot[q]);
#pragma GCC unroll 8
    for (int v = 0; v < TV; ++v) {
      const int64_t at = q * kTokenPiece + v * VL;
      const V factor = load(factors + v * VL);
      const V score = score_of<kReal>(load(p.s2 + at), p, at, factor), clamped = clamp_score(score);
      const V weight = power_of_two(clamped) * absolute(factor) * row_share;
      const V ds = select(clamped == score, weight * (load(d + at) - row_dot));
      store(d + at, weight);
      if (kReal) {
        const VI added = (VI)factor < 0;
        store(p.s1 + at, select(~added, ds));
        store(p.s2 + at, select(added, ds));
      } else {
        store(p.s2 + at, ds);
      }
    }
  }
}

// f(begin, end) for the features of a row that belong to the graph's heads.
template <class F>
SAN_INLINE void features_of_heads(const DenseGraph& g, const F& f) {
  const int heads = g.shape->heads, d = g.shape->d;
  if (g.head_end - g.head_begin == heads) return f(0, d);
  for (int c = 0; c < d; c += heads) f(c + g.head_begin, c + g.head_end);
}

// Lanes are targets, rows sources.
template <int K, bool kReal>
static void dense_forward_k(const DenseGraph& g) {
  const AttentionShape& s = *g.shape;
  const int heads = s.heads, width = s.head_width(), count = g.head_end - g.head_begin;
  const int64_t nodes = g.end - g.begin, lanes = g.padded(), size = lanes * width, used = (nodes + VL - 1) / VL * VL;
  float *q2 = g.scratch, *q1 = q2 + count * size, *num = q1 + (kReal ? count * size : 0), *z = num + count * size;
  float *s2 = z + count * lanes, *s1 = s2 + kDenseRows * kTokenPiece, *factors = s1 + kDenseRows * kTokenPiece;
  pack_heads(g, g.scaled_q, s.d, q2);
  if (kReal) pack_heads(g, g.scaled_q1, s.d, q1);
  for (int64_t i = 0; i < count * lanes; i += VL) store(z + i, V{});
  for (int64_t row = 0; row < nodes; row += kDenseRows) {
    const int rows = static_cast<int>(nodes - row < kDenseRows ? nodes - row : kDenseRows);
    if (used <= kTokenPiece) pair_factors<kReal>(g, row, rows, 0, used, factors);
    for (int h = 0; h < count; ++h) {
      const float* source = g.projections + (g.begin + row) * s.ld + g.head_begin + h;
      const int64_t head = h * size;
      for (int64_t first = 0; first < used; first += kTokenPiece) {
        const int64_t piece = used - first < kTokenPiece ? used - first : kTokenPiece;
        if (used > kTokenPiece) pair_factors<kReal>(g, row, rows, first, piece, factors);
        token_groups(piece, [&]<int TV>(int64_t t) {
          const int64_t at = head + token_at(width, first + t);
          if (kReal) scores<K, TV>({source + s.k1, s.ld, heads}, rows, width, q1 + at, s1 + t);
          scores<K, TV>({source + s.k2, s.ld, heads}, rows, width, q2 + at, s2 + t);
          pair_weights<TV, kReal>({factors + t, s1 + t, s2 + t}, rows, z + h * lanes + first + t);
          from_rows<K, TV>({source + s.v, s.ld, heads}, rows, width, s2 + t, num + at, row == 0);
        });
      }
    }
  }
  unpack_heads(g, num, 1, g.num, s.d);
  for (int64_t i = 0; i < nodes; ++i) {
    for (int h = 0; h < count; ++h) g.z[(g.begin + i) * heads + g.head_begin + h] = z[h * lanes + i];
  }
}

// Lanes are sources, rows targets.
template <int K, bool kReal>
static void dense_backward_k(const DenseGraph& g) {
  const AttentionShape& s = *g.shape;
  const int heads = s.heads, width = s.head_width(), count = g.head_end - g.head_begin;
  const int64_t nodes = g.end - g.begin, lanes = g.padded(), size = lanes * width, all = count * size;
  const int64_t used = (nodes + VL - 1) / VL * VL;
  float *v = g.scratch, *k2 = v + all, *dv = k2 + all, *dk2 = dv + all, *k1 = dk2 + all, *dk1 = k1 + (kReal ? all : 0);
  float *s2 = dk1 + (kReal ? all : 0), *s1 = s2 + kDenseRows * kTokenPiece, *d = s1 + kDenseRows * kTokenPiece;
  const int64_t acc_size = int64_t{kDenseRows} * width * VL;
  float *acc = d + kDenseRows * kTokenPiece, *sums = acc + 2 * acc_size, *dq = sums + kDenseRows * width, *share = dq + 2 * kDenseRows * s.d,
        *dot = share + kDenseRows, *factors = dot + kDenseRows;
  pack_heads(g, g.projections + s.v, s.ld, v);
  pack_heads(g, g.projections + s.k2, s.ld, k2);
  if (kReal) pack_heads(g, g.projections + s.k1, s.ld, k1);
  for (int64_t row = 0; row < nodes; row += kDenseRows) {
    const int rows = static_cast<int>(nodes - row < kDenseRows ? nodes - row : kDenseRows), padded = (rows + 3) / 4 * 4;
    if (used <= kTokenPiece) pair_factors<kReal>(g, row, rows, 0, used, factors);
    for (int h = 0; h < count; ++h) {
      const int64_t target = g.begin + row, head = h * size;
      const int number = g.head_begin + h;
      const RowMatrix to_q2{g.scaled_q + target * s.d + number, s.d, heads}, to_out{g.d_out + target * s.d + number, s.d, heads};
      const RowMatrix to_q1{kReal ? g.scaled_q1 + target * s.d + number : nullptr, s.d, heads};
      for (int q = 0; q < kDenseRows; ++q) {
        share[q] = q < rows ? g.share[(target + q) * heads + number] : 0;
        dot[q] = q < rows ? g.dot[(target + q) * heads + number] : 0;
      }
      for (int64_t first = 0; first < used; first += kTokenPiece) {
        const int64_t piece = used - first < kTokenPiece ? used - first : kTokenPiece;
        if (used > kTokenPiece) pair_factors<kReal>(g, row, rows, first, piece, factors);
        token_groups(piece, [&]<int TV>(int64_t t) {
          const int64_t at = head + token_at(width, first + t);
          if (kReal) scores<K, TV>(to_q1, rows, width, k1 + at, s1 + t);
          scores<K, TV>(to_out, rows, width, v + at, d + t);
          scores<K, TV>(to_q2, rows, width, k2 + at, s2 + t);
          pair_gradients<TV, kReal>({factors + t, s1 + t, s2 + t}, padded, share, dot, d + t);
          from_rows<K, TV>(to_out, rows, width, d + t, dv + at, row == 0);
          from_rows<K, TV>(to_q2, rows, width, s2 + t, dk2 + at, row == 0);
          if (kReal) from_rows<K, TV>(to_q1, rows, width, s1 + t, dk1 + at, row == 0);
        });
        outer_lanes<K>(s2, padded, k2 + head, width, first, piece, acc, first == 0);
        if (kReal) outer_lanes<K>(s1, padded, k1 + head, width, first, piece, acc + acc_size, first == 0);
      }
      // Queries: dq[q][c] = sum of ds[q][t] * k[c][t].
      for (int kind = 0; kind < (kReal ? 2 : 1); ++kind) {
        lane_sums<false>(acc + kind * acc_size, static_cast<int64_t>(rows) * width, 1, sums);
        float* to = dq + kind * kDenseRows * s.d + number;
        for (int q = 0; q < rows; ++q) {
          for (int c = 0; c < width; ++c) to[q * s.d + c * heads] = sums[q * width + c];
        }
      }
    }
    const auto queries = [&](const float* gradient, int q_at, const float* __restrict e, float* __restrict d_e) {
      for (int q = 0; q < rows; ++q) {
        const float *from = g.projections + (g.begin + row + q) * s.ld + q_at, *d_row = gradient + q * s.d;
        float* __restrict to = g.d_projections + (g.begin + row + q) * s.ld + q_at;
        features_of_heads(g, [&](int begin, int end) {
          for (int i = begin; i < end; ++i) {
            to[i] = d_row[i] * e[i];
            d_e[i] += d_row[i] * from[i];
          }
        });
      }
    };
    queries(dq, s.q2, g.e, g.d_e);
    if (kReal) queries(dq + kDenseRows * s.d, s.q1, g.e1, g.d_e1);
  }
  // Queries were scaled for powers of two.
  unpack_heads(g, dk2, 1 / kLog2E, g.d_projections + s.k2, s.ld);
  unpack_heads(g, dv, 1, g.d_projections + s.v, s.ld);
  if (kReal) {
    unpack_heads(g, dk1, 1 / kLog2E, g.d_projections + s.k1, s.ld);
    return;
  }
  for (int64_t i = g.begin; i < g.end; ++i) {
    float *to_q1 = g.d_projections + i * s.ld + s.q1, *to_k1 = g.d_projections + i * s.ld + s.k1;
    features_of_heads(g, [&](int begin, int end) {
      for (int f = begin; f < end; ++f) to_q1[f] = 0;
      for (int f = begin; f < end; ++f) to_k1[f] = 0;
    });
  }
}

// Head widths of the published configurations are known to the compiler.
#if SAN_VL >= 8
#define SAN_DENSE(pass, g)                                                                                   \
  switch ((g).shape->head_width()) {                                                                         \
    case 6:                                                                                                  \
      return (g).scaled_q1 != nullptr ? pass<6, true>(g) : pass<6, false>(g);                                \
    case 7:                                                                                                  \
      return (g).scaled_q1 != nullptr ? pass<7, true>(g) : pass<7, false>(g);                                \
    case 8:                                                                                                  \
      return (g).scaled_q1 != nullptr ? pass<8, true>(g) : pass<8, false>(g);                                \
    case 16:                                                                                                 \
      return (g).scaled_q1 != nullptr ? pass<16, true>(g) : pass<16, false>(g);                              \
    default:                                                                                                 \
      return (g).scaled_q1 != nullptr ? pass<0, true>(g) : pass<0, false>(g);                                \
  }
#else
#define SAN_DENSE(pass, g) return (g).scaled_q1 != nullptr ? pass<0, true>(g) : pass<0, false>(g);
#endif

static void dense_forward(const DenseGraph& g) { SAN_DENSE(dense_forward_k, g) }
static void dense_backward(const DenseGraph& g) { SAN_DENSE(dense_backward_k, g) }
