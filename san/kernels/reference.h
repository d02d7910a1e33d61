// The kernels' scalar definitions: the contracts of kernels.h as plain loops, in float or double. Slow; tests compare every CPU
// level with them. Memory has the layout of the contracts, without padding; shapes and dropout are the kernels' own types.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "san/kernels/kernels.h"

namespace san::reference {

// --- matrix products -------------------------------------------------------------------------------------------------

template <typename T>
void gemm(int64_t rows, int64_t columns, int64_t depth, const T* a, int64_t lda, const T* b, int64_t b_row,
          int64_t b_depth, T* c, int64_t ldc, bool accumulate) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t j = 0; j < columns; ++j) {
      T sum = accumulate ? c[r * ldc + j] : T{0};
      for (int64_t p = 0; p < depth; ++p) sum += b[r * b_row + p * b_depth] * a[p * lda + j];
      c[r * ldc + j] = sum;
    }
  }
}

// --- the LPE encoder -------------------------------------------------------------------------------------------------

// Where feature c of token t (position * 16 + lane) stands in an array of `width` features.
inline int64_t token_at(int width, int64_t t, int c) {
  return (t / kLanes * width + c) * kLanes + t % kLanes;
}

// As LpeLayer, LpeSaved.
template <typename T>
struct LpeWeights {
  const T *in_weight, *in_bias, *out_weight, *out_bias;
  const T *norm1_weight, *norm1_bias, *norm2_weight, *norm2_bias;
  const T *ff1, *ff1_bias, *ff2, *ff2_bias;
  Dropout attention, output, hidden, feed_forward;
};
template <typename T>
struct LpeStates {
  T *x, *hat1, *rstd1, *hat2, *rstd2;
};

// A block of kLanes sequences.
template <typename T>
struct LpeLayerOf {
  LpeShape shape;
  LpeWeights<T> weights;
  uint32_t first_sequence;
  const int32_t* counts;

  // Dropout's row of token t.
  uint32_t row(int64_t t) const {
    return (first_sequence + static_cast<uint32_t>(t % kLanes)) * static_cast<uint32_t>(shape.m) +
           static_cast<uint32_t>(t / kLanes);
  }
  T factor(const Dropout& dropout, int64_t t, int column) const {
    return dropout.active() ? T{dropout.factor(row(t), static_cast<uint32_t>(column))} : T{1};
  }
};

// Y[o][t] = bias[o] + sum_i W[o][i] X[i][t]
template <typename T>
void lpe_linear(const T* w, const T* bias, const T* x, T* y, int in, int out, int64_t tokens) {
  for (int64_t t = 0; t < tokens; ++t) {
    for (int o = 0; o < out; ++o) {
      T sum = bias == nullptr ? T{0} : bias[o];
      for (int i = 0; i < in; ++i) sum += w[o * in + i] * x[token_at(in, t, i)];
      y[token_at(out, t, o)] = sum;
    }
  }
}

// dW[o][i] += sum_t dY[o][t] X[i][t], db[o] += sum_t dY[o][t]
template <typename T>
void lpe_linear_gradient(const T* dy, const T* x, T* dw, T* db, int in, int out, int64_t tokens) {
  for (int64_t t = 0; t < tokens; ++t) {
    for (int o = 0; o < out; ++o) {
      const T d = dy[token_at(out, t, o)];
      for (int i = 0; i < in; ++i) dw[o * in + i] += d * x[token_at(in, t, i)];
      if (db != nullptr) db[o] += d;
    }
  }
}

// dX[i][t] += sum_o W[o][i] dY[o][t]
template <typename T>
void lpe_linear_back(const T* w, const T* dy, T* dx, int in, int out, int64_t tokens) {
  for (int64_t t = 0; t < tokens; ++t) {
    for (int o = 0; o < out; ++o) {
      for (int i = 0; i < in; ++i) dx[token_at(in, t, i)] += w[o * in + i] * dy[token_at(out, t, o)];
    }
  }
}

inline constexpr double kLpeEpsilon = 1e-5;

// LayerNorm over the features of every token, in place; hat and rstd [tokens] are what backward needs.
template <typename T>
void lpe_norm(int k, int64_t tokens, T* x, const T* weight, const T* bias, T* hat, T* rstd) {
  for (int64_t t = 0; t < tokens; ++t) {
    T mean = 0, variance = 0;
    for (int c = 0; c < k; ++c) mean += x[token_at(k, t, c)] / k;
    for (int c = 0; c < k; ++c) variance += (x[token_at(k, t, c)] - mean) * (x[token_at(k, t, c)] - mean) / k;
    rstd[t] = 1 / std::sqrt(variance + T{kLpeEpsilon});
    for (int c = 0; c < k; ++c) {
      const int64_t at = token_at(k, t, c);
      hat[at] = (x[at] - mean) * rstd[t];
      x[at] = hat[at] * weight[c] + bias[c];
    }
  }
}

// d: gradient of the norm's output -> of its input, in place; adds to the gradients of weight and bias.
template <typename T>
void lpe_norm_back(int k, int64_t tokens, T* d, const T* weight, const T* hat, const T* rstd, T* d_weight, T* d_bias) {
  for (int64_t t = 0; t < tokens; ++t) {
    T mean = 0, mean_hat = 0;  // of d * weight and of d * weight * hat
    for (int c = 0; c < k; ++c) {
      const int64_t at = token_at(k, t, c);
      d_weight[c] += d[at] * hat[at];
      d_bias[c] += d[at];
      mean += d[at] * weight[c] / k;
      mean_hat += d[at] * weight[c] * hat[at] / k;
    }
    for (int c = 0; c < k; ++c) {
      const int64_t at = token_at(k, t, c);
      d[at] = rstd[t] * (d[at] * weight[c] - mean - hat[at] * mean_hat);
    }
  }
}

// Softmax over the valid keys j of query i, head h and a lane: p[j]; zeros where there is no valid key.
template <typename T>
void lpe_attention_weights(const LpeLayerOf<T>& l, const T* qkv, int lane, int h, int i, T* p) {
  const LpeShape& s = l.shape;
  const int width = s.k / s.heads, valid = l.counts[lane];
  T largest = -1e30, sum = 0;
  for (int j = 0; j < s.m; ++j) {
    p[j] = 0;
    for (int c = h * width; c < (h + 1) * width; ++c) {
      p[j] += qkv[token_at(3 * s.k, i * kLanes + lane, c)] * qkv[token_at(3 * s.k, j * kLanes + lane, s.k + c)];
    }
    p[j] /= std::sqrt(static_cast<T>(width));
    if (j < valid) largest = std::max(largest, p[j]);
  }
  for (int j = 0; j < s.m; ++j) {
    p[j] = j < valid ? std::exp(p[j] - largest) : 0;
    sum += p[j];
  }
  for (int j = 0; j < s.m && sum > 0; ++j) p[j] /= sum;
}

// mixed = the heads' weighted means of the values, after dropout.
template <typename T>
void lpe_attention(const LpeLayerOf<T>& l, const T* qkv, T* mixed) {
  const LpeShape& s = l.shape;
  const int width = s.k / s.heads;
  std::vector<T> p(static_cast<size_t>(s.m));
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int h = 0; h < s.heads; ++h) {
      for (int i = 0; i < s.m; ++i) {
        const int64_t query = i * kLanes + lane;
        lpe_attention_weights(l, qkv, lane, h, i, p.data());
        for (int c = h * width; c < (h + 1) * width; ++c) {
          T sum = 0;
          for (int j = 0; j < s.m; ++j) {
            sum += p[static_cast<size_t>(j)] * l.factor(l.weights.attention, query, j + s.m * h) *
                   qkv[token_at(3 * s.k, j * kLanes + lane, 2 * s.k + c)];
          }
          mixed[token_at(s.k, query, c)] = sum;
        }
      }
    }
  }
}

// The argument of hidden unit h's ReLU for token t.
template <typename T>
T lpe_hidden(const LpeShape& s, const LpeWeights<T>& w, const T* x, int64_t t, int h) {
  T a = w.ff1_bias[h];
  for (int c = 0; c < s.k; ++c) a += w.ff1[h * s.k + c] * x[token_at(s.k, t, c)];
  return a;
}

// x [k][T] -> the layer's output, in place.
template <typename T>
void lpe_forward(const LpeLayerOf<T>& l, T* x, const LpeStates<T>& saved) {
  const LpeShape& s = l.shape;
  const LpeWeights<T>& w = l.weights;
  const int64_t tokens = s.tokens(), size = s.k * tokens;
  std::vector<T> qkv(static_cast<size_t>(3 * size)), mixed(static_cast<size_t>(size)), y(mixed);
  std::copy_n(x, size, saved.x);
  lpe_linear(w.in_weight, w.in_bias, x, qkv.data(), s.k, 3 * s.k, tokens);
  lpe_attention(l, qkv.data(), mixed.data());
  lpe_linear(w.out_weight, w.out_bias, mixed.data(), y.data(), s.k, s.k, tokens);
  for (int64_t t = 0; t < tokens; ++t) {
    for (int c = 0; c < s.k; ++c) {
      x[token_at(s.k, t, c)] += l.factor(w.output, t, c) * y[static_cast<size_t>(token_at(s.k, t, c))];
    }
  }
  lpe_norm(s.k, tokens, x, w.norm1_weight, w.norm1_bias, saved.hat1, saved.rstd1);
  for (int64_t t = 0; t < tokens; ++t) {
    for (int c = 0; c < s.k; ++c) y[static_cast<size_t>(token_at(s.k, t, c))] = w.ff2_bias[c];
    for (int h = 0; h < s.ff; ++h) {
      const T unit = std::max(lpe_hidden(s, w, x, t, h), T{0}) * l.factor(w.hidden, t, h);
      for (int c = 0; c < s.k; ++c) y[static_cast<size_t>(token_at(s.k, t, c))] += unit * w.ff2[h * s.k + c];
    }
  }
  for (int64_t t = 0; t < tokens; ++t) {
    for (int c = 0; c < s.k; ++c) {
      x[token_at(s.k, t, c)] += l.factor(w.feed_forward, t, c) * y[static_cast<size_t>(token_at(s.k, t, c))];
    }
  }
  lpe_norm(s.k, tokens, x, w.norm2_weight, w.norm2_bias, saved.hat2, saved.rstd2);
}

// The feed-forward maps of `count` tokens that are rows of x, `ld` apart: y[t] = the sum over hidden units, dropped out but not scaled, without
// the bias. rows: dropout's.
template <typename T>
void lpe_group_forward(const LpeShape& s, const LpeWeights<T>& w, int count, const uint32_t* rows, const T* x,
                       int64_t ld, T* y) {
  for (int t = 0; t < count; ++t) {
    for (int h = 0; h < s.ff; ++h) {
      T unit = w.ff1_bias[h];
      for (int c = 0; c < s.k; ++c) unit += w.ff1[h * s.k + c] * x[t * ld + c];
      if (unit <= 0 || w.hidden.factor(rows[t], static_cast<uint32_t>(h)) == 0) continue;
      for (int c = 0; c < s.k; ++c) y[t * ld + c] += unit * w.ff2[h * s.k + c];
    }
  }
}

// Backwards, given dy: adds to all the others.
template <typename T>
void lpe_group_backward(const LpeShape& s, const LpeWeights<T>& w, int count, const uint32_t* rows, const T* x,
                        int64_t ld, const T* dy, T* d_x, T* d_ff1, T* d_ff1_bias, T* d_ff2) {
  for (int t = 0; t < count; ++t) {
    for (int h = 0; h < s.ff; ++h) {
      T unit = w.ff1_bias[h], d = 0;
      for (int c = 0; c < s.k; ++c) unit += w.ff1[h * s.k + c] * x[t * ld + c];
      if (unit <= 0 || w.hidden.factor(rows[t], static_cast<uint32_t>(h)) == 0) continue;
      for (int c = 0; c < s.k; ++c) {
        d += w.ff2[h * s.k + c] * dy[t * ld + c];
        d_ff2[h * s.k + c] += unit * dy[t * ld + c];
      }
      d_ff1_bias[h] += d;
      for (int c = 0; c < s.k; ++c) {
        d_ff1[h * s.k + c] += d * x[t * ld + c];
        d_x[t * ld + c] += d * w.ff1[h * s.k + c];
      }
    }
  }
}

// Where the parts of LpeSmallGradients begin.
template <typename T>
struct LpeGradientParts {
  T *in_weight, *in_bias, *out_weight, *out_bias, *norm1_weight, *norm1_bias, *norm2_weight, *norm2_bias, *ff2_bias;
  LpeGradientParts(T* at, int k) {
    const auto next = [&at](int64_t count) {
      T* part = at;
      at += count;
      return part;
    };
    in_weight = next(int64_t{3} * k * k);
    in_bias = next(int64_t{3} * k);
    out_weight = next(int64_t{k} * k);
    for (T** part : {&out_bias, &norm1_weight, &norm1_bias, &norm2_weight, &norm2_bias, &ff2_bias}) *part = next(k);
  }
};

// See LpeNormBackward.
template <typename T>
void lpe_norm_backward(const LpeLayerOf<T>& l, const LpeStates<T>& saved, T* d_out, T* d_ff, T* x1, T* gradients) {
  const int k = l.shape.k;
  const LpeGradientParts<T> g(gradients, k);
  const int64_t tokens = l.shape.tokens();
  lpe_norm_back(k, tokens, d_out, l.weights.norm2_weight, saved.hat2, saved.rstd2, g.norm2_weight, g.norm2_bias);
  for (int64_t t = 0; t < tokens; ++t) {
    for (int c = 0; c < k; ++c) {
      const int64_t at = token_at(k, t, c);
      d_ff[at] = d_out[at] * l.factor(l.weights.feed_forward, t, c);
      g.ff2_bias[c] += d_ff[at];
      x1[at] = saved.hat1[at] * l.weights.norm1_weight[c] + l.weights.norm1_bias[c];
    }
  }
}

// See LpeFeedForwardBackward; one block.
template <typename T>
void lpe_feed_forward_backward(const LpeLayerOf<T>& l, int begin, int end, const T* x1, const T* d_ff, T* d_x, T* d_ff1,
                               T* d_ff1_bias, T* d_ff2) {
  const int k = l.shape.k;
  for (int64_t t = 0; t < l.shape.tokens(); ++t) {
    for (int c = 0; c < k; ++c) d_x[token_at(k, t, c)] = 0;
    for (int h = begin; h < std::min(end, l.shape.ff); ++h) {
      const T argument = lpe_hidden(l.shape, l.weights, x1, t, h), factor = l.factor(l.weights.hidden, t, h);
      if (argument <= 0) continue;
      T d = 0;
      for (int c = 0; c < k; ++c) {
        d += factor * l.weights.ff2[h * k + c] * d_ff[token_at(k, t, c)];
        d_ff2[h * k + c] += argument * factor * d_ff[token_at(k, t, c)];
      }
      d_ff1_bias[h] += d;
      for (int c = 0; c < k; ++c) {
        d_ff1[h * k + c] += d * x1[token_at(k, t, c)];
        d_x[token_at(k, t, c)] += d * l.weights.ff1[h * k + c];
      }
    }
  }
}

// See LpeAttentionBackward.
template <typename T>
void lpe_attention_backward(const LpeLayerOf<T>& l, const LpeStates<T>& saved, T* d, T* gradients) {
  const LpeShape& s = l.shape;
  const LpeWeights<T>& w = l.weights;
  const int k = s.k, width = k / s.heads;
  const int64_t tokens = s.tokens(), size = k * tokens;
  const LpeGradientParts<T> g(gradients, k);
  lpe_norm_back(k, tokens, d, w.norm1_weight, saved.hat1, saved.rstd1, g.norm1_weight, g.norm1_bias);

  const auto zeros = [](int64_t count) { return std::vector<T>(static_cast<size_t>(count)); };
  std::vector<T> qkv = zeros(3 * size), d_qkv = zeros(3 * size), mixed = zeros(size), d_mixed = zeros(size);
  std::vector<T> d_y(d, d + size), p = zeros(s.m), dp = zeros(s.m);
  for (int64_t t = 0; t < tokens; ++t) {
    for (int c = 0; c < k; ++c) d_y[static_cast<size_t>(token_at(k, t, c))] *= l.factor(w.output, t, c);
  }
  lpe_linear(w.in_weight, w.in_bias, saved.x, qkv.data(), k, 3 * k, tokens);
  lpe_attention(l, qkv.data(), mixed.data());
  lpe_linear_gradient(d_y.data(), mixed.data(), g.out_weight, g.out_bias, k, k, tokens);
  lpe_linear_back(w.out_weight, d_y.data(), d_mixed.data(), k, k, tokens);

  const auto at = [&](int64_t token, int feature) { return static_cast<size_t>(token_at(3 * k, token, feature)); };
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int h = 0; h < s.heads; ++h) {
      for (int i = 0; i < s.m; ++i) {
        const int64_t query = i * kLanes + lane;
        lpe_attention_weights(l, qkv.data(), lane, h, i, p.data());
        T dot = 0;  // sum of p * dp
        for (int j = 0; j < s.m; ++j) {
          const T factor = l.factor(w.attention, query, j + s.m * h), weight = p[static_cast<size_t>(j)];
          T sum = 0;
          for (int c = h * width; c < (h + 1) * width; ++c) {
            const T dm = d_mixed[static_cast<size_t>(token_at(k, query, c))];
            sum += dm * qkv[at(j * kLanes + lane, 2 * k + c)];
            d_qkv[at(j * kLanes + lane, 2 * k + c)] += weight * factor * dm;
          }
          dp[static_cast<size_t>(j)] = sum * factor;
          dot += weight * sum * factor;
        }
        for (int j = 0; j < s.m; ++j) {
          const T ds =
              p[static_cast<size_t>(j)] * (dp[static_cast<size_t>(j)] - dot) / std::sqrt(static_cast<T>(width));
          for (int c = h * width; c < (h + 1) * width; ++c) {
            d_qkv[at(query, c)] += ds * qkv[at(j * kLanes + lane, k + c)];
            d_qkv[at(j * kLanes + lane, k + c)] += ds * qkv[at(query, c)];
          }
        }
      }
    }
  }
  lpe_linear_gradient(d_qkv.data(), saved.x, g.in_weight, g.in_bias, k, 3 * k, tokens);
  lpe_linear_back(w.in_weight, d_qkv.data(), d, k, 3 * k, tokens);
}

// --- attention of the graph Transformer ------------------------------------------------------------------------------

inline constexpr double kScoreLimit = 5;

// Everything about attention that does not depend on the pair.
template <typename T>
struct AttentionOf {
  AttentionShape shape;
  const T* projections;
  // Backward.
  const T *d_out = nullptr, *share = nullptr, *dot = nullptr;
  T* d_projections = nullptr;

  int q_at(bool real) const { return real ? shape.q1 : shape.q2; }
  int k_at(bool real) const { return real ? shape.k1 : shape.k2; }
  const T* row(int64_t node, int offset) const { return projections + node * shape.ld + offset; }
  T* d_row(int64_t node, int offset) const { return d_projections + node * shape.ld + offset; }

  // Of one head, before the clamp. e: the pair's edge vector, already scaled.
  T score(int64_t target, int64_t source, bool real, const T* e, int head) const {
    const T *q = row(target, q_at(real)), *k = row(source, k_at(real));
    T sum = 0;
    for (int f = head; f < shape.d; f += shape.heads) sum += q[f] * k[f] * e[f];
    return sum;
  }
  T weight(T score, bool real) const {
    return std::exp(std::clamp(score, T{-kScoreLimit}, T{kScoreLimit})) *
           (real ? shape.real_weight : shape.added_weight);
  }
};

// One pair's share of the sums of its target: num [d], z [heads].
template <typename T>
void pair_forward(const AttentionOf<T>& a, int64_t target, int64_t source, bool real, const T* e, T* num, T* z) {
  const int heads = a.shape.heads;
  for (int h = 0; h < heads; ++h) {
    const T w = a.weight(a.score(target, source, real, e, h), real);
    z[h] += w;
    for (int f = h; f < a.shape.d; f += heads) num[f] += w * a.row(source, a.shape.v)[f];
  }
}

// One pair's gradients: as_target: of the target's q and of e (d_e may be null), else of the source's k and v.
template <typename T>
void pair_backward(const AttentionOf<T>& a, int64_t target, int64_t source, bool real, const T* e, bool as_target,
                   T* d_e) {
  const AttentionShape& s = a.shape;
  for (int h = 0; h < s.heads; ++h) {
    const T *q = a.row(target, a.q_at(real)), *k = a.row(source, a.k_at(real)), *v = a.row(source, s.v);
    const T* d_out = a.d_out + target * s.d;
    const T score = a.score(target, source, real, e, h);
    const T w = a.weight(score, real) * a.share[target * s.heads + h];
    T d_w = -a.dot[target * s.heads + h];
    for (int f = h; f < s.d; f += s.heads) d_w += d_out[f] * v[f];
    // A clamped score has no gradient.
    const T ds = std::abs(score) <= T{kScoreLimit} ? w * d_w : T{0};
    for (int f = h; f < s.d; f += s.heads) {
      if (as_target) {
        a.d_row(target, a.q_at(real))[f] += ds * k[f] * e[f];
        if (d_e != nullptr) d_e[f] += ds * k[f] * q[f];
      } else {
        a.d_row(source, a.k_at(real))[f] += ds * q[f] * e[f];
        a.d_row(source, s.v)[f] += w * d_out[f];
      }
    }
  }
}

// As PairList.
template <typename T>
struct PairsOf {
  int64_t count;
  const int32_t* other;
  const T* e;
  const int32_t* e_row;
  int64_t row(int64_t p) const { return e_row == nullptr ? p : e_row[p]; }
};

// See PairsForward.
template <typename T>
void pairs_forward(const AttentionOf<T>& a, int64_t node, bool real, const PairsOf<T>& pairs, T* num, T* z) {
  for (int64_t p = 0; p < pairs.count; ++p) {
    pair_forward(a, node, pairs.other[p], real, pairs.e + pairs.row(p) * a.shape.d, num, z);
  }
}

// See PairsBackward. d_e: rows like pairs.e, or null.
template <typename T>
void pairs_backward_target(const AttentionOf<T>& a, int64_t node, bool real, const PairsOf<T>& pairs, T* d_e) {
  for (int64_t p = 0; p < pairs.count; ++p) {
    const int64_t row = pairs.row(p) * a.shape.d;
    pair_backward(a, node, pairs.other[p], real, pairs.e + row, true, d_e == nullptr ? nullptr : d_e + row);
  }
}

template <typename T>
void pairs_backward_source(const AttentionOf<T>& a, int64_t node, bool real, const PairsOf<T>& pairs) {
  for (int64_t p = 0; p < pairs.count; ++p) {
    pair_backward<T>(a, pairs.other[p], node, real, pairs.e + pairs.row(p) * a.shape.d, false, nullptr);
  }
}

// As DenseGraph, all heads; queries are not scaled. source_begin, source: the real edges of each target.
template <typename T>
struct DenseOf {
  AttentionOf<T> attention;
  const T *e, *e1;  // e1 null: real edges are not worked on here
  int64_t begin, end;
  const int64_t* source_begin;
  const int32_t* source;

  // visit(target, source, real) for every pair.
  template <typename Visit>
  void each(Visit visit) const {
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t j = begin; j < end; ++j) {
        const bool real = std::count(source + source_begin[i], source + source_begin[i + 1], j) > 0;
        if (real ? e1 != nullptr : i != j) visit(i, j, real);
      }
    }
  }
};

// Adds to num [N][d], z [N][heads].
template <typename T>
void dense_forward(const DenseOf<T>& g, T* num, T* z) {
  const AttentionShape& s = g.attention.shape;
  g.each([&](int64_t i, int64_t j, bool real) {
    pair_forward(g.attention, i, j, real, real ? g.e1 : g.e, num + i * s.d, z + i * s.heads);
  });
}

template <typename T>
void dense_backward(const DenseOf<T>& g, T* d_e, T* d_e1) {
  g.each([&](int64_t i, int64_t j, bool real) {
    pair_backward(g.attention, i, j, real, real ? g.e1 : g.e, true, real ? d_e1 : d_e);
    pair_backward<T>(g.attention, i, j, real, real ? g.e1 : g.e, false, nullptr);
  });
}

// --- rows ------------------------------------------------------------------------------------------------------------

template <typename T>
void column_moments(const T* x, int64_t rows, int64_t d, int64_t ld, T* mean, T* m2) {
  for (int64_t c = 0; c < d; ++c) {
    mean[c] = m2[c] = 0;
    for (int64_t r = 0; r < rows; ++r) mean[c] += x[r * ld + c] / static_cast<T>(rows);
    for (int64_t r = 0; r < rows; ++r) m2[c] += (x[r * ld + c] - mean[c]) * (x[r * ld + c] - mean[c]);
  }
}

// f(r, c, element number) for every element of a matrix.
template <typename F>
void each_element(int64_t rows, int64_t d, F f) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < d; ++c) f(r, c, r * d + c);
  }
}

template <typename T>
void affine(const T* x, int64_t rows, int64_t d, const T* scale, const T* shift, T* y) {
  each_element(rows, d, [&](int64_t, int64_t c, int64_t i) { y[i] = x[i] * scale[c] + shift[c]; });
}

template <typename T>
void norm_sums(const T* dy, const T* x, int64_t rows, int64_t d, const T* mean, const T* rstd, T* sum_dy, T* sum_dyx) {
  for (int64_t c = 0; c < d; ++c) sum_dy[c] = sum_dyx[c] = 0;
  each_element(rows, d, [&](int64_t, int64_t c, int64_t i) {
    sum_dy[c] += dy[i];
    sum_dyx[c] += dy[i] * (x[i] - mean[c]) * rstd[c];
  });
}

template <typename T>
void norm_backward(T* dy, const T* x, int64_t rows, int64_t d, const T* scale, const T* s1, const T* mean,
                   const T* s2) {
  each_element(rows, d,
               [&](int64_t, int64_t c, int64_t i) { dy[i] = scale[c] * (dy[i] - s1[c] - (x[i] - mean[c]) * s2[c]); });
}

// hat and rstd may be null.
template <typename T>
void row_norm(T* x, int64_t rows, int64_t d, const T* weight, const T* bias, T epsilon, T* hat, T* rstd) {
  for (int64_t r = 0; r < rows; ++r) {
    T* row = x + r * d;
    T mean = 0, variance = 0;
    for (int64_t c = 0; c < d; ++c) mean += row[c] / static_cast<T>(d);
    for (int64_t c = 0; c < d; ++c) variance += (row[c] - mean) * (row[c] - mean) / static_cast<T>(d);
    const T scale = 1 / std::sqrt(variance + epsilon);
    if (rstd != nullptr) rstd[r] = scale;
    for (int64_t c = 0; c < d; ++c) {
      const T h = (row[c] - mean) * scale;
      if (hat != nullptr) hat[r * d + c] = h;
      row[c] = h * weight[c] + bias[c];
    }
  }
}

template <typename T>
void row_norm_backward(T* dy, int64_t rows, int64_t d, const T* weight, const T* hat, const T* rstd, T* d_weight,
                       T* d_bias) {
  for (int64_t r = 0; r < rows; ++r) {
    T mean = 0, mean_hat = 0;
    for (int64_t i = r * d; i < (r + 1) * d; ++i) {
      mean += dy[i] * weight[i - r * d] / static_cast<T>(d);
      mean_hat += dy[i] * weight[i - r * d] * hat[i] / static_cast<T>(d);
    }
    for (int64_t c = 0; c < d; ++c) {
      T& dx = dy[r * d + c];
      d_weight[c] += dx * hat[r * d + c];
      d_bias[c] += dx;
      dx = rstd[r] * (dx * weight[c] - mean - hat[r * d + c] * mean_hat);
    }
  }
}

template <typename T>
void scale_rows(const T* x, int64_t rows, int64_t d, int64_t ld, const T* scale, T factor, T* y) {
  each_element(rows, d, [&](int64_t r, int64_t c, int64_t i) { y[i] = x[r * ld + c] * scale[c] * factor; });
}

template <typename T>
void head_dots(const T* a, const T* b, int64_t rows, int d, int heads, T* out) {
  for (int64_t i = 0; i < rows * heads; ++i) out[i] = 0;
  each_element(rows, d, [&](int64_t r, int64_t c, int64_t i) { out[r * heads + c % heads] += a[i] * b[i]; });
}

template <typename T>
void drop(T* x, int64_t rows, int64_t d, const Dropout& dropout, int64_t first_row) {
  if (!dropout.active()) return;
  each_element(rows, d, [&](int64_t r, int64_t c, int64_t i) {
    x[i] *= T{dropout.factor(static_cast<uint32_t>(first_row + r), static_cast<uint32_t>(c))};
  });
}

template <typename T>
void bias_relu(T* x, int64_t rows, int64_t d, const T* bias, const Dropout& dropout, int64_t first_row) {
  each_element(rows, d, [&](int64_t, int64_t c, int64_t i) { x[i] = std::max(x[i] + bias[c], T{0}); });
  drop(x, rows, d, dropout, first_row);
}

template <typename T>
void relu_backward(T* d, const T* y, int64_t count, T scale) {
  for (int64_t i = 0; i < count; ++i) d[i] = y[i] > 0 ? d[i] * scale : T{0};
}

template <typename T>
void bias_residual(T* x, int64_t rows, int64_t d, const T* bias, const T* residual) {
  each_element(rows, d,
               [&](int64_t, int64_t c, int64_t i) { x[i] += bias[c] + (residual == nullptr ? T{0} : residual[i]); });
}

// See train/optimiser.h.
template <typename T>
void adam(T* p, const T* g, T* m, T* v, int64_t count, T beta1, T beta2, T rate, T root, T epsilon, T decay, T keep) {
  for (int64_t i = 0; i < count; ++i) {
    const T gradient = g[i] + decay * p[i];
    m[i] = beta1 * m[i] + (1 - beta1) * gradient;
    v[i] = beta2 * v[i] + (1 - beta2) * gradient * gradient;
    p[i] = keep * p[i] - rate * m[i] / (std::sqrt(v[i]) * root + epsilon);
  }
}

}  // namespace san::reference
