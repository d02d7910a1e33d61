// A Batch as tensors, with the pairs that attention runs over.
#pragma once

#include "san/data/batch.h"
#include "san/model/config.h"
#include "san/nn/torch.h"

namespace san::nn {

// B graphs, N nodes, M eigenpairs, E real edges, A added pairs, P = E + A. Immutable once made.
struct BatchTensors {
  int64_t num_graphs = 0;
  int64_t num_nodes = 0;
  at::Tensor node_categories;  // [N, columns] int64
  at::Tensor node_values;      // [N, values]
  at::Tensor edge_categories;  // [E, columns] int64
  at::Tensor edge_values;      // [E, values]

  // Ordered pairs: real edges in the order of the batch, then, with full attention, every other (a, b), a !=
  // b, of the same graph. Attention flows source -> target.
  at::Tensor sources, targets;  // [P] int64
  int64_t num_real = 0;         // E
  int64_t num_added = 0;        // A

  at::Tensor graph_of_node;  // [N] int64
  at::Tensor node_counts;    // [B], as real numbers
  std::vector<int64_t> node_offsets;

  // Node LPE: one sequence per node, with both_signs a second one for the eigenvectors' negatives. Edge LPE: then one per
  // unordered pair; code_of_pair says which one a pair reads.
  at::Tensor lpe_tokens;    // [sequences, M, token width]
  at::Tensor lpe_mask;      // [sequences, M] bool, true = padding
  at::Tensor code_of_pair;  // [P] int64, edge LPE only

  at::Tensor labels;  // [B or N, columns], NaN = missing; undefined without labels
};

// `config` decides which pairs and tokens are made. Real numbers have the given dtype (float or double).
// Throws Error when a graph that needs eigenpairs has none, or when full attention over the batch would need
// more than 2^27 pairs (a graph of 11,000 nodes).
BatchTensors to_tensors(const Batch& batch, const ModelConfig& config, at::ScalarType dtype, at::Device device);

// The batch's labels in float, [B or N, columns]; undefined without labels. What to_tensors() puts in `labels`, for engines that
// need no other tensor.
at::Tensor labels_of(const Batch& batch);

}  // namespace san::nn
