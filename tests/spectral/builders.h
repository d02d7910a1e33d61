// Small graphs for the tests of this room.
#pragma once

#include <cmath>
#include <numeric>
#include <span>
#include <vector>

#include "san/base/random.h"
#include "san/graph/graph.h"

namespace san::testing {

struct Builder {
  Graph graph;
  explicit Builder(int nodes) { graph.num_nodes = nodes; }
  Builder& join(int a, int b) {
    graph.edges.push_back({a, b});
    graph.edges.push_back({b, a});
    return *this;
  }
};

// Nodes without edges.
inline Graph isolated(int n) {
  Builder b(n);
  return b.graph;
}

inline Graph path(int n) {
  Builder b(n);
  for (int i = 1; i < n; ++i) b.join(i - 1, i);
  return b.graph;
}

inline Graph cycle(int n) {
  Builder b(n);
  for (int i = 0; i < n; ++i) b.join(i, (i + 1) % n);
  return b.graph;
}

inline Graph star(int n) {
  Builder b(n);
  for (int i = 1; i < n; ++i) b.join(0, i);
  return b.graph;
}

inline Graph complete(int n) {
  Builder b(n);
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < i; ++j) b.join(i, j);
  return b.graph;
}

inline Graph hypercube(int dimensions) {
  Builder b(1 << dimensions);
  for (int i = 0; i < (1 << dimensions); ++i)
    for (int bit = 0; bit < dimensions; ++bit)
      if (((i >> bit) & 1) == 0) b.join(i, i | (1 << bit));
  return b.graph;
}

inline Graph grid(int rows, int columns) {
  Builder b(rows * columns);
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < columns; ++j) {
      if (j + 1 < columns) b.join(i * columns + j, i * columns + j + 1);
      if (i + 1 < rows) b.join(i * columns + j, (i + 1) * columns + j);
    }
  return b.graph;
}

inline Graph random_graph(int n, double p, uint64_t seed) {
  Random random(seed);
  Builder b(n);
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < i; ++j)
      if (random.chance(p)) b.join(i, j);
  return b.graph;
}

inline Graph random_tree(int n, uint64_t seed) {
  Random random(seed);
  Builder b(n);
  for (int i = 1; i < n; ++i) b.join(i, static_cast<int>(random.below(i)));
  return b.graph;
}

// The union of degree / 2 random Hamiltonian cycles: regular but for the rare edge that two of them share.
inline Graph random_regular(int n, int degree, uint64_t seed) {
  Random random(seed);
  Builder b(n);
  std::vector<int> order(n);
  std::iota(order.begin(), order.end(), 0);
  for (int k = 0; k < degree / 2; ++k) {
    random.shuffle(std::span<int>(order));
    for (int i = 0; i < n; ++i) b.join(order[i], order[(i + 1) % n]);
  }
  return b.graph;
}

inline Graph disjoint(const std::vector<Graph>& graphs) {
  Builder b(0);
  for (const Graph& graph : graphs) {
    for (const Edge& edge : graph.edges)
      b.graph.edges.push_back({edge.source + b.graph.num_nodes, edge.target + b.graph.num_nodes});
    b.graph.num_nodes += graph.num_nodes;
  }
  return b.graph;
}

// The nodes renumbered at random.
inline Graph relabelled(Graph graph, uint64_t seed) {
  std::vector<int> order(graph.num_nodes);
  std::iota(order.begin(), order.end(), 0);
  Random(seed).shuffle(std::span<int>(order));
  for (Edge& edge : graph.edges) edge = {order[edge.source], order[edge.target]};
  return graph;
}

}  // namespace san::testing
