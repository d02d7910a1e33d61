// The Laplacian of one connected component, as the solvers of this room see it. Internal: callers outside
// spectral/ use spectrum.h.
//
// Every Laplacian of spectrum.h has the same core. Let K = D' - A' be the integer Laplacian without self
// loops (a loop's 1 on the diagonal of A cancels its 1 in the degree) and w the mass of each node: the degree
// with loops (symmetric, random-walk), or 1 (combinatorial). Then L = W^-1/2 K W^-1/2, its lowest pair on a
// connected component is exactly (0, W^1/2 1), and random-walk eigenvectors are W^-1/2 times those of L.
#pragma once

#include <Eigen/Core>
#include <cstdint>
#include <vector>

#include "san/graph/graph.h"
#include "san/spectral/spectrum.h"

namespace san::spectral {

// Immutable once built; safe to share between threads.
struct ComponentLaplacian {
  int size = 0;                     // nodes of this component, numbered 0..size-1 in the order of `nodes`
  std::vector<int32_t> nodes;       // the graph's number of each, ascending
  std::vector<int64_t> offsets;     // [size + 1] into neighbours
  std::vector<int32_t> neighbours;  // each undirected edge twice, ascending per node, no loops, no repeats
  std::vector<double> mass;         // [size] w
  std::vector<double> scale;        // [size] w^-1/2
  // The eigenvalue of an only node: 0, but 1 for a node without any edge in a Laplacian that clips degrees.
  double lone_value = 0;

  // y = L x, summed as differences over edges: keeps the relative accuracy of smooth x, whose eigenvalue may
  // be 1e-9 while L's entries are 1. x, y: [size], not aliased.
  void apply(const double* x, double* y) const;

  // X^T L X by edges (same reason). x: [size, any].
  Eigen::MatrixXd energy(const Eigen::MatrixXd& x) const;

  // All of L. O(size^2) memory.
  Eigen::MatrixXd dense() const;

  // The unit vector of eigenvalue 0.
  Eigen::VectorXd null_vector() const;

  // No eigenvalue is larger.
  double upper_bound() const;
};

// The components in the order of their lowest nodes. Throws Error for an edge whose end is not a node.
std::vector<ComponentLaplacian> connected_components(const Graph& graph, Laplacian laplacian);

}  // namespace san::spectral
