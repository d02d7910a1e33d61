// Attention over real edges and added pairs, and the layers around it, forward and backward.
#include "san/model/network_impl.h"

namespace san {
namespace {

constexpr float kAttentionEps = 1e-6F;
constexpr int64_t kPairsTogether = 256;  // edge LPE: pairs whose edge vectors exist at a time

}  // namespace

AttentionShape Network::Impl::attention_shape(const LayerWeights& l) const {
  AttentionShape s;
  s.d = l.out;
  s.heads = c.heads;
  s.ld = int64_t{l.out} * l.sections;
  s.q1 = 0;
  s.k1 = l.out;
  s.q2 = 2 * l.out;
  s.k2 = 3 * l.out;
  s.v = (l.sections - 1) * l.out;
  s.separate = c.attention_norm == AttentionNorm::kSeparate;
  s.real_weight = c.full() ? static_cast<float>(1 / (1 + c.gamma)) : 1.0F;
  s.added_weight = static_cast<float>(c.gamma / (1 + c.gamma));
  return s;
}

void Network::Impl::edge_tables(Work& w, ThreadPool& pool, const LayerWeights& l, LayerState& state) const {
  const int width = c.edge_embedding_dim();
  for (int kind = 0; kind < (c.full() ? 2 : 1); ++kind) {
    const int64_t rows = kind == 0 ? w.plan->types : 1;
    const float* e = w.edge_embedding + (kind == 0 ? 0 : int64_t{w.plan->types} * width);
    state.table[kind] = w.arena.take(std::max<int64_t>(1, rows) * l.out);
    product(pool, e, rows, width, l.edge[kind].table, l.out, state.table[kind]);
    kernels().bias_residual(state.table[kind], rows, l.out, l.edge[kind].bias, nullptr);
  }
}

template <typename Use>
void Network::Impl::explicit_pairs(const Work& w, const LayerWeights& l, const LayerState& state, int kind,
                                   bool as_target, int32_t node, Arena& arena, Use&& use) const {
  const NetworkPlan& plan = *w.plan;
  const Adjacency& a = as_target ? plan.in : plan.out;
  const int64_t begin = a.begin[static_cast<size_t>(node)], end = a.begin[static_cast<size_t>(node) + 1];
  if (!c.lpe.pairs()) {
    if (kind == 0 && end > begin) {
      use(PairList{end - begin, a.other.data() + begin, state.table[0], a.type.data() + begin}, nullptr,
          a.type.data() + begin);
    }
    return;
  }
  const int k = c.lpe.dim;
  std::vector<int32_t> other, type;
  std::vector<int64_t> code;
  float *rows = arena.take(kPairsTogether * l.out), *codes = arena.take(kPairsTogether * k);
  const auto flush = [&] {
    const auto count = static_cast<int64_t>(other.size());
    if (count == 0) return;
    for (int64_t p = 0; p < count; ++p) {
      std::copy_n(w.codes + code[static_cast<size_t>(p)] / 2 * k, k, codes + p * k);
      std::copy_n(state.table[kind] + int64_t{type[static_cast<size_t>(p)]} * l.out, l.out, rows + p * l.out);
    }
    kernels().gemm({count, l.out, k, l.edge[kind].code, l.out, codes, k, 1, rows, l.out, true});
    use(PairList{count, other.data(), rows, nullptr}, code.data(), type.data());
    other.clear();
    type.clear();
    code.clear();
  };
  const auto add = [&](int32_t j, int32_t t, int64_t at) {
    other.push_back(j);
    type.push_back(t);
    code.push_back(at);
    if (static_cast<int64_t>(other.size()) == kPairsTogether) flush();
  };
  if (kind == 0) {
    for (int64_t p = begin; p < end; ++p) {
      add(a.other[static_cast<size_t>(p)], a.type[static_cast<size_t>(p)], a.code[static_cast<size_t>(p)]);
    }
  } else {
    const int32_t graph = plan.graph_of[static_cast<size_t>(node)];
    const int32_t first = w.batch->node_offsets[static_cast<size_t>(graph)];
    const int32_t last = w.batch->node_offsets[static_cast<size_t>(graph) + 1];
    std::vector<bool> real(static_cast<size_t>(last - first));
    for (int64_t p = begin; p < end; ++p) real[static_cast<size_t>(a.other[static_cast<size_t>(p)] - first)] = true;
    real[static_cast<size_t>(node - first)] = true;
    for (int32_t j = first; j < last; ++j) {
      if (real[static_cast<size_t>(j - first)]) continue;
      const int32_t target = as_target ? node : j, source = as_target ? j : node;
      add(j, 0, 2 * plan.code_of(graph, *w.batch, source, target) + (target > source ? 1 : 0));
    }
  }
  flush();
}

template <typename All>
void Network::Impl::dense_graphs(const Work& w, const DenseTask& task, const AttentionShape& s, const LayerState& state,
                                 const float* scaled_q, const Adjacency& real, Arena& arena, All&& all) const {
  for (int32_t graph = task.graph_begin; graph < task.graph_end; ++graph) {
    const int32_t type = w.plan->dense_type[static_cast<size_t>(graph)];
    arena.reset();
    DenseGraph g{};
    g.shape = &s;
    g.projections = state.projections;
    g.e = state.table[1];
    g.scaled_q = scaled_q;
    if (type >= 0) {
      g.e1 = state.table[0] + int64_t{type} * s.d;
      g.scaled_q1 = scaled_q + w.nodes * s.d;
    }
    g.begin = w.batch->node_offsets[static_cast<size_t>(graph)];
    g.end = w.batch->node_offsets[static_cast<size_t>(graph) + 1];
    g.head_begin = task.head_begin;
    g.head_end = task.head_end;
    g.pair_begin = real.begin.data();
    g.other = real.other.data();
    g.scratch = arena.take(dense_scratch(s, g.end - g.begin, task.head_end - task.head_begin));
    all(g, type);
  }
}

void Network::Impl::attention_forward(Work& w, ThreadPool& pool, const LayerWeights& l, LayerState& state,
                                      const float* scaled_q) {
  const AttentionShape s = attention_shape(l);
  const NetworkPlan& plan = *w.plan;
  const Kernels& k = kernels();
  const int d = l.out, heads = c.heads;
  // Sums of weight * value and of weight, over the real edges and over the added pairs; with a joint norm over both.
  float *num[2] = {state.attention, state.attention}, *z[2] = {state.share[0], state.share[0]};
  if (s.separate) {
    num[1] = w.arena.take(w.nodes * d);
    z[1] = state.share[1];
  }
  pool.run(static_cast<int64_t>(plan.dense.size()), [&](int64_t task, int thread) {
    dense_graphs(w, plan.dense[static_cast<size_t>(task)], s, state, scaled_q, plan.out,
                 w.thread_arenas[static_cast<size_t>(thread)], [&](DenseGraph& g, int32_t) {
                   g.num = num[1];
                   g.z = z[1];
                   k.dense_forward(g);
                 });
  });
  pool.run(static_cast<int64_t>(plan.chunk_begin.size()) - 1, [&](int64_t chunk, int thread) {
    Arena& arena = w.thread_arenas[static_cast<size_t>(thread)];
    for (int64_t i = plan.chunk_begin[static_cast<size_t>(chunk)]; i < plan.chunk_begin[static_cast<size_t>(chunk) + 1];
         ++i) {
      const Tile& t = plan.tiles[static_cast<size_t>(i)];
      arena.reset();
      for (int kind = 0; kind < (s.separate ? 2 : 1); ++kind) {
        if (!plan.dense.empty() && num[kind] == num[1]) continue;  // set above
        std::fill_n(num[kind] + int64_t{t.first} * d, int64_t{t.lanes} * d, 0.0F);
        std::fill_n(z[kind] + int64_t{t.first} * heads, int64_t{t.lanes} * heads, 0.0F);
      }
      for (int32_t lane = 0; lane < t.lanes && t.dense_type < 0; ++lane) {
        const int64_t node = t.first + lane;
        for (int kind = 0; kind < (uses_added() && c.lpe.pairs() ? 2 : 1); ++kind) {
          explicit_pairs(w, l, state, kind, true, t.first + lane, arena,
                         [&](const PairList& pairs, const int64_t*, const int32_t*) {
                           k.pairs_forward({&s, state.projections, node, kind == 0, pairs, num[kind] + node * d,
                                            z[kind] + node * heads});
                         });
        }
      }
      for (int32_t lane = 0; lane < t.lanes; ++lane) {
        const int64_t node = t.first + lane;
        float* out = state.attention + node * d;
        if (!s.separate) {
          float* share = z[0] + node * heads;
          for (int h = 0; h < heads; ++h) share[h] = 1.0F / (share[h] + kAttentionEps);
          for (int f = 0; f < d; f += heads) {
            for (int h = 0; h < heads; ++h) out[f + h] *= share[h];
          }
          continue;
        }
        for (int h = 0; h < heads; ++h) {
          const float real = z[0][node * heads + h], added = z[1][node * heads + h];
          const float p0 = real > 0 ? s.real_weight : 0, p1 = added > 0 ? s.added_weight : 0, total = p0 + p1;
          const float share0 = p0 > 0 ? p0 / total / real : 0, share1 = p1 > 0 ? p1 / total / added : 0;
          state.share[0][node * heads + h] = share0;
          state.share[1][node * heads + h] = share1;
          for (int f = h; f < d; f += heads) {
            const float of_real = out[f], of_added = num[1][node * d + f];
            out[f] = of_real * share0 + of_added * share1;
            if (state.means[0] != nullptr) {
              state.means[0][node * d + f] = real > 0 ? of_real / real : 0;
              state.means[1][node * d + f] = added > 0 ? of_added / added : 0;
            }
          }
        }
      }
    }
  });
}

void Network::Impl::norm_ready(Work& w, const LayerWeights& l, LayerState& state, int n, const float* block_mean,
                               const float* block_m2, float* scale, float* shift) {
  if (!c.batch_norm) {
    std::fill(scale, scale + l.out, 1.0F);
    std::fill(shift, shift + l.out, 0.0F);
    return;
  }
  state.norm[n].mean = w.arena.take(l.out);
  state.norm[n].rstd = w.arena.take(l.out);
  if (w.training) {
    batch_statistics(l.batch_norm[n], block_mean, block_m2, w.nodes, state.norm[n]);
  } else {
    running_statistics(l.batch_norm[n], state.norm[n]);
  }
  norm_affine(l.batch_norm[n], state.norm[n], scale, shift);
}

void Network::Impl::layer_forward(Work& w, ThreadPool& pool, int number, float* h, float* scaled_q, float* next) {
  const LayerWeights& l = layers[static_cast<size_t>(number)];
  LayerState& state = w.layers[static_cast<size_t>(number)];
  const Kernels& k = kernels();
  const int64_t nodes = w.nodes, blocks = ceil_div(nodes, kRows);
  const int d = l.out, ld = d * l.sections;
  Laps laps(w.profile);
  state = {};
  state.h = h;
  edge_tables(w, pool, l, state);
  state.projections = w.arena.take(nodes * ld);
  state.attention = w.arena.take(nodes * d);
  const bool separate = c.attention_norm == AttentionNorm::kSeparate;
  state.share[0] = w.arena.take(nodes * c.heads);
  if (separate) {
    state.share[1] = w.arena.take(nodes * c.heads);
    state.means[0] = w.arena.take(nodes * d);
    state.means[1] = w.arena.take(nodes * d);
  } else {
    state.share[1] = state.share[0];
  }
  pool.run(blocks, [&](int64_t block, int) {
    const int64_t first = block * kRows, count = std::min(kRows, nodes - first);
    float* out = state.projections + first * ld;
    k.gemm({count, ld, l.in, l.projections, ld, h + first * l.in, l.in, 1, out, ld, false});
    if (c.bias) k.bias_residual(out, count, ld, l.projections_bias, nullptr);
    if (c.full()) scale_queries(w, state, l, first, count, scaled_q);
  });
  laps.add(Part::kProjections);
  attention_forward(w, pool, l, state, scaled_q);
  laps.add(Part::kAttention);

  const Dropout drop_attention = Dropout::make(w.training ? c.dropout : 0, w.seed, graph_site(number, 0));
  const Dropout drop_hidden = Dropout::make(w.training ? c.dropout : 0, w.seed, graph_site(number, 1));
  float *moments = w.arena.take(blocks * d), *moments2 = w.arena.take(blocks * d);
  float *scale = w.arena.take(d), *shift = w.arena.take(d);
  state.bn_in[0] = w.arena.take(nodes * d);
  state.bn_in[1] = w.arena.take(nodes * d);
  if (c.layer_norm && w.training) {
    for (int n = 0; n < 2; ++n) {
      state.ln_hat[n] = w.arena.take(nodes * d);
      state.ln_rstd[n] = w.arena.take(nodes);
    }
  }
  const auto finish = [&](int64_t block, int n, float* x) {  // LayerNorm and the moments of one block of rows
    const int64_t first = block * kRows, count = std::min(kRows, nodes - first);
    if (c.layer_norm) {
      k.row_norm(x, count, d, value(l.layer_norm[n]), value(l.layer_norm_bias[n]), static_cast<float>(kNormEps),
                 w.training ? state.ln_hat[n] + first * d : nullptr, w.training ? state.ln_rstd[n] + first : nullptr);
    }
    if (c.batch_norm && w.training) k.column_moments(x, count, d, d, moments + block * d, moments2 + block * d);
  };
  pool.run(blocks, [&](int64_t block, int thread) {
    const int64_t first = block * kRows, count = std::min(kRows, nodes - first);
    const float* attended = state.attention + first * d;
    if (drop_attention.active()) {
      Arena& arena = w.thread_arenas[static_cast<size_t>(thread)];
      arena.reset();
      float* dropped = arena.take(count * d);
      std::copy_n(attended, count * d, dropped);
      k.drop(dropped, count, d, drop_attention, first);
      attended = dropped;
    }
    float* x = state.bn_in[0] + first * d;
    k.gemm({count, d, d, l.o.forward, d, attended, d, 1, x, d, false});
    k.bias_residual(x, count, d, l.o.bias, l.residual ? h + first * d : nullptr);
    finish(block, 0, x);
  });
  norm_ready(w, l, state, 0, moments, moments2, scale, shift);
  state.x1 = w.arena.take(nodes * d);
  state.hidden = w.arena.take(nodes * 2 * d);
  pool.run(blocks, [&](int64_t block, int) {
    const int64_t first = block * kRows, count = std::min(kRows, nodes - first);
    float *x1 = state.x1 + first * d, *hidden = state.hidden + first * 2 * d, *y = state.bn_in[1] + first * d;
    k.affine(state.bn_in[0] + first * d, count, d, scale, shift, x1);
    k.gemm({count, 2 * d, d, l.ffn1.forward, 2 * d, x1, d, 1, hidden, 2 * d, false});
    k.bias_relu(hidden, count, 2 * d, l.ffn1.bias, drop_hidden, first);
    k.gemm({count, d, 2 * d, l.ffn2.forward, d, hidden, 2 * d, 1, y, d, false});
    k.bias_residual(y, count, d, l.ffn2.bias, l.residual ? x1 : nullptr);
    finish(block, 1, y);
  });
  norm_ready(w, l, state, 1, moments, moments2, scale, shift);
  pool.run(blocks, [&](int64_t block, int) {
    const int64_t first = block * kRows, count = std::min(kRows, nodes - first);
    k.affine(state.bn_in[1] + first * d, count, d, scale, shift, next + first * d);
  });
  laps.add(Part::kFeedForward);
}

void Network::Impl::scale_queries(const Work& w, const LayerState& state, const LayerWeights& l, int64_t first,
                                  int64_t count, float* scaled_q) {
  const Kernels& k = kernels();
  const int d = l.out, ld = d * l.sections;
  k.scale_rows(state.projections + first * ld + 2 * d, count, d, ld, state.table[1], kLog2E, scaled_q + first * d);
  const auto type_of = [&](int64_t r) {
    return w.plan->dense_type[static_cast<size_t>(w.plan->graph_of[static_cast<size_t>(r)])];
  };
  for (int64_t r = first, end = r; r < first + count; r = end) {
    const int32_t type = type_of(r);
    while (end < first + count && type_of(end) == type) ++end;
    if (type < 0) continue;
    k.scale_rows(state.projections + r * ld, end - r, d, ld, state.table[0] + int64_t{type} * d, kLog2E,
                 scaled_q + (w.nodes + r) * d);
  }
}

template <typename Each>
void Network::Impl::norm_backward(Work& w, ThreadPool& pool, const LayerWeights& l, const LayerState& state, int n,
                                  float* d_out, const std::vector<float*>& g, Each&& each) {
  const Kernels& k = kernels();
  const int64_t nodes = w.nodes, blocks = ceil_div(nodes, kRows);
  const int d = l.out;
  std::vector<float> scale(static_cast<size_t>(d)), s1(static_cast<size_t>(d)), s2(static_cast<size_t>(d));
  const NormState& norm = state.norm[n];
  if (c.batch_norm) {
    float *sums = w.arena.take(blocks * d), *sums_hat = w.arena.take(blocks * d);
    pool.run(blocks, [&](int64_t block, int) {
      const int64_t first = block * kRows, count = std::min(kRows, nodes - first);
      k.norm_sums(d_out + first * d, state.bn_in[n] + first * d, count, d, norm.mean, norm.rstd, sums + block * d,
                  sums_hat + block * d);
    });
    const BatchNorm& bn = l.batch_norm[n];
    for (int i = 0; i < d; ++i) {
      double total = 0, total_hat = 0;
      for (int64_t b = 0; b < blocks; ++b) {
        total += sums[b * d + i];
        total_hat += sums_hat[b * d + i];
      }
      g[static_cast<size_t>(bn.weight)][i] += static_cast<float>(total_hat);
      g[static_cast<size_t>(bn.bias)][i] += static_cast<float>(total);
      const auto count = static_cast<double>(nodes);
      scale[static_cast<size_t>(i)] = value(bn.weight)[i] * norm.rstd[i];
      s1[static_cast<size_t>(i)] = static_cast<float>(total / count);
      s2[static_cast<size_t>(i)] = static_cast<float>(norm.rstd[i] * total_hat / count);
    }
  }
  float *ln_weight = nullptr, *ln_bias = nullptr;
  if (c.layer_norm) {
    ln_weight = w.arena.zeros(blocks * d);
    ln_bias = w.arena.zeros(blocks * d);
  }
  pool.run(blocks, [&](int64_t block, int thread) {
    const int64_t first = block * kRows, count = std::min(kRows, nodes - first);
    float* rows = d_out + first * d;
    if (c.batch_norm) {
      k.norm_backward(rows, state.bn_in[n] + first * d, count, d, scale.data(), s1.data(), norm.mean, s2.data());
    }
    if (c.layer_norm) {
      k.row_norm_backward(rows, count, d, value(l.layer_norm[n]), state.ln_hat[n] + first * d, state.ln_rstd[n] + first,
                          ln_weight + block * d, ln_bias + block * d);
    }
    each(block, first, count, rows, thread);
  });
  if (c.layer_norm) {
    for (int64_t b = 0; b < blocks; ++b) {
      for (int i = 0; i < d; ++i) {
        g[static_cast<size_t>(l.layer_norm[n])][i] += ln_weight[b * d + i];
        g[static_cast<size_t>(l.layer_norm_bias[n])][i] += ln_bias[b * d + i];
      }
    }
  }
}

void Network::Impl::layer_backward(Work& w, ThreadPool& pool, int number, float* d_out, float* d_h, float* d_edges,
                                   float* d_slots, const std::vector<float*>& g) {
  const LayerWeights& l = layers[static_cast<size_t>(number)];
  const LayerState& state = w.layers[static_cast<size_t>(number)];
  const Kernels& k = kernels();
  const int64_t nodes = w.nodes;
  const int d = l.out, ld = d * l.sections, heads = c.heads;
  const bool separate = c.attention_norm == AttentionNorm::kSeparate;
  const Dropout drop_attention = Dropout::make(c.dropout, w.seed, graph_site(number, 0));
  const Dropout drop_hidden = Dropout::make(c.dropout, w.seed, graph_site(number, 1));
  Laps laps(w.profile);
  LayerGradients b;
  b.out = d_out;

  // The feed-forward block.
  b.hidden = w.arena.take(nodes * 2 * d);
  b.x1 = w.arena.take(nodes * d);
  norm_backward(w, pool, l, state, 1, d_out, g, [&](int64_t, int64_t first, int64_t count, float* rows, int) {
    float *hidden = b.hidden + first * 2 * d, *x = b.x1 + first * d;
    k.gemm({count, 2 * d, d, l.ffn2.backward, 2 * d, rows, d, 1, hidden, 2 * d, false});
    k.relu_backward(hidden, state.hidden + first * 2 * d, count * 2 * d, drop_hidden.scale);
    if (l.residual) std::copy_n(rows, count * d, x);
    k.gemm({count, d, 2 * d, l.ffn1.backward, d, hidden, 2 * d, 1, x, d, l.residual});
  });

  // Attention's output map.
  b.attention = w.arena.take(nodes * d);
  b.dropped = drop_attention.active() ? w.arena.take(nodes * d) : state.attention;
  b.dot[0] = w.arena.take(nodes * heads);
  b.dot[1] = separate ? w.arena.take(nodes * heads) : b.dot[0];
  b.scaled_q = c.full() ? w.arena.take(2 * nodes * d) : nullptr;
  norm_backward(w, pool, l, state, 0, b.x1, g, [&](int64_t, int64_t first, int64_t count, float* rows, int) {
    float* da = b.attention + first * d;
    k.gemm({count, d, d, l.o.backward, d, rows, d, 1, da, d, false});
    if (drop_attention.active()) {
      k.drop(da, count, d, drop_attention, first);
      std::copy_n(state.attention + first * d, count * d, b.dropped + first * d);
      k.drop(b.dropped + first * d, count, d, drop_attention, first);
    }
    for (int kind = 0; kind < (separate ? 2 : 1); ++kind) {
      k.head_dots(da, (separate ? state.means[kind] : state.attention) + first * d, count, d, heads,
                  b.dot[kind] + first * heads);
    }
    if (c.full()) scale_queries(w, state, l, first, count, b.scaled_q);
  });
  laps.add(Part::kFeedForwardBackward);

  attention_backward(w, pool, l, state, b, d_slots);
  laps.add(Part::kAttentionBackward);

  // The layer's input.
  pool.run(ceil_div(nodes, kRows), [&](int64_t block, int) {
    const int64_t first = block * kRows, count = std::min(kRows, nodes - first);
    if (l.residual) std::copy_n(b.x1 + first * d, count * d, d_h + first * d);
    k.gemm({count, l.in, ld, l.projections_back, l.in, b.projections + first * ld, ld, 1, d_h + first * l.in, l.in,
            l.residual});
  });
  laps.add(Part::kProjectionsBackward);

  weight_gradients(w, pool, l, state, b, g);
  laps.add(Part::kWeightGradients);
  edge_gradients(w, pool, l, b, d_edges, g);
  laps.add(Part::kEdgeGradients);
}

void Network::Impl::attention_backward(Work& w, ThreadPool& pool, const LayerWeights& l, const LayerState& state,
                                       LayerGradients& b, float* d_slots) {
  const Kernels& k = kernels();
  const NetworkPlan& plan = *w.plan;
  const AttentionShape s = attention_shape(l);
  const int d = l.out, code_k = c.lpe.pairs() ? c.lpe.dim : 0;
  const auto chunks = static_cast<int64_t>(plan.chunk_begin.size()) - 1;
  const auto dense = static_cast<int64_t>(plan.dense.size());
  const int64_t projections = w.nodes * d * l.sections;
  b.projections = dense == 0 ? w.arena.zeros(projections) : w.arena.take(projections);
  b.type_size = int64_t{plan.types} * d;
  b.code_size = int64_t{code_k} * d;
  b.type_parts = plan.own_rows ? 1 : chunks;
  b.types = w.arena.zeros(b.type_parts * std::max<int64_t>(1, b.type_size));
  b.dense_type_parts = plan.own_rows ? 0 : dense;
  b.dense_types = w.arena.zeros(b.dense_type_parts * b.type_size);
  b.added_parts = dense > 0 ? dense : chunks;
  b.added = w.arena.zeros(b.added_parts * d);
  b.code_parts = chunks;
  for (float*& weight : b.code_weight) weight = w.arena.zeros(chunks * std::max<int64_t>(1, b.code_size));

  pool.run(dense, [&](int64_t task, int thread) {
    dense_graphs(w, plan.dense[static_cast<size_t>(task)], s, state, b.scaled_q, plan.in,
                 w.thread_arenas[static_cast<size_t>(thread)], [&](DenseGraph& graph, int32_t type) {
                   graph.d_out = b.attention;
                   graph.share = state.share[1];
                   graph.dot = b.dot[1];
                   graph.d_projections = b.projections;
                   graph.d_e = b.added + task * d;
                   if (type >= 0) graph.d_e1 = b.dense_types + task * b.type_size + int64_t{type} * d;
                   k.dense_backward(graph);
                 });
  });
  pool.run(2 * chunks, [&](int64_t task, int thread) {
    const bool as_target = task % 2 == 0;
    const int64_t chunk = task / 2;
    Arena& arena = w.thread_arenas[static_cast<size_t>(thread)];
    float* types = plan.own_rows ? b.types : b.types + chunk * b.type_size;
    for (int64_t i = plan.chunk_begin[static_cast<size_t>(chunk)]; i < plan.chunk_begin[static_cast<size_t>(chunk) + 1];
         ++i) {
      const Tile& t = plan.tiles[static_cast<size_t>(i)];
      for (int32_t lane = 0; lane < t.lanes && t.dense_type < 0; ++lane) {
        const int32_t node = t.first + lane;
        for (int kind = 0; kind < (uses_added() && c.lpe.pairs() ? 2 : 1); ++kind) {
          arena.reset();
          explicit_pairs(
              w, l, state, kind, as_target, node, arena,
              [&](const PairList& pairs, const int64_t* codes, const int32_t* type) {
                PairsBackward p{&s,   state.projections, b.attention, state.share[kind], b.dot[kind],
                                node, kind == 0,         pairs,       b.projections,     nullptr};
                if (!as_target) {
                  k.pairs_backward_source(p);
                  return;
                }
                if (codes == nullptr) {
                  p.d_e = types;
                  k.pairs_backward_target(p);
                  return;
                }
                // Edge LPE: gradients of the pairs' vectors, shared out to the types, the codes and the codes' weights.
                float* rows = p.d_e = arena.zeros(pairs.count * d);
                k.pairs_backward_target(p);
                float* d_codes = arena.take(pairs.count * code_k);
                float* own = arena.take(pairs.count * code_k);
                k.gemm({pairs.count, code_k, d, l.edge[kind].code_back, code_k, rows, d, 1, d_codes, code_k, false});
                for (int64_t i = 0; i < pairs.count; ++i) {
                  float* slot = d_slots + codes[i] * code_k;
                  std::copy_n(w.codes + codes[i] / 2 * code_k, code_k, own + i * code_k);
                  for (int q = 0; q < code_k; ++q) slot[q] += d_codes[i * code_k + q];
                  float* to = kind == 0 ? types + int64_t{type[i]} * d : b.added + chunk * d;
                  for (int f = 0; f < d; ++f) to[f] += rows[i * d + f];
                }
                k.gemm({code_k, d, pairs.count, rows, d, own, 1, code_k, b.code_weight[kind] + chunk * b.code_size, d,
                        true});
              });
        }
      }
    }
  });
}

void Network::Impl::weight_gradients(Work& w, ThreadPool& pool, const LayerWeights& l, const LayerState& state,
                                     const LayerGradients& b, const std::vector<float*>& g) const {
  const int64_t nodes = w.nodes;
  const int d = l.out, ld = d * l.sections, width = d / c.heads;
  const auto grad = [&](int tensor) { return g[static_cast<size_t>(tensor)]; };
  float *d_stacked = w.arena.zeros(int64_t{ld} * l.in), *d_stacked_bias = w.arena.zeros(ld);
  float* d_o = w.arena.zeros(int64_t{d} * d);
  run_gradients(
      pool, {{b.projections, ld, ld, state.h, l.in, l.in, nodes, d_stacked, c.bias ? d_stacked_bias : nullptr},
             {b.x1, d, d, b.dropped, d, d, nodes, d_o, grad(l.o.bias_tensor)},
             {b.hidden, 2 * d, 2 * d, state.x1, d, d, nodes, grad(l.ffn1.weight_tensor), grad(l.ffn1.bias_tensor)},
             {b.out, d, d, state.hidden, 2 * d, 2 * d, nodes, grad(l.ffn2.weight_tensor), grad(l.ffn2.bias_tensor)}});
  for (int section = 0; section < l.sections; ++section) {
    float* to = grad(l.section_tensor[section]);
    for (int row = 0; row < d; ++row) {
      const int at = section * d + attention_order(row, width);
      for (int i = 0; i < l.in; ++i) to[int64_t{row} * l.in + i] += d_stacked[int64_t{at} * l.in + i];
      if (c.bias) grad(l.section_bias[section])[row] += d_stacked_bias[at];
    }
  }
  for (int o = 0; o < d; ++o) {
    for (int row = 0; row < d; ++row)
      grad(l.o.weight_tensor)[int64_t{o} * d + row] += d_o[int64_t{o} * d + attention_order(row, width)];
  }
}

void Network::Impl::edge_gradients(Work& w, ThreadPool& pool, const LayerWeights& l, LayerGradients& b, float* d_edges,
                                   const std::vector<float*>& g) const {
  const NetworkPlan& plan = *w.plan;
  const int d = l.out, width = d / c.heads, embedding = c.edge_embedding_dim();
  const int code_k = c.lpe.pairs() ? c.lpe.dim : 0;
  const auto grad = [&](int tensor) { return g[static_cast<size_t>(tensor)]; };
  // Parts in their order, whoever computed them.
  for (int64_t i = b.type_size; i < b.type_parts * b.type_size; ++i) b.types[i % b.type_size] += b.types[i];
  for (int64_t i = 0; i < b.dense_type_parts * b.type_size; ++i) b.types[i % b.type_size] += b.dense_types[i];
  for (int64_t i = d; i < b.added_parts * d; ++i) b.added[i % d] += b.added[i];
  for (float* weight : b.code_weight) {
    for (int64_t i = b.code_size; i < b.code_parts * b.code_size; ++i) weight[i % b.code_size] += weight[i];
  }
  const float scale = 1.0F / std::sqrt(static_cast<float>(width));
  for (int kind = 0; kind < (c.full() ? 2 : 1); ++kind) {
    const int64_t rows = kind == 0 ? plan.types : 1;
    const float* dy = kind == 0 ? b.types : b.added;
    const float* e = w.edge_embedding + (kind == 0 ? 0 : int64_t{plan.types} * embedding);
    float* de = d_edges + (kind == 0 ? 0 : int64_t{plan.types} * embedding);
    product(pool, dy, rows, d, l.edge[kind].table_back, embedding, de, true);
    float *dw = w.arena.zeros(int64_t{d} * embedding), *db = w.arena.zeros(d);
    run_gradients(pool, {{dy, d, d, e, embedding, embedding, rows, dw, db}});
    float* to = grad(l.edge[kind].weight_tensor);
    for (int row = 0; row < d; ++row) {
      const int at = attention_order(row, width);
      for (int i = 0; i < embedding; ++i) to[int64_t{row} * l.in + i] += dw[int64_t{at} * embedding + i] * scale;
      for (int i = 0; i < code_k; ++i)
        to[int64_t{row} * l.in + embedding + i] += b.code_weight[kind][int64_t{i} * d + at] * scale;
      if (l.edge[kind].bias_tensor >= 0) grad(l.edge[kind].bias_tensor)[row] += db[at] * scale;
    }
  }
}

}  // namespace san
