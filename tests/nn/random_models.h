// Random graphs and random configurations for property tests.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <initializer_list>

#include "san/base/random.h"
#include "san/model/config.h"
#include "san/spectral/spectrum.h"

namespace san::testing {

inline uint64_t first_seed() {
  const char* text = std::getenv("SAN_TEST_SEED");
  return text == nullptr ? 1 : std::strtoull(text, nullptr, 10);
}

// A graph with features that `config` can read: any size from 1, sometimes directed, with self loops or
// isolated nodes.
inline Graph random_graph(const ModelConfig& config, Random& random, int max_nodes = 14) {
  Graph graph;
  graph.num_nodes = random.range(1, max_nodes + 1);
  const double density = random.uniform();
  const bool directed = random.chance(0.2), loops = random.chance(0.2);
  for (int a = 0; a < graph.num_nodes; ++a) {
    for (int b = 0; b < graph.num_nodes; ++b) {
      if (a == b ? !(loops && random.chance(0.3)) : !(directed || a < b) || !random.chance(density)) continue;
      graph.edges.push_back({a, b});
      if (!directed && a != b) graph.edges.push_back({b, a});
    }
  }
  const auto fill = [&](Features& features, size_t rows, const std::vector<int>& tables, int values) {
    features.category_columns = static_cast<int>(tables.size());
    features.value_columns = values;
    for (size_t row = 0; row < rows; ++row) {
      for (const int size : tables) features.categories.push_back(random.range(0, size));
      for (int i = 0; i < values; ++i) features.values.push_back(static_cast<float>(random.normal()));
    }
  };
  fill(graph.node_features, static_cast<size_t>(graph.num_nodes), config.node_tables, config.node_values);
  fill(graph.edge_features, graph.edges.size(), config.edge_tables, config.edge_values);
  return graph;
}

inline void add_spectrum(Graph& graph, int pairs) {
  SpectrumOptions options;
  options.num_pairs = pairs;
  graph.eigenpairs = to_eigenpairs(compute_spectrum(graph, options));
}

template <typename T>
T pick(Random& random, std::initializer_list<T> values) {
  return values.begin()[random.below(values.size())];
}

inline ModelConfig random_config(Random& random) {
  ModelConfig c;
  c.lpe.kind = pick(random, {LpeKind::kNone, LpeKind::kNode, LpeKind::kEdge});
  c.lpe.heads = pick(random, {1, 2, 3});
  c.lpe.dim = c.lpe.heads * random.range(1, 4);
  c.lpe.layers = random.range(1, 4);
  c.lpe.ff_dim = random.range(1, 40);
  c.heads = pick(random, {1, 2, 4, 5});
  c.hidden_dim = c.heads * random.range(1, 5) + c.heads * 10;
  c.out_dim = random.chance(0.3) ? c.heads * random.range(4, 9) : 0;
  c.layers = random.range(1, 4);
  c.attention = pick(random, {AttentionKind::kFull, AttentionKind::kFull, AttentionKind::kSparse});
  c.attention_norm = pick(random, {AttentionNorm::kJoint, AttentionNorm::kSeparate});
  c.gamma = pick(random, {1e-6, 1e-2, 0.5, 2.0});
  c.bias = random.chance(0.3);
  c.residual = random.chance(0.7);
  c.layer_norm = random.chance(0.4);
  c.batch_norm = random.chance(0.6);
  c.readout = pick(random, {Readout::kSum, Readout::kMean, Readout::kMax, Readout::kNode});
  c.extra_mlp = random.chance(0.3);
  c.outputs = random.range(1, 4);
  c.node_tables.clear();
  c.edge_tables.clear();
  for (int i = random.range(0, 3); i > 0; --i) c.node_tables.push_back(random.range(1, 6));
  c.node_values = c.node_tables.empty() || random.chance(0.3) ? random.range(1, 4) : 0;
  for (int i = random.range(0, 3); i > 0; --i) c.edge_tables.push_back(random.range(1, 6));
  c.edge_values = c.edge_tables.empty() || random.chance(0.3) ? random.range(1, 4) : 0;
  c.added_edge = c.edge_values > 0 || random.chance(0.5) ? AddedEdge::kLearned : AddedEdge::kRow0;
  c.lpe.both_signs = c.lpe.kind == LpeKind::kNode && random.chance(0.3);
  // Nothing is drawn for these: seeds go on naming the cases that they did.
  if (c.lpe.kind != LpeKind::kNone && (c.lpe.ff_dim + c.layers) % 3 == 0) c.lpe.kind = LpeKind::kBoth;
  c.incident_edges = (c.hidden_dim + c.layers) % 3 == 0;
  c.standardise_nodes = c.node_values > 0 && c.lpe.ff_dim % 2 == 0;
  c.dropout = c.in_feat_dropout = c.lpe.dropout = 0;
  ModelDescription description;
  description.model = c;
  if (c.readout == Readout::kNode) {
    description.task.kind = TaskKind::kNodeClassification;
    description.task.loss = Loss::kCrossEntropy;
  }
  validate(description);
  return c;
}

}  // namespace san::testing
