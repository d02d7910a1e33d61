// The LPE's feed-forward maps of a training step, for a group of tokens that are alike.
//
// A hidden unit is mostly 0 for all of them, or at work (its argument above 0) for all of them; a tenth to a third of the units is neither.
// What is 0 is left out. Units at work for all are together one linear map of the tokens, k x k, less what dropout takes away: one
// pair of token and unit in ten, by itself. The rest is computed as it is written.

constexpr int kUnitsTogether = kGroupUnits;     // rows of the small products
constexpr int64_t kGroupRow = kGroup + kLanes;  // floats from one unit's tokens to the next one's: no power of two

// Whether units at work for all tokens are worth a linear map: k x k products a unit, and a correction for each token that dropout takes.
// In wide networks, and where dropout takes many, computing them one by one is less.
SAN_INLINE bool worth_linear(const LpeShape& s, const LpeLayer& layer) {
  return s.k <= 64 && layer.hidden.threshold <= 65536 / 4;
}

// Vectors of a row of k features; the last one of weights may be a part.
template <int NV>
struct RowVectors {
  static constexpr int kMost = NV > 0 ? NV : kMaxLpeWidth / VL;
  int k, count;
  explicit RowVectors(int width) : k(width), count(NV > 0 ? NV : (width + VL - 1) / VL) {}
  // Of weights, whose rows lie close together: zeros beyond k.
  SAN_INLINE_MEMBER void load_weights(const float* from, V* to) const {
#pragma GCC unroll 4
    for (int v = 0; v < count; ++v)
      to[v] = k - v * VL >= VL ? load(from + v * VL) : load_some(from + v * VL, k - v * VL);
  }
  SAN_INLINE_MEMBER void copy(const float* from, float* to) const {
    if (NV > 0 && k == NV * VL) {
#pragma GCC unroll 4
      for (int v = 0; v < NV; ++v) store(to + v * VL, load(from + v * VL));
    } else {
      __builtin_memcpy(to, from, sizeof(float) * static_cast<uint64_t>(k));
    }
  }
  SAN_INLINE_MEMBER void add(const V* sums, float* to) const {
#pragma GCC unroll 4
    for (int v = 0; v < count; ++v) {
      if (k - v * VL >= VL) {
        store(to + v * VL, load(to + v * VL) + sums[v]);
      } else {
        store_some(to + v * VL, load_some(to + v * VL, k - v * VL) + sums[v], k - v * VL);
      }
    }
  }
  SAN_INLINE_MEMBER V dot(const V* w, const float* x) const {
    V sum = w[0] * load(x);
#pragma GCC unroll 4
    for (int v = 1; v < count; ++v) sum += w[v] * load(x + v * VL);
    return sum_everywhere(sum);
  }
};

// The tokens, as bits, that dropout takes from a unit.
SAN_INLINE uint64_t dropped_tokens(const LpeLayer& layer, const uint32_t* bits, int unit) {
  const VU unit_bits = splat_u(layer.hidden_bits[unit / 2]);
  const int shift = unit % 2 == 0 ? 11 : 0;  // as keep_even and keep_odd
  uint64_t kept = 0;
#pragma GCC unroll 16
  for (int v = 0; v < kGroup / VL; ++v) {
    const VU mixed = (load_u(bits + v * VL) ^ unit_bits) * kMaskMultiplier;
    kept |= uint64_t{lane_bits(keep_odd(mixed << shift, layer.hidden.threshold))} << (v * VL);
  }
  return ~kept;
}

// to[t] = relu(from[t] + bias) of a unit, dropped out but not scaled, for the tokens of a group.
SAN_INLINE void hidden_row(const LpeLayer& layer, const uint32_t* bits, int unit, const float* from, V bias,
                           float* to) {
  const VU unit_bits = splat_u(layer.hidden.active() ? layer.hidden_bits[unit / 2] : 0);
  const int shift = unit % 2 == 0 ? 11 : 0;
#pragma GCC unroll 16
  for (int v = 0; v < kGroup / VL; ++v) {
    V value = maximum(V{}, load(from + v * VL) + bias);
    const VU mixed = (load_u(bits + v * VL) ^ unit_bits) * kMaskMultiplier;
    value = select(keep_odd(mixed << shift, layer.hidden.threshold), value);
    store(to + v * VL, value);
  }
}

// What a unit is for the tokens of a group: 1 or 0 each. Neither: 0 for all tokens. NaN is neither above 0 nor not: some.
struct UnitKind {
  uint32_t all, some;
};
SAN_INLINE UnitKind kind_of(const float* from, V bias, bool linear) {
  constexpr uint32_t kEvery = (1U << VL) - 1;
  VI positive = VI{} - 1, none = VI{} - 1;
#pragma GCC unroll 16
  for (int v = 0; v < kGroup / VL; ++v) {
    const V value = load(from + v * VL) + bias;
    positive &= value > 0.0F;
    none &= value <= 0.0F;
  }
  const uint32_t all = static_cast<uint32_t>(lane_bits(positive) == kEvery) & static_cast<uint32_t>(linear);
  return {all, static_cast<uint32_t>(lane_bits(none) != kEvery) & ~all};
}

static void group_bits(const LpeLayer& layer, const uint32_t* rows, uint32_t* bits) {
  for (int t = 0; t < kGroup; t += VL) store_u(bits + t, hash_vector(layer.hidden.key, load_u(rows + t)));
}

// Numbers of the bits that are set in words [begin, end).
static int list_marks(const uint32_t* words, int begin, int end, int32_t* list) {
  int count = 0;
  for (int w = begin; w < end; ++w) {
    for (uint32_t left = words[w]; left != 0; left &= left - 1) list[count++] = w * 32 + __builtin_ctz(left);
  }
  return count;
}

// Which units are at work for all tokens within `reach` of `center` (marked in `all`, where that is worth a linear map), and which
// are to be looked at: listed, and counted.
static int sort_units(const LpeShape& s, const LpeLayer& layer, const float* center, float reach, uint32_t* all,
                      int32_t* unsure) {
  constexpr int kVectors = 32 / VL;
  const uint32_t linear = worth_linear(s, layer) ? ~0U : 0;
  int count = 0;
  for (int w = 0; w < s.ff_padded / 32; ++w) {
    V at[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) at[v] = load(layer.ff1_bias + w * 32 + v * VL);
    for (int c = 0; c < s.k; ++c) {
      const V x = splat(center[c]);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v)
        at[v] += x * load(layer.ff1_columns + static_cast<int64_t>(c) * s.ff_padded + w * 32 + v * VL);
    }
    uint32_t none = 0, every = 0;
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const V around = load(layer.ff1_norms + w * 32 + v * VL) * reach;
      none |= lane_bits(at[v] <= -around) << (v * VL);
      every |= lane_bits(at[v] > around) << (v * VL);
    }
    every &= linear;
    all[w] = every;
    for (uint32_t left = ~(none | every); left != 0; left &= left - 1) unsure[count++] = w * 32 + __builtin_ctz(left);
  }
  return count;
}

template <int NV>
static void group_forward(const LpeGroupForward& g) {
  const LpeShape& s = *g.shape;
  const LpeLayer& layer = *g.layer;
  const RowVectors<NV> row(s.k);
  const int k = s.k, words = s.ff_padded / 32;
  const int64_t ld = s.row();
  float *hidden = g.scratch, *rows = hidden + kUnitsTogether * kGroupRow, *w1 = rows + kUnitsTogether * kGroupRow,
        *w2 = w1 + kUnitsTogether * ld, *center = w2 + kUnitsTogether * ld;
  auto* unsure = reinterpret_cast<int32_t*>(center + ld);
  uint32_t bits[kGroup];
  group_bits(layer, g.rows, bits);
  for (int c = 0; c < k; ++c) {
    for (int t = 0; t < kGroup; ++t) g.xt[c * kGroup + t] = g.x[t * ld + c];
  }
  // The middle of the tokens, and how far they are from it.
  V middle[RowVectors<NV>::kMost];
  for (int v = 0; v < row.count; ++v) {
    V sum{};
    for (int t = 0; t < kGroup; ++t) sum += load(g.x + t * ld + v * VL);
    middle[v] = sum * (1.0F / kGroup);
    store(center + v * VL, middle[v]);
  }
  V square{}, size{};
  for (int v = 0; v < row.count; ++v) size += middle[v] * middle[v];
  for (int t = 0; t < kGroup; ++t) {
    V sum{};
    for (int v = 0; v < row.count; ++v) {
      const V d = load(g.x + t * ld + v * VL) - middle[v];
      sum += d * d;
    }
    square = maximum(square, sum_everywhere(sum));
  }
  // Roundings of k products are about 1e-6 of them. A token that is not finite makes all units unsure: NaN is neither above nor below.
  float reach = 1.00001F * __builtin_sqrtf(square[0]) + 2e-6F * (1.0F + __builtin_sqrtf(sum_everywhere(size)[0]));
  if (!(reach < 1e30F)) reach = __builtin_nanf("");
  const int count = sort_units(s, layer, center, reach, g.all, unsure);
  for (int w = 0; w < words; ++w) g.some[w] = 0;
  for (int64_t i = 0; i < kGroup * ld; i += VL) store(g.y + i, V{});

  const bool linear = worth_linear(s, layer);
  int filled = 0;
  const auto flush = [&] { gemm({kGroup, k, filled, w2, k, rows, 1, kGroupRow, g.y, ld, true}); };
  for (int from = 0; from < count; from += kUnitsTogether) {
    const int n = count - from < kUnitsTogether ? count - from : kUnitsTogether;
    for (int i = 0; i < n; ++i) row.copy(layer.ff1 + static_cast<int64_t>(unsure[from + i]) * k, w1 + i * k);
    gemm({n, kGroup, k, g.xt, kGroup, w1, k, 1, hidden, kGroupRow, false});
    for (int i = 0; i < n; ++i) {
      const int unit = unsure[from + i];
      const V bias = splat(layer.ff1_bias[unit]);
      // Which kind a unit is cannot be predicted, so nothing branches on it: it takes the next free row, which stays free unless it counts.
      const UnitKind kind = kind_of(hidden + i * kGroupRow, bias, linear);
      hidden_row(layer, bits, unit, hidden + i * kGroupRow, bias, rows + filled * kGroupRow);
      row.copy(layer.ff2 + static_cast<int64_t>(unit) * k, w2 + filled * k);
      g.all[unit / 32] |= kind.all << (unit % 32);
      g.some[unit / 32] |= kind.some << (unit % 32);
      filled += static_cast<int>(kind.some);
      if (filled == kUnitsTogether) {
        flush();
        filled = 0;
      }
    }
  }
  if (filled > 0) flush();

  // Units that are at work for all.
  int32_t* list = unsure;
  const int full = list_marks(g.all, 0, words, list);
  for (int i = 0; i < k * k; ++i) g.linear[i] = 0;
  V constants[RowVectors<NV>::kMost]{};
  for (int from = 0; from < full; from += kUnitsTogether) {
    const int n = full - from < kUnitsTogether ? full - from : kUnitsTogether;
    for (int i = 0; i < n; ++i) {
      const int64_t at = static_cast<int64_t>(list[from + i]) * k;
      row.copy(layer.ff1 + at, w1 + i * k);
      row.copy(layer.ff2 + at, w2 + i * k);
      V u2[RowVectors<NV>::kMost];
      row.load_weights(layer.ff2 + at, u2);
      const V bias = splat(layer.ff1_bias[list[from + i]]);
#pragma GCC unroll 4
      for (int v = 0; v < row.count; ++v) constants[v] += bias * u2[v];
    }
    gemm({k, k, n, w2, k, w1, 1, k, g.linear, k, true});
  }
  gemm({kGroup, k, k, g.linear, k, g.x, ld, 1, g.y, ld, true});
  for (int t = 0; t < kGroup; ++t) {
    for (int v = 0; v < row.count; ++v) store(g.y + t * ld + v * VL, load(g.y + t * ld + v * VL) + constants[v]);
  }
  if (!layer.hidden.active()) return;
  const uint64_t tokens = ~uint64_t{0} >> (kGroup - g.count);
  for (int i = 0; i < full; ++i) {
    const int unit = list[i];
    V u1[RowVectors<NV>::kMost], u2[RowVectors<NV>::kMost];
    row.load_weights(layer.ff1 + static_cast<int64_t>(unit) * k, u1);
    row.load_weights(layer.ff2 + static_cast<int64_t>(unit) * k, u2);
    const V bias = splat(layer.ff1_bias[unit]);
    for (uint64_t left = dropped_tokens(layer, bits, unit) & tokens; left != 0; left &= left - 1) {
      const int64_t at = __builtin_ctzll(left) * ld;
      const V value = row.dot(u1, g.x + at) + bias;
#pragma GCC unroll 4
      for (int v = 0; v < row.count; ++v) store(g.y + at + v * VL, load(g.y + at + v * VL) - value * u2[v]);
    }
  }
}

template <int NV>
static void group_backward(const LpeGroupBackward& g) {
  const LpeShape& s = *g.shape;
  const LpeLayer& layer = *g.layer;
  const RowVectors<NV> row(s.k);
  const int k = s.k;
  const int64_t ld = s.row();
  float *hidden = g.scratch, *d_hidden = hidden + kUnitsTogether * kGroupRow,
        *w1 = d_hidden + kUnitsTogether * kGroupRow, *w2 = w1 + kUnitsTogether * ld, *d1 = w2 + kUnitsTogether * ld,
        *d2 = d1 + kUnitsTogether * ld;
  auto* list = reinterpret_cast<int32_t*>(d2 + kUnitsTogether * ld);
  uint32_t bits[kGroup];
  group_bits(layer, g.rows, bits);
  for (int64_t i = 0; i < kGroup * ld; i += VL) store(g.d_x + i, V{});
  const auto weights = [&](const int32_t* units, int n) {
    for (int i = 0; i < n; ++i) {
      row.copy(layer.ff1 + static_cast<int64_t>(units[i]) * k, w1 + i * k);
      row.copy(layer.ff2 + static_cast<int64_t>(units[i]) * k, w2 + i * k);
    }
  };
  const int some = list_marks(g.some, g.begin / 32, g.end / 32, list);
  for (int from = 0; from < some; from += kUnitsTogether) {
    const int n = some - from < kUnitsTogether ? some - from : kUnitsTogether;
    const int32_t* units = list + from;
    weights(units, n);
    gemm({n, kGroup, k, g.xt, kGroup, w1, k, 1, hidden, kGroupRow, false});
    gemm({n, kGroup, k, g.dyt, kGroup, w2, k, 1, d_hidden, kGroupRow, false});
    for (int i = 0; i < n; ++i) {
      float *h = hidden + i * kGroupRow, *d = d_hidden + i * kGroupRow;
      hidden_row(layer, bits, units[i], h, splat(layer.ff1_bias[units[i]]), h);
      V sum{};
#pragma GCC unroll 16
      for (int v = 0; v < kGroup / VL; ++v) {
        const V gradient = select(load(h + v * VL) > 0.0F, load(d + v * VL));
        store(d + v * VL, gradient);
        sum += gradient;
      }
      g.d_ff1_bias[units[i]] += sum_everywhere(sum)[0];
    }
    gemm({kGroup, k, n, w1, k, d_hidden, 1, kGroupRow, g.d_x, ld, true});
    gemm({n, k, kGroup, g.x, ld, d_hidden, kGroupRow, 1, d1, ld, false});
    gemm({n, k, kGroup, g.dy, ld, hidden, kGroupRow, 1, d2, ld, false});
    for (int i = 0; i < n; ++i) {
      V sums[RowVectors<NV>::kMost];
      for (int v = 0; v < row.count; ++v) sums[v] = load(d1 + i * ld + v * VL);
      row.add(sums, g.d_ff1 + static_cast<int64_t>(units[i]) * k);
      for (int v = 0; v < row.count; ++v) sums[v] = load(d2 + i * ld + v * VL);
      row.add(sums, g.d_ff2 + static_cast<int64_t>(units[i]) * k);
    }
  }

  const int full = list_marks(g.all, g.begin / 32, g.end / 32, list);
  const uint64_t tokens = layer.hidden.active() ? ~uint64_t{0} >> (kGroup - g.count) : 0;
  for (int from = 0; from < full; from += kUnitsTogether) {
    const int n = full - from < kUnitsTogether ? full - from : kUnitsTogether;
    const int32_t* units = list + from;
    weights(units, n);
    gemm({n, k, k, g.outer, k, w2, k, 1, d1, ld, false});
    gemm({n, k, k, g.outer_t, k, w1, k, 1, d2, ld, false});
    for (int i = 0; i < n; ++i) {
      V u1[RowVectors<NV>::kMost], u2[RowVectors<NV>::kMost], s1[RowVectors<NV>::kMost], s2[RowVectors<NV>::kMost];
      row.load_weights(w1 + i * k, u1);
      row.load_weights(w2 + i * k, u2);
      const V bias = splat(layer.ff1_bias[units[i]]);
      V sum = row.dot(u2, g.sums);
#pragma GCC unroll 4
      for (int v = 0; v < row.count; ++v) {
        s1[v] = load(d1 + i * ld + v * VL);
        s2[v] = load(d2 + i * ld + v * VL) + bias * load(g.sums + v * VL);
      }
      for (uint64_t left = tokens == 0 ? 0 : dropped_tokens(layer, bits, units[i]) & tokens; left != 0;
           left &= left - 1) {
        const int64_t at = __builtin_ctzll(left) * ld;
        const V value = row.dot(u1, g.x + at) + bias, gradient = row.dot(u2, g.dy + at);
        sum -= gradient;
#pragma GCC unroll 4
        for (int v = 0; v < row.count; ++v) {
          s1[v] -= gradient * load(g.x + at + v * VL);
          s2[v] -= value * load(g.dy + at + v * VL);
          store(g.d_x + at + v * VL, load(g.d_x + at + v * VL) - gradient * u1[v]);
        }
      }
      g.d_ff1_bias[units[i]] += sum[0];
      row.add(s1, g.d_ff1 + static_cast<int64_t>(units[i]) * k);
      row.add(s2, g.d_ff2 + static_cast<int64_t>(units[i]) * k);
    }
  }
}

#define SAN_ROWS(pass, g)                 \
  switch (((g).shape->k + VL - 1) / VL) { \
    case 1:                               \
      return pass<1>(g);                  \
    case 2:                               \
      return pass<2>(g);                  \
    default:                              \
      return pass<0>(g);                  \
  }

static void lpe_group_forward(const LpeGroupForward& g) {
  SAN_ROWS(group_forward, g)
}
static void lpe_group_backward(const LpeGroupBackward& g) {
  SAN_ROWS(group_backward, g)
}
