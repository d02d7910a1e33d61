// Graphs laid end to end: what a model reads. Nothing is padded except eigenpairs, to the batch's largest
// count.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "san/graph/graph.h"

namespace san {

// Immutable once built; safe to share between threads. B graphs, N nodes in all, E edges in all, M
// eigenpairs.
struct Batch {
  int32_t num_graphs = 0;
  int32_t num_nodes = 0;
  int64_t num_edges = 0;

  std::vector<int32_t> node_offsets;  // [B + 1]: graph g has nodes node_offsets[g] .. node_offsets[g + 1]
  std::vector<int64_t> edge_offsets;  // [B + 1]
  std::vector<int32_t> edge_sources;  // [E], numbers of nodes in the batch
  std::vector<int32_t> edge_targets;  // [E]
  Features node_features;             // rows = N; graphs without features get one column of category 0
  Features edge_features;             // rows = E; graphs without features get one column of category 1

  int32_t max_pairs = 0;            // M; 0 when no graph has eigenpairs
  std::vector<int32_t> num_pairs;   // [B]; pairs beyond are padding: zeros, to be masked
  std::vector<float> eigenvalues;   // [B, M]
  std::vector<float> eigenvectors;  // [N, M]

  // Labels: [B, label_columns], or [N, 1] for node labels; empty when any graph has none. NaN = missing.
  int32_t label_columns = 0;
  bool node_labels = false;
  std::vector<double> labels;
};

// Throws Error naming the graph when graphs do not fit together: different feature columns or label columns.
// Eigenpairs are cut to the lowest `max_pairs`; graphs that have none count as having zero.
Batch make_batch(std::span<const Graph* const> graphs, int max_pairs);

}  // namespace san
