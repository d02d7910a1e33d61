// The LPE encoder. Lanes are sequences, so nothing is ever summed across a vector except for weight gradients.

constexpr float kLpeEps = 1e-5F;
// Where token t (position * 16 + lane) of feature 0 stands in an array of `width` features; feature c is c * 16 further on.
SAN_INLINE int64_t token_at(int width, int64_t t) { return t / kLanes * kLanes * width + t % kLanes; }

static void lpe_linear(const float* w, const float* bias, const float* x, float* y, int in, int out, int64_t tokens) {
  for (int64_t t = 0; t < tokens; t += VL) {
    const float* from = x + token_at(in, t);
    float* to = y + token_at(out, t);
    int o = 0;
    for (; o + 4 <= out; o += 4) {
      V acc[4];
#pragma GCC unroll 4
      for (int q = 0; q < 4; ++q) acc[q] = splat(bias == nullptr ? 0.0F : bias[o + q]);
      for (int i = 0; i < in; ++i) {
        const V xv = load(from + i * kLanes);
#pragma GCC unroll 4
        for (int q = 0; q < 4; ++q) acc[q] += xv * w[(o + q) * in + i];
      }
#pragma GCC unroll 4
      for (int q = 0; q < 4; ++q) store(to + (o + q) * kLanes, acc[q]);
    }
    for (; o < out; ++o) {
      V acc = splat(bias == nullptr ? 0.0F : bias[o]);
      for (int i = 0; i < in; ++i) acc += load(from + i * kLanes) * w[o * in + i];
      store(to + o * kLanes, acc);
    }
  }
}

// dX[i][t] (+)= sum_o W[o][i] dY[o][t]
static void lpe_linear_back(const float* w, const float* dy, float* dx, int in, int out, int64_t tokens, bool accumulate) {
  for (int64_t t = 0; t < tokens; t += VL) {
    const float* from = dy + token_at(out, t);
    float* to = dx + token_at(in, t);
    for (int i = 0; i < in; ++i) {
      V acc = accumulate ? load(to + i * kLanes) : V{};
      for (int o = 0; o < out; ++o) acc += load(from + o * kLanes) * w[o * in + i];
      store(to + i * kLanes, acc);
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

// Sum over tokens of feature c of an array of `width` features.
static float feature_sum(const float* x, int width, int c, int64_t tokens) {
  V acc{};
  for (int64_t t = 0; t < tokens; t += VL) acc += load(x + token_at(width, t) + c * kLanes);
  return sum_of(acc);
}

static void lpe_linear_gradient(const float* dy, const float* x, float* dw, float* db, int in, int out, int64_t tokens) {
  for (int o = 0; o < out; ++o) {
    int i = 0;
    for (; i + 4 <= in; i += 4) {
      V acc[4] = {};
      for (int64_t t = 0; t < tokens; t += VL) {
        const V d = load(dy + token_at(out, t) + o * kLanes);
        const float* from = x + token_at(in, t) + i * kLanes;
#pragma GCC unroll 4
        for (int q = 0; q < 4; ++q) acc[q] += d * load(from + q * kLanes);
      }
      for (int q = 0; q < 4; ++q) dw[o * in + i + q] += sum_of(acc[q]);
    }
    for (; i < in; ++i) {
      V acc{};
      for (int64_t t = 0; t < tokens; t += VL) {
        acc += load(dy + token_at(out, t) + o * kLanes) * load(x + token_at(in, t) + i * kLanes);
      }
      dw[o * in + i] += sum_of(acc);
    }
    if (db != nullptr) db[o] += feature_sum(dy, out, o, tokens);
  }
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
    const V r = inverse_root(variance * inverse + kLpeEps);
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

// Floats from one vector of tokens to the next: the next position, or the other lanes of the same one.
#if SAN_VL == 16
#define SAN_NEXT(v) ((v) * k * kLanes)
#else
#define SAN_NEXT(v) ((v) * VL)  // groups of two vectors start at an even one
#endif

// Hidden units are worked on kHiddenStep at a time for up to kTokenPiece tokens: rows of kTokenPiece floats that stay in the
// first-level cache between the products below. What keeps these fast, measured on Ice Lake: tiles of 4 x TV sums, because a
// load of a vector costs as much as two multiplications; inner loops that are NOT unrolled, because straight code of a few
// hundred instructions is bound by decoding.

// hidden[q][t] = relu(ff1[h + q] . x[:, t] + bias), dropped out but not scaled, for TV vectors of tokens. K = width, 0 = any.
template <int K, int TV, bool kDrop>
SAN_ALONE void hidden_units(const LpeLayer& layer, int width, int h, const float* __restrict x, const VU* bits,
                            float* __restrict hidden) {
  const int k = K > 0 ? K : width;
  const uint32_t threshold = layer.hidden.threshold;
  const float* w = layer.ff1 + static_cast<int64_t>(h) * k;
  for (int part = 0; part < kHiddenStep; part += 4, w += 4 * k, hidden += 4 * kTokenPiece) {
    V a[4][TV];
#pragma GCC unroll 4
    for (int q = 0; q < 4; ++q) {
#pragma GCC unroll 8
      for (int v = 0; v < TV; ++v) a[q][v] = splat(layer.ff1_bias[h + part + q]);
    }
#pragma GCC unroll 1
    for (int c = 0; c < k; ++c) {
      V xv[TV];
#pragma GCC unroll 8
      for (int v = 0; v < TV; ++v) xv[v] = load(x + c * kLanes + SAN_NEXT(v));
#pragma GCC unroll 4
      for (int q = 0; q < 4; ++q) {
        const V u = splat(w[q * k + c]);
#pragma GCC unroll 8
        for (int v = 0; v < TV; ++v) a[q][v] += xv[v] * u;
      }
    }
#pragma GCC unroll 2
    for (int q = 0; q < 4; q += 2) {
#pragma GCC unroll 8
      for (int v = 0; v < TV; ++v) {
        V a0 = maximum(a[q][v], V{}), a1 = maximum(a[q + 1][v], V{});
        if (kDrop) {
          const VU mixed = (bits[v] ^ layer.hidden_bits[(h + part + q) / 2]) * kMaskMultiplier;
          a0 = select(keep_even(mixed, threshold), a0);
          a1 = select(keep_odd(mixed, threshold), a1);
        }
        store(hidden + q * kTokenPiece + v * VL, a0);
        store(hidden + (q + 1) * kTokenPiece + v * VL, a1);
      }
    }
  }
}

// d_hidden[q][t] = ff2[h + q] . dy[:, t] where the hidden unit is not 0.
template <int K, int TV>
SAN_ALONE void hidden_gradients(const LpeLayer& layer, int width, int h, const float* __restrict dy,
                                const float* __restrict hidden, float* __restrict d_hidden) {
  const int k = K > 0 ? K : width;
  const float* w = layer.ff2 + static_cast<int64_t>(h) * k;
  for (int part = 0; part < kHiddenStep; part += 4, w += 4 * k, hidden += 4 * kTokenPiece, d_hidden += 4 * kTokenPiece) {
    V a[4][TV];
#pragma GCC unroll 4
    for (int q = 0; q < 4; ++q) {
#pragma GCC unroll 8
      for (int v = 0; v < TV; ++v) a[q][v] = V{};
    }
#pragma GCC unroll 1
    for (int c = 0; c < k; ++c) {
      V dv[TV];
#pragma GCC unroll 8
      for (int v = 0; v < TV; ++v) dv[v] = load(dy + c * kLanes + SAN_NEXT(v));
#pragma GCC unroll 4
      for (int q = 0; q < 4; ++q) {
        const V u = splat(w[q * k + c]);
#pragma GCC unroll 8
        for (int v = 0; v < TV; ++v) a[q][v] += dv[v] * u;
      }
    }
#pragma GCC unroll 4
    for (int q = 0; q < 4; ++q) {
#pragma GCC unroll 8
      for (int v = 0; v < TV; ++v) {
        const int64_t at = q * kTokenPiece + v * VL;
        store(d_hidden + at, select(load(hidden + at) > 0.0F, a[q][v]));
      }
    }
  }
}

// y[c][t] (+)= sum over kHiddenStep units of w[q][c] * hidden[q][t].
template <int K, int TV>
SAN_ALONE void from_hidden(const float* weights, int width, const float* __restrict hidden, float* __restrict y, bool first) {
  const int k = K > 0 ? K : width;
  for (int column = 0; column < k; column += 4) {
    const int last = k - 1 - column;  // a narrow last tile repeats its last column
    const int c1 = last < 1 ? last : 1, c2 = last < 2 ? last : 2, c3 = last < 3 ? last : 3;
    const float* w = weights + column;
    float* to = y + column * kLanes;
    V s0[TV], s1[TV], s2[TV], s3[TV];
#pragma GCC unroll 8
    for (int v = 0; v < TV; ++v) {
      s0[v] = first ? V{} : load(to + SAN_NEXT(v));
      s1[v] = first ? V{} : load(to + c1 * kLanes + SAN_NEXT(v));
      s2[v] = first ? V{} : load(to + c2 * kLanes + SAN_NEXT(v));
      s3[v] = first ? V{} : load(to + c3 * kLanes + SAN_NEXT(v));
    }
#pragma GCC unroll 1
    for (int q = 0; q < kHiddenStep; ++q, w += k) {
      const V u0 = splat(w[0]), u1 = splat(w[c1]), u2 = splat(w[c2]), u3 = splat(w[c3]);
#pragma GCC unroll 8
      for (int v = 0; v < TV; ++v) {
        const V g = load(hidden + q * kTokenPiece + v * VL);
        s0[v] += g * u0;
        s1[v] += g * u1;
        s2[v] += g * u2;
        s3[v] += g * u3;
      }
    }
#pragma GCC unroll 8
    for (int v = 0; v < TV; ++v) {
      store(to + SAN_NEXT(v), s0[v]);
      store(to + c1 * kLanes + SAN_NEXT(v), s1[v]);
      store(to + c2 * kLanes + SAN_NEXT(v), s2[v]);
      store(to + c3 * kLanes + SAN_NEXT(v), s3[v]);
    }
  }
}

// Calls work.operator()<TV>(t) for groups of vectors that cover `count` tokens, t = a group's first.
template <class Work>
SAN_INLINE void token_groups(int64_t count, const Work& work) {
  int64_t t = 0;
#if SAN_VL == 16
  constexpr int kMost = 5;
#else
  constexpr int kMost = 2;
#endif
  while (t < count) {
    const int64_t left = (count - t + VL - 1) / VL, groups = (left + kMost - 1) / kMost;
#if SAN_VL == 16
    const int64_t take = (left + groups - 1) / groups;  // 6 = 3 + 3, not 5 + 1
#else
    const int64_t take = left < kMost ? left : kMost;
#endif
    switch (take) {
#if SAN_VL == 16
      case 5:
        work.template operator()<5>(t);
        break;
      case 4:
        work.template operator()<4>(t);
        break;
      case 3:
        work.template operator()<3>(t);
        break;
#endif
      case 2:
        work.template operator()<2>(t);
        break;
      default:
        work.template operator()<1>(t);
    }
    t += take * VL;
  }
}

// y[c][t] = sum over hidden units of ff2[h][c] * relu(ff1[h] . x[:, t] + bias), dropped out.
template <int K, bool kDrop>
static void feed_forward(const LpeBlock& b, const float* __restrict x, float* __restrict y, float* __restrict hidden) {
  const int k = K > 0 ? K : b.shape->k;
  const int64_t tokens = b.shape->tokens();
  const LpeLayer& layer = *b.layer;
  for (int64_t from = 0; from < tokens; from += kTokenPiece) {
    const int64_t count = tokens - from < kTokenPiece ? tokens - from : kTokenPiece;
    VU bits[kTokenPiece / VL];
    for (int64_t t = 0; kDrop && t < count; t += VL) {
      bits[t / VL] = token_bits(layer.hidden.key, b.first_sequence, b.shape->m, from + t);
    }
    for (int h = 0; h < b.shape->ff_padded; h += kHiddenStep) {
      token_groups(count, [&]<int TV>(int64_t t) {
        const int64_t at = token_at(k, from + t);
        hidden_units<K, TV, kDrop>(layer, k, h, x + at, bits + t / VL, hidden + t);
        from_hidden<K, TV>(layer.ff2 + static_cast<int64_t>(h) * k, k, hidden + t, y + at, h == 0);
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
static void feed_forward_k(const LpeBlock& b, const float* x, float* y, float* hidden) {
  b.layer->hidden.active() ? feed_forward<K, true>(b, x, y, hidden) : feed_forward<K, false>(b, x, y, hidden);
}

static void feed_forward_any(const LpeBlock& b, const float* x, float* y, float* hidden) {
  switch (b.shape->k) {
    case 4:
      return feed_forward_k<4>(b, x, y, hidden);
    case 8:
      return feed_forward_k<8>(b, x, y, hidden);
#if SAN_VL == 16
    case 12:
      return feed_forward_k<12>(b, x, y, hidden);
    case 16:
      return feed_forward_k<16>(b, x, y, hidden);
#endif
    default:
      return feed_forward_k<0>(b, x, y, hidden);
  }
}

// acc[a][b] += A[a][t] * B[b][t] lane by lane, for kHiddenStep rows of A (kTokenPiece apart) and the features of B, whose
// token `from` is A's first: sums over lanes are left for later. acc holds rows of k vectors.
template <int K>
SAN_ALONE void outer_lanes(const float* __restrict a, const float* __restrict b, int width, int64_t from, int64_t tokens,
                           float* __restrict acc) {
  constexpr int kRows = VL / 4;
  const int k = K > 0 ? K : width;
  for (int row = 0; row < kHiddenStep; row += kRows) {
    for (int column = 0; column < k; column += 4) {
      const int last = k - 1;  // a narrow last tile repeats its last column and does not store it twice
      const int c1 = column + 1 < k ? column + 1 : last, c2 = column + 2 < k ? column + 2 : last,
                c3 = column + 3 < k ? column + 3 : last;
      const float* pa = a + row * kTokenPiece;
      V sum[4 * kRows];
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const float* start = acc + (row + r) * k * VL;
        sum[4 * r] = load(start + column * VL);
        sum[4 * r + 1] = load(start + c1 * VL);
        sum[4 * r + 2] = load(start + c2 * VL);
        sum[4 * r + 3] = load(start + c3 * VL);
      }
      for (int64_t t = 0; t < tokens; t += VL) {
        const float* pb = b + token_at(k, from + t);
        const V x0 = load(pb + column * kLanes), x1 = load(pb + c1 * kLanes), x2 = load(pb + c2 * kLanes),
                x3 = load(pb + c3 * kLanes);
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) {
          const V y = load(pa + r * kTokenPiece + t);
          sum[4 * r] += y * x0;
          sum[4 * r + 1] += y * x1;
          sum[4 * r + 2] += y * x2;
          sum[4 * r + 3] += y * x3;
        }
      }
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        float* to = acc + (row + r) * k * VL;
        if (c3 == column + 3) store(to + c3 * VL, sum[4 * r + 3]);
        if (c2 == column + 2) store(to + c2 * VL, sum[4 * r + 2]);
        if (c1 == column + 1) store(to + c1 * VL, sum[4 * r + 1]);
        store(to + column * VL, sum[4 * r]);
      }
    }
  }
}

// out[i] += scale * the sum of the lanes of vector i, for `count` vectors.
static void add_lane_sums(const float* acc, int64_t count, float scale, float* out) {
  for (; count >= VL; count -= VL, acc += VL * VL, out += VL) {
    V v[VL];
#pragma GCC unroll 16
    for (int q = 0; q < VL; ++q) v[q] = load(acc + q * VL);
    store(out, load(out) + sums_of(v) * scale);
  }
  for (; count > 0; --count, acc += VL, ++out) *out += scale * sum_of(load(acc));
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
  for (int h = f.begin; h < f.end; h += kHiddenStep) {
    for (int64_t i = 0; i < (2 * k + 1) * kHiddenStep * VL; i += VL) store(acc1 + i, V{});
    // Blocks lie one after the other, so that a piece may run over from one into the next.
    for (int64_t from = 0; from < all; from += piece) {
      const int64_t count = all - from < piece ? all - from : piece;
      token_groups(count, [&]<int TV>(int64_t t) {
        VU bits[TV];
        for (int v = 0; kDrop && v < TV; ++v) {
          const int64_t token = from + t + v * VL;
          const auto sequence = static_cast<uint32_t>(token / tokens * kLanes);
          bits[v] = token_bits(layer.hidden.key, f.first_sequence + sequence, s.m, token % tokens);
        }
        const int64_t at = token_at(k, from + t);
        hidden_units<K, TV, kDrop>(layer, k, h, f.x1 + at, bits, hidden + t);
        hidden_gradients<K, TV>(layer, k, h, f.d_ff + at, hidden + t, d_hidden + t);
        from_hidden<K, TV>(layer.ff1 + static_cast<int64_t>(h) * k, k, d_hidden + t, f.d_x + at, h == f.begin);
      });
      outer_lanes<K>(d_hidden, f.x1, k, from, count, acc1);
      outer_lanes<K>(hidden, f.d_ff, k, from, count, acc2);
      for (int q = 0; q < kHiddenStep; ++q) {
        V sum0 = load(acc_bias + q * VL), sum1{};
        int64_t t = 0;
        for (; t + 2 * VL <= count; t += 2 * VL) {
          sum0 += load(d_hidden + q * piece + t);
          sum1 += load(d_hidden + q * piece + t + VL);
        }
        if (t < count) sum0 += load(d_hidden + q * piece + t);
        store(acc_bias + q * VL, sum0 + sum1);
      }
    }
    add_lane_sums(acc1, kHiddenStep * k, scale, f.d_ff1 + static_cast<int64_t>(h) * k);
    add_lane_sums(acc2, kHiddenStep * k, scale, f.d_ff2 + static_cast<int64_t>(h) * k);
    add_lane_sums(acc_bias, kHiddenStep, scale, f.d_ff1_bias + h);
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

static void lpe_forward(const LpeBlock& b, float* x, const LpeSaved* saved) {
  const LpeShape& s = *b.shape;
  const LpeLayer& layer = *b.layer;
  const int64_t tokens = s.tokens(), size = s.k * tokens;
  float *qkv = b.scratch, *mixed = qkv + 3 * size, *y = mixed + size, *p = y + size;  // p: then hidden units
  if (saved != nullptr) copy_floats(x, saved->x, size);
  lpe_linear(layer.in_weight, layer.in_bias, x, qkv, s.k, 3 * s.k, tokens);
  lpe_attention(b, qkv, mixed, p);
  lpe_linear(layer.out_weight, layer.out_bias, mixed, y, s.k, s.k, tokens);
  drop_features(b, layer.output, y);
  for (int64_t i = 0; i < size; i += VL) store(x + i, load(x + i) + load(y + i));
  layer_norm(s.k, tokens, x, layer.norm1_weight, layer.norm1_bias, saved ? saved->hat1 : nullptr,
             saved ? saved->rstd1 : nullptr);
  feed_forward_any(b, x, y, p);
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
  for (int c = 0; c < k; ++c) norm2[2 * k + c] += feature_sum(n.d_ff, k, c, tokens);
  for (int64_t t = 0; t < tokens; t += VL) {
    const int64_t at = token_at(k, t);
    for (int c = 0; c < k; ++c) {
      store(n.x1 + at + c * kLanes, load(n.saved.hat1 + at + c * kLanes) * layer.norm1_weight[c] + layer.norm1_bias[c]);
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

  const int64_t step = int64_t{3} * k * kLanes;
  const float scale = 1.0F / __builtin_sqrtf(static_cast<float>(width));
  const Dropout& drop = layer.attention;
  for (int lane = 0; lane < kLanes; lane += VL) {
    const VI counts = lane_counts(b, lane);
    for (int h = 0; h < s.heads; ++h) {
      const float* q = qkv + h * width * kLanes + lane;
      const float *key = q + k * kLanes, *v = key + k * kLanes;
      float* dq = d_qkv + h * width * kLanes + lane;
      float *dk = dq + k * kLanes, *dv = dk + k * kLanes;
      for (int i = 0; i < m; ++i) {
        attention_row(m, q, key, step, width, i, counts, scale, p);
        const int64_t own = (int64_t{i} * k + h * width) * kLanes + lane;
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
            const int64_t at = j * step + c * kLanes;
            const V dm = load(d_mixed + own + c * kLanes);
            d += dm * load(v + at);
            store(dv + at, load(dv + at) + used * dm);
          }
          d = select(keep, d * factor);
          dot += d * weight;
          store(dropped + j * kLanes, used);
          store(dp + j * kLanes, d);
        }
        for (int c = 0; c < width; ++c) {
          V sum{};
          for (int j = 0; j < m; ++j) sum += load(dropped + j * kLanes) * load(v + j * step + c * kLanes);
          store(mixed + own + c * kLanes, sum);
        }
        for (int j = 0; j < m; ++j) {
          const V ds = load(p + j * kLanes) * (load(dp + j * kLanes) - dot) * scale;
          for (int c = 0; c < width; ++c) {
            const int64_t at_i = i * step + c * kLanes, at_j = j * step + c * kLanes;
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
