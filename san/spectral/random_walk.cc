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
  // The walk's matrix has the diagonal of S = D^-1/2 A D^-1/2, and S is symmetric: (S^(a+b))_ii = (S^a e_i) . (S^b e_i), so
  // that half the steps do. Only nodes that can be reached are touched.
  std::vector<double> last(nodes, 0.0), next(nodes, 0.0);
  std::vector<int32_t> reached, more;
  for (size_t i = 0; i < nodes; ++i) {
    float* row = values.data() + i * columns;
    std::copy_n(features.values.begin() + static_cast<std::ptrdiff_t>(i * before), before, row);
    row += before;
    last[i] = 1;
    reached.assign(1, static_cast<int32_t>(i));
    for (int step = 1; step <= steps; step += 2) {
      more.clear();
      for (const int32_t j : reached) {
        const double share = last[static_cast<size_t>(j)] * scale[static_cast<size_t>(j)];
        for (const int32_t k : neighbours[static_cast<size_t>(j)]) {
          if (next[static_cast<size_t>(k)] == 0) more.push_back(k);
          next[static_cast<size_t>(k)] += share * scale[static_cast<size_t>(k)];
        }
      }
      double odd = 0, even = 0;
      for (const int32_t k : more) {
        odd += last[static_cast<size_t>(k)] * next[static_cast<size_t>(k)];
        even += next[static_cast<size_t>(k)] * next[static_cast<size_t>(k)];
      }
      row[step - 1] = static_cast<float>(odd);
      if (step < steps) row[step] = static_cast<float>(even);
      for (const int32_t j : reached) last[static_cast<size_t>(j)] = 0;
      std::swap(last, next);
      std::swap(reached, more);
    }
    for (const int32_t j : reached) last[static_cast<size_t>(j)] = 0;
  }
  features.values = std::move(values);
  features.value_columns = static_cast<int>(columns);
}

}  // namespace san
