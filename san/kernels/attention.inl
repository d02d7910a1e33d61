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

// --- implicit pairs --------------------------------------------------------------------------------------------------

// to[c][16] = rows[first + lane][c * heads + h]; lanes beyond are zeros.
static void gather_head(const float* rows, int64_t ld, int64_t first, int64_t lanes, int heads, int h, int width, float* to) {
  for (int64_t lane = 0; lane < kLanes; ++lane) {
    const float* from = rows + (first + lane) * ld + h;
    for (int c = 0; c < width; ++c) to[c * kLanes + lane] = lane < lanes ? from[c * heads] : 0.0F;
  }
}

SAN_INLINE VI tile_mask(uint32_t bits, int lane) {
  const VU one = splat_u(1U << lane) << lane_numbers();
  return (VI)((splat_u(bits) & one) != 0);
}

SAN_INLINE V clamped_exp(V x) { return Vec<VL>::clamped_exp(x); }
SAN_INLINE VI inside(V x) { return Vec<VL>::inside(x); }

// Sources in groups of U; DK = head width, 0 = any.
template <int DK, int U>
SAN_INLINE void dense_forward_step(const float* __restrict qt, const float* __restrict k, const float* __restrict v,
                                   int64_t ld, int heads, int width, const uint32_t* mask, int lane, float* __restrict num,
                                   V* acc, V& z) {
  V s[U];
#pragma GCC unroll 4
  for (int u = 0; u < U; ++u) s[u] = V{};
#pragma GCC unroll 16
  for (int c = 0; c < width; ++c) {
    const V q = load(qt + c * kLanes + lane);
#pragma GCC unroll 4
    for (int u = 0; u < U; ++u) s[u] += q * k[u * ld + c * heads];
  }
#pragma GCC unroll 4
  for (int u = 0; u < U; ++u) {
    s[u] = select(tile_mask(mask[u], lane), clamped_exp(s[u]));
    z += s[u];
  }
  if constexpr (DK > 0) {
#pragma GCC unroll 16
    for (int c = 0; c < DK; ++c) {
#pragma GCC unroll 4
      for (int u = 0; u < U; ++u) acc[c] += s[u] * v[u * ld + c * heads];
    }
  } else {
    for (int c = 0; c < width; ++c) {
      V sum = load(num + c * kLanes + lane);
#pragma GCC unroll 4
      for (int u = 0; u < U; ++u) sum += s[u] * v[u * ld + c * heads];
      store(num + c * kLanes + lane, sum);
    }
  }
}

template <int DK>
static void dense_forward_head(const DenseTile& t, int h) {
  const AttentionShape& s = *t.shape;
  const int heads = s.heads, width = DK > 0 ? DK : s.head_width();
  float *qt = t.scratch, *num = qt + width * kLanes, *z = num + width * kLanes;
  gather_head(t.scaled_q, s.d, t.first, t.lanes, heads, h, width, qt);
  const int64_t nodes = t.end - t.begin;
  const float *k = t.projections + t.begin * s.ld + s.k2 + h, *v = t.projections + t.begin * s.ld + s.v + h;
  for (int lane = 0; lane < kLanes; lane += VL) {
    V acc[DK > 0 ? DK : 1], total{};
    if constexpr (DK > 0) {
#pragma GCC unroll 16
      for (int c = 0; c < DK; ++c) acc[c] = V{};
    } else {
      for (int c = 0; c < width; ++c) store(num + c * kLanes + lane, V{});
    }
    int64_t j = 0;
    for (; j + 4 <= nodes; j += 4) {
      dense_forward_step<DK, 4>(qt, k + j * s.ld, v + j * s.ld, s.ld, heads, width, t.mask + j, lane, num, acc, total);
    }
    for (; j < nodes; ++j) {
      dense_forward_step<DK, 1>(qt, k + j * s.ld, v + j * s.ld, s.ld, heads, width, t.mask + j, lane, num, acc, total);
    }
    if constexpr (DK > 0) {
#pragma GCC unroll 16
      for (int c = 0; c < DK; ++c) store(num + c * kLanes + lane, acc[c]);
    }
    store(z + lane, total);
  }
  for (int64_t lane = 0; lane < t.lanes; ++lane) {
    t.z[lane * heads + h] += z[lane] * s.added_weight;
    for (int c = 0; c < width; ++c) t.num[lane * s.d + c * heads + h] += num[c * kLanes + lane] * s.added_weight;
  }
}

// Lanes are targets: gradient of q.
template <int DK, int U>
SAN_INLINE void dense_target_step(const float* __restrict qt, const float* __restrict dot, const float* __restrict k,
                                  const float* __restrict v, int64_t ld, int heads, int width, const uint32_t* mask,
                                  int lane, V share, V dot_out, float* __restrict dq, V* acc) {
  V s[U], d[U];
#pragma GCC unroll 4
  for (int u = 0; u < U; ++u) s[u] = d[u] = V{};
#pragma GCC unroll 16
  for (int c = 0; c < width; ++c) {
    const V q = load(qt + c * kLanes + lane), o = load(dot + c * kLanes + lane);
#pragma GCC unroll 4
    for (int u = 0; u < U; ++u) {
      s[u] += q * k[u * ld + c * heads];
      d[u] += o * v[u * ld + c * heads];
    }
  }
#pragma GCC unroll 4
  for (int u = 0; u < U; ++u) {
    const VI keep = tile_mask(mask[u], lane) & inside(s[u]);
    s[u] = select(keep, clamped_exp(s[u]) * share * (d[u] - dot_out));
  }
  if constexpr (DK > 0) {
#pragma GCC unroll 16
    for (int c = 0; c < DK; ++c) {
#pragma GCC unroll 4
      for (int u = 0; u < U; ++u) acc[c] += s[u] * k[u * ld + c * heads];
    }
  } else {
    for (int c = 0; c < width; ++c) {
      V sum = load(dq + c * kLanes + lane);
#pragma GCC unroll 4
      for (int u = 0; u < U; ++u) sum += s[u] * k[u * ld + c * heads];
      store(dq + c * kLanes + lane, sum);
    }
  }
}

template <int DK>
static void dense_target_head(const DenseTile& t, int h) {
  const AttentionShape& s = *t.shape;
  const int heads = s.heads, width = DK > 0 ? DK : s.head_width();
  float *qt = t.scratch, *ot = qt + width * kLanes, *dq = ot + width * kLanes, *share = dq + width * kLanes,
        *dot = share + kLanes;
  gather_head(t.scaled_q, s.d, t.first, t.lanes, heads, h, width, qt);
  gather_head(t.d_out, s.d, t.first, t.lanes, heads, h, width, ot);
  for (int64_t lane = 0; lane < kLanes; ++lane) {
    share[lane] = lane < t.lanes ? t.share[(t.first + lane) * heads + h] * s.added_weight : 0;
    dot[lane] = lane < t.lanes ? t.dot[(t.first + lane) * heads + h] : 0;
  }
  const int64_t nodes = t.end - t.begin;
  const float *k = t.projections + t.begin * s.ld + s.k2 + h, *v = t.projections + t.begin * s.ld + s.v + h;
  for (int lane = 0; lane < kLanes; lane += VL) {
    V acc[DK > 0 ? DK : 1];
    if constexpr (DK > 0) {
#pragma GCC unroll 16
      for (int c = 0; c < DK; ++c) acc[c] = V{};
    } else {
      for (int c = 0; c < width; ++c) store(dq + c * kLanes + lane, V{});
    }
    const V sh = load(share + lane), dt = load(dot + lane);
    int64_t j = 0;
    for (; j + 4 <= nodes; j += 4) {
      dense_target_step<DK, 4>(qt, ot, k + j * s.ld, v + j * s.ld, s.ld, heads, width, t.mask + j, lane, sh, dt, dq, acc);
    }
    for (; j < nodes; ++j) {
      dense_target_step<DK, 1>(qt, ot, k + j * s.ld, v + j * s.ld, s.ld, heads, width, t.mask + j, lane, sh, dt, dq, acc);
    }
    if constexpr (DK > 0) {
#pragma GCC unroll 16
      for (int c = 0; c < DK; ++c) store(dq + c * kLanes + lane, acc[c]);
    }
  }
  for (int64_t lane = 0; lane < t.lanes; ++lane) {
    const float* q2 = t.projections + (t.first + lane) * s.ld + s.q2 + h;
    float* to = t.d_projections + (t.first + lane) * s.ld + s.q2 + h;
    for (int c = 0; c < width; ++c) {
      const float g = dq[c * kLanes + lane];
      to[c * heads] += g * t.e[c * heads + h];
      t.d_e[c * heads + h] += g * q2[c * heads];
    }
  }
}

// Lanes are sources: gradients of k and v. `q` and `o` are rows of the targets.
template <int DK, int U>
SAN_INLINE void dense_source_step(const float* __restrict kt, const float* __restrict vt, const float* __restrict q,
                                  const float* __restrict o, const float* share, const float* dot, int64_t d_ld, int heads,
                                  int width, const uint32_t* mask, int lane, float factor, float* __restrict dk,
                                  float* __restrict dv, V* acc_k, V* acc_v) {
  V s[U], d[U];
#pragma GCC unroll 4
  for (int u = 0; u < U; ++u) s[u] = d[u] = V{};
#pragma GCC unroll 16
  for (int c = 0; c < width; ++c) {
    const V k = load(kt + c * kLanes + lane), v = load(vt + c * kLanes + lane);
#pragma GCC unroll 4
    for (int u = 0; u < U; ++u) {
      s[u] += k * q[u * d_ld + c * heads];
      d[u] += v * o[u * d_ld + c * heads];
    }
  }
#pragma GCC unroll 4
  for (int u = 0; u < U; ++u) {
    const VI clamp = inside(s[u]);
    const V w = select(tile_mask(mask[u], lane), clamped_exp(s[u]) * (share[u * heads] * factor));
    s[u] = select(clamp, w * (d[u] - dot[u * heads]));
    d[u] = w;
  }
  if constexpr (DK > 0) {
#pragma GCC unroll 16
    for (int c = 0; c < DK; ++c) {
#pragma GCC unroll 4
      for (int u = 0; u < U; ++u) {
        acc_k[c] += s[u] * q[u * d_ld + c * heads];
        acc_v[c] += d[u] * o[u * d_ld + c * heads];
      }
    }
  } else {
    for (int c = 0; c < width; ++c) {
      V to_k = load(dk + c * kLanes + lane), to_v = load(dv + c * kLanes + lane);
#pragma GCC unroll 4
      for (int u = 0; u < U; ++u) {
        to_k += s[u] * q[u * d_ld + c * heads];
        to_v += d[u] * o[u * d_ld + c * heads];
      }
      store(dk + c * kLanes + lane, to_k);
      store(dv + c * kLanes + lane, to_v);
    }
  }
}

template <int DK>
static void dense_source_head(const DenseTile& t, int h) {
  const AttentionShape& s = *t.shape;
  const int heads = s.heads, width = DK > 0 ? DK : s.head_width();
  float *kt = t.scratch, *vt = kt + width * kLanes, *dk = vt + width * kLanes, *dv = dk + width * kLanes;
  gather_head(t.projections + s.k2, s.ld, t.first, t.lanes, heads, h, width, kt);
  gather_head(t.projections + s.v, s.ld, t.first, t.lanes, heads, h, width, vt);
  const int64_t nodes = t.end - t.begin;
  const float *q = t.scaled_q + t.begin * s.d + h, *o = t.d_out + t.begin * s.d + h;
  const float *share = t.share + t.begin * heads + h, *dot = t.dot + t.begin * heads + h;
  for (int lane = 0; lane < kLanes; lane += VL) {
    V acc_k[DK > 0 ? DK : 1], acc_v[DK > 0 ? DK : 1];
    if constexpr (DK > 0) {
#pragma GCC unroll 16
      for (int c = 0; c < DK; ++c) acc_k[c] = acc_v[c] = V{};
    } else {
      for (int c = 0; c < width; ++c) {
        store(dk + c * kLanes + lane, V{});
        store(dv + c * kLanes + lane, V{});
      }
    }
    int64_t i = 0;
    for (; i + 2 <= nodes; i += 2) {
      dense_source_step<DK, 2>(kt, vt, q + i * s.d, o + i * s.d, share + i * heads, dot + i * heads, s.d, heads, width,
                               t.mask + i, lane, s.added_weight, dk, dv, acc_k, acc_v);
    }
    for (; i < nodes; ++i) {
      dense_source_step<DK, 1>(kt, vt, q + i * s.d, o + i * s.d, share + i * heads, dot + i * heads, s.d, heads, width,
                               t.mask + i, lane, s.added_weight, dk, dv, acc_k, acc_v);
    }
    if constexpr (DK > 0) {
#pragma GCC unroll 16
      for (int c = 0; c < DK; ++c) {
        store(dk + c * kLanes + lane, acc_k[c]);
        store(dv + c * kLanes + lane, acc_v[c]);
      }
    }
  }
  for (int64_t lane = 0; lane < t.lanes; ++lane) {
    float* row = t.d_projections + (t.first + lane) * s.ld + h;
    for (int c = 0; c < width; ++c) {
      row[s.k2 + c * heads] += dk[c * kLanes + lane];
      row[s.v + c * heads] += dv[c * kLanes + lane];
    }
  }
}

#define SAN_BY_WIDTH(function)                          \
  for (int h = 0; h < t.shape->heads; ++h) {            \
    switch (t.shape->head_width()) {                    \
      case 6:                                           \
        function<6>(t, h);                              \
        break;                                          \
      case 7:                                           \
        function<7>(t, h);                              \
        break;                                          \
      case 8:                                           \
        function<8>(t, h);                              \
        break;                                          \
      default:                                          \
        function<0>(t, h);                              \
    }                                                   \
  }

static void dense_forward(const DenseTile& t) { SAN_BY_WIDTH(dense_forward_head) }
static void dense_backward_target(const DenseTile& t) { SAN_BY_WIDTH(dense_target_head) }
static void dense_backward_source(const DenseTile& t) { SAN_BY_WIDTH(dense_source_head) }
