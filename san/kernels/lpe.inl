// The LPE encoder. Lanes are sequences, so nothing is ever summed across a vector except for weight gradients.

constexpr float kLpeEps = 1e-5F;

// y[o][t] (+)= bias[o] + sum_i m[o][i] * x[i][t], o < out, i < in.
static void linear_map(const RowMatrix m, const float* bias, const float* x, float* y, int in, int out, int64_t tokens,
                       bool accumulate) {
  token_groups(tokens, [&]<int TV>(int64_t t) {
    float* to = y + token_at(out, t);
    products<0, TV>(
        m, out, in, x + token_at(in, t), [&](int o) { return splat(bias == nullptr ? 0.0F : bias[o < out ? o : out - 1]); },
        [&](int o, V(*a)[TV]) {
#pragma GCC unroll 4
          for (int q = 0; q < 4; ++q) {
            if (o + q >= out) break;
#pragma GCC unroll 8
            for (int v = 0; v < TV; ++v) {
              float* at = to + (o + q) * kLanes + token_at(out, v * VL);
              store(at, accumulate ? load(at) + a[q][v] : a[q][v]);
            }
          }
        });
  });
}

static void lpe_linear(const float* w, const float* bias, const float* x, float* y, int in, int out, int64_t tokens) {
  linear_map({w, in, 1}, bias, x, y, in, out, tokens, false);
}

// dX[i][t] (+)= sum_o W[o][i] dY[o][t]
static void lpe_linear_back(const float* w, const float* dy, float* dx, int in, int out, int64_t tokens, bool accumulate) {
  linear_map({w, 1, in}, nullptr, dy, dx, out, in, tokens, accumulate);
}

// Sum over tokens of feature c of an array of `width` features.
static float feature_sum(const float* x, int width, int c, int64_t tokens) {
  V acc{};
  for (int64_t t = 0; t < tokens; t += VL) acc += load(x + token_at(width, t) + c * kLanes);
  return sum_of(acc);
}

static void lpe_linear_gradient(const float* dy, const float* x, float* dw, float* db, int in, int out, int64_t tokens) {
  constexpr int R = 4, C = VL / 4;  // VL sums, whose lanes are added up together
  for (int o = 0; o < out; o += R) {
    for (int i = 0; i < in; i += C) {
      V acc[R * C] = {};
      int rows[R], columns[C];  // the last ones stand for those beyond
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) rows[r] = (o + r < out ? o + r : out - 1) * kLanes;
#pragma GCC unroll 4
      for (int c = 0; c < C; ++c) columns[c] = (i + c < in ? i + c : in - 1) * kLanes;
#pragma GCC unroll 1
      for (int64_t t = 0; t < tokens; t += VL) {
        const float *d = dy + token_at(out, t), *from = x + token_at(in, t);
        V xv[C];
#pragma GCC unroll 4
        for (int c = 0; c < C; ++c) xv[c] = load(from + columns[c]);
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) {
          const V dv = load(d + rows[r]);
#pragma GCC unroll 4
          for (int c = 0; c < C; ++c) acc[r * C + c] += dv * xv[c];
        }
      }
      const V sums = sums_of(acc);
      for (int r = 0; r < R && o + r < out; ++r) {
        for (int c = 0; c < C && i + c < in; ++c) dw[(o + r) * in + i + c] += sums[r * C + c];
      }
    }
  }
  for (int o = 0; db != nullptr && o < out; ++o) db[o] += feature_sum(dy, out, o, tokens);
}

SAN_INLINE V inverse_root(V x) {
  V out{};
  for (int i = 0; i < VL; ++i) out[i] = 1.0F / __builtin_sqrtf(x[i]);
  return out;
}

// x -> hat, rstd, and x = hat * weight + bias.
static void layer_norm(int k, int64_t tokens, float* x, const float* weight, const float* bias, float* hat, float* rstd) {
  const float inverse = 1.0F / static_cast<float>(k);
  for (int64_t t = 0; t < tokens; t += VL) {
    const int64_t at = token_at(k, t);
    V mean{}, variance{};
    for (int c = 0; c < k; ++c) mean += load(x + at + c * kLanes);
    mean *= inverse;
    for (int c = 0; c < k; ++c) {
      const V d = load(x + at + c * kLanes) - mean;
      variance += d * d;
    }
    // 0 * infinity: a token whose squares overflow is not a number, instead of the bias.
    const V r = inverse_root(variance * inverse + kLpeEps) + 0.0F * variance;
    if (rstd != nullptr) store(rstd + t, r);
    for (int c = 0; c < k; ++c) {
      const V h = (load(x + at + c * kLanes) - mean) * r;
      if (hat != nullptr) store(hat + at + c * kLanes, h);
      store(x + at + c * kLanes, h * weight[c] + bias[c]);
    }
  }
}

// d: gradient of the norm's output -> of its input, in place.
static void layer_norm_back(int k, int64_t tokens, float* d, const float* weight, const float* hat, const float* rstd,
                            float* d_weight, float* d_bias) {
  for (int c = 0; c < k; ++c) {
    V sum{}, sum_hat{};
    for (int64_t t = 0; t < tokens; t += VL) {
      const int64_t at = token_at(k, t) + c * kLanes;
      const V g = load(d + at);
      sum += g;
      sum_hat += g * load(hat + at);
    }
    d_weight[c] += sum_of(sum_hat);
    d_bias[c] += sum_of(sum);
  }
  const float inverse = 1.0F / static_cast<float>(k);
  for (int64_t t = 0; t < tokens; t += VL) {
    const int64_t at = token_at(k, t);
    V mean{}, mean_hat{};
    for (int c = 0; c < k; ++c) {
      const V g = load(d + at + c * kLanes) * weight[c];
      mean += g;
      mean_hat += g * load(hat + at + c * kLanes);
    }
    mean *= inverse;
    mean_hat *= inverse;
    const V r = load(rstd + t);
    for (int c = 0; c < k; ++c) {
      const V g = load(d + at + c * kLanes) * weight[c];
      store(d + at + c * kLanes, r * (g - mean - load(hat + at + c * kLanes) * mean_hat));
    }
  }
}

// Dropout's row bits of the tokens of a block.
SAN_INLINE VU token_bits(uint32_t key, uint32_t first_sequence, int m, int64_t token) {
  const auto position = static_cast<uint32_t>(token / kLanes), lane = static_cast<uint32_t>(token % kLanes);
  const VU row = (lane_numbers() + (first_sequence + lane)) * static_cast<uint32_t>(m) + position;
  return hash_vector(key, row);
}

// x *= dropout, columns = features.
static void drop_features(const LpeBlock& b, const Dropout& d, float* x) {
  if (!d.active()) return;
  const int64_t tokens = b.shape->tokens();
  for (int64_t t = 0; t < tokens; t += VL) {
    const VU bits = token_bits(d.key, b.first_sequence, b.shape->m, t);
    float* at = x + token_at(b.shape->k, t);
    for (int c = 0; c < b.shape->k; ++c) {
      const VI keep = keep_column(bits, d, static_cast<uint32_t>(c));
      store(at + c * kLanes, select(keep, load(at + c * kLanes) * d.scale));
    }
  }
}

// The attention weights of query i of one head for VL lanes, before dropout: p[j] (stride 16). `q` and `k` point at the
// head's first feature and the lanes at position 0; positions are `step` floats apart.
SAN_INLINE void attention_row(int m, const float* q, const float* k, int64_t step, int width, int i, VI counts, float scale,
                              float* p) {
  V largest = splat(-1e30F);
  for (int j = 0; j < m; ++j) {
    V s{};
    for (int c = 0; c < width; ++c) s += load(q + i * step + c * kLanes) * load(k + j * step + c * kLanes);
    s = (counts > j) ? s * scale : splat(-1e30F);
    largest = maximum(largest, s);
    store(p + j * kLanes, s);
  }
  V sum{};
  for (int j = 0; j < m; ++j) {
    const V e = select(counts > j, exponential(load(p + j * kLanes) - largest));
    sum += e;
    store(p + j * kLanes, e);
  }
  // A lane without valid positions: zeros, not 0 / 0.
  const V inverse = 1.0F / maximum(sum, splat(1e-30F));
  for (int j = 0; j < m; ++j) store(p + j * kLanes, load(p + j * kLanes) * inverse);
}

SAN_INLINE VI lane_counts(const LpeBlock& b, int lane) {
  VI counts{};
  for (int s = 0; s < VL; ++s) counts[s] = b.counts[lane + s];
  return counts;
}

static void lpe_attention(const LpeBlock& b, const float* qkv, float* mixed, float* p) {
  const LpeShape& s = *b.shape;
  const int width = s.k / s.heads;
  const int64_t step = int64_t{3} * s.k * kLanes;
  const float scale = 1.0F / __builtin_sqrtf(static_cast<float>(width));
  const Dropout& drop = b.layer->attention;
  for (int lane = 0; lane < kLanes; lane += VL) {
    const VI counts = lane_counts(b, lane);
    for (int h = 0; h < s.heads; ++h) {
      const float* q = qkv + h * width * kLanes + lane;
      const float *k = q + s.k * kLanes, *v = k + s.k * kLanes;
      for (int i = 0; i < s.m; ++i) {
        attention_row(s.m, q, k, step, width, i, counts, scale, p);
        if (drop.active()) {
          const VU bits = token_bits(drop.key, b.first_sequence, s.m, i * kLanes + lane);
          for (int j = 0; j < s.m; ++j) {
            const VI keep = keep_column(bits, drop, static_cast<uint32_t>(j + s.m * h));
            store(p + j * kLanes, select(keep, load(p + j * kLanes) * drop.scale));
          }
        }
        for (int c = 0; c < width; ++c) {
          V sum{};
          for (int j = 0; j < s.m; ++j) sum += load(p + j * kLanes) * load(v + j * step + c * kLanes);
          store(mixed + (i * s.k + h * width + c) * kLanes + lane, sum);
        }
      }
    }
  }
}

// --- feed-forward ----------------------------------------------------------------------------------------------------

// hidden[q][t] = relu(ff1[h + q] . x[:, t] + bias), dropped out but not scaled, for kHiddenStep units.
template <int K, int TV, bool kDrop>
SAN_ALONE void hidden_units(const LpeLayer& layer, int width, int h, const float* __restrict x, const uint32_t* bits,
                            float* __restrict hidden) {
  const int k = K > 0 ? K : width;
  const uint32_t threshold = layer.hidden.threshold;
  const RowMatrix ff1{layer.ff1 + static_cast<int64_t>(h) * k, k, 1};
  products<K, TV>(
      ff1, kHiddenStep, k, x, [&](int q) { return splat(layer.ff1_bias[h + q]); },
      [&](int row, V(*a)[TV]) {
#pragma GCC unroll 2
        for (int q = 0; q < 4; q += 2) {
#pragma GCC unroll 8
          for (int v = 0; v < TV; ++v) {
            V a0 = maximum(V{}, a[q][v]), a1 = maximum(V{}, a[q + 1][v]);
            if (kDrop) {
              const VU mixed = (load_u(bits + v * VL) ^ layer.hidden_bits[(h + row + q) / 2]) * kMaskMultiplier;
              a0 = select(keep_even(mixed, threshold), a0);
              a1 = select(keep_odd(mixed, threshold), a1);
            }
            store(hidden + (row + q) * kTokenPiece + v * VL, a0);
            store(hidden + (row + q + 1) * kTokenPiece + v * VL, a1);
          }
        }
      });
}

// d_hidden[q][t] = ff2[h + q] . dy[:, t] where the hidden unit is not 0; sums[q] += d_hidden[q], lane by lane.
template <int K, int TV>
SAN_ALONE void hidden_gradients(const LpeLayer& layer, int width, int h, const float* __restrict dy,
                                const float* __restrict hidden, float* __restrict d_hidden, float* __restrict sums) {
  const int k = K > 0 ? K : width;
  const RowMatrix ff2{layer.ff2 + static_cast<int64_t>(h) * k, k, 1};
  products<K, TV>(
      ff2, kHiddenStep, k, dy, [](int) { return V{}; },
      [&](int row, V(*a)[TV]) {
#pragma GCC unroll 4
        for (int q = 0; q < 4; ++q) {
          V sum = load(sums + (row + q) * VL);
#pragma GCC unroll 8
          for (int v = 0; v < TV; ++v) {
            const int64_t at = (row + q) * kTokenPiece + v * VL;
            const V d = select(load(hidden + at) > 0.0F, a[q][v]);
            store(d_hidden + at, d);
            sum += d;
          }
          store(sums + (row + q) * VL, sum);
        }
      });
}

// y[c][t] = sum over hidden units of ff2[h][c] * relu(ff1[h] . x[:, t] + bias), dropped out.
template <int K, bool kDrop>
static void feed_forward(const LpeBlock& b, int64_t tokens, const float* __restrict x, float* __restrict y,
                         float* __restrict hidden) {
  const int k = K > 0 ? K : b.shape->k;
  const LpeLayer& layer = *b.layer;
  for (int64_t from = 0; from < tokens; from += kTokenPiece) {
    const int64_t count = tokens - from < kTokenPiece ? tokens - from : kTokenPiece;
    uint32_t bits[kTokenPiece];
    for (int64_t t = 0; kDrop && t < count; t += VL) {
      store_u(bits + t, token_bits(layer.hidden.key, b.first_sequence, b.shape->m, from + t));
    }
    for (int h = 0; h < b.shape->ff_padded; h += kHiddenStep) {
      token_groups(count, [&]<int TV>(int64_t t) {
        const int64_t at = token_at(k, from + t);
        hidden_units<K, TV, kDrop>(layer, k, h, x + at, bits + t, hidden + t);
        from_rows<K, TV>({layer.ff2 + static_cast<int64_t>(h) * k, k, 1}, kHiddenStep, k, hidden + t, y + at, h == 0);
      });
    }
  }
  const float scale = kDrop ? layer.hidden.scale : 1.0F;
  for (int64_t t = 0; t < tokens; t += VL) {
    float* at = y + token_at(k, t);
    for (int c = 0; c < k; ++c) store(at + c * kLanes, load(at + c * kLanes) * scale + layer.ff2_bias[c]);
  }
}

template <int K>
static void feed_forward_k(const LpeBlock& b, int64_t tokens, const float* x, float* y, float* hidden) {
  b.layer->hidden.active() ? feed_forward<K, true>(b, tokens, x, y, hidden) : feed_forward<K, false>(b, tokens, x, y, hidden);
}

static void feed_forward_any(const LpeBlock& b, int64_t tokens, const float* x, float* y, float* hidden) {
  switch (b.shape->k) {
    case 4:
      return feed_forward_k<4>(b, tokens, x, y, hidden);
    case 8:
      return feed_forward_k<8>(b, tokens, x, y, hidden);
#if SAN_VL == 16
    case 12:
      return feed_forward_k<12>(b, tokens, x, y, hidden);
    case 16:
      return feed_forward_k<16>(b, tokens, x, y, hidden);
#endif
    default:
      return feed_forward_k<0>(b, tokens, x, y, hidden);
  }
}

template <int K, bool kDrop>
static void feed_forward_back(const LpeFeedForwardBackward& f) {
  const LpeShape& s = *f.shape;
  const LpeLayer& layer = *f.layer;
  const int k = K > 0 ? K : s.k;
  const int64_t tokens = s.tokens(), all = f.blocks * tokens;
  const float scale = kDrop ? layer.hidden.scale : 1.0F;
  // Hidden units of one step and their gradients for a piece of the tokens, sums of gradients: all in the first-level
  // cache. Scales of dropout are applied once per sum instead of once per unit.
  constexpr int64_t piece = kTokenPiece;
  float *hidden = f.scratch, *d_hidden = hidden + kHiddenStep * piece, *acc1 = d_hidden + kHiddenStep * piece,
        *acc2 = acc1 + kHiddenStep * k * VL, *acc_bias = acc2 + kHiddenStep * k * VL;
  auto* bits = reinterpret_cast<uint32_t*>(acc_bias + kHiddenStep * VL);
  for (int64_t block = 0; kDrop && block < f.blocks; ++block) {
    const auto first = f.first_sequence + static_cast<uint32_t>(block * kLanes);
    for (int64_t t = 0; t < tokens; t += VL) {
      store_u(bits + block * tokens + t, token_bits(layer.hidden.key, first, s.m, t));
    }
  }
  for (int h = f.begin; h < f.end; h += kHiddenStep) {
    for (int64_t i = 0; i < kHiddenStep * VL; i += VL) store(acc_bias + i, V{});
    // Blocks lie one after the other, so that a piece may run over from one into the next.
    for (int64_t from = 0; from < all; from += piece) {
      const int64_t count = all - from < piece ? all - from : piece;
      token_groups(count, [&]<int TV>(int64_t t) {
        const int64_t at = token_at(k, from + t);
        hidden_units<K, TV, kDrop>(layer, k, h, f.x1 + at, bits + from + t, hidden + t);
        hidden_gradients<K, TV>(layer, k, h, f.d_ff + at, hidden + t, d_hidden + t, acc_bias);
        from_rows<K, TV>({layer.ff1 + static_cast<int64_t>(h) * k, k, 1}, kHiddenStep, k, d_hidden + t, f.d_x + at, h == f.begin);
      });
      outer_lanes<K>(d_hidden, kHiddenStep, f.x1, k, from, count, acc1, from == 0);
      outer_lanes<K>(hidden, kHiddenStep, f.d_ff, k, from, count, acc2, from == 0);
    }
    lane_sums<true>(acc1, kHiddenStep * k, scale, f.d_ff1 + static_cast<int64_t>(h) * k);
    lane_sums<true>(acc2, kHiddenStep * k, scale, f.d_ff2 + static_cast<int64_t>(h) * k);
    lane_sums<true>(acc_bias, kHiddenStep, scale, f.d_ff1_bias + h);
  }
  if (kDrop) {
    for (int64_t i = 0; i < all * k; i += VL) store(f.d_x + i, load(f.d_x + i) * scale);
  }
}

template <int K>
static void feed_forward_back_k(const LpeFeedForwardBackward& f) {
  f.layer->hidden.active() ? feed_forward_back<K, true>(f) : feed_forward_back<K, false>(f);
}

static void lpe_feed_forward_backward(const LpeFeedForwardBackward& f) {
  switch (f.shape->k) {
    case 4:
      return feed_forward_back_k<4>(f);
    case 8:
      return feed_forward_back_k<8>(f);
#if SAN_VL == 16
    case 12:
      return feed_forward_back_k<12>(f);
    case 16:
      return feed_forward_back_k<16>(f);
#endif
    default:
      return feed_forward_back_k<0>(f);
  }
}

// --- a layer ---------------------------------------------------------------------------------------------------------

static void copy_floats(const float* from, float* to, int64_t count) {
  __builtin_memcpy(to, from, sizeof(float) * static_cast<uint64_t>(count));
}

// The feed-forward maps of a block whose last lanes are empty: several positions share a vector. A single molecule's last
// block is half empty on average. spare: 2 k T floats.
static void feed_forward_narrow(const LpeBlock& b, int lanes, const float* x, float* y, float* hidden, float* spare) {
  const int k = b.shape->k, m = b.shape->m, together = kLanes / lanes;
  const int64_t tokens = int64_t{(m + together - 1) / together} * kLanes;
  float *packed = spare, *result = spare + k * tokens;
  const auto place = [&](int p, int c) { return (p / together * k + c) * kLanes + p % together * lanes; };
  for (int64_t i = 0; i < k * tokens; i += VL) store(packed + i, V{});
  for (int p = 0; p < m; ++p) {
    for (int c = 0; c < k; ++c) copy_floats(x + (p * k + c) * kLanes, packed + place(p, c), lanes);
  }
  feed_forward_any(b, tokens, packed, result, hidden);
  for (int64_t i = 0; i < b.shape->tokens() * k; i += VL) store(y + i, V{});
  for (int p = 0; p < m; ++p) {
    for (int c = 0; c < k; ++c) copy_floats(result + place(p, c), y + (p * k + c) * kLanes, lanes);
  }
}

// The first half of a layer: x [k][T] -> x1, in place.
static void attend(const LpeBlock& b, float* x, const LpeSaved* saved) {
  const LpeShape& s = *b.shape;
  const LpeLayer& layer = *b.layer;
  const int64_t tokens = s.tokens(), size = s.k * tokens;
  float *qkv = b.scratch, *mixed = qkv + 3 * size, *y = mixed + size, *p = y + size;
  if (saved != nullptr) copy_floats(x, saved->x, size);
  lpe_linear(layer.in_weight, layer.in_bias, x, qkv, s.k, 3 * s.k, tokens);
  lpe_attention(b, qkv, mixed, p);
  lpe_linear(layer.out_weight, layer.out_bias, mixed, y, s.k, s.k, tokens);
  drop_features(b, layer.output, y);
  for (int64_t i = 0; i < size; i += VL) store(x + i, load(x + i) + load(y + i));
  layer_norm(s.k, tokens, x, layer.norm1_weight, layer.norm1_bias, saved ? saved->hat1 : nullptr,
             saved ? saved->rstd1 : nullptr);
}

// What follows the feed-forward maps: x1 [k][T] and their result y -> the layer's output, in place of x1.
static void finish(const LpeBlock& b, float* x, float* y, const LpeSaved* saved) {
  const LpeLayer& layer = *b.layer;
  const int64_t tokens = b.shape->tokens(), size = b.shape->k * tokens;
  drop_features(b, layer.feed_forward, y);
  for (int64_t i = 0; i < size; i += VL) store(x + i, load(x + i) + load(y + i));
  layer_norm(b.shape->k, tokens, x, layer.norm2_weight, layer.norm2_bias, saved ? saved->hat2 : nullptr,
             saved ? saved->rstd2 : nullptr);
}

static void lpe_attend(const LpeBlock& b, float* x, const LpeSaved& saved) { attend(b, x, &saved); }
static void lpe_finish(const LpeBlock& b, float* x, float* y, const LpeSaved& saved) { finish(b, x, y, &saved); }

static void lpe_forward(const LpeBlock& b, float* x, const LpeSaved* saved) {
  const LpeShape& s = *b.shape;
  const int64_t tokens = s.tokens(), size = s.k * tokens;
  float *spare = b.scratch, *y = spare + 4 * size, *hidden = y + size;
  attend(b, x, saved);
  int lanes = kLanes;
  while (lanes > 0 && b.counts[lanes - 1] == 0) --lanes;
  if (lanes <= kLanes / 2 && !b.layer->hidden.active()) {
    feed_forward_narrow(b, lanes <= kLanes / 4 ? kLanes / 4 : kLanes / 2, x, y, hidden, spare);
  } else {
    feed_forward_any(b, tokens, x, y, hidden);
  }
  finish(b, x, y, saved);
}

static void lpe_norm_backward(const LpeNormBackward& n) {
  const LpeShape& s = *n.block.shape;
  const LpeLayer& layer = *n.block.layer;
  const int k = s.k;
  const int64_t tokens = s.tokens(), size = k * tokens;
  float* norm2 = n.gradients + 4 * k * k + 6 * k;
  layer_norm_back(k, tokens, n.d_out, layer.norm2_weight, n.saved.hat2, n.saved.rstd2, norm2, norm2 + k);
  copy_floats(n.d_out, n.d_ff, size);
  drop_features(n.block, layer.feed_forward, n.d_ff);
  for (int c = 0; c < k; ++c) norm2[2 * k + c] += feature_sum(n.d_ff, k, c, tokens);
  for (int64_t t = 0; t < tokens; t += VL) {
    const int64_t at = token_at(k, t);
    for (int c = 0; c < k; ++c) {
      store(n.x1 + at + c * kLanes, load(n.saved.hat1 + at + c * kLanes) * layer.norm1_weight[c] + layer.norm1_bias[c]);
    }
  }
}

// One head of attention, backwards, for VL lanes: d_mixed -> d_qkv (dq is set, dk and dv are added to), mixed
// (again, for the output map's gradient).
// W = width of a head known to the compiler, up to 8, whose features then stay in registers; 0 = any. p: 2 T floats.
template <int W>
static void head_backward(const LpeBlock& b, int h, int lane, const float* qkv, float* __restrict d_qkv,
                          const float* d_mixed, float* __restrict mixed, float* __restrict p) {
  const LpeShape& s = *b.shape;
  const int k = s.k, m = s.m, width = W > 0 ? W : k / s.heads;
  const int64_t step = int64_t{3} * k * kLanes;
  const float scale = 1.0F / __builtin_sqrtf(static_cast<float>(width));
  const Dropout& drop = b.layer->attention;
  const VI counts = lane_counts(b, lane);
  const float* q = qkv + h * width * kLanes + lane;
  const float *key = q + k * kLanes, *v = key + k * kLanes;
  float* dq = d_qkv + h * width * kLanes + lane;
  float *dk = dq + k * kLanes, *dv = dk + k * kLanes, *dp = p + s.tokens();
  constexpr int kMost = W > 0 ? W : 8;  // features at a time
  for (int i = 0; i < m; ++i) {
    attention_row(m, q, key, step, width, i, counts, scale, p);
    const int64_t own = (int64_t{i} * k + h * width) * kLanes + lane, at_i = i * step;
    VU bits{};
    if (drop.active()) bits = token_bits(drop.key, b.first_sequence, m, i * kLanes + lane);
    for (int first = 0; first < width; first += kMost) {
      const int count = W > 0 ? W : width - first < kMost ? width - first : kMost;
      V dm[kMost], mix[kMost];
#pragma GCC unroll 8
      for (int c = 0; c < count; ++c) {
        dm[c] = load(d_mixed + own + (first + c) * kLanes);
        mix[c] = V{};
      }
      for (int j = 0; j < m; ++j) {
        VI keep = VI{} - 1;
        if (drop.active()) keep = keep_column(bits, drop, static_cast<uint32_t>(j + m * h));
        const V used = select(keep, load(p + j * kLanes) * drop.scale);
        V d{};
#pragma GCC unroll 8
        for (int c = 0; c < count; ++c) {
          const int64_t at = j * step + (first + c) * kLanes;
          const V vj = load(v + at);
          d += dm[c] * vj;
          mix[c] += used * vj;
          store(dv + at, load(dv + at) + used * dm[c]);
        }
        d = select(keep, d * drop.scale);
        store(dp + j * kLanes, first == 0 ? d : load(dp + j * kLanes) + d);
      }
#pragma GCC unroll 8
      for (int c = 0; c < count; ++c) store(mixed + own + (first + c) * kLanes, mix[c]);
    }
    V dot{};  // sum of p * dp
    for (int j = 0; j < m; ++j) dot += load(p + j * kLanes) * load(dp + j * kLanes);
    for (int first = 0; first < width; first += kMost) {
      const int count = W > 0 ? W : width - first < kMost ? width - first : kMost;
      V qi[kMost], sum[kMost];
#pragma GCC unroll 8
      for (int c = 0; c < count; ++c) {
        qi[c] = load(q + at_i + (first + c) * kLanes);
        sum[c] = V{};
      }
      for (int j = 0; j < m; ++j) {
        const V ds = load(p + j * kLanes) * (load(dp + j * kLanes) - dot) * scale;
#pragma GCC unroll 8
        for (int c = 0; c < count; ++c) {
          const int64_t at = j * step + (first + c) * kLanes;
          sum[c] += ds * load(key + at);
          store(dk + at, load(dk + at) + ds * qi[c]);
        }
      }
#pragma GCC unroll 8
      for (int c = 0; c < count; ++c) {
        const int64_t at = at_i + (first + c) * kLanes;
        store(dq + at, sum[c]);
      }
    }
  }
}

static void lpe_attention_backward(const LpeAttentionBackward& a) {
  const LpeBlock& b = a.block;
  const LpeShape& s = *b.shape;
  const LpeLayer& layer = *b.layer;
  const int k = s.k, width = k / s.heads;
  const int64_t tokens = s.tokens(), size = k * tokens;
  float *qkv = b.scratch, *d_qkv = qkv + 3 * size, *mixed = d_qkv + 3 * size, *d_mixed = mixed + size, *d_y = d_mixed + size,
        *p = d_y + size;  // 2 T floats
  float *g_in = a.gradients, *g_in_bias = g_in + 3 * k * k, *g_out = g_in_bias + 3 * k, *g_out_bias = g_out + k * k,
        *g_norm = g_out_bias + k;
  layer_norm_back(k, tokens, a.d, layer.norm1_weight, a.saved.hat1, a.saved.rstd1, g_norm, g_norm + k);
  copy_floats(a.d, d_y, size);
  drop_features(b, layer.output, d_y);
  lpe_linear_back(layer.out_weight, d_y, d_mixed, k, k, tokens, false);
  lpe_linear(layer.in_weight, layer.in_bias, a.saved.x, qkv, k, 3 * k, tokens);
  for (int64_t i = 0; i < 3 * size; i += VL) store(d_qkv + i, V{});

  for (int lane = 0; lane < kLanes; lane += VL) {
    for (int h = 0; h < s.heads; ++h) {
      switch (width) {
        case 2:
          head_backward<2>(b, h, lane, qkv, d_qkv, d_mixed, mixed, p);
          break;
        case 4:
          head_backward<4>(b, h, lane, qkv, d_qkv, d_mixed, mixed, p);
          break;
        default:
          head_backward<0>(b, h, lane, qkv, d_qkv, d_mixed, mixed, p);
      }
    }
  }
  lpe_linear_gradient(d_y, mixed, g_out, g_out_bias, k, k, tokens);
  lpe_linear_gradient(d_qkv, a.saved.x, g_in, g_in_bias, k, 3 * k, tokens);
  lpe_linear_back(layer.in_weight, d_qkv, a.d, k, 3 * k, tokens, true);
}
