// The LPE encoder. Lanes are sequences, so nothing is ever summed across a vector except for weight gradients.

constexpr float kLpeEps = 1e-5F;
constexpr int kHiddenBlock = 128;  // hidden units whose weights stay in the first-level cache
constexpr int kHiddenStep = 8;     // hidden units that backward holds at a time
constexpr int kBackwardTokens = 512;

static void lpe_linear(const float* w, const float* bias, const float* x, float* y, int in, int out, int64_t tokens) {
  for (int64_t t = 0; t < tokens; t += VL) {
    int o = 0;
    for (; o + 4 <= out; o += 4) {
      V acc[4];
#pragma GCC unroll 4
      for (int q = 0; q < 4; ++q) acc[q] = splat(bias == nullptr ? 0.0F : bias[o + q]);
      for (int i = 0; i < in; ++i) {
        const V xv = load(x + i * tokens + t);
#pragma GCC unroll 4
        for (int q = 0; q < 4; ++q) acc[q] += xv * w[(o + q) * in + i];
      }
#pragma GCC unroll 4
      for (int q = 0; q < 4; ++q) store(y + (o + q) * tokens + t, acc[q]);
    }
    for (; o < out; ++o) {
      V acc = splat(bias == nullptr ? 0.0F : bias[o]);
      for (int i = 0; i < in; ++i) acc += load(x + i * tokens + t) * w[o * in + i];
      store(y + o * tokens + t, acc);
    }
  }
}

// dX[i][t] (+)= sum_o W[o][i] dY[o][t]
static void lpe_linear_back(const float* w, const float* dy, float* dx, int in, int out, int64_t tokens, bool accumulate) {
  for (int64_t t = 0; t < tokens; t += VL) {
    for (int i = 0; i < in; ++i) {
      V acc = accumulate ? load(dx + i * tokens + t) : V{};
      for (int o = 0; o < out; ++o) acc += load(dy + o * tokens + t) * w[o * in + i];
      store(dx + i * tokens + t, acc);
    }
  }
}

// Lane sums of VL vectors as one vector: lane i of the result is the sum of acc[i]'s lanes.
SAN_INLINE V sums_of(V* acc) {
#ifdef __clang__
  V out{};
  for (int i = 0; i < VL; ++i) out[i] = sum_of(acc[i]);
  return out;
#else
#pragma GCC unroll 5
  for (int w = VL / 2; w >= 1; w /= 2) {
    VI low{}, high{};
#pragma GCC unroll 16
    for (int l = 0; l < VL; ++l) {
      const int group = l / (2 * w) * 2 * w, at = l % (2 * w);
      low[l] = at < w ? group + at : VL + group + at - w;
      high[l] = at < w ? group + w + at : VL + group + at;
    }
#pragma GCC unroll 16
    for (int i = 0; i < w; ++i) {
      acc[i] = __builtin_shuffle(acc[i], acc[i + w], low) + __builtin_shuffle(acc[i], acc[i + w], high);
    }
  }
  return acc[0];
#endif
}

// dW[a][b] += sum over blocks and t of A[a][t] B[b][t], for `na` rows of A (a multiple of VL / 4) and nb rows of B. Block
// strides are those of the two arrays, row strides `a_row` and `b_row`.
static void outer_sums(const float* a, int64_t a_row, int64_t a_block, const float* b, int64_t b_row, int64_t b_block,
                       int64_t blocks, int64_t tokens, int na, int nb, float* dw) {
  constexpr int kRows = VL / 4;
  for (int row = 0; row < na; row += kRows) {
    for (int column = 0; column < nb; column += 4) {
      int at[4];  // the last tile may be narrow: its spare columns repeat the last one
      for (int q = 0; q < 4; ++q) at[q] = column + q < nb ? column + q : nb - 1;
      V acc[VL];
#pragma GCC unroll 16
      for (int i = 0; i < VL; ++i) acc[i] = V{};
      for (int64_t block = 0; block < blocks; ++block) {
        const float* pa = a + block * a_block + row * a_row;
        const float* pb = b + block * b_block;
        const float *b0 = pb + at[0] * b_row, *b1 = pb + at[1] * b_row, *b2 = pb + at[2] * b_row, *b3 = pb + at[3] * b_row;
        for (int64_t t = 0; t < tokens; t += VL) {
          const V x0 = load(b0 + t), x1 = load(b1 + t), x2 = load(b2 + t), x3 = load(b3 + t);
#pragma GCC unroll 4
          for (int r = 0; r < kRows; ++r) {
            const V y = load(pa + r * a_row + t);
            acc[4 * r] += y * x0;
            acc[4 * r + 1] += y * x1;
            acc[4 * r + 2] += y * x2;
            acc[4 * r + 3] += y * x3;
          }
        }
      }
      float sums[VL];
      store(sums, sums_of(acc));
      for (int r = 0; r < kRows; ++r) {
        for (int q = 0; q < 4 && column + q < nb; ++q) dw[(row + r) * nb + column + q] += sums[4 * r + q];
      }
    }
  }
}

static float row_sum(const float* x, int64_t tokens) {
  V acc{};
  for (int64_t t = 0; t < tokens; t += VL) acc += load(x + t);
  return sum_of(acc);
}

static void lpe_linear_gradient(const float* dy, const float* x, float* dw, float* db, int in, int out, int64_t tokens) {
  constexpr int kRows = VL / 4;
  const int whole = out / kRows * kRows;
  outer_sums(dy, tokens, 0, x, tokens, 0, 1, tokens, whole, in, dw);
  for (int o = whole; o < out; ++o) {
    for (int i = 0; i < in; ++i) {
      V acc{};
      for (int64_t t = 0; t < tokens; t += VL) acc += load(dy + o * tokens + t) * load(x + i * tokens + t);
      dw[o * in + i] += sum_of(acc);
    }
  }
  for (int o = 0; db != nullptr && o < out; ++o) db[o] += row_sum(dy + o * tokens, tokens);
}

SAN_INLINE V inverse_root(V x) {
  V out{};
  for (int i = 0; i < VL; ++i) out[i] = 1.0F / __builtin_sqrtf(x[i]);
  return out;
}

// x [k][T] -> hat, rstd, and x = hat * weight + bias.
static void layer_norm(int k, int64_t tokens, float* x, const float* weight, const float* bias, float* hat, float* rstd) {
  const float inverse = 1.0F / static_cast<float>(k);
  for (int64_t t = 0; t < tokens; t += VL) {
    V mean{}, variance{};
    for (int c = 0; c < k; ++c) mean += load(x + c * tokens + t);
    mean *= inverse;
    for (int c = 0; c < k; ++c) {
      const V d = load(x + c * tokens + t) - mean;
      variance += d * d;
    }
    const V r = inverse_root(variance * inverse + kLpeEps);
    if (rstd != nullptr) store(rstd + t, r);
    for (int c = 0; c < k; ++c) {
      const V h = (load(x + c * tokens + t) - mean) * r;
      if (hat != nullptr) store(hat + c * tokens + t, h);
      store(x + c * tokens + t, h * weight[c] + bias[c]);
    }
  }
}

// d: gradient of the norm's output -> of its input, in place.
static void layer_norm_back(int k, int64_t tokens, float* d, const float* weight, const float* hat, const float* rstd,
                            float* d_weight, float* d_bias) {
  for (int c = 0; c < k; ++c) {
    V sum{}, sum_hat{};
    for (int64_t t = 0; t < tokens; t += VL) {
      const V g = load(d + c * tokens + t);
      sum += g;
      sum_hat += g * load(hat + c * tokens + t);
    }
    d_weight[c] += sum_of(sum_hat);
    d_bias[c] += sum_of(sum);
  }
  const float inverse = 1.0F / static_cast<float>(k);
  for (int64_t t = 0; t < tokens; t += VL) {
    V mean{}, mean_hat{};
    for (int c = 0; c < k; ++c) {
      const V g = load(d + c * tokens + t) * weight[c];
      mean += g;
      mean_hat += g * load(hat + c * tokens + t);
    }
    mean *= inverse;
    mean_hat *= inverse;
    const V r = load(rstd + t);
    for (int c = 0; c < k; ++c) {
      const V g = load(d + c * tokens + t) * weight[c];
      store(d + c * tokens + t, r * (g - mean - load(hat + c * tokens + t) * mean_hat));
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
    for (int c = 0; c < b.shape->k; ++c) {
      const VI keep = keep_column(bits, d, static_cast<uint32_t>(c));
      store(x + c * tokens + t, select(keep, load(x + c * tokens + t) * d.scale));
    }
  }
}

// The attention weights of query i of one head for VL lanes, before dropout: p[j] (stride 16).
SAN_INLINE void attention_row(const LpeBlock& b, const float* q, const float* k, int width, int i, int lane, VI counts,
                              float scale, float* p) {
  const int m = b.shape->m;
  const int64_t tokens = b.shape->tokens();
  V largest = splat(-1e30F);
  for (int j = 0; j < m; ++j) {
    V s{};
    for (int c = 0; c < width; ++c) s += load(q + c * tokens + i * kLanes + lane) * load(k + c * tokens + j * kLanes + lane);
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
  const int64_t tokens = s.tokens();
  const int width = s.k / s.heads;
  const float scale = 1.0F / __builtin_sqrtf(static_cast<float>(width));
  const Dropout& drop = b.layer->attention;
  for (int lane = 0; lane < kLanes; lane += VL) {
    const VI counts = lane_counts(b, lane);
    for (int h = 0; h < s.heads; ++h) {
      const float* q = qkv + h * width * tokens;
      const float *k = q + s.k * tokens, *v = k + s.k * tokens;
      for (int i = 0; i < s.m; ++i) {
        attention_row(b, q, k, width, i, lane, counts, scale, p);
        if (drop.active()) {
          const VU bits = token_bits(drop.key, b.first_sequence, s.m, i * kLanes + lane);
          for (int j = 0; j < s.m; ++j) {
            const VI keep = keep_column(bits, drop, static_cast<uint32_t>(j + s.m * h));
            store(p + j * kLanes, select(keep, load(p + j * kLanes) * drop.scale));
          }
        }
        for (int c = 0; c < width; ++c) {
          V sum{};
          for (int j = 0; j < s.m; ++j) sum += load(p + j * kLanes) * load(v + c * tokens + j * kLanes + lane);
          store(mixed + (h * width + c) * tokens + i * kLanes + lane, sum);
        }
      }
    }
  }
}

// --- feed-forward ----------------------------------------------------------------------------------------------------

// Tokens in groups of TV vectors, hidden units in groups of HB: weights are broadcast once per group, so loads keep behind
// the multiplications. K = width, 0 = any.
template <int K, int TV, int HB, bool kDrop>
SAN_INLINE void feed_forward_group(const LpeLayer& layer, int k, int64_t tokens, int begin, int end,
                                   const float* __restrict x, float* __restrict y, const VU* bits) {
  const uint32_t threshold = layer.hidden.threshold;
  constexpr bool kHold = K > 0 && K * TV <= 16;  // sums stay in registers
  V acc[kHold ? K * TV : 1];
  if constexpr (kHold) {
#pragma GCC unroll 16
    for (int i = 0; i < K * TV; ++i) acc[i] = load(y + i / TV * tokens + i % TV * VL);
  }
  const float *w1 = layer.ff1 + static_cast<int64_t>(begin) * k, *w2 = layer.ff2 + static_cast<int64_t>(begin) * k;
  for (int h = begin; h < end; h += HB, w1 += HB * k, w2 += HB * k) {
    V a[HB][TV];
#pragma GCC unroll 8
    for (int q = 0; q < HB; ++q) {
#pragma GCC unroll 2
      for (int v = 0; v < TV; ++v) a[q][v] = splat(layer.ff1_bias[h + q]);
    }
#pragma GCC unroll 16
    for (int c = 0; c < k; ++c) {
      V xv[TV];
#pragma GCC unroll 2
      for (int v = 0; v < TV; ++v) xv[v] = load(x + c * tokens + v * VL);
#pragma GCC unroll 8
      for (int q = 0; q < HB; ++q) {
        const V w = splat(w1[q * k + c]);
#pragma GCC unroll 2
        for (int v = 0; v < TV; ++v) a[q][v] += xv[v] * w;
      }
    }
#pragma GCC unroll 8
    for (int q = 0; q < HB; q += 2) {
#pragma GCC unroll 2
      for (int v = 0; v < TV; ++v) {
        a[q][v] = maximum(a[q][v], V{});
        a[q + 1][v] = maximum(a[q + 1][v], V{});
        if (kDrop) {
          const VU mixed = (bits[v] ^ layer.hidden_bits[(h + q) / 2]) * kMaskMultiplier;
          a[q][v] = select(keep_even(mixed, threshold), a[q][v]);
          a[q + 1][v] = select(keep_odd(mixed, threshold), a[q + 1][v]);
        }
      }
    }
    if constexpr (kHold) {
#pragma GCC unroll 8
      for (int q = 0; q < HB; ++q) {
#pragma GCC unroll 16
        for (int c = 0; c < K; ++c) {
          const V w = splat(w2[q * K + c]);
#pragma GCC unroll 2
          for (int v = 0; v < TV; ++v) acc[c * TV + v] += a[q][v] * w;
        }
      }
    } else {
#pragma GCC unroll 16
      for (int c = 0; c < k; ++c) {
        V sum[TV];
#pragma GCC unroll 2
        for (int v = 0; v < TV; ++v) sum[v] = load(y + c * tokens + v * VL);
#pragma GCC unroll 8
        for (int q = 0; q < HB; ++q) {
          const V w = splat(w2[q * k + c]);
#pragma GCC unroll 2
          for (int v = 0; v < TV; ++v) sum[v] += a[q][v] * w;
        }
#pragma GCC unroll 2
        for (int v = 0; v < TV; ++v) store(y + c * tokens + v * VL, sum[v]);
      }
    }
  }
  if constexpr (kHold) {
#pragma GCC unroll 16
    for (int i = 0; i < K * TV; ++i) store(y + i / TV * tokens + i % TV * VL, acc[i]);
  }
}

// y[c][t] = sum over hidden units of ff2[h][c] * relu(ff1[h] . x[:, t] + bias), dropped out.
template <int K, bool kDrop>
static void feed_forward(const LpeBlock& b, const float* __restrict x, float* __restrict y) {
  const int k = K > 0 ? K : b.shape->k;
  const int64_t tokens = b.shape->tokens();
  const LpeLayer& layer = *b.layer;
#if SAN_VL == 16
  constexpr int HB = K > 0 && K <= 8 ? 4 : 8;
#else
  constexpr int HB = 4;
#endif
  for (int64_t i = 0; i < k * tokens; i += VL) store(y + i, V{});
  for (int begin = 0; begin < b.shape->ff_padded; begin += kHiddenBlock) {
    const int end = begin + kHiddenBlock < b.shape->ff_padded ? begin + kHiddenBlock : b.shape->ff_padded;
    int64_t t = 0;
    VU bits[2] = {};
    for (; t + 2 * VL <= tokens; t += 2 * VL) {
      for (int v = 0; kDrop && v < 2; ++v) bits[v] = token_bits(layer.hidden.key, b.first_sequence, b.shape->m, t + v * VL);
      feed_forward_group<K, 2, HB, kDrop>(layer, k, tokens, begin, end, x + t, y + t, bits);
    }
    if (t < tokens) {
      if (kDrop) bits[0] = token_bits(layer.hidden.key, b.first_sequence, b.shape->m, t);
      feed_forward_group<K, 1, HB, kDrop>(layer, k, tokens, begin, end, x + t, y + t, bits);
    }
  }
  const float scale = kDrop ? layer.hidden.scale : 1.0F;
  for (int c = 0; c < k; ++c) {
    for (int64_t t = 0; t < tokens; t += VL) store(y + c * tokens + t, load(y + c * tokens + t) * scale + layer.ff2_bias[c]);
  }
}

template <int K>
static void feed_forward_k(const LpeBlock& b, const float* x, float* y) {
  b.layer->hidden.active() ? feed_forward<K, true>(b, x, y) : feed_forward<K, false>(b, x, y);
}

static void feed_forward_any(const LpeBlock& b, const float* x, float* y) {
  switch (b.shape->k) {
    case 4:
      return feed_forward_k<4>(b, x, y);
    case 8:
      return feed_forward_k<8>(b, x, y);
#if SAN_VL == 16
    case 12:
      return feed_forward_k<12>(b, x, y);
    case 16:
      return feed_forward_k<16>(b, x, y);
#endif
    default:
      return feed_forward_k<0>(b, x, y);
  }
}

// Hidden units h .. h + kHiddenStep for TV vectors of tokens: writes them and their gradients, adds to d_x.
template <int K, int TV, bool kDrop>
SAN_INLINE void feed_forward_back_group(const LpeLayer& layer, int k, int64_t tokens, int h, const float* __restrict x,
                                        const float* __restrict dy, float* __restrict dx, bool first, const VU* bits,
                                        float* __restrict hidden, float* __restrict d_hidden, int64_t row) {
  const uint32_t threshold = layer.hidden.threshold;
  const float *w1 = layer.ff1 + static_cast<int64_t>(h) * k, *w2 = layer.ff2 + static_cast<int64_t>(h) * k;
  for (int part = 0; part < kHiddenStep; part += 4, w1 += 4 * k, w2 += 4 * k) {
    V a[4][TV], g[4][TV];
#pragma GCC unroll 4
    for (int q = 0; q < 4; ++q) {
#pragma GCC unroll 2
      for (int v = 0; v < TV; ++v) {
        a[q][v] = splat(layer.ff1_bias[h + part + q]);
        g[q][v] = V{};
      }
    }
#pragma GCC unroll 16
    for (int c = 0; c < k; ++c) {
      V xv[TV], dv[TV];
#pragma GCC unroll 2
      for (int v = 0; v < TV; ++v) {
        xv[v] = load(x + c * tokens + v * VL);
        dv[v] = load(dy + c * tokens + v * VL);
      }
#pragma GCC unroll 4
      for (int q = 0; q < 4; ++q) {
        const V u1 = splat(w1[q * k + c]), u2 = splat(w2[q * k + c]);
#pragma GCC unroll 2
        for (int v = 0; v < TV; ++v) {
          a[q][v] += xv[v] * u1;
          g[q][v] += dv[v] * u2;
        }
      }
    }
#pragma GCC unroll 4
    for (int q = 0; q < 4; q += 2) {
#pragma GCC unroll 2
      for (int v = 0; v < TV; ++v) {
        VI keep0 = a[q][v] > 0.0F, keep1 = a[q + 1][v] > 0.0F;
        if (kDrop) {
          const VU mixed = (bits[v] ^ layer.hidden_bits[(h + part + q) / 2]) * kMaskMultiplier;
          keep0 &= keep_even(mixed, threshold);
          keep1 &= keep_odd(mixed, threshold);
        }
        a[q][v] = select(keep0, a[q][v]);
        a[q + 1][v] = select(keep1, a[q + 1][v]);
        g[q][v] = select(keep0, g[q][v]);
        g[q + 1][v] = select(keep1, g[q + 1][v]);
      }
    }
#pragma GCC unroll 4
    for (int q = 0; q < 4; ++q) {
#pragma GCC unroll 2
      for (int v = 0; v < TV; ++v) {
        store(hidden + (part + q) * row + v * VL, a[q][v]);
        store(d_hidden + (part + q) * row + v * VL, g[q][v]);
      }
    }
#pragma GCC unroll 16
    for (int c = 0; c < k; ++c) {
      V sum[TV];
#pragma GCC unroll 2
      for (int v = 0; v < TV; ++v) sum[v] = first && part == 0 ? V{} : load(dx + c * tokens + v * VL);
#pragma GCC unroll 4
      for (int q = 0; q < 4; ++q) {
        const V u1 = splat(w1[q * k + c]);
#pragma GCC unroll 2
        for (int v = 0; v < TV; ++v) sum[v] += g[q][v] * u1;
      }
#pragma GCC unroll 2
      for (int v = 0; v < TV; ++v) store(dx + c * tokens + v * VL, sum[v]);
    }
  }
}

template <int K, bool kDrop>
static void feed_forward_back(const LpeFeedForwardBackward& f) {
  const LpeShape& s = *f.shape;
  const LpeLayer& layer = *f.layer;
  const int k = K > 0 ? K : s.k;
  const int64_t tokens = s.tokens(), stride = tokens * k;
  const float scale = kDrop ? layer.hidden.scale : 1.0F;
  const int64_t together = tokens < kBackwardTokens ? kBackwardTokens / tokens : 1;
  for (int64_t first = 0; first < f.blocks; first += together) {
    const int64_t blocks = f.blocks - first < together ? f.blocks - first : together;
    const float *x1 = f.x1 + first * stride, *d_ff = f.d_ff + first * stride;
    float* d_x = f.d_x + first * stride;
    const int64_t row = together * tokens;
    float *hidden = f.scratch, *d_hidden = f.scratch + kHiddenStep * row;
    for (int h = f.begin; h < f.end; h += kHiddenStep) {
      for (int64_t block = 0; block < blocks; ++block) {
        const float *x = x1 + block * stride, *dy = d_ff + block * stride;
        float* dx = d_x + block * stride;
        float *ph = hidden + block * tokens, *pd = d_hidden + block * tokens;
        const uint32_t sequence = f.first_sequence + static_cast<uint32_t>((first + block) * kLanes);
        VU bits[2] = {};
        int64_t t = 0;
        for (; t + 2 * VL <= tokens; t += 2 * VL) {
          for (int v = 0; kDrop && v < 2; ++v) bits[v] = token_bits(layer.hidden.key, sequence, s.m, t + v * VL);
          feed_forward_back_group<K, 2, kDrop>(layer, k, tokens, h, x + t, dy + t, dx + t, h == f.begin, bits, ph + t, pd + t,
                                               row);
        }
        if (t < tokens) {
          if (kDrop) bits[0] = token_bits(layer.hidden.key, sequence, s.m, t);
          feed_forward_back_group<K, 1, kDrop>(layer, k, tokens, h, x + t, dy + t, dx + t, h == f.begin, bits, ph + t, pd + t,
                                               row);
        }
      }
      // Dropout's scale of the hidden units is applied here and below, once per sum instead of once per unit.
      float sums[kHiddenStep * (K > 0 ? K : kMaxLpeWidth)];
      for (int i = 0; i < kHiddenStep * k; ++i) sums[i] = 0;
      outer_sums(d_hidden, row, tokens, x1, tokens, stride, blocks, tokens, kHiddenStep, k, sums);
      for (int i = 0; i < kHiddenStep * k; ++i) {
        f.d_ff1[static_cast<int64_t>(h) * k + i] += sums[i] * scale;
        sums[i] = 0;
      }
      outer_sums(hidden, row, tokens, d_ff, tokens, stride, blocks, tokens, kHiddenStep, k, sums);
      for (int i = 0; i < kHiddenStep * k; ++i) f.d_ff2[static_cast<int64_t>(h) * k + i] += sums[i] * scale;
      for (int q = 0; q < kHiddenStep; ++q) f.d_ff1_bias[h + q] += row_sum(d_hidden + q * row, blocks * tokens) * scale;
    }
    if (kDrop) {
      for (int64_t i = 0; i < blocks * stride; i += VL) store(d_x + i, load(d_x + i) * scale);
    }
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

static void lpe_forward(const LpeBlock& b, float* x, const LpeSaved* saved) {
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
  feed_forward_any(b, x, y);
  drop_features(b, layer.feed_forward, y);
  for (int64_t i = 0; i < size; i += VL) store(x + i, load(x + i) + load(y + i));
  layer_norm(s.k, tokens, x, layer.norm2_weight, layer.norm2_bias, saved ? saved->hat2 : nullptr,
             saved ? saved->rstd2 : nullptr);
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
  for (int c = 0; c < k; ++c) {
    norm2[2 * k + c] += row_sum(n.d_ff + c * tokens, tokens);
    for (int64_t t = 0; t < tokens; t += VL) {
      store(n.x1 + c * tokens + t, load(n.saved.hat1 + c * tokens + t) * layer.norm1_weight[c] + layer.norm1_bias[c]);
    }
  }
}

static void lpe_attention_backward(const LpeAttentionBackward& a) {
  const LpeBlock& b = a.block;
  const LpeShape& s = *b.shape;
  const LpeLayer& layer = *b.layer;
  const int k = s.k, m = s.m, width = k / s.heads;
  const int64_t tokens = s.tokens(), size = k * tokens;
  float *qkv = b.scratch, *d_qkv = qkv + 3 * size, *mixed = d_qkv + 3 * size, *d_mixed = mixed + size, *d_y = d_mixed + size,
        *p = d_y + size, *dropped = p + tokens, *dp = dropped + tokens;
  float *g_in = a.gradients, *g_in_bias = g_in + 3 * k * k, *g_out = g_in_bias + 3 * k, *g_out_bias = g_out + k * k,
        *g_norm = g_out_bias + k;
  layer_norm_back(k, tokens, a.d, layer.norm1_weight, a.saved.hat1, a.saved.rstd1, g_norm, g_norm + k);
  copy_floats(a.d, d_y, size);
  drop_features(b, layer.output, d_y);
  lpe_linear_back(layer.out_weight, d_y, d_mixed, k, k, tokens, false);
  lpe_linear(layer.in_weight, layer.in_bias, a.saved.x, qkv, k, 3 * k, tokens);
  for (int64_t i = 0; i < 3 * size; i += VL) store(d_qkv + i, V{});

  const float scale = 1.0F / __builtin_sqrtf(static_cast<float>(width));
  const Dropout& drop = layer.attention;
  for (int lane = 0; lane < kLanes; lane += VL) {
    const VI counts = lane_counts(b, lane);
    for (int h = 0; h < s.heads; ++h) {
      const float* q = qkv + h * width * tokens + lane;
      const float *key = q + size, *v = key + size;
      float* dq = d_qkv + h * width * tokens + lane;
      float *dk = dq + size, *dv = dk + size;
      for (int i = 0; i < m; ++i) {
        attention_row(b, q - lane, key - lane, width, i, lane, counts, scale, p);
        VU bits{};
        if (drop.active()) bits = token_bits(drop.key, b.first_sequence, m, i * kLanes + lane);
        V dot{};  // sum of p * dp
        for (int j = 0; j < m; ++j) {
          const V weight = load(p + j * kLanes);
          VI keep = VI{} - 1;
          float factor = 1;
          if (drop.active()) {
            keep = keep_column(bits, drop, static_cast<uint32_t>(j + m * h));
            factor = drop.scale;
          }
          const V used = select(keep, weight * factor);
          V d{};
          for (int c = 0; c < width; ++c) {
            const V dm = load(d_mixed + (h * width + c) * tokens + i * kLanes + lane);
            d += dm * load(v + c * tokens + j * kLanes);
            store(dv + c * tokens + j * kLanes, load(dv + c * tokens + j * kLanes) + used * dm);
          }
          d = select(keep, d * factor);
          dot += d * weight;
          store(dropped + j * kLanes, used);
          store(dp + j * kLanes, d);
        }
        for (int c = 0; c < width; ++c) {
          V sum{};
          for (int j = 0; j < m; ++j) sum += load(dropped + j * kLanes) * load(v + c * tokens + j * kLanes);
          store(mixed + (h * width + c) * tokens + i * kLanes + lane, sum);
        }
        for (int j = 0; j < m; ++j) {
          const V ds = load(p + j * kLanes) * (load(dp + j * kLanes) - dot) * scale;
          for (int c = 0; c < width; ++c) {
            const int64_t at_i = c * tokens + i * kLanes, at_j = c * tokens + j * kLanes;
            store(dq + at_i, load(dq + at_i) + ds * load(key + at_j));
            store(dk + at_j, load(dk + at_j) + ds * load(q + at_i));
          }
        }
      }
    }
  }
  lpe_linear_gradient(d_y, mixed, g_out, g_out_bias, k, k, tokens);
  lpe_linear_gradient(d_qkv, a.saved.x, g_in, g_in_bias, k, 3 * k, tokens);
  lpe_linear_back(layer.in_weight, d_qkv, a.d, k, 3 * k, tokens, true);
}
