// Distances between nodes from a graph's whole spectrum: equations 1 and 2 of the paper.
#pragma once

#include <vector>

#include "san/graph/graph.h"

namespace san {

// All matrices are [num_nodes, num_nodes] row-major. Each needs every eigenpair: O(N^3) time, O(N^2) memory;
// throws Error for graphs of more than kMaxDistanceNodes nodes. Eigenvalues below 1e-9 count as zero and are
// left out of the sums (i > 0 in the paper; one per component in a disconnected graph).
inline constexpr int kMaxDistanceNodes = 5000;

// Equation 1 as printed: d_a^1/2 d_b^-1/2 sum_i (phi_ia phi_ib)^2 / lambda_i over the symmetric Laplacian.
// Not a function of the graph alone: where eigenvalues repeat, the squares depend on which basis of the eigenspace
// the solver chose (a triangle's three equal nodes come out unequal). The other three do not.
std::vector<double> green_function_squared(const Graph& graph);

// The standard form without the square: d_a^1/2 d_b^-1/2 sum_i phi_ia phi_ib / lambda_i, that is
// D^1/2 pinv(L_sym) D^-1/2.
std::vector<double> green_function(const Graph& graph);

// Equation 2, combinatorial Laplacian. Distances, not their squares.
std::vector<double> diffusion_distance(const Graph& graph, double time);
std::vector<double> biharmonic_distance(const Graph& graph);

}  // namespace san
