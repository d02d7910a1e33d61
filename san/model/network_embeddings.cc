// Features of nodes and edges as vectors, and the way back.
#include "san/model/network_impl.h"

namespace san {
namespace {

// visit(node, type) for each real edge, by target.
template <typename Visit>
void for_incoming(const NetworkPlan& plan, int64_t nodes, const Visit& visit) {
  for (int64_t node = 0; node < nodes; ++node) {
    for (int64_t p = plan.in.begin[static_cast<size_t>(node)]; p < plan.in.begin[static_cast<size_t>(node) + 1]; ++p) {
      visit(node, plan.in.type[static_cast<size_t>(p)]);
    }
  }
}

}  // namespace

void Network::Impl::embed_row(const Embedding& e, const Features& f, int64_t row, float* out) const {
  std::fill(out, out + e.width, 0.0F);
  const auto tables = static_cast<int64_t>(e.tables.size());
  for (int64_t t = 0; t < tables; ++t) {
    const int32_t category = f.categories[static_cast<size_t>(row * tables + t)];
    const float* from = value(e.tables[static_cast<size_t>(t)]) + int64_t{category} * e.width;
    for (int i = 0; i < e.width; ++i) out[i] += from[i];
  }
  if (f.value_columns == 0) return;
  const float *w = value(e.weight), *b = value(e.bias), *x = f.values.data() + row * f.value_columns;
  for (int i = 0; i < e.width; ++i) {
    float sum = b[i];
    for (int v = 0; v < f.value_columns; ++v) sum += w[int64_t{i} * f.value_columns + v] * x[v];
    out[i] += sum;
  }
}

void Network::Impl::embed_row_back(const Embedding& e, const Features& f, int64_t row, const float* d,
                                   const std::vector<float*>& g) const {
  const auto tables = static_cast<int64_t>(e.tables.size());
  for (int64_t t = 0; t < tables; ++t) {
    const int32_t category = f.categories[static_cast<size_t>(row * tables + t)];
    float* to = g[static_cast<size_t>(e.tables[static_cast<size_t>(t)])] + int64_t{category} * e.width;
    for (int i = 0; i < e.width; ++i) to[i] += d[i];
  }
  if (f.value_columns == 0) return;
  float *w = g[static_cast<size_t>(e.weight)], *b = g[static_cast<size_t>(e.bias)];
  const float* x = f.values.data() + row * f.value_columns;
  for (int i = 0; i < e.width; ++i) {
    b[i] += d[i];
    for (int v = 0; v < f.value_columns; ++v) w[int64_t{i} * f.value_columns + v] += d[i] * x[v];
  }
}

void Network::Impl::add_incident_edges(Work& w) const {
  const NetworkPlan& plan = *w.plan;
  const int width = incident_embedding.width;
  const Arena::Mark mark = w.arena.mark();
  float* rows = w.arena.take(int64_t{plan.types} * width);
  for (int32_t t = 0; t < plan.types; ++t) {
    embed_row(incident_embedding, w.batch->edge_features, plan.type_edge[static_cast<size_t>(t)],
              rows + int64_t{t} * width);
  }
  for_incoming(plan, w.nodes, [&](int64_t node, int64_t type) {
    for (int i = 0; i < width; ++i) w.node_embedding[node * width + i] += rows[type * width + i];
  });
  w.arena.rewind(mark);
}

void Network::Impl::incident_edges_back(Work& w, const float* d_nodes, const std::vector<float*>& g) const {
  const NetworkPlan& plan = *w.plan;
  const int width = incident_embedding.width;
  const Arena::Mark mark = w.arena.mark();
  float* rows = w.arena.zeros(int64_t{plan.types} * width);
  for_incoming(plan, w.nodes, [&](int64_t node, int64_t type) {
    for (int i = 0; i < width; ++i) rows[type * width + i] += d_nodes[node * width + i];
  });
  for (int32_t t = 0; t < plan.types; ++t) {
    embed_row_back(incident_embedding, w.batch->edge_features, plan.type_edge[static_cast<size_t>(t)],
                   rows + int64_t{t} * width, g);
  }
  w.arena.rewind(mark);
}

void Network::Impl::extra_mlp(Work& w, ThreadPool& pool, float* x, int64_t rows, const BatchNorm& norm, const Map& map,
                              const std::vector<float>* weights, Work::Mlp& state) {
  const int width = norm.width;
  state.norm.mean = w.arena.take(width);
  state.norm.rstd = w.arena.take(width);
  state.input = w.arena.take(rows * width);
  state.active = w.arena.take(rows * width);
  std::copy_n(x, rows * width, state.input);
  if (w.training) {
    for (int i = 0; i < width; ++i) {
      double mean = 0, m2 = 0, count = 0;
      for (int64_t r = 0; r < rows; ++r) {
        const double n = weights == nullptr ? 1.0 : (*weights)[static_cast<size_t>(r)];
        mean += n * x[r * width + i];
        count += n;
      }
      mean /= count;
      for (int64_t r = 0; r < rows; ++r) {
        const double n = weights == nullptr ? 1.0 : (*weights)[static_cast<size_t>(r)];
        m2 += n * (x[r * width + i] - mean) * (x[r * width + i] - mean);
      }
      set_statistics(norm, i, mean, m2, count, state.norm);
    }
  } else {
    running_statistics(norm, state.norm);
  }
  std::vector<float> scale(static_cast<size_t>(width)), shift(static_cast<size_t>(width));
  norm_affine(norm, state.norm, scale.data(), shift.data());
  kernels().affine(x, rows, width, scale.data(), shift.data(), state.active);
  for (int64_t i = 0; i < rows * width; ++i) state.active[i] = std::max(state.active[i], 0.0F);
  product(pool, state.active, rows, width, map.forward, width, x);
  kernels().bias_residual(x, rows, width, map.bias, nullptr);
}

void Network::Impl::extra_mlp_back(Work& w, ThreadPool& pool, float* d, int64_t rows, const BatchNorm& norm,
                                   const Map& map, const std::vector<float>* weights, const Work::Mlp& state,
                                   const std::vector<float*>& g) {
  const int width = norm.width;
  run_gradients(pool, {{d, width, width, state.active, width, width, rows, g[static_cast<size_t>(map.weight_tensor)],
                        g[static_cast<size_t>(map.bias_tensor)]}});
  float* active = w.arena.take(rows * width);
  product(pool, d, rows, width, map.backward, width, active);
  double total = 0;
  for (int64_t r = 0; r < rows; ++r) total += weights == nullptr ? 1.0 : (*weights)[static_cast<size_t>(r)];
  for (int i = 0; i < width; ++i) {
    const double mean = state.norm.mean[i], rstd = state.norm.rstd[i], weight = value(norm.weight)[i];
    double s1 = 0, s2 = 0;
    for (int64_t r = 0; r < rows; ++r) {
      if (state.active[r * width + i] <= 0) active[r * width + i] = 0;
      s1 += active[r * width + i];
      s2 += active[r * width + i] * (state.input[r * width + i] - mean) * rstd;
    }
    g[static_cast<size_t>(norm.weight)][i] += static_cast<float>(s2);
    g[static_cast<size_t>(norm.bias)][i] += static_cast<float>(s1);
    for (int64_t r = 0; r < rows; ++r) {
      const double n = weights == nullptr ? 1.0 : (*weights)[static_cast<size_t>(r)];
      const double hat = (state.input[r * width + i] - mean) * rstd;
      d[r * width + i] = static_cast<float>(weight * rstd * (active[r * width + i] - n * (s1 + hat * s2) / total));
    }
  }
}

void Network::Impl::embed_edges(Work& w, ThreadPool& pool) {
  const NetworkPlan& plan = *w.plan;
  const int width = c.edge_embedding_dim();
  const int64_t rows = int64_t{plan.types} + (c.full() ? 1 : 0);
  w.edge_embedding = w.arena.take(std::max<int64_t>(1, rows) * width);
  w.edge_weights.clear();
  for (int32_t t = 0; t < plan.types; ++t) {
    embed_row(edge_embedding, w.batch->edge_features, plan.type_edge[static_cast<size_t>(t)],
              w.edge_embedding + int64_t{t} * width);
    w.edge_weights.push_back(static_cast<float>(plan.type_count[static_cast<size_t>(t)]));
  }
  if (c.full()) {
    float* added = w.edge_embedding + int64_t{plan.types} * width;
    std::fill(added, added + width, 0.0F);
    if (c.added_edge == AddedEdge::kLearned) {
      std::copy_n(value(added_edge), width, added);
    } else {
      for (const int tensor : edge_embedding.tables) {
        const float* table = value(tensor);
        for (int i = 0; i < width; ++i) added[i] += table[i];
      }
    }
    w.edge_weights.push_back(static_cast<float>(plan.added_pairs));
  }
  if (has_edge_mlp(w)) {
    extra_mlp(w, pool, w.edge_embedding, edge_mlp_rows(w), edge_mlp_norm, edge_mlp, &w.edge_weights, w.edge_mlp);
  }
}

void Network::Impl::embed_edges_back(Work& w, ThreadPool& pool, float* d, const std::vector<float*>& g) {
  const NetworkPlan& plan = *w.plan;
  const int width = c.edge_embedding_dim();
  if (has_edge_mlp(w)) {
    extra_mlp_back(w, pool, d, edge_mlp_rows(w), edge_mlp_norm, edge_mlp, &w.edge_weights, w.edge_mlp, g);
  }
  for (int32_t t = 0; t < plan.types; ++t) {
    embed_row_back(edge_embedding, w.batch->edge_features, plan.type_edge[static_cast<size_t>(t)],
                   d + int64_t{t} * width, g);
  }
  if (c.full() && plan.added_pairs > 0) {
    const float* added = d + int64_t{plan.types} * width;
    if (c.added_edge == AddedEdge::kLearned) {
      float* to = g[static_cast<size_t>(added_edge)];
      for (int i = 0; i < width; ++i) to[i] += added[i];
    } else {
      for (const int tensor : edge_embedding.tables) {
        float* to = g[static_cast<size_t>(tensor)];
        for (int i = 0; i < width; ++i) to[i] += added[i];
      }
    }
  }
}

}  // namespace san
