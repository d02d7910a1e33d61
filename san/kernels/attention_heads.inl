// All pairs of a graph with one lane per head, where there are as many heads as lanes: what DenseGraph asks for, as in
// attention.inl. There, with one lane per node, both kinds' scores and gradients are computed for all pairs and half of them
// thrown away; here each pair is worked on as the kind it is.
//
// Sources go in tiles whose rows stay in the first-level cache. For a target and a tile the sources of either kind are listed,
// and a few short loops run over them: scores, powers, sums.

constexpr int64_t kHeadsNodes = 256;  // graphs of at most so many
constexpr int kTileMost = 64;         // sources: bits of a mask
constexpr int kTargetsTogether = 4;   // whose values' gradients are added up at once

// out[j] = row . rows[j], head by head, for the listed j; the list may be read one beyond its end.
template <int K>
SAN_ALONE void listed_dots(const float* row, const float* __restrict rows, int64_t ld, const uint8_t* __restrict list, int count,
                           float* __restrict out) {
  V a[K];
#pragma GCC unroll 8
  for (int c = 0; c < K; ++c) a[c] = in_register(load(row + c * VL));
  // Two at a time: one multiplication waits for the one before, and what waits is in the way.
#pragma GCC unroll 1
  for (int p = 0; p < count; p += 2) {
    const int64_t j0 = list[p], j1 = list[p + 1];
    const float *b0 = rows + j0 * ld, *b1 = rows + j1 * ld;
    V sum0{}, sum1{};
#pragma GCC unroll 8
    for (int c = 0; c < K; ++c) {
      const int other = c + 1 < K ? c + 1 : 0;  // the other half of a cache line, see outer_lanes
      sum0 += a[c] * load(b0 + c * VL);
      sum1 += a[other] * load(b1 + other * VL);
    }
    store(out + j1 * VL, sum1);
    store(out + j0 * VL, sum0);
  }
}

// out[j] = row . rows[j], head by head.
template <int K>
SAN_ALONE void all_dots(const float* row, const float* __restrict rows, int64_t ld, int count, float* __restrict out) {
  V a[K];
#pragma GCC unroll 8
  for (int c = 0; c < K; ++c) a[c] = in_register(load(row + c * VL));
#pragma GCC unroll 1
  for (int j = 0; j < count; ++j, rows += ld) {
    V sum = a[0] * load(rows);
#pragma GCC unroll 8
    for (int c = 1; c < K; ++c) sum += a[c] * load(rows + c * VL);
    store(out + j * VL, sum);
  }
}

// sums (+)= sum over j of weights[j] * rows[j], z (+)= sum of weights[j].
template <int K>
SAN_ALONE void weighted_rows(const float* __restrict weights, const float* __restrict rows, int64_t ld, int count,
                             float* __restrict sums, float* __restrict z, bool start) {
  V sum[K], total = start ? V{} : load(z);
#pragma GCC unroll 8
  for (int c = 0; c < K; ++c) sum[c] = start ? V{} : load(sums + c * VL);
#pragma GCC unroll 1
  for (int j = 0; j < count; ++j, rows += ld) {
    const V w = load(weights + j * VL);
    total += w;
#pragma GCC unroll 8
    for (int c = 0; c < K; ++c) sum[c] += w * load(rows + c * VL);
  }
  store(z, total);
#pragma GCC unroll 8
  for (int c = 0; c < K; ++c) store(sums + c * VL, sum[c]);
}

// scores -> weights = 2^score * factor. A score that was not computed may be anything; it has the factor 0.
SAN_ALONE void head_weights(const float* factors, int count, float* __restrict scores) {
#pragma GCC unroll 1
  for (int j = 0; j < count; ++j) {
    store(scores + j * VL, power_of_two(clamp_score(load(scores + j * VL))) * factors[j]);
  }
}

// scores -> their gradients; weights (kTargetsTogether vectors apart) = the weights times share. d: gradients of the weights.
SAN_ALONE void head_gradients(const float* factors, int count, V share, V dot, const float* __restrict d, float* __restrict scores,
                              float* __restrict weights) {
#pragma GCC unroll 1
  for (int j = 0; j < count; ++j) {
    const V score = load(scores + j * VL), clamped = clamp_score(score);
    const V w = power_of_two(clamped) * (share * factors[j]);
    store(weights + j * kTargetsTogether * VL, w);
    store(scores + j * VL, select(clamped == score, w * (load(d + j * VL) - dot)));
  }
}

// dq += sum of ds[j] * k[j], dk[j] += ds[j] * q / log2(e), for the listed j: queries are scaled for powers of two.
template <int K>
SAN_ALONE void key_gradients(const float* __restrict ds, const float* __restrict keys, float* __restrict d_keys, int64_t ld,
                             const uint8_t* __restrict list, int count, const float* __restrict query, float* __restrict dq) {
  V q[K], sum[K];
#pragma GCC unroll 8
  for (int c = 0; c < K; ++c) {
    q[c] = load(query + c * VL) * (1 / kLog2E);
    sum[c] = load(dq + c * VL);
  }
#pragma GCC unroll 1
  for (int p = 0; p < count; ++p) {
    const int64_t j = list[p];
    const float* k = keys + j * ld;
    float* dk = d_keys + j * ld;
    const V w = load(ds + j * VL);
#pragma GCC unroll 8
    for (int c = 0; c < K; ++c) {
      const int other = c + 1 < K ? c + 1 : 0;  // the other half of a cache line, see outer_lanes
      sum[c] += w * load(k + c * VL);
      store(dk + other * VL, load(dk + other * VL) + w * q[other]);
    }
  }
#pragma GCC unroll 8
  for (int c = 0; c < K; ++c) store(dq + c * VL, sum[c]);
}

// dv[j] += sum over t of weights[j][t] * d_out[t].
template <int K>
SAN_ALONE void value_gradients(const float* __restrict weights, const float* const* d_out, int count, float* __restrict dv, int64_t ld) {
  static_assert(kTargetsTogether == 4);
  const float *d0 = d_out[0], *d1 = d_out[1], *d2 = d_out[2], *d3 = d_out[3];
#pragma GCC unroll 1
  for (int j = 0; j < count; ++j, weights += kTargetsTogether * VL, dv += ld) {
    const V w0 = load(weights), w1 = load(weights + VL), w2 = load(weights + 2 * VL), w3 = load(weights + 3 * VL);
#pragma GCC unroll 8
    for (int c = 0; c < K; ++c) {
      V sum = load(dv + c * VL);
      sum += w0 * load(d0 + c * VL);
      sum += w1 * load(d1 + c * VL);
      sum += w2 * load(d2 + c * VL);
      sum += w3 * load(d3 + c * VL);
      store(dv + c * VL, sum);
    }
  }
}

// The sources of a tile as a target sees them: lists by kind, and what exp(score) is multiplied by.
struct TilePairs {
  int count[2];  // added pairs, real edges
  uint8_t list[2][kTileMost + 8];
  float factors[kTileMost];
};

// Numbers of the bits that are set, one byte each, the lowest first.
struct BitLists {
  uint64_t of[256];
  constexpr BitLists() : of{} {
    for (int mask = 0; mask < 256; ++mask) {
      int count = 0;
      for (int bit = 0; bit < 8; ++bit) {
        if ((mask >> bit & 1) != 0) of[mask] |= static_cast<uint64_t>(bit) << (8 * count++);
      }
    }
  }
};
constexpr BitLists kBitLists;

// Lists the bits of a mask, the last one twice; how many they are.
SAN_INLINE int list_bits(uint64_t mask, uint8_t* list) {
  int count = 0;
  for (uint64_t base = 0; mask != 0; mask >>= 8, base += 0x0808080808080808U) {
    const uint64_t numbers = kBitLists.of[mask & 255] + base;
    __builtin_memcpy(list + count, &numbers, 8);
    count += __builtin_popcountll(mask & 255);
  }
  if (count > 0) list[count] = list[count - 1];
  return count;
}

// Sources in tiles, with masks of the real edges: bit j of masks[tile * nodes + i] is for target i and source tile * size + j.
struct HeadTiles {
  int64_t nodes;
  int size, count;
  uint64_t* masks;
  float added, real;  // factors; 0 = not worked on here

  // Rows of so many floats per source are to stay in the cache.
  HeadTiles(const DenseGraph& g, int64_t row_floats, bool targets_of_source, float* scratch)
      : nodes(g.end - g.begin),
        masks(reinterpret_cast<uint64_t*>(scratch)),
        added(g.shape->added_weight),
        real(g.scaled_q1 != nullptr ? g.shape->real_weight : 0.0F) {
    constexpr int64_t kTileFloats = 6144;
    int64_t most = kTileFloats / row_floats;
    most = most < 16 ? 16 : most > kTileMost ? kTileMost : most;
    count = static_cast<int>((nodes + most - 1) / most);
    size = static_cast<int>((nodes + count - 1) / count);
    uint8_t tile_of[kHeadsNodes], bit_of[kHeadsNodes];
    for (int64_t i = 0, tile = 0, bit = 0; i < nodes; ++i) {
      tile_of[i] = static_cast<uint8_t>(tile);
      bit_of[i] = static_cast<uint8_t>(bit);
      if (++bit == size) {
        bit = 0;
        ++tile;
      }
    }
    for (int64_t i = 0; i < nodes * count; ++i) masks[i] = 0;
    for (int64_t i = 0; i < nodes; ++i) {
      for (int64_t p = g.pair_begin[g.begin + i]; p < g.pair_begin[g.begin + i + 1]; ++p) {
        const int64_t other = g.other[p] - g.begin, target = targets_of_source ? other : i, source = targets_of_source ? i : other;
        masks[tile_of[source] * nodes + target] |= uint64_t{1} << bit_of[source];
      }
    }
  }
  static int64_t scratch(int64_t nodes) { return 2 * nodes * ((nodes + 15) / 16); }
  int64_t first(int tile) const { return int64_t{tile} * size; }
  int sources(int tile) const { return static_cast<int>(nodes - first(tile) < size ? nodes - first(tile) : size); }

  void list(int tile, int64_t target, TilePairs& to) const {
    const int sources = this->sources(tile);
    const int64_t self = target - first(tile);
    const uint64_t reals = masks[tile * nodes + target];
    uint64_t addeds = ~reals & (~uint64_t{0} >> (64 - sources));
    if (self >= 0 && self < sources) addeds &= ~(uint64_t{1} << self);
    to.count[0] = list_bits(addeds, to.list[0]);
    to.count[1] = real == 0 ? 0 : list_bits(reals, to.list[1]);
    VU bits{};
    for (int i = 0; i < VL; ++i) bits[i] = 1U << i;
    for (int j = 0; j < sources; j += VL) {
      const VI is_real = (bits & splat_u(static_cast<uint32_t>(reals >> j))) != 0;
      const VI is_added = (bits & splat_u(static_cast<uint32_t>(addeds >> j))) != 0;
      store(to.factors + j, (V)(((VI)splat(real) & is_real) | ((VI)splat(added) & is_added)));
    }
  }
};

template <int K, bool kReal>
static void heads_forward_k(const DenseGraph& g) {
  const AttentionShape& s = *g.shape;
  const HeadTiles tiles(g, int64_t{kReal ? 3 : 2} * s.d, true, g.scratch);
  float* scores = g.scratch + HeadTiles::scratch(tiles.nodes);
  TilePairs pairs;
  for (int tile = 0; tile < tiles.count; ++tile) {
    const float* sources = g.projections + (g.begin + tiles.first(tile)) * s.ld;
    const int count = tiles.sources(tile);
    for (int64_t i = 0; i < tiles.nodes; ++i) {
      const int64_t target = g.begin + i;
      tiles.list(tile, i, pairs);
      listed_dots<K>(g.scaled_q + target * s.d, sources + s.k2, s.ld, pairs.list[0], pairs.count[0], scores);
      if (kReal) listed_dots<K>(g.scaled_q1 + target * s.d, sources + s.k1, s.ld, pairs.list[1], pairs.count[1], scores);
      head_weights(pairs.factors, count, scores);
      weighted_rows<K>(scores, sources + s.v, s.ld, count, g.num + target * s.d, g.z + target * VL, tile == 0);
    }
  }
}

template <int K, bool kReal>
static void heads_backward_k(const DenseGraph& g) {
  const AttentionShape& s = *g.shape;
  const HeadTiles tiles(g, int64_t{kReal ? 6 : 4} * s.d, false, g.scratch);
  float *scores = g.scratch + HeadTiles::scratch(tiles.nodes), *d = scores + kTileMost * VL, *weights = d + kTileMost * VL;
  for (int64_t i = g.begin; i < g.end; ++i) {
    float* row = g.d_projections + i * s.ld;
    const int parts[] = {s.q1, s.k1, s.q2, s.k2, s.v};
    for (const int part : parts) {
      for (int c = 0; c < s.d; c += VL) store(row + part + c, V{});
    }
  }
  TilePairs pairs;
  for (int tile = 0; tile < tiles.count; ++tile) {
    const int64_t from = (g.begin + tiles.first(tile)) * s.ld;
    const float* sources = g.projections + from;
    float* d_sources = g.d_projections + from;
    const int count = tiles.sources(tile);
    for (int64_t first = 0; first < tiles.nodes; first += kTargetsTogether) {
      const float* d_out[kTargetsTogether];
      for (int t = 0; t < kTargetsTogether; ++t) {
        const bool none = first + t >= tiles.nodes;
        const int64_t target = g.begin + (none ? first : first + t);
        d_out[t] = g.d_out + target * s.d;
        if (none) {
          for (int j = 0; j < count; ++j) store(weights + (j * kTargetsTogether + t) * VL, V{});
          continue;
        }
        float* d_row = g.d_projections + target * s.ld;
        tiles.list(tile, first + t, pairs);
        listed_dots<K>(g.scaled_q + target * s.d, sources + s.k2, s.ld, pairs.list[0], pairs.count[0], scores);
        if (kReal) listed_dots<K>(g.scaled_q1 + target * s.d, sources + s.k1, s.ld, pairs.list[1], pairs.count[1], scores);
        all_dots<K>(d_out[t], sources + s.v, s.ld, count, d);
        head_gradients(pairs.factors, count, load(g.share + target * VL), load(g.dot + target * VL), d, scores, weights + t * VL);
        key_gradients<K>(scores, sources + s.k2, d_sources + s.k2, s.ld, pairs.list[0], pairs.count[0], g.scaled_q + target * s.d,
                         d_row + s.q2);
        if (kReal) {
          key_gradients<K>(scores, sources + s.k1, d_sources + s.k1, s.ld, pairs.list[1], pairs.count[1],
                           g.scaled_q1 + target * s.d, d_row + s.q1);
        }
      }
      value_gradients<K>(weights, d_out, count, d_sources + s.v, s.ld);
    }
  }
  const auto queries = [&](int q_at, const float* __restrict e, float* __restrict d_e) {
    for (int64_t i = g.begin; i < g.end; ++i) {
      const float* q = g.projections + i * s.ld + q_at;
      float* dq = g.d_projections + i * s.ld + q_at;
      for (int c = 0; c < s.d; c += VL) {
        const V gradient = load(dq + c);
        store(d_e + c, load(d_e + c) + gradient * load(q + c));
        store(dq + c, gradient * load(e + c));
      }
    }
  };
  queries(s.q2, g.e, g.d_e);
  if (kReal) queries(s.q1, g.e1, g.d_e1);
}

static bool heads_fill_lanes(const DenseGraph& g) {
  const int width = g.shape->head_width();
  return g.shape->heads == VL && g.head_end - g.head_begin == VL && g.end > g.begin && g.end - g.begin <= kHeadsNodes &&
         width >= 6 && width <= 8;
}

#define SAN_HEADS(pass, g)                                                        \
  switch ((g).shape->head_width()) {                                              \
    case 6:                                                                       \
      return (g).scaled_q1 != nullptr ? pass<6, true>(g) : pass<6, false>(g);     \
    case 7:                                                                       \
      return (g).scaled_q1 != nullptr ? pass<7, true>(g) : pass<7, false>(g);     \
    default:                                                                      \
      return (g).scaled_q1 != nullptr ? pass<8, true>(g) : pass<8, false>(g);     \
  }

static void all_pairs_forward(const DenseGraph& g) {
  if (!heads_fill_lanes(g)) return dense_forward(g);
  SAN_HEADS(heads_forward_k, g)
}

static void all_pairs_backward(const DenseGraph& g) {
  if (!heads_fill_lanes(g)) return dense_backward(g);
  SAN_HEADS(heads_backward_k, g)
}
