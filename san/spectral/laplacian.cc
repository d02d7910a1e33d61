#include "san/spectral/laplacian.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace san::spectral {

void ComponentLaplacian::apply(const double* x, double* y) const {
  for (int i = 0; i < size; ++i) {
    const double here = scale[i] * x[i];
    double sum = 0;
    for (int64_t k = offsets[i]; k < offsets[i + 1]; ++k) {
      const int32_t j = neighbours[k];
      sum += here - scale[j] * x[j];
    }
    y[i] = scale[i] * sum;
  }
}

Eigen::MatrixXd ComponentLaplacian::energy(const Eigen::MatrixXd& x) const {
  using RowMajor = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  constexpr int kBlock = 512;
  const auto columns = x.cols();
  const RowMajor scaled = Eigen::Map<const Eigen::VectorXd>(scale.data(), size).asDiagonal() * x;
  RowMajor block(kBlock, columns);
  Eigen::MatrixXd sum = Eigen::MatrixXd::Zero(columns, columns);
  int filled = 0;
  const auto flush = [&] {
    sum.noalias() += block.topRows(filled).transpose() * block.topRows(filled);
    filled = 0;
  };
  for (int i = 0; i < size; ++i) {
    for (int64_t k = offsets[i]; k < offsets[i + 1]; ++k) {
      if (neighbours[k] < i) continue;
      block.row(filled++) = scaled.row(i) - scaled.row(neighbours[k]);
      if (filled == kBlock) flush();
    }
  }
  flush();
  return sum;
}

Eigen::MatrixXd ComponentLaplacian::dense() const {
  Eigen::MatrixXd matrix = Eigen::MatrixXd::Zero(size, size);
  for (int i = 0; i < size; ++i) {
    matrix(i, i) = static_cast<double>(offsets[i + 1] - offsets[i]) / mass[i];
    for (int64_t k = offsets[i]; k < offsets[i + 1]; ++k) {
      matrix(neighbours[k], i) = -scale[i] * scale[neighbours[k]];
    }
  }
  if (size == 1) matrix(0, 0) = lone_value;
  return matrix;
}

Eigen::VectorXd ComponentLaplacian::null_vector() const {
  Eigen::VectorXd vector = Eigen::Map<const Eigen::VectorXd>(mass.data(), size).cwiseSqrt();
  vector /= vector.norm();
  return vector;
}

double ComponentLaplacian::upper_bound() const {
  // Two bounds: Gershgorin's on W^-1 K, and that of K alone (Anderson and Morley: the largest deg_i + deg_j
  // over the edges) divided by the smallest mass.
  double gershgorin = 0, pairs = 0;
  for (int i = 0; i < size; ++i) {
    const auto degree = static_cast<double>(offsets[i + 1] - offsets[i]);
    gershgorin = std::max(gershgorin, 2 * degree / mass[i]);
    for (int64_t k = offsets[i]; k < offsets[i + 1]; ++k) {
      const int32_t j = neighbours[k];
      pairs = std::max(pairs, degree + static_cast<double>(offsets[j + 1] - offsets[j]));
    }
  }
  const double lightest = mass.empty() ? 1 : *std::min_element(mass.begin(), mass.end());
  return std::min(gershgorin, pairs / lightest);
}

std::vector<ComponentLaplacian> connected_components(const Graph& graph, Laplacian laplacian) {
  const int32_t n = graph.num_nodes;
  SAN_CHECK(n >= 1, "a spectrum needs a graph with at least one node");

  // The simple undirected adjacency: both directions of every edge, each row sorted and made unique.
  std::vector<int64_t> offsets(static_cast<size_t>(n) + 1, 0);
  std::vector<char> loop(n, 0);
  for (const Edge& edge : graph.edges) {
    SAN_CHECK(edge.source >= 0 && edge.source < n && edge.target >= 0 && edge.target < n,
              "an edge joins nodes {} and {}, but the graph has nodes 0..{}", edge.source, edge.target, n - 1);
    if (edge.source == edge.target) {
      loop[edge.source] = 1;
    } else {
      ++offsets[edge.source + 1];
      ++offsets[edge.target + 1];
    }
  }
  std::partial_sum(offsets.begin(), offsets.end(), offsets.begin());
  std::vector<int32_t> neighbours(offsets[n]);
  std::vector<int64_t> ends(offsets.begin(), offsets.end() - 1);
  for (const Edge& edge : graph.edges) {
    if (edge.source == edge.target) continue;
    neighbours[ends[edge.source]++] = edge.target;
    neighbours[ends[edge.target]++] = edge.source;
  }
  for (int32_t i = 0; i < n; ++i) {
    const auto begin = neighbours.begin() + offsets[i];
    std::sort(begin, neighbours.begin() + ends[i]);
    ends[i] = std::unique(begin, neighbours.begin() + ends[i]) - neighbours.begin();
  }

  std::vector<int32_t> component(n, -1), local(n), stack;
  std::vector<ComponentLaplacian> parts;
  for (int32_t root = 0; root < n; ++root) {
    if (component[root] >= 0) continue;
    const auto number = static_cast<int32_t>(parts.size());
    ComponentLaplacian part;
    component[root] = number;
    stack.assign(1, root);
    while (!stack.empty()) {
      const int32_t i = stack.back();
      stack.pop_back();
      part.nodes.push_back(i);
      for (int64_t k = offsets[i]; k < ends[i]; ++k) {
        const int32_t j = neighbours[k];
        if (component[j] >= 0) continue;
        component[j] = number;
        stack.push_back(j);
      }
    }
    std::sort(part.nodes.begin(), part.nodes.end());
    part.size = static_cast<int>(part.nodes.size());
    int64_t total = 0;
    for (int k = 0; k < part.size; ++k) {
      const int32_t i = part.nodes[k];
      local[i] = k;
      total += ends[i] - offsets[i];
    }
    part.offsets.reserve(part.size + 1);
    part.neighbours.reserve(total);
    part.mass.reserve(part.size);
    part.scale.reserve(part.size);
    part.offsets.push_back(0);
    for (const int32_t i : part.nodes) {
      // local[] keeps the order of nodes, so rows stay ascending.
      for (int64_t k = offsets[i]; k < ends[i]; ++k) part.neighbours.push_back(local[neighbours[k]]);
      part.offsets.push_back(static_cast<int64_t>(part.neighbours.size()));
      const auto degree = static_cast<double>(ends[i] - offsets[i] + loop[i]);
      part.mass.push_back(laplacian == Laplacian::kCombinatorial ? 1.0 : std::max(degree, 1.0));
      part.scale.push_back(1 / std::sqrt(part.mass.back()));
    }
    const bool isolated = part.size == 1 && !loop[root];
    part.lone_value = isolated && laplacian != Laplacian::kCombinatorial ? 1 : 0;
    parts.push_back(std::move(part));
  }
  return parts;
}

}  // namespace san::spectral
