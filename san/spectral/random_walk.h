// Where random walks come back to: a view of a node's surroundings beside the eigenvectors, without their signs.
#pragma once

#include "san/graph/graph.h"

namespace san {

inline constexpr int kMaxWalkSteps = 256;

// Appends `steps` columns of real-valued node features: the probability that a random walk on the simple undirected graph
// is back at its node after 1, 2, .. steps. A node without edges gets zeros. O(steps * nodes * edges) time, O(nodes + edges)
// memory. Safe to call from many threads at once.
void add_walk_features(Graph& graph, int steps);

}  // namespace san
