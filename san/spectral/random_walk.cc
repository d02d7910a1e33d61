#include "san/spectral/random_walk.h"

#include <algorithm>
#include <cmath>

#include "san/base/error.h"

namespace san {

void add_walk_features(Graph& graph, int steps) {
  SAN_CHECK(steps >= 0 && steps <= kMaxWalkSteps, "{} steps of random walks; 0 to {} are allowed", steps,
            kMaxWalkSteps);
  if (steps == 0) return;
  const auto nodes = static_cast<size_t>(graph.num_nodes);
  std::vector<std::vector<int32_t>> neighbours(nodes);
  for (const Edge& e : graph.edges) {
    neighbours[static_cast<size_t>(e.source)].push_back(e.target);
    neighbours[static_cast<size_t>(e.target)].push_back(e.source);
  }
  std::vector<double> scale(nodes, 0.0);
  for (size_t i = 0; i < nodes; ++i) {
    std::vector<int32_t>& list = neighbours[i];
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
    if (!list.empty()) scale[i] = 1 / std::sqrt(static_cast<double>(list.size()));
  }

  Features& features = graph.node_features;
  const auto before = static_cast<size_t>(features.value_columns), columns = before + static_cast<size_t>(steps);
  std::vector<float> values(nodes * columns);
  for (size_t i = 0; i < nodes; ++i) {
    std::copy_n(features.values.begin() + static_cast<std::ptrdiff_t>(i * before), before, values.data() + i * columns);
  }
  // The walk's matrix has the diagonal of S = D^-1/2 A D^-1/2, and S is symmetric: (S^(a+b))_ii = (S^a e_i) . (S^b e_i), so
  // that half the steps do. kTogether nodes at a time, side by side in a row per node, so that an edge is one step of vectors;
  // only rows of nodes that can be reached are touched, and all others are zero.
  constexpr size_t kTogether = 32;
  std::vector<double> last(nodes * kTogether, 0.0), next(nodes * kTogether, 0.0);
  const auto row_of = [](std::vector<double>& rows, int32_t node) {
    return rows.data() + static_cast<size_t>(node) * kTogether;
  };
  std::vector<uint8_t> seen(nodes, 0);
  std::vector<int32_t> reached, more;
  for (size_t first = 0; first < nodes; first += kTogether) {
    const size_t count = std::min(kTogether, nodes - first);
    reached.clear();
    for (size_t i = 0; i < count; ++i) {
      reached.push_back(static_cast<int32_t>(first + i));
      row_of(last, reached.back())[i] = 1;
    }
    for (int step = 1; step <= steps; step += 2) {
      more.clear();
      for (const int32_t j : reached) {
        const double* from = row_of(last, j);
        for (const int32_t k : neighbours[static_cast<size_t>(j)]) {
          if (seen[static_cast<size_t>(k)] == 0) {
            seen[static_cast<size_t>(k)] = 1;
            more.push_back(k);
          }
          const double share = scale[static_cast<size_t>(j)] * scale[static_cast<size_t>(k)];
          double* to = row_of(next, k);
          for (size_t i = 0; i < kTogether; ++i) to[i] += share * from[i];
        }
      }
      double odd[kTogether] = {}, even[kTogether] = {};
      for (const int32_t k : more) {
        seen[static_cast<size_t>(k)] = 0;
        const double *a = row_of(last, k), *b = row_of(next, k);
        for (size_t i = 0; i < kTogether; ++i) {
          odd[i] += a[i] * b[i];
          even[i] += b[i] * b[i];
        }
      }
      for (size_t i = 0; i < count; ++i) {
        float* row = values.data() + (first + i) * columns + before;
        row[step - 1] = static_cast<float>(odd[i]);
        if (step < steps) row[step] = static_cast<float>(even[i]);
      }
      for (const int32_t j : reached) std::fill_n(row_of(last, j), kTogether, 0.0);
      std::swap(last, next);
      std::swap(reached, more);
    }
    for (const int32_t j : reached) std::fill_n(row_of(last, j), kTogether, 0.0);
  }
  features.values = std::move(values);
  features.value_columns = static_cast<int>(columns);
}

}  // namespace san
